package environment

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/sallyport/sallyport/internal/image/build"
	"github.com/sallyport/sallyport/internal/sandbox"
)

// openPure is open for an engine that takes archives. Its sandboxes are this machine's
// Python, which says that it is another, with the packages of the archive.
func openPure(t *testing.T, dir string) *fixture {
	f := open(t, dir)
	f.Store.config.Pure = &Pure{Used: func() bool { return true }, Default: func(python string) bool { return python == "host" }}
	library := t.TempDir()
	f.edit = func(b *build.Builder) {
		described := strings.NewReplacer("[3,12,1]", "[3,13,5]", "cpython-312", "cpython-313", `"glibc","libc_version":[2,36]`, `"wasi","libc_version":[0,0]`,
			`"purelib":"/x"`, `"purelib":"`+library+`"`, "3.12", "3.13").Replace(described)
		b.Run = func(ctx context.Context, spec *sandbox.Spec, code string, out io.Writer) error {
			if spec.Root.Packages == "" {
				_, err := io.WriteString(out, described)
				return err
			}
			for name, data := range contents(t, spec.Root.Packages) {
				if err := os.MkdirAll(filepath.Join(library, filepath.Dir(name)), 0o700); err != nil {
					return err
				}
				at := time.Unix(1e9, 0) // which byte code records
				if err := errors.Join(os.WriteFile(filepath.Join(library, name), data, 0o600), os.Chtimes(filepath.Join(library, name), at, at)); err != nil {
					return err
				}
			}
			cmd := exec.CommandContext(ctx, b.Pip.Command[0], "-c", code)
			cmd.Stdout = out
			return cmd.Run()
		}
	}
	return f
}

// contents returns the files of an archive.
func contents(t *testing.T, archive string) map[string][]byte {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPure: the life of an environment that is an archive.
func TestPure(t *testing.T) {
	f := openPure(t, t.TempDir())
	ctx := t.Context()
	f.wheel(t, "top", "1.0", "Requires-Dist: below\n")
	f.wheel(t, "below", "1.0", "")
	d := &Definition{Name: "data", Python: "host", Packages: []build.Requirement{"top"}}
	first, err := f.Ensure(ctx, d, f.tell)
	if err != nil {
		t.Fatal(err)
	}
	if first.Image != "" || first.Python != "3.13.5" || !slices.Equal(first.Modules, []string{"below", "top"}) {
		t.Errorf("got %+v, want an archive for Python 3.13.5 with below and top", first)
	}
	byteCode := 0
	files := contents(t, f.Archive(first))
	for name := range files {
		if strings.HasPrefix(name, "top/__pycache__/__init__.") {
			byteCode++
		}
	}
	if string(files["below/__init__.py"]) != "version = '1.0'\n" || byteCode != 1 {
		t.Errorf("got %d files, %d with byte code of top, want the packages with theirs", len(files), byteCode)
	}
	if raw, err := f.LockOf(d); err != nil || !strings.Contains(string(raw), `platform = "wasm32 wasi"`) {
		t.Errorf("lock: got %s, %v", raw, err)
	}
	builds := f.builds
	if again, err := f.Ensure(ctx, d, nil); err != nil || again.Archive != first.Archive || f.builds != builds {
		t.Errorf("again: got %+v, %v, want the archive without a build", again, err)
	}
	script, err := f.Ensure(ctx, &Definition{Packages: []build.Requirement{"top"}}, nil)
	if err != nil || script.Archive != first.Archive {
		t.Errorf("of a script with the same packages: got %+v, %v, want the archive %s", script, err, first.Archive)
	}
	// What was built for another engine under the name is another environment.
	f.config.Pure.Used = func() bool { return false }
	if other, err := f.Find(d); !errors.Is(err, ErrUnbuilt) {
		t.Errorf("for another engine: got %+v, %v, want %v", other, err, ErrUnbuilt)
	}
	if other, err := f.Get(script.ID); !errors.Is(err, ErrUnbuilt) {
		t.Errorf("a script's for another engine: got %+v, %v, want %v", other, err, ErrUnbuilt)
	}
	f.config.Pure.Used = func() bool { return true }
	if own, err := f.Get(script.ID); err != nil || own.Archive != script.Archive {
		t.Errorf("a script's: got %+v, %v, want the archive %s", own, err, script.Archive)
	}
	release, ok := f.hold(first.Archive)
	if !ok {
		t.Fatal("the archive cannot be held")
	}
	if gone, err := f.discard(archiveFile(first.Archive)); gone || err != nil {
		t.Errorf("while it is held: got %v, %v, want that it stays", gone, err)
	}
	release()
	if _, ok := f.hold(strings.Repeat("0", 64)); ok {
		t.Error("an archive that is not there is held")
	}

	if err := f.Remove(first, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Find(d); !errors.Is(err, ErrUnbuilt) {
		t.Errorf("removed: got %v, want %v", err, ErrUnbuilt)
	}
	kept := func(why string) {
		t.Helper()
		if freed, err := f.Sweep(first.Archive); freed != 0 || err != nil {
			t.Errorf("%s: got %d bytes free, %v, want that the archive stays", why, freed, err)
		}
	}
	kept("another environment has it")
	if err := f.Remove(script, true); err != nil {
		t.Fatal(err)
	}
	f.config.Pure.Needed = func(digest string) (bool, error) { return digest == first.Archive, nil }
	kept("a suspended session needs it")
	f.config.Pure.Needed = nil
	inUse := flock.New(f.Archive(first))
	if err := inUse.RLock(); err != nil {
		t.Fatal(err)
	}
	kept("an engine has it open")
	if err := inUse.Close(); err != nil {
		t.Fatal(err)
	}
	if freed, err := f.Sweep(""); freed != 0 || err != nil {
		t.Errorf("of another: got %d bytes free, %v, want that the archive stays", freed, err)
	}
	if freed, err := f.Sweep(first.Archive); freed != first.Bytes || err != nil {
		t.Errorf("got %d bytes free, %v, want %d", freed, err, first.Bytes)
	}
	if again, err := f.Ensure(ctx, d, nil); err != nil || again.Archive != first.Archive {
		t.Errorf("built from its lock: got %+v, %v, want the same archive", again, err)
	}
}

// TestPureOfAnyWheel: byte code that a wheel brings is not installed, since the
// environment has its own, and what cannot start is not recorded.
func TestPureOfAnyWheel(t *testing.T) {
	f := openPure(t, t.TempDir())
	inner := f.edit
	broken := errors.New("it does not start")
	var tried []string
	fails := false
	f.edit = func(b *build.Builder) {
		inner(b)
		run := b.Run
		b.Run = func(ctx context.Context, spec *sandbox.Spec, code string, out io.Writer) error {
			if spec.Root.Packages != "" {
				tried = append(tried, spec.Root.PackagesDigest())
				if fails && len(tried) == 2 {
					return broken
				}
			}
			return run(ctx, spec, code, out)
		}
	}
	f.wheel(t, "top", "1.0", "", [2]string{"top/__pycache__/__init__.cpython-313.pyc", "no byte code"}, [2]string{"top/a/__pycache__", "a file"})
	d := &Definition{Packages: []build.Requirement{"top"}}
	fails = true
	if _, err := f.Ensure(t.Context(), d, nil); !errors.Is(err, broken) {
		t.Errorf("what does not start: got %v, want %v", err, broken)
	}
	if all, err := f.List(); len(all) != 0 || err != nil {
		t.Errorf("what does not start: got the records %v, %v, want none", all, err)
	}
	tried, fails = nil, false
	built, err := f.Ensure(t.Context(), d, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(tried) != 2 || tried[1] != built.Archive {
		t.Errorf("started with %v, want the sources and then %s", tried, built.Archive)
	}
	for name, data := range contents(t, f.Archive(built)) {
		if string(data) == "no byte code" || string(data) == "a file" {
			t.Errorf("%s is installed", name)
		}
	}
}

// TestUnfit: what the engine cannot have is refused, and the error says which can.
func TestUnfit(t *testing.T) {
	f := openPure(t, t.TempDir())
	good, err := os.ReadFile(f.wheel(t, "top", "1.0", ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"native-1.0-cp313-cp313-manylinux_2_17_x86_64.whl", "source-1.0.tar.gz"} {
		if err := os.WriteFile(filepath.Join(f.wheels, name), good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.wheel(t, "needs", "1.0", "Requires-Dist: native\n")
	for want, d := range map[string]*Definition{
		"native has no wheel":         {Packages: []build.Requirement{"native"}},
		"source has no wheel":         {Packages: []build.Requirement{"source"}},
		"No matching distribution":    {Packages: []build.Requirement{"needs"}},
		"runs no images":              {Name: "a", Image: "python"},
		"environment b does not suit": {Name: "b", Python: "3.12"},
		"has Python 3.13 alone":       {RequiresPython: ">=3.14"},
	} {
		_, err := f.Ensure(t.Context(), d, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "gvisor, podman or docker") {
			t.Errorf("got %v, want %q and where to get it", err, want)
		}
		if got, want := errors.Is(err, ErrUnfit), d.Name != ""; got != want {
			t.Errorf("%v: got ErrUnfit %v, want %v", err, got, want)
		}
	}
	if _, err := f.Ensure(t.Context(), &Definition{Name: "c", Python: "3.13", Packages: []build.Requirement{"top"}}, nil); err != nil {
		t.Errorf("the Python that it has: %v", err)
	}
}
