package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/executable"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// Config describes a run and its helper.
type Config struct {
	Handle sandbox.Handle
	// Executable is started with Name as its only argument, argv[0].
	Executable string
	Name       string
	// Attr holds the namespaces of the helper. Start completes it.
	Attr *syscall.SysProcAttr
	// Files are open in the helper, from FirstFile on. They stay the caller's.
	Files []*os.File
	// Room has the helper started with RoomFD open, if the limit of open files allows it.
	Room bool
	// Configure is called when the helper exists and has not done anything yet.
	// It confines the helper from outside and returns its configuration.
	Configure func(pid int) (any, error)
	// Confirm, if not nil, is called while the helper prepares. OpRestore is sent
	// when it has returned nil.
	Confirm func(context.Context) error
	// Grace is how long the helper may take to end by itself once the lifeline
	// is closed. Zero: it is killed at once, which is right only for the first
	// process of a process namespace: the kernel ends all others with it.
	Grace time.Duration
	// OutOfMemory, if not nil, reports whether the kernel killed a process of
	// the run for its memory. It is called when the helper is gone.
	OutOfMemory func() bool
	// Release, if not nil, removes what the engine made for the run. It is called
	// once, when the helper is gone.
	Release func() error
}

// Run is a run that hangs on a helper process.
type Run struct {
	cfg     Config
	cmd     *exec.Cmd
	streams *Streams
	ending  *Ending

	line    *os.File // this program's end of the lifeline
	writing sync.Mutex
	enc     *json.Encoder

	mu        sync.Mutex
	waiting   map[int64]chan Event // unanswered commands; nil when the helper is gone
	nextID    int64
	last      *Event // the helper's last event: exited or failed
	destroyed bool

	releaseOnce sync.Once
	releaseErr  error
}

var (
	_ sandbox.Run         = (*Run)(nil)
	_ sandbox.Duplexer    = (*Run)(nil)
	_ sandbox.Interrupter = (*Run)(nil)
	_ sandbox.Meter       = (*Run)(nil)
	_ sandbox.Pauser      = (*Run)(nil)
	_ sandbox.Logger      = (*Run)(nil)
)

// Start starts a helper, configures it and waits until it reports that the guest
// runs. On error the helper is gone and Release has been called.
func Start(ctx context.Context, cfg Config) (*Run, error) {
	r := &Run{cfg: cfg, ending: NewEnding(), waiting: map[int64]chan Event{}}
	if err := r.spawn(); err != nil {
		_ = r.release()
		return nil, err
	}
	started := make(chan error, 1)
	go r.listen(started)
	err := r.configure(ctx)
	if err == nil {
		select {
		case err = <-started:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		_ = r.Destroy(ctx)
		return nil, err
	}
	return r, nil
}

// spawn starts the helper process, which then waits for its configuration.
func (r *Run) spawn() error {
	streams, err := NewStreams()
	if err != nil {
		return err
	}
	defer streams.CloseChild()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		streams.Close()
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "lifeline")
	defer theirs.Close()
	if err := unix.SetNonblock(pair[0], true); err != nil { // for the runtime's poller
		unix.Close(pair[0])
		streams.Close()
		return err
	}
	line := os.NewFile(uintptr(pair[0]), "lifeline")

	cmd := exec.Command(r.cfg.Executable)
	cmd.Args = []string{r.cfg.Name}
	cmd.Env = []string{"GOMAXPROCS=2"} // nothing of this program's environment reaches a sandbox
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = streams.Child[0], streams.Child[1], streams.Child[2]
	cmd.ExtraFiles = append([]*os.File{theirs}, r.cfg.Files...)
	if r.cfg.Room && room() {
		cmd.ExtraFiles = append(cmd.ExtraFiles, make([]*os.File, RoomFD-LifelineFD-len(cmd.ExtraFiles))...)
		cmd.ExtraFiles = append(cmd.ExtraFiles, streams.Child[0]) // any that is open
	}
	cmd.SysProcAttr = r.cfg.Attr
	cmd.SysProcAttr.Setsid = true // a terminal's Ctrl-C is for this program
	if err := executable.Start(cmd, executable.Prompt); err != nil {
		line.Close()
		streams.Close()
		return fmt.Errorf("starting the sandbox's supervisor: %w", err)
	}
	r.cmd, r.streams, r.line, r.enc = cmd, streams, line, json.NewEncoder(line)
	return nil
}

// room reports whether this process may open RoomFD.
func room() bool {
	var limit unix.Rlimit
	return unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur > RoomFD
}

// configure confines the helper and sends it its configuration.
func (r *Run) configure(ctx context.Context) error {
	cfg, err := r.cfg.Configure(r.cmd.Process.Pid)
	if err == nil {
		err = r.send(cfg)
	}
	if err != nil || r.cfg.Confirm == nil {
		return err
	}
	if err := r.cfg.Confirm(ctx); err != nil {
		return err
	}
	return r.send(Command{Op: OpRestore})
}

func (r *Run) send(v any) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.enc.Encode(v)
}

// listen reads the helper's events until the lifeline ends, then waits for the
// helper, which has then ended with all its processes.
func (r *Run) listen(started chan<- error) {
	dec := json.NewDecoder(r.line)
	for {
		var e Event
		if err := dec.Decode(&e); err != nil {
			break
		}
		switch e.Kind {
		case EventStarted:
			started <- nil
		case EventReply:
			r.mu.Lock()
			ch := r.waiting[e.ID]
			delete(r.waiting, e.ID)
			r.mu.Unlock()
			if ch != nil {
				ch <- e
			}
		case EventFailed, EventExited:
			r.mu.Lock()
			r.last = &e
			r.mu.Unlock()
		}
	}
	if r.cfg.Grace == 0 {
		_ = r.cmd.Process.Kill() // it may live on without a lifeline
	}
	waitErr := r.cmd.Wait()
	r.line.Close()
	r.mu.Lock()
	exit := r.exit()
	last := r.last
	r.waiting = nil
	r.mu.Unlock()
	r.ending.Set(exit)
	err := fmt.Errorf("the sandbox's supervisor ended early (%v)", waitErr) //nolint:errorlint // there may be no error
	if last != nil && last.Error != "" {
		err = errors.New(last.Error)
		if last.Detail != "" {
			err = fmt.Errorf("%w: %s", err, last.Detail)
		}
	}
	select {
	case started <- err:
	default:
	}
}

// exit returns how the run ended. Callers hold mu; the helper is gone.
func (r *Run) exit() sandbox.Exit {
	var out sandbox.Exit
	var seen *Exit // as the helper saw it; nil if it did not
	if r.last != nil {
		seen, out.Detail = r.last.Exit, r.last.Detail
	}
	if seen != nil {
		out.Code = seen.Code
	}
	switch {
	case r.cfg.OutOfMemory != nil && r.cfg.OutOfMemory(), seen != nil && seen.OverUsed:
		out.Reason = sandbox.OutOfMemory
	case r.destroyed:
		out.Reason = sandbox.Destroyed
	case seen != nil && !seen.Killed:
		out.Reason = sandbox.Exited
	default:
		out.Reason = sandbox.EngineDied
		if out.Detail == "" {
			out.Detail = "the sandbox's kernel or its supervisor was killed"
		}
	}
	if out.Reason != sandbox.Exited && out.Code == 0 {
		out.Code = 128 + int(unix.SIGKILL)
	}
	return out
}

// Handle implements sandbox.Run.
func (r *Run) Handle() sandbox.Handle { return r.cfg.Handle }

// Channel implements sandbox.Duplexer.
func (r *Run) Channel() sandbox.Channel { return r.streams.Channel() }

// Wait implements sandbox.Run.
func (r *Run) Wait(ctx context.Context) (sandbox.Exit, error) { return r.ending.Wait(ctx) }

// Destroy implements sandbox.Run.
func (r *Run) Destroy(context.Context) error {
	r.mu.Lock()
	r.destroyed = true
	r.mu.Unlock()
	if !r.end() {
		return r.fail("destroy", nil, errors.New("the sandbox's processes do not end"))
	}
	r.releaseOnce.Do(func() {
		r.streams.Close()
		r.releaseErr = r.release()
	})
	if r.releaseErr != nil {
		return r.fail("destroy", nil, r.releaseErr)
	}
	return nil
}

// killTime bounds the wait for a helper that was killed.
const killTime = 10 * time.Second

// end ends the helper and reports whether it is gone. A helper with a grace
// ends its processes itself when the lifeline closes: without a process
// namespace only it can find them all.
func (r *Run) end() bool {
	if r.cfg.Grace > 0 {
		// Not Fd, which would take the file from the runtime's poller.
		if c, err := r.line.SyscallConn(); err == nil {
			_ = c.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
		}
		select {
		case <-r.ending.Done():
			return true
		case <-time.After(r.cfg.Grace):
		}
	}
	_ = r.cmd.Process.Kill()
	select {
	case <-r.ending.Done():
		return true
	case <-time.After(killTime):
		return false
	}
}

func (r *Run) release() error {
	if r.cfg.Release == nil {
		return nil
	}
	return r.cfg.Release()
}

func (r *Run) fail(op string, kind, err error) error {
	return &sandbox.Error{Op: op, Backend: r.cfg.Handle.Backend, Kind: kind, Err: err}
}

// Do sends a command to the helper and waits for the answer.
func (r *Run) Do(ctx context.Context, cmd Command) (Event, error) {
	ch := make(chan Event, 1)
	r.mu.Lock()
	if r.waiting == nil {
		r.mu.Unlock()
		return Event{}, r.fail(cmd.Op, sandbox.ErrGone, nil)
	}
	r.nextID++
	cmd.ID = r.nextID
	r.waiting[cmd.ID] = ch
	r.mu.Unlock()

	err := r.send(cmd)
	if err != nil {
		err = r.fail(cmd.Op, sandbox.ErrGone, err)
	} else {
		answer := func(e Event) (Event, error) {
			if e.Error != "" {
				return e, r.fail(cmd.Op, nil, errors.New(e.Error))
			}
			return e, nil
		}
		select {
		case e := <-ch:
			return answer(e)
		case <-r.ending.Done():
			// The answer came before the end, if it came.
			select {
			case e := <-ch:
				return answer(e)
			default:
			}
			err = r.fail(cmd.Op, sandbox.ErrGone, nil)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	r.mu.Lock()
	delete(r.waiting, cmd.ID)
	r.mu.Unlock()
	return Event{}, err
}

// Interrupt implements sandbox.Interrupter.
func (r *Run) Interrupt(ctx context.Context) error {
	_, err := r.Do(ctx, Command{Op: OpInterrupt})
	return err
}

// Pause implements sandbox.Pauser.
func (r *Run) Pause(ctx context.Context) error {
	_, err := r.Do(ctx, Command{Op: OpPause})
	return err
}

// Resume implements sandbox.Pauser.
func (r *Run) Resume(ctx context.Context) error {
	_, err := r.Do(ctx, Command{Op: OpResume})
	return err
}

// Usage implements sandbox.Meter.
func (r *Run) Usage(ctx context.Context) (sandbox.Usage, error) {
	e, err := r.Do(ctx, Command{Op: OpUsage})
	if err == nil && e.Usage == nil {
		err = r.fail(OpUsage, nil, errors.New("the supervisor reported no usage"))
	}
	if err != nil {
		return sandbox.Usage{CPU: -1, MemoryBytes: -1, PeakBytes: -1}, err
	}
	return sandbox.Usage{
		CPU:         time.Duration(e.Usage.CPUMillis) * time.Millisecond,
		MemoryBytes: e.Usage.MemoryBytes,
		PeakBytes:   e.Usage.PeakBytes,
	}, nil
}

// Logs implements sandbox.Logger.
func (r *Run) Logs(context.Context) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return "", nil
	}
	return r.last.Detail, nil
}
