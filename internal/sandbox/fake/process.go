//go:build unix

package fake

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// process is a process group of its own.
type process struct {
	backend *Engine
	handle  sandbox.Handle
	dir     string
	cmd     *exec.Cmd
	ended   chan struct{} // closed once exit is set and everything is released

	mu        sync.Mutex
	exit      sandbox.Exit
	destroyed bool
	over      bool // the group has been waited for; its number is not ours
	peak      int64
}

// command prepares the process group, and says where it finds its workspace.
func (p *process) command(spec *sandbox.Spec, args ...string) (cmd *exec.Cmd, workspace string) {
	cmd = exec.Command(args[0], args[1:]...)
	cmd.Dir = filepath.Join(p.dir, "workspace")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	workspace = cmd.Dir
	if p.backend.opts.OwnRoot && runtime.GOOS == "linux" {
		inOwnRoot(cmd, p.dir, spec.Mounts)
		workspace = "/workspace"
	}
	if spec.Program != nil {
		cmd.Env = slices.Clone(spec.Program.Env)
	}
	cmd.Env = append(cmd.Env, "HOME="+workspace, "TMPDIR="+filepath.Join(p.dir, "tmp"))
	for k, v := range spec.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd, workspace
}

// watch waits for the leader's end, ends the rest of the group and releases
// what the run held.
func (p *process) watch() {
	err := p.cmd.Wait()
	p.mu.Lock()
	p.over = true
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	p.exit = sandbox.Exit{Code: code(err), Reason: sandbox.Exited}
	if p.destroyed {
		p.exit.Reason = sandbox.Destroyed
	}
	p.mu.Unlock()
	_ = os.RemoveAll(p.dir)
	p.backend.forget(p.handle.ID)
	close(p.ended)
}

func code(err error) int {
	var e *exec.ExitError
	if !errors.As(err, &e) {
		return 0
	}
	if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return e.ExitCode()
}

// Handle implements sandbox.Run.
func (p *process) Handle() sandbox.Handle { return p.handle }

// Wait implements sandbox.Run.
func (p *process) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-p.ended:
		return p.exit, nil
	default:
	}
	select {
	case <-p.ended:
		return p.exit, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

// Destroy implements sandbox.Run.
func (p *process) Destroy(ctx context.Context) error {
	p.mu.Lock()
	if !p.over {
		p.destroyed = true
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	select {
	case <-p.ended:
		return nil
	case <-ctx.Done():
		return p.backend.fail("destroy", nil, errors.New("the processes do not end"))
	}
}

// signal sends sig to the leader, or to the whole group.
func (p *process) signal(op string, sig syscall.Signal, group bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over || p.destroyed {
		return p.backend.fail(op, sandbox.ErrGone, nil)
	}
	pid := p.cmd.Process.Pid
	if group {
		pid = -pid
	}
	if err := syscall.Kill(pid, sig); err != nil {
		if errors.Is(err, syscall.ESRCH) {
			return p.backend.fail(op, sandbox.ErrGone, nil)
		}
		return p.backend.fail(op, nil, err)
	}
	return nil
}

// Interrupt implements sandbox.Interrupter.
func (p *process) Interrupt(context.Context) error {
	return p.signal("interrupt", syscall.SIGINT, false)
}

// Pause implements sandbox.Pauser.
func (p *process) Pause(context.Context) error { return p.signal("pause", syscall.SIGSTOP, true) }

// Resume implements sandbox.Pauser.
func (p *process) Resume(context.Context) error { return p.signal("resume", syscall.SIGCONT, true) }

// Usage implements sandbox.Meter.
func (p *process) Usage(context.Context) (sandbox.Usage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return sandbox.Usage{}, p.backend.fail("usage", sandbox.ErrGone, nil)
	}
	u, err := groupUsage(p.cmd.Process.Pid)
	if err != nil {
		return sandbox.Usage{}, p.backend.fail("usage", nil, err)
	}
	p.peak = max(p.peak, u.MemoryBytes)
	u.PeakBytes = p.peak
	return u, nil
}

// Put implements sandbox.FileTransferer.
func (p *process) Put(_ context.Context, path string, r io.Reader, size int64) error {
	root, err := p.workspace("put")
	if err != nil {
		return err
	}
	defer root.Close()
	if dir := filepath.Dir(path); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return p.backend.fail("put", nil, err)
		}
	}
	f, err := root.Create(path)
	if err != nil {
		return p.backend.fail("put", nil, err)
	}
	n, err := io.Copy(f, io.LimitReader(r, size))
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return p.backend.fail("put", nil, err)
	}
	return nil
}

// Get implements sandbox.FileTransferer.
func (p *process) Get(_ context.Context, path string) (io.ReadCloser, error) {
	root, err := p.workspace("get")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.Open(path)
	if err != nil {
		return nil, p.backend.fail("get", nil, err)
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		_ = f.Close()
		return nil, p.backend.fail("get", nil, errors.Join(err, errors.New("not a regular file")))
	}
	return f, nil
}

func (p *process) workspace(op string) (*os.Root, error) {
	select {
	case <-p.ended:
		return nil, p.backend.fail(op, sandbox.ErrGone, nil)
	default:
	}
	root, err := os.OpenRoot(filepath.Join(p.dir, "workspace"))
	if err != nil {
		return nil, p.backend.fail(op, sandbox.ErrGone, err)
	}
	return root, nil
}

// closeAll closes every file of a list.
func closeAll(files []*os.File) {
	for _, f := range slices.Backward(files) {
		_ = f.Close()
	}
}
