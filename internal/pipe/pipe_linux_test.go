package pipe

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestWriterTakesWhatFits(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := NewWriter(w)
	if out == nil {
		t.Fatal("NewWriter(pipe) = nil")
	}
	if rest, err := out.Write([]byte("small")); len(rest) > 0 || err != nil {
		t.Fatalf("Write(small) = %d bytes left, %v; want none", len(rest), err)
	}
	large := bytes.Repeat([]byte("x"), 4<<20)
	rest, err := out.Write(large)
	if err != nil || len(rest) == 0 || len(rest) == len(large) {
		t.Fatalf("Write(4 MB) = %d bytes left, %v; want a part", len(rest), err)
	}
	w.Close()
	got, err := io.ReadAll(r)
	if want := "small" + string(large[:len(large)-len(rest)]); err != nil || string(got) != want {
		t.Errorf("the reader got %d bytes, %v; want %d", len(got), err, len(want))
	}
}

func TestWriterReportsTheReadersEnd(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	if rest, err := NewWriter(w).Write([]byte("x")); err == nil || len(rest) != 1 {
		t.Errorf("Write = %d bytes left, %v; want 1 and an error", len(rest), err)
	}
}

func TestNoWriterWhereWritingBlocks(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	w.Fd() // makes it blocking
	if NewWriter(w) != nil {
		t.Error("NewWriter(blocking pipe) is not nil")
	}
	if NewWriter(&bytes.Buffer{}) != nil {
		t.Error("NewWriter(buffer) is not nil")
	}
}

// TestPolled: a pipe that blocks is read to its end through the poller, and stays as it
// is for others; something else is read as it is.
func TestPolled(t *testing.T) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	defer r.Close()
	in := Polled(r)
	f, ok := in.(*os.File)
	if !ok || f == r {
		t.Fatalf("Polled = %v, want another file", in)
	}
	defer f.Close()
	if err := f.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Errorf("SetReadDeadline = %v, want none: the poller does not know it", err)
	}
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read after the deadline = %v", err)
	}
	_ = f.SetReadDeadline(time.Time{})
	if flags, _, _ := syscall.Syscall(syscall.SYS_FCNTL, r.Fd(), syscall.F_GETFL, 0); flags&syscall.O_NONBLOCK != 0 {
		t.Error("the pipe itself does not block any more")
	}
	go func() {
		_, _ = w.WriteString("hello")
		w.Close()
	}()
	if got, err := io.ReadAll(in); err != nil || string(got) != "hello" {
		t.Errorf("ReadAll = %q, %v, want %q", got, err, "hello")
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, other := range []io.Reader{file, &bytes.Buffer{}} {
		if got := Polled(other); got != other {
			t.Errorf("Polled(%T) = %v, want the same", other, got)
		}
	}
}
