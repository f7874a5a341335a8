//go:build linux && (amd64 || arm64)

package wasm

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// soon returns a context that is done when a request is under way.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// TestGivenUpSnapshot: whoever gives a snapshot up learns whether it was taken.
func TestGivenUpSnapshot(t *testing.T) {
	e := newEngine(t, t.TempDir())
	late := start(t, e, spec("late"))
	late.say(t, "late")
	late.hear(t, "echo late")
	dir := t.TempDir()
	if err := late.Snapshot(soon(t), dir, false); err != nil {
		t.Errorf("a snapshot that was taken: got %v, want no error", err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, snapshotName)); err != nil || string(data) != "snapshot:late" {
		t.Errorf("the snapshot is %q, %v, want the session's state", data, err)
	}
	if exit := late.exit(t); exit.Reason != sandbox.Destroyed {
		t.Errorf("exit: got %+v, want Destroyed", exit)
	}

	never := start(t, e, spec("never"))
	never.say(t, "never")
	never.hear(t, "echo never")
	if err := never.Snapshot(soon(t), t.TempDir(), false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a snapshot that was not taken: got %v, want DeadlineExceeded", err)
	}
	never.say(t, "said")
	never.hear(t, "given up")

	gone := start(t, e, spec("gone"))
	gone.say(t, "gone")
	gone.hear(t, "echo gone")
	dir = t.TempDir()
	if err := gone.Snapshot(t.Context(), dir, false); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("a snapshot of a session that ends meanwhile: got %v, want ErrGone", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v, want nothing in the directory", left, err)
	}
	gone.say(t, "exit")
	if exit := gone.exit(t); exit.Reason != sandbox.Exited || exit.Code != 3 {
		t.Errorf("exit: got %+v, want code 3", exit)
	}
}

// TestDestroyedSnapshot: the end of a session ends its snapshot, and nothing else.
func TestDestroyedSnapshot(t *testing.T) {
	e := newEngine(t, t.TempDir())
	one, other := start(t, e, spec("one")), start(t, e, spec("other"))
	one.largest = 1 << 40
	one.say(t, "flood")
	one.hear(t, "echo flood")
	dir := t.TempDir()
	failed := make(chan error, 1)
	go func() { failed <- one.Snapshot(t.Context(), dir, false) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if info, err := os.Stat(filepath.Join(dir, snapshotName)); err == nil && info.Size() > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the snapshot does not begin")
		}
	}
	if err := one.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("the snapshot: got %v, want ErrGone", err)
	}
	other.say(t, "x")
	other.hear(t, "echo x")
}

// TestGivenUpPause: whoever gives a pause up learns whether the session is paused.
func TestGivenUpPause(t *testing.T) {
	e := newEngine(t, t.TempDir())
	c := start(t, e, spec("one"))
	c.say(t, "late")
	c.hear(t, "echo late")
	if err := c.Pause(soon(t)); err != nil {
		t.Errorf("a session that is paused: got %v, want no error", err)
	}
	c.hear(t, "paused")
	c.say(t, "never")
	c.hear(t, "echo never")
	if err := c.Pause(soon(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a session that is not paused: got %v, want DeadlineExceeded", err)
	}
	c.say(t, "said")
	c.hear(t, "given up")
}

// endless is a reader that must not be used once its reader has returned.
type endless struct {
	returned atomic.Bool
	misused  atomic.Bool
}

func (r *endless) Read(b []byte) (int, error) {
	if r.returned.Load() {
		r.misused.Store(true)
		return 0, io.EOF
	}
	return len(b), nil
}

func TestPutReader(t *testing.T) {
	c := start(t, newEngine(t, t.TempDir()), spec("one"))
	failure := errors.New("the source is gone")
	if err := c.Put(t.Context(), "a", iotest.ErrReader(failure), 1); !errors.Is(err, failure) {
		t.Errorf("a reader that fails: got %v, want %v", err, failure)
	}
	var r endless
	if err := c.Put(t.Context(), "refused", &r, 1<<40); err == nil {
		t.Error("a file was put that is refused")
	}
	r.returned.Store(true)
	if err := c.Put(t.Context(), "b", iotest.ErrReader(io.EOF), 0); err != nil {
		t.Errorf("an empty file: %v", err)
	}
	if r.misused.Load() {
		t.Error("the reader was used after Put had returned")
	}
}
