package kaggle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/batch"
	"github.com/sallyport/sallyport/internal/batch/kaggle/kaggletest"
	"github.com/sallyport/sallyport/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testUser  = "ada"
	testToken = "KGAT_0123456789abcdef"
	patience  = 90 * time.Second
)

// hostPython is the host's interpreter itself, for a process without its
// usual environment.
var hostPython = sync.OnceValue(func() string {
	// The system's own starts faster than one with packages.
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		out, err := exec.Command(python, "-c", "import sys; assert sys.version_info >= (3, 9); print(sys.executable)").Output()
		if err == nil {
			return strings.TrimSpace(string(out))
		}
	}
	return ""
})

// world is a Kaggle with one user, and an engine that uses it.
type world struct {
	t       *testing.T
	service *kaggletest.Server
	account *kaggletest.Account
	log     *syncBuffer
	opts    Options
	ids     int
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newWorld makes a Kaggle that runs scripts with the host's Python, unless
// idle is set.
func newWorld(t *testing.T, idle bool) *world {
	t.Helper()
	python := ""
	if !idle {
		if python = hostPython(); python == "" {
			t.Skip("no python3")
		}
	}
	account := &kaggletest.Account{Key: "k3y-of-ada", Tokens: []string{testToken}, Refresh: "refresh-of-ada"}
	service := kaggletest.New(kaggletest.Options{Python: python, Dir: t.TempDir(), Accounts: map[string]*kaggletest.Account{testUser: account}})
	t.Cleanup(service.Close)
	log := &syncBuffer{}
	return &world{t: t, service: service, account: account, log: log, opts: Options{
		URL: service.URL(), Credentials: Sources{APIToken: testToken}, Instance: "test1", Poll: 10 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}}
}

func (w *world) engine() *Service {
	w.t.Helper()
	b, err := New(w.opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = b.Close() })
	return b
}

func (w *world) spec(code string) *batch.Job {
	w.ids++
	return &batch.Job{ID: "run-" + string(rune('a'+w.ids)), Code: code, Timeout: time.Minute, Queue: time.Hour, Script: true}
}

func (w *world) start(b *Service, spec *batch.Job) *run {
	w.t.Helper()
	r, err := b.Submit(context.Background(), spec)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.(*run)
}

func (w *world) result(r batch.Run) batch.Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got, err := r.Result(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

// fetched are the files of a run, by path.
func (w *world) fetched(r batch.Run) map[string]string {
	w.t.Helper()
	root, err := os.OpenRoot(w.t.TempDir())
	if err != nil {
		w.t.Fatal(err)
	}
	defer root.Close()
	files, err := r.Fetch(context.Background(), root)
	if err != nil {
		w.t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range files {
		data, err := root.ReadFile(filepath.FromSlash(f.Path))
		if err != nil {
			w.t.Fatal(err)
		}
		if int64(len(data)) != f.Size {
			w.t.Errorf("%s has %d bytes, and is said to have %d", f.Path, len(data), f.Size)
		}
		got[f.Path] = string(data)
	}
	return got
}

func TestARun(t *testing.T) {
	w := newWorld(t, false)
	b := w.engine()
	spec := w.spec(`import sys, os
print("hello", sys.argv[1:], open("in/data.txt").read())
print("to stderr", file=sys.stderr)
os.makedirs("out/deep")
open("out/deep/plot.bin", "wb").write(bytes(range(256)))
open("in/data.txt").close()
print(os.environ["GREETING"])
`)
	spec.Files = []sandbox.File{{Path: "in/data.txt", Data: []byte("from afar")}}
	spec.Env = map[string]string{"GREETING": `"""quo'ted\n"""`}
	spec.Args = []string{"-x", `with "quotes" and \ and 'that'`}
	spec.Filename = "analysis.py"
	r := w.start(b, spec)
	var seen []batch.Progress
	r.Observe(func(p batch.Progress) { seen = append(seen, p) })
	got := w.result(r)
	want := "hello ['-x', 'with \"quotes\" and \\\\ and \\'that\\''] from afar\n\"\"\"quo'ted\\n\"\"\"\n"
	if string(got.Stdout) != want || string(got.Stderr) != "to stderr\n" || got.ExitCode != 0 || got.End != batch.Exited {
		t.Fatalf("%+v\nstdout %q\nstderr %q", got, got.Stdout, got.Stderr)
	}
	if got.Usage == nil || got.Usage.CPU <= 0 || got.Usage.PeakBytes < 1<<20 || got.Ran <= 0 || got.Usage.CPUModel == "" {
		t.Errorf("usage %+v, ran %s", got.Usage, got.Ran)
	}
	var out, errs []byte
	running := false
	for _, p := range seen {
		out, errs = append(out, p.Stdout...), append(errs, p.Stderr...)
		running = running || p.Running
	}
	if string(out) != want || string(errs) != "to stderr\n" || !running {
		t.Errorf("told %q, %q, running %t", out, errs, running)
	}
	files := w.fetched(r)
	if len(files) != 2 || len(files["out/deep/plot.bin"]) != 256 {
		t.Errorf("files %q", files)
	}
	var manifest struct {
		Run  string
		Code struct{ Sha256, Filename string }
		Seed map[string]string
	}
	if err := json.Unmarshal([]byte(files[manifestFile]), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Run != spec.ID || manifest.Code.Sha256 != hashOf(spec.Code) || manifest.Code.Filename != "analysis.py" || manifest.Seed["PYTHONHASHSEED"] == "" {
		t.Errorf("manifest %+v", manifest)
	}
	k := w.service.Kernels()
	if len(k) != 1 || !k[0].Private || k[0].Internet || k[0].MachineShape != "" || k[0].TimeoutSeconds == 0 || k[0].Slug != "sallyport-test1-"+spec.ID || k[0].Versions != 1 {
		t.Errorf("kernels %+v", k)
	}
	if err := r.Destroy(context.Background()); err != nil {
		t.Fatal(err)
	}
	if k := w.service.Kernels(); len(k) != 0 {
		t.Errorf("left: %+v", k)
	}
	w.noSecrets()
}

// noSecrets: credentials went to the API alone, and nobody wrote them down.
func (w *world) noSecrets() {
	w.t.Helper()
	for _, secret := range w.service.Secrets() {
		if strings.Contains(w.log.String(), secret) {
			w.t.Errorf("a credential was logged: %s", w.log.String())
		}
		if there, err := w.service.Holds(secret); err != nil || there {
			w.t.Errorf("a credential reached a session: %t, %v", there, err)
		}
	}
	for _, e := range w.service.Journal() {
		if e.Host != "api" && e.Authorization != "" {
			w.t.Errorf("credentials went to %s", e.Host)
		}
	}
}

func TestEndsOfCode(t *testing.T) {
	w := newWorld(t, false)
	b := w.engine()
	for _, tt := range []struct {
		name, code     string
		script         bool
		exit           int
		stdout, stderr string // part of it
		end            batch.End
	}{
		{"failing", "def f():\n    return 1 / 0  # here\nf()\n", true, 1, "", "File \"main.py\", line 2, in f\n    return 1 / 0  # here", ""},
		{"exit status", "import sys; print('x'); sys.exit(3)", true, 3, "x\n", "", ""},
		{"killed", "import os; os.kill(os.getpid(), 9)", true, 137, "", "", ""},
		{"syntax", "x = = 1\n", true, 1, "", "File \"main.py\", line 1\n", ""},
		{"await and a last value", "import asyncio\nx = await asyncio.sleep(0, 6)\nx * 7", false, 0, "42\n", "", ""},
		{"a script's own", "import os\nos.write(1, b'\\xff\\xfe\\n')\nif __name__ == '__main__': print('main', __file__ != '', flush=True)\n6 * 7\nos._exit(7)", true, 7, "\xff\xfe\nmain True\n", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := w.spec(tt.code)
			spec.Script = tt.script
			r := w.start(b, spec)
			got := w.result(r)
			if got.ExitCode != tt.exit || got.End != tt.end || string(got.Stdout) != tt.stdout || !strings.Contains(string(got.Stderr), tt.stderr) {
				t.Errorf("%+v\nstdout %q\nstderr %s", got, got.Stdout, got.Stderr)
			}
			if strings.Contains(string(got.Stderr), "program.py") {
				t.Errorf("the bootstrap shows: %s", got.Stderr)
			}
			if err := r.Destroy(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheNetworkIsCutThreeTimes(t *testing.T) {
	w := newWorld(t, false)
	w.service.Inject(kaggletest.Fault{Call: "SaveKernel", Kind: kaggletest.DropAfter})
	w.service.Inject(kaggletest.Fault{Call: "GetKernelSessionStatus", Kind: kaggletest.DropBefore, Skip: 1, Times: 3})
	w.service.Inject(kaggletest.Fault{Call: "logs", Kind: kaggletest.Truncate, Times: 2})
	w.service.Inject(kaggletest.Fault{Call: "storage", Kind: kaggletest.Truncate, Times: 1})
	w.service.Inject(kaggletest.Fault{Call: "ListKernelSessionOutput", Kind: kaggletest.DropBefore, Times: 1})
	b := w.engine()
	r := w.start(b, w.spec("for i in range(20): print(i, flush=True)\nopen('left', 'w').write('x' * 5000)"))
	var unsure handle
	if err := json.Unmarshal(r.Handle().Data, &unsure); err != nil || !unsure.Unsure {
		t.Errorf("%+v, %v", unsure, err)
	}
	var told []byte
	r.Observe(func(p batch.Progress) { told = append(told, p.Stdout...) })
	got := w.result(r)
	if got.End != batch.Exited || got.ExitCode != 0 || !bytes.HasSuffix(got.Stdout, []byte("\n19\n")) {
		t.Fatalf("%+v: %s", got, got.Stdout)
	}
	if !bytes.Equal(told, got.Stdout) {
		t.Errorf("told %q", told)
	}
	if files := w.fetched(r); len(files["left"]) != 5000 {
		t.Errorf("files %v", len(files["left"]))
	}
	if n, k := w.service.Calls("SaveKernel"), w.service.Kernels(); n != 1 || len(k) != 1 || k[0].Versions != 1 || w.service.Sessions() != 1 {
		t.Errorf("%d pushes, %d kernels, %d sessions", n, len(k), w.service.Sessions())
	}
	var sure handle
	if err := json.Unmarshal(r.Handle().Data, &sure); err != nil || sure.Unsure {
		t.Errorf("%+v, %v", sure, err)
	}
}

func TestAPushThatNeverArrived(t *testing.T) {
	w := newWorld(t, true)
	w.service.Inject(kaggletest.Fault{Call: "SaveKernel", Kind: kaggletest.DropBefore})
	r := w.start(w.engine(), w.spec("print(1)"))
	got := w.result(r)
	if got.End != batch.Failed || !strings.Contains(got.Error, "was not run") {
		t.Errorf("%+v", got)
	}
	if n := len(w.service.Kernels()); n != 0 {
		t.Errorf("%d kernels", n)
	}
	if err := r.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestAttachAfterACrash(t *testing.T) {
	w := newWorld(t, false)
	spec := w.spec("print('still here')")
	r := w.start(w.engine(), spec)
	again, err := w.engine().Attach(context.Background(), r.Handle())
	if err != nil {
		t.Fatal(err)
	}
	if got := w.result(again.(*run)); string(got.Stdout) != "still here\n" {
		t.Errorf("%+v", got)
	}
	// Even where nothing but the ID was written down.
	byName, err := w.engine().Attach(context.Background(), sandbox.Handle{Backend: "kaggle", ID: spec.ID})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.result(byName.(*run)); string(got.Stdout) != "still here\n" {
		t.Errorf("%+v", got)
	}
	if _, err := w.engine().Attach(context.Background(), sandbox.Handle{Backend: "kaggle", ID: "run-never"}); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("a run that never was: %v", err)
	}
	if n := w.service.Calls("SaveKernel"); n != 1 {
		t.Errorf("%d pushes", n)
	}
}

func TestCancelIsNotPossible(t *testing.T) {
	w := newWorld(t, true)
	w.service.Hold(true)
	r := w.start(w.engine(), w.spec("print(1)"))
	err := r.Cancel(context.Background())
	if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), "https://www.kaggle.com/code/ada/sallyport-test1-") {
		t.Errorf("%v", err)
	}
	if err := r.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
	if w.service.Ghosts() != 0 || len(w.service.Kernels()) != 1 {
		t.Error("a run that goes on was deleted, and goes on where nobody sees it")
	}
	if _, err := r.Result(context.Background()); !errors.Is(err, sandbox.ErrGone) {
		t.Error(err)
	}
}

func TestALateSessionDoesNotRunTheCode(t *testing.T) {
	t.Parallel() // mostly waiting
	w := newWorld(t, false)
	w.service.Hold(true)
	b := w.engine()
	spec := w.spec("open('ran', 'w').write('x')")
	spec.Queue = time.Second
	r := w.start(b, spec)
	r.mu.Lock()
	r.h.NotAfter = r.h.NotAfter.Add(-2 * lateness) // as if it were later
	r.mu.Unlock()
	if got := w.result(r); got.End != batch.Expired {
		t.Errorf("%+v", got)
	}
	time.Sleep(2 * time.Second) // it is: the script goes by the clock
	w.service.Hold(false)
	again, err := b.Attach(context.Background(), r.Handle())
	if err != nil {
		t.Fatal(err)
	}
	again.(*run).h.NotAfter = time.Now().Add(time.Hour)
	if got := w.result(again.(*run)); got.End != batch.Expired || !strings.Contains(got.Error, "not run") {
		t.Errorf("%+v", got)
	}
	if files := w.fetched(again.(*run)); files["ran"] != "" {
		t.Error("the code ran")
	}
}

func TestTimeLimit(t *testing.T) {
	t.Parallel() // mostly waiting
	w := newWorld(t, false)
	spec := w.spec("import time, subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\nprint('begun', flush=True)\ntime.sleep(600)")
	spec.Timeout = 8 * time.Second
	r := w.start(w.engine(), spec)
	got := w.result(r)
	if got.End != batch.TimedOut || string(got.Stdout) != "begun\n" || !strings.Contains(string(got.Stderr), "KeyboardInterrupt") {
		t.Errorf("%+v %s", got, got.Stderr)
	}
}

func TestServiceRefuses(t *testing.T) {
	w := newWorld(t, true)
	b := w.engine()
	w.service.Hold(true)
	gpu := func() *batch.Job {
		s := w.spec("print(1)")
		s.Accelerator = "gpu"
		return s
	}
	w.start(b, gpu())
	w.start(b, gpu())
	_, err := b.Submit(context.Background(), gpu())
	if !errors.Is(err, sandbox.ErrStart) || !strings.Contains(err.Error(), "GPU session count of 2") {
		t.Errorf("a third session: %v", err)
	}
	w.account.GPUUsed = 30 * time.Hour
	w.service.Hold(false)
	if _, err := b.Submit(context.Background(), func() *batch.Job { s := gpu(); s.Accelerator = "NvidiaL4"; return s }()); err == nil {
		t.Error("started")
	}
	w.account.TPUUsed = 20 * time.Hour
	s := w.spec("print(1)")
	s.Accelerator = "TPU"
	if _, err := b.Submit(context.Background(), s); !errors.Is(err, sandbox.ErrStart) || !strings.Contains(err.Error(), "quota at Kaggle is used up") {
		t.Errorf("no quota: %v", err)
	}
	if n := w.service.Calls("SaveKernel"); n != 5 {
		t.Errorf("%d pushes: a refusal was repeated", n)
	}
}

func TestSweep(t *testing.T) {
	w := newWorld(t, true)
	b := w.engine()
	ended, known := w.start(b, w.spec("1")), w.start(b, w.spec("2"))
	w.result(ended)
	w.result(known)
	other, err := New(func() Options { o := w.opts; o.Instance = "test2"; return o }())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	w.result(w.start(other, w.spec("3")))
	w.service.Hold(true)
	running := w.start(b, w.spec("4"))
	accept := func(id string) bool { return id == known.id }
	if gone, err := b.Sweep(context.Background(), time.Hour, accept); err != nil || len(gone) != 0 {
		t.Errorf("young ones: %v, %v", gone, err)
	}
	gone, err := b.Sweep(context.Background(), 0, accept)
	if err != nil || !slices.Equal(gone, []string{ended.id}) {
		t.Errorf("%v, %v", gone, err)
	}
	var left []string
	for _, k := range w.service.Kernels() {
		left = append(left, k.Slug)
	}
	if len(left) != 3 || !slices.Contains(left, "sallyport-test1-"+running.id) || w.service.Ghosts() != 0 {
		t.Errorf("left %v", left)
	}
}
