//go:build linux && (amd64 || arm64)

package wasm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"github.com/sallyport/sallyport/internal/executable"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/sandbox/wasm/control"
)

// child is a child process, as the engine sees it. What it says is not trusted.
type child struct {
	cmd   *exec.Cmd
	conn  *control.Conn
	walls string        // set once it is open
	loose error         // why the code that it has compiled is not kept, if it is not
	gone  chan struct{} // closed when the process has ended and its runs know
	why   string        // it ended; set before gone is closed
	said  words         // the beginning of what it wrote to standard error

	progress func(control.Progress)

	mu      sync.Mutex
	nextID  int64
	waiting map[int64]chan control.Message // nil when it is gone
	runs    map[int64]*run

	loading sync.Mutex // held while a program's image is loaded
	loaded  map[string]bool
}

// startTime bounds what a child needs to become ready when nothing has to be
// compiled; compiling takes a slow machine a minute or more.
const startTime = 5 * time.Minute

// spawn starts a child and waits until it has the interpreter and is confined. code is
// compiled code, an empty file that gets it, or nil.
func spawn(ctx context.Context, executable string, open control.Open, code *os.File, progress func(control.Progress)) (*child, error) {
	conn, theirs, err := control.Pair()
	if err != nil {
		return nil, err
	}
	c := &child{
		conn: conn, gone: make(chan struct{}), progress: progress,
		waiting: map[int64]chan control.Message{}, runs: map[int64]*run{}, loaded: map[string]bool{},
	}
	c.cmd = exec.Command(executable)
	c.cmd.Args = []string{control.Name}
	c.cmd.Env = []string{} // nothing of this program's environment, and not nil, which means all of it
	c.cmd.Dir = "/"
	c.cmd.ExtraFiles = []*os.File{theirs}
	c.cmd.Stderr = &c.said
	c.cmd.WaitDelay = time.Second
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's Ctrl-C is for this program
	started := make(chan error)
	go c.live(started)
	err = <-started
	theirs.Close()
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("starting the process for sessions: %w", err)
	}
	go c.listen()
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	var files []*os.File
	if code != nil {
		files = append(files, code)
	}
	m, err := c.do(ctx, control.Request{Op: control.OpOpen, Open: &open}, files...)
	if err != nil {
		c.end()
		return nil, err
	}
	c.walls = printable(strings.Join(m.Walls, ", "))
	return c, nil
}

// live starts the process and waits for it on one thread: the kernel ends the child
// when the thread that started it ends.
func (c *child) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := executable.Start(c.cmd, executable.Prompt)
	started <- err
	if err != nil {
		return
	}
	err = c.cmd.Wait()
	c.conn.Close()
	c.mu.Lock()
	runs := c.runs
	c.waiting, c.runs = nil, nil
	c.mu.Unlock()
	c.why = c.obituary(err)
	for _, r := range runs {
		r.died(c.why)
	}
	close(c.gone)
}

// obituary says for people how the process ended.
func (c *child) obituary(err error) string {
	out := "the process that runs sessions ended"
	if err != nil {
		out += " (" + err.Error() + ")"
	}
	if said := c.said.String(); said != "" {
		out += ": " + said
	}
	return out
}

// listen passes on what the child says, until it has nothing to say any more or says
// what makes no sense.
func (c *child) listen() {
	for {
		m, err := c.conn.Message()
		if err != nil {
			break
		}
		c.mu.Lock()
		switch {
		case m.ID != 0:
			if ch := c.waiting[m.ID]; ch != nil {
				delete(c.waiting, m.ID)
				ch <- m // has room
			}
		case m.Exit != nil:
			if r := c.runs[m.Session]; r != nil {
				delete(c.runs, m.Session)
				m.Exit.Detail = printable(m.Exit.Detail)
				r.ended(*m.Exit)
			}
		}
		c.mu.Unlock()
		if m.Progress != nil && c.progress != nil {
			c.progress(*m.Progress)
		}
	}
	_ = c.cmd.Process.Kill() // it may live on without its end of the socket
}

// alive reports whether the process has not ended.
func (c *child) alive() bool {
	select {
	case <-c.gone:
		return false
	default:
		return true
	}
}

// killTime bounds the wait for a process that was killed.
const killTime = 10 * time.Second

// end ends the process and all its sessions. It reports whether it is gone.
func (c *child) end() bool {
	_ = c.cmd.Process.Kill()
	select {
	case <-c.gone:
		return true
	case <-time.After(killTime):
		return false
	}
}

// errChildGone is the cause of what fails because the child has ended.
var errChildGone = errors.New("the process that runs sessions has ended")

// A goneError says how the child ended.
type goneError struct{ why string }

func (e goneError) Error() string { return e.why }

// Is makes it errChildGone, and sandbox.ErrGone for those who ask about a session.
func (goneError) Is(target error) bool { return target == errChildGone || target == sandbox.ErrGone }

// add takes a run in, whose number is then the child's name for it.
func (c *child) add(r *run) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		return errChildGone
	}
	c.nextID++
	r.number = c.nextID
	c.runs[r.number] = r
	return nil
}

// count returns how many runs have not ended.
func (c *child) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.runs)
}

// remove forgets a run.
func (c *child) remove(r *run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, r.number)
}

// do sends a request and waits for the answer. When ctx is done it gives the request up.
func (c *child) do(ctx context.Context, r control.Request, files ...*os.File) (control.Message, error) {
	return c.ask(ctx, 0, r, nil, files...)
}

// ask is do, but for a request of which it matters whether it was carried out: when ctx
// is done, it waits for a while for the answer to a request that was given up, and fails
// only if it was not carried out or there is no answer. It calls sent when the child has
// the files.
func (c *child) ask(ctx context.Context, patience time.Duration, r control.Request, sent func(), files ...*os.File) (control.Message, error) {
	ch := make(chan control.Message, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return control.Message{}, goneError{errChildGone.Error()}
	}
	c.nextID++
	r.ID = c.nextID
	c.waiting[r.ID] = ch
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, r.ID)
		c.mu.Unlock()
	}()
	if err := c.conn.Send(r, files...); errors.Is(err, control.ErrTooLarge) {
		return control.Message{}, err
	} else if err != nil {
		c.end() // half a request may be on its way
		return control.Message{}, goneError{"asking the process that runs sessions: " + err.Error()}
	}
	if sent != nil {
		sent()
	}
	answer := func(m control.Message) (control.Message, error) {
		switch m.Error {
		case "":
			return m, nil
		case sandbox.ErrGone.Error():
			return m, sandbox.ErrGone
		}
		return m, errors.New(cmp.Or(printable(m.Error), "it failed"))
	}
	var late <-chan time.Time // when the answer to a request that was given up is late
	done := ctx.Done()
	for {
		select {
		case m := <-ch:
			m, err := answer(m)
			if late != nil && err != nil && !errors.Is(err, sandbox.ErrGone) {
				err = ctx.Err()
			}
			return m, err
		case <-done:
			go c.abandon(r)
			if patience == 0 {
				return control.Message{}, ctx.Err()
			}
			done, late = nil, time.After(patience)
		case <-late:
			return control.Message{}, ctx.Err()
		case <-c.gone:
			select {
			case m := <-ch: // it came before the end
				return answer(m)
			default:
			}
			return control.Message{}, goneError{c.why}
		}
	}
}

// abandon gives up a request that may be under way or done. What it has started ends.
func (c *child) abandon(r control.Request) {
	_ = c.conn.Send(control.Request{Op: control.OpCancel, Cancel: r.ID})
	if r.Start != nil {
		// The child looks at the one after the session can be found, so one of the two
		// reaches it.
		_, _ = c.do(context.Background(), control.Request{Op: control.OpKill, Session: r.Session})
	}
}

// words keeps the beginning of what is written to it: a crash explains itself first, and
// a child says nothing before.
type words struct {
	mu   sync.Mutex
	data []byte
}

const maxWords = 8 << 10

var _ io.Writer = (*words)(nil)

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.data = append(w.data, b[:min(len(b), maxWords-len(w.data))]...)
	return len(b), nil
}

// String returns it as printable text.
func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return printable(string(w.data))
}

// maxText bounds what people read of what a child says.
const maxText = 16 << 10

// printable returns the beginning of what a child says as text that does nothing to the
// terminal of those who read it.
func printable(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), maxText)], "?")))
}

// duration returns what a child counts in a unit, made not negative and no more than
// fits.
func duration(n int64, unit time.Duration) time.Duration {
	return time.Duration(min(max(n, 0), math.MaxInt64/int64(unit))) * unit
}
