//go:build linux && (amd64 || arm64)

package process

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sallyport/internal/guest"
	"sallyport/internal/sandbox"
	"sallyport/internal/wire"
)

// The test's own executable is the stage and the entry, too.
func TestMain(m *testing.M) {
	if code, ok := Main(os.Args); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// engine makes one; plain is without namespaces, even where there are some.
func engine(t *testing.T, opts Options) *Backend {
	t.Helper()
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		t.Skip(err)
	}
	opts.Python = "/usr/bin/python3"
	opts.RuntimeDir, opts.CacheDir = t.TempDir(), t.TempDir()
	b, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := b.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !rep.Usable {
		t.Skipf("%+v", rep.Findings)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		left, err := os.ReadDir(opts.RuntimeDir)
		if err != nil || len(left) > 0 {
			t.Errorf("left in the runtime directory: %v, %v", left, err)
		}
	})
	return b
}

// ways are the two ways of running code.
func ways(t *testing.T, opts Options, test func(*testing.T, *Backend)) {
	t.Run("plain", func(t *testing.T) {
		opts := opts
		opts.NoNamespaces = true
		test(t, engine(t, opts))
	})
	t.Run("namespaces", func(t *testing.T) {
		b := engine(t, opts)
		if err := b.tryNamespaces(); err != nil {
			t.Skip(err)
		}
		test(t, b)
	})
}

type session struct {
	run  sandbox.Run
	conn *guest.Conn
}

func start(t *testing.T, b *Backend, spec *sandbox.Spec) *session {
	t.Helper()
	run, err := b.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	d, _ := sandbox.As[sandbox.Duplexer](run)
	ch := d.Channel()
	s := &session{run: run, conn: guest.Open(ch.Stdin, ch.Stdout, ch.Stderr, guest.Options{})}
	t.Cleanup(func() {
		_ = s.conn.Close()
		if err := run.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

type handler struct {
	mu  sync.Mutex
	out strings.Builder
}

func (c *handler) Output(_ guest.Stream, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.Write(b)
}

func (*handler) Call(context.Context, wire.Call) (json.RawMessage, error) {
	return json.RawMessage("null"), nil
}

func (s *session) exec(t *testing.T, code string) string {
	t.Helper()
	c := &handler{}
	x, err := s.conn.Start(guest.Exec{Code: code}, c)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-x.Done():
	case <-time.After(60 * time.Second):
		t.Fatal("no end")
	}
	if _, err := x.Result(); err != nil {
		c.out.WriteString(" [" + err.Error() + "]")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

func TestCode(t *testing.T) {
	ways(t, Options{}, func(t *testing.T, b *Backend) {
		s := start(t, b, &sandbox.Spec{ID: "code", Env: map[string]string{"GIVEN": "yes"}, Files: []sandbox.File{{Path: "d/in.txt", Data: []byte("content"), Mode: 0o600}}})
		t.Setenv("SALLYPORT_TEST_SECRET", "hunter2")
		got := s.exec(t, `
import os, stat
print(os.getcwd() == os.environ["HOME"], os.environ["GIVEN"], open("d/in.txt").read(), oct(stat.S_IMODE(os.stat("d/in.txt").st_mode)))
print("SALLYPORT_TEST_SECRET" in os.environ, 0 in os.getresuid() and os.getuid() == 0)
status = dict(l.split(":", 1) for l in open("/proc/self/status"))
print(status["NoNewPrivs"].strip(), status["Seccomp"].strip(), {status[c].strip().strip("0") for c in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")})
open("out", "w").write("x")
import subprocess
print(subprocess.run(["cat", "out"], capture_output=True).stdout)
`)
		if want := "True yes content 0o600\nFalse False\n1 2 {''}\nb'x'\n"; got != want {
			t.Errorf("got %s", got)
		}
		u, err := s.run.(sandbox.Meter).Usage(t.Context())
		if err != nil || u.CPU <= 0 || u.MemoryBytes < 1<<20 || u.PeakBytes < u.MemoryBytes {
			t.Errorf("%+v, %v", u, err)
		}
	})
}
