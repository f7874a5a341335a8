package tasks

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// A Task is one call. Its methods are for the call's work.
type Task struct {
	set     *Set
	owner   Owner
	id      string
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed at the end of the work
	value   any           // of a call that did not become a task; set before done is closed
	err     error
	hurry   chan struct{} // a token: the work asks the client, who needs a task for that
	decided chan struct{} // closed once it is clear whether this is a task
	writes  sync.Mutex    // held while the record is written

	// Guarded by set.mu.
	kept      bool // in set.list
	created   time.Time
	updated   time.Time
	status    Status
	message   func() string   // of Working
	why       string          // the message of other statuses
	result    json.RawMessage // nil where it is only on disk
	size      int             // of the result
	charged   bool            // the result is charged to the budget
	failure   *jsonrpc.Error
	expires   time.Time // of tasks that have ended
	version   int       // counts changes
	seen      bool      // the client knows that it has ended
	asked     int       // questions, in all
	questions map[string]question
}

type question struct {
	Question
	answer chan json.RawMessage // with room for it
}

// Describe sets what tells about the task while it works.
func (t *Task) Describe(say func() string) {
	t.set.mu.Lock()
	defer t.set.mu.Unlock()
	t.message = say
}

// Ask asks the client and returns its answer. The call becomes a task at once. The
// client must have declared what the question needs.
func (t *Task) Ask(ctx context.Context, q Question) (json.RawMessage, error) {
	select {
	case t.hurry <- struct{}{}:
	default:
	}
	select {
	case <-t.decided:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s := t.set
	s.mu.Lock()
	if !t.kept || t.ended() || len(t.questions) == maxQuestions {
		s.mu.Unlock()
		return nil, errNoTask
	}
	t.asked++
	key := "input-" + strconv.Itoa(t.asked) // never used again
	answer := make(chan json.RawMessage, 1)
	t.questions[key] = question{q, answer}
	t.status = InputRequired
	s.change(t)
	s.mu.Unlock()
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		t.answered(key)
		return nil, context.Cause(ctx)
	}
}

// answered takes a question back. The set's lock is held.
func (t *Task) answered(key string) {
	if delete(t.questions, key); len(t.questions) == 0 && !t.ended() {
		t.status = Working
	}
	t.set.change(t)
}

// ended reports whether the status is final. The set's lock is held, also for see
// and info.
func (t *Task) ended() bool { return t.status != Working && t.status != InputRequired }

// see returns the task for its client, who knows about its end from then on. news
// reports that the client did not know it before: see Set.seen.
func (t *Task) see() (info *Info, news bool) {
	if news = t.ended() && !t.seen; news {
		t.seen = true
		if until := stamp().Add(keptRead); until.Before(t.expires) {
			t.expires = until
		}
	}
	return t.info(), news
}

func (t *Task) info() *Info {
	i := &Info{
		ID: t.id, Status: t.status, Message: t.why, Created: t.created, Updated: t.updated,
		Poll: poll.Milliseconds(), Result: t.result, Error: t.failure,
	}
	until := t.expires
	if !t.ended() {
		until = stamp().Add(keptUnread)
	}
	i.TTL = until.Sub(t.created).Milliseconds()
	if t.status == Working && t.message != nil {
		i.Message = t.message()
	}
	if len(t.questions) > 0 {
		i.InputRequests = map[string]Question{}
		for key, q := range t.questions {
			i.InputRequests[key] = q.Question
		}
	}
	return i
}

// stamp returns the time as it is sent.
func stamp() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
