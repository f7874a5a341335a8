//go:build linux && (amd64 || arm64)

package process

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
	"github.com/sallyport/sallyport/internal/wire"
)

// The test's own executable is the supervisor and the child init, too.
func TestMain(m *testing.M) {
	if code, ok := Main(os.Args); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// engine makes one; plain is without namespaces, even where there are some.
func engine(t *testing.T, opts Options) *Engine {
	t.Helper()
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		t.Skip(err)
	}
	opts.Program, opts.Interpreter = python.Program(), "/usr/bin/python3"
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
func ways(t *testing.T, opts Options, test func(*testing.T, *Engine)) {
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

func start(t *testing.T, b *Engine, spec *sandbox.Spec) *session {
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

func (c *handler) Output(_ wire.Stream, b []byte) {
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
	x, err := s.conn.Start(wire.Exec{Code: code}, c)
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
	ways(t, Options{}, func(t *testing.T, b *Engine) {
		s := start(t, b, &sandbox.Spec{Program: python.Program(), ID: "code", Env: map[string]string{"GIVEN": "yes"}, Files: []sandbox.File{{Path: "d/in.txt", Data: []byte("content"), Mode: 0o600}}})
		t.Setenv("SALLYPORT_TEST_SECRET", "hunter2")
		sets := `"CapEff", "CapPrm", "CapInh", "CapAmb"`
		if !b.opts.NoNamespaces || os.Geteuid() == 0 {
			sets += `, "CapBnd"` // which is no user's to give up, and gives nothing with NoNewPrivs
		}
		got := s.exec(t, `
import os, stat
print(os.getcwd() == os.environ["HOME"], os.environ["GIVEN"], open("d/in.txt").read(), oct(stat.S_IMODE(os.stat("d/in.txt").st_mode)))
print("SALLYPORT_TEST_SECRET" in os.environ, 0 in os.getresuid() and os.getuid() == 0)
status = dict(l.split(":", 1) for l in open("/proc/self/status"))
print(status["NoNewPrivs"].strip(), status["Seccomp"].strip(), {status[c].strip().strip("0") for c in (`+sets+`)})
open("out", "w").write("x")
import subprocess
print(subprocess.run(["cat", "out"], capture_output=True).stdout)
import time
while time.process_time() < 0.05: pass  # the kernel counts in ticks of 10 ms
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

// TestKeptApart: what the code must not reach, each tried natively, too.
func TestKeptApart(t *testing.T) {
	// Not in /tmp, which runs without namespaces share.
	place, err := os.MkdirTemp("/var/tmp", "sallyport-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(place)
	secret := filepath.Join(place, "secret")
	if err := os.WriteFile(secret, []byte("hunter2"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(place, 0o755); err != nil { // every user can read it
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	abstract := "@sallyport-test-" + filepath.Base(t.TempDir()) + strconv.Itoa(os.Getpid())
	u, err := net.Listen("unix", abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	program := fmt.Sprintf(`
import ctypes, os, shutil, socket, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def call(*a):
    r = libc.syscall(*a)
    if r < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return r
def run_own():
    shutil.copy("/bin/true", "./prog")
    os.chmod("./prog", 0o755)
    subprocess.run(["./prog"], check=True)
def talk(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(5)
        s.connect(address)
for name, f in {
    "secret": lambda: open(%q).read(),
    "environ": lambda: open("/proc/%d/environ", "rb").read(1),
    "signal": lambda: os.kill(%[2]d, 0),
    "tcp": lambda: talk(socket.AF_INET, ("127.0.0.1", %d)),
    "abstract": lambda: talk(socket.AF_UNIX, "\0" + %q),
    "run": run_own,
    "etc": lambda: os.open("/etc/passwd", os.O_WRONLY),
    "shadow": lambda: open("/etc/shadow").read(),
    "unshare": lambda: call(%d, 0x10000000),
    "memfd": lambda: os.memfd_create("x"),
    "packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "vsock": lambda: socket.socket(40, socket.SOCK_STREAM),
}.items():
    try:
        f()
        print("reached", name)
    except Exception as e:
        print("blocked", name, type(e).__name__)
`, secret, os.Getpid(), l.Addr().(*net.TCPAddr).Port, abstract[1:], unix.SYS_UNSHARE)
	native := exec.Command("/usr/bin/python3", "-c", program)
	native.Dir = t.TempDir()
	out, err := native.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"secret", "environ", "signal", "tcp", "abstract", "run", "memfd"} {
		if !strings.Contains(string(out), "reached "+name+"\n") {
			t.Errorf("natively %s is not reached: what follows proves nothing\n%s", name, out)
		}
	}
	ways(t, Options{}, func(t *testing.T, b *Engine) {
		if b.opts.NoNamespaces && landlockVersion() < landlockSignals {
			t.Skip("no Landlock")
		}
		got := start(t, b, &sandbox.Spec{Program: python.Program(), ID: "apart"}).exec(t, program)
		if strings.Count(got, "blocked ") != 12 || strings.Contains(got, "reached") {
			t.Errorf("got\n%s", got)
		}
	})
}

// marked are the living processes with that in their environment.
func marked(mark string) (found []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && strings.Contains(string(b), mark) {
			found = append(found, filepath.Dir(n))
		}
	}
	return found
}

// daemons leaves processes behind as programs do that want to live on.
const daemons = `
import os, time
for i in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(3):
                os.close(fd)
            time.sleep(600)
        os._exit(0)
    os.wait()
print("left")
`

// killSupervisors kills the supervising processes that the test has started.
func killSupervisors(t *testing.T) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, stat := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err != nil {
			t.Fatal(err)
		}
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(stat), "cmdline"))
		if stat, err := supervise.ReadProcessStat(pid); err == nil && string(args) == SupervisorName+"\x00" && stat.Parent == os.Getpid() {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			killed++
		}
	}
	if killed == 0 {
		t.Fatal("no supervising process was found")
	}
}

func TestEveryProcessEnds(t *testing.T) {
	ways(t, Options{}, func(t *testing.T, b *Engine) {
		for _, how := range []string{"destroyed", "supervisor killed"} {
			if how == "supervisor killed" && b.opts.NoNamespaces && os.Geteuid() != 0 {
				continue // nobody else finds them then, as the documentation says
			}
			mark := "MARK=" + strings.ReplaceAll(t.Name()+how, " ", "-") + strconv.Itoa(os.Getpid())
			s := start(t, b, &sandbox.Spec{Program: python.Program(), ID: "daemons", Env: map[string]string{"MARK": strings.TrimPrefix(mark, "MARK=")}})
			if got := s.exec(t, daemons); got != "left\n" {
				t.Fatal(got)
			}
			if n := len(marked(mark)); os.Geteuid() == 0 && n < 5 {
				t.Errorf("%d processes, and there are to be 5", n)
			}
			if how == "supervisor killed" {
				killSupervisors(t)
				if e, err := s.run.Wait(t.Context()); err != nil || e.Reason != sandbox.EngineDied {
					t.Errorf("%+v, %v", e, err)
				}
			}
			if err := s.run.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			for until := time.Now().Add(20 * time.Second); len(marked(mark)) > 0; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(until) {
					t.Fatalf("%s: %v live on", how, marked(mark))
				}
			}
			if e, err := s.run.Wait(t.Context()); err != nil || how == "destroyed" && e.Reason != sandbox.Destroyed {
				t.Errorf("%+v, %v", e, err)
			}
		}
	})
}

// TestMemory: what is had alone counts, what is shared counts once.
func TestMemory(t *testing.T) {
	ways(t, Options{}, func(t *testing.T, b *Engine) {
		limits := sandbox.Limits{MemoryBytes: 160 << 20}
		s := start(t, b, &sandbox.Spec{Program: python.Program(), ID: "shared", Limits: limits})
		got := s.exec(t, `
import os, time
kept = bytearray(b"x") * (60 << 20)
children = []
for i in range(5):
    pid = os.fork()
    if pid == 0:
        time.sleep(1)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
print("shared")
`)
		if got != "shared\n" {
			t.Errorf("got %q", got)
		}
		s = start(t, b, &sandbox.Spec{Program: python.Program(), ID: "alone", Limits: limits})
		s.exec(t, `kept = [bytearray(b"x") * (16 << 20) for i in range(64)]`)
		if e, err := s.run.Wait(t.Context()); err != nil || e.Reason != sandbox.OutOfMemory {
			t.Errorf("%+v, %v", e, err)
		}
	})
}

func TestInterruptAndPause(t *testing.T) {
	ways(t, Options{}, func(t *testing.T, b *Engine) {
		s := start(t, b, &sandbox.Spec{Program: python.Program(), ID: "paused"})
		s.exec(t, "x = 1")
		p := s.run.(sandbox.Pauser)
		if err := p.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		h := &handler{}
		x, err := s.conn.Start(wire.Exec{Code: "while True: pass"}, h)
		if err != nil {
			t.Fatal(err)
		}
		before, err := s.run.(sandbox.Meter).Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		if now, err := s.run.(sandbox.Meter).Usage(t.Context()); err != nil || now.CPU != before.CPU {
			t.Errorf("it ran while paused: %v, then %v, %v", before.CPU, now.CPU, err)
		}
		if err := p.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		// One interrupt after the other, so that some come where the guest's own code runs.
		hang := time.After(time.Minute)
		for ended := false; !ended; {
			if err := s.run.(sandbox.Interrupter).Interrupt(t.Context()); err != nil {
				t.Fatal(err)
			}
			select {
			case <-x.Done():
				ended = true
			case <-hang:
				t.Fatal("it does not mind the interrupt")
			default:
			}
		}
		if o, err := x.Result(); err != nil || o.Status != wire.StatusInterrupted {
			t.Errorf("got %+v, %v, and the output\n%s", o, err, h.out.String())
		}
	})
}

// TestLink: without a root of its own, a run alone has its workspace under the
// usual path.
func TestLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	path := filepath.Join(t.TempDir(), "workspace")
	b := engine(t, Options{NoNamespaces: true, Link: path})
	// Its own folders, and not the one that they lie in, which others write to.
	for dir := filepath.Dir(path); strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755)
	}
	stale := filepath.Join("/tmp", sharedPrefix+"0", "gone", "workspace")
	if err := os.Symlink(stale, path); err != nil {
		t.Fatal(err)
	}
	one, two := start(t, b, &sandbox.Spec{Program: python.Program(), ID: "one"}), start(t, b, &sandbox.Spec{Program: python.Program(), ID: "two"})
	code := fmt.Sprintf("open(%q, 'w').write('x'); import os; print(os.listdir('.'))", path+"/f")
	if got := one.exec(t, code); got != "['f']\n" {
		t.Errorf("got %s", got)
	}
	if got := two.exec(t, code); !strings.Contains(got, "PermissionError") {
		t.Errorf("another run's workspace: %s", got)
	}
	if err := one.run.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the link is left")
	}
}

// TestSweep: what a program left that is dead is removed.
func TestSweep(t *testing.T) {
	dir, work := t.TempDir(), t.TempDir()
	log := slog.New(slog.DiscardHandler)
	dead := newInstance(dir, work, log)
	if err := dead.Open(); err != nil {
		t.Fatal(err)
	}
	if _, err := dead.work("left", os.Geteuid() == 0); err != nil {
		t.Fatal(err)
	}
	if err := dead.Record("left", record{}); err != nil {
		t.Fatal(err)
	}
	live := newInstance(dir, work, log)
	if err := live.Open(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead.Path); err != nil {
		t.Error("the living program's directory was swept")
	}
	if err := dead.Abandon(); err != nil {
		t.Fatal(err)
	}
	if err := live.Sweep(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := live.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
