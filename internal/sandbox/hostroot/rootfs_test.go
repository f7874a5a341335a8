//go:build linux && (amd64 || arm64)

package hostroot

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// makePrefix lays out an interpreter's prefix with something secret beside it.
func makePrefix(t *testing.T, dir string) *sandbox.Runtime {
	t.Helper()
	for _, d := range []string{"bin", "lib/python3.12", "share/keyrings"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("lib", filepath.Join(dir, "lib64")); err != nil {
		t.Fatal(err)
	}
	return &sandbox.Runtime{Executable: filepath.Join(dir, "bin", "python3.12"), Prefix: dir, Version: "3.12", Private: "/opt/python"}
}

func TestHostRootfsShowsNothingPrivate(t *testing.T) {
	home := t.TempDir()
	p := makePrefix(t, filepath.Join(home, ".local"))
	guestDir := t.TempDir()
	fsys, python, env, err := Plan(p, home, guestDir)
	if err != nil {
		t.Fatal(err)
	}
	if python != "/opt/python/bin/python3.12" {
		t.Errorf("python is %s", python)
	}
	if len(env) != 1 || env[0] != "LD_LIBRARY_PATH=/opt/python/lib" {
		t.Errorf("env is %v", env)
	}
	if fsys.Links["/opt/python/lib64"] != "lib" {
		t.Errorf("links are %v", fsys.Links)
	}
	allowed := map[string]string{
		filepath.Join(p.Prefix, "bin"): "/opt/python/bin",
		filepath.Join(p.Prefix, "lib"): "/opt/python/lib",
		guestDir:                       "/opt/sallyport",
	}
	for _, b := range fsys.Binds {
		if target, ok := allowed[b.Source]; ok {
			if b.Target != target {
				t.Errorf("%s is shown as %s", b.Source, b.Target)
			}
			delete(allowed, b.Source)
			continue
		}
		if private(b.Source, home) || b.Source == "/" || b.Source == "/etc" || b.Source == "/usr" || b.Source == "/run" {
			t.Errorf("%s is shown as %s", b.Source, b.Target)
		}
		if strings.HasPrefix(b.Source, "/etc/") && (strings.Contains(b.Source, "shadow") || strings.Contains(b.Source, "private")) {
			t.Errorf("%s is shown", b.Source)
		}
	}
	if len(allowed) > 0 {
		t.Errorf("not shown: %v", allowed)
	}
	if strings.Contains(string(fsys.Files["/etc/passwd"].Data), "/home") {
		t.Error("the host's users are shown")
	}
}

// TestHostRootfsShowsAnEnvironmentsPackages: where the interpreter looks for
// its own, and after the folder that they lie in; nothing else of it.
func TestHostRootfsShowsAnEnvironmentsPackages(t *testing.T) {
	home := t.TempDir()
	venv := filepath.Join(home, "venv/lib/python3.12/site-packages")
	own := makePrefix(t, filepath.Join(home, ".pyenv"))
	for _, tt := range []struct {
		r             *sandbox.Runtime
		replace, want string
	}{
		{own, filepath.Join(own.Prefix, "lib/python3.12/site-packages"), "/opt/python/lib/python3.12/site-packages"},
		{&sandbox.Runtime{Executable: "/opt/else/bin/python3", Prefix: "/opt/else"}, "/opt/else/lib/python3.12/site-packages", "/opt/else/lib/python3.12/site-packages"},
		{&sandbox.Runtime{Executable: "/usr/bin/python3", Prefix: "/usr"}, "/usr/local/lib/python3.12/dist-packages", "/usr/local/lib/python3.12/dist-packages"},
	} {
		tt.r.Replace = map[string]string{tt.replace: venv}
		fsys, _, _, err := Plan(tt.r, home, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		shown := 0
		for i, b := range fsys.Binds {
			if !strings.HasPrefix(b.Source, filepath.Join(home, "venv")) {
				continue
			}
			shown++
			if b.Source != venv || b.Target != tt.want {
				t.Errorf("%s: %s is shown as %s, want %s", tt.r.Prefix, b.Source, b.Target, tt.want)
			}
			for _, later := range fsys.Binds[i+1:] {
				if strings.HasPrefix(b.Target, later.Target+"/") {
					t.Errorf("%s: %s hides it", tt.r.Prefix, later.Target)
				}
			}
		}
		if shown != 1 {
			t.Errorf("%s: shown %d times, want 1", tt.r.Prefix, shown)
		}
	}
}

func TestHostRootfsRefusesHomeAsPrefix(t *testing.T) {
	home := t.TempDir()
	p := makePrefix(t, home)
	if _, _, _, err := Plan(p, home, t.TempDir()); err == nil {
		t.Error("the whole home directory would be a prefix")
	}
}

// TestPlanOutsideThePrefix: a prefix among a user's files moves, and what lies
// outside it would be shown under its own name.
func TestPlanOutsideThePrefix(t *testing.T) {
	home := t.TempDir()
	for name, change := range map[string]func(*sandbox.Runtime){
		"executable": func(r *sandbox.Runtime) { r.Executable = filepath.Join(home, "bin/python3") },
		"replaced":   func(r *sandbox.Runtime) { r.Replace = map[string]string{filepath.Join(home, "x"): home} },
		"no place":   func(r *sandbox.Runtime) { r.Private = "" },
	} {
		r := makePrefix(t, filepath.Join(t.TempDir(), "p"))
		if _, _, _, err := Plan(r, home, t.TempDir()); err != nil {
			t.Fatalf("the control: %v", err)
		}
		change(r)
		if _, _, _, err := Plan(r, home, t.TempDir()); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// TestFinder: the default interpreter is looked for once for each program.
func TestFinder(t *testing.T) {
	var asked []string
	find := func(_ context.Context, name, path string) (*sandbox.Runtime, error) {
		asked = append(asked, name+" in "+path)
		return &sandbox.Runtime{Executable: "/x/" + name, Version: "1"}, nil
	}
	one, two := &sandbox.Program{Interpreter: "one", Find: find}, &sandbox.Program{Interpreter: "two", Find: find}
	f := Finder{Path: "/bin"}
	for _, step := range []struct {
		p    *sandbox.Program
		name string
	}{{one, ""}, {one, ""}, {two, ""}, {one, "/own"}} {
		if _, err := f.Find(t.Context(), step.p, step.name); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := strings.Join(asked, ", "), "one in /bin, two in /bin, /own in /bin"; got != want {
		t.Errorf("asked for %q, want %q", got, want)
	}
	var report sandbox.Report
	f.Describe(t.Context(), one, &report)
	if report.Runtime != "/x/one (1)" || len(report.Findings) != 0 {
		t.Errorf("got %q, %v", report.Runtime, report.Findings)
	}
	f.Describe(t.Context(), &sandbox.Program{Language: "Lisp", Install: "install it"}, &report)
	if len(report.Findings) != 1 || !report.Findings[0].Fatal || report.Findings[0].Title != "no usable Lisp on this host" || report.Findings[0].Remedy != "install it" {
		t.Errorf("got %+v", report.Findings)
	}
}
