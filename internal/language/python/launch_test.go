//go:build unix

package python_test

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/guest/guesttest"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
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
	*guest.Conn
	cmd       *exec.Cmd
	workspace string
	stdin     *os.File
	stray     *guesttest.Recorder
}

func interpreterOf(t testing.TB) string {
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
	p := &process{workspace: t.TempDir(), stray: guesttest.NewRecorder()}
	program := python.Program()
	argv := sandbox.Command(program.Argv, interpreterOf(t), dir)
	if inOneProcess(t) {
		argv = sandbox.Command(python.SingleProcess().Argv, interpreterOf(t), dir)
		argv = slices.Insert(argv, len(argv)-2, filepath.Join(dir, "testdata/single/main.py"))
		if strings.HasPrefix(t.Name(), "TestParked/") {
			argv[len(argv)-1] = "parked"
		}
	}
	if *launcher != "" {
		argv = strings.Fields(*launcher)
	}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env = append(slices.Clone(program.Env), sandbox.WorkspaceEnv+"="+p.workspace)
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
	p.stdin = stdin
	for _, f := range []*os.File{in, out, errs} {
		f.Close()
	}
	p.Conn = guest.Open(stdin, stdout, stderr, guest.Options{IdleOutput: p.stray.Add})
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

// result is an execution's end and all it wrote.
type result struct {
	wire.Done
	stdout, stderr string
	err            error
}

// run executes e and waits for its end.
func (p *process) run(t testing.TB, e wire.Exec, call func(context.Context, wire.Call) (json.RawMessage, error)) result {
	t.Helper()
	h := guesttest.NewHandler(call)
	x, err := p.Start(e, h)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-x.Done():
	case <-time.After(time.Minute):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGQUIT)
		t.Fatalf("no end; stdout %q, stderr %q", h.Stdout(), h.Stderr())
	}
	o, err := x.Result()
	return result{o, h.Stdout(), h.Stderr(), err}
}

// exec runs code that calls nothing.
func (p *process) exec(t testing.TB, code string) result {
	t.Helper()
	return p.run(t, wire.Exec{Code: code}, nil)
}

// interrupt delivers what an engine delivers: a SIGINT to init.
func (p *process) interrupt() { _ = p.cmd.Process.Signal(syscall.SIGINT) }

var _ io.Closer = (*process)(nil)
