//go:build linux && (amd64 || arm64)

package hostroot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// makePrefix lays out an interpreter's prefix with something secret beside it.
func makePrefix(t *testing.T, dir string) *Interpreter {
	t.Helper()
	for _, d := range []string{"bin", "lib/python3.12", "share/keyrings"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("lib", filepath.Join(dir, "lib64")); err != nil {
		t.Fatal(err)
	}
	return &Interpreter{Executable: filepath.Join(dir, "bin", "python3.12"), Prefix: dir, Version: Version{3, 12}}
}

func TestHostRootfsShowsNothingPrivate(t *testing.T) {
	home := t.TempDir()
	p := makePrefix(t, filepath.Join(home, ".local"))
	guestDir := t.TempDir()
	fsys, python, env, err := Plan(p, home, guestDir, "/opt/sallyport")
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
	for prefix, want := range map[string]string{
		filepath.Join(home, ".pyenv"): "/opt/python/lib/python3.12/site-packages",
		"/opt/somewhere-else":         "/opt/somewhere-else/lib/python3.12/site-packages",
		"/usr":                        "/python3.12/",
	} {
		p := &Interpreter{Executable: filepath.Join(prefix, "bin/python3.12"), Prefix: prefix, Version: Version{3, 12},
			Packages: filepath.Join(home, "venv/lib/python3.12/site-packages")}
		if prefix != "/usr" && strings.HasPrefix(prefix, home) {
			p = makePrefix(t, prefix)
			p.Packages = filepath.Join(home, "venv/lib/python3.12/site-packages")
		}
		fsys, _, _, err := Plan(p, home, t.TempDir(), "/opt/sallyport")
		if err != nil {
			t.Fatal(err)
		}
		shown := 0
		for i, b := range fsys.Binds {
			if !strings.HasPrefix(b.Source, filepath.Join(home, "venv")) {
				continue
			}
			shown++
			if b.Source != p.Packages || !strings.Contains(b.Target, want) {
				t.Errorf("%s: %s is shown as %s", prefix, b.Source, b.Target)
			}
			for _, later := range fsys.Binds[i+1:] {
				if strings.HasPrefix(b.Target, later.Target+"/") {
					t.Errorf("%s: %s hides it", prefix, later.Target)
				}
			}
		}
		if shown != 1 {
			t.Errorf("%s: shown %d times", prefix, shown)
		}
	}
}

func TestHostRootfsRefusesHomeAsPrefix(t *testing.T) {
	home := t.TempDir()
	p := makePrefix(t, home)
	if _, _, _, err := Plan(p, home, t.TempDir(), "/opt/sallyport"); err == nil {
		t.Error("the whole home directory would be a prefix")
	}
}
