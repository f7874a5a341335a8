//go:build linux || darwin

package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/hibernate"
	"github.com/sallyport/sallyport/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discard = slog.New(slog.DiscardHandler)

// noted is what a process was asked for.
type noted struct {
	mu    sync.Mutex
	asked []string
	err   error
	// during is called while something is done; nil: nothing happens.
	during func(context.Context) error
}

func (n *noted) note(ctx context.Context, what string, key session.Key) error {
	n.mu.Lock()
	n.asked = append(n.asked, what+" "+key.String())
	n.mu.Unlock()
	if n.during != nil {
		return n.during(ctx)
	}
	return n.err
}

func (n *noted) Sessions() []session.Info {
	return []session.Info{{Name: "work", Status: hibernate.Running, Executions: 3}}
}
func (n *noted) Suspend(ctx context.Context, key session.Key) error {
	return n.note(ctx, "suspend", key)
}
func (n *noted) Resume(ctx context.Context, key session.Key) error { return n.note(ctx, "resume", key) }
func (n *noted) Reset(ctx context.Context, key session.Key) error  { return n.note(ctx, "reset", key) }
func (n *noted) Remove(ctx context.Context, key session.Key) error { return n.note(ctx, "remove", key) }
func (n *noted) Export(ctx context.Context, key session.Key, w io.Writer) error {
	if _, err := io.WriteString(w, "the archive"); err != nil {
		return err
	}
	return n.note(ctx, "export", key)
}
func (n *noted) Put(ctx context.Context, key session.Key, next func() (*wire.TaskFile, error)) error {
	what := "put"
	for {
		f, err := next()
		if err != nil {
			return err
		}
		if f == nil {
			return n.note(ctx, what, key)
		}
		what += fmt.Sprintf(" %s(%d)", f.Path, len(f.Data))
	}
}
func (n *noted) Take(ctx context.Context, key session.Key, paths []string, give func(wire.TaskFile) error) error {
	for _, path := range paths {
		if err := give(wire.TaskFile{Path: path, Data: []byte(path)}); err != nil {
			return err
		}
	}
	return n.note(ctx, "take", key)
}
func (n *noted) Import(ctx context.Context, key session.Key, r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return n.note(ctx, "import "+string(data), key)
}

func about() Process { return Process{PID: os.Getpid(), Version: "v", Client: "a client"} }

func listen(t *testing.T, dir string, n *noted) *Server {
	t.Helper()
	s, err := Listen(dir, Config{Sessions: n, About: about, Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func find(t *testing.T, dir string, want int) []*Client {
	t.Helper()
	list, err := Find(dir)
	if err != nil || len(list) != want {
		t.Fatalf("%d found, want %d: %v", len(list), want, err)
	}
	return list
}

func runtimeDir(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "control")
	if len(dir) > 50 { // for the address of a socket, which the tests dial themselves
		var err error
		if dir, err = os.MkdirTemp("/tmp", "control"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	return dir
}

func TestAsk(t *testing.T) {
	dir, n := runtimeDir(t), &noted{}
	if list := find(t, dir, 0); list != nil {
		t.Error(list)
	}
	s := listen(t, dir, n)
	c := find(t, dir, 1)[0]
	p, err := c.Process(t.Context())
	if err != nil || p.PID != os.Getpid() || p.Version != "v" || len(p.Sessions) != 1 || p.Sessions[0].Name != "work" || p.Sessions[0].Client != "a client" {
		t.Fatalf("%+v %v", p, err)
	}
	if c.PID() != os.Getpid() {
		t.Error(c.PID())
	}
	archive := filepath.Join(t.TempDir(), "archive")
	for _, err := range []error{
		c.Suspend(t.Context(), session.Key{Name: "a"}), c.Resume(t.Context(), session.Key{Name: "b"}), c.Reset(t.Context(), session.Key{Owner: "ann", Name: "default", Client: "1"}), c.Remove(t.Context(), session.Key{Name: "c"}),
		c.Export(t.Context(), session.Key{Name: "d"}, archive), c.Import(t.Context(), session.Key{Name: "e"}, archive),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(n.asked, ", "); got != "suspend a, resume b, reset default#1@ann, remove c, export d, import the archive e" {
		t.Error(got)
	}
	if err := c.Export(t.Context(), session.Key{Name: "d"}, archive); err == nil {
		t.Error("a file was written over")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	info, err := entries[0].Info()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	s.Close()
	s.Close()
	find(t, dir, 0)
	if _, err := c.Process(t.Context()); !errors.Is(err, ErrGone) {
		t.Errorf("after the end: got %v, want ErrGone", err)
	}
}

func TestFailures(t *testing.T) {
	dir, n := runtimeDir(t), &noted{}
	listen(t, dir, n)
	c := find(t, dir, 1)[0]
	for _, err := range []error{session.ErrUnknown, hibernate.ErrElsewhere, errors.New("no room")} {
		n.err = err
		got := c.Resume(t.Context(), session.Key{Name: "x"})
		if got == nil || got.Error() != err.Error() {
			t.Errorf("%v became %v", err, got)
		}
		for _, kind := range []error{session.ErrUnknown, hibernate.ErrElsewhere} {
			if errors.Is(got, kind) != errors.Is(err, kind) {
				t.Errorf("%v is %v", got, kind)
			}
		}
		file := filepath.Join(t.TempDir(), "half")
		if c.Export(t.Context(), session.Key{Name: "x"}, file) == nil {
			t.Error("a failed export succeeded")
		}
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Error("half a file is left", err)
		}
	}
	if err := c.Resume(t.Context(), session.Key{Name: strings.Repeat("x", 2*maxRequest)}); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Error(err)
	}
}

// A dead process's socket is found and removed, and a living one's is not.
func TestStale(t *testing.T) {
	dir := runtimeDir(t)
	listen(t, dir, &noted{})
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "99999-dead.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	for _, name := range []string{".1-new.sock", ".2-old.sock"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close()
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, ".2-old.sock"), long, long); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "3-file.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	find(t, dir, 1)
	for name, want := range map[string]bool{"99999-dead.sock": false, ".1-new.sock": true, ".2-old.sock": false, "3-file.sock": true} {
		if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A directory in which others have a hand is not used, by either end.
func TestPrivateDirectory(t *testing.T) {
	dir := runtimeDir(t)
	listen(t, dir, &noted{})
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(dir); err == nil {
		t.Error("it is searched")
	}
	if _, err := Listen(dir, Config{Sessions: &noted{}, About: about, Log: discard}); err == nil {
		t.Error("a socket was put into it")
	}
}

// What is under way ends with the server, which does not wait for what does not
// end.
func TestCloseDoesNotWait(t *testing.T) {
	dir := runtimeDir(t)
	began, release := make(chan struct{}, 2), make(chan struct{})
	n := &noted{during: func(ctx context.Context) error {
		began <- struct{}{}
		<-ctx.Done()
		<-release
		return ctx.Err()
	}}
	s := listen(t, dir, n)
	c := find(t, dir, 1)[0]
	done := make(chan error, 1)
	go func() { done <- c.Resume(context.WithoutCancel(t.Context()), session.Key{Name: "x"}) }()
	<-began
	s.Close()
	if err := <-done; err == nil {
		t.Error("it was answered")
	}
	close(release)
	s.working.Wait()
}

// The answer to what is under way arrives, although the process ends.
func TestCloseAnswers(t *testing.T) {
	dir := runtimeDir(t)
	began := make(chan struct{})
	n := &noted{during: func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		return nil
	}}
	s := listen(t, dir, n)
	c := find(t, dir, 1)[0]
	done := make(chan error, 1)
	go func() { done <- c.Resume(context.WithoutCancel(t.Context()), session.Key{Name: "x"}) }()
	<-began
	s.Close()
	if err := <-done; err != nil {
		t.Errorf("got %v, want an answer", err)
	}
}

// A client that goes takes its request with it.
func TestClientGoes(t *testing.T) {
	dir := runtimeDir(t)
	began, ended := make(chan struct{}), make(chan struct{})
	n := &noted{during: func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	}}
	listen(t, dir, n)
	c := find(t, dir, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Suspend(ctx, session.Key{Name: "x"}) }()
	<-began
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-ended
}

// Connections that say nothing do not keep others out for ever, and what is no
// HTTP is sent away.
func TestCrowd(t *testing.T) {
	dir := runtimeDir(t)
	listen(t, dir, &noted{})
	found, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(found) != 1 {
		t.Fatalf("got the sockets %q, %v; want one", found, err)
	}
	path := found[0]
	var crowd []net.Conn
	for range 2 * maxConnections {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, c)
	}
	for _, c := range crowd {
		_ = c.Close()
	}
	c, err := net.Dial("unix", path)
	for err == nil {
		_, _ = c.Write([]byte("hello\r\n\r\n"))
		answer, _ := io.ReadAll(c)
		_ = c.Close()
		if bytes.Contains(answer, []byte("400")) {
			break
		}
		c, err = net.Dial("unix", path) // a place gets free when the server has seen the crowd go
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A directory whose name is too long for a socket's address is no obstacle
// where the kernel lets us go around it.
func TestLongPath(t *testing.T) {
	dir := filepath.Join(runtimeDir(t), strings.Repeat("long", 40))
	s, err := Listen(dir, Config{Sessions: &noted{}, About: about, Log: discard})
	if err != nil {
		if strings.Contains(err.Error(), "XDG_RUNTIME_DIR") {
			return // and it says what to do
		}
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := find(t, dir, 1)[0].Process(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestTransfer: files move in parts, and either side's failure arrives.
func TestTransfer(t *testing.T) {
	n := &noted{}
	dir := runtimeDir(t)
	listen(t, dir, n)
	c := find(t, dir, 1)[0]
	key := session.Key{Name: "a"}
	parts := func(fail error) func() (*wire.TaskFile, error) {
		sent := 0
		return func() (*wire.TaskFile, error) {
			switch sent++; {
			case sent <= 3:
				return &wire.TaskFile{Path: fmt.Sprint("f", sent), Data: make([]byte, wire.TaskPartSize)}, nil
			case fail != nil:
				return nil, fail
			}
			return nil, nil
		}
	}
	if err := c.Put(t.Context(), key, parts(nil)); err != nil {
		t.Error(err)
	}
	want := fmt.Sprintf("put f1(%[1]d) f2(%[1]d) f3(%[1]d) a", wire.TaskPartSize)
	if len(n.asked) != 1 || n.asked[0] != want {
		t.Errorf("got %q, want %q", n.asked, want)
	}
	broken := errors.New("unreadable")
	if err := c.Put(t.Context(), key, parts(broken)); !errors.Is(err, broken) || len(n.asked) != 1 {
		t.Errorf("%v, %q", err, n.asked)
	}
	var got []string
	give := func(f wire.TaskFile) error { got = append(got, f.Path+"="+string(f.Data)); return nil }
	if err := c.Take(t.Context(), key, []string{"x", "y"}, give); err != nil || strings.Join(got, " ") != "x=x y=y" {
		t.Errorf("%v, %q", err, got)
	}
	if err := c.Take(t.Context(), key, []string{"x"}, func(wire.TaskFile) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	n.err = session.ErrUnknown
	if err := c.Take(t.Context(), key, []string{"x"}, give); !errors.Is(err, session.ErrUnknown) {
		t.Error(err)
	}
	if err := c.Put(t.Context(), key, parts(nil)); !errors.Is(err, session.ErrUnknown) {
		t.Error(err)
	}
}

// What a process answers is read with care.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"path":"a","data":"MQ==","more":true}{"end":true}`))
	f.Add([]byte(`{"end":true,"failure":{"error":"x"}}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := json.NewDecoder(bytes.NewReader(data))
		for {
			if part, err := receive(in); part == nil || err != nil {
				return
			}
		}
	})
}
