// Package batchtest is the conformance suite of the batch services, and a
// service for tests that runs jobs as processes on this machine.
package batchtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// Name is the name of a [Local].
const Name = "local-batch"

// Local is a batch service that runs jobs with a Python of this machine. It
// isolates and enforces nothing. The fields change its behaviour and are set
// before it is used.
type Local struct {
	Report   func(*sandbox.Report) // changes what Probe returns
	OnCancel func() error          // replaces Cancel; nil: Cancel ends the run
	Early    string                // reported as output when the run begins
	Left     map[string][]byte     // the files that every run leaves

	t      testing.TB
	python string
}

// NewLocal returns a service for the duration of a test. It skips the test
// where there is no Python.
func NewLocal(t testing.TB) *Local {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	return &Local{t: t, python: python}
}

var _ batch.Service = (*Local)(nil)

// Name implements batch.Service.
func (l *Local) Name() string { return Name }

// Close implements batch.Service.
func (l *Local) Close() error { return nil }

// Probe implements batch.Service.
func (l *Local) Probe(context.Context) (*sandbox.Report, error) {
	r := &sandbox.Report{Backend: Name, Usable: true, Remote: true, Limits: map[sandbox.Resource]sandbox.LimitReport{}}
	for _, what := range []sandbox.Resource{sandbox.Memory, sandbox.Processes, sandbox.CPU, sandbox.Disk, sandbox.OpenFiles} {
		r.Limits[what] = sandbox.LimitReport{Enforcement: sandbox.Absent}
	}
	if l.Report != nil {
		l.Report(r)
	}
	return r, nil
}

func fail(op string, kind, err error) error {
	return &sandbox.Error{Op: op, Backend: Name, Kind: kind, Err: err}
}

// Submit implements batch.Service.
func (l *Local) Submit(ctx context.Context, job *batch.Job) (batch.Run, error) {
	if err := job.Check(); err != nil {
		return nil, fail("submit", sandbox.ErrInvalidSpec, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fail("submit", sandbox.ErrStart, err)
	}
	dir := l.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "program.py"), []byte(job.Code), 0o600); err != nil {
		return nil, fail("submit", sandbox.ErrStart, err)
	}
	for _, f := range job.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, f.Data, 0o600)); err != nil {
			return nil, fail("submit", sandbox.ErrStart, err)
		}
	}
	life, end := context.WithCancel(context.Background())
	r := &run{service: l, id: job.ID, end: end, life: life, done: make(chan struct{})}
	cmd := exec.CommandContext(life, l.python, append([]string{"-I", "-X", "utf8", "program.py"}, job.Args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &r.stdout, &r.stderr
	cmd.WaitDelay = time.Second // for processes that the code has left
	if err := cmd.Start(); err != nil {
		end()
		return nil, fail("submit", sandbox.ErrStart, err)
	}
	go func() {
		defer close(r.done)
		_ = cmd.Wait()
		r.exitCode = cmd.ProcessState.ExitCode()
	}()
	l.t.Cleanup(func() {
		end()
		<-r.done
	})
	return r, nil
}

// Attach implements batch.Service. No run outlives the program.
func (l *Local) Attach(_ context.Context, h sandbox.Handle) (batch.Run, error) {
	return nil, fail("attach", sandbox.ErrGone, fmt.Errorf("there is no run %s", h.ID))
}

// Sweep implements batch.Service.
func (l *Local) Sweep(context.Context, time.Duration, func(string) bool) ([]string, error) {
	return nil, nil
}

// run is a process.
type run struct {
	service        *Local
	id             string
	life           context.Context
	end            context.CancelFunc
	stdout, stderr bytes.Buffer
	exitCode       int
	done           chan struct{} // closed when the fields above are final

	begin   sync.Once
	observe func(batch.Progress)
}

// Handle implements batch.Run.
func (r *run) Handle() sandbox.Handle { return sandbox.Handle{Backend: Name, Version: 1, ID: r.id} }

// Observe implements batch.Run.
func (r *run) Observe(f func(batch.Progress)) { r.observe = f }

// Result implements batch.Run.
func (r *run) Result(ctx context.Context) (batch.Result, error) {
	if r.observe != nil {
		r.begin.Do(func() {
			r.observe(batch.Progress{State: "running", Running: true, Stdout: []byte(r.service.Early)})
		})
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return batch.Result{}, ctx.Err()
	}
	if r.life.Err() != nil {
		return batch.Result{End: batch.Cancelled, ExitCode: -1, Error: "the run was cancelled"}, nil
	}
	return batch.Result{Stdout: r.stdout.Bytes(), Stderr: r.stderr.Bytes(), ExitCode: r.exitCode}, nil
}

// Fetch implements batch.Run.
func (r *run) Fetch(_ context.Context, dir *os.Root) ([]batch.File, error) {
	var files []batch.File
	for name, data := range r.service.Left {
		if err := dir.WriteFile(name, data, 0o600); err != nil {
			return nil, err
		}
		files = append(files, batch.File{Path: name, Size: int64(len(data))})
	}
	return files, nil
}

// Cancel implements batch.Run.
func (r *run) Cancel(ctx context.Context) error {
	if r.service.OnCancel != nil {
		return r.service.OnCancel()
	}
	return r.Destroy(ctx)
}

// Destroy implements batch.Run.
func (r *run) Destroy(context.Context) error {
	select {
	case <-r.done: // its result stays what it is
	default:
		r.end()
		<-r.done
	}
	return nil
}
