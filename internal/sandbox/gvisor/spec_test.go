//go:build linux && (amd64 || arm64)

package gvisor

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/language/python"
	"github.com/sallyport/sallyport/internal/sandbox"
)

func TestSpecIsChecked(t *testing.T) {
	dir := t.TempDir()
	b, err := New(Options{Program: python.Program(), RuntimeDir: filepath.Join(dir, "run"), CacheDir: filepath.Join(dir, "cache")})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	file := func(path string) []sandbox.File { return []sandbox.File{{Path: path}} }
	tests := []struct {
		name string
		spec *sandbox.Spec
		want error
	}{
		{"nil", nil, sandbox.ErrInvalidSpec},
		{"no ID", &sandbox.Spec{}, sandbox.ErrInvalidSpec},
		{"ID with a slash", &sandbox.Spec{ID: "a/b"}, sandbox.ErrInvalidSpec},
		{"ID too long", &sandbox.Spec{ID: strings.Repeat("a", 64)}, sandbox.ErrInvalidSpec},
		{"two roots", &sandbox.Spec{ID: "a", Root: sandbox.Root{Interpreter: "/usr/bin/python3", Image: "x"}}, sandbox.ErrInvalidSpec},
		{"no program", &sandbox.Spec{ID: "a"}, sandbox.ErrInvalidSpec},
		{"image", &sandbox.Spec{ID: "a", Program: python.Program(), Root: sandbox.Root{Image: "x"}}, sandbox.ErrUnsupported},
		{"relative interpreter", &sandbox.Spec{ID: "a", Root: sandbox.Root{Interpreter: "python3"}}, sandbox.ErrInvalidSpec},
		{"network", &sandbox.Spec{ID: "a", Program: python.Program(), Network: sandbox.Network{Internet: true}}, sandbox.ErrUnsupported},
		{"negative limit", &sandbox.Spec{ID: "a", Limits: sandbox.Limits{Processes: -1}}, sandbox.ErrInvalidSpec},
		{"environment", &sandbox.Spec{ID: "a", Env: map[string]string{"A=B": "c"}}, sandbox.ErrInvalidSpec},
		{"file above", &sandbox.Spec{ID: "a", Files: file("../x")}, sandbox.ErrInvalidSpec},
		{"file absolute", &sandbox.Spec{ID: "a", Files: file("/etc/x")}, sandbox.ErrInvalidSpec},
		{"file not clean", &sandbox.Spec{ID: "a", Files: file("a/../b")}, sandbox.ErrInvalidSpec},
		{"file twice", &sandbox.Spec{ID: "a", Files: append(file("a"), file("a")...)}, sandbox.ErrInvalidSpec},
		{"file below a file", &sandbox.Spec{ID: "a", Files: append(file("a"), file("a/b/c")...)}, sandbox.ErrInvalidSpec},
		{"file above a file", &sandbox.Spec{ID: "a", Files: append(file("a/b/c"), file("a")...)}, sandbox.ErrInvalidSpec},
		{"file is the directory", &sandbox.Spec{ID: "a", Files: file(".")}, sandbox.ErrInvalidSpec},
	}
	for _, tt := range tests {
		r, err := b.Start(context.Background(), tt.spec)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if r != nil {
			t.Errorf("%s: a run was returned", tt.name)
		}
	}
	if exists(b.opts.RuntimeDir) {
		t.Error("a refused spec touched the host")
	}
}
