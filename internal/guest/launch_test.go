//go:build unix

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sallyport/internal/wire"
)

// launcher runs the guest some other way than as a plain process, gVisor for
// instance: a command whose standard streams are the channel. It is split at
// white space and given no further arguments.
var launcher = flag.String("launcher", "", "command that runs the guest, instead of the host's python3")

var interpreter = flag.String("python", "", "interpreter that runs the guest, instead of the host's python3")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// process is a guest that runs as a plain process of the host.
type process struct {
	*Conn
	cmd       *exec.Cmd
	workspace string
	stray     *output
}

func python(t testing.TB) string {
	t.Helper()
	if *interpreter != "" {
		return *interpreter
	}
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no python3")
	return ""
}

// launch starts a guest. The caller's test ends it.
func launch(t testing.TB, env ...string) *process {
	t.Helper()
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	p := &process{workspace: t.TempDir(), stray: newOutput()}
	argv := Argv(python(t))
	for i, a := range argv {
		argv[i] = strings.Replace(a, Dir, dir, 1)
	}
	if *launcher != "" {
		argv = strings.Fields(*launcher)
	}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env = append(Environ(), "SALLYPORT_WORKSPACE="+p.workspace)
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Dir = p.workspace
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, stdin := pipe(t)
	stdout, out := pipe(t)
	stderr, errs := pipe(t)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, errs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{in, out, errs} {
		f.Close()
	}
	p.Conn = Open(stdin, stdout, stderr, Options{Stray: p.stray.add})
	t.Cleanup(func() {
		p.Close()
		grace := 20 * time.Millisecond
		if *launcher != "" {
			grace = 5 * time.Second // it has things to clear away
		}
		timer := time.AfterFunc(grace, func() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) })
		_ = p.cmd.Wait()
		timer.Stop()
	})
	return p
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// output collects what a guest writes.
type output struct {
	mu       sync.Mutex
	out, err bytes.Buffer
	arrived  chan struct{} // signalled at each arrival
}

func newOutput() *output { return &output{arrived: make(chan struct{}, 1)} }

func (o *output) add(s Stream, b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := &o.out
	if s == Stderr {
		w = &o.err
	}
	w.Write(b)
	select {
	case o.arrived <- struct{}{}:
	default:
	}
}

func (o *output) stdout() string { o.mu.Lock(); defer o.mu.Unlock(); return o.out.String() }
func (o *output) stderr() string { o.mu.Lock(); defer o.mu.Unlock(); return o.err.String() }

// handler collects output and answers calls.
type handler struct {
	*output
	call func(ctx context.Context, c wire.Call) (json.RawMessage, error)
}

func (h *handler) Output(s Stream, b []byte) { h.add(s, b) }

func (h *handler) Call(ctx context.Context, c wire.Call) (json.RawMessage, error) {
	if h.call == nil {
		return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "no " + c.Method}
	}
	return h.call(ctx, c)
}

// result is an execution's end and all it wrote.
type result struct {
	Outcome
	stdout, stderr string
	err            error
}

// run executes e and waits for its end.
func (p *process) run(t testing.TB, e Exec, call func(context.Context, wire.Call) (json.RawMessage, error)) result {
	t.Helper()
	h := &handler{newOutput(), call}
	x, err := p.Start(e, h)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-x.Done():
	case <-time.After(20 * time.Second):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGQUIT)
		t.Fatalf("no end; stdout %q, stderr %q", h.stdout(), h.stderr())
	}
	o, err := x.Result()
	return result{o, h.stdout(), h.stderr(), err}
}

// exec runs code that calls nothing.
func (p *process) exec(t testing.TB, code string) result {
	t.Helper()
	return p.run(t, Exec{Code: code}, nil)
}

// interrupt delivers what an engine delivers: a SIGINT to init.
func (p *process) interrupt() { _ = p.cmd.Process.Signal(syscall.SIGINT) }

var _ io.Closer = (*process)(nil)
