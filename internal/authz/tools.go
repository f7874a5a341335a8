package authz

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ToolRules are the user's rules for calls. They are safe for concurrent use.
type ToolRules interface {
	// DecideCall decides on a [CallTool], a [ReadResource] or a [GetPrompt].
	DecideCall(p Principal, a Action) Verdict
	// Broken returns why the rules cannot be applied, and code may neither run nor
	// install packages: a file of them is wrong. now means that an answer from a moment ago is not
	// good enough.
	Broken(now bool) error
}

// Verdict is what the user's rules say about a call. The zero value denies.
type Verdict struct {
	Effect Effect
	Rule   string // its name, or its file and line
	// ID tells the rule from every other one, and from what it said before it was
	// changed.
	ID string
	// Because has the user's words for the code and its agent; it may be empty.
	Because string
	Limits  *Limits    // nil: none
	Cache   *CacheRule // nil: nothing is kept
	Audit   string     // how the audit log has the arguments; empty: as usual
}

// How the audit log has the arguments of a call.
const (
	AuditComplete = "complete"
	AuditHash     = "hash"
	AuditOmit     = "omit"
)

// Limits bound what a rule allows. Zero means no limit.
type Limits struct {
	PerExecution  int           `json:"perExecution,omitempty"`  // calls of one execution
	PerMinute     int           `json:"perMinute,omitempty"`     // calls of all executions
	InFlight      int           `json:"inFlight,omitempty"`      // calls of all executions at a time; others wait
	ArgumentBytes int64         `json:"argumentBytes,omitempty"` // of one call, as JSON
	ResultBytes   int64         `json:"resultBytes,omitempty"`   // of one call, as JSON
	Time          time.Duration `json:"time,omitempty"`          // that a server may take for one call
}

// CacheRule lets results be used again.
type CacheRule struct {
	For   time.Duration `json:"for"`
	Force bool          `json:"force,omitempty"` // also of tools that are not read-only
}

// Counts counts the calls of one execution, for limits. The zero value is ready.
type Counts struct {
	mu     sync.Mutex
	byRule map[string]int
}

// take counts one call more of a rule, unless that would exceed a limit.
func (c *Counts) take(rule string, most int) bool {
	if c == nil {
		return false // the fact is missing
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byRule[rule] >= most {
		return false
	}
	if c.byRule == nil {
		c.byRule = map[string]int{}
	}
	c.byRule[rule]++
	return true
}

// meter counts what all executions together have used of limits.
type meter struct {
	mu     sync.Mutex
	recent map[string][]time.Time // calls of the last minute, by rule
	slots  map[lane]chan struct{} // of calls in flight
}

// lane is what calls in flight share: a rule with its limit.
type lane struct {
	rule string
	size int
}

// take counts one call more of a rule in this minute, unless that would exceed a
// limit. wait is then how long it takes until there is room.
func (m *meter) take(rule string, most int) (ok bool, wait time.Duration) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.recent[rule]
	for len(calls) > 0 && now.Sub(calls[0]) >= time.Minute {
		calls = calls[1:]
	}
	if m.recent == nil {
		m.recent = map[string][]time.Time{}
	}
	ok = len(calls) < most
	if ok {
		calls = append(calls, now)
	} else {
		wait = time.Minute - now.Sub(calls[len(calls)-most])
	}
	m.recent[rule] = calls
	return ok, wait
}

func (m *meter) lane(l lane) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.slots == nil {
		m.slots = map[lane]chan struct{}{}
	}
	c := m.slots[l]
	if c == nil {
		c = make(chan struct{}, l.size)
		m.slots[l] = c
	}
	return c
}

// use is what the limits of a call look at.
type use struct {
	label     string
	arguments json.RawMessage
	counts    *Counts
}

func usesOf(a Action) (use, bool) {
	switch a := a.(type) {
	case CallTool:
		return use{fmt.Sprintf("tool '%s' of server '%s'", clip(a.Tool, 100), a.Server.Name), a.Arguments, a.Counts}, true
	case ReadResource:
		return use{fmt.Sprintf("a resource of server '%s'", a.Server.Name), nil, a.Counts}, true
	case GetPrompt:
		return use{fmt.Sprintf("prompt '%s' of server '%s'", clip(a.Prompt, 100), a.Server.Name), a.Arguments, a.Counts}, true
	}
	return use{}, false
}

// applyTools adds what the user's rules say to a decision that does not deny.
func (g *Gate) applyTools(d Decision, p Principal, a Action) Decision {
	rules := g.config.Tools
	if rules == nil {
		return d
	}
	switch a.(type) {
	case RunCode, RunBatch, InstallPackages:
		if err := rules.Broken(true); err != nil {
			return Decision{Effect: Deny, Rule: RuleTools, Reason: err}
		}
		return d
	case CallTool, ReadResource, GetPrompt:
		d.Verdict = rules.DecideCall(p, a)
	default:
		return d
	}
	if d.Verdict.Effect == Allow {
		return d
	}
	if d.Verdict.Effect == Deny || d.Effect == Allow {
		d.Effect, d.Rule, d.Reason = d.Verdict.Effect, RuleTools, d.Verdict.reason(a)
	}
	return d
}

// RuleTools is the name of the rule that applies the user's rules for calls.
const RuleTools = "policy.tools"

func (v *Verdict) reason(a Action) error {
	uses, _ := usesOf(a)
	verb := "is denied by"
	if v.Effect == Ask {
		verb = "needs the user's consent, says"
	}
	text := fmt.Sprintf("%s %s the rule %s", uses.label, verb, v.Rule)
	if v.Because != "" {
		text += ": " + v.Because
	}
	return errors.New(text)
}

// withinLimits counts a call, and returns why it exceeds a limit.
func (g *Gate) withinLimits(v *Verdict, a Action) error {
	if v.Limits == nil {
		return nil
	}
	uses, ok := usesOf(a)
	if !ok {
		return nil
	}
	exceeds := func(format string, args ...any) error {
		return fmt.Errorf("%s exceeds a limit of the rule %s: %s", uses.label, v.Rule, fmt.Sprintf(format, args...))
	}
	l := v.Limits
	if n := int64(len(uses.arguments)); l.ArgumentBytes > 0 && n > l.ArgumentBytes {
		return exceeds("the arguments take %d bytes, and it allows %d", n, l.ArgumentBytes)
	}
	if l.PerExecution > 0 && !uses.counts.take(v.Rule, l.PerExecution) {
		return exceeds("it allows %d calls per execution", l.PerExecution)
	}
	if l.PerMinute > 0 {
		if ok, wait := g.meter.take(v.Rule, l.PerMinute); !ok {
			return exceeds("it allows %d calls per minute; there is room in %s", l.PerMinute, (wait + time.Second - 1).Truncate(time.Second))
		}
	}
	return nil
}

// Enter waits until one call more may be in flight, where a rule limits that.
// Leave must be called after an Enter without an error.
func (p *Permit) Enter(ctx context.Context) error {
	c := p.lane()
	if c == nil {
		return nil
	}
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Leave ends what Enter began.
func (p *Permit) Leave() {
	if c := p.lane(); c != nil {
		<-c
	}
}

func (p *Permit) lane() chan struct{} {
	if l := p.verdict.Limits; l != nil && l.InFlight > 0 {
		return p.gate.meter.lane(lane{p.verdict.Rule, l.InFlight})
	}
	return nil
}

// NameOf names what a call uses, for people: "tool 'x' of server 'y'".
func NameOf(a Action) string {
	uses, _ := usesOf(a)
	return uses.label
}
