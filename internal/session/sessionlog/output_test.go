package sessionlog

import (
	"errors"
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
		if got, err := l.Written(tt.n, tt.stream); got != tt.want || err != nil {
			t.Errorf("%d %s: got %q, %v, want %q", tt.n, tt.stream, got, err, tt.want)
		}
	}
	for _, n := range []int64{-4, 9, -1 << 63, 1<<63 - 1} {
		if got, err := l.Written(n, ""); !errors.Is(err, ErrNoExecution) {
			t.Errorf("%d: got %q, %v, want no such execution", n, got, err)
		}
	}
	var none *Log
	if _, err := none.Written(0, ""); !errors.Is(err, ErrNotKept) {
		t.Errorf("got %v, want that nothing is kept", err)
	}
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
	got, err := l.Written(0, "")
	if err != nil || len(got) < maxWritten || len(got) > maxWritten+2<<20 || !strings.HasSuffix(got, "in the log alone ...]\n") {
		t.Errorf("got %d bytes, %v; want %d and a mark", len(got), err, maxWritten)
	}
}
