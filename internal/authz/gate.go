// Package authz is the one gate: it decides whether code may run, whether it may
// know of a server, and whether a call to a server may go out. Callers describe
// what is about to happen as an [Action] with its facts, for a [Principal]; the
// [Gate] applies its rules and answers with a [Permit] or an error. Nothing is
// sent to a server without a Permit, and only a Gate makes one.
//
// The rules read facts and change nothing: what is decided does not depend on
// when or where it is decided. The first rule that denies wins over every rule
// that would ask, and asking wins over allowing.
package authz

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sallyport/sallyport/internal/folder"
	"github.com/sallyport/sallyport/internal/inquiry"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/tracecontext"
)

// Effect is what a rule, or all of them, decide.
type Effect int

// The effects. The zero value denies.
const (
	Deny Effect = iota
	Ask
	Allow
)

func (e Effect) String() string {
	switch e {
	case Allow:
		return "allow"
	case Ask:
		return "ask"
	default:
		return "deny"
	}
}

// Decision is what the rules say about an action.
type Decision struct {
	Effect Effect
	// Rule is the name of the rule that denies or asks; empty when all allow.
	Rule string
	// Reason says why, and what the user can do about it; nil when all allow. It
	// names servers and tools and holds no arguments.
	Reason error
	// Verdict is what the user's rules for calls say, for a call that no other rule
	// denies.
	Verdict Verdict
}

// By identifies the rule that denies or asks: another rule of the same name or
// place is not the same.
func (d *Decision) By() string { return d.Rule + "\x00" + d.Verdict.ID }

// An Asker asks someone who may answer for the principal's owner.
type Asker interface {
	// Ask blocks until there is an answer or ctx ends. An error means that there
	// was no answer, and denies.
	Ask(ctx context.Context, p Principal, a Action, why Decision) (Answer, error)
	// Waiting says what questions the execution of that request waits for; it is
	// empty if there is none.
	Waiting(request string) string
	// Ended ends what was answered for the whole of that execution.
	Ended(request string)
}

// Answer is what someone said who was asked.
type Answer struct {
	Allowed bool
	Words   string // why not, in the person's words; may be empty
	By      string // who answered, and where
	Scope   string // what the answer covered
	Server  string // the server that it was about, see [Server]'s Identify
}

// Config is what a Gate needs. The zero value denies everything.
type Config struct {
	Policy *Policy // nil denies everything
	// Requests are patterns of servers that code may add by itself, see
	// [RequestServer].
	Requests []string
	// Packages returns requirements of packages that code may add to its sandbox, and
	// the words AnyPackage and AskPackage. None may be added when it is nil or returns
	// none. It is called for each decision about packages.
	Packages func() []string
	// PackagesBy names the variable or flag that Packages come from, if any.
	PackagesBy func() string
	// RefuseChanged denies the use of a tool, resource or prompt that is not in
	// the form that the user accepted.
	RefuseChanged bool
	// May says what a server may ask, see [Inquire]; nil: nothing.
	May   func(server string) inquiry.Takes
	Tools ToolRules // nil: the user has no rules for calls
	Asker Asker     // nil: no one can be asked
	// Journal receives each decision that Admit makes, and how each allowed action
	// ended; nil: nothing is published.
	Journal *journal.Journal
}

// A Gate decides. It is safe for concurrent use; a nil Gate denies everything.
type Gate struct {
	config Config
	meter  meter
	calls  atomic.Uint64 // actions that were decided on
}

// New returns a gate. Config is not changed afterwards.
func New(config Config) *Gate { return &Gate{config: config} }

// RefusesChanged reports whether changed tools are denied.
func (g *Gate) RefusesChanged() bool { return g == nil || g.config.RefuseChanged }

// Remote returns what the policy demands of a batch service, which enforces it.
func (g *Gate) Remote() Remote {
	if g == nil || g.config.Policy == nil {
		return Remote{}
	}
	return g.config.Policy.Remote
}

// Decide applies the rules. It asks no one and reports nothing, so that lists
// can show what would be allowed. To act on a decision, use Admit.
func (g *Gate) Decide(p Principal, a Action) Decision {
	if g == nil || g.config.Policy == nil {
		return Decision{Effect: Deny, Rule: "policy", Reason: ErrNil}
	}
	d := Decision{Effect: Allow}
	for i := range rules {
		switch effect, reason := rules[i].decide(&g.config, p, a); {
		case effect == Allow:
		case effect == Ask && d.Effect == Allow:
			d = Decision{Effect: Ask, Rule: rules[i].name, Reason: reason}
		case effect == Ask:
		default:
			return Decision{Effect: Deny, Rule: rules[i].name, Reason: reason}
		}
	}
	return g.applyTools(d, p, a)
}

// Visible reports whether a list that the principal reads may show what the
// action would use. What a person would be asked about is shown where the user's
// rules ask: asking is not denying.
func (g *Gate) Visible(p Principal, a Action) bool {
	d := g.Decide(p, a)
	return d.Effect == Allow || d.Effect == Ask && d.Rule == RuleTools
}

// Denied is the error for an action that was not allowed.
type Denied struct {
	Decision
	// Answer is the person's no; nil if no person said no.
	Answer *Answer
}

func (d *Denied) Error() string { return d.Reason.Error() }

// Unwrap returns the reason.
func (d *Denied) Unwrap() error { return d.Reason }

// errNoAsker is part of the reason when a rule asks and no one can be asked.
var errNoAsker = errors.New("no one could be asked to allow it")

// maxAsked bounds how often one action is asked about because the rules change
// while a person thinks.
const maxAsked = 3

// Admit decides, asks where a rule wants that, publishes the decision, and
// returns the permit to go on. An error is a [*Denied]; its Effect tells a rule's
// no from a question without a yes. What a subscriber of the journal requires to
// be recorded, and cannot record, is denied.
func (g *Gate) Admit(ctx context.Context, p Principal, a Action) (Permit, error) {
	d := g.Decide(p, a)
	if d.Effect != Deny {
		if err := g.withinLimits(&d.Verdict, a); err != nil { // before a person is asked
			d.Effect, d.Rule, d.Reason = Deny, RuleTools, err
		}
	}
	allowed := d.Effect == Allow
	var refused *Answer
	var answer Answer
	var asked time.Duration
	for rounds, again := 1, d.Effect == Ask; again; rounds++ {
		began := time.Now()
		var err error
		answer, err = g.ask(ctx, p, a, d)
		asked += time.Since(began)
		again = false
		switch allowed = err == nil && answer.Allowed; {
		case err != nil:
			d.Reason = fmt.Errorf("%w (%w)", d.Reason, err)
		case !allowed:
			refused, d.Reason = &answer, answer.refusal(a)
		default: // the user's rules may have changed while someone thought
			switch now := g.Decide(p, a); {
			case now.Effect == Deny:
				allowed, d = false, now
			case now.Effect == Ask && now.By() != d.By():
				allowed, d = false, now
				if again = rounds < maxAsked; !again {
					d.Reason = fmt.Errorf("%w (the rules changed each time that the user had agreed)", d.Reason)
				}
			}
		}
	}
	permit := Permit{gate: g, principal: p, action: a, verdict: d.Verdict, consented: answer.Server}
	if g != nil && g.config.Journal.Wants(journal.Actions) {
		if err := permit.publish(ctx, d, answer, asked, allowed); err != nil && allowed {
			permit.Done(0, "unrecorded")
			allowed, d = false, Decision{Effect: Deny, Rule: "audit", Reason: &unrecordedError{err}}
		}
	}
	if !allowed {
		return Permit{}, &Denied{d, refused}
	}
	return permit, nil
}

// publish publishes a decision. What is allowed waits until it is recorded,
// where someone requires that.
func (p *Permit) publish(ctx context.Context, d Decision, answer Answer, asked time.Duration, allowed bool) error {
	p.began, p.call = time.Now(), p.gate.calls.Add(1)
	execution := p.principal.Trace
	p.principal.Trace = execution.Child()
	e := &journal.Decided{
		Origin: p.principal.Origin(p.began), Call: p.call, Effect: d.Effect.String(), Rule: d.Rule, Allowed: allowed,
		AnsweredBy: answer.By, Words: answer.Words, Scope: answer.Scope, Asked: asked, Audit: d.Verdict.Audit,
	}
	if asked > 0 {
		e.Trace = execution.Child() // the question's own
	}
	if d.Verdict.Rule != "" && (d.Rule == "" || d.Rule == RuleTools) {
		e.Rule = d.Verdict.Rule // which says more
	}
	e.Action, e.Server, e.Item = p.names()
	if d.Reason != nil {
		e.Reason = d.Reason.Error()
	}
	if p.action != nil {
		e.Arguments = p.action.arguments()
	}
	if run, ok := p.action.(RunCode); ok {
		for _, m := range run.Folders {
			e.Folders = append(e.Folders, folder.Format(m))
		}
	}
	if allowed {
		return p.gate.config.Journal.Commit(ctx, e)
	}
	p.gate.config.Journal.Publish(e)
	return nil
}

func (g *Gate) ask(ctx context.Context, p Principal, a Action, why Decision) (Answer, error) {
	if g.config.Asker == nil {
		return Answer{}, errNoAsker
	}
	return g.config.Asker.Ask(ctx, p, a, why)
}

// refusal is the reason of an action that a person has refused.
func (a Answer) refusal(of Action) error {
	if packages, ok := of.(InstallPackages); ok {
		packages.Adds = nil // it is about what code asked for
		of = packages
	}
	_, item := of.describe()
	if s, _ := of.on(); s != nil {
		item = strings.TrimSuffix(s.Name+"."+item, ".")
	}
	if a.Words == "" {
		return fmt.Errorf("the user did not allow %s", clip(item, 200))
	}
	return fmt.Errorf("the user did not allow %s: %s", clip(item, 200), a.Words)
}

// Waiting says what the execution of a request waits to be approved, or nothing.
func (g *Gate) Waiting(request string) string {
	if g == nil || g.config.Asker == nil {
		return ""
	}
	return g.config.Asker.Waiting(request)
}

// Ended notes that an execution has ended, and with it what was approved for it.
func (g *Gate) Ended(request string) {
	if g != nil && g.config.Asker != nil {
		g.config.Asker.Ended(request)
	}
}

// A Permit allows one action, which it carries: what is done is what was
// decided. Only [Gate.Admit] makes one; the zero Permit allows nothing.
type Permit struct {
	gate      *Gate
	principal Principal
	action    Action
	verdict   Verdict
	consented string    // see Consented
	began     time.Time // of the action; zero where no one wants to know
	call      uint64
	cached    bool
}

// Trace returns the action's span.
func (p *Permit) Trace() tracecontext.Context { return p.principal.Trace }

// Action returns what is allowed; nil for the zero Permit.
func (p *Permit) Action() Action { return p.action }

// Verdict returns what the user's rules say about the call; the zero Verdict where
// there are none.
func (p *Permit) Verdict() Verdict { return p.verdict }

// Consented identifies the server that a person has agreed to, who was asked; it
// is empty where no one was. What is permitted must not go to another server.
func (p *Permit) Consented() string { return p.consented }

// Done publishes how the action ended: how many bytes it answered with, and the
// kind of its failure, which is empty on success.
func (p *Permit) Done(bytes int, failure string) {
	if p.began.IsZero() {
		return
	}
	now := time.Now()
	e := &journal.Finished{Origin: p.principal.Origin(now), Call: p.call, Took: now.Sub(p.began), Bytes: bytes, Failure: failure, Cached: p.cached}
	e.Action, e.Server, e.Item = p.names()
	if call, ok := p.action.(CallTool); ok {
		e.Listed = call.Listed
	}
	p.gate.config.Journal.Publish(e)
}

// Cached notes that the answer is that of an earlier call, before Done.
func (p *Permit) Cached() { p.cached = true }

// Observed reports whether Done publishes anything.
func (p *Permit) Observed() bool { return !p.began.IsZero() }

func (p *Permit) names() (action, server, item string) {
	if p.action == nil {
		return "", "", ""
	}
	action, item = p.action.describe()
	if s, _ := p.action.on(); s != nil {
		server = s.Name
	}
	return action, server, item
}
