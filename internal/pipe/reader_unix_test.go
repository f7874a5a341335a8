//go:build unix

package pipe_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/sallyport/sallyport/internal/pipe"
)

// TestDeserted: a reader that has gone is noticed without a write, one that has only
// ended what it says is not.
func TestDeserted(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	if err := far.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, out := range []any{w, near, new(int)} {
		if pipe.Deserted(over, out) {
			t.Errorf("%T: got true, want false: it can be read", out)
		}
	}
	_, _ = r.Close(), far.Close()
	for _, out := range []any{w, near} {
		if !pipe.Deserted(t.Context(), out) {
			t.Errorf("%T: got false, want true: its reader has gone", out)
		}
	}
}
