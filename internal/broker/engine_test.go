//go:build unix

package broker

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sallyport/internal/guest"
	"sallyport/internal/sandbox"
)

// engine runs the real guest as a plain process of the host.
type engine struct {
	t      testing.TB
	python string
	files  string
	report sandbox.Report
	starts atomic.Int64
	probes atomic.Int64
	// failStart, if set, is what Start answers.
	failStart error
	mu        sync.Mutex
	last      *engineRun
}

func newEngine(t testing.TB) *engine {
	t.Helper()
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		if python, err = exec.LookPath("python3"); err != nil {
			t.Skip("no python3")
		}
	}
	files, err := guest.Install(t.Context(), t.TempDir(), python)
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t: t, python: python, files: files}
	e.report = sandbox.Report{Backend: "process", Usable: true, Duplex: true, Limits: map[sandbox.Resource]sandbox.LimitReport{}}
	return e
}

func (e *engine) Name() string { return "process" }
func (e *engine) Close() error { return nil }
func (e *engine) Probe(context.Context) (*sandbox.Report, error) {
	e.probes.Add(1)
	r := e.report
	return &r, nil
}
func (e *engine) Attach(context.Context, sandbox.Handle) (sandbox.Run, error) {
	return nil, sandbox.ErrGone
}

func (e *engine) Start(_ context.Context, spec *sandbox.Spec) (sandbox.Run, error) {
	e.starts.Add(1)
	if e.failStart != nil {
		return nil, e.failStart
	}
	argv := guest.Argv(e.python)
	for i := range argv {
		argv[i] = strings.Replace(argv[i], guest.Dir, e.files, 1)
	}
	workspace := filepath.Join(e.t.TempDir(), spec.ID)
	if err := os.Mkdir(workspace, 0o700); err != nil {
		return nil, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(guest.Environ(), "SALLYPORT_WORKSPACE="+workspace)
	cmd.Dir = workspace
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r := &engineRun{id: spec.ID, cmd: cmd, ended: make(chan struct{})}
	var ends [6]*os.File
	for i := 0; i < 6; i += 2 {
		var err error
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = ends[0], ends[3], ends[5]
	r.channel = sandbox.Channel{Stdin: ends[1], Stdout: ends[2], Stderr: ends[4]}
	err := cmd.Start()
	ends[0].Close()
	ends[3].Close()
	ends[5].Close()
	if err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(r.ended)
	}()
	e.mu.Lock()
	e.last = r
	e.mu.Unlock()
	return r, nil
}

type engineRun struct {
	id      string
	cmd     *exec.Cmd
	channel sandbox.Channel
	ended   chan struct{}
	gone    atomic.Bool
}

func (r *engineRun) Handle() sandbox.Handle   { return sandbox.Handle{Backend: "process", ID: r.id} }
func (r *engineRun) Channel() sandbox.Channel { return r.channel }
func (r *engineRun) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-r.ended:
		if r.gone.Load() {
			return sandbox.Exit{Reason: sandbox.Destroyed}, nil
		}
		return sandbox.Exit{Reason: sandbox.Exited, Code: r.cmd.ProcessState.ExitCode()}, nil
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

func (r *engineRun) Destroy(context.Context) error {
	r.gone.Store(true)
	_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
	<-r.ended
	for _, c := range []io.Closer{r.channel.Stdin, r.channel.Stdout, r.channel.Stderr} {
		_ = c.Close()
	}
	return nil
}

func (r *engineRun) Interrupt(context.Context) error { return r.cmd.Process.Signal(syscall.SIGINT) }

// Usage adds up the processor time of the process group.
func (r *engineRun) Usage(context.Context) (sandbox.Usage, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return sandbox.Usage{}, err
	}
	u := sandbox.Usage{PeakBytes: -1}
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if len(f) < 22 || f[2] != strconv.Itoa(r.cmd.Process.Pid) {
			continue
		}
		ticks := 0
		for _, i := range []int{11, 12, 13, 14} {
			n, _ := strconv.Atoi(f[i])
			ticks += n
		}
		u.CPU += time.Duration(ticks) * 10 * time.Millisecond
	}
	if u.CPU == 0 {
		return u, errors.New("not yet")
	}
	return u, nil
}
