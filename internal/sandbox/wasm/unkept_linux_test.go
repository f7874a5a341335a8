//go:build linux && (amd64 || arm64)

package wasm

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/control"
)

// counted returns an engine and how many processes it has started.
func counted(t *testing.T, dir string) (*Engine, *atomic.Int64) {
	t.Helper()
	e, n := newEngine(t, dir), &atomic.Int64{}
	e.opts.Progress = func(p Progress) {
		if p.Done { // each child of the fake says that it compiles
			n.Add(1)
		}
	}
	return e, n
}

// TestUnkept: code runs where nothing can be kept, and the log says so once.
func TestUnkept(t *testing.T) {
	write := func(t *testing.T, name string) {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name      string
		dir       func(t *testing.T, dir, seal string) string
		processes int64
		says      string
	}{
		{"no directory", func(t *testing.T, dir, _ string) string {
			write(t, filepath.Join(dir, "file"))
			return filepath.Join(dir, "file", "cache")
		}, 1, "not a directory"},
		{"no room for code", func(t *testing.T, dir, _ string) string {
			write(t, filepath.Join(dir, "full"))
			return dir
		}, 1, "no space left"},
		{"no room for the image", func(t *testing.T, dir, seal string) string {
			// In place of a full disk: the seal cannot be put there.
			if err := os.MkdirAll(filepath.Join(dir, seal, "x"), 0o700); err != nil {
				t.Fatal(err)
			}
			return dir
		}, 2, "rename"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			one := newEngine(t, dir)
			image, err := one.imageName(program("hello"))
			if err != nil {
				t.Fatal(err)
			}
			seal, err := one.images.sealFile(image)
			if err != nil {
				t.Fatal(err)
			}
			e, processes := counted(t, tt.dir(t, dir, seal))
			var log bytes.Buffer
			e.log = slog.New(slog.NewTextHandler(&log, nil))
			run := func(id string) conversation {
				c := start(t, e, spec(id))
				c.say(t, "image")
				c.hear(t, `image of hello ["{interpreter}" "main.py" "single"]`)
				return c
			}
			first := run("one")
			run("two")
			if got := processes.Load(); got != tt.processes {
				t.Errorf("two sessions: got %d processes, want %d", got, tt.processes)
			}
			if !e.Prepared(program("hello")) {
				t.Error("it is not prepared while sessions run")
			}
			first.say(t, "crash")
			if exit := first.exit(t); exit.Reason != sandbox.EngineDied {
				t.Errorf("after a crash: got %+v, want EngineDied", exit)
			}
			if e.Prepared(program("hello")) {
				t.Error("it is prepared after a crash")
			}
			run("three")
			if got := log.String(); strings.Count(got, "cannot be kept") != 1 || !strings.Contains(got, tt.says) {
				t.Errorf("the log is %q, want that it says once that nothing is kept, and %q", got, tt.says)
			}
		})
	}
}

// TestOneMakes: of engines that start at one time, one makes the image.
func TestOneMakes(t *testing.T) {
	dir := t.TempDir()
	var engines [3]*Engine
	var counts [3]*atomic.Int64
	for i := range engines {
		engines[i], counts[i] = counted(t, dir)
	}
	failed := make(chan error)
	for _, e := range engines {
		go func() { failed <- e.Prepare(t.Context(), program("hello")) }()
	}
	for range engines {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	var all int64
	for _, n := range counts {
		all += n.Load()
	}
	if want := int64(len(engines) + 1); all != want {
		t.Errorf("got %d processes, want %d: one of them makes the image", all, want)
	}
}

// TestTooLarge: a request that is too large fails, and nothing else does.
func TestTooLarge(t *testing.T) {
	e := newEngine(t, t.TempDir())
	large := spec("large")
	large.Files = []sandbox.File{{Path: "a", Data: make([]byte, 16<<20)}}
	c := start(t, e, large)
	_, err := c.child.do(t.Context(), control.Request{Op: control.OpPut, Path: strings.Repeat("x", control.MaxRequest)})
	if !errors.Is(err, control.ErrTooLarge) {
		t.Errorf("got %v, want %v", err, control.ErrTooLarge)
	}
	c.say(t, "x")
	c.hear(t, "echo x")
}
