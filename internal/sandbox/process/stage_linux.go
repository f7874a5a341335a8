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
)

// stage supervises one run from the place's side of it.
type stage struct {
	cfg     stageConfig
	guest   int // its process
	members members

	writeMu sync.Mutex
	enc     *json.Encoder

	mu       sync.Mutex
	overUsed bool
	spent    time.Duration // by processes that were waited for here
	peak     int64
}

// runStage is the stage's main function. It ends with everything that it
// started.
func runStage() int {
	line := os.NewFile(lifelineFD, "lifeline")
	if line == nil {
		return 2
	}
	// What we were given beyond that is not for the code.
	_ = unix.CloseRange(lifelineFD, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC)
	unix.CloseOnExec(lifelineFD)
	// Code of the same user may send signals, and may not look inside.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	s := &stage{enc: json.NewEncoder(line)}
	dec := json.NewDecoder(line)
	if err := dec.Decode(&s.cfg); err != nil {
		return 2
	}
	if err := s.start(); err != nil {
		s.tell(event{Kind: eventFailed, Error: err.Error()})
		s.end()
		return 1
	}
	if s.cfg.Try {
		s.tell(event{Kind: eventStarted})
		return 0
	}
	s.tell(event{Kind: eventStarted})
	go s.watch()
	go func() {
		s.obey(dec)
		s.end()
		os.Exit(0) // nobody holds the other end any more
	}()
	status := s.wait()
	s.end()
	e := event{Kind: eventExited, Code: status.ExitStatus()}
	if status.Signaled() {
		e.Code = 128 + int(status.Signal())
	}
	s.mu.Lock()
	e.OverUsed = s.overUsed
	s.mu.Unlock()
	s.tell(e)
	return 0
}

func (s *stage) tell(e event) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	_ = s.enc.Encode(e)
}

// start makes the root, where there is to be one, and starts the guest.
func (s *stage) start() error {
	s.members = members{all: s.cfg.Namespaces, uid: s.cfg.Entry.UID, user: s.cfg.Entry.UID}
	if s.cfg.UserNamespace {
		s.members.user = -1
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
		return fmt.Errorf("becoming the one that orphans come to: %w", err)
	}
	if s.cfg.Try {
		return nil
	}
	return s.enter()
}

// enter starts the entry, which becomes the guest, and waits until it has.
func (s *stage) enter() error {
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
		// The user that the code runs as is not the root of the namespace that
		// holds its root.
		attr.Sys.Cloneflags = syscall.CLONE_NEWUSER
		attr.Sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: 0, Size: 1}}
		attr.Sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: 0, Size: 1}}
		attr.Sys.AmbientCaps = []uintptr{unix.CAP_SETPCAP}
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{EntryName}, attr)
	if err != nil {
		return fmt.Errorf("starting the guest: %w", err)
	}
	s.guest = pid
	// The guest's streams are the guest's.
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
	if err := json.NewEncoder(cfgW).Encode(s.cfg.Entry); err != nil {
		return fmt.Errorf("the guest's entry took no configuration: %w", err)
	}
	cfgW.Close()
	why, err := io.ReadAll(io.LimitReader(repR, 4096))
	if err == nil && len(why) > 0 {
		err = errors.New(string(bytes.TrimSpace(why)))
	}
	return err
}

// wait reaps everything until the guest has ended.
func (s *stage) wait() unix.WaitStatus {
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

// end ends every process of the run.
func (s *stage) end() {
	s.members.kill()
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err == unix.EINTR || pid > 0 {
			s.members.kill()
			continue
		}
		return
	}
}

// obey answers commands until the lifeline closes.
func (s *stage) obey(dec *json.Decoder) {
	for {
		var c command
		if err := dec.Decode(&c); err != nil {
			return
		}
		e := event{Kind: eventReply, ID: c.ID}
		var err error
		switch c.Op {
		case opInterrupt:
			err = unix.Kill(s.guest, unix.SIGINT)
		case opPause:
			err = s.members.stop()
		case opResume:
			err = s.members.signal(unix.SIGCONT)
		case opUsage:
			var u usage
			if u, err = s.usage(false); err == nil {
				e.Usage = &u
			}
		default:
			err = fmt.Errorf("unknown operation %q", c.Op)
		}
		if err != nil {
			e.Error = err.Error()
		}
		s.tell(e)
	}
}

// Sampling memory: how often, and how often where it looks as if there were
// too much of it because processes share it.
const (
	watchEvery       = 15 * time.Millisecond
	watchSharedEvery = 60 * time.Millisecond
)

// watch ends the run when its memory is over the limit: what processes have
// resident is cheap to add up and never too little; only where that is too
// much, what they share is counted once.
func (s *stage) watch() {
	for {
		pause := watchEvery
		if u, err := s.usage(false); err == nil && u.MemoryBytes > s.cfg.MemoryBytes {
			if u, err = s.usage(true); err == nil && u.MemoryBytes > s.cfg.MemoryBytes {
				s.mu.Lock()
				s.overUsed = true
				s.mu.Unlock()
				s.members.kill()
				return
			}
			pause = watchSharedEvery
		}
		time.Sleep(pause)
	}
}

// usage adds up what the run's processes use. exact counts shared memory once.
func (s *stage) usage(exact bool) (usage, error) {
	sum, err := s.members.measure(exact)
	if err != nil {
		return usage{}, err
	}
	if s.cfg.Namespaces {
		for _, path := range []string{"/workspace", "/tmp", "/dev/shm"} {
			var st unix.Statfs_t
			if unix.Statfs(path, &st) == nil {
				sum.memory += int64(st.Blocks-st.Bfree) * int64(st.Bsize)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peak = max(s.peak, sum.memory)
	return usage{CPUMillis: (sum.cpu + s.spent).Milliseconds(), MemoryBytes: sum.memory, PeakBytes: s.peak}, nil
}
