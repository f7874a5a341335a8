package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/toolbox/catalog"
	"github.com/sallyport/sallyport/internal/toolbox/pins"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/tracecontext"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/wire"
)

// This file is the only way from code to a server. A server is opened, listed
// and called with a permit of the gate alone; internal/arch checks that nothing
// else calls the methods of a server, and TestNothingPassesADenyingGate that no
// method of the guest gets around it.

// self is the principal that looks at servers on behalf of no execution.
var self = authz.Local("sallyport")

// server returns what the rules know about a configured server.
func (b *Bridge) server(name string) (*authz.Server, error) {
	if s, ok := b.current(false).facts[name]; ok {
		return s, nil
	}
	// It may have just been added.
	if s, ok := b.current(true).facts[name]; ok {
		return s, nil
	}
	return nil, b.unknown(name)
}

// factsOf returns what the rules know about a definition of a source.
func factsOf(d upstream.Definition, source Source) *authz.Server {
	s := &authz.Server{Name: d.Name, Disabled: d.Disabled, Offer: string(d.Offer), ToolAllowed: d.ToolAllowed, Started: d.CommandLine()}
	if identified, ok := source.(Identified); ok {
		s.Identify = func(ctx context.Context) (string, error) {
			id, _, err := identified.Identity(ctx, d.Name)
			return id, err
		}
	}
	return s
}

// Check returns an error if the principal's code may not be granted the server.
// It starts nothing.
func (b *Bridge) Check(ctx context.Context, p authz.Principal, name string) error {
	s, err := b.server(name)
	if err != nil {
		return err
	}
	permit, err := b.config.Gate.Admit(ctx, p, authz.LoadServer{Server: s})
	permit.Done(0, "") // that is all, if it was admitted
	return err
}

// admit decides for the execution's principal.
func (x *Execution) admit(ctx context.Context, a authz.Action) (authz.Permit, error) {
	return x.bridge.config.Gate.Admit(ctx, x.principal, a)
}

// errNoPermit means that a server was to be used without a permit for it.
var errNoPermit = errors.New("bridge: no permit for this")

// permitted returns the name of the server that a permit lets the bridge start.
func permitted(permit *authz.Permit) (string, error) {
	switch a := permit.Action().(type) {
	case authz.DescribeServer:
		return a.Server.Name, nil
	case authz.LoadServer:
		return a.Server.Name, nil
	case authz.ListServer:
		return a.Server.Name, nil
	case authz.CallTool:
		return a.Server.Name, nil
	case authz.ReadResource:
		return a.Server.Name, nil
	case authz.GetPrompt:
		return a.Server.Name, nil
	}
	return "", errNoPermit
}

// open returns the server of a permit, which it starts if need be.
func (b *Bridge) open(ctx context.Context, permit *authz.Permit) (Server, error) {
	name, err := permitted(permit)
	if err != nil {
		return nil, err
	}
	server, err := signingIn(ctx, b, permit, func() (Server, error) { return b.config.Source.Open(ctx, name) })
	if err != nil {
		return nil, b.failed(ctx, name, err, false)
	}
	return server, nil
}

// Trial is what a look at a server shows.
type Trial struct {
	Info            upstream.Info
	Tools           []tool.Tool
	Started, Listed time.Duration // how long the server took
	// Trouble is its last failure when code used it; nil: none is known.
	Trouble *catalog.Failure
	// LeftOut is what of its tools is left out, and why.
	LeftOut []string
}

// Try starts a server for the user who wants to see whether it works, and lists
// its tools. Its error is for that user, and says more than code may know.
func (b *Bridge) Try(ctx context.Context, p authz.Principal, name string) (*Trial, error) {
	s, err := b.server(name)
	if err != nil {
		return nil, err
	}
	permit, err := b.config.Gate.Admit(ctx, p, authz.DescribeServer{Server: s})
	if err != nil {
		return nil, err
	}
	t, err := b.try(ctx, &permit)
	finish(&permit, 0, err)
	return t, err
}

// try does what Try was permitted to do.
func (b *Bridge) try(ctx context.Context, permit *authz.Permit) (*Trial, error) {
	name, err := permitted(permit)
	if err != nil {
		return nil, err
	}
	t, began := &Trial{}, time.Now()
	server, err := b.config.Source.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	t.Started = time.Since(began)
	began = time.Now()
	if t.Tools, err = toolsOf(ctx, server, permit); err != nil {
		return nil, err
	}
	t.Listed = time.Since(began)
	if known, ok := server.(interface{ LeftOut() []string }); ok {
		t.LeftOut = known.LeftOut()
	}
	if known, ok := server.(interface{ Info() upstream.Info }); ok {
		t.Info = known.Info()
	}
	if d, ok := b.current(false).servers[name]; ok {
		if _, err := b.compare(d, said(server, t.Tools)...); err != nil {
			return nil, err
		}
	}
	b.catalog.Learn(name, listingOf(server, t.Tools))
	t.Trouble = b.catalog.LastTrouble(name)
	return t, nil
}

// send answers what a permit allows: with the result of an earlier call where the
// user's rules want that and fresh does not, else by a call.
func (x *Execution) send(ctx context.Context, permit *authz.Permit, fresh bool) (json.RawMessage, error) {
	result, err := x.reuse(ctx, permit, fresh)
	if v := permit.Verdict(); err == nil && v.Limits != nil && v.Limits.ResultBytes > 0 && int64(len(result)) > v.Limits.ResultBytes {
		result, err = nil, &wire.CallError{Kind: wire.KindLimit, Message: fmt.Sprintf("the result takes %d bytes, and the rule %s allows %d: ask for less", len(result), v.Rule, v.Limits.ResultBytes)}
	}
	if err == nil && permit.Observed() && isError(result) {
		permit.Done(len(result), toolError)
		return result, nil
	}
	finish(permit, len(result), err)
	return result, err
}

// exchange opens the server of a permit, waits until one call more may be in
// flight, and sends what the permit allows, for a host of its own.
func (x *Execution) exchange(ctx context.Context, permit *authz.Permit, h *host) (json.RawMessage, error) {
	b := x.bridge
	server, err := b.open(ctx, permit)
	if err != nil {
		return nil, err
	}
	if id, ok := identityOf(server); ok {
		if err := agreed(permit, id); err != nil {
			return nil, err
		}
	}
	if err := permit.Enter(ctx); err != nil {
		return nil, err
	}
	defer permit.Leave()
	if err := x.enter(ctx); err != nil {
		return nil, err
	}
	defer x.leave()
	limits := permit.Verdict().Limits
	ctx = tracecontext.With(ctx, permit.Trace())
	outer := ctx
	var limit time.Duration
	if limits != nil {
		limit = limits.Time
	}
	ctx, ended := h.begin(ctx, limit)
	defer ended()
	var result json.RawMessage
	var name string
	var offers Offers
	switch a := permit.Action().(type) {
	case authz.CallTool:
		name = a.Server.Name
		defer b.changes(server, permit)()
		result, err = server.CallTool(ctx, a.Tool, a.Arguments)
	case authz.ReadResource:
		name = a.Server.Name
		if offers, err = offersOf(server, name); err == nil {
			result, err = offers.ReadResource(ctx, a.URI)
		}
	case authz.GetPrompt:
		name = a.Server.Name
		if offers, err = offersOf(server, name); err == nil {
			result, err = offers.GetPrompt(ctx, a.Prompt, a.Arguments)
		}
	default:
		return nil, errNoPermit
	}
	if limits != nil && err != nil && ctx.Err() != nil && outer.Err() == nil {
		return nil, &wire.CallError{Kind: wire.KindTimeout, Message: fmt.Sprintf("the call took longer than the rule %s allows: %s", permit.Verdict().Rule, limits.Time)}
	}
	return result, b.failed(outer, name, err, true)
}

// agreed returns an error if a person has agreed to a call of another server than
// the one of this identity.
func agreed(permit *authz.Permit, identity string) error {
	if want := permit.Consented(); want == "" || want == identity {
		return nil
	}
	return &wire.CallError{Kind: wire.KindDenied, Message: authz.NameOf(permit.Action()) + ": the server's definition has changed since the user allowed the call, so it was not sent: call again"}
}

// enter waits until one call more of the execution may be in flight.
func (x *Execution) enter(ctx context.Context) error {
	select {
	case x.calls <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (x *Execution) leave() { <-x.calls }

// toolsOf lists the tools of a server that a permit let the bridge open.
func toolsOf(ctx context.Context, server Server, permit *authz.Permit) ([]tool.Tool, error) {
	if _, err := permitted(permit); err != nil {
		return nil, err
	}
	return server.Tools(ctx)
}

// rawList returns one list of what a server offers, as it sends it.
func rawList(ctx context.Context, server Server, permit *authz.Permit, kind pins.Kind) (json.RawMessage, error) {
	name, err := permitted(permit)
	if err != nil {
		return nil, err
	}
	offers, err := offersOf(server, name)
	if err != nil {
		return nil, err
	}
	switch kind {
	case pins.Resource:
		return offers.Resources(ctx)
	case pins.Template:
		return offers.ResourceTemplates(ctx)
	default:
		return offers.Prompts(ctx)
	}
}

// offersOf returns what the server has besides tools.
func offersOf(server Server, name string) (Offers, error) {
	if offers, ok := server.(Offers); ok {
		return offers, nil
	}
	return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: fmt.Sprintf("Server '%s' has tools only", name)}
}

// toolError is the kind of failure of a tool that says so in its result, as
// OpenTelemetry's conventions for MCP call it.
const toolError = "tool_error"

// finish reports how what a permit allows ended.
func finish(permit *authz.Permit, bytes int, err error) {
	if !permit.Observed() {
		return
	}
	failure := ""
	if err != nil {
		failure = upstream.Class(err)
		var known *wire.CallError
		if errors.As(err, &known) {
			failure = known.Kind
		}
	}
	permit.Done(bytes, failure)
}

// toolForm compares a tool with what the user accepted, where changes are
// refused.
func (b *Bridge) toolForm(server, tool string) authz.Form {
	if !b.config.Gate.RefusesChanged() {
		return authz.FormNotCompared
	}
	if b.config.Pins == nil {
		return authz.FormAccepted
	}
	d, ok := b.current(false).servers[server]
	if !ok {
		return authz.FormNotCompared
	}
	return b.formOf(Pinned(d), tool)
}

// toolFacts are what rules for calls know about a tool.
type toolFacts struct {
	annotations tool.Annotations
	summary     string
	form        json.RawMessage
}

// toolFacts returns the facts of a server's tools. Where a tool differs from what
// was accepted, only what both forms say of it counts.
func (b *Bridge) toolFacts(s pins.Server, tools []tool.Tool, report pins.Report) map[string]toolFacts {
	out := make(map[string]toolFacts, len(tools))
	for i := range tools {
		t := &tools[i]
		f := toolFacts{t.Annotations, t.Summary(), t.Raw}
		if slices.Contains(report.Changed, t.Name) {
			form, _, err := b.config.Pins.Form(s, pins.Tool, t.Name)
			if err != nil || form == nil {
				f.annotations = tool.Annotations{}
			} else {
				before := form.Tool(t.Name)
				f.annotations = f.annotations.Both(before.Annotations)
			}
		}
		out[t.Name] = f
	}
	return out
}

// factsOfTool returns the facts of a tool; a tool that is not known has no
// annotations.
func (b *Bridge) factsOfTool(server, tool string) toolFacts {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.cache[server]; d != nil {
		return d.facts[tool]
	}
	return toolFacts{}
}

// CallOf returns what the gate would decide on if code that was granted the
// server called the tool.
func (b *Bridge) CallOf(server string, t *tool.Tool, arguments json.RawMessage) (authz.CallTool, error) {
	s, err := b.server(server)
	if err != nil {
		return authz.CallTool{}, err
	}
	out := authz.CallTool{Server: s, Granted: true, Tool: t.Name, Form: b.toolForm(server, t.Name), Arguments: arguments, Counts: &authz.Counts{}}
	if d, ok := b.current(false).servers[server]; ok {
		facts := b.toolFacts(Pinned(d), []tool.Tool{*t}, b.status(Pinned(d)))[t.Name]
		out.Annotations, out.Description = facts.annotations, facts.summary
	}
	return out, nil
}
