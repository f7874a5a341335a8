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
	file, err := parser.ParseFile(token.NewFileSet(), "../wire/message.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var methods []string
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
func (e *ear) AddRequested(upstream.Definition) error     { e.note("add"); return nil }
func (e *ear) NoteRequest(string, json.RawMessage) error  { return nil }
func (e *ear) Requested() []string                        { return nil }
func (e *ear) Tools(context.Context) ([]tool.Tool, error) { e.note("tools"); return nil, nil }
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
	s := factsOf(e.Definitions()[0])
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
