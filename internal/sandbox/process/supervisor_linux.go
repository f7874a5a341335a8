//go:build linux && (amd64 || arm64)

package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// supervisor starts and watches the processes of one run.
type supervisor struct {
	cfg       supervisorConfig
	guest     int // its process
	processes processes

	line *supervise.Lifeline

	mu       sync.Mutex
	overUsed bool
	spent    time.Duration // by processes that were waited for here
	peak     int64
}

// runSupervisor is the supervisor's main function. When it returns, every process
// that it started has ended.
func runSupervisor() int {
	// Any other descriptor that was inherited is not for the code.
	_ = unix.CloseRange(supervise.LifelineFD, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC)
	// Code of the same user can send signals, but must not read this memory.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	s := &supervisor{}
	var err error
	if s.line, err = supervise.OpenLifeline(&s.cfg); err != nil {
		return 2
	}
	if err := s.start(); err != nil {
		s.line.Send(supervise.Event{Kind: supervise.EventFailed, Error: err.Error()})
		s.end()
		return 1
	}
	s.line.Send(supervise.Event{Kind: supervise.EventStarted})
	if s.cfg.Try {
		return 0
	}
	go s.watch()
	go func() {
		s.line.Serve(s.do)
		s.end()
		os.Exit(0) // the lifeline is gone
	}()
	status := s.wait()
	s.end()
	exit := supervise.Exit{Code: status.ExitStatus()}
	if status.Signaled() {
		exit.Code = 128 + int(status.Signal())
	}
	s.mu.Lock()
	exit.OverUsed = s.overUsed
	s.mu.Unlock()
	s.line.Send(supervise.Event{Kind: supervise.EventExited, Exit: &exit})
	return 0
}

// start makes the root, if the run has its own, and starts the guest.
func (s *supervisor) start() error {
	s.processes = processes{all: s.cfg.Namespaces, uid: s.cfg.Init.UID, user: s.cfg.Init.UID}
	if s.cfg.UserNamespace {
		s.processes.user = -1
	}
	if s.cfg.Namespaces {
		if err := buildRoot(&s.cfg); err != nil {
			return err
		}
		if err := unix.Sethostname([]byte("sandbox")); err != nil {
			return err
		}
		if s.cfg.OwnNetwork {
			raiseLoopback()
		}
	} else if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming the subreaper of orphaned processes: %w", err)
	}
	if s.cfg.Try {
		return nil
	}
	return s.enter()
}

// enter starts the child init, which becomes the guest, and waits until it has.
func (s *supervisor) enter() error {
	cfgR, cfgW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer cfgR.Close()
	defer cfgW.Close()
	repR, repW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer repR.Close()
	defer repW.Close()
	attr := &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1"},
		Files: []uintptr{0, 1, 2, cfgR.Fd(), repW.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	if s.cfg.UserNamespace {
		// Code runs as a user other than the root of the namespace that owns the
		// mounts.
		attr.Sys.Cloneflags = syscall.CLONE_NEWUSER
		attr.Sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: 0, Size: 1}}
		attr.Sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: 0, Size: 1}}
		attr.Sys.AmbientCaps = []uintptr{unix.CAP_SETPCAP}
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{InitName}, attr)
	if err != nil {
		return fmt.Errorf("starting the guest: %w", err)
	}
	s.guest = pid
	// The guest's streams belong to the guest alone.
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	cfgR.Close()
	repW.Close()
	if err := json.NewEncoder(cfgW).Encode(s.cfg.Init); err != nil {
		return fmt.Errorf("sending the child init its configuration: %w", err)
	}
	cfgW.Close()
	why, err := io.ReadAll(io.LimitReader(repR, 4096))
	if err == nil && len(why) > 0 {
		err = errors.New(string(bytes.TrimSpace(why)))
	}
	return err
}

// wait reaps everything until the guest has ended.
func (s *supervisor) wait() unix.WaitStatus {
	for {
		var status unix.WaitStatus
		var ru unix.Rusage
		pid, err := unix.Wait4(-1, &status, 0, &ru)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 125 << 8
		}
		s.mu.Lock()
		s.spent += time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
		s.mu.Unlock()
		if pid == s.guest {
			return status
		}
	}
}

// end kills and reaps every process of the run.
func (s *supervisor) end() {
	s.processes.kill()
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err == unix.EINTR || pid > 0 {
			s.processes.kill()
			continue
		}
		return
	}
}

// do carries out a command.
func (s *supervisor) do(cmd supervise.Command) (*supervise.Usage, error) {
	switch cmd.Op {
	case supervise.OpInterrupt:
		return nil, unix.Kill(s.guest, unix.SIGINT)
	case supervise.OpPause:
		return nil, s.processes.stop()
	case supervise.OpResume:
		return nil, s.processes.signal(unix.SIGCONT)
	case supervise.OpUsage:
		return s.usage(false)
	}
	return nil, fmt.Errorf("unknown operation %q", cmd.Op)
}

// How often memory is sampled, and how often if it only seems too much because
// processes share it.
const (
	watchEvery       = 15 * time.Millisecond
	watchSharedEvery = 60 * time.Millisecond
)

// watch kills the run when its memory exceeds the limit. The sum of what processes
// have resident is cheap and never too low; only if it is too high, shared memory
// is counted once.
func (s *supervisor) watch() {
	for {
		pause := watchEvery
		if u, err := s.usage(false); err == nil && u.MemoryBytes > s.cfg.MemoryBytes {
			if u, err = s.usage(true); err == nil && u.MemoryBytes > s.cfg.MemoryBytes {
				s.mu.Lock()
				s.overUsed = true
				s.mu.Unlock()
				s.processes.kill()
				return
			}
			pause = watchSharedEvery
		}
		time.Sleep(pause)
	}
}

// usage returns what the run's processes use. exact counts shared memory once.
func (s *supervisor) usage(exact bool) (*supervise.Usage, error) {
	sum, err := s.processes.measure(exact)
	if err != nil {
		return nil, err
	}
	if s.cfg.Namespaces {
		inMemory := []string{"/workspace", "/tmp", "/dev/shm", sandbox.PackagesDir}
		for _, m := range s.cfg.Mounts {
			if m.Mode == sandbox.Copy {
				inMemory = append(inMemory, m.Target)
			}
		}
		for _, path := range inMemory {
			var st unix.Statfs_t
			if unix.Statfs(path, &st) == nil {
				sum.memory += int64(st.Blocks-st.Bfree) * int64(st.Bsize)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peak = max(s.peak, sum.memory)
	return &supervise.Usage{CPUMillis: (sum.cpu + s.spent).Milliseconds(), MemoryBytes: sum.memory, PeakBytes: s.peak}, nil
}
