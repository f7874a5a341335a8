package sessionlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/wire"
)

func TestWritten(t *testing.T) {
	s := New(t.TempDir(), 16<<20, discard)
	defer s.Close()
	l := s.Log("x", true)
	for i, text := range []string{"one\n", "two\n", "three\n"} {
		n := uint64(i + 1)
		l.Begin(n, "code")
		l.Output(n, wire.Stdout, []byte(text))
		l.Output(n, wire.Stderr, []byte("error of "+text))
		l.Told(n, "github", "warning: nothing that code wrote")
		l.Output(n, wire.Stdout, []byte("\xff"))
		l.End(n, "finished", "")
		l.Output(0, wire.Stdout, []byte("between"))
	}
	l.Begin(1, "in a new sandbox")
	l.Output(1, wire.Stdout, []byte("again"))
	for _, tt := range []struct {
		n            int64
		stream, want string
	}{
		{0, "", "again"},
		{-1, "", "three\nerror of three\n\ufffd"},
		{-1, "stderr", "error of three\n"},
		{-3, "stdout", "one\n\ufffd"},
		{1, "", "again"},
		{2, "stdout", "two\n\ufffd"},
	} {
		if got, err := l.Written(t.Context(), tt.n, tt.stream); got != tt.want || err != nil {
			t.Errorf("%d %s: got %q, %v, want %q", tt.n, tt.stream, got, err, tt.want)
		}
	}
	for _, n := range []int64{-4, 9, -1 << 63, 1<<63 - 1} {
		if got, err := l.Written(t.Context(), n, ""); !errors.Is(err, ErrNoExecution) {
			t.Errorf("%d: got %q, %v, want no such execution", n, got, err)
		}
	}
	var none *Log
	if _, err := none.Written(t.Context(), 0, ""); !errors.Is(err, ErrNotKept) {
		t.Errorf("got %v, want that nothing is kept", err)
	}
}

// What was written before a reset is not found, and a reader that gives up stops.
func TestWrittenAfterReset(t *testing.T) {
	s := New(t.TempDir(), 16<<20, discard)
	defer s.Close()
	l := s.Log("x", true)
	write := func(n uint64, text string) {
		l.Begin(n, "code")
		l.Output(n, wire.Stdout, []byte(text))
		l.End(n, "finished", "")
	}
	write(1, "one")
	write(2, "two")
	l.Reset()
	for _, n := range []int64{0, -1, 1, 2} {
		if got, err := l.Written(t.Context(), n, ""); !errors.Is(err, ErrNoExecution) {
			t.Errorf("%d: got %q, %v, want no such execution", n, got, err)
		}
	}
	write(1, "new")
	for n, want := range map[int64]string{0: "new", 1: "new"} {
		if got, err := l.Written(t.Context(), n, ""); got != want || err != nil {
			t.Errorf("%d: got %q, %v, want %q", n, got, err, want)
		}
	}
	if got, err := l.Written(t.Context(), -1, ""); !errors.Is(err, ErrNoExecution) {
		t.Errorf("before the reset: got %q, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := l.Written(ctx, 0, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %q, %v", got, err)
	}
}

// A log that is rotated gives out the executions that it still has, and those only.
func TestWrittenOfARotatedLog(t *testing.T) {
	s := New(t.TempDir(), 64<<10, discard)
	defer s.Close()
	l := s.Log("x", true)
	const all = 200
	for n := uint64(1); n <= all; n++ {
		l.Begin(n, "code")
		l.Output(n, wire.Stdout, []byte(strings.Repeat("x", 1000)+fmt.Sprint(n)))
		l.End(n, "finished", "")
		l.Flush()
	}
	for back := int64(0); back < all; back++ {
		got, err := l.Written(t.Context(), -back, "")
		if errors.Is(err, ErrNoExecution) && back > 5 {
			return // rotated away
		}
		if want := fmt.Sprint(all - back); err != nil || !strings.HasSuffix(got, "x"+want) {
			t.Fatalf("%d: got %d bytes, %v; want execution %s", -back, len(got), err, want)
		}
	}
	t.Error("nothing was rotated away")
}

func TestWrittenIsBounded(t *testing.T) {
	s := New(t.TempDir(), 64<<20, discard)
	defer s.Close()
	l := s.Log("x", true)
	l.Begin(1, "")
	for range 20 {
		l.Output(1, wire.Stdout, []byte(strings.Repeat("x", 1<<20)))
		l.Flush()
	}
	got, err := l.Written(t.Context(), 0, "")
	if err != nil || len(got) < maxWritten || len(got) > maxWritten+2<<20 || !strings.HasSuffix(got, "in the log alone ...]\n") {
		t.Errorf("got %d bytes, %v; want %d and a mark", len(got), err, maxWritten)
	}
}

// TestWrittenWithoutItsBeginning: an execution that wrote more than the log keeps is
// found, and says so.
func TestWrittenWithoutItsBeginning(t *testing.T) {
	s := New(t.TempDir(), 256<<10, discard)
	defer s.Close()
	l := s.Log("x", true)
	l.Begin(1, "small")
	l.Output(1, wire.Stdout, []byte("small"))
	l.Begin(2, "large")
	for range 100 {
		l.Output(2, wire.Stdout, []byte(strings.Repeat("x", 8<<10)))
		l.Flush()
	}
	l.Output(2, wire.Stdout, []byte("end"))
	for _, n := range []int64{0, 2} {
		got, err := l.Written(t.Context(), n, "")
		if err != nil || !strings.HasPrefix(got, "[... the beginning is not in the log any more ...]\nxxx") || !strings.HasSuffix(got, "xend") {
			t.Errorf("%d: got %.60q, %v, want a mark and what the log has", n, got, err)
		}
	}
	l.Begin(3, "next")
	if got, err := l.Written(t.Context(), -1, ""); err != nil || !strings.HasSuffix(got, "xend") {
		t.Errorf("got %.60q, %v, want the end", got, err)
	}
	for _, n := range []int64{-2, 1} {
		if got, err := l.Written(t.Context(), n, ""); !errors.Is(err, ErrNoExecution) {
			t.Errorf("%d: got %.60q, %v, want no such execution", n, got, err)
		}
	}
}
