package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/journal"
)

// told is what the journal knows of a question.
type told struct {
	revision, calls int   // that were published last; 0: the question was not
	answered        int   // the revision that an answer named
	left            int   // calls that ended without an answer
	why             error // the last of them
}

// tell publishes a question as people see it. The lock is held.
func (b *Book) tell(q *question, shown *Question) {
	q.told.revision, q.told.calls = shown.Revision, shown.Waiting
	if !b.config.Journal.Wants(journal.Questions) {
		return
	}
	text := shown.shown()
	if shown.Asks != nil { // a server's text
		as := *shown
		as.Asks = withoutQuery(as.Asks)
		as.Asks.Params = json.RawMessage(b.mask(string(as.Asks.Params))) // before its lines are broken
		text = b.mask(as.shown())
	}
	b.config.Journal.Publish(&journal.Asked{
		Origin: q.principal.Origin(time.Now()), Question: q.id, Revision: shown.Revision,
		Action: q.subject.action, Server: q.subject.server, Item: q.subject.item,
		Rule: shown.Rule, Calls: shown.Waiting, Shown: text, Audit: q.why.Verdict.Audit,
	})
}

// withoutQuery cuts what only the page needs off an address: it may let its reader in.
func withoutQuery(r *inquiry.Request) *inquiry.Request {
	out := *r
	if i := strings.IndexAny(r.URL, "?#"); i >= 0 {
		out.URL = r.URL[:i] + "?…"
	}
	return &out
}

// tellAnswer publishes what the person saw who answers a revision of a question, if
// that is not what was published last. The lock is held.
func (b *Book) tellAnswer(q *question, revision int, seen []*call) {
	if q.told.revision != revision || q.told.calls != len(seen) {
		as := *q
		as.calls, as.joined = seen, revision
		shown := b.view(&as, q.follow[revision])
		b.tell(q, &shown)
	}
	q.told.answered = revision
}

// tellEnd publishes how a question ended, if people were asked it. The lock is held.
func (b *Book) tellEnd(q *question, answer authz.Answer, calls int) {
	if q.told.revision == 0 {
		return
	}
	now := time.Now()
	e := &journal.Answered{
		Origin: q.principal.Origin(now), Question: q.id, Revision: q.told.answered,
		Action: q.subject.action, Server: q.subject.server, Item: q.subject.item,
		Allowed: answer.Allowed, By: answer.By, Words: answer.Words, Scope: answer.Scope, Calls: calls, Took: now.Sub(q.since),
	}
	switch {
	case calls == 0:
		e.Calls, e.Reason = q.told.left, unanswered(q.told.why)
	case q.told.answered == 0:
		e.Reason = "an answer to another question covers its calls"
	}
	b.config.Journal.Publish(e)
}

// unanswered says why a call waits no more.
func unanswered(why error) string {
	switch {
	case why == nil, errors.Is(why, context.Canceled):
		return "the execution ended, or its calls were cancelled"
	case errors.Is(why, context.DeadlineExceeded):
		return "the time of the execution was over"
	}
	return why.Error()
}

// End describes the end of a lost question, for the journal.
func (l *Lost) End() *journal.Answered {
	return &journal.Answered{
		Origin:   journal.Origin{Time: time.Now(), Owner: l.Owner, Client: l.Client, Session: l.Session, Execution: l.Execution},
		Question: l.ID, Action: l.Action, Server: l.Server, Item: l.Item, Calls: l.Calls,
		Reason: fmt.Sprintf("process %d was killed while the question was open; %s", l.Process, l.unsent()), Killed: l.Process, Since: l.Since,
	}
}
