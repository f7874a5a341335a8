package approval

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/invisible"
)

// maxWords bounds what a person says to the code.
const maxWords = 1000

// An Answer is what a person chose.
type Answer struct {
	ID       string `json:"id"`
	Revision int    `json:"revision"` // that the person saw
	Choice   Choice `json:"choice"`
	Count    int    `json:"count,omitempty"` // of Next
	// Vary names arguments that may differ in the calls of Next, besides those that
	// differed in the question.
	Vary  []string `json:"vary,omitempty"`
	Words string   `json:"words,omitempty"` // why not
	By    string   `json:"by"`              // who answers, and where
}

// Outcome is what an answer did.
type Outcome struct {
	Calls   int    `json:"calls"`   // that it answered
	Waiting int    `json:"waiting"` // calls that came later and wait
	Next    string `json:"next,omitempty"`
	Text    string `json:"text"` // the same, in words
}

// Answer answers a question. The first answer counts: the error of a later one is
// an [*AnsweredError]. An answer that does not fit changes nothing.
func (b *Book) Answer(a Answer) (Outcome, error) {
	b.mu.Lock()
	out, err := b.apply(&a)
	b.change()
	b.mu.Unlock()
	b.note()
	if err == nil {
		b.config.Log.Info("a question was answered", "question", a.ID, "choice", a.Choice, "by", a.By, "calls", out.Calls)
	}
	return out, err
}

// writeRule writes the rule that allows the calls of a question for good.
func (b *Book) writeRule(q *question) error {
	rule, err := b.config.Rules.Propose(q.subject.server, q.subject.item, ruleOf(q.why))
	if err == nil {
		err = b.config.Rules.Write(rule)
	}
	if err != nil {
		return fmt.Errorf("the rule was not written, so nothing was answered: %w", err)
	}
	return nil
}

// apply answers a question. The lock is held.
func (b *Book) apply(a *Answer) (Outcome, error) {
	q := b.find(a.ID)
	switch {
	case q == nil:
		return Outcome{}, b.gone(a.ID)
	case a.Revision < 1 || a.Revision > q.joined:
		return Outcome{}, fmt.Errorf("question %s has no revision %d", a.ID, a.Revision)
	case !slices.Contains(b.choices(&q.subject), a.Choice):
		return Outcome{}, fmt.Errorf("question %s cannot be answered with %q: %s", a.ID, a.Choice, strings.Join(names(b.choices(&q.subject)), ", "))
	case a.Choice == Next && a.Count < 1:
		return Outcome{}, errors.New("say how many calls")
	}
	var seen, rest []*call
	for _, c := range q.calls {
		if c.revision <= a.Revision {
			seen = append(seen, c)
		} else {
			rest = append(rest, c)
		}
	}
	if len(seen) == 0 {
		return Outcome{}, fmt.Errorf("%w: the calls that you saw wait no more", ErrUnknown)
	}
	fixed, _ := compare(seen)
	for _, name := range a.Vary {
		at := slices.IndexFunc(fixed, func(f argument) bool { return f.name == name })
		if _, has := seen[0].value(name); !has {
			return Outcome{}, fmt.Errorf("the calls have no argument %q", name)
		}
		if at >= 0 {
			fixed = slices.Delete(fixed, at, at+1)
		}
	}
	if a.Choice == Always { // before any call goes out
		if err := b.writeRule(q); err != nil {
			return Outcome{}, err
		}
	}
	yes := a.Choice != No && a.Choice != NoTool
	answer := authz.Answer{Allowed: yes, By: a.By, Scope: a.scope()}
	if !yes {
		answer.Words = label(a.Words, maxWords)
	}
	g := &grant{owner: q.principal.Owner, action: q.subject.action, server: q.subject.server, item: q.subject.item, execution: q.principal.Request, left: -1, answer: answer}
	switch a.Choice {
	case ThisCall:
		seen, rest = seen[:1], append(seen[1:], rest...)
		g = nil
	case Waiting, No:
		g = nil
	case Next:
		if len(seen) > a.Count {
			seen, rest = seen[:a.Count], append(seen[a.Count:], rest...)
		}
		g.left, g.fixed = a.Count-len(seen), fixed
	case Session, Always:
		// The rule that Always has written counts from the next decision on, and
		// may not yet have been read.
		g.execution, g.session = "", q.principal.SessionKey
		if g.session == "" {
			g.execution = q.principal.Request
		}
	}
	out := Outcome{Calls: len(seen)}
	for _, c := range seen {
		c.answer <- answer
	}
	who := "allowed"
	if !yes {
		who = "refused"
	}
	b.end(q, fmt.Sprintf("%s (%s) by %s", who, answer.Scope, a.By), answer, len(seen))
	var again *question
	if len(rest) > 0 {
		again = b.reopen(q, rest)
	}
	if g != nil {
		b.grants = append(b.grants, g)
		out.Calls += b.sweep(g)
	}
	out.Text = fmt.Sprintf("%s: %s", calls(out.Calls), who)
	if again != nil && !again.over() {
		out.Waiting, out.Next = len(again.calls), again.id
		out.Text += fmt.Sprintf("; %s you were not asked about, or not yet, see question %s", calls(out.Waiting), again.id)
	}
	return out, nil
}

// reopen asks about the calls that an answer left over. The lock is held.
func (b *Book) reopen(q *question, rest []*call) *question {
	again := &question{id: b.newID(), principal: q.principal, why: q.why, subject: q.subject, calls: rest, joined: len(rest), since: rest[0].deadline.Add(-b.config.Timeout), ended: make(chan struct{})}
	for i, c := range rest {
		c.revision = i + 1
		again.size += c.size
	}
	b.open = append(b.open, again)
	b.settles(again)
	return again
}

// sweep answers the calls that wait and that a new grant covers. The lock is held.
func (b *Book) sweep(g *grant) int {
	n := 0
	for _, q := range slices.Clone(b.open) {
		before := len(q.calls)
		q.calls = slices.DeleteFunc(q.calls, func(c *call) bool {
			if g.left == 0 || c.single || !g.covers(q.principal, &c.subject) {
				return false
			}
			c.answer <- g.use()
			q.size -= c.size
			n++
			return true
		})
		if len(q.calls) == 0 {
			b.end(q, fmt.Sprintf("covered by another answer (%s) by %s", g.answer.Scope, g.answer.By), g.answer, before)
		}
	}
	return n
}

// scope says what an answer covers.
func (a *Answer) scope() string {
	switch a.Choice {
	case ThisCall:
		return "this call"
	case Next:
		return fmt.Sprintf("the next %d alike", a.Count)
	case ThisTool, NoTool:
		return "all calls of this tool in this execution"
	case Session:
		return "all calls of this tool in this session"
	case Always:
		return "always, by a rule"
	default:
		return "the calls that waited"
	}
}

func names(all []Choice) []string {
	out := make([]string, len(all))
	for i, c := range all {
		out[i] = string(c)
	}
	return out
}

// By names who answers, from untrusted parts.
func By(parts ...string) string {
	return label(invisible.Line(strings.Join(parts, " ")), 200)
}
