//go:build linux && (amd64 || arm64)

// Package cell is the inside of the gVisor engine: the first process of a
// sandbox's own user, process, mount and network namespaces, started from our
// own executable under another name. It puts the root file system together,
// starts gVisor's kernel from the linked-in runtime, passes on signals, watches
// memory where no cgroup does, and ends as soon as its lifeline closes. As the
// first process of a process namespace it takes every other one with it.
//
// All that it mounts and writes lies in its own mount namespace and vanishes
// with it.
package cell

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"

	"sallyport/internal/sandbox/gvisor"
)

// Main runs the part of the engine that argv[0] names, and reports whether it
// names one. It does not return while that part runs.
func Main(args []string) (code int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	name := filepath.Base(args[0])
	cell := name == gvisor.CellName
	// The runtime calls some of its parts by the path of its executable.
	if !cell && !strings.HasPrefix(name, gvisor.RuntimePrefix) && args[0] != specutils.ExePath {
		return 0, false
	}
	if err := useOwnKernel(); err != nil {
		return 1, true
	}
	if cell {
		return run(), true
	}
	narrowSyscalls()
	runtimeMain()
	return 0, true
}

// cell is one running sandbox, seen from its first process.
type cell struct {
	cfg       gvisor.CellConfig
	conf      *config.Config
	container *container.Container
	panicLog  string

	writeMu sync.Mutex
	out     *json.Encoder

	peak     atomic.Int64
	overUsed atomic.Bool
}

func run() int {
	// The gofer gets its parent-death signal from the thread that starts it:
	// the main thread, which lives as long as the process.
	runtime.LockOSThread()
	lifeline := os.NewFile(gvisor.LifelineFD, "lifeline")
	unix.CloseOnExec(gvisor.LifelineFD)
	// Standard error is the guest's. The runtime's own processes log to
	// where their flags say.
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	in := json.NewDecoder(lifeline)
	c := &cell{out: json.NewEncoder(lifeline)}
	if err := in.Decode(&c.cfg); err != nil {
		return 1
	}
	for i := range c.cfg.Restore {
		unix.CloseOnExec(gvisor.ImageFD + i)
	}
	if err := c.start(in); err != nil {
		c.send(gvisor.Event{Kind: gvisor.EventFailed, Error: err.Error(), Detail: c.lastWords()})
		return 1
	}
	c.send(gvisor.Event{Kind: gvisor.EventStarted})
	go func() {
		c.serve(in)
		os.Exit(1) // the lifeline is gone
	}()
	if c.cfg.WatchMemory {
		go c.watchMemory()
	}
	go c.watchFileServer(int(c.container.GoferPid.Load()))
	// Starting leaves garbage that an idle sandbox would keep for ever. It goes
	// when the first code has run, which wants the processors now.
	time.AfterFunc(time.Second, debug.FreeOSMemory)

	status, err := c.container.Wait()
	exit := gvisor.CellExit{OverUsed: c.overUsed.Load()}
	switch {
	case err != nil:
		exit.Killed = true
	case status.Signaled():
		exit.Code = 128 + int(status.Signal())
		exit.Killed = status.Signal() == unix.SIGKILL
	default:
		exit.Code = status.ExitStatus()
	}
	c.send(gvisor.Event{Kind: gvisor.EventExited, Exit: &exit, Detail: c.lastWords()})
	return 0
}

// send writes one event. The lifeline's end is noticed by the reader.
func (c *cell) send(e gvisor.Event) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	_ = c.out.Encode(e)
}

// serve answers commands until the lifeline closes.
func (c *cell) serve(in *json.Decoder) {
	for {
		var cmd gvisor.Command
		if err := in.Decode(&cmd); err != nil {
			return
		}
		reply := gvisor.Event{Kind: gvisor.EventReply, ID: cmd.ID}
		var err error
		switch cmd.Op {
		case gvisor.OpInterrupt:
			err = c.container.SignalContainer(unix.SIGINT, false)
		case gvisor.OpPause:
			err = c.container.Pause()
		case gvisor.OpResume:
			err = c.container.Resume()
		case gvisor.OpSnapshot:
			err = c.snapshot(cmd.Dir, cmd.Keep)
		case gvisor.OpUsage:
			var u usage
			if u, err = measure(); err == nil {
				c.notePeak(u.memory)
				reply.Usage = &gvisor.CellUsage{
					CPUMillis:   u.cpu.Milliseconds(),
					MemoryBytes: u.memory,
					PeakBytes:   c.peak.Load(),
				}
			}
		default:
			err = fmt.Errorf("unknown operation %q", cmd.Op)
		}
		if err != nil {
			reply.Error = err.Error()
		}
		c.send(reply)
	}
}

// start builds the root, configures the runtime and starts the sandbox. The first
// command is read here where a snapshot is restored.
func (c *cell) start(in *json.Decoder) error {
	dirs, err := buildRoot(&c.cfg)
	if err != nil {
		return fmt.Errorf("preparing the root file system: %w", err)
	}
	c.panicLog = filepath.Join(dirs.base, "panic.log")
	spec := ociSpec(&c.cfg, dirs.root)
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dirs.bundle, "config.json"), raw, 0o600); err != nil {
		return err
	}
	conf, err := runtimeConfig(&c.cfg, dirs, c.panicLog)
	if err != nil {
		return err
	}
	// Attached: the gofer dies with this process, and the descriptors 0 to 2
	// of this process become those of the guest's init.
	c.container, err = container.New(conf, container.Args{
		ID:        c.cfg.ID,
		Spec:      spec,
		BundleDir: dirs.bundle,
		Attached:  true,
	})
	if err != nil {
		return fmt.Errorf("creating the sandbox: %w", err)
	}
	c.conf = conf
	if len(c.cfg.Restore) > 0 {
		var cmd gvisor.Command
		if err := in.Decode(&cmd); err != nil || cmd.Op != gvisor.OpRestore {
			return fmt.Errorf("the snapshot was not found to be right (%v)", err)
		}
		if err := c.restore(dirs.image); err != nil {
			return fmt.Errorf("restoring the sandbox: %w", err)
		}
		return nil
	}
	if err := c.container.Start(conf); err != nil {
		return fmt.Errorf("starting the sandbox: %w", err)
	}
	return nil
}

// runtimeConfig is gVisor's configuration. Every flag that weakens isolation
// keeps its safe value by being named here.
func runtimeConfig(cfg *gvisor.CellConfig, dirs rootDirs, panicLog string) (*config.Config, error) {
	args := []string{
		"--root=" + dirs.state,
		"--network=none",
		"--gofer-network-namespace=host", // the cell's own namespace, which is empty
		"--ignore-cgroups",               // the engine made the cgroup, and the cell is in it
		"--directfs=false",               // the sandbox's kernel opens no host file itself
		"--overlay2=none",
		"--platform=systrap", // never kvm without a probe
		"--host-uds=none",
		"--host-fifo=none",
		"--host-settings=ignore",
		"--panic-log=" + panicLog,
	}
	if cfg.OwnUserNamespace {
		// Only one uid is mapped here: run the sandbox as that one, in yet
		// another namespace, instead of as the host's nobody.
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
func (c *cell) lastWords() string {
	const limit = 4096
	if c.panicLog == "" {
		return ""
	}
	b, err := os.ReadFile(c.panicLog)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	if len(b) > limit {
		b = b[:limit]
	}
	return strings.ToValidUTF8(string(b), "?")
}

// watchFileServer ends the sandbox when its file server has ended. A sandbox
// that was started sees that itself; one that was restored would go on without.
func (c *cell) watchFileServer(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	for err == nil || err == unix.EINTR {
		var n int
		if n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); n > 0 {
			break
		}
	}
	if err != nil && err != unix.ESRCH { // ESRCH: it is gone already
		return // a kernel before 5.3 cannot tell
	}
	// Where the sandbox has ended by itself, this changes nothing.
	_ = unix.Kill(c.container.SandboxPid(), unix.SIGKILL)
}

// watchMemory ends the sandbox when its memory exceeds the limit. It samples
// more often as the limit comes near.
func (c *cell) watchMemory() {
	const calm, alert = 100 * time.Millisecond, 20 * time.Millisecond
	for {
		interval := calm
		if u, err := measure(); err == nil {
			c.notePeak(u.memory)
			if u.memory > c.cfg.MemoryBytes {
				c.overUsed.Store(true)
				_ = c.container.SignalContainer(unix.SIGKILL, true)
				_ = unix.Kill(c.container.SandboxPid(), unix.SIGKILL)
				return
			}
			if u.memory > c.cfg.MemoryBytes/2 {
				interval = alert
			}
		}
		time.Sleep(interval)
	}
}

func (c *cell) notePeak(memory int64) {
	for {
		p := c.peak.Load()
		if memory <= p || c.peak.CompareAndSwap(p, memory) {
			return
		}
	}
}
