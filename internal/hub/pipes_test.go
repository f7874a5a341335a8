//go:build unix

package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// sockets returns the two ends of a connection.
func sockets(t *testing.T) (ends [2]*net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		conn, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = conn.(*net.UnixConn)
		t.Cleanup(func() { _ = conn.Close() })
	}
	return ends
}

// What does not come with exactly two pipes is refused, and nothing that came stays open.
func TestPipes(t *testing.T) {
	file := func() *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, c := range []struct {
		name  string
		files int // in addition to pipes
		pipes int
		want  string
	}{
		{"none", 0, 0, "0 descriptors came in place of two pipes"},
		{"one", 0, 1, "1 descriptors came in place of two pipes"},
		{"three, of which one is not taken", 0, 3, ""},
		{"files", 2, 0, "what came is not a pipe"},
		{"a pipe and a file", 1, 1, "what came is not a pipe"},
		{"two", 0, 2, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ends := sockets(t)
			var rights []int
			for range c.files {
				f := file()
				defer f.Close()
				rights = append(rights, int(f.Fd()))
			}
			for range c.pipes {
				r, w, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				defer w.Close()
				rights = append(rights, int(w.Fd()))
				defer func() { // only what was received can keep it open
					_ = w.Close()
					if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
						t.Errorf("reading from a pipe that was passed: got %v, want the end", err)
					}
				}()
			}
			var control []byte
			if len(rights) > 0 {
				control = unix.UnixRights(rights...)
			}
			if _, _, err := ends[0].WriteMsgUnix([]byte("hello\n"), control, nil); err != nil {
				t.Fatal(err)
			}
			in, pipes := receive(ends[1])
			b := make([]byte, 6)
			if _, err := io.ReadFull(in, b); err != nil || string(b) != "hello\n" {
				t.Fatalf("got %q and %v, want the line", b, err)
			}
			talk, err := pipes.join(ends[1])
			pipes.close()
			if got := errorText(err); got != c.want {
				t.Errorf("got the error %q, want %q", got, c.want)
			}
			if talk != nil {
				_ = talk.Close()
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Both ends talk through the pipes, and each learns when the other has gone.
func TestPiped(t *testing.T) {
	ends := sockets(t)
	here, err := offer(ends[0], []byte("hello\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	in, pipes := receive(ends[1])
	if _, err := io.ReadFull(in, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	there, err := pipes.join(ends[1])
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	for _, way := range []struct{ from, to net.Conn }{{here, there}, {there, here}} {
		b := make([]byte, 4)
		if _, err := way.from.Write([]byte("word")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(way.to, b); err != nil || string(b) != "word" {
			t.Errorf("got %q and %v, want what was written", b, err)
		}
	}
	if err := here.(*piped).CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := there.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after CloseWrite: got %v, want the end", err)
	}
	if err := there.Close(); err != nil {
		t.Error(err)
	}
	if _, err := here.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after Close: got %v, want the end", err)
	}
}

// Whatever a frontend says first, it is served only where it names this hub and
// itself, and it gets at most one line otherwise.
func FuzzHello(f *testing.F) {
	for _, hello := range []string{
		`{"protocol":2,"key":"abc","client":"x","process":1,"about":{"dir":"/"}}`, `{"protocol":1,"key":"abc","client":"x"}`,
		`{"protocol":2,"key":"abc","client":"../x"}`, `{"protocol":2,"key":"other"}`, `{"Key":"abc","protocol":2,"client":"x"} {}`, `[]`, `{`, "\x00",
	} {
		f.Add([]byte(hello + "\n"))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) == 0 || len(said) > 64<<10 { // more than the socket takes at once
			return
		}
		s := NewServer(Config{Place: Place{Key: "abc"}})
		ends := sockets(t)
		here, err := offer(ends[0], said)
		if err != nil {
			t.Fatal(err)
		}
		defer here.Close()
		_ = ends[0].CloseWrite()
		h, talk, err := s.hello(ends[1])
		if (h == nil) != (err != nil) || (talk == nil) != (err != nil) {
			t.Errorf("%q: got %+v with the error %v", said, h, err)
		}
		_ = ends[1].CloseWrite()
		heard, _ := io.ReadAll(ends[0])
		if err != nil {
			if len(heard) > 0 && (bytes.Count(heard, []byte("\n")) != 1 || !json.Valid(heard)) {
				t.Errorf("%q: got the answer %q, want one line", said, heard)
			}
			return
		}
		defer talk.Close()
		if h.Key != "abc" || h.Protocol != protocol || !validClient().MatchString(h.Client) || len(heard) > 0 {
			t.Errorf("%q was accepted as %+v, with the answer %q", said, h, heard)
		}
	})
}

// Whatever answers a frontend, it is a hub only if it says so.
func FuzzWelcome(f *testing.F) {
	for _, line := range []string{`{"process":1}`, `{"process":1,"error":"no room"}`, `{"process":1,"elsewhere":true}`, `{"process":"1"}`, `[]`, ""} {
		f.Add([]byte(line + "\n"))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		if len(said) > 64<<10 {
			return
		}
		ends := sockets(t)
		if _, err := ends[1].Write(said); err != nil {
			t.Fatal(err)
		}
		_ = ends[1].CloseWrite()
		c, err := greet(context.Background(), ends[0], Hello{Key: "abc", Client: "x"})
		if (c == nil) == (err == nil) {
			t.Errorf("%q: got %v and %v", said, c, err)
		}
		if c != nil {
			_ = c.Close()
		}
	})
}
