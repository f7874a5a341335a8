// Package tasks is the Tasks extension of the Model Context Protocol: a call
// that takes longer than a moment is answered with a task, which its client asks
// for, answers, cancels or listens to.
//
// A task is recorded on disk before its client learns of it. When the program
// that ran it has died, another one reports it as failed. A task is shown to the
// client that began it alone, also when that has connected again: see Owner.
package tasks

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/sallyport/sallyport/internal/budget"
	"github.com/sallyport/sallyport/internal/store"
)

// Extension is the name under which servers and clients declare the extension.
const Extension = "io.modelcontextprotocol/tasks"

const (
	// moment is how long a call may take before it becomes a task.
	moment = 2 * time.Second
	// poll is how often a client is asked to look.
	poll = time.Second
	// keptUnread is how long a task is kept after its end, and keptRead how long
	// after its client has seen the end.
	keptUnread, keptRead = 24 * time.Hour, time.Hour
	// sweepAfter is when records whose time is up are first looked for, and
	// sweepEvery how often after that.
	sweepAfter, sweepEvery = time.Second, time.Hour
	// maxTasks and maxBytes bound the tasks of a client and their results.
	maxTasks, maxBytes = 64, 32 << 20
	// maxQuestions bounds what one task asks at a time.
	maxQuestions = 16
)

var (
	// ErrCancelled is the cause of the context of a task that its client cancelled,
	// and the error of work that ended because of it.
	ErrCancelled = errors.New("cancelled by the client")
	// errNoTask: the work asks a client that cannot be asked.
	errNoTask = errors.New("the call cannot become a task, so its client cannot be asked")
)

// A Status says how a task is doing.
type Status string

// The statuses. The last three are final.
const (
	Working       Status = "working"
	InputRequired Status = "input_required"
	Completed     Status = "completed"
	Cancelled     Status = "cancelled"
	Failed        Status = "failed"
)

// Info is a task as its client sees it.
type Info struct {
	ID            string              `json:"taskId"`
	Status        Status              `json:"status"`
	Message       string              `json:"statusMessage,omitempty"`
	Created       time.Time           `json:"createdAt"`
	Updated       time.Time           `json:"lastUpdatedAt"`
	TTL           int64               `json:"ttlMs"` // from Created
	Poll          int64               `json:"pollIntervalMs"`
	InputRequests map[string]Question `json:"inputRequests,omitempty"`
	Result        json.RawMessage     `json:"result,omitempty"`
	Error         *jsonrpc.Error      `json:"error,omitempty"`
}

// Ended reports whether the status is final.
func (i *Info) Ended() bool { return i.Status != Working && i.Status != InputRequired }

// A Question is a request of the server to the client.
type Question struct {
	Method string `json:"method"`
	Params any    `json:"params,omitempty"`
}

// An Owner is who may see a task: the person, and the client as it calls itself.
// The ID tells clients of one name apart while they are connected: when the one that
// began a task has gone, it has a new ID if it was started anew, and another client
// of that name that knows the task's ID, which cannot be guessed, is taken for it.
type Owner struct{ Name, Client, ID string }

// sees reports whether who owns tasks of another owner. The lock is held.
func (s *Set) sees(who, began Owner) bool {
	return who.Name == began.Name && who.Client == began.Client && (who.ID == began.ID || s.connected[began.ID] == 0)
}

// Connect notes that a client with that ID (Owner.ID) is connected, until gone is
// called.
func (s *Set) Connect(id string) (gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected[id]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.connected[id]--; s.connected[id] == 0 {
			delete(s.connected, id)
		}
	})
}

// Work is a call that may become a task.
type Work struct {
	// Run returns the call's result, or its error: ErrCancelled, an error of the
	// protocol (*jsonrpc.Error), or any other, which is an internal error. It may
	// outlive the call; its context does not end with the call's then.
	Run func(context.Context, *Task) (any, error)
	// Answered is called before the call is answered, if it becomes a task. It may
	// be nil.
	Answered func()
}

// Options are what a Set needs.
type Options struct {
	Log *slog.Logger // required
	// Dir has the records; without a place they are kept in memory only.
	Dir store.Dir
	// Moment is how long a call may take before it becomes a task; 0 is two seconds.
	Moment time.Duration
	// Budget bounds the results in memory; others are read from their records. Nil
	// is the budget of the whole program.
	Budget *budget.Budget
}

// A Set is the tasks of a process. It is safe for concurrent use.
type Set struct {
	log    *slog.Logger
	dir    store.Dir
	moment time.Duration
	budget *budget.Budget
	work   sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	list      []*Task        // in the order in which they became tasks
	changed   chan struct{}  // closed and replaced when one changes
	connected map[string]int // connections of clients by Owner.ID
	tidies    *time.Timer
}

// New returns a set. From then on until Close it removes the records of tasks whose
// time is up, now and then.
func New(o Options) *Set {
	s := &Set{log: o.Log, dir: o.Dir, moment: o.Moment, budget: o.Budget, changed: make(chan struct{}), connected: map[string]int{}}
	if s.budget == nil {
		s.budget = budget.Program().Results
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tidies = time.AfterFunc(sweepAfter, s.tidy)
	if s.moment == 0 {
		s.moment = moment
	}
	return s
}

// Moment returns how long a call may take before it becomes a task.
func (s *Set) Moment() time.Duration { return s.moment }

// Close ends the work of all tasks, with cause, and waits for it.
func (s *Set) Close(cause error) {
	s.mu.Lock()
	s.closed = true
	s.tidies.Stop()
	for _, t := range s.list {
		t.cancel(cause)
	}
	s.mu.Unlock()
	s.work.Wait()
}

// Call does the work. It returns the work's result, or the task that the call
// has become because it takes longer than a moment. If ctx ends before that, so
// does the work's.
func (s *Set) Call(ctx context.Context, owner Owner, work Work) (any, *Info, error) {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	now := stamp()
	t := &Task{
		set: s, owner: owner, id: rand.Text(), cancel: cancel, created: now, updated: now, status: Working,
		done: make(chan struct{}), hurry: make(chan struct{}, 1), decided: make(chan struct{}), questions: map[string]question{},
	}
	go func() {
		defer cancel(nil)
		t.value, t.err = s.run(own, t, work)
		s.end(t)
		close(t.done)
	}()
	timer := time.NewTimer(s.moment)
	defer timer.Stop()
	select {
	case <-t.done:
	case <-ctx.Done():
	case <-timer.C:
	case <-t.hurry:
	}
	var info *Info
	if ctx.Err() == nil {
		info = s.keep(t)
	}
	close(t.decided)
	if info != nil {
		if work.Answered != nil {
			work.Answered()
		}
		return nil, info, nil
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		cancel(context.Cause(ctx))
		<-t.done
	}
	return t.value, nil, t.err
}

// run does the work. A defect that shows in it ends no other.
func (s *Set) run(ctx context.Context, t *Task, work Work) (value any, err error) {
	defer func() {
		if defect := recover(); defect != nil {
			s.log.Error("a call ended because of a defect", "defect", fmt.Sprint(defect), "stack", string(debug.Stack()))
			value, err = nil, errors.New("a defect of Sallyport ended the call; its log has the details")
		}
	}()
	return work.Run(ctx, t)
}

// keep makes a task of a call whose work goes on, and records it. It returns nil
// if it cannot.
func (s *Set) keep(t *Task) *Info {
	unlock, err := s.lock(t.id)
	if err != nil {
		s.log.Warn("a call does not become a task, because it cannot be recorded", "error", err)
		return nil
	}
	s.mu.Lock()
	if t.ended() || !s.room(t.owner) {
		s.mu.Unlock()
		unlock()
		return nil
	}
	t.kept = true
	s.list = append(s.list, t)
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		<-t.done
		unlock()
	}()
	info := t.info()
	info.InputRequests = nil // a new task has none
	info.Status = Working
	gone := s.expire(t.owner)
	s.mu.Unlock()
	for _, id := range gone {
		s.forget(id)
	}
	if err := s.record(t); err != nil {
		s.log.Warn("a call does not become a task, because it cannot be recorded", "error", err)
		s.mu.Lock()
		t.kept = false
		s.list = slices.DeleteFunc(s.list, func(x *Task) bool { return x == t })
		s.mu.Unlock()
		return nil
	}
	return info
}

// end notes what the work of a call has come to.
func (s *Set) end(t *Task) {
	result, err := json.RawMessage(nil), t.err
	if err == nil {
		result, err = marshal(t.value)
	}
	var failure *jsonrpc.Error
	s.mu.Lock()
	t.questions, t.expires = nil, stamp().Add(keptUnread)
	switch {
	case err == nil:
		t.status, t.result, t.size, t.why = Completed, result, len(result), ""
	case errors.Is(err, ErrCancelled):
		t.status, t.why = Cancelled, err.Error()
	case errors.As(err, &failure):
		t.status, t.failure, t.why = Failed, failure, failure.Message
	default:
		t.status, t.why = Failed, err.Error()
		t.failure = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	}
	kept := t.kept
	if kept && t.size > 0 {
		t.charged = s.budget.TryAcquire(int64(t.size))
	}
	if kept && !t.charged && t.size > 0 && !s.dir.Placed() {
		const full = "there is no room to keep the result, and no state directory to write it to"
		t.status, t.result, t.size, t.why = Failed, nil, 0, full
		t.failure = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: full}
	}
	s.change(t)
	s.mu.Unlock()
	if kept { // unless its record cannot be written
		<-t.decided
		s.mu.Lock()
		kept = t.kept
		s.mu.Unlock()
	}
	if !kept {
		s.mu.Lock()
		s.drop(t)
		s.mu.Unlock()
		return
	}
	t.value = nil
	if err := s.record(t); err != nil {
		s.log.Warn("the end of a task could not be recorded", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.charged {
		t.result = nil // it is read from the record
	}
}

// whole returns a task for its client, with a result that is only on disk.
func (s *Set) whole(i *Info) *Info {
	if i.Status == Completed && i.Result == nil {
		if r := s.read(i.ID); r != nil {
			i.Result = r.Task.Result
		}
	}
	return i
}

// seen records when a task is forgotten whose end its client knows now.
func (s *Set) seen(t *Task) {
	if err := s.record(t); err != nil {
		s.log.Warn("that a task was seen could not be recorded", "error", err)
	}
}

// change notes that a task has changed. The lock is held.
func (s *Set) change(t *Task) {
	t.updated = stamp()
	t.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

// find returns a task of an owner in this process, or nil. The lock is held.
func (s *Set) find(owner Owner, id string) *Task {
	for _, t := range s.list {
		if t.id == id && s.sees(owner, t.owner) && !(t.ended() && stamp().After(t.expires)) {
			return t
		}
	}
	return nil
}

// Get returns a task of an owner, or nil if there is none. It may have been begun
// by a process that has ended.
func (s *Set) Get(owner Owner, id string) *Info {
	s.mu.Lock()
	t := s.find(owner, id)
	if t == nil {
		s.mu.Unlock()
		return s.recorded(owner, id)
	}
	info, news := t.see()
	s.mu.Unlock()
	info = s.whole(info)
	if news {
		s.seen(t)
	}
	return info
}

// Update answers questions of a task and reports whether there is such a task.
// Answers to anything that is not asked are ignored.
func (s *Set) Update(owner Owner, id string, answers map[string]json.RawMessage) bool {
	s.mu.Lock()
	t := s.find(owner, id)
	if t == nil {
		s.mu.Unlock()
		return s.recorded(owner, id) != nil
	}
	defer s.mu.Unlock()
	for key, answer := range answers {
		if q, ok := t.questions[key]; ok {
			q.answer <- answer
			t.answered(key)
		}
	}
	return true
}

// Cancel ends a task and reports whether there is such a task. A task that has
// ended stays as it is, and so does one of another process that still runs.
func (s *Set) Cancel(owner Owner, id string) bool {
	s.mu.Lock()
	t := s.find(owner, id)
	if t == nil {
		s.mu.Unlock()
		return s.recorded(owner, id) != nil
	}
	defer s.mu.Unlock()
	t.cancel(ErrCancelled)
	return true
}

// Watchable returns those of the IDs that Watch can watch for an owner.
func (s *Set) Watchable(owner Owner, ids []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var own []string
	for _, id := range ids {
		if len(own) < maxTasks && !slices.Contains(own, id) && s.find(owner, id) != nil {
			own = append(own, id)
		}
	}
	return own
}

// Watch calls send with the tasks of an owner as they are, and again when their
// status changes, until all have ended or ctx is done.
func (s *Set) Watch(ctx context.Context, owner Owner, ids []string, send func(*Info)) {
	last := map[string]int{}
	for {
		var news []*Info
		var ended []*Task
		s.mu.Lock()
		changed, open := s.changed, false
		for _, id := range ids {
			t := s.find(owner, id)
			if t == nil {
				continue
			}
			open = open || !t.ended()
			if v, sent := last[id]; !sent || v != t.version {
				last[id] = t.version
				info, end := t.see()
				news = append(news, info)
				if end {
					ended = append(ended, t)
				}
			}
		}
		s.mu.Unlock()
		for _, one := range news {
			send(s.whole(one))
		}
		for _, t := range ended {
			s.seen(t)
		}
		if !open {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
