package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/sallyport/sallyport/internal/session"
	"github.com/sallyport/sallyport/internal/session/capture"
)

// Clients give up on a call after a minute or so. A call with Request.Within is
// answered by then with what its code has written so far, and the code goes on
// in the background. A call without code on the same session waits for the rest.

// A place is where code runs in the background, as a later call names it.
type place struct {
	session session.Key
	service string // the batch service; empty: the session's own engine
	client  string // who runs it: others that use the session neither see nor end it
}

// place returns where the request's code runs.
func (b *Broker) place(req *Request) place {
	p := place{session: req.key(), client: req.client.id}
	if _, ok := b.config.Batch.Services[req.Backend]; ok {
		p.service = req.Backend
	}
	return p
}

// A task is code whose answer may come after that of the call that began it.
type task struct {
	client   *Client
	place    place
	label    string // of the session, as the agent names it
	first    string // the first line of the code
	began    time.Time
	activity *Activity
	whole    bool // its own call waits to the end: see Request.Whole
	partial  *session.Partial
	cancel   context.CancelCauseFunc
	done     chan struct{}
	result   *Result // set before done is closed

	// Guarded by tasks.mu.
	kept bool      // in tasks.list
	end  time.Time // zero: it runs
	read time.Time // when a call first received result; zero: none has
}

// Results that no call has read are kept; those that one has read, for an hour,
// because an answer may be lost on its way.
const (
	keptAfterRead = time.Hour
	maxTasks      = 64       // of all sessions of a client, ended ones included
	maxTaskBytes  = 32 << 20 // of their results
)

// tasks holds those that calls were answered before the end of. It is
// safe for concurrent use.
type tasks struct {
	log *slog.Logger
	all sync.WaitGroup

	mu     sync.Mutex
	closed bool
	list   []*task // in the order in which they were kept
}

// run runs a task and returns its result, or what is known after within.
func (g *tasks) run(ctx context.Context, t *task, within time.Duration, run func(context.Context) *Result) *Result {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	t.cancel, t.done = cancel, make(chan struct{})
	g.mu.Lock()
	closed := g.closed
	if !closed {
		g.all.Add(1)
	}
	g.mu.Unlock()
	if closed {
		cancel(nil)
		return run(ctx)
	}
	go func() {
		defer g.all.Done()
		defer cancel(nil)
		t.result = run(own)
		g.mu.Lock()
		t.end = time.Now()
		g.mu.Unlock()
		close(t.done)
	}()
	return g.wait(ctx, t, within, true)
}

// wait waits for the end of a task, for the call that began it or for one
// without code. The task is cancelled when ctx is, but not because a client that
// only waited has gone.
func (g *tasks) wait(ctx context.Context, t *task, within time.Duration, began bool) *Result {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-t.done:
	case <-ctx.Done():
	case <-timer.C:
	}
	if ctx.Err() == nil && !t.ended() && g.keep(t) {
		if !began || !t.whole {
			return t.soFar()
		}
		select {
		case <-t.done:
		case <-ctx.Done():
		}
	}
	switch { // even if the time is up as well: the code must not go on
	case t.ended() || ctx.Err() == nil: // in the latter case the program ends, and so does the code
	case !began && errors.Is(context.Cause(ctx), session.ErrStop):
		return &Result{Status: Running, Summary: "The code goes on"} // no one reads it
	default:
		t.cancel(context.Cause(ctx))
	}
	<-t.done
	return g.take(t, began)
}

// ended reports whether the task's result is there.
func (t *task) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// keep lets later calls find a task. It reports whether they can.
func (g *tasks) keep(t *task) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || t.client.isGone() {
		return false
	}
	if !t.kept {
		t.kept = true
		g.list = append(g.list, t)
	}
	g.expire(t.place.client)
	return true
}

// take returns the result of a task that has ended, and notes that it was read. To
// others than the call that began the task, a result that was read before says so,
// or it could be taken for a new one.
func (g *tasks) take(t *task, began bool) *Result {
	g.mu.Lock()
	defer g.mu.Unlock()
	if began || t.read.IsZero() {
		t.read = time.Now()
		return t.result
	}
	c := *t.result
	c.Notes = append(slices.Clone(c.Notes), fmt.Sprintf("this result was returned before, %s ago: no code has run in the background since", ago(t.read)))
	return &c
}

// find returns the task at a place that a call without code waits for: the one
// that ended first without being read, else the one that runs, else the last.
// It returns nil if there is none.
func (g *tasks) find(p place) *task {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(p.client)
	if t := g.first(p, (*task).isUnread); t != nil {
		return t
	}
	if t := g.first(p, (*task).runs); t != nil {
		return t
	}
	for _, t := range slices.Backward(g.list) {
		if t.place == p {
			return t
		}
	}
	return nil
}

// running returns the task that runs at a place, or nil.
func (g *tasks) running(p place) *task {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first(p, (*task).runs)
}

// unread describes a task at a place whose result no call has read.
func (g *tasks) unread(p place) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.first(p, (*task).isUnread)
	if t == nil {
		return ""
	}
	return fmt.Sprintf("the code that began %s ago has ended, and its result was not read: a call with empty code returns it", ago(t.began))
}

// first returns the task at a place that was kept first of those that are so, or
// nil. The lock is held, also for runs, isUnread and size.
func (g *tasks) first(p place, so func(*task) bool) *task {
	for _, t := range g.list {
		if t.place == p && so(t) {
			return t
		}
	}
	return nil
}

func (t *task) runs() bool     { return t.end.IsZero() }
func (t *task) isUnread() bool { return !t.runs() && t.read.IsZero() }

// size returns about how many bytes the task's result holds.
func (t *task) size() int {
	if t.runs() {
		return 0
	}
	return t.result.Size()
}

// expire forgets results that were read long ago, and the oldest ones of a client
// that has too many: those that were read first. The lock is held.
func (g *tasks) expire(client string) {
	g.list = slices.DeleteFunc(g.list, func(t *task) bool {
		return !t.runs() && !t.isUnread() && time.Since(t.read) > keptAfterRead
	})
	count, size := 0, 0
	for _, t := range g.list {
		if t.place.client == client {
			count, size = count+1, size+t.size()
		}
	}
	for ; count > maxTasks || size > maxTaskBytes; count-- {
		oldest := func(so func(*task) bool) int {
			return slices.IndexFunc(g.list, func(t *task) bool { return t.place.client == client && so(t) })
		}
		i := oldest(func(t *task) bool { return !t.runs() && !t.isUnread() })
		if i < 0 {
			if i = oldest((*task).isUnread); i < 0 {
				return // all run
			}
			g.log.Warn("a result that no call has read was dropped to make room", "session", g.list[i].label)
		}
		size -= g.list[i].size()
		g.list = slices.Delete(g.list, i, i+1)
	}
}

// cancel ends the tasks that choose accepts, and reports whether there was one.
func (g *tasks) cancel(cause error, choose func(*task) bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := false
	for _, t := range g.list {
		if choose(t) && t.runs() {
			t.cancel(cause)
			found = true
		}
	}
	return found
}

// leave ends the tasks of a client that has gone, except those that it declared to
// outlive its connection, and drops the results of all.
func (g *tasks) leave(client string) {
	g.cancel(errGone, func(t *task) bool { return t.place.client == client && !t.whole })
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = slices.DeleteFunc(g.list, func(t *task) bool { return t.place.client == client })
}

// stop ends all tasks. None is kept after that.
func (g *tasks) stop() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel(session.ErrStop, func(*task) bool { return true })
}

// soFar is the answer of a call whose code goes on: what the code has written
// since the previous answer.
func (t *task) soFar() *Result {
	r := &Result{Status: Running}
	if !t.whole { // else the call that began it gets it all
		stdout, stderr := t.partial.Take()
		r.Stdout, r.Stderr, r.Truncated = lines(stdout), lines(stderr), truncated(stdout, stderr)
		r.Dropped = [2]Dropped{stdout.Lost, stderr.Lost}
	}
	r.Summary = "Still running after " + ago(t.began)
	if what := t.activity.String(); what != "" {
		r.Summary += ": " + what
	}
	r.Notes = []string{"still running: " + t.state() + ". Call again with empty code to wait for the rest" + t.stopHint()}
	return r
}

// busy is the answer to a call for a session whose code runs in the background.
func (t *task) busy() *Result {
	message := fmt.Sprintf("The session is busy: %s. Nothing was run. Call with empty code to wait for it%s", t.state(), t.stopHint())
	return &Result{Status: Failed, Summary: message, Error: message}
}

// stopHint says how to end a task, where that is possible.
func (t *task) stopHint() string {
	if t.place.service != "" {
		return ""
	}
	return fmt.Sprintf(", or run `runtime.cancel(%q)` in another session to stop it", t.label)
}

// state says what a task is and does.
func (t *task) state() string {
	s := fmt.Sprintf("the code that began %s ago", ago(t.began))
	if t.first != "" {
		s += fmt.Sprintf(" with %q", t.first)
	}
	if what := t.activity.String(); what != "" {
		s += " (" + what + ")"
	}
	return s
}

// ago returns how long ago a moment was, in words.
func ago(t time.Time) string { return time.Since(t).Round(time.Second).String() }

// firstLine returns the first line of code that is not blank, shortened.
func firstLine(code string) string {
	const most = 60
	for line := range strings.Lines(code) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		line = strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return ' '
			}
			return r
		}, line[:min(len(line), 4*most)])
		if len(line) > most {
			line = strings.ToValidUTF8(line[:most], "") + "…"
		}
		return line
	}
	return ""
}

// truncated returns what was left out of a result's streams, or nil.
func truncated(stdout, stderr capture.Output) *Truncated {
	if stdout.Omitted == 0 && stderr.Omitted == 0 {
		return nil
	}
	return &Truncated{Stdout: stdout.Omitted, Stderr: stderr.Omitted}
}

// Size returns about how many bytes a result holds.
func (r *Result) Size() int {
	if r == nil {
		return 0
	}
	n := len(r.Error)
	for _, note := range r.Notes {
		n += len(note)
	}
	for _, lines := range [][]string{r.Stdout, r.Stderr} {
		for _, line := range lines {
			n += len(line) + 16 // its string
		}
	}
	for _, a := range r.Artifacts {
		n += len(a.Path) + 64 // what holds it
	}
	for _, i := range r.Images {
		n += len(i.Data) + len(i.Path) + len(i.About)
	}
	for _, path := range r.Unshown {
		n += len(path) + 16
	}
	return n
}

// Activity says what an execution does right now, for whoever waits for it.
// The zero value says nothing. It is safe for concurrent use.
type Activity struct{ say atomic.Pointer[func() string] }

// String returns a few words, such as "starting server github" or "calling
// jira.search, 12 of 40 done", or nothing where nothing is known.
func (a *Activity) String() string {
	if a == nil {
		return ""
	}
	if say := a.say.Load(); say != nil {
		return (*say)()
	}
	return ""
}

// Follow has String return what say does.
func (a *Activity) Follow(say func() string) {
	if a != nil {
		a.say.Store(&say)
	}
}
