package approval

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
)

// question is an open question. The Book's lock guards it.
type question struct {
	id        string
	principal authz.Principal
	why       authz.Decision
	subject   subject // of its first call
	calls     []*call // that wait, in the order in which they came
	joined    int     // its revision: how often a call joined it, or was shown
	// follow is how many calls more may follow, as people have read, by revision: the
	// least of these numbers.
	follow  map[int]int
	told    told
	since   time.Time
	settled bool
	timer   *time.Timer
	ended   chan struct{}
}

// call is a call that waits.
type call struct {
	subject
	revision int  // of the question, from which on it is shown
	unshown  bool // the question has no room for it
	deadline time.Time
	answer   chan authz.Answer // with room for it
	result   json.RawMessage   // for a server that asks, once there is an answer
}

// add adds a call.
func (q *question) add(c *call) {
	c.unshown = true
	q.calls = append(q.calls, c)
	q.fill()
	if c.unshown {
		q.joined++ // it says that there are more
		c.revision = q.joined
	}
}

// fill shows calls that were not shown, as far as there is room, in their order.
func (q *question) fill() {
	shown, size := 0, 0
	for _, c := range q.calls {
		if shown == maxCalls || shown > 0 && size+c.size > maxShown {
			return
		}
		shown, size = shown+1, size+c.size
		if c.unshown {
			q.joined++
			c.unshown, c.revision = false, q.joined
		}
	}
}

// seen returns the calls that are shown.
func (q *question) seen() []*call {
	n := slices.IndexFunc(q.calls, func(c *call) bool { return c.unshown })
	if n < 0 {
		return q.calls
	}
	return q.calls[:n]
}

// more returns how many calls may follow that are not shown.
func (q *question) more() int {
	n := len(q.calls) - len(q.seen())
	if behind := q.subject.call.Behind; behind != nil {
		n += behind()
	}
	return min(n, maxCount)
}

// over reports whether the question has ended. The lock is held.
func (q *question) over() bool {
	select {
	case <-q.ended:
		return true
	default:
		return false
	}
}

// ruleOf names the rule that asks.
func ruleOf(why authz.Decision) string {
	if why.Verdict.Rule != "" {
		return why.Verdict.Rule
	}
	return why.Rule
}
