package hub

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/socket"
	"github.com/sallyport/sallyport/internal/store"
)

// A place has one hub, whoever starts it.
func TestOwn(t *testing.T) {
	p := place(t)
	unlock, ok, err := store.At(p.Dir).TryLock(p.Key + "-hub") // a hub that starts
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if own, err := p.Own(ended); own || err == nil {
		t.Errorf("while another starts: got %v, %v; want an error", own, err)
	}
	l, err := socket.Listen(p.Dir, p.socket(), discard)
	if err != nil {
		t.Fatal(err)
	}
	if own, err := p.Own(t.Context()); own || err != nil {
		t.Errorf("while another serves: got %v, %v; want false", own, err)
	}
	_ = l.Close()
	unlock()
	if own, err := p.Own(t.Context()); !own || err != nil {
		t.Errorf("when it has ended: got %v, %v; want true", own, err)
	}
	// It stays so.
	if _, ok, err := store.At(p.Dir).TryLock(p.Key + "-hub"); ok || err != nil {
		t.Errorf("the lock: got %v, %v; want that it is held", ok, err)
	}
}

// A hub can be started where Begin gets as far as to start it.
func TestStartable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		place func(t *testing.T) Place
		fails bool
	}{
		"free": {place, false},
		"no directory yet": {func(t *testing.T) Place {
			p := place(t)
			p.Dir = filepath.Join(p.Dir, "none")
			return p
		}, false},
		"nothing can be written": {func(*testing.T) Place { return Place{Dir: filepath.Join(file, "hub"), Key: "abc", Log: discard} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := tt.place(t)
			err := p.Startable()
			if (err != nil) != tt.fails {
				t.Errorf("got %v, want an error: %v", err, tt.fails)
			}
			begun := p.Begin(t.Context(), func(context.Context) error { return nil })
			if fmt.Sprint(begun) != fmt.Sprint(err) {
				t.Errorf("Begin: got %v, want %v", begun, err)
			}
		})
	}
	t.Run("another starts it", func(t *testing.T) {
		p := place(t)
		unlock, err := p.lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		if err := p.Startable(); err != nil {
			t.Errorf("got %v, want nil", err)
		}
	})
	t.Run("of a service manager", func(t *testing.T) {
		p := place(t)
		if err := os.Mkdir(store.At(p.Dir).Path("."+p.Key+".busy"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := p.Startable(); err == nil {
			t.Error("a directory in the place of the lock: got nil, want an error")
		}
		l, err := socket.Listen(p.Dir, Activated, discard)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := p.Startable(); err != nil {
			t.Errorf("got %v, want nil: it is not this process that starts the hub", err)
		}
	})
}

// What killed hubs left goes, and nothing else.
func TestTidy(t *testing.T) {
	p := place(t)
	live, err := socket.Listen(p.Dir, "live.sock", discard)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	for _, name := range []string{"dead.sock", p.socket(), Activated, ".early.sock"} {
		dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(p.Dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		dead.SetUnlinkOnClose(false)
		_ = dead.Close()
	}
	old := time.Now().Add(-2 * keptLogs)
	for _, name := range []string{"new.log", "old.log", "old.log.old", "old.other"} {
		path := filepath.Join(p.Dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if name != "new.log" {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.Tidy(t.Context())
	for name, want := range map[string]bool{
		"live.sock": true, "dead.sock": false, p.socket(): true, Activated: true, ".early.sock": true,
		"new.log": true, "old.log": false, "old.log.old": false, "old.other": true,
	} {
		_, err := os.Lstat(filepath.Join(p.Dir, name))
		if (err == nil) != want {
			t.Errorf("%s: got %v, want it there: %v", name, err, want)
		}
	}
}

// Find connects to a hub that runs, waits for one that ends, and starts none.
func TestFind(t *testing.T) {
	p := place(t)
	asked := 0
	inactive := func() bool { asked++; return false }
	find := func(what string, want bool) {
		t.Helper()
		c, err := p.Find(t.Context(), Hello{Client: "x"}, inactive)
		if (c != nil) != want || err != nil {
			t.Errorf("%s: got a connection %v and %v, want one: %v", what, c != nil, err, want)
		}
		if c != nil {
			_ = c.Close()
		}
	}
	nowhere := Place{Dir: filepath.Join(p.Dir, "nowhere"), Key: "abc", Log: discard}
	if c, err := nowhere.Find(t.Context(), Hello{Client: "x"}, inactive); c != nil || err != nil {
		t.Errorf("without a directory: got %v and %v", c, err)
	}
	find("without a hub", false)
	s, ended := hubAt(t, p, nil)
	find("with one", true)
	if asked > 0 {
		t.Error("it asked about the hub of a service manager, where there is none")
	}

	// The lock of one that ends is kept until its process does.
	s.Stop()
	<-ended
	found := make(chan *Conn)
	go func() {
		c, _ := p.Find(t.Context(), Hello{Client: "x"}, inactive)
		found <- c
	}()
	select {
	case <-found:
		t.Error("it did not wait for the end of a hub")
	case <-time.After(20 * lockRetry):
	}
	kept.Range(func(k, unlock any) bool {
		kept.Delete(k)
		unlock.(func())()
		return true
	})
	if c := <-found; c != nil {
		t.Error("after the end of a hub: got a connection")
	}

	// One that a service manager would start is left alone.
	l, err := socket.Listen(p.Dir, Activated, discard)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	find("with a socket", false)
	if asked != 1 {
		t.Errorf("it asked %d times about the hub of a service manager, want once", asked)
	}
}

// TestGoneWithItsOutput: after the end of its input, a client whose output is closed
// too is not served any longer.
func TestGoneWithItsOutput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	here, there, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	f := &Frontend{Log: discard, Connect: func(context.Context, Hello) (*Conn, error) {
		return &Conn{Conn: here, Hub: 7, in: bufio.NewReader(here)}, nil
	}}
	served := make(chan error, 1)
	go func() { served <- f.Serve(context.Background(), strings.NewReader(call+"\n"), w) }()
	if _, err := io.ReadAll(there); err != nil { // until the frontend closes its end
		t.Fatal(err)
	}
	_ = r.Close()
	if err := <-served; err != nil {
		t.Errorf("Serve: got %v, want nil", err)
	}
}
