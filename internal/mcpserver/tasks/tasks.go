// Package tasks is the Tasks extension of the Model Context Protocol: a call
// that takes longer than a moment is answered with a task, which its client asks
// for, answers, cancels or listens to.
//
// A task is recorded on disk before its client learns of it. When the program
// that ran it has died, another one reports it as failed. A task is shown to the
// owner and the client that began it alone; its ID cannot be
// guessed.
package tasks

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

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
	// maxTasks and maxBytes bound the tasks of an owner and their results.
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
type Owner struct{ Name, Client string }

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
}

// A Set is the tasks of a process. It is safe for concurrent use.
type Set struct {
	log    *slog.Logger
	dir    store.Dir
	moment time.Duration
	work   sync.WaitGroup
	swept  sync.Once

	mu      sync.Mutex
	closed  bool
	list    []*Task       // in the order in which they became tasks
	changed chan struct{} // closed and replaced when one changes
}

// New returns a set. It reads nothing.
func New(o Options) *Set {
	s := &Set{log: o.Log, dir: o.Dir, moment: o.Moment, changed: make(chan struct{})}
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
	for _, t := range s.list {
		t.cancel(cause)
	}
	s.mu.Unlock()
	s.work.Wait()
}

// Room reports whether another call of the owner may become a task. Results that
// the client knows make room.
func (s *Set) Room(owner Owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.room(owner)
}

// room is Room. The lock is held.
func (s *Set) room(owner Owner) bool {
	count, size := 0, 0
	for _, t := range s.list {
		if t.owner.Name == owner.Name && !t.seen {
			count, size = count+1, size+len(t.result)
		}
	}
	return !s.closed && count < maxTasks && size < maxBytes
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
		t.value, t.err = work.Run(own, t)
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

// keep makes a task of a call whose work goes on, and records it. It returns nil
// if it cannot.
func (s *Set) keep(t *Task) *Info {
	s.swept.Do(s.sweep)
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
	gone := s.expire(t.owner.Name)
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
		t.status, t.result, t.why = Completed, result, ""
	case errors.Is(err, ErrCancelled):
		t.status, t.why = Cancelled, err.Error()
	case errors.As(err, &failure):
		t.status, t.failure, t.why = Failed, failure, failure.Message
	default:
		t.status, t.why = Failed, err.Error()
		t.failure = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
	}
	kept := t.kept
	s.change(t)
	s.mu.Unlock()
	if kept { // unless its record cannot be written
		<-t.decided
		s.mu.Lock()
		kept = t.kept
		s.mu.Unlock()
	}
	if !kept {
		return
	}
	t.value = nil
	if err := s.record(t); err != nil {
		s.log.Warn("the end of a task could not be recorded", "error", err)
	}
}

// change notes that a task has changed. The lock is held.
func (s *Set) change(t *Task) {
	t.updated = stamp()
	t.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

// expire forgets the tasks whose time is up, and those of an owner whose end was
// seen where there are too many. It returns their IDs. The lock is held.
func (s *Set) expire(owner string) (gone []string) {
	count, size := 0, 0
	for _, t := range s.list {
		if t.owner.Name == owner {
			count, size = count+1, size+len(t.result)
		}
	}
	now := stamp()
	s.list = slices.DeleteFunc(s.list, func(t *Task) bool {
		over := t.owner.Name == owner && t.seen && (count > maxTasks || size > maxBytes)
		if !t.ended() || !over && now.Before(t.expires) {
			return false
		}
		if t.owner.Name == owner {
			count, size = count-1, size-len(t.result)
		}
		gone = append(gone, t.id)
		return true
	})
	return gone
}

// find returns a task of an owner in this process, or nil. The lock is held.
func (s *Set) find(owner Owner, id string) *Task {
	for _, t := range s.list {
		if t.id == id && t.owner == owner && !(t.ended() && stamp().After(t.expires)) {
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
	if t != nil {
		defer s.mu.Unlock()
		return t.see()
	}
	s.mu.Unlock()
	return s.recorded(owner, id)
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
				news = append(news, t.see())
			}
		}
		s.mu.Unlock()
		for _, one := range news {
			send(one)
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
