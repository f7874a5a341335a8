package guest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sallyport/internal/wire"
)

// TestEmbedded: exactly what lies in the tree is embedded. go:embed forgets
// files of some names silently.
func TestEmbedded(t *testing.T) {
	list := func(fsys fs.FS) (names []string) {
		t.Helper()
		err := fs.WalkDir(fsys, "sallyport_guest", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.Contains(name, "__pycache__") {
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	embedded, tree := list(Files()), list(os.DirFS("."))
	if !slices.Equal(embedded, tree) {
		t.Errorf("embedded %q, in the tree %q", embedded, tree)
	}
	if !slices.Contains(embedded, "sallyport_guest/__init__.py") {
		t.Error("the package's __init__.py is missing")
	}
}

func TestArgvNamesAnEmbeddedFile(t *testing.T) {
	argv := Argv("/usr/bin/python3")
	rel, err := filepath.Rel(Dir, argv[len(argv)-1])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Stat(Files(), filepath.ToSlash(rel)); err != nil {
		t.Error(err)
	}
}

func anyPython(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no python3")
	return ""
}

func TestInstall(t *testing.T) {
	python, cache := anyPython(t), filepath.Join(t.TempDir(), "cache")
	var wg sync.WaitGroup
	dirs, errs := make([]string, 4), make([]error, 4)
	for i := range dirs {
		wg.Go(func() { dirs[i], errs[i] = Install(t.Context(), cache, python) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if d != dirs[0] {
			t.Errorf("two directories: %s and %s", d, dirs[0])
		}
	}
	left, err := os.ReadDir(cache)
	if err != nil || len(left) != 1 {
		t.Errorf("%v in the cache, %v", left, err)
	}
	err = fs.WalkDir(Files(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		want, _ := fs.ReadFile(Files(), name)
		got, err := os.ReadFile(filepath.Join(dirs[0], name))
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what is embedded", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	bundles, err := filepath.Glob(filepath.Join(dirs[0], "sallyport_guest", "bundle.*"))
	if err != nil || len(bundles) != 1 {
		t.Fatal(bundles, err)
	}
	b, err := os.ReadFile(bundles[0])
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte(cache)) || !bytes.Contains(b, []byte(Dir+"/sallyport_guest/session.py")) {
		t.Error("the byte code names where it was made, not where it will be")
	}
	if len(b) > 1<<20 {
		t.Errorf("a bundle of %d bytes: __main__.py reads a megabyte", len(b))
	}
}

func TestInstallWithoutByteCode(t *testing.T) {
	shell, err := exec.LookPath("false")
	if err != nil {
		t.Skip(err)
	}
	dir, err := Install(t.Context(), t.TempDir(), shell)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "sallyport_guest", "init.py")); err != nil {
		t.Error(err)
	}
	if err := Compile(t.Context(), shell, dir); err == nil {
		t.Error("an interpreter that fails is no error")
	}
}

func TestInstallGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cache := t.TempDir()
	if _, err := Install(ctx, cache, anyPython(t)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(cache); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := Install(t.Context(), cache, filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no interpreter is no error")
	}
}

func TestDiedSaysHow(t *testing.T) {
	for want, d := range map[string]*Died{
		"the sandbox is gone":                              {},
		"the interpreter ended with status 3":              died(wire.Exit{Code: 3}),
		"the interpreter was ended by signal 9 (killed)":   died(wire.Exit{Signal: 9}),
		"the sandbox is gone: no such file or directory":   {Diagnostics: "no such file or directory"},
		"the interpreter ended with status 70: Traceback…": {Known: true, Code: 70, Diagnostics: "Traceback…"},
	} {
		if d.Error() != want {
			t.Errorf("%q, want %q", d.Error(), want)
		}
	}
}
