package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTryDirectory: a directory that cannot be written is a warning with what to do, and
// one that cannot be trusted stays a problem.
func TestTryDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"runtime": "XDG_RUNTIME_DIR", "cache": "XDG_CACHE_HOME", "state": "stateDir"} {
		d := Directory{Name: name, Path: filepath.Join(file, "none")}
		if d.try(); d.err != nil || d.Problem != "" || !strings.Contains(d.Warning, want) {
			t.Errorf("%s: got problem %q and warning %q, want a warning with %s alone", name, d.Problem, d.Warning, want)
		}
		d = Directory{Name: name, Path: t.TempDir(), Problem: "others", err: errors.New("others")}
		if d.try(); d.err == nil || d.Problem != "others" || d.Warning != "" {
			t.Errorf("%s: got problem %q and warning %q, want the problem alone", name, d.Problem, d.Warning)
		}
	}
}

// TestHomeThatIsNotThere: the warning does not ask for what is set.
func TestHomeThatIsNotThere(t *testing.T) {
	a := &App{Env: Environment{"HOME": filepath.Join(t.TempDir(), "none"), "XDG_RUNTIME_DIR": t.TempDir()}}
	var err error
	if a.Settings, err = a.Env.LoadSettings(t.TempDir(), "", nil); err != nil {
		t.Fatal(err)
	}
	dirs, _ := a.TryDirectories()
	last := dirs[len(dirs)-1]
	if want := "HOME to a directory that exists"; last.Name != "state" || !strings.HasSuffix(last.Warning, want) {
		t.Errorf("got %+v, want a warning that ends with %q", last, want)
	}
}
