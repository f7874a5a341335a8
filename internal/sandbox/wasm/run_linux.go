//go:build linux && (amd64 || arm64)

package wasm

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/supervise"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/control"
)

// run is one session.
type run struct {
	handle   sandbox.Handle
	child    *child
	number   int64 // the child's name for it
	streams  *supervise.Streams
	ending   *supervise.Ending
	release  func()
	log      *slog.Logger
	largest  int64         // bounds its snapshots
	patience time.Duration // how long it may take to end

	life context.Context // ends when Destroy begins
	stop context.CancelFunc

	mu        sync.Mutex
	destroyed bool
	moved     bool // a snapshot that ends it is being taken, or was

	once sync.Once
}

var (
	_ sandbox.Run            = (*run)(nil)
	_ sandbox.Duplexer       = (*run)(nil)
	_ sandbox.Interrupter    = (*run)(nil)
	_ sandbox.Meter          = (*run)(nil)
	_ sandbox.Pauser         = (*run)(nil)
	_ sandbox.Logger         = (*run)(nil)
	_ sandbox.FileTransferer = (*run)(nil)
	_ sandbox.Snapshotter    = (*run)(nil)
)

// ended records how the session ended, as the child says.
func (r *run) ended(exit sandbox.Exit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	saved := r.moved && exit.Reason == sandbox.Destroyed
	switch exit.Reason {
	case sandbox.OutOfMemory, sandbox.Exited, sandbox.EngineDied:
	default:
		exit.Reason = sandbox.EngineDied
	}
	if saved || r.destroyed && exit.Reason != sandbox.OutOfMemory {
		exit.Reason = sandbox.Destroyed
	}
	r.set(exit)
}

// died records that the child ended with the session.
func (r *run) died(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.destroyed {
		r.set(sandbox.Exit{Reason: sandbox.Destroyed})
		return
	}
	r.set(sandbox.Exit{Reason: sandbox.EngineDied, Detail: why})
}

// set is called once, by whoever took the run from the child's list.
func (r *run) set(exit sandbox.Exit) {
	exit.Code &= 0xff
	if exit.Reason != sandbox.Exited && exit.Code == 0 {
		exit.Code = 128 + int(unix.SIGKILL)
	}
	r.ending.Set(exit)
}

// Handle implements sandbox.Run.
func (r *run) Handle() sandbox.Handle { return r.handle }

// Channel implements sandbox.Duplexer.
func (r *run) Channel() sandbox.Channel { return r.streams.Channel() }

// Wait implements sandbox.Run.
func (r *run) Wait(ctx context.Context) (sandbox.Exit, error) { return r.ending.Wait(ctx) }

// sessionKillTime is how long a session may take to end before the child is ended with
// all of them: a child that does not end one is not to be trusted with the others. Code
// that finds a loop of the interpreter which does not look can bring it about.
const sessionKillTime = 5 * time.Second

// Destroy implements sandbox.Run.
func (r *run) Destroy(context.Context) error {
	r.mu.Lock()
	r.destroyed = true
	r.mu.Unlock()
	r.stop()
	select {
	case <-r.ending.Done():
	default:
		if !r.kill() {
			return r.fail("destroy", nil, errors.New("the process that runs sessions does not end"))
		}
	}
	r.once.Do(func() {
		r.streams.Close()
		r.release()
	})
	return nil
}

// answerTime bounds the wait for the answer to a request that was given up. A child that
// does not answer gives it up later: what it then still writes goes nowhere, and the
// session goes on.
const answerTime = 5 * time.Second

// kill ends the session and reports whether it has ended.
func (r *run) kill() bool {
	ctx, cancel := context.WithTimeout(context.Background(), r.patience)
	defer cancel()
	go func() { _, _ = r.child.do(ctx, r.request(control.OpKill)) }()
	if _, err := r.ending.Wait(ctx); err == nil {
		return true
	}
	if r.child.alive() {
		r.log.Warn("a session does not end: ending the process that runs it, with all its sessions",
			"session", r.handle.ID, "sessions", r.child.count(), "waited", r.patience)
	}
	return r.child.end()
}

func (r *run) request(op string) control.Request {
	return control.Request{Op: op, Session: r.number}
}

func (r *run) fail(op string, kind, err error) error {
	return &sandbox.Error{Op: op, Backend: Name, Kind: kind, Err: err}
}

// do sends a request about this session.
func (r *run) do(ctx context.Context, q control.Request, files ...*os.File) (control.Message, error) {
	return r.ask(ctx, 0, q, nil, files...)
}

// ask is do, but for a request of which it matters whether it was carried out, and calls
// sent when the child has the files.
func (r *run) ask(ctx context.Context, patience time.Duration, q control.Request, sent func(), files ...*os.File) (control.Message, error) {
	select {
	case <-r.ending.Done():
		return control.Message{}, r.fail(q.Op, sandbox.ErrGone, nil)
	default:
	}
	m, err := r.child.ask(ctx, patience, q, sent, files...)
	switch {
	case err == nil:
		return m, nil
	case errors.Is(err, sandbox.ErrGone):
		return m, r.fail(q.Op, sandbox.ErrGone, nil)
	}
	return m, r.fail(q.Op, nil, err)
}

// Interrupt implements sandbox.Interrupter.
func (r *run) Interrupt(ctx context.Context) error {
	_, err := r.do(ctx, r.request(control.OpInterrupt))
	return err
}

// Pause implements sandbox.Pauser.
func (r *run) Pause(ctx context.Context) error {
	_, err := r.ask(ctx, answerTime, r.request(control.OpPause), nil)
	return err
}

// Resume implements sandbox.Pauser.
func (r *run) Resume(ctx context.Context) error {
	_, err := r.do(ctx, r.request(control.OpResume))
	return err
}

// Usage implements sandbox.Meter.
func (r *run) Usage(ctx context.Context) (sandbox.Usage, error) {
	m, err := r.do(ctx, r.request(control.OpUsage))
	if err == nil && m.Usage == nil {
		err = r.fail(control.OpUsage, nil, errors.New("the process that runs sessions reported no usage"))
	}
	if err != nil {
		return sandbox.Usage{CPU: -1, MemoryBytes: -1, PeakBytes: -1}, err
	}
	return sandbox.Usage{
		CPU:         duration(m.Usage.CPUMicros, time.Microsecond),
		MemoryBytes: max(m.Usage.MemoryBytes, 0),
		PeakBytes:   max(m.Usage.PeakBytes, 0),
	}, nil
}

// Logs implements sandbox.Logger.
func (r *run) Logs(context.Context) (string, error) {
	select {
	case <-r.ending.Done():
		exit, _ := r.ending.Wait(context.Background())
		return exit.Detail, nil
	default:
		return r.child.said.String(), nil
	}
}

// Put implements sandbox.FileTransferer.
func (r *run) Put(ctx context.Context, path string, data io.Reader, size int64) error {
	in, out, err := os.Pipe()
	if err != nil {
		return r.fail(control.OpPut, nil, err)
	}
	copied := make(chan error, 1)
	go func() {
		// One byte more than was promised shows the other side that there is more.
		_, err := io.Copy(out, io.LimitReader(data, size+1))
		out.Close()
		copied <- err
	}()
	q := r.request(control.OpPut)
	q.Path, q.Size = path, size
	_, err = r.do(ctx, q, in)
	in.Close() // ends the copying, too
	select {
	case failed := <-copied:
		if failed != nil && !errors.Is(failed, unix.EPIPE) { // which only says that the other side has refused
			return r.fail(control.OpPut, nil, failed)
		}
	case <-ctx.Done(): // the reader may never return
	}
	return err
}

// Get implements sandbox.FileTransferer.
func (r *run) Get(ctx context.Context, path string) (io.ReadCloser, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, r.fail(control.OpGet, nil, err)
	}
	q := r.request(control.OpGet)
	q.Path = path
	_, err = r.do(ctx, q, out)
	out.Close()
	if err != nil {
		in.Close()
		return nil, err
	}
	return &received{in: in}, nil
}

// received is a file that the child sends. If a part of it is missing, it ends with an
// error. The last byte that has come is held back, because only what follows tells what
// it is.
type received struct {
	in   *os.File
	buf  [32 << 10]byte
	have []byte // of buf
	end  bool
}

func (f *received) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for len(f.have) < 2 {
		if f.end {
			if len(f.have) == 1 && f.have[0] == control.Whole {
				return 0, io.EOF
			}
			return 0, io.ErrUnexpectedEOF
		}
		kept := copy(f.buf[:], f.have)
		n, err := f.in.Read(f.buf[kept:])
		f.have = f.buf[:kept+n]
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		f.end = err != nil
	}
	n := copy(b, f.have[:len(f.have)-1])
	f.have = f.have[n:]
	return n, nil
}

func (f *received) Close() error { return f.in.Close() }

// snapshotName is the file of a snapshot.
const snapshotName = "session"

// Snapshot implements sandbox.Snapshotter.
func (r *run) Snapshot(ctx context.Context, dir string, keep bool) error {
	path := filepath.Join(dir, snapshotName)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return r.fail(control.OpSnapshot, nil, err)
	}
	r.setMoved(!keep)
	if err = r.receive(ctx, f, keep); err != nil {
		r.setMoved(false)
	}
	if err == nil && !keep && !r.kill() { // it ends by itself, whatever becomes of ctx
		err = r.fail(control.OpSnapshot, nil, errors.New("the session does not end"))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(path)
	}
	return err
}

// errTooLarge is the cause of a failure that only a child with a defect brings about.
var errTooLarge = errors.New("the state is larger than the session's limits allow")

// largestSnapshot returns a bound for snapshots of a session: its memory, in which its
// files are, what describes it, and some room.
func largestSnapshot(l sandbox.Limits) int64 {
	return l.MemoryBytes + l.MemoryBytes/64 + 64<<20
}

// receive has the child send the session's state through a pipe, so that it has no file
// of the host, and writes it to f. The session waits until all of it is written.
func (r *run) receive(ctx context.Context, f io.Writer, keep bool) error {
	in, out, err := os.Pipe()
	if err != nil {
		return r.fail(control.OpSnapshot, nil, err)
	}
	taken, take, err := os.Pipe()
	if err != nil {
		control.CloseAll([]*os.File{in, out})
		return r.fail(control.OpSnapshot, nil, err)
	}
	if raw, err := in.SyscallConn(); err == nil { // not Fd, which would take it from the poller
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20) })
	}
	copied := make(chan error, 1)
	go func() {
		defer control.CloseAll([]*os.File{in, take})
		n, err := io.Copy(f, io.LimitReader(in, r.largest+1))
		switch {
		case err == nil && n > r.largest:
			err = errTooLarge
		case err == nil && n == 0:
			err = io.ErrUnexpectedEOF
		case err == nil:
			_, err = take.Write([]byte{control.Whole})
		}
		copied <- err
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.life, cancel)()
	giveUp := func() { _ = in.SetReadDeadline(time.Unix(1, 0)) }
	defer context.AfterFunc(ctx, giveUp)()
	q := r.request(control.OpSnapshot)
	q.Keep = keep
	ours := func() { control.CloseAll([]*os.File{out, taken}) }
	_, err = r.ask(ctx, answerTime, q, ours, out, taken)
	ours()
	// Whoever has all of it has answered: what is on its way yet is not awaited.
	giveUp()
	if copyErr := <-copied; copyErr != nil && (err == nil || !errors.Is(copyErr, os.ErrDeadlineExceeded)) {
		err = errors.Join(err, r.fail(control.OpSnapshot, nil, copyErr))
	}
	if err != nil && r.life.Err() != nil {
		return r.fail(control.OpSnapshot, sandbox.ErrGone, nil)
	}
	return err
}

func (r *run) setMoved(moved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved = moved
}
