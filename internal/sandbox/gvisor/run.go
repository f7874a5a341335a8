//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/internal/sandbox"
)

// run is one sandbox, seen from the program that started it.
type run struct {
	handle  sandbox.Handle
	log     *slog.Logger
	cmd     *exec.Cmd
	channel sandbox.Channel
	group   *cgroup // nil where none could be made
	release func() error

	line    *os.File // our end of the lifeline
	writeMu sync.Mutex
	enc     *json.Encoder

	mu        sync.Mutex
	waiting   map[int64]chan Event // commands without an answer yet
	nextID    int64
	last      *Event // the cell's last event: exited or failed
	destroyed bool
	peak      int64

	ended chan struct{} // closed when the cell is gone and exit is set
	exit  sandbox.Exit

	releaseOnce sync.Once
	releaseErr  error
}

var (
	_ sandbox.Run         = (*run)(nil)
	_ sandbox.Duplexer    = (*run)(nil)
	_ sandbox.Interrupter = (*run)(nil)
	_ sandbox.Meter       = (*run)(nil)
	_ sandbox.Pauser      = (*run)(nil)
	_ sandbox.Logger      = (*run)(nil)
)

// pipeSize is asked for each of the channel's pipes, so that a large result
// needs few switches. The kernel may give less.
const pipeSize = 1 << 20

func growPipe(f *os.File) {
	// Not f.Fd, which would take the file from the runtime's poller.
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}

// launch starts the cell, confines it, gives it its configuration and waits
// until the guest's init runs. confine may still change the configuration. An
// image is checked while the cell prepares; nil is none. On error nothing is left
// but what release removes.
func (r *run) launch(ctx context.Context, executable string, userns bool, confine func(pid int) error, cfg *CellConfig, image *sandbox.Image) (err error) {
	var files []*os.File // closed on error
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close()
			}
		}
	}()
	pipe := func() (rd, wr *os.File, err error) {
		rd, wr, err = os.Pipe()
		if err == nil {
			files = append(files, rd, wr)
			growPipe(wr)
		}
		return rd, wr, err
	}
	inR, inW, err := pipe()
	if err != nil {
		return err
	}
	outR, outW, err := pipe()
	if err != nil {
		return err
	}
	errR, errW, err := pipe()
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "lifeline"), os.NewFile(uintptr(pair[1]), "lifeline")
	files = append(files, ours, theirs)

	cmd := exec.Command(executable)
	cmd.Args = []string{CellName}
	cmd.Env = []string{"GOMAXPROCS=2"} // nothing of ours reaches a sandbox
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	cmd.ExtraFiles = []*os.File{theirs}
	if image != nil {
		for _, f := range image.Files {
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
			cfg.Restore = append(cfg.Restore, filepath.Base(f.Name()))
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, // a terminal's Ctrl-C is ours to handle
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET,
	}
	if userns {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = ownIDs()
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting a process in namespaces of its own: %w", err)
	}
	for _, f := range []*os.File{inR, outW, errW, theirs} {
		f.Close()
	}
	r.cmd, r.line, r.enc = cmd, ours, json.NewEncoder(ours)
	r.waiting = map[int64]chan Event{}
	r.channel = sandbox.Channel{Stdin: inW, Stdout: outR, Stderr: errR}

	started := make(chan error, 1)
	go r.listen(started)
	if err = confine(cmd.Process.Pid); err == nil {
		err = r.enc.Encode(cfg)
	}
	if err == nil && image != nil {
		err = r.allow(ctx, image)
	}
	if err == nil {
		select {
		case err = <-started:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		_ = cmd.Process.Kill()
		<-r.ended
	}
	return err
}

// allow checks an image and then lets the cell, which prepares meanwhile, have
// it.
func (r *run) allow(ctx context.Context, image *sandbox.Image) error {
	if image.Check != nil {
		if err := image.Check(ctx); err != nil {
			return err
		}
	}
	r.writeMu.Lock()
	defer r.writeMu.Unlock()
	return r.enc.Encode(Command{Op: OpRestore})
}

// listen reads the cell's events until the lifeline ends, then waits for the
// cell, which has then ended with all its processes.
func (r *run) listen(started chan<- error) {
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
			if e.Usage != nil && e.Usage.PeakBytes > r.peak {
				r.peak = e.Usage.PeakBytes
			}
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
	_ = r.cmd.Process.Kill() // it may hold on without a lifeline
	waitErr := r.cmd.Wait()
	r.line.Close()
	r.mu.Lock()
	r.exit = r.reason()
	last := r.last
	r.waiting = nil
	r.mu.Unlock()
	close(r.ended)
	err := fmt.Errorf("the sandbox's first process ended early (%v)", waitErr)
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

// reason says why the run ended. Callers hold mu; the cell is gone.
func (r *run) reason() sandbox.Exit {
	var out sandbox.Exit
	if r.last != nil && r.last.Exit != nil {
		out.Code = r.last.Exit.Code
		out.Detail = r.last.Detail
	}
	switch {
	case r.group != nil && r.group.outOfMemory():
		out.Reason = sandbox.OutOfMemory
	case r.last != nil && r.last.Exit != nil && r.last.Exit.OverUsed:
		out.Reason = sandbox.OutOfMemory
	case r.destroyed:
		out.Reason = sandbox.Destroyed
	case r.last != nil && r.last.Exit != nil && !r.last.Exit.Killed:
		out.Reason = sandbox.Exited
	default:
		out.Reason = sandbox.EngineDied
		if out.Detail == "" {
			out.Detail = "the sandbox's kernel or its first process was killed"
		}
	}
	if out.Reason != sandbox.Exited && out.Code == 0 {
		out.Code = 128 + int(unix.SIGKILL)
	}
	return out
}

// Handle implements sandbox.Run.
func (r *run) Handle() sandbox.Handle { return r.handle }

// Channel implements sandbox.Duplexer.
func (r *run) Channel() sandbox.Channel { return r.channel }

// Wait implements sandbox.Run.
func (r *run) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-r.ended:
		return r.exit, nil
	default:
	}
	select {
	case <-r.ended:
		return r.exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

// Destroy implements sandbox.Run. Killing the cell kills every process of its
// namespace; the kernel reports the cell's end after theirs.
func (r *run) Destroy(context.Context) error {
	r.mu.Lock()
	r.destroyed = true
	r.mu.Unlock()
	_ = r.cmd.Process.Kill()
	select {
	case <-r.ended:
	case <-time.After(10 * time.Second):
		return &sandbox.Error{Op: "destroy", Backend: Name, Err: errors.New("the sandbox's processes do not end")}
	}
	r.releaseOnce.Do(func() {
		r.channel.Stdin.Close()
		r.channel.Stdout.Close()
		r.channel.Stderr.Close()
		r.releaseErr = r.release()
	})
	if r.releaseErr != nil {
		return &sandbox.Error{Op: "destroy", Backend: Name, Err: r.releaseErr}
	}
	return nil
}

// command asks the cell and waits for its answer.
func (r *run) command(ctx context.Context, cmd Command) (Event, error) {
	op := cmd.Op
	ch := make(chan Event, 1)
	r.mu.Lock()
	if r.waiting == nil {
		r.mu.Unlock()
		return Event{}, &sandbox.Error{Op: op, Backend: Name, Kind: sandbox.ErrGone}
	}
	r.nextID++
	id := r.nextID
	r.waiting[id] = ch
	cmd.ID = id
	r.mu.Unlock()

	r.writeMu.Lock()
	err := r.enc.Encode(cmd)
	r.writeMu.Unlock()
	if err != nil {
		err = &sandbox.Error{Op: op, Backend: Name, Kind: sandbox.ErrGone, Err: err}
	} else {
		select {
		case e := <-ch:
			if e.Error != "" {
				return e, &sandbox.Error{Op: op, Backend: Name, Err: errors.New(e.Error)}
			}
			return e, nil
		case <-r.ended:
			err = &sandbox.Error{Op: op, Backend: Name, Kind: sandbox.ErrGone}
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	r.mu.Lock()
	delete(r.waiting, id)
	r.mu.Unlock()
	return Event{}, err
}

// Interrupt implements sandbox.Interrupter.
func (r *run) Interrupt(ctx context.Context) error {
	_, err := r.command(ctx, Command{Op: OpInterrupt})
	return err
}

// Pause implements sandbox.Pauser.
func (r *run) Pause(ctx context.Context) error {
	_, err := r.command(ctx, Command{Op: OpPause})
	return err
}

// Resume implements sandbox.Pauser.
func (r *run) Resume(ctx context.Context) error {
	_, err := r.command(ctx, Command{Op: OpResume})
	return err
}

// Usage implements sandbox.Meter.
func (r *run) Usage(ctx context.Context) (sandbox.Usage, error) {
	e, err := r.command(ctx, Command{Op: OpUsage})
	if err != nil {
		return sandbox.Usage{CPU: -1, MemoryBytes: -1, PeakBytes: -1}, err
	}
	if e.Usage == nil {
		return sandbox.Usage{}, &sandbox.Error{Op: OpUsage, Backend: Name, Err: errors.New("no answer")}
	}
	return sandbox.Usage{
		CPU:         time.Duration(e.Usage.CPUMillis) * time.Millisecond,
		MemoryBytes: e.Usage.MemoryBytes,
		PeakBytes:   e.Usage.PeakBytes,
	}, nil
}

// Logs implements sandbox.Logger.
func (r *run) Logs(context.Context) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return "", nil
	}
	return r.last.Detail, nil
}
