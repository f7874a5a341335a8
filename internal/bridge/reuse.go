package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/bridge/results"
	"github.com/sallyport/sallyport/internal/invisible"
	"github.com/sallyport/sallyport/internal/jsonscan"
	"github.com/sallyport/sallyport/internal/upstream"
)

// Identified is a Source that tells servers apart, see
// [upstream.Manager.Identity].
type Identified interface {
	Identity(ctx context.Context, name string) (id string, lasting bool, err error)
}

func (m manager) Identity(ctx context.Context, name string) (id string, lasting bool, err error) {
	return m.m.Identity(ctx, name)
}

var _ interface{ Identity() string } = (*upstream.Server)(nil)

// identityOf returns what tells a running server from others, if it says so.
func identityOf(server Server) (id string, ok bool) {
	known, ok := server.(interface{ Identity() string })
	if !ok {
		return "", false
	}
	return known.Identity(), true
}

// reuse is answered, or the result of an earlier call where the user's rules let
// it be used again.
func (x *Execution) reuse(ctx context.Context, permit *authz.Permit, fresh bool) (json.RawMessage, error) {
	b, h := x.bridge, x.host(permit)
	a, rule := reusable(permit)
	source, ok := b.config.Source.(Identified)
	if rule == nil || !ok || b.config.Results == nil {
		return x.answered(ctx, permit, h)
	}
	name := a.Server.Name
	form := b.factsOfTool(name, a.Tool).form
	id, lasting, err := source.Identity(ctx, name)
	if err != nil || len(form) == 0 {
		return x.answered(ctx, permit, h) // which says what is wrong
	}
	if err := agreed(permit, id); err != nil {
		return nil, err
	}
	key := results.Key{Server: id, Lasting: lasting, Owner: x.principal.Owner, Tool: a.Tool, Form: form, Arguments: a.Arguments}
	var answered json.RawMessage
	got, err := b.config.Results.Do(ctx, key, rule.For, fresh, func() (json.RawMessage, bool, error) {
		result, err := x.answered(ctx, permit, h)
		if err == nil && h.wasAsked() {
			answered = result
			return nil, false, errAnswered
		}
		now, _, _ := source.Identity(ctx, name) // its definition may have changed meanwhile
		return result, now == id && !isError(result), err
	})
	if errors.Is(err, errAnswered) {
		return answered, nil
	}
	if got.Kept {
		permit.Cached()
		x.mu.Lock()
		x.reused.add(name+"."+a.Tool, got.Age)
		x.mu.Unlock()
	}
	return got.Result, err
}

// errAnswered keeps a result from everyone but its caller: it depends on what
// someone answered meanwhile.
var errAnswered = errors.New("bridge: the server asked something")

// reusable returns the rule by which the result of a permitted call is used again;
// nil: there is none.
func reusable(permit *authz.Permit) (authz.CallTool, *authz.CacheRule) {
	a, _ := permit.Action().(authz.CallTool)
	rule := permit.Verdict().Cache
	if a.Server == nil || rule == nil || rule.For <= 0 || !a.Annotations.ReadOnly && !rule.Force {
		return a, nil
	}
	return a, rule
}

// changes notes that a call begins that may change what other tools of the server
// return; the function that it returns, that it has ended.
func (b *Bridge) changes(server Server, permit *authz.Permit) (ended func()) {
	a, _ := permit.Action().(authz.CallTool)
	id, ok := identityOf(server)
	if _, rule := reusable(permit); rule != nil || a.Annotations.ReadOnly || !ok || b.config.Results == nil {
		return func() {}
	}
	return b.config.Results.Writing(id)
}

// isError reports whether a tool says that it has failed.
func isError(result json.RawMessage) bool {
	failed := false
	if !bytes.Contains(result, []byte(`"isError"`)) { // most results, and large ones
		return false
	}
	_ = jsonscan.Members(result, func(key string, value json.RawMessage) bool { // validated on arrival
		failed = failed || key == "isError" && jsonscan.Kind(value) != 'f' && jsonscan.Kind(value) != 'n'
		return true
	})
	return failed
}

// reused is what an execution's result says about results of earlier calls.
type reused struct {
	tools []string // with their servers, in the order of their first use
	of    map[string]*reuses
}

type reuses struct {
	results int
	oldest  time.Duration
}

// add notes a result of a tool. One that someone else was waiting for has no age.
func (r *reused) add(tool string, age time.Duration) {
	if age == 0 {
		return
	}
	u := r.of[tool]
	if u == nil {
		if r.of == nil {
			r.of = map[string]*reuses{}
		}
		u = &reuses{}
		r.of[tool] = u
		r.tools = append(r.tools, tool)
	}
	u.results++
	u.oldest = max(u.oldest, age)
}

func (r *reused) notes() []string {
	const most = 5
	var notes []string
	for i, tool := range r.tools {
		if i == most {
			return append(notes, fmt.Sprintf("cached results of %d more tools", len(r.tools)-most))
		}
		u := r.of[tool]
		text := fmt.Sprintf("%s: cached result, %s old", invisible.Line(clip(tool, 100)), span(u.oldest))
		if u.results > 1 {
			text = fmt.Sprintf("%s: %d cached results, up to %s old", invisible.Line(clip(tool, 100)), u.results, span(u.oldest))
		}
		notes = append(notes, text)
	}
	return notes
}

// span shows an age in one unit.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}
