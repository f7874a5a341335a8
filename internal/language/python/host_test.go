//go:build linux && (amd64 || arm64)

package python

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// hostPython returns a real interpreter with its version in its name.
func hostPython(t *testing.T) string {
	t.Helper()
	file, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("these tests need a python3: %v", err)
	}
	p, err := FindInterpreter(context.Background(), file, os.Getenv("PATH"))
	if err != nil {
		t.Fatal(err)
	}
	return p.Executable
}

func TestFindInterpreter(t *testing.T) {
	real := hostPython(t)
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	link := filepath.Join(dir, "python-link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	shim := write("shim", "#!/bin/sh\nexec "+real+" \"$@\"\n", 0o755)
	for _, name := range []string{real, link, shim} {
		p, err := FindInterpreter(context.Background(), name, os.Getenv("PATH"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p.Executable != real {
			t.Errorf("%s: got %s, want %s", name, p.Executable, real)
		}
		if _, err := os.Stat(filepath.Join(p.Library(), "os.py")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	// As Debian's python3-minimal: with os, without asyncio.
	minimal := filepath.Join(dir, "minimal", "bin", filepath.Base(real))
	library := filepath.Join(dir, "minimal", "lib", filepath.Base(real))
	for _, d := range []string{filepath.Dir(minimal), library} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(real)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(minimal, program, 0o755), os.WriteFile(filepath.Join(library, "os.py"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}

	// As Fedora's.
	wide := filepath.Join(dir, "wide", "lib64", filepath.Base(real))
	if err := errors.Join(os.MkdirAll(filepath.Join(wide, "asyncio"), 0o755), os.MkdirAll(filepath.Join(dir, "wide", "bin"), 0o755),
		os.MkdirAll(filepath.Join(dir, "wide", "lib", filepath.Base(real), "site-packages"), 0o755), os.WriteFile(filepath.Join(wide, "os.py"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "wide", "bin", filepath.Base(real)), program, 0o755)); err != nil {
		t.Fatal(err)
	}
	p, err := FindInterpreter(context.Background(), filepath.Join(dir, "wide", "bin", filepath.Base(real)), "")
	if err != nil || p.Library() != wide {
		t.Errorf("a library in lib64: got %+v, %v, want %s", p, err, wide)
	}

	bad := []struct{ name, file, want string }{
		{"minimal", minimal, library + " has no asyncio"},
		{"missing", filepath.Join(dir, "none"), "no such file"},
		{"not executable", write("plain", "", 0o644), "permission denied"},
		{"not a Python", write("false", "#!/bin/sh\necho broken >&2\nexit 3\n", 0o755), "broken"},
		{"talks nonsense", write("nonsense", "#!/bin/sh\necho hello\n", 0o755), "unexpected answer"},
		{"another implementation", write("pypy", "#!/bin/sh\nprintf 'pypy\\n3\\n10\\n/x\\n/y\\n'\n", 0o755), "CPython is needed"},
		{"relative", "./python3", "absolute path"},
		{"not in the path", "python-of-nowhere", "search path"},
	}
	for _, tt := range bad {
		_, err := FindInterpreter(context.Background(), tt.file, dir)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want something with %q", tt.name, err, tt.want)
		}
	}
}

// TestVirtualEnvironment: it is its interpreter, with packages of its own,
// however it is named.
func TestVirtualEnvironment(t *testing.T) {
	real := hostPython(t)
	p, err := FindInterpreter(t.Context(), real, os.Getenv("PATH"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Packages != "" {
		t.Skipf("the host's Python is of a virtual environment: %s", p.Packages)
	}
	venv := filepath.Join(t.TempDir(), "venv")
	packages := filepath.Join(venv, "lib", "python"+p.Version.String(), "site-packages")
	for _, dir := range []string{filepath.Join(venv, "bin"), packages} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	python := filepath.Join(venv, "bin", "python3")
	if err := os.Symlink(real, python); err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(t.TempDir(), "linked")
	if err := os.Symlink(venv, linked); err != nil {
		t.Fatal(err)
	}
	find := func(name, want string) {
		t.Helper()
		got, err := FindInterpreter(t.Context(), name, os.Getenv("PATH"))
		if err != nil {
			t.Fatal(err)
		}
		if got.Executable != p.Executable || got.Prefix != p.Prefix || got.Packages != want {
			t.Errorf("%s: %+v, want packages %q", name, got, want)
		}
	}
	find(python, "") // nothing says that it is one
	if err := os.WriteFile(filepath.Join(venv, "pyvenv.cfg"), []byte("home = /usr/bin\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if resolved, err := filepath.EvalSymlinks(packages); err == nil {
		packages = resolved
	}
	find(python, packages)
	find(filepath.Join(linked, "bin", "python3"), packages)
}

func TestFindInterpreterTooOld(t *testing.T) {
	dir := t.TempDir()
	lib := filepath.Join(dir, "lib", "python3.8")
	if err := os.MkdirAll(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lib, "os.py"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, "python3.8")
	answer := "#!/bin/sh\nprintf 'cpython\\n3\\n8\\n" + old + "\\n" + dir + "\\n'\n"
	if err := os.WriteFile(old, []byte(answer), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := FindInterpreter(context.Background(), old, "")
	if err == nil || !strings.Contains(err.Error(), "3.9 or newer") {
		t.Errorf("got %v", err)
	}
}

// A relative entry of the search path would let the current folder choose
// what is run on the host.
func TestSearchPathIgnoresRelativeEntries(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("python3", []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{".", "", ":."} {
		if file, err := LookPath("python3", path); err == nil {
			t.Errorf("path %q found %s", path, file)
		}
	}
	if _, err := LookPath("python3", dir); err != nil { // the control
		t.Error(err)
	}
}

// TestRuntimePackages: an environment's packages take the place of the
// interpreter's own, where the interpreter looks first.
func TestRuntimePackages(t *testing.T) {
	for _, tt := range []struct {
		prefix, packages string
		at, show         string
	}{
		{"/opt/x", "/venv", "/opt/x/lib/python3.12/site-packages", ""},
		{"/opt/x", "", "", ""},
		{"/usr", "", "", "/usr/local/lib/python3.12/dist-packages"},
	} {
		p := &Interpreter{Executable: tt.prefix + "/bin/python3.12", Prefix: tt.prefix, Version: Version{3, 12}, Packages: tt.packages}
		r := p.runtime()
		want := map[string]string{}
		if tt.at != "" {
			want[tt.at] = tt.packages
		}
		if !maps.Equal(r.Replace, want) || strings.Join(r.Show, " ") != tt.show {
			t.Errorf("%+v: got %v and %v, want %v and %q", tt, r.Replace, r.Show, want, tt.show)
		}
	}
	p := &Interpreter{Executable: "/usr/bin/python3.12", Prefix: "/usr", Version: Version{3, 12}, Packages: "/venv"}
	for at := range p.runtime().Replace {
		if !strings.Contains(at, "/python3.12/") || len(p.runtime().Show) != 0 {
			t.Errorf("a virtual environment of /usr: its packages are at %s, and shown is %v", at, p.runtime().Show)
		}
	}
}
