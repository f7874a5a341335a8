//go:build linux && (amd64 || arm64)

package process

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

	"sallyport/internal/sandbox"
)

// run is one run, seen from the program that started it.
type run struct {
	handle  sandbox.Handle
	cmd     *exec.Cmd
	channel sandbox.Channel
	release func() error

	line    *os.File // our end of the lifeline
	writeMu sync.Mutex
	enc     *json.Encoder

	mu        sync.Mutex
	waiting   map[int64]chan event // commands without an answer yet
	nextID    int64
	last      *event // the stage's last: exited or failed
	destroyed bool

	ended chan struct{} // closed when the stage is gone and exit is set
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

const pipeSize = 1 << 20

func growPipe(f *os.File) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
	}
}

// launch starts the stage, gives it its configuration and waits until the
// guest is there. On error nothing is left but what release removes.
func (r *run) launch(ctx context.Context, l *launch) (err error) {
	var files []*os.File // closed on error
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close()
			}
		}
	}()
	var ours, theirs [3]*os.File
	for i := range 3 {
		rd, wr, err := os.Pipe()
		if err != nil {
			return err
		}
		files = append(files, rd, wr)
		growPipe(wr)
		ours[i], theirs[i] = rd, wr
		if i == 0 {
			ours[i], theirs[i] = wr, rd
		}
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return err
	}
	line, their := os.NewFile(uintptr(pair[0]), "lifeline"), os.NewFile(uintptr(pair[1]), "lifeline")
	files = append(files, line, their)

	cmd := exec.Command(l.executable)
	cmd.Args = []string{StageName}
	cmd.Env = []string{"GOMAXPROCS=2"} // nothing of ours reaches a run
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	cmd.ExtraFiles = []*os.File{their}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's Ctrl-C is ours to handle
	if l.cfg.Namespaces {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
		if l.cfg.OwnNetwork {
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
		}
	}
	if l.userns {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting a stage: %w", err)
	}
	for _, f := range []*os.File{theirs[0], theirs[1], theirs[2], their} {
		f.Close()
	}
	r.cmd, r.line, r.enc = cmd, line, json.NewEncoder(line)
	r.waiting = map[int64]chan event{}
	r.channel = sandbox.Channel{Stdin: ours[0], Stdout: ours[1], Stderr: ours[2]}

	started := make(chan error, 1)
	go r.listen(started)
	if err = l.prepare(cmd.Process.Pid, &l.cfg); err == nil {
		err = r.enc.Encode(l.cfg)
	}
	if err == nil {
		select {
		case err = <-started:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		r.end()
	}
	return err
}

// end ends the stage and what it started. A stage that still can ends the
// processes itself; without namespaces nobody else finds them all.
func (r *run) end() {
	// Not Fd, which would take the file from the runtime's poller.
	if c, err := r.line.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
	select {
	case <-r.ended:
	case <-time.After(5 * time.Second):
		_ = r.cmd.Process.Kill()
		<-r.ended
	}
}

// listen reads the stage's events until the lifeline ends, then waits for it.
func (r *run) listen(started chan<- error) {
	dec := json.NewDecoder(r.line)
	for {
		var e event
		if err := dec.Decode(&e); err != nil {
			break
		}
		switch e.Kind {
		case eventStarted:
			started <- nil
		case eventReply:
			r.mu.Lock()
			ch := r.waiting[e.ID]
			delete(r.waiting, e.ID)
			r.mu.Unlock()
			if ch != nil {
				ch <- e
			}
		case eventFailed, eventExited:
			r.mu.Lock()
			r.last = &e
			r.mu.Unlock()
		}
	}
	waitErr := r.cmd.Wait()
	r.line.Close()
	r.mu.Lock()
	r.exit = r.reason()
	last := r.last
	r.waiting = nil
	r.mu.Unlock()
	close(r.ended)
	err := fmt.Errorf("the stage ended early (%v)", waitErr)
	if last != nil && last.Error != "" {
		err = errors.New(last.Error)
	}
	select {
	case started <- err:
	default:
	}
}

// reason says why the run ended. Callers hold mu; the stage is gone.
func (r *run) reason() sandbox.Exit {
	out := sandbox.Exit{Code: 128 + int(unix.SIGKILL), Reason: sandbox.EngineDied, Detail: "the process that supervised the run was killed"}
	exited := r.last != nil && r.last.Kind == eventExited
	if exited {
		out = sandbox.Exit{Code: r.last.Code, Reason: sandbox.Exited}
	}
	switch {
	case exited && r.last.OverUsed:
		out.Reason = sandbox.OutOfMemory
	case r.destroyed:
		out.Reason, out.Detail = sandbox.Destroyed, ""
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

// Destroy implements sandbox.Run.
func (r *run) Destroy(context.Context) error {
	r.mu.Lock()
	r.destroyed = true
	r.mu.Unlock()
	r.end()
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

// command asks the stage and waits for its answer.
func (r *run) command(ctx context.Context, op string) (event, error) {
	ch := make(chan event, 1)
	r.mu.Lock()
	if r.waiting == nil {
		r.mu.Unlock()
		return event{}, &sandbox.Error{Op: op, Backend: Name, Kind: sandbox.ErrGone}
	}
	r.nextID++
	id := r.nextID
	r.waiting[id] = ch
	r.mu.Unlock()

	r.writeMu.Lock()
	err := r.enc.Encode(command{ID: id, Op: op})
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
	return event{}, err
}

// Interrupt implements sandbox.Interrupter.
func (r *run) Interrupt(ctx context.Context) error {
	_, err := r.command(ctx, opInterrupt)
	return err
}

// Pause implements sandbox.Pauser.
func (r *run) Pause(ctx context.Context) error {
	_, err := r.command(ctx, opPause)
	return err
}

// Resume implements sandbox.Pauser.
func (r *run) Resume(ctx context.Context) error {
	_, err := r.command(ctx, opResume)
	return err
}

// Usage implements sandbox.Meter.
func (r *run) Usage(ctx context.Context) (sandbox.Usage, error) {
	e, err := r.command(ctx, opUsage)
	if err != nil {
		return sandbox.Usage{CPU: -1, MemoryBytes: -1, PeakBytes: -1}, err
	}
	if e.Usage == nil {
		return sandbox.Usage{}, &sandbox.Error{Op: opUsage, Backend: Name, Err: errors.New("no answer")}
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
	return r.last.Error, nil
}
