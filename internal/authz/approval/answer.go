package approval

import (
	"encoding/json"
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
	// Vary names arguments that may be missing in the calls of Next or have any value,
	// besides those that differed in the question.
	Vary  []string `json:"vary,omitempty"`
	Words string   `json:"words,omitempty"` // why not
	// Result is what a server gets, of Reply.
	Result json.RawMessage `json:"result,omitempty"`
	By     string          `json:"by"` // who answers, and where
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
	rule, err := b.config.Rules.Propose(q.subject.call, q.why.Verdict)
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
	unshown := 0 // of those that may follow, as the person has read
	for _, c := range q.calls {
		if c.revision <= a.Revision && !c.unshown {
			seen = append(seen, c)
			continue
		}
		rest = append(rest, c)
		if c.revision <= a.Revision {
			unshown++
		}
	}
	if len(seen) == 0 {
		return Outcome{}, fmt.Errorf("%w: the calls that you saw wait no more", ErrUnknown)
	}
	if q.subject.asks != nil {
		return b.reply(q, seen[0], a)
	}
	alike, err := likenessOf(seen, a.Vary)
	if err != nil {
		return Outcome{}, err
	}
	more := q.follow[a.Revision]
	if a.Choice == Always { // before any call goes out
		if err := b.writeRule(q); err != nil {
			return Outcome{}, err
		}
	}
	b.tellAnswer(q, a.Revision, seen)
	yes := a.Choice != No && a.Choice != NoTool
	answer := authz.Answer{Allowed: yes, By: a.By, Scope: a.scope(more), Server: q.subject.identity}
	if !yes {
		answer.Words = label(a.Words, maxWords)
	}
	g := &grant{owner: q.principal.Owner, rule: q.why.By(), of: q.subject.target, execution: q.principal.Request, left: -1, answer: answer}
	switch a.Choice {
	case ThisCall:
		seen, rest = seen[:1], append(seen[1:], rest...)
		g.left = 0
	case Waiting, No:
		g.left, g.alike = more, alike
	case Next:
		if len(seen) > a.Count {
			seen, rest = seen[:a.Count], append(seen[a.Count:], rest...)
		}
		g.left, g.alike = a.Count-len(seen), alike
	case Session:
		g.execution, g.session = "", q.principal.SessionKey
		if g.session == "" {
			g.execution = q.principal.Request
		}
	}
	out := Outcome{Calls: len(seen)}
	who := "allowed"
	if !yes {
		who = "refused"
	}
	b.end(q, fmt.Sprintf("%s (%s) by %s", who, answer.Scope, a.By), answer, len(seen)) // published before what it allows
	for _, c := range seen {
		c.answer <- answer
	}
	var again *question
	if len(rest) > 0 {
		again = b.reopen(q, rest)
	}
	if g.left != 0 {
		out.Calls += b.sweep(g)
		if g.left >= 0 && (a.Choice == Waiting || a.Choice == No) {
			g.left = min(g.left, max(0, more-unshown)) // those that wait in the sandbox
		}
		if a.Choice != Always { // whose rule covers what comes
			b.grants = append(b.grants, g)
		}
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
	again := &question{id: b.newID(), principal: q.principal, why: q.why, subject: q.subject, since: rest[0].deadline.Add(-b.config.Timeout), ended: make(chan struct{})}
	for _, c := range rest {
		again.add(c)
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
			if g.left == 0 || c.single || !g.covers(q.principal, q.why.By(), &c.subject) {
				return false
			}
			c.answer <- g.use()
			n++
			return true
		})
		q.fill()
		if len(q.calls) == 0 {
			b.end(q, fmt.Sprintf("covered by another answer (%s) by %s", g.answer.Scope, g.answer.By), g.answer, before)
		}
	}
	return n
}

// scope says what an answer covers; more is how many calls that were not shown.
func (a *Answer) scope(more int) string {
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
		if more > 0 {
			return fmt.Sprintf("the calls that waited, and %d alike", more)
		}
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
