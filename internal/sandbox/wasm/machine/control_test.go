//go:build linux

package machine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
)

// writerFunc is a function as an io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestSnapshotGivenUp: a session whose snapshot is given up while it is written goes on.
func TestSnapshotGivenUp(t *testing.T) {
	s := start(t, openTiny(t), sandbox.Limits{})
	s.say("c")
	s.hear("1")
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Snapshot(ctx, writerFunc(func(p []byte) (int, error) {
		cancel() // the last write is too early to end the session
		return len(p), nil
	}), false)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	failure := errors.New("the disk is full")
	err = s.Snapshot(t.Context(), writerFunc(func([]byte) (int, error) { return 0, failure }), false)
	if !errors.Is(err, failure) {
		t.Errorf("got %v, want %v", err, failure)
	}
	s.say("c")
	s.hear("2")
}

// TestStateWriter: writing ends soon after the snapshot is not needed any more.
func TestStateWriter(t *testing.T) {
	s := start(t, openTiny(t), sandbox.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	data := bytes.Repeat([]byte("0123456789"), statePart/2)
	var got bytes.Buffer
	if n, err := (stateWriter{ctx, s.Session, &got}).Write(data); n != len(data) || err != nil || !bytes.Equal(got.Bytes(), data) {
		t.Errorf("wrote %d bytes, %v, want all of the %d", n, err, len(data))
	}
	for _, test := range []struct {
		name string
		ctx  context.Context
		stop func()
		want error
	}{
		{"given up", ctx, cancel, context.Canceled},
		{"the session is to end", t.Context(), func() { s.Kill(sandbox.Destroyed) }, sandbox.ErrGone},
	} {
		w := stateWriter{test.ctx, s.Session, writerFunc(func(p []byte) (int, error) {
			test.stop()
			return len(p), nil
		})}
		n, err := w.Write(data)
		if n > statePart || !errors.Is(err, test.want) {
			t.Errorf("%s: wrote %d bytes, %v, want at most %d and %v", test.name, n, err, statePart, test.want)
		}
	}
}

// TestNothingAfterSnapshot: a session that ends with its snapshot does nothing that the
// snapshot does not have.
func TestNothingAfterSnapshot(t *testing.T) {
	s := start(t, openTiny(t), sandbox.Limits{})
	s.say("c")
	s.hear("1")
	var data bytes.Buffer
	err := s.Snapshot(t.Context(), writerFunc(func(p []byte) (int, error) {
		s.say("c") // comes when the state is read
		return data.Write(p)
	}), false)
	if err != nil {
		t.Fatal(err)
	}
	s.out.SetReadDeadline(time.Now().Add(hang))
	if got, err := io.ReadAll(s.out); err != nil || len(got) > 0 {
		t.Errorf("after the snapshot the session said %q, %v, want nothing", got, err)
	}
	if err := s.Snapshot(t.Context(), &data, true); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("a snapshot after the end: got %v, want ErrGone", err)
	}
}

// TestFailedPause: a session that could not be paused goes on, one that is paused stays so.
func TestFailedPause(t *testing.T) {
	s := start(t, openTiny(t), sandbox.Limits{})
	s.say("cl")
	s.hear("1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Pause(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	s.interrupted("i")
	if err := s.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Pause(ctx); err != nil {
		t.Errorf("once more: %v", err)
	}
	if s.events.Load()&pausedEvent == 0 {
		t.Error("the session is not paused any more")
	}
	s.Resume()
	s.say("c")
	s.hear("2")
}
