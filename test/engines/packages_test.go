//go:build linux

package engines

import (
	"archive/zip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox/sandboxtest"
)

// demoWheel are the files of a wheel with a module, data and a program.
var demoWheel = map[string]string{
	"demo/__init__.py":                    "from importlib.resources import files\nvalue = int(files(__name__).joinpath('data.txt').read_text())\ndef main(): print('demo ran:', value)\n",
	"demo/data.txt":                       "42\n",
	"demo-1.0.dist-info/METADATA":         "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
	"demo-1.0.dist-info/WHEEL":            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	"demo-1.0.dist-info/entry_points.txt": "[console_scripts]\ndemo-program = demo:main\n",
	"demo-1.0.dist-info/RECORD":           "",
}

// usesDemo prints what code in an environment sees of it. HOST is the home of who
// made it.
const usesDemo = `
import demo, os, subprocess, sys
print(demo.value)
print(subprocess.run(["demo-program"], capture_output=True, text=True).stdout.strip())
try:
    open(demo.__file__, "a")
except OSError as e:
    print("cannot be changed:", type(e).__name__ in ("OSError", "PermissionError"))
print("of the host:", [x for x in [*sys.path, *os.environ.values(), demo.__file__] if "HOST" in x], os.path.exists("HOST"))
`

// packages builds an image with a package on the engine that the environment
// names, and runs code in it, by the image's ID in Sallyport's own store.
func packages(t *testing.T, name string, env ...string) {
	t.Helper()
	bin := os.Getenv(binaryEnv)
	switch {
	case bin == "":
		sandboxtest.Skip(t, name+".packages", binaryEnv+" is not set")
	case who() == "user":
		sandboxtest.Skip(t, name+".packages", "the pip that it needs is root's")
	}
	home, wheels := t.TempDir(), t.TempDir()
	f, err := os.Create(filepath.Join(wheels, "demo-1.0-py3-none-any.whl"))
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	for name, content := range demoWheel {
		m, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(m, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	sallyport := func(more []string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), bin, args...)
		cmd.Dir = home
		cmd.Env = append(append([]string{
			"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8",
			"XDG_RUNTIME_DIR=" + filepath.Join(home, "run"), "XDG_CACHE_HOME=" + filepath.Join(home, "cache"),
		}, env...), more...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, errs.String())
		}
		return string(out)
	}
	var built struct{ Images []struct{ ID string } }
	out := sallyport(nil, "image", "build", "--json", "--base", "host", "-p", "demo", "--wheels", wheels, "-t", "demo")
	if err := json.Unmarshal([]byte(out), &built); err != nil || len(built.Images) != 1 {
		t.Fatalf("got %v, %q, want one image", err, out)
	}
	want := "42\ndemo ran: 42\ncannot be changed: True\nof the host: [] False\n"
	for range 2 {
		if got := sallyport([]string{"SALLYPORT_IMAGE=" + built.Images[0].ID}, "run", "-c", strings.ReplaceAll(usesDemo, "HOST", home)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
