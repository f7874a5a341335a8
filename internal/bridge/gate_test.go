package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/journal"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/wire"
)

// guestMethods reads the methods that the guest can send from the source of
// package wire, so that a new one is among them.
func guestMethods(t *testing.T) []string {
	t.Helper()
	var methods []string
	for _, name := range []string{"message.go", "packages.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), "../wire/"+name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Method") {
				return true
			}
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
				if value, err := strconv.Unquote(lit.Value); err == nil {
					methods = append(methods, value)
				}
			}
			return true
		})
	}
	if len(methods) < 20 {
		t.Fatalf("found %d methods (%v): is this still where they are?", len(methods), methods)
	}
	return methods
}

// ear is a source of one server that notes whatever reaches it.
type ear struct {
	mu    sync.Mutex
	heard []string
}

func (e *ear) note(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, what)
}

func (e *ear) take() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	heard := strings.Join(e.heard, " ")
	e.heard = nil
	return heard
}

func (e *ear) Definitions() []upstream.Definition {
	return []upstream.Definition{{Name: "fs", Alias: "fs", DenyTools: []string{"forbidden"}}}
}
func (e *ear) Open(context.Context, string) (Server, error) { e.note("open"); return e, nil }

func (e *ear) ParseRequest(name string, _ json.RawMessage) (upstream.Definition, error) {
	return upstream.Definition{Name: name}, nil
}
func (e *ear) AddRequested(upstream.Definition) error    { e.note("add"); return nil }
func (e *ear) NoteRequest(string, json.RawMessage) error { return nil }
func (e *ear) Requested() []string                       { return nil }
func (e *ear) Tools(context.Context) ([]tool.Tool, error) {
	e.note("tools")
	return []tool.Tool{{Name: "t", Alias: "t", Description: "Reads", InputSchema: tool.AnyObject, Annotations: tool.Annotations{ReadOnly: true}}}, nil
}
func (e *ear) list(what string) (json.RawMessage, error) {
	e.note(what)
	return json.RawMessage(`[]`), nil
}
func (e *ear) answer(what string) (json.RawMessage, error) {
	e.note(what)
	return json.RawMessage(`{}`), nil
}

func (e *ear) Resources(context.Context) (json.RawMessage, error)         { return e.list("resources") }
func (e *ear) ResourceTemplates(context.Context) (json.RawMessage, error) { return e.list("templates") }
func (e *ear) Prompts(context.Context) (json.RawMessage, error)           { return e.list("prompts") }
func (e *ear) ReadResource(_ context.Context, uri string) (json.RawMessage, error) {
	return e.answer("read:" + uri)
}
func (e *ear) GetPrompt(_ context.Context, name string, _ json.RawMessage) (json.RawMessage, error) {
	return e.answer("prompt:" + name)
}
func (e *ear) CallTool(_ context.Context, tool string, _ json.RawMessage) (json.RawMessage, error) {
	return e.answer("call:" + tool)
}

// TestNothingPassesADenyingGate sends every method of the guest, for a server that
// the execution has been granted, through a gate that denies all: no server hears
// anything. Through a gate that allows all, those that use a server reach it.
func TestNothingPassesADenyingGate(t *testing.T) {
	reaches := map[string]string{
		wire.MethodCallTool:              "open call:t",
		wire.MethodListTools:             "open tools",
		wire.MethodLoadServer:            "open tools",
		wire.MethodQueryToolDocs:         "open tools",
		wire.MethodListResources:         "open resources",
		wire.MethodListResourceTemplates: "open templates",
		wire.MethodListPrompts:           "open prompts",
		wire.MethodReadResource:          "open read:file:///x",
		wire.MethodGetPrompt:             "open prompt:fs",
	}
	for _, deny := range []bool{true, false} {
		config := authz.Config{Policy: authz.Default()}
		if deny {
			config.Policy.Servers = nil
		}
		e := &ear{}
		b, err := New(Config{Source: e, Gate: authz.New(config)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		for _, method := range guestMethods(t) {
			x := b.Begin(self, nil)
			x.grant("fs")
			params := `{"server":"fs","tool":"t","name":"fs","uri":"file:///x","query":"x","arguments":{}}`
			if method == wire.MethodRequestServer {
				params = `{"name":"new","definition":{"command":"x"}}`
			}
			if method == wire.MethodQueryToolDocs {
				params = `{"server":"fs"}`
			}
			_, err := x.Call(t.Context(), wire.Call{Method: method, Params: json.RawMessage(params)})
			heard := e.take()
			want := reaches[method]
			if deny {
				want = ""
				var failed *wire.CallError
				if _, uses := reaches[method]; uses && (!errors.As(err, &failed) || failed.Kind != wire.KindDenied) {
					t.Errorf("%s through a denying gate: got %v, want a denial", method, err)
				}
			}
			if !strings.HasPrefix(heard, want) || want == "" && heard != "" {
				t.Errorf("%s, denying %v: the server heard %q, want %q", method, deny, heard, want)
			}
		}
	}
}

// TestNoPermitNoCall: what sends a call does nothing without the permit for it.
func TestNoPermitNoCall(t *testing.T) {
	e := &ear{}
	b, err := New(Config{Source: e, Gate: authz.New(authz.Config{Policy: authz.Default()})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	x := b.Begin(self, []string{"fs"})
	s := factsOf(e.Definitions()[0], e)
	find, err := x.admit(t.Context(), authz.FindServer{Server: s})
	if err != nil {
		t.Fatal(err)
	}
	list, err := x.list(t.Context(), "fs")
	if err != nil {
		t.Fatal(err)
	}
	for name, permit := range map[string]*authz.Permit{"none": {}, "to find it": &find} {
		_, opened := b.open(t.Context(), permit)
		_, listed := toolsOf(t.Context(), e, permit)
		_, sent := x.send(t.Context(), permit, false)
		if heard := e.take(); opened == nil || listed == nil || sent == nil || heard != "" {
			t.Errorf("permit %s: got %v, %v, %v and the server heard %q, want three errors", name, opened, listed, sent, heard)
		}
	}
	// A permit to list is none to call.
	if _, err := x.send(t.Context(), &list, false); err == nil || e.take() != "open" {
		t.Errorf("permit to list: got %v, want an error", err)
	}
}

// TestWhatTheGateSees: the bridge gives the gate the facts of each call.
func TestWhatTheGateSees(t *testing.T) {
	j := journal.New(slog.New(slog.DiscardHandler))
	var lines []string
	var by []journal.Origin
	events := j.Subscribe(journal.Options{Topics: journal.Actions, Handle: func(events []journal.Event, _ int) error {
		for _, e := range events {
			switch e := e.(type) {
			case *journal.Decided:
				by = append(by, e.Origin)
				lines = append(lines, fmt.Sprintf("%s %s %s: %v %s", e.Action, e.Server, e.Item, e.Effect, e.Rule))
			case *journal.Finished:
				lines = append(lines, fmt.Sprintf("%s %s %s ended %d bytes %s", e.Action, e.Server, e.Item, e.Bytes, e.Failure))
			}
		}
		return nil
	}})
	e := &ear{}
	b, err := New(Config{Source: e, Gate: authz.New(authz.Config{Policy: authz.Default(), Journal: j})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	p := authz.Principal{Owner: "someone", Client: "a client", Session: "s", Request: "r"}
	x := b.Begin(p, []string{"fs"})
	call := func(params string) error {
		_, err := x.Call(t.Context(), wire.Call{Method: wire.MethodCallTool, Params: json.RawMessage(params)})
		return err
	}
	if err := call(`{"server":"fs","tool":"t","arguments":{"secret":"value"}}`); err != nil {
		t.Error(err)
	}
	if err := call(`{"server":"fs","tool":"forbidden"}`); err == nil || !strings.Contains(err.Error(), "does not allow this tool") {
		t.Errorf("a tool that the definition denies: got %v", err)
	}
	x.mu.Lock()
	delete(x.granted, "fs")
	x.mu.Unlock()
	if err := call(`{"server":"fs","tool":"t"}`); err == nil {
		t.Error("a server that is not granted was called")
	}
	events.Close()
	want := fmt.Sprint([]string{
		"call_tool fs t: allow ", "call_tool fs t ended 2 bytes ", "call_tool fs forbidden: deny tools", "call_tool fs t: deny grant",
	})
	if got := fmt.Sprint(lines); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, got := range by {
		if want := p.Origin(got.Time); got != want {
			t.Errorf("got the origin %+v, want %+v", got, want)
		}
	}
	if heard := e.take(); heard != "open call:t" {
		t.Errorf("the server heard %q", heard)
	}
}

// limited has the same verdict for all calls, and keeps what it saw.
type limited struct {
	authz.Verdict
	seen []authz.CallTool
}

func (l *limited) DecideCall(_ authz.Principal, a authz.Action) authz.Verdict {
	if call, ok := a.(authz.CallTool); ok {
		l.seen = append(l.seen, call)
	}
	return l.Verdict
}
func (l *limited) Broken(bool) error { return nil }

// slow is a server that answers when the call ends.
type slow struct{ *ear }

func (s slow) Open(context.Context, string) (Server, error) { return s, nil }
func (s slow) CallTool(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestLimitsOfCalls: what a rule allows of a result and of time holds, and calls of
// one execution are counted together.
func TestLimitsOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name   string
			source Source
			limits authz.Limits
			kinds  []string // of two calls
			says   string
		}{
			{"none", &ear{}, authz.Limits{}, []string{"", ""}, ""},
			{"a small result", &ear{}, authz.Limits{ResultBytes: 1 << 10}, []string{"", ""}, ""},
			{"a large result", &ear{}, authz.Limits{ResultBytes: 1}, []string{wire.KindLimit, wire.KindLimit}, "and the rule r allows 1: ask for less"},
			{"a slow server", slow{&ear{}}, authz.Limits{Time: time.Minute}, []string{wire.KindTimeout, wire.KindTimeout}, "longer than the rule r allows: 1m0s"},
			{"two calls", &ear{}, authz.Limits{PerExecution: 1}, []string{"", wire.KindDenied}, "it allows 1 calls per execution"},
			{"one after the other", &ear{}, authz.Limits{InFlight: 1}, []string{"", ""}, ""},
		} {
			rules := &limited{Verdict: authz.Verdict{Effect: authz.Allow, Rule: "r", Limits: &tt.limits}}
			b, err := New(Config{Source: tt.source, Gate: authz.New(authz.Config{Policy: authz.Default(), Tools: rules})})
			if err != nil {
				t.Fatal(err)
			}
			x := b.Begin(self, []string{"fs"})
			for i, want := range tt.kinds {
				_, err := x.Call(t.Context(), wire.Call{Method: wire.MethodCallTool, Params: json.RawMessage(`{"server":"fs","tool":"t"}`)})
				kind := ""
				var failed *wire.CallError
				if errors.As(err, &failed) {
					kind = failed.Kind
				}
				if kind != want || want != "" && !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%s, call %d: got %q %v, want %q %q", tt.name, i, kind, err, want, tt.says)
				}
			}
			b.Close()
		}
	})
}

// TestAnnotationsOfCalls: rules see what the server says of a tool, and of one
// that is not listed nothing.
func TestAnnotationsOfCalls(t *testing.T) {
	rules := &limited{Verdict: authz.Verdict{Effect: authz.Allow}}
	b, err := New(Config{Source: &ear{}, Gate: authz.New(authz.Config{Policy: authz.Default(), Tools: rules})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	x := b.Begin(self, []string{"fs"})
	if _, err := x.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"t", "unlisted"} {
		if _, err := x.Call(t.Context(), wire.Call{Method: wire.MethodCallTool, Params: json.RawMessage(`{"server":"fs","tool":"` + name + `"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(rules.seen) != 2 || !rules.seen[0].Annotations.ReadOnly || rules.seen[0].Description != "Reads" || rules.seen[1].Annotations != (tool.Annotations{}) {
		t.Errorf("got %+v, want a tool that reads and an unknown one", rules.seen)
	}
}
