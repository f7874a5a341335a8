package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/sallyport/sallyport/internal/authz/approval"
	"github.com/sallyport/sallyport/internal/terminal"
)

// maxHeld bounds the output that waits for the end of a question. A program that
// writes more waits itself.
const maxHeld = 1 << 20

// A screen is a terminal that a program and questions share. While a question is
// shown, nothing else is. A nil screen has no questions.
type screen struct {
	u *ui

	mu     sync.Mutex
	free   sync.Cond // held has room again
	asking bool
	held   []func()
	size   int    // of what held writes
	open   bool   // the last line is unfinished
	meter  *meter // of the command; may be nil
}

func newScreen(u *ui) *screen {
	s := &screen{u: u}
	s.free.L = &s.mu
	return s
}

// output has write write p, the program's output, to w, or a copy of it once no
// question is shown. What goes to a file need not wait.
func (s *screen) output(w io.Writer, p []byte, write func(p []byte)) {
	if s == nil || toFile(w) {
		write(p)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.asking && s.size > 0 && s.size+len(p) > maxHeld {
		s.free.Wait()
	}
	s.put(w, p, write)
}

// aside is output for what this program says itself. It does not block.
func (s *screen) aside(w io.Writer, p []byte, write func(p []byte)) {
	if s == nil {
		write(p)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(w, p, write)
}

// put writes, now or later. The lock is held.
func (s *screen) put(w io.Writer, p []byte, write func(p []byte)) {
	if !s.asking {
		s.write(w, p, write)
		return
	}
	p = bytes.Clone(p)
	s.size += len(p)
	s.held = append(s.held, func() { s.write(w, p, write) })
}

// write writes. The lock is held.
func (s *screen) write(w io.Writer, p []byte, write func(p []byte)) {
	write(p)
	if len(p) > 0 && terminal.Is(w) {
		s.open = p[len(p)-1] != '\n'
	}
}

// toFile reports whether w is a file, which no one watches.
func toFile(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// begin lets a question have the screen. The styles of the output before end.
func (s *screen) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = true
	s.u.starts.hold(true)
	s.meter.hold(true)
	terminal.Flush(s.u.stdio.Out)
	terminal.Flush(s.u.stdio.Err)
	if s.open {
		fmt.Fprintln(s.u.stdio.Err)
	}
	s.open = false
	fmt.Fprintln(s.u.stdio.Err, s.u.paint(s.u.stdio.Err, terminal.Bold, "--- Sallyport asks you. What the program writes waits. ---"))
}

// end shows what was held.
func (s *screen) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.u.stdio.Err, s.u.paint(s.u.stdio.Err, terminal.Bold, "--- The program goes on. ---"))
	for _, write := range s.held {
		write()
	}
	s.held, s.size, s.asking = nil, 0, false
	s.free.Broadcast()
	s.meter.hold(false)
	s.u.starts.hold(false)
}

// askFrom asks the questions of the program that runs in a hub, by its request's ID,
// once asked was called, until end.
func (d *dialog) askFrom(request string) (asked func(text string), end func()) {
	ctx, cancel := context.WithCancel(d.ctx)
	var asking sync.WaitGroup
	begin := sync.OnceFunc(func() {
		asking.Go(func() {
			d.from = d.poll(ctx, func([]string) {})
			d.attend(ctx, func() {}, func(q *approval.Question) bool { return q.Execution == request })
		})
	})
	return func(string) { begin() }, sync.OnceFunc(func() {
		cancel()
		asking.Wait()
	})
}

// attend asks the questions of a program that are mine, until ctx is done. first is
// called with each.
func (d *dialog) attend(ctx context.Context, first func(), mine func(*approval.Question) bool) {
	seen := map[string]int{} // revisions, by ID
	for {
		q, err := d.from.Next(ctx, func(q *approval.Question) bool { return q.ForPeople() && mine(q) && seen[q.ID] < q.Revision })
		if err != nil {
			return
		}
		first()
		told := seen[q.ID] > 0
		seen[q.ID] = q.Revision
		if d.keys.away() {
			if !told {
				fmt.Fprintln(asideWriter{d.ui}, waitingText(&q))
			}
			continue
		}
		d.screen.begin()
		seen[q.ID], _ = d.ask(ctx, q) // what was left open is said below
		if _, gone := d.from.Get(q.ID); gone == nil && ctx.Err() == nil {
			d.say("%s is left open: answer in another terminal with 'sallyport approvals'.\n", q.ID)
		}
		d.screen.end()
	}
}
