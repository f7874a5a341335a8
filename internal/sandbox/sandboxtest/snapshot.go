//go:build linux

package sandboxtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/guest"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/wire"
)

// snapshots takes snapshots and resumes from them.
func (s *suite) snapshots(t *testing.T) {
	b := s.backend(t)
	if _, ok := sandbox.As[sandbox.Restorer](b); !ok || !s.report.Snapshots {
		if ok != s.report.Snapshots {
			t.Errorf("the report says %v of snapshots, the engine %v", s.report.Snapshots, ok)
		}
		Skip(t, s.cfg.Engine+".snapshots", "the engine restores no snapshots")
	}
	t.Run("everything goes on", s.goesOn)
	t.Run("kept running", s.keptRunning)
	t.Run("many from one", s.manyFromOne)
	t.Run("binding", s.bindings)
	t.Run("refused", s.snapshotRefused)
	t.Run("loopback", s.restoredLoopback)
	t.Run("limits hold", s.restoredLimits)
	t.Run("background", s.restoredBackground)
}

// taken is a snapshot and what is needed to resume from it.
type taken struct {
	spec  *sandbox.Spec
	dir   string
	ready wire.Ready
	done  uint64
}

// take takes a snapshot of an idle session.
func (s *suite) take(t *testing.T, sess *session, spec *sandbox.Spec, keep bool) taken {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	k := taken{spec: spec, dir: t.TempDir(), done: sess.conn.Executions()}
	var err error
	if k.ready, err = sess.conn.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	snapshotter, ok := sandbox.As[sandbox.Snapshotter](sess.run)
	if !ok {
		t.Fatal("the report says snapshots, but the run takes none")
	}
	if err := snapshotter.Snapshot(ctx, k.dir, keep); err != nil {
		t.Fatalf("Snapshot: %v", err)
	}
	return k
}

// image opens a snapshot's files until the test ends.
func image(t *testing.T, dir string) sandbox.Image {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var image sandbox.Image
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		image.Files = append(image.Files, f)
	}
	return image
}

// restore resumes from a snapshot, in a sandbox that is destroyed when t ends.
func (s *suite) restore(t *testing.T, b sandbox.Engine, k taken) *session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	restorer, _ := sandbox.As[sandbox.Restorer](b)
	spec := *k.spec
	spec.ID = s.spec().ID
	run, err := restorer.Restore(ctx, &spec, image(t, k.dir))
	if err != nil {
		t.Fatalf("Restore: %v", err)
	}
	return s.resumed(t, run, k)
}

// resumed takes up the conversation with a restored guest.
func (s *suite) resumed(t *testing.T, run sandbox.Run, k taken) *session {
	t.Helper()
	sess := &session{run: run}
	t.Cleanup(func() { sess.destroy(t) })
	d, _ := sandbox.As[sandbox.Duplexer](run)
	ch := d.Channel()
	sess.conn = guest.Open(ch.Stdin, ch.Stdout, ch.Stderr, guest.Options{Restored: &k.ready, Executions: k.done})
	return sess
}

// What a session has before its snapshot in goesOn, and what it says after it.
const (
	kernelBeginning = `
import os, threading, time, asyncio, socket, subprocess, sys
variable = {"a": [1, 2.5, None]}
def function(x): return x + 1
file = open("file", "w+")
file.write("before ")
file.flush()
system = open("/etc/passwd")
system.readline()
r, w = os.pipe()
os.write(w, b"in the pipe")
left, right = socket.socketpair()
left.send(b"in the socket")
ticks = 0
stop = threading.Event()
def tick():
    global ticks
    while not stop.wait(0.01):
        ticks += 1
thread = threading.Thread(target=tick)
thread.start()
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
clock, monotonic = time.time(), time.monotonic()
os.symlink("file", "link"); os.mkdir("dir"); os.chmod("file", 0o640)
big = os.urandom(8 << 20)
digest = hash(big)
None
`
	kernelEnding = `
file.write("after"); file.seek(0)
before = ticks
time.sleep(0.2)
child.stdin.write(b"to the child"); child.stdin.close()
print(variable, function(1), file.read(), system.readline().split(":")[0] != "", os.read(r, 99), right.recv(99))
print(ticks > before, child.stdout.read(), child.wait(), hash(big) == digest, oct(os.stat("link").st_mode & 0o777), os.listdir("dir"))
print(0 <= time.time() - clock < 600, 0 <= time.monotonic() - monotonic < 600, open("given").read(), os.environ["GIVEN"])
stop.set(); thread.join()
print(await asyncio.sleep(0.01, "slept"), subprocess.run(["echo", "child"], capture_output=True).stdout)
`
	kernelWant = `{'a': [1, 2.5, None]} 2 before after True b'in the pipe' b'in the socket'
True b'to the child' 0 True 0o640 []
True True given yes
slept b'child\n'
`
)

func (s *suite) goesOn(t *testing.T) {
	b := s.backend(t)
	spec := s.spec()
	spec.Files = []sandbox.File{{Path: "given", Data: []byte("given")}}
	spec.Env = map[string]string{"GIVEN": "yes"}
	first := s.start(t, b, spec)
	beginning, ending, want := kernelBeginning, kernelEnding, kernelWant
	if s.report.Single {
		beginning, ending, want = singleBeginning, singleEnding, singleWant
	}
	first.must(t, beginning)
	k := s.take(t, first, spec, false)
	if e := first.exit(t); e.Reason == sandbox.EngineDied || e.Reason == sandbox.OutOfMemory {
		t.Errorf("the run of which a snapshot was taken ended with %+v", e)
	}
	second := s.restore(t, b, k)
	got := second.must(t, ending)
	if got != want {
		t.Errorf("after the restore:\n%swant:\n%s", got, want)
	}
	// It also works a second time.
	third := s.restore(t, b, s.take(t, second, spec, false))
	if got := third.must(t, "print(variable['a'][0], hash(big) == digest)"); got != "1 True\n" {
		t.Errorf("after a second one: %q", got)
	}
}

func (s *suite) keptRunning(t *testing.T) {
	b := s.backend(t)
	spec := s.spec()
	first := s.start(t, b, spec)
	first.must(t, "x = 1")
	k := s.take(t, first, spec, true)
	first.must(t, "x = 2")
	second := s.restore(t, b, k)
	if got := first.must(t, "print(x)") + second.must(t, "print(x)"); got != "2\n1\n" {
		t.Errorf("the kept one and the copy say %q", got)
	}
}

// manyFromOne tests that copies know nothing of each other, and that their
// random values differ once they have been reseeded.
func (s *suite) manyFromOne(t *testing.T) {
	const n = 4
	b := s.backend(t)
	spec := s.spec()
	first := s.start(t, b, spec)
	needed, values := "ssl, multiprocessing.process", "ssl.RAND_bytes(8).hex(), multiprocessing.process.current_process().authkey.hex()"
	if s.report.Single {
		needed, values = "os", "random.SystemRandom().random(), random.randbytes(8).hex()"
	}
	first.must(t, "import random, uuid, tempfile, "+needed+"\nrandom.random(); tempfile.mktemp(); "+values+"\ntry:\n    import numpy.random\nexcept ImportError:\n    pass")
	k := s.take(t, first, spec, false)
	out := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		sess := s.restore(t, b, k)
		all.Go(func() {
			h := &collector{limit: 1 << 20, wrote: make(chan struct{}, 1)}
			x, err := sess.conn.Start(wire.Exec{Reseed: strings.Repeat(string(rune('a'+i)), 64), Code: `
import os, secrets, sys
open("mine", "x").write("")
print(random.random(), random.getrandbits(64), uuid.uuid1(), uuid.uuid4(), tempfile.mktemp(), os.urandom(8).hex(), secrets.token_hex(8), ` + values + `)
if "numpy" in sys.modules:
    print(sys.modules["numpy"].random.random(), sys.modules["numpy"].random.default_rng().random())
`}, h)
			if err != nil {
				t.Error(err)
				return
			}
			if o, err := x.Result(); err != nil || o.Status != wire.StatusOK {
				t.Errorf("%v %v %s", o.Status, err, h.result().Stderr)
			}
			out[i] = h.result().Stdout
		})
	}
	all.Wait()
	seen := map[string]int{}
	for i, o := range out {
		fields := strings.Fields(o)
		if len(fields) < 9 {
			t.Fatalf("copy %d says %q", i, o)
		}
		for _, f := range fields {
			if j, ok := seen[f]; ok {
				t.Errorf("copies %d and %d both have %s", i, j, f)
			}
			seen[f] = i
		}
	}
}

func (s *suite) bindings(t *testing.T) {
	restorer, _ := sandbox.As[sandbox.Restorer](s.backend(t))
	binding := func(change func(*sandbox.Spec)) string {
		spec := s.spec()
		change(spec)
		text, err := restorer.Binding(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	plain := binding(func(*sandbox.Spec) {})
	if plain == "" || plain != binding(func(spec *sandbox.Spec) { spec.Owner = "another" }) {
		t.Errorf("the binding of the same spec differs or is empty: %q", plain)
	}
	for what, change := range map[string]func(*sandbox.Spec){
		"memory":      func(spec *sandbox.Spec) { spec.Limits.MemoryBytes = 256 << 20 },
		"processes":   func(spec *sandbox.Spec) { spec.Limits.Processes = 50 },
		"disk":        func(spec *sandbox.Spec) { spec.Limits.WorkspaceBytes = 10 << 20 },
		"environment": func(spec *sandbox.Spec) { spec.Env = map[string]string{"A": "b"} },
		"files":       func(spec *sandbox.Spec) { spec.Files = []sandbox.File{{Path: "a"}} },
	} {
		if binding(change) == plain {
			t.Errorf("another value for %s, and the same binding", what)
		}
	}
}

// snapshotRefused tests that a snapshot that cannot be restored is an error and
// leaves nothing.
func (s *suite) snapshotRefused(t *testing.T) {
	b := s.backend(t)
	restorer, _ := sandbox.As[sandbox.Restorer](b)
	spec := s.spec()
	good := s.take(t, s.start(t, b, spec), spec, false)
	files, err := os.ReadDir(good.dir)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	refused := errors.New("not what was saved")
	for what, check := range map[string]func(context.Context) error{
		"wrong":     func(context.Context) error { return refused },
		"forbidden": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		limit := startTimeout
		if what == "forbidden" {
			limit = time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		image := image(t, good.dir)
		image.Check = check
		run, err := restorer.Restore(ctx, s.spec(), image)
		cancel()
		if err == nil {
			_ = run.Destroy(t.Context())
			t.Errorf("a %s snapshot was restored", what)
		} else if what == "wrong" && !errors.Is(err, refused) {
			t.Errorf("Restore does not say why: %v", err)
		}
	}
	for _, what := range []string{"empty", "truncated", "garbage"} {
		dir := t.TempDir()
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join(good.dir, f.Name()))
			switch what {
			case "empty":
				data = nil
			case "truncated":
				data = data[:len(data)/2]
			case "garbage":
				for i := range data {
					data[i] = byte(i * 7)
				}
			}
			if err = errors.Join(err, os.WriteFile(filepath.Join(dir, f.Name()), data, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
		run, err := restorer.Restore(ctx, s.spec(), image(t, dir))
		if err == nil {
			// Missing pages may go unnoticed until they are needed. Then only
			// that sandbox dies.
			_ = run.Destroy(ctx)
			if what != "truncated" {
				t.Errorf("an %s snapshot was restored", what)
			}
		}
		cancel()
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if run, err := restorer.Restore(ctx, s.spec(), sandbox.Image{}); err == nil {
		_ = run.Destroy(ctx)
		t.Error("a snapshot without files was restored")
	}
	s.restore(t, b, good).usable(t, "the good one")
}

// restoredLimits tests that the limits also apply to a restored sandbox.
func (s *suite) restoredLimits(t *testing.T) {
	b := s.backend(t)
	spec := s.spec()
	spec.Limits = sandbox.Limits{MemoryBytes: 200 << 20, Processes: 40, WorkspaceBytes: 8 << 20, TmpBytes: 4 << 20, OpenFiles: 100}
	k := s.take(t, s.start(t, b, spec), spec, false)
	sess := s.restore(t, b, k)
	if s.report.Single {
		if got, want := sess.must(t, singleLimits), "ENOSPC ENOSPC EMFILE\n"; got != want {
			t.Errorf("in a restored sandbox: got %q, want %q", got, want)
		}
		s.restoredMemory(t, sess)
		return
	}
	got := sess.must(t, tooMuch+`
import threading
def threads():
    stop = threading.Event()
    kept = []
    try:
        while len(kept) < 500:
            kept.append(threading.Thread(target=stop.wait))
            kept[-1].start()
        return "unlimited"
    except RuntimeError:
        return "refused"
    finally:
        stop.set()
print(full("/workspace/f"), full("/tmp/f"), many(), threads())
print(os.getuid(), [l.split()[1] for l in open("/proc/self/status") if l.startswith(("CapEff", "NoNewPrivs"))], open("/proc/net/dev").read().count(":"))
for path in ("/x", "/etc/x", "/usr/x", "/opt/x"):
    try:
        open(path, "w")
        print("wrote", path)
    except OSError as e:
        pass
`)
	want := "ENOSPC ENOSPC EMFILE refused\n65534 "
	if !strings.HasPrefix(got, want) || strings.Contains(got, "wrote") || !strings.Contains(got, "'0000000000000000'") {
		t.Errorf("in a restored sandbox: %s", got)
	}
	if s.report.Isolation >= sandbox.KernelIsolation {
		s.memoryShown(spec.Limits.MemoryBytes)(t, sess)
	}
	s.restoredMemory(t, sess)
}

// restoredMemory tests that a restored sandbox of 200 MiB has no more.
func (s *suite) restoredMemory(t *testing.T, sess *session) {
	t.Helper()
	if s.enforced(sandbox.Memory) {
		r := sess.exec(t, "import os\nkept = []\nwhile len(kept) < 100:\n    kept.append(bytearray(os.urandom(16 << 20)))\nprint('had', len(kept) * 16)")
		if strings.Contains(r.Stdout, "had") {
			t.Errorf("a restored sandbox of 200 MiB %s", r.Stdout)
		}
	}
}

// restoredBackground tests that the host can still measure, interrupt and
// pause.
func (s *suite) restoredBackground(t *testing.T) {
	b := s.backend(t)
	spec := s.spec()
	k := s.take(t, s.start(t, b, spec), spec, false)
	sess := s.restore(t, b, k)
	x := sess.begin(t, "import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.01)")
	x.saw(t, "begun", execTimeout)
	if m, ok := sandbox.As[sandbox.Meter](sess.run); ok {
		if u, err := m.Usage(t.Context()); err != nil || u.MemoryBytes == 0 {
			t.Errorf("usage %+v, %v", u, err)
		}
	}
	if p, ok := sandbox.As[sandbox.Pauser](sess.run); ok {
		if err := errors.Join(p.Pause(t.Context()), p.Resume(t.Context())); err != nil {
			t.Error(err)
		}
	}
	i, ok := sandbox.As[sandbox.Interrupter](sess.run)
	if !ok {
		t.Fatal("a restored run cannot be interrupted")
	}
	if err := i.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := x.wait(t, execTimeout); r.Status != wire.StatusInterrupted {
		t.Errorf("interrupted: %s %s", r.Status, r.Stderr)
	}
	sess.usable(t, "the interrupted one")
}
