//go:build linux && (amd64 || arm64)

package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
)

// archived writes what stands for an archive, under its digest.
func archived(t *testing.T, content string) (path, digest string) {
	t.Helper()
	sum := sha256.Sum256([]byte(content))
	digest = hex.EncodeToString(sum[:])
	path = filepath.Join(t.TempDir(), digest+sandbox.PackagesExt)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, digest
}

// TestPackages: a session gets the archive that its spec names, if that is what it was,
// and a later one gets it too, also from a snapshot and when the file is gone.
func TestPackages(t *testing.T) {
	e := newEngine(t, t.TempDir())
	path, digest := archived(t, "some packages")
	with := func(id, path string) *sandbox.Spec {
		s := spec(id)
		s.Root.Packages = path
		return s
	}
	want := digest[:8] + " some packages"
	c := start(t, e, with("one", path))
	c.say(t, "packages")
	c.hear(t, want)
	dir := t.TempDir()
	if err := c.Snapshot(t.Context(), dir, false); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	c = start(t, e, with("two", path))
	c.say(t, "packages")
	c.hear(t, want)
	f, err := os.Open(filepath.Join(dir, snapshotName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := e.Restore(t.Context(), with("three", path), sandbox.Image{Files: []*os.File{f}})
	c = converse(t, r, err)
	c.say(t, "packages")
	c.hear(t, want)

	bound := func(path string) string {
		text, err := e.Binding(t.Context(), with("one", path))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if plain, got := bound(""), bound(path); got != plain+"\npackages: "+digest {
		t.Errorf("got the binding %q, want %q and the packages", got, plain)
	}

	damaged, _ := archived(t, "other packages")
	if err := os.WriteFile(damaged, []byte("others"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Start(t.Context(), with("four", damaged)); !errors.Is(err, sandbox.ErrStart) || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("a damaged archive: got %v, want ErrStart that says so", err)
	}
	large := with("five", path)
	large.Limits.PackagesBytes = 10
	if _, err := e.Start(t.Context(), large); !errors.Is(err, sandbox.ErrStart) || !strings.Contains(err.Error(), "limits.packages") {
		t.Errorf("a large archive: got %v, want ErrStart that says which limit", err)
	}
	missing, _ := archived(t, "no packages")
	if err := os.Remove(missing); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Start(t.Context(), with("six", missing)); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Errorf("a missing archive: got %v, want ErrUnsupported", err)
	}
	for what, make := range map[string]func(string) error{
		"a link": func(name string) error { return os.Symlink(damaged, name) },
		"a pipe": func(name string) error { return unix.Mkfifo(name, 0o600) },
	} {
		if err := make(missing); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Start(t.Context(), with("seven", missing)); !errors.Is(err, sandbox.ErrUnsupported) {
			t.Errorf("%s: got %v, want ErrUnsupported", what, err)
		}
		if err := os.Remove(missing); err != nil {
			t.Fatal(err)
		}
	}
}

// TestArchivesOpenOnce: whoever wants an archive that is being opened waits for that and
// no longer than it has time, and nothing stays open once all are closed.
func TestArchivesOpenOnce(t *testing.T) {
	path, digest := archived(t, "some packages")
	s := spec("one")
	s.Root.Packages = path
	opening := make(chan struct{})
	a := archives{opened: map[string]*os.File{}, opening: map[string]chan struct{}{digest: opening}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.open(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("while it is being opened: got %v, want %v", err, context.Canceled)
	}
	other, _ := archived(t, "other packages")
	o := spec("two")
	o.Root.Packages = other
	f, err := a.open(t.Context(), o)
	if err != nil {
		t.Fatalf("another archive meanwhile: %v", err)
	}
	f.Close()
	a.close()
	close(opening)
	if _, err := a.open(t.Context(), s); !errors.Is(err, supervise.ErrClosed) || len(a.opened) != 0 {
		t.Errorf("after the end: got %v and %d open, want %v and none", err, len(a.opened), supervise.ErrClosed)
	}
}
