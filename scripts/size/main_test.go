package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestOwner(t *testing.T) {
	modules := []string{"example.com/main", "example.com/a", "example.com/a/b", "gopkg.in/yaml.v3"}
	for pkg, want := range map[string]string{
		"main": "example.com/main", "example.com/a/c": "example.com/a", "example.com/a/b/c": "example.com/a/b",
		"example.com/ab": standard, "gopkg.in/yaml%2ev3": "gopkg.in/yaml.v3", "net/http": standard,
	} {
		if got := owner(pkg, modules); got != want {
			t.Errorf("%s: got %s, want %s", pkg, got, want)
		}
	}
}

// TestMeasure: symbols do not count, and a budget below the size fails.
func TestMeasure(t *testing.T) {
	var both []*sizes
	for _, flags := range []string{"", "-s -w"} {
		name := filepath.Join(t.TempDir(), "program")
		build := exec.Command("go", "build", "-trimpath", "-ldflags", flags, "-o", name, ".")
		build.Env = append(build.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		s, err := measure(name)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, s)
	}
	full, stripped := both[0], both[1]
	if d := full.total - stripped.total; d < -20_000 || d > 20_000 {
		t.Errorf("got %d bytes without symbols and %d stripped, want about the same", full.total, stripped.total)
	}
	if got := stripped.modules[standard].code; got < 500_000 || got > stripped.total {
		t.Errorf("the standard library: got %d bytes of code, want some of %d", got, stripped.total)
	}
	if got := stripped.modules["github.com/sallyport/sallyport"]; got == nil || got.code == 0 {
		t.Errorf("this program's own module: got %v, want some code", got)
	}
	if err := stripped.check(1000); err != nil {
		t.Errorf("within its budget: got %v", err)
	}
	if err := stripped.check(0.5); err == nil || !strings.Contains(err.Error(), "may have") {
		t.Errorf("above its budget: got %v, want an error", err)
	}
}
