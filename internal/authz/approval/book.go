package approval

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/store"
)

const (
	// maxOpen bounds the open questions of one execution: approvals, and apart from them
	// what servers ask, which leaves the room for approvals alone.
	maxOpen = 16
	// maxCalls and maxShown bound what one question shows: calls, and bytes of
	// arguments.
	maxCalls, maxShown = 1000, 512 << 10
	// maxArguments bounds the arguments of one call, and maxName the names of its
	// server and tool, in bytes.
	maxArguments, maxName = 100, 1000
	// A question is put to people once no call has joined it for settle, or after
	// settleMost: the calls of a loop come one after the other.
	settle, settleMost = 200 * time.Millisecond, time.Second
	// maxRemembered bounds the answered questions that later answers hear of.
	maxRemembered = 256
)

// ErrUnknown: there is no such question, or it was withdrawn.
var ErrUnknown = errors.New("no such question is open: its execution ended, or there was no answer in time")

// errNever: no one may be asked.
var errNever = errors.New("approvals.timeout: never lets no one be asked")

// Config is what a Book needs.
type Config struct {
	// Timeout is how long a call waits for an answer; 0: no one is asked.
	Timeout time.Duration
	// Records is where open questions are noted; without a place they are not.
	Records store.Dir
	// Lost records what Reap finds, before it is forgotten; nil: nothing does.
	Lost  func([]Lost) error
	Rules Rules               // nil: no answer writes a rule
	Mask  func(string) string // hides known secrets; nil: there are none
	// Notify is called with each question once it has settled. It must not block.
	Notify func(Question)
	Log    *slog.Logger // required
	// Journal receives each question that has settled, and how it ended; it may be
	// nil.
	Journal *journal.Journal
}

// Rules writes rules for the calls of a tool.
type Rules interface {
	// Propose returns what Write would write to allow the tool for good, or why
	// that cannot be: asks is the rule that asks.
	Propose(call authz.CallTool, asks authz.Verdict) (Rule, error)
	// Write writes a rule, which counts when Write returns.
	Write(Rule) error
}

// A Book holds the open questions of a process. It is an [authz.Asker], and safe
// for concurrent use.
type Book struct {
	config Config
	record recorder

	mu       sync.Mutex
	open     []*question // in the order in which they were opened
	grants   []*grant
	answered map[string]string // what became of questions, by ID
	order    []string          // of answered
	lost     []Lost            // see Reap
	changed  chan struct{}     // closed and replaced when something changes
}

// New returns a Book. Questions that killed processes left are reported.
func New(config Config) *Book {
	b := &Book{config: config, answered: map[string]string{}, changed: make(chan struct{})}
	b.record = recorder{dir: config.Records, name: strings.ToLower(rand.Text()[:12]), log: config.Log}
	return b
}

// Close ends the record on disk. Calls that wait end with their contexts.
func (b *Book) Close() { b.record.close() }

// Ask implements authz.Asker.
func (b *Book) Ask(ctx context.Context, p authz.Principal, a authz.Action, why authz.Decision) (authz.Answer, error) {
	if b.config.Timeout == 0 {
		return authz.Answer{}, errNever
	}
	s, err := subjectOf(ctx, a)
	if err != nil {
		return authz.Answer{}, fmt.Errorf("no one could be asked to allow it: %w", err)
	}
	b.mu.Lock()
	if g := b.covered(p, why.By(), &s); g != nil {
		defer b.mu.Unlock()
		return g.use(), nil
	}
	c, err := b.join(p, s, why)
	b.mu.Unlock()
	if err != nil {
		return authz.Answer{}, err
	}
	return b.wait(ctx, c)
}

// lateError: no answer came in time.
type lateError struct{ within time.Duration }

func (e lateError) Error() string {
	return fmt.Sprintf("no answer came within %s (approvals.timeout)", e.within)
}

// wait waits for the answer to a call that has joined a question.
func (b *Book) wait(ctx context.Context, c *call) (authz.Answer, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, c.deadline, lateError{b.config.Timeout})
	defer cancel()
	b.note()
	select {
	case answer := <-c.answer:
		return answer, nil
	case <-ctx.Done():
	}
	b.leave(c, context.Cause(ctx))
	select {
	case answer := <-c.answer: // just before it left
		return answer, nil
	default:
		return authz.Answer{}, context.Cause(ctx)
	}
}

// join adds a call to the question about such calls, or opens one. The lock is
// held.
func (b *Book) join(p authz.Principal, s subject, why authz.Decision) (*call, error) {
	now, open := time.Now(), 0
	var q *question
	for _, o := range b.open {
		if o.principal.Owner != p.Owner || o.principal.Request != p.Request {
			continue
		}
		if (o.subject.asks != nil) == (s.asks != nil) {
			open++
		}
		if o.subject.target == s.target && !s.single && o.why.By() == why.By() {
			q = o
		}
	}
	switch {
	case q == nil && open >= maxOpen:
		return nil, fmt.Errorf("%d questions of this execution wait for an answer, as many as may: it was not asked", open)
	case q == nil:
		q = &question{id: b.newID(), principal: p, why: why, subject: s, since: now, ended: make(chan struct{})}
		b.open = append(b.open, q)
	}
	c := &call{subject: s, deadline: now.Add(b.config.Timeout), answer: make(chan authz.Answer, 1)}
	q.add(c)
	b.settles(q)
	b.change()
	return c, nil
}

// newID returns the ID of a question: short enough to be typed. The lock is held.
func (b *Book) newID() string {
	for {
		id := strings.ToLower(rand.Text()[:4])
		_, used := b.answered[id]
		if !used && b.find(id) == nil {
			return id
		}
	}
}

// settles has a question put to people when no call has joined it for a moment.
// The lock is held.
func (b *Book) settles(q *question) {
	if q.settled {
		return
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	after := min(settle, time.Until(q.since.Add(settleMost)))
	if q.subject.asks != nil { // nothing joins it
		after = 0
	}
	q.timer = time.AfterFunc(max(after, 0), func() {
		b.mu.Lock()
		news := !q.settled && !q.over()
		q.settled = true
		var shown Question
		if news {
			shown = b.show(q)
			b.change()
			b.tell(q, &shown)
		}
		b.mu.Unlock()
		if news {
			b.note()
			if b.config.Notify != nil && shown.ForPeople() {
				b.config.Notify(shown)
			}
		}
	})
}

// leave takes back a call that was cancelled or has waited long enough.
func (b *Book) leave(c *call, why error) {
	b.mu.Lock()
	for _, q := range slices.Clone(b.open) {
		if i := slices.Index(q.calls, c); i >= 0 {
			q.calls = slices.Delete(q.calls, i, i+1)
			q.fill()
			q.told.left, q.told.why = q.told.left+1, why
			if len(q.calls) == 0 {
				b.end(q, "", authz.Answer{}, 0)
			}
		}
	}
	b.change()
	b.mu.Unlock()
	b.note()
}

// end closes a question, with the answer to so many calls, if there was one. What
// became of it is remembered for later answers. The lock is held.
func (b *Book) end(q *question, what string, answer authz.Answer, calls int) {
	b.tellEnd(q, answer, calls)
	q.timer.Stop()
	close(q.ended)
	b.open = slices.DeleteFunc(b.open, func(o *question) bool { return o == q })
	if what == "" {
		return
	}
	b.answered[q.id] = what
	if b.order = append(b.order, q.id); len(b.order) > maxRemembered {
		delete(b.answered, b.order[0])
		b.order = b.order[1:]
	}
}

// change wakes whoever waits for news. The lock is held.
func (b *Book) change() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// note records on disk which questions are open.
func (b *Book) note() {
	b.record.write(func() []Lost {
		b.mu.Lock()
		defer b.mu.Unlock()
		out := make([]Lost, 0, len(b.open))
		for _, q := range b.open {
			shown := b.head(q)
			out = append(out, Lost{
				ID: q.id, Process: shown.Process, Name: shown.Name(), Calls: shown.Waiting, Since: q.since,
				Owner: shown.Owner, Client: shown.Client, Session: shown.Session, Execution: shown.Execution,
				Action: shown.Action, Server: shown.Server, Item: shown.Item,
			})
		}
		return out
	})
}

// find returns an open question, or nil. The lock is held.
func (b *Book) find(id string) *question {
	for _, q := range b.open {
		if q.id == id {
			return q
		}
	}
	return nil
}

// List returns the open questions, the oldest first, without their calls.
func (b *Book) List() []Question {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Question, 0, len(b.open))
	for _, q := range b.open {
		out = append(out, b.head(q))
	}
	return out
}

// Get returns an open question as it is now. The error is ErrUnknown, or says who
// has answered it.
func (b *Book) Get(id string) (Question, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.find(id)
	if q == nil {
		return Question{}, b.gone(id)
	}
	return b.show(q), nil
}

// gone says why a question is not open. The lock is held.
func (b *Book) gone(id string) error {
	if what, ok := b.answered[id]; ok {
		return &AnsweredError{what}
	}
	return ErrUnknown
}

// An AnsweredError says who has answered a question before, and how.
type AnsweredError struct{ what string }

func (e *AnsweredError) Error() string { return "answered already: " + e.what }

// Next waits for an open question that has settled and is wanted, and returns it.
func (b *Book) Next(ctx context.Context, wanted func(*Question) bool) (Question, error) {
	for {
		b.mu.Lock()
		changed := b.changed
		for _, q := range b.open {
			if head := b.head(q); q.settled && wanted(&head) {
				defer b.mu.Unlock()
				return b.show(q), nil
			}
		}
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return Question{}, context.Cause(ctx)
		}
	}
}

// Connection returns the client connection whose code asks.
func (q *Question) Connection() string { return q.connection }

// Changed is closed when a question is opened, grows or ends.
func (b *Book) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// head describes a question without its calls. The lock is held.
func (b *Book) head(q *question) Question {
	s, because := &q.subject, q.why.Verdict.Because
	if s.action == "install_packages" && q.why.Reason != nil {
		because = q.why.Reason.Error() // a name may be misspelt
	}
	out := Question{
		ID: q.id, Revision: q.joined, Process: os.Getpid(),
		Owner: label(q.principal.Owner, 100), Client: label(q.principal.Client, 100), Session: label(q.principal.Session, 100), Execution: label(q.principal.Request, 100),
		Action: s.action, Server: invisible.Mark(invisible.Line(s.server)), Started: b.mask(label(s.started, 500)), Item: invisible.Mark(invisible.Line(s.item)),
		Description: b.mask(label(s.description, 500)), Annotations: s.annotations,
		Rule: label(ruleOf(q.why), 300), Because: label(because, 500), Choices: b.choices(s), Asks: brief(s.asks),
		Waiting: len(q.seen()), More: q.more(), Since: q.since.UTC(), Deadline: q.calls[0].deadline.UTC(),
		connection: q.principal.Connection, Settled: q.settled, ended: q.ended,
	}
	return out
}

// show describes a question with its calls. The lock is held.
func (b *Book) show(q *question) Question {
	more := q.more()
	if before, was := q.follow[q.joined]; was {
		more = min(more, before)
	}
	if q.follow == nil {
		q.follow = map[int]int{}
	}
	q.follow[q.joined] = more
	return b.view(q, more)
}

// view describes a question with its calls, after which so many more may follow. The
// lock is held.
func (b *Book) view(q *question, more int) Question {
	out := b.head(q)
	if out.More = more; out.Asks != nil {
		out.Asks = b.asked(q.subject.asks)
	}
	seen := q.seen()
	fixed, varies := compare(seen)
	for _, a := range fixed {
		out.Fixed = append(out.Fixed, b.mask(word(a.name))+" = "+b.mask(shown(a.value)))
	}
	for _, name := range varies {
		out.Varies = append(out.Varies, b.mask(word(name)))
	}
	if len(varies) > 0 {
		for _, c := range seen {
			row := make([]string, len(varies))
			for i, name := range varies {
				if v, has := c.value(name); has {
					row[i] = b.mask(shown(v))
				}
			}
			out.Calls = append(out.Calls, row)
		}
	}
	if b.config.Rules != nil && slices.Contains(out.Choices, Always) {
		rule, err := b.config.Rules.Propose(q.subject.call, q.why.Verdict)
		if err == nil {
			out.Always = &rule
		} else {
			out.Choices = slices.DeleteFunc(out.Choices, func(c Choice) bool { return c == Always })
		}
	}
	return out
}

func (b *Book) mask(text string) string {
	if b.config.Mask == nil {
		return text
	}
	return b.config.Mask(text)
}

// choices returns how such a question can be answered.
func (b *Book) choices(s *subject) []Choice {
	switch {
	case s.asks != nil:
		return []Choice{Reply, No}
	case s.single:
		return []Choice{ThisCall, No}
	}
	all := []Choice{Waiting, ThisCall, Next, ThisTool, Session}
	if s.action == "call_tool" && b.config.Rules != nil {
		all = append(all, Always)
	}
	return append(all, No, NoTool)
}

// Waiting implements authz.Asker.
func (b *Book) Waiting(request string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text, more, people := "", 0, false
	for _, q := range b.open {
		if q.principal.Request != request {
			continue
		}
		head := b.head(q)
		people = people || head.ForPeople()
		switch {
		case text != "":
			more++
		case q.subject.asks != nil:
			text = "waiting for " + invisible.Line(head.Name())
		default:
			text = fmt.Sprintf("waiting for approval of %s (%s)", invisible.Line(head.Name()), calls(head.Waiting+head.More))
		}
	}
	if more > 0 {
		text += fmt.Sprintf(" and %d more questions", more)
	}
	if people {
		text += ": sallyport approvals"
	}
	return text
}

// Ended implements authz.Asker.
func (b *Book) Ended(request string) {
	b.drop(func(g *grant) bool { return g.execution != "" && g.execution == request })
}

// SessionEnded ends what was answered for a session, by its key.
func (b *Book) SessionEnded(key string) {
	b.drop(func(g *grant) bool { return g.session != "" && g.session == key })
}

func (b *Book) drop(which func(*grant) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.grants = slices.DeleteFunc(b.grants, which)
}
