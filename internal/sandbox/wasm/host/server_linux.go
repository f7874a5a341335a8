//go:build linux && (amd64 || arm64)

package host

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/control"
)

// Exit statuses of the child. They tell the engine nothing that it acts on.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUnready = 2
)

// server serves one engine.
type server struct {
	open    Opener
	confine Confiner
	conn    *control.Conn

	mu       sync.Mutex
	machine  Machine
	images   map[string]Image
	sessions map[int64]Running
	cancel   map[int64]context.CancelFunc // requests under way
}

// Run is the child's main function: it serves the engine until the engine is gone.
// Sessions start only when confine has returned nil. It is Confine but for tests that
// cannot confine their process.
func Run(open Opener, confine Confiner) int {
	time.Local = time.UTC // or the first use of it would open a file
	if err := settle(); err != nil {
		fmt.Fprintln(os.Stderr, "preparing the process:", err)
		return exitUnready
	}
	// Sessions that run leave a processor only every few milliseconds. With some more than
	// there are, the kernel shares the time: what others wait for gets its part at once.
	runtime.GOMAXPROCS(2*runtime.NumCPU() + 2)
	conn, err := control.NewConn(control.FD)
	if err != nil {
		fmt.Fprintln(os.Stderr, "the engine's socket:", err)
		return exitUnready
	}
	s := &server{open: open, confine: confine, conn: conn, images: map[string]Image{}, sessions: map[int64]Running{}, cancel: map[int64]context.CancelFunc{}}
	for {
		r, files, err := conn.Request()
		if errors.Is(err, io.EOF) {
			return exitDone // the engine is gone, and with it all that sessions are for
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "reading from the engine:", err)
			return exitFailed
		}
		if r.Op == control.OpCancel {
			control.CloseAll(files)
			s.mu.Lock()
			if cancel := s.cancel[r.Cancel]; cancel != nil {
				cancel()
			}
			s.mu.Unlock()
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		s.mu.Lock()
		s.cancel[r.ID] = cancel
		s.mu.Unlock()
		go s.serve(ctx, r, files)
	}
}

// serve carries out a request and answers it.
func (s *server) serve(ctx context.Context, r control.Request, files []*os.File) {
	m, err := s.do(ctx, r, files)
	s.mu.Lock()
	s.cancel[r.ID]()
	delete(s.cancel, r.ID)
	s.mu.Unlock()
	m.ID = r.ID
	if err != nil {
		m.Error = err.Error()
		if errors.Is(err, sandbox.ErrGone) {
			m.Error = sandbox.ErrGone.Error() // the engine knows it by its text
		}
		if m.Error == "" {
			m.Error = "it failed"
		}
		m.Error = m.Error[:min(len(m.Error), maxError)]
	}
	s.say(m)
	if r.Op == control.OpOpen && err != nil {
		os.Exit(exitUnready) // half of the walls would be none
	}
}

// gcPercent has collections come early.
const gcPercent = 25

// maxError bounds the text of an error, so that messages have a bound.
const maxError = 16 << 10

// say sends a message. An engine that is gone is noticed by Run.
func (s *server) say(m control.Message) { _ = s.conn.Send(m) }

// do carries out a request. It closes the files that nothing took over.
func (s *server) do(ctx context.Context, r control.Request, files []*os.File) (m control.Message, err error) {
	need := func(n int) error {
		if len(files) != n {
			return fmt.Errorf("%s with %d descriptors, not %d", r.Op, len(files), n)
		}
		return nil
	}
	switch r.Op {
	case control.OpOpen:
		defer control.CloseAll(files) // loaded code needs no descriptor
		if len(files) > 1 {
			return m, need(1)
		}
		m.Walls, err = s.prepare(ctx, r.Open, files)
		return m, err
	case control.OpProgram:
		defer control.CloseAll(files) // a mapping needs no descriptor
		if err := need(1); err != nil {
			return m, err
		}
		return m, s.program(ctx, r.Program, files[0])
	case control.OpStart, control.OpRestore:
		return m, s.start(ctx, r, files)
	}
	session, err := s.find(r.Session)
	if err == nil && r.Op == control.OpGet {
		return m, get(session, r.Path, files)
	}
	defer control.CloseAll(files)
	if err != nil {
		return m, err
	}
	switch r.Op {
	case control.OpInterrupt:
		session.Interrupt()
	case control.OpKill:
		session.Kill(sandbox.Destroyed)
	case control.OpPause:
		return m, session.Pause(ctx)
	case control.OpResume:
		session.Resume()
	case control.OpUsage:
		u := session.Usage()
		m.Usage = &control.Usage{CPUMicros: u.CPU.Microseconds(), MemoryBytes: u.MemoryBytes, PeakBytes: u.PeakBytes}
	case control.OpSnapshot:
		if err := need(2); err != nil {
			return m, err
		}
		return m, session.Snapshot(ctx, handover{files[0], files[1]}, r.Keep)
	case control.OpPut:
		if err := need(1); err != nil {
			return m, err
		}
		return m, session.Put(r.Path, files[0], r.Size)
	default:
		return m, fmt.Errorf("unknown operation %q", r.Op)
	}
	return m, nil
}

// A handover is a pipe for a snapshot.
type handover struct{ out, taken *os.File }

func (h handover) Write(b []byte) (int, error) { return h.out.Write(b) }

// Close returns when the engine has written what has come.
func (h handover) Close() error {
	if err := h.out.Close(); err != nil {
		return err
	}
	var answer [1]byte
	if _, err := io.ReadFull(h.taken, answer[:]); err != nil || answer[0] != control.Whole {
		return errors.New("the snapshot is not written")
	}
	return nil
}

// get opens a file and sends it when it has returned.
func get(session Running, path string, files []*os.File) error {
	if len(files) != 1 {
		control.CloseAll(files)
		return fmt.Errorf("get with %d descriptors, not 1", len(files))
	}
	data, err := session.Get(path)
	if err != nil {
		control.CloseAll(files)
		return err
	}
	go func() {
		// Not as files: the calls that copy between descriptors are not allowed.
		_, err := io.Copy(struct{ io.Writer }{files[0]}, struct{ io.Reader }{data})
		if err == nil {
			_, _ = files[0].Write([]byte{control.Whole})
		}
		_ = errors.Join(data.Close(), files[0].Close())
	}()
	return nil
}

// prepare makes the machine and gives up everything else.
func (s *server) prepare(ctx context.Context, o *control.Open, files []*os.File) (walls []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o == nil || s.machine != nil {
		return nil, errors.New("the machine is prepared once")
	}
	// To load compiled code is over before a collection would be worth its time. To
	// compile is not.
	before := debug.SetGCPercent(-1)
	var code *os.File
	if len(files) > 0 {
		code = files[0]
	}
	machine, err := s.open(ctx, *o, code, func(p control.Progress) {
		debug.SetGCPercent(before)
		s.say(control.Message{Progress: &p})
	})
	if err != nil {
		return nil, err
	}
	// What sessions free stays until a collection, and their limits do not count it.
	debug.SetGCPercent(gcPercent)
	if walls, err = s.confine(); err != nil {
		return nil, fmt.Errorf("confining the process: %w", err)
	}
	s.machine = machine
	return walls, nil
}

// program loads or makes the image of a program.
func (s *server) program(ctx context.Context, p *control.Program, file *os.File) error {
	s.mu.Lock()
	machine := s.machine
	s.mu.Unlock()
	if p == nil || machine == nil {
		return errors.New("no program, or no machine")
	}
	files, err := zip.NewReader(bytes.NewReader(p.Files), int64(len(p.Files)))
	if err != nil {
		return err
	}
	image, err := machine.Boot(ctx, Program{Key: p.Key, Files: files, Argv: p.Argv, Env: p.Env}, file)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images[p.Key] = image
	return nil
}

// start starts or continues a session, and reports its end when it comes.
func (s *server) start(ctx context.Context, r control.Request, files []*os.File) error {
	want := 3
	if r.Start != nil && r.Start.Packages != "" {
		want++
	}
	if r.Op == control.OpRestore {
		want++
	}
	if r.Start == nil || len(files) != want {
		control.CloseAll(files)
		return fmt.Errorf("%s with %d descriptors, not %d", r.Op, len(files), want)
	}
	s.mu.Lock()
	image := s.images[r.Start.Program]
	s.mu.Unlock()
	if image == nil {
		control.CloseAll(files)
		return errors.New("the program has no image")
	}
	cfg := Session{
		ID: r.Start.ID, Limits: r.Start.Limits, Env: r.Start.Env, Files: r.Start.Files,
		Stdin: files[0], Stdout: files[1], Stderr: files[2],
	}
	if r.Start.Packages != "" {
		cfg.Packages, cfg.Archive = r.Start.Packages, files[3]
	}
	defer control.CloseAll(files[3:])
	var session Running
	var err error
	if r.Op == control.OpStart {
		session, err = image.Start(ctx, cfg)
	} else {
		session, err = image.Restore(ctx, cfg, files[want-1])
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.sessions[r.Session] = session
	s.mu.Unlock()
	go func() {
		<-session.Done()
		s.mu.Lock()
		delete(s.sessions, r.Session)
		s.mu.Unlock()
		exit := session.Exit()
		exit.Detail = exit.Detail[:min(len(exit.Detail), maxError)]
		s.say(control.Message{Session: r.Session, Exit: &exit})
	}()
	if err := ctx.Err(); err != nil { // the engine has given it up
		session.Kill(sandbox.Destroyed)
		return err
	}
	return nil
}

func (s *server) find(number int64) (Running, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := s.sessions[number]
	if session == nil {
		return nil, sandbox.ErrGone
	}
	return session, nil
}
