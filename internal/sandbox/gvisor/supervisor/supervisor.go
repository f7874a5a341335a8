//go:build linux && (amd64 || arm64)

// Package supervisor is the part of the gVisor engine that runs inside a sandbox's
// namespaces, as their first process, started from this program's executable under
// another name. It assembles the root file system, starts gVisor's kernel from the
// linked-in runtime, forwards signals, watches memory if no cgroup does, and ends
// when its lifeline closes. As it is the first process of a process namespace, the
// host's kernel then ends all others.
//
// Everything that it mounts and writes is in its own mount namespace and vanishes
// with it.
package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/sallyport/sallyport/internal/executable"
	"github.com/sallyport/sallyport/internal/sandbox/gvisor"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// Main runs the part of the engine that argv[0] names, and reports whether it
// names one. It does not return while that part runs.
func Main(args []string) (code int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	name := filepath.Base(args[0])
	isSupervisor := name == gvisor.SupervisorName
	// The runtime starts some of its parts with the path of its executable.
	if !isSupervisor && !strings.HasPrefix(name, gvisor.RuntimePrefix) && args[0] != specutils.ExePath {
		return 0, false
	}
	executable.Begin()
	if err := useOwnKernel(); err != nil {
		return 1, true
	}
	if isSupervisor {
		return run(), true
	}
	narrowSyscalls()
	cheapenForks()
	runtimeMain()
	return 0, true
}

// supervisor is one running sandbox, as seen by its first process.
type supervisor struct {
	cfg       gvisor.SupervisorConfig
	conf      *config.Config
	container *container.Container
	panicLog  string
	line      *supervise.Lifeline

	peak     atomic.Int64
	overUsed atomic.Bool
	saved    atomic.Bool // it was ended after a snapshot
}

func run() int {
	// The gofer's parent-death signal is tied to the thread that starts it. The
	// main thread lives as long as the process.
	runtime.LockOSThread()
	// Standard error belongs to the guest. The runtime's own processes log where
	// their flags say.
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	s := &supervisor{}
	var err error
	if s.line, err = supervise.OpenLifeline(&s.cfg); err != nil {
		return 1
	}
	unix.CloseOnExec(supervise.RoomFD)
	for i := range s.cfg.Restore {
		unix.CloseOnExec(supervise.FirstFile + i)
	}
	if err := s.start(); err != nil {
		s.line.Send(supervise.Event{Kind: supervise.EventFailed, Error: err.Error(), Detail: s.lastWords()})
		return 1
	}
	s.line.Send(supervise.Event{Kind: supervise.EventStarted})
	go func() {
		s.line.Serve(s.do)
		os.Exit(1) // the lifeline is gone
	}()
	if s.cfg.WatchMemory {
		go s.watchMemory()
	}
	go s.watchFileServer(s.container.GoferPid.Load())

	status, err := s.container.Wait()
	exit := supervise.Exit{OverUsed: s.overUsed.Load()}
	switch {
	case s.saved.Load(): // as the runtime does
	case err != nil:
		exit.Killed = true
	case status.Signaled():
		exit.Code = 128 + int(status.Signal())
		exit.Killed = status.Signal() == unix.SIGKILL
	default:
		exit.Code = status.ExitStatus()
	}
	s.line.Finish(supervise.Event{Kind: supervise.EventExited, Exit: &exit, Detail: s.lastWords()})
	return 0
}

// do carries out a command.
func (s *supervisor) do(cmd supervise.Command) (*supervise.Usage, error) {
	switch cmd.Op {
	case supervise.OpInterrupt:
		return nil, s.container.SignalContainer(unix.SIGINT, false)
	case supervise.OpPause:
		return nil, s.container.Pause()
	case supervise.OpResume:
		return nil, s.container.Resume()
	case supervise.OpSnapshot:
		return nil, s.snapshot(cmd.Dir, cmd.Keep)
	case supervise.OpUsage:
		u, err := measure()
		if err != nil {
			return nil, err
		}
		s.notePeak(u.memory)
		return &supervise.Usage{CPUMillis: u.cpu.Milliseconds(), MemoryBytes: u.memory, PeakBytes: s.peak.Load()}, nil
	}
	return nil, fmt.Errorf("unknown operation %q", cmd.Op)
}

// start builds the root, configures the runtime and starts the sandbox. To restore
// a snapshot, it waits for the command that confirms it.
func (s *supervisor) start() error {
	dirs, err := buildRoot(&s.cfg)
	if err != nil {
		return fmt.Errorf("preparing the root file system: %w", err)
	}
	s.panicLog = filepath.Join(dirs.base, "panic.log")
	spec := ociSpec(&s.cfg, &dirs)
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dirs.bundle, "config.json"), raw, 0o600); err != nil {
		return err
	}
	conf, err := runtimeConfig(&s.cfg, dirs, s.panicLog)
	if err != nil {
		return err
	}
	// Attached: the gofer dies with this process, and the descriptors 0 to 2
	// of this process become those of the guest's init.
	s.container, err = container.New(conf, container.Args{
		ID:        s.cfg.ID,
		Spec:      spec,
		BundleDir: dirs.bundle,
		Attached:  true,
	})
	if err != nil {
		return fmt.Errorf("creating the sandbox: %w", err)
	}
	s.conf = conf
	if len(s.cfg.Restore) > 0 {
		if cmd, err := s.line.Next(); err != nil || cmd.Op != supervise.OpRestore {
			return fmt.Errorf("the snapshot was not confirmed (%v)", err) //nolint:errorlint // there may be no error
		}
		if err := s.restore(dirs.image); err != nil {
			return fmt.Errorf("restoring the sandbox: %w", err)
		}
		if len(s.cfg.Mounts) > 0 {
			_ = unix.Kill(s.container.GoferPid.Load(), restoredSignal)
		}
		return nil
	}
	if err := s.container.Start(conf); err != nil {
		return fmt.Errorf("starting the sandbox: %w", err)
	}
	return nil
}

// runtimeConfig returns gVisor's configuration. It names every flag that could
// weaken isolation, with its safe value.
func runtimeConfig(cfg *gvisor.SupervisorConfig, dirs rootDirs, panicLog string) (*config.Config, error) {
	args := []string{
		"--root=" + dirs.state,
		"--network=none",
		"--gofer-network-namespace=host", // the supervisor's own namespace, which is empty
		"--ignore-cgroups",               // the engine made the cgroup, and the supervisor is in it
		"--directfs=false",               // the sandbox's kernel opens no host file itself
		"--overlay2=none",
		"--platform=systrap", // never kvm without a probe
		"--host-uds=none",
		"--host-fifo=none",
		"--host-settings=ignore",
		"--panic-log=" + panicLog,
	}
	if cfg.OwnUserNamespace {
		// Only one uid is mapped here: run the sandbox as that uid, in another
		// user namespace, instead of as the host's nobody.
		args = append(args, "--rootless")
	}
	if cfg.DebugLog != "" {
		args = append(args, "--debug", "--debug-log="+cfg.DebugLog+"/")
	}
	flags := flag.NewFlagSet("runsc", flag.ContinueOnError)
	config.RegisterFlags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	return config.NewFromFlags(flags)
}

// lastWords returns the end of what the runtime wrote when it panicked.
func (s *supervisor) lastWords() string {
	const limit = 4096
	if s.panicLog == "" {
		return ""
	}
	b, err := os.ReadFile(s.panicLog)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	if len(b) > limit {
		b = b[:limit]
	}
	return strings.ToValidUTF8(string(b), "?")
}

// watchFileServer kills the sandbox when its file server has ended. A started
// sandbox notices that itself; a restored one would run on without it.
func (s *supervisor) watchFileServer(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	for err == nil || err == unix.EINTR {
		var n int
		if n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); n > 0 {
			break
		}
	}
	if err != nil && err != unix.ESRCH { // ESRCH: it is gone already
		return // the kernel is older than 5.3
	}
	// This changes nothing if the sandbox has ended by itself.
	_ = unix.Kill(s.container.SandboxPid(), unix.SIGKILL)
}

// watchMemory kills the sandbox when its memory exceeds the limit. It samples more
// often past half of the limit.
func (s *supervisor) watchMemory() {
	const calm, alert = 100 * time.Millisecond, 20 * time.Millisecond
	for {
		interval := calm
		if u, err := measure(); err == nil {
			s.notePeak(u.memory)
			if u.memory > s.cfg.MemoryBytes {
				s.overUsed.Store(true)
				_ = s.container.SignalContainer(unix.SIGKILL, true)
				_ = unix.Kill(s.container.SandboxPid(), unix.SIGKILL)
				return
			}
			if u.memory > s.cfg.MemoryBytes/2 {
				interval = alert
			}
		}
		time.Sleep(interval)
	}
}

func (s *supervisor) notePeak(memory int64) {
	for {
		p := s.peak.Load()
		if memory <= p || s.peak.CompareAndSwap(p, memory) {
			return
		}
	}
}
