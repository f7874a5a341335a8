//go:build linux && (amd64 || arm64)

package wasm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/control"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/host"
)

// TestMain makes this executable the engine's child, with the simple machine below in
// place of the interpreter.
func TestMain(m *testing.M) {
	if os.Args[0] == control.Name {
		os.Exit(host.Run(openFake, confine))
	}
	if dir := os.Getenv(parentEnv); dir != "" {
		os.Exit(parent(dir))
	}
	os.Exit(m.Run())
}

// confine is what the child does in a test. With cgo, which the race detector needs, it
// cannot be confined.
func confine() ([]string, error) {
	if confinable() {
		return host.Confine()
	}
	return []string{"none"}, nil
}

// parentEnv has this executable be a program with an engine: it names the cache.
const parentEnv = "SALLYPORT_TEST_PARENT"

// parent starts a session, says which process has it, and waits for its own end.
func parent(dir string) int {
	e, err := New(Options{Executable: "/proc/self/exe", CacheDir: dir, Key: fakeKey})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	e.confinable = func() bool { return true }
	r, err := e.Start(context.Background(), spec("one"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(r.(*run).child.cmd.Process.Pid)
	select {}
}

// fakeMachine runs programs that echo lines, except for commands.
type fakeMachine struct{}

type fakeImage struct{ content string }

type fakeSession struct {
	cfg  host.Session
	said string // what it remembers

	packages string

	mu    sync.Mutex
	exit  sandbox.Exit
	ended bool
	done  chan struct{}
	files map[string][]byte
}

func openFake(_ context.Context, o control.Open, code *os.File, progress func(control.Progress)) (host.Machine, error) {
	progress(control.Progress{})
	done := control.Progress{Done: true, Elapsed: 7}
	if _, err := os.Stat(filepath.Join(o.ScratchDir, "full")); err == nil {
		done.Unkept = "no space left"
	} else if code != nil {
		if err := compileFake(code); err != nil {
			return nil, err
		}
	}
	progress(done)
	return fakeMachine{}, nil
}

// compileFake writes compiled code to a file, or expects that it is there.
func compileFake(file *os.File) error {
	const code = "code of the fake"
	data, err := io.ReadAll(io.NewSectionReader(file, 0, 1<<20))
	switch {
	case err != nil:
		return err
	case len(data) == 0:
		_, err := file.WriteString(code)
		return err
	case string(data) != code:
		return fmt.Errorf("got the code %q, want %q", data, code)
	}
	if _, err := file.WriteAt([]byte("x"), 0); err == nil {
		return errors.New("code that can be written to")
	}
	return nil
}

func (fakeMachine) Boot(_ context.Context, p host.Program, image *os.File) (host.Image, error) {
	info, err := image.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		f, err := p.Files.Open("main.py")
		if err != nil {
			return nil, err
		}
		main, err := io.ReadAll(f)
		if err != nil {
			return nil, err
		}
		if string(main) == "fail" {
			return nil, errors.New("the program could not be loaded")
		}
		content := fmt.Sprintf("image of %s %q", main, p.Argv)
		_, err = image.WriteString(content)
		return fakeImage{content}, err
	}
	if _, err := image.WriteAt([]byte("x"), 0); err == nil {
		return nil, errors.New("an image that can be written to")
	}
	data := make([]byte, info.Size())
	_, err = image.ReadAt(data, 0)
	return fakeImage{string(data)}, err
}

func (i fakeImage) Start(_ context.Context, cfg host.Session) (host.Running, error) {
	if cfg.ID == "slow" {
		time.Sleep(100 * time.Millisecond)
	}
	if cfg.Limits.MemoryBytes < 1<<20 {
		return nil, errors.New("a limit below what the interpreter needs")
	}
	s := &fakeSession{cfg: cfg, done: make(chan struct{}), files: map[string][]byte{}}
	if cfg.Archive != nil {
		data, err := io.ReadAll(io.NewSectionReader(cfg.Archive, 0, 1<<20))
		if err != nil {
			return nil, err
		}
		s.packages = string(data)
	}
	go s.serve(i)
	return s, nil
}

func (i fakeImage) Restore(ctx context.Context, cfg host.Session, snapshot io.Reader) (host.Running, error) {
	data, err := io.ReadAll(snapshot)
	if err != nil {
		return nil, err
	}
	said, ok := strings.CutPrefix(string(data), "snapshot:")
	if !ok {
		return nil, errors.New("no snapshot")
	}
	r, err := i.Start(ctx, cfg)
	if err == nil {
		r.(*fakeSession).said = said
	}
	return r, err
}

func (s *fakeSession) serve(i fakeImage) {
	in := bufio.NewScanner(s.cfg.Stdin)
	for in.Scan() {
		switch line := in.Text(); line {
		case "exit":
			s.end(sandbox.Exit{Reason: sandbox.Exited, Code: 3})
			return
		case "image":
			fmt.Fprintln(s.cfg.Stdout, i.content)
		case "env":
			fmt.Fprintln(s.cfg.Stdout, s.cfg.Env)
		case "files":
			fmt.Fprintln(s.cfg.Stdout, s.cfg.Files)
		case "packages":
			fmt.Fprintf(s.cfg.Stdout, "%.8s %s\n", s.cfg.Packages, s.packages)
		case "said":
			fmt.Fprintln(s.cfg.Stdout, s.said)
		case "crash":
			os.Exit(9)
		case "escape":
			_, _ = os.Open("/etc/passwd") // the filter ends the process
		default:
			s.said = line
			fmt.Fprintln(s.cfg.Stdout, "echo "+line)
		}
	}
	s.end(sandbox.Exit{Reason: sandbox.Exited})
}

func (s *fakeSession) end(exit sandbox.Exit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended, s.exit = true, exit
	control.CloseAll([]*os.File{s.cfg.Stdin, s.cfg.Stdout, s.cfg.Stderr})
	close(s.done)
}

func (s *fakeSession) Interrupt() { fmt.Fprintln(s.cfg.Stdout, "interrupted") }
func (s *fakeSession) Kill(reason sandbox.Reason) {
	if s.said != "deaf" {
		s.end(sandbox.Exit{Reason: reason})
	}
}
func (s *fakeSession) Pause(ctx context.Context) error {
	switch s.said {
	case "never": // as a session that does not stop
		<-ctx.Done()
		s.said = "given up"
		return ctx.Err()
	case "late": // as one that stops at that very moment
		<-ctx.Done()
	}
	_, err := fmt.Fprintln(s.cfg.Stdout, "paused")
	return err
}
func (s *fakeSession) Resume()               { fmt.Fprintln(s.cfg.Stdout, "resumed") }
func (s *fakeSession) Done() <-chan struct{} { return s.done }
func (s *fakeSession) Exit() sandbox.Exit    { return s.exit }

func (s *fakeSession) Usage() sandbox.Usage {
	return sandbox.Usage{CPU: 1500 * time.Microsecond, MemoryBytes: 2, PeakBytes: 3}
}

func (s *fakeSession) Put(path string, r io.Reader, size int64) error {
	if path == "refused" {
		return errors.New("no such place")
	}
	data, err := io.ReadAll(io.LimitReader(r, size+1))
	if err != nil {
		return err
	}
	if int64(len(data)) != size {
		return fmt.Errorf("%d bytes, not %d", len(data), size)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = data
	return nil
}

func (s *fakeSession) Get(path string) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.files[path]
	if !ok {
		return nil, errors.New("no such file")
	}
	if path == "short" {
		return io.NopCloser(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(errors.New("it breaks off")))), nil
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (s *fakeSession) Snapshot(ctx context.Context, w io.Writer, keep bool) error {
	if s.said == "never" {
		<-ctx.Done() // as a session that is never idle
		s.said = "given up"
		return ctx.Err()
	}
	if s.said == "gone" { // as a session that ends meanwhile
		return fmt.Errorf("it has ended: %w", sandbox.ErrGone)
	}
	if s.said == "unfinished" {
		return nil
	}
	if _, err := fmt.Fprint(w, "snapshot:"+s.said); err != nil {
		return err
	}
	for s.said == "flood" {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return err
		}
	}
	if err := w.(io.Closer).Close(); err != nil {
		return err
	}
	if s.said == "late" {
		<-ctx.Done() // which it looked at before
	}
	if !keep {
		s.end(sandbox.Exit{Reason: sandbox.Destroyed})
	}
	return nil
}
