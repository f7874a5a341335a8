package pipe

import (
	"bytes"
	"io"
	"os"
	"testing"
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
