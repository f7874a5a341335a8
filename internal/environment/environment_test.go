package environment

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sallyport/sallyport/internal/image"
	"github.com/sallyport/sallyport/internal/image/archive"
	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/image/flatten"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/store"
)

// fixture is a store whose base is a few files, and whose sandboxes are this
// machine's Python.
type fixture struct {
	*Store
	images *image.Store
	wheels string
	builds int // pip ran, or would have
	said   []string
	mu     sync.Mutex
	edit   func(b *build.Builder)
}

func open(t *testing.T, dir string) *fixture {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err == nil {
		err = exec.Command(python, "-c", "import pip").Run()
	}
	if err != nil {
		t.Skip("Python with pip is not here:", err)
	}
	f := &fixture{images: image.At(filepath.Join(dir, "images"), flatten.Limits{}), wheels: filepath.Join(dir, "wheels")}
	if err := os.MkdirAll(f.wheels, 0o700); err != nil {
		t.Fatal(err)
	}
	f.Store = New(Config{
		Images: f.images, State: store.At(filepath.Join(dir, "state")),
		Base: func(ctx context.Context, d *Definition, _ Tell) (*image.Root, error) { return f.base(ctx, t) },
		Builder: func(context.Context, bool) (*build.Builder, func(), error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.builds++
			b := &build.Builder{Store: f.images, Pip: build.Pip{Command: []string{python}, Environ: os.Environ(), Wheels: f.wheels}}
			b.Run = func(ctx context.Context, _ *sandbox.Spec, code string, out io.Writer) error {
				cmd := exec.CommandContext(ctx, python, "-c", code)
				cmd.Env = append(os.Environ(), "PYTHONPATH=../language/python")
				cmd.Stdout = out
				return cmd.Run()
			}
			if f.edit != nil {
				f.edit(b)
			}
			return b, func() {
				for _, id := range b.Passing {
					if _, err := f.images.Prune(id, func(string) (bool, error) { return false, nil }); err != nil {
						t.Error(err)
					}
				}
			}, nil
		},
	})
	return f
}

// base is enough of a Python to be found.
func (f *fixture) base(ctx context.Context, t *testing.T) (*image.Root, error) {
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skip("no ELF program is here:", err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range []string{"usr/bin/python3.13", "usr/lib/python3.13/os.py", "usr/lib/python3.13/asyncio/__init__.py"} {
		var data []byte
		if strings.HasPrefix(name, "usr/bin/") {
			data = program
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		_, _ = w.Write(data)
	}
	_ = w.Close()
	sum := image.ID(b.Bytes()) // SHA-256, as of any bytes
	config, err := archive.Config([]string{sum}, nil)
	if err != nil {
		return nil, err
	}
	layer := flatten.Layer{Name: "base", Size: int64(b.Len()), DiffID: sum, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }}
	return f.images.Add(ctx, &image.Content{Config: config, Layers: []flatten.Layer{layer}, Passing: true}, nil)
}

// wheel adds a wheel with a module of the package's name, and more files.
func (f *fixture) wheel(t *testing.T, name, version, requires string, more ...[2]string) string {
	t.Helper()
	file := filepath.Join(f.wheels, name+"-"+version+"-py3-none-any.whl")
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	info := name + "-" + version + ".dist-info/"
	for _, m := range append(more, [][2]string{
		{name + "/__init__.py", "version = '" + version + "'\n"},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n" + requires},
		{info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}, {info + "RECORD", ""},
	}...) {
		to, err := w.Create(m[0])
		if err == nil {
			_, err = io.WriteString(to, m[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(file, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

func (f *fixture) tell(stage string, _, _ int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, stage)
}

// TestEnvironment: the life of one: locked and built on first use, found offline,
// stale when its definition changes, locked anew, removed.
func TestEnvironment(t *testing.T) {
	f := open(t, t.TempDir())
	ctx := t.Context()
	f.wheel(t, "top", "1.0", "Requires-Dist: below\n")
	f.wheel(t, "below", "1.0", "")
	d := &Definition{Name: "data", Packages: []build.Requirement{"top"}}
	if _, err := f.Find(d); !errors.Is(err, ErrUnbuilt) {
		t.Fatalf("before: got %v, want %v", err, ErrUnbuilt)
	}
	first, err := f.Ensure(ctx, d, f.tell)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(first.Packages, first.Modules), "[{below 1.0} {top 1.0}] [below top]"; got != want {
		t.Errorf("built: got %s, want %s", got, want)
	}
	if raw, err := f.LockOf(d); err != nil || !strings.Contains(string(raw), `lock-version = "1.0"`) {
		t.Errorf("lock: got %s, %v", raw, err)
	}
	// Offline: neither pip nor the index is needed, and newer versions change nothing.
	f.wheel(t, "top", "2.0", "")
	builds := f.builds
	again, err := f.Ensure(ctx, d, nil)
	if err != nil || again.Image != first.Image || f.builds != builds {
		t.Errorf("again: got %+v, %v and %d builds, want the image %s", again, err, f.builds-builds, first.Image)
	}
	// Another name with the same content shares the image.
	other, err := f.Ensure(ctx, &Definition{Name: "other", Packages: []build.Requirement{"top==1.0", "below"}}, nil)
	if err != nil || other.Image != first.Image {
		t.Errorf("another name: got %+v, %v, want the image %s", other, err, first.Image)
	}
	changed := &Definition{Name: "data", Packages: []build.Requirement{"top>=2"}}
	if _, err := f.Ensure(ctx, changed, nil); !errors.Is(err, ErrLock) || !strings.Contains(err.Error(), "sallyport env lock data") {
		t.Errorf("changed: got %v, want %v with what to do", err, ErrLock)
	}
	if err := f.Lock(ctx, changed, nil); err != nil {
		t.Fatal(err)
	}
	newer, err := f.Ensure(ctx, changed, nil)
	if err != nil || fmt.Sprint(newer.Packages) != "[{top 2.0}]" {
		t.Errorf("locked anew: got %+v, %v, want top 2.0", newer, err)
	}
	// One without a name is found by its ID.
	script, err := f.Ensure(ctx, &Definition{Packages: []build.Requirement{"below"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Get(script.ID); err != nil || got.Image != script.Image {
		t.Errorf("by ID: got %+v, %v, want %+v", got, err, script)
	}
	all, err := f.List()
	if err != nil || len(all) != 3 {
		t.Errorf("got %d environments, %v, want 3", len(all), err)
	}
	var out bytes.Buffer
	if err := f.Export(ctx, newer, &out); err != nil || out.Len() == 0 {
		t.Errorf("export: %d bytes, %v", out.Len(), err)
	}
	for _, b := range all {
		if err := f.Remove(&b, true); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.images.Prune("", func(string) (bool, error) { return false, nil }); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(f.wheels), "images", "roots", "*")); len(left) > 0 {
		t.Errorf("images are left: %q", left)
	}
}

// TestTogether: of two that build one environment, the second waits.
func TestTogether(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	a.wheel(t, "top", "1.0", "")
	d := &Definition{Name: "data", Packages: []build.Requirement{"top"}}
	started, waits := make(chan struct{}), make(chan struct{})
	a.edit = func(*build.Builder) {
		close(started)
		<-waits
	}
	var group sync.WaitGroup
	group.Go(func() {
		if _, err := a.Ensure(t.Context(), d, nil); err != nil {
			t.Error(err)
		}
	})
	<-started // a has the lock
	group.Go(func() {
		if _, err := b.Ensure(t.Context(), d, func(stage string, _, _ int64) {
			b.tell(stage, 0, 0)
			close(waits)
		}); err != nil {
			t.Error(err)
		}
	})
	group.Wait()
	if b.builds != 0 || len(b.said) != 1 || !strings.Contains(b.said[0], "waiting") {
		t.Errorf("got %d builds and %q, want none and that it waits", b.builds, b.said)
	}
}

// TestFailures: each ends with what to do, and the next try works.
func TestFailures(t *testing.T) {
	f := open(t, t.TempDir())
	ctx := t.Context()
	file := f.wheel(t, "top", "1.0", "")
	d := &Definition{Name: "data", Packages: []build.Requirement{"top"}}
	if err := f.Lock(ctx, d, nil); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(slices.Clone(good), 0), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Ensure(ctx, d, nil); err == nil || !strings.Contains(err.Error(), "another hash than the lock") {
		t.Errorf("altered wheel: got %v", err)
	}
	if _, err := f.Ensure(ctx, &Definition{Name: "none", Packages: []build.Requirement{"missing-package"}}, nil); err == nil || !strings.Contains(err.Error(), "missing-package has no wheel for Python") {
		t.Errorf("missing package: got %v", err)
	}
	stopped, stop := context.WithCancelCause(ctx)
	stop(errors.New("interrupted"))
	if _, err := f.Ensure(stopped, d, nil); err == nil {
		t.Error("interrupted: no error")
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := f.Ensure(ctx, d, nil); err != nil || len(b.Packages) != 1 {
		t.Errorf("next try: got %+v, %v", b, err)
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(f.wheels), "images", "scratch", "*"))
	if len(left) > 0 {
		t.Errorf("temporary files are left: %q", left)
	}
}

// TestKilled: after kill -9 in the middle of a build the next try works, and leaves
// nothing of the first.
func TestKilled(t *testing.T) {
	const variable = "ENVIRONMENT_TEST_DIR"
	d := &Definition{Name: "data", Packages: []build.Requirement{"top"}}
	if dir := os.Getenv(variable); dir != "" {
		f := open(t, dir)
		f.edit = func(b *build.Builder) {
			run, runs := b.Run, 0
			b.Run = func(ctx context.Context, spec *sandbox.Spec, code string, out io.Writer) error {
				if runs++; runs == 2 { // the first describes Python, the second compiles
					self, _ := os.FindProcess(os.Getpid())
					_ = self.Kill()
					select {}
				}
				return run(ctx, spec, code, out)
			}
		}
		_, err := f.Ensure(t.Context(), d, nil)
		t.Fatal("not killed:", err)
	}
	dir := t.TempDir()
	f := open(t, dir)
	f.wheel(t, "top", "1.0", "")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), variable+"="+dir)
	if out, err := cmd.CombinedOutput(); err == nil || strings.Contains(string(out), "not killed") {
		t.Fatalf("the child: %v\n%s", err, out)
	}
	if _, err := f.Find(d); !errors.Is(err, ErrUnbuilt) {
		t.Errorf("after the kill: got %v, want %v", err, ErrUnbuilt)
	}
	b, err := f.Ensure(t.Context(), d, nil)
	if err != nil {
		t.Fatal(err)
	}
	roots, _ := filepath.Glob(filepath.Join(dir, "images", "roots", "*"))
	if len(roots) != 1 || !strings.HasSuffix(b.Image, filepath.Base(roots[0])) {
		t.Errorf("got the roots %q, want only %s", roots, b.Image)
	}
}

// FuzzRecord: a record that is taken can be used.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"id":"a","image":"sha256:00","definition":"b"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := decodeRecord(data); err == nil && (r.ID == "" || r.Image+r.Archive == "" || r.Definition == "") {
			t.Errorf("got %+v", r)
		}
	})
}
