//go:build unix

package fake

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sallyport/internal/sandbox"
)

// BatchRun is a run of the batch personality.
type BatchRun struct {
	*process
	stdout, stderr *bounded
}

var _ sandbox.BatchResulter = (*BatchRun)(nil)

// startBatch runs the spec's code. On error no process is left.
func startBatch(p *process, python string, spec *sandbox.Spec) (*BatchRun, error) {
	program := filepath.Join(p.dir, "program.py")
	if err := os.WriteFile(program, []byte(spec.Code), 0o644); err != nil {
		return nil, err
	}
	p.cmd, _ = p.command(spec, python, "-I", "-X", "utf8", program)
	if err := place(p.cmd.Dir, spec.Files); err != nil {
		return nil, err
	}
	limit := spec.Limits.WithDefaults().OutputBytes
	r := &BatchRun{process: p, stdout: &bounded{left: limit}, stderr: &bounded{left: limit}}
	var drains sync.WaitGroup
	var ours, theirs []*os.File
	for _, to := range []*bounded{r.stdout, r.stderr} {
		from, w, err := os.Pipe()
		if err != nil {
			closeAll(ours)
			closeAll(theirs)
			drains.Wait()
			return nil, err
		}
		ours, theirs = append(ours, from), append(theirs, w)
		drains.Go(func() { _, _ = io.Copy(to, from) })
	}
	p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1]
	err := p.cmd.Start()
	closeAll(theirs)
	if err != nil {
		drains.Wait()
		closeAll(ours)
		return nil, err
	}
	go p.watch(func() {
		// A process that left the group may keep the pipes.
		timer := time.AfterFunc(time.Second, func() { closeAll(ours) })
		drains.Wait()
		if timer.Stop() {
			closeAll(ours)
		}
	})
	return r, nil
}

// Result implements sandbox.BatchResulter.
func (r *BatchRun) Result(ctx context.Context) (sandbox.BatchResult, error) {
	exit, err := r.Wait(ctx)
	if err != nil {
		return sandbox.BatchResult{}, err
	}
	if exit.Reason == sandbox.Destroyed {
		return sandbox.BatchResult{}, r.backend.fail("result", sandbox.ErrGone, nil)
	}
	return sandbox.BatchResult{Stdout: r.stdout.b, Stderr: r.stderr.b, ExitCode: exit.Code}, nil
}

// bounded keeps the first bytes that are written to it and drops the rest.
type bounded struct {
	b    []byte
	left int64
}

func (w *bounded) Write(p []byte) (int, error) {
	n := min(int64(len(p)), w.left)
	w.b = append(w.b, p[:n]...)
	w.left -= n
	return len(p), nil
}
