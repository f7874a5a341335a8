package control

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ends returns the engine's end and the child's.
func ends(t testing.TB) (ours, theirs *Conn) {
	t.Helper()
	ours, file, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = file.Close()
	}
	if err == nil {
		theirs, err = NewConn(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(ours.Close(), theirs.Close()) })
	return ours, theirs
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(r.Close(), w.Close()) })
	return r, w
}

// TestRequest sends requests of all sizes, one after the other, with as many files as
// they may have.
func TestRequest(t *testing.T) {
	ours, theirs := ends(t)
	sizes := []int{0, 1, 1 << 10, 1 << 20, 20 << 20}
	sent := make(chan error, 1)
	r, w := pipe(t)
	go func() {
		for i, size := range sizes {
			files := []*os.File{w, w, w, w}[:i]
			if err := ours.Send(Request{ID: int64(i), Path: strings.Repeat("x", size)}, files...); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i, size := range sizes {
		got, files, err := theirs.Request()
		if err != nil {
			t.Fatal(err)
		}
		if got.ID != int64(i) || len(got.Path) != size || len(files) != i {
			t.Errorf("got request %d of %d bytes with %d files, want %d of %d with %d", got.ID, len(got.Path), len(files), i, size, i)
		}
		for k, f := range files {
			if _, err := f.Write([]byte{byte(k)}); err != nil {
				t.Error(err)
			}
			var b [1]byte
			if _, err := io.ReadFull(r, b[:]); err != nil || b[0] != byte(k) {
				t.Errorf("file %d: got %d, %v through the pipe, want %d", k, b[0], err, k)
			}
		}
		CloseAll(files)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if err := ours.Send(Request{Path: strings.Repeat("x", MaxRequest)}); err == nil {
		t.Error("a request over the bound was sent")
	}
	ours.Close()
	if _, _, err := theirs.Request(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: got %v, want EOF", err)
	}
}

// TestDescriptors: the engine takes none from its child.
func TestDescriptors(t *testing.T) {
	ours, theirs := ends(t)
	r, w := pipe(t)
	if err := theirs.Send(Message{ID: 1}, w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if m, err := ours.Message(); err != nil || m.ID != 1 {
		t.Fatalf("got %+v, %v, want message 1", m, err)
	}
	if n, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %d, %v, want that nothing has the pipe's other end", n, err)
	}
}

// frame returns a message as it is sent.
func frame(body string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
}

// hear gives the engine's end what a child might send, and returns how many messages
// that is.
func hear(t testing.TB, data []byte) (messages int) {
	t.Helper()
	ours, theirs := ends(t)
	go func() {
		_, _ = theirs.file.Write(data)
		theirs.Close()
	}()
	for {
		if _, err := ours.Message(); err != nil {
			return messages
		}
		messages++
	}
}

func TestHostile(t *testing.T) {
	for _, tt := range []struct {
		name, data string
		want       int
	}{
		{"nothing", "", 0},
		{"a huge message", "\xff\xff\xff\xff" + strings.Repeat("x", MaxMessage), 0},
		{"one byte too many", frame(strings.Repeat(" ", MaxMessage-1) + "{}"), 0},
		{"as large as may be", frame(strings.Repeat(" ", MaxMessage-2) + "{}"), 1},
		{"no JSON", frame("{]"), 0},
		{"half a message", "\x00\x00\x00\x10{}", 0},
		{"another type", frame(`{"id":"one"}`), 0},
		{"unknown members", frame(`{"id":99,"more":1}`) + frame(`{"session":5,"exit":{"Reason":"exited"}}`) + frame(`{}`), 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := hear(t, []byte(tt.data)); got != tt.want {
				t.Errorf("got %d messages, want %d", got, tt.want)
			}
		})
	}
}

// FuzzMessage: whatever a child sends, the engine's end returns.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(frame(`{"id":1,"usage":{"cpuMicros":1}}`)))
	f.Add([]byte(frame(`{"session":1,"exit":{"Code":1,"Reason":"exited"}}`) + "\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got := hear(t, bytes.Clone(data)); got > len(data)/headerSize {
			t.Errorf("got %d messages of %d bytes", got, len(data))
		}
	})
}
