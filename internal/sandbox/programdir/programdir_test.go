package programdir

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
)

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
	interpreter, cache := anyPython(t), filepath.Join(t.TempDir(), "cache")
	var wg sync.WaitGroup
	dirs, errs := make([]string, 4), make([]error, 4)
	for i := range dirs {
		wg.Go(func() { dirs[i], errs[i] = Install(t.Context(), cache, python.Program(), interpreter) })
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
	err = fs.WalkDir(python.Files(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		want, _ := fs.ReadFile(python.Files(), name)
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
	if bytes.Contains(b, []byte(cache)) || !bytes.Contains(b, []byte(sandbox.ProgramDir+"/sallyport_guest/session.py")) {
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
	dir, err := Install(t.Context(), t.TempDir(), python.Program(), shell)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "sallyport_guest", "init.py")); err != nil {
		t.Error(err)
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "sallyport_guest", "bundle.*")); len(found) > 0 {
		t.Errorf("got %v, want no byte code", found)
	}
}

func TestInstallGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cache := t.TempDir()
	if _, err := Install(ctx, cache, python.Program(), anyPython(t)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(cache); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := Install(t.Context(), cache, python.Program(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no interpreter is no error")
	}
}

// TestCompiledName: what an interpreter answers names one file beside the
// program's own, whatever it answers.
func TestCompiledName(t *testing.T) {
	p := &sandbox.Program{
		Files: fstest.MapFS{"d/a.txt": {Data: []byte("a")}}, Argv: []string{"x"},
		Compile: []string{"x"}, Compiled: "d/out.",
	}
	for answer, want := range map[string]string{
		"tag-1\ndata\n": "d/out.tag-1", "../../up\ndata": "", "/etc\ndata": "", "\ndata": "", "a.b\ndata": "", "no newline": "", "": "",
	} {
		dir, err := InstallFor(t.Context(), t.TempDir(), p, "key", func(string) ([]byte, error) { return []byte(answer), nil })
		if err != nil {
			t.Errorf("%q: %v", answer, err)
			continue
		}
		var got []string
		_ = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && name != "d/a.txt" {
				got = append(got, name)
			}
			return err
		})
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got %q, want %q", answer, got, want)
		}
	}
}
