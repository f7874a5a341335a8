package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/inquiry"
)

// actions are the actions of authz.Inquire, by method.
var actions = map[string]string{inquiry.Elicitation: "elicit", inquiry.Sampling: "sample", inquiry.Roots: "list_roots"}

// Inquire asks what a server asks, and returns the checked result for it. The
// question is open until it is answered, or ctx or the time for answers ends: a
// cancelled elicitation is a result, and everything else an error.
func (b *Book) Inquire(ctx context.Context, p authz.Principal, server *authz.Server, r *inquiry.Request) (json.RawMessage, error) {
	if b.config.Timeout == 0 {
		return nil, errNever
	}
	s, err := subjectOf(ctx, authz.Inquire{Server: server, Request: r})
	if err != nil {
		return nil, fmt.Errorf("no one could be asked: %w", err)
	}
	b.mu.Lock()
	c, err := b.join(p, s, authz.Decision{Rule: "inquiries"})
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	_, err = b.wait(ctx, c)
	switch {
	case errors.As(err, new(lateError)) && r.Method == inquiry.Elicitation:
		return inquiry.Cancelled, nil
	case err != nil:
		return nil, err
	case c.result == nil:
		return nil, errors.New("the user refused")
	}
	return c.result, nil
}

// reply passes an answer on to the server that asks. The lock is held.
func (b *Book) reply(q *question, c *call, a *Answer) (Outcome, error) {
	answer, did := authz.Answer{By: a.By, Scope: "this request"}, "refused"
	r := q.subject.asks
	switch elicits := r.Method == inquiry.Elicitation; {
	case a.Choice == Reply:
		result, err := r.Check(a.Result)
		if err != nil {
			return Outcome{}, fmt.Errorf("the answer does not fit: %w", err)
		}
		var action struct{ Action string }
		if elicits && json.Unmarshal(result, &action) != nil { // cannot happen: it was checked
			return Outcome{}, errors.New("the answer has no action")
		}
		c.result = result
		switch {
		case action.Action == "decline":
			did = "declined"
		case action.Action == "cancel":
			did = "cancelled"
		case r.URL != "":
			answer.Allowed, did = true, "accepted"
		default:
			answer.Allowed, did = true, "sent to "+b.head(q).Server
		}
	case elicits:
		c.result, did = inquiry.Declined, "declined"
	}
	if !answer.Allowed {
		answer.Words = label(a.Words, maxWords)
	}
	b.tellAnswer(q, a.Revision, []*call{c})
	b.end(q, fmt.Sprintf("%s by %s", did, a.By), answer, 1)
	c.answer <- answer
	return Outcome{Calls: 1, Text: did}, nil
}

// brief returns which kind of request it is; nil stays nil. Many may be open, each
// with much text.
func brief(r *inquiry.Request) *inquiry.Request {
	if r == nil {
		return nil
	}
	return &inquiry.Request{Method: r.Method, URL: r.URL, Ours: r.Ours}
}

// asked returns what a server asks, for people. Names and values stay as they are.
func (b *Book) asked(r *inquiry.Request) *inquiry.Request {
	out := *r
	out.Message, out.Fields = b.mask(r.Message), slices.Clone(r.Fields)
	for i := range out.Fields {
		f := &out.Fields[i]
		f.Title, f.Description = b.mask(f.Title), b.mask(f.Description)
	}
	return &out
}

// ForPeople reports whether people answer the question: what a server asks of the
// client, people can only refuse.
func (q *Question) ForPeople() bool { return q.Asks == nil || q.Asks.Method == inquiry.Elicitation }

// Request returns how a client is asked what a server asks: a method, and its
// parameters. legacy: see inquiry.Request.For.
func (q *Question) Request(legacy bool) (method string, params json.RawMessage) {
	return q.Asks.Method, q.Asks.For(q.Server, legacy)
}

// inquiry reports whether a server asked.
func (l *Lost) inquiry() bool {
	return slices.Contains(slices.Collect(maps.Values(actions)), l.Action)
}
