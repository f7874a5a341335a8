//go:build unix

package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/bridge"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
)

// clientServers are the servers of one client: who tells which client it is.
type clientServers struct {
	names []string
	who   string
}

func (s clientServers) Definitions() []upstream.Definition {
	var out []upstream.Definition
	for _, name := range s.names {
		out = append(out, upstream.Definition{Name: name, Alias: name})
	}
	return out
}

func (s clientServers) Open(context.Context, string) (bridge.Server, error) { return s, nil }

func (clientServers) Tools(context.Context) ([]tool.Tool, error) {
	return []tool.Tool{{Name: "who", Alias: "who", InputSchema: json.RawMessage(`{"type":"object"}`), Raw: json.RawMessage(`{"name":"who"}`)}}, nil
}

func (s clientServers) CallTool(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	return fmt.Appendf(nil, `{"content":[{"type":"text","text":%q}]}`, s.who), nil
}

// TestClientsShareSessions runs code of several clients, each with its own
// servers, in one broker: they share named sessions and nothing else.
func TestClientsShareSessions(t *testing.T) {
	t.Parallel()
	b, e := newBroker(t, nil)
	client := func(who string, names ...string) func(session, code string, servers ...string) *Result {
		servers, err := bridge.New(bridge.Config{Source: clientServers{names, who}, Gate: lax()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(servers.Close)
		c, err := b.NewClient(who, servers)
		if err != nil {
			t.Fatal(err)
		}
		return func(session, code string, servers ...string) *Result {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return c.Execute(ctx, Request{Principal: user, Session: session, Servers: servers, Submission: Submission{Code: code, Timeout: 30 * time.Second}})
		}
	}
	ann, bob, none := client("ann", "notes", "mail"), client("bob", "notes", "shop"), client("none")
	names := "print(sorted(runtime.discovered_servers()))"
	want(t, ann("team", "x = 1; "+names), Success, 0, "['mail', 'notes']")
	want(t, bob("team", "print(x); "+names), Success, 0, "1\n['notes', 'shop']")
	want(t, none("team", names), Success, 0, "[]")
	want(t, ann("team", names), Success, 0, "['mail', 'notes']")

	// The same name leads each client to its own server, in the same sandbox.
	want(t, ann("team", "print(await mcp_notes.who())", "notes"), Success, 0, "ann")
	want(t, bob("team", "print(await mcp_notes.who())", "notes"), Success, 0, "bob")
	if r := bob("team", "await runtime.load_server('mail')"); r.Status != Failed {
		t.Errorf("another client's server: got %+v, want it unknown", r)
	}
	if r := none("team", "print(await mcp_notes.who())"); r.Status != Failed {
		t.Errorf("a module that another client's code left: got %+v, want its call refused", r)
	}

	want(t, ann("", "y = 'ann'"), Success, 0, "")
	if r := bob("", "y"); r.Status != Failed {
		t.Errorf("another client's own session: got %+v, want no variable", r)
	}
	if n := e.starts.Load(); n != 3 {
		t.Errorf("got %d sandboxes, want 3: one session shared, two of their own", n)
	}
}

// TestClientsWithoutIdentity: nothing is shared because of a missing or used ID.
func TestClientsWithoutIdentity(t *testing.T) {
	t.Parallel()
	b, err := New(Config{Gate: lax(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	servers, err := bridge.New(bridge.Config{Source: clientServers{}, Gate: lax()})
	if err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	one, err := b.NewClient("one", servers)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		id      string
		servers *bridge.Bridge
	}{{"", servers}, {"a#b", servers}, {"a@b", servers}, {strings.Repeat("x", 65), servers}, {"one", servers}, {"two", nil}} {
		if c, err := b.NewClient(tt.id, tt.servers); err == nil {
			t.Errorf("%q: got %+v, want an error", tt.id, c)
		}
	}
	one.End()
	<-one.Ended()
	if r := one.Execute(t.Context(), Request{Principal: user, Submission: Submission{Code: "1"}}); r.Status != Failed || !strings.Contains(r.Error, "gone") {
		t.Errorf("after its end: got %+v, want an error", r)
	}
	again, err := b.NewClient("one", servers)
	if err != nil {
		t.Errorf("after its end the ID is not free: %v", err)
	}
	one.End()
	again.End()
	if n := len(b.all()); n != 0 {
		t.Errorf("%d clients are left, want none", n)
	}
}

// TestNothingOfAnotherClient: a client cannot reach another's own session, code,
// results, output, runs or name through any name, resource, log or error.
func TestNothingOfAnotherClient(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	g := gates{make(chan struct{})}
	logs := t.TempDir()
	b, _ := newBroker(t, func(p *parts) {
		p.servers, p.sessions.Grace, p.sessions.Logs, p.sessions.LogBytes = g, 20*time.Second, logs, 1<<20
	})
	ann, bob := b.as("ann"), b.as("bob")
	ann.Named("Ann's editor")
	ann.began("run-aaaaaaaaaaaa")
	ask := func(c *Client, session, code string, within time.Duration) *Result {
		return c.Execute(t.Context(), Request{Principal: user, Session: session, Servers: []string{"gate"}, Within: within, Submission: Submission{Code: code, Timeout: time.Minute}})
	}
	const short = 100 * time.Millisecond
	for _, name := range []string{"", "team"} { // a result that was not read, and code that runs
		if r := ask(ann, name, "x = '"+secret+"'; print(x)", time.Hour); r.Status != Success {
			t.Fatalf("got %+v", r)
		}
		if r := ask(ann, name, "print('"+secret+"', flush=True)\nawait mcp_gate.wait()", short); r.Status != Running {
			t.Fatalf("got %+v", r)
		}
	}
	shows := func(what any) string {
		data, _ := json.Marshal(what)
		text := fmt.Sprintf("%+v %s", what, data)
		for _, word := range []string{secret, "Ann's"} {
			if strings.Contains(text, word) {
				return text
			}
		}
		return ""
	}
	for _, tt := range []struct {
		what string
		do   func() any
		want func(any) bool
	}{
		{"its own session", func() any { return ask(bob, "", "x", time.Hour) }, nil},
		{"its own session, by the default name", func() any { return ask(bob, "default", "x", time.Hour) }, nil},
		{"its own session, by its key", func() any { return ask(bob, "default#ann", "x", time.Hour) }, nil},
		{"a result of its own session", func() any { return ask(bob, "", "", time.Hour) }, nil},
		{"a result in a named session", func() any { return ask(bob, "team", "", time.Hour) }, nil},
		{"code that runs in its own session", func() any { return ask(bob, "other", "runtime.cancel('default')", time.Hour) }, nil},
		{"code that runs in a named session", func() any { return ask(bob, "other", "runtime.cancel('team')", time.Hour) },
			func(got any) bool { return strings.Join(got.(*Result).Stdout, "") == "False" }},
		{"the output of its own session, from code", func() any { return ask(bob, "", "runtime.output(1)", time.Hour) },
			func(got any) bool {
				return got.(*Result).Status == Failed || !strings.Contains(fmt.Sprint(got), secret)
			}},
		{"the output of its own session, as a resource", func() any {
			text, err := bob.Written(t.Context(), "default", 1)
			return []any{text, err}
		}, nil},
		{"the output of its own session, by its key", func() any {
			text, err := bob.Written(t.Context(), "default#ann", 1)
			return []any{text, err}
		}, nil},
		{"its runs", func() any {
			return bob.Owns("run-aaaaaaaaaaaa", "test") || bob.Owns("run-aaaaaaaaaaaa", "Ann's editor")
		},
			func(got any) bool { return got == false }},
		{"its runs, after it has gone", func() any { return bob.Owns("run-bbbbbbbbbbbb", "Ann's editor") || bob.Owns("run-bbbbbbbbbbbb", "") },
			func(got any) bool { return got == false }},
		{"what it waits for", func() any { return ask(bob, "team", "'mine'", short) },
			func(got any) bool { return got.(*Result).Status == Running }},
	} {
		got := tt.do()
		if text := shows(got); text != "" {
			t.Errorf("%s: got %s", tt.what, text)
		}
		if tt.want != nil && !tt.want(got) {
			t.Errorf("%s: got %+v", tt.what, got)
		}
	}
	// Bob waited for his turn, and Ann's code was neither seen nor ended.
	close(g.open)
	for _, name := range []string{"", "team"} {
		r := ask(ann, name, "", time.Hour)
		if r.Status != Success || strings.Contains(strings.Join(r.Notes, "\n"), "returned before") {
			t.Errorf("her result in %q: got %+v, want it unread", name, r)
		}
	}
	if r := ask(bob, "team", "", time.Hour); r.Status != Success || !slices.Equal(r.Stdout, []string{"'mine'"}) {
		t.Errorf("his own: got %+v", r)
	}
	// The end of one ends nothing of the other, and no named session.
	bob.End()
	if r := ask(ann, "", "x", time.Hour); r.Status != Success {
		t.Errorf("after his end: got %+v", r)
	}
	ann.End()
	for _, s := range b.Sessions() {
		if s.Unnamed && s.ClientID != "" {
			t.Errorf("after their end there is still %+v", s)
		}
	}
	if r := ask(b.as("carl"), "team", "x", time.Hour); !slices.Equal(r.Stdout, []string{"'" + secret + "'"}) {
		t.Errorf("the named session: got %+v, want its variable for the next client", r)
	}
}

// TestTurns: two clients of one session take turns in the order of their arrival and
// see each other's variables; the list of sessions names both.
func TestTurns(t *testing.T) {
	t.Parallel()
	b, _ := newBroker(t, nil)
	ann, bob := b.as("ann"), b.as("bob")
	ann.Named("Ann's editor")
	bob.Named("Bob's editor")
	var runs []func(context.Context) *Result
	const each = 5
	for i := range each {
		for j, c := range []*Client{ann, bob} {
			runs = append(runs, c.Submit(Request{Principal: user, Session: "team", Submission: Submission{
				Code: fmt.Sprintf("order = globals().get('order', []) + [%d]", 2*i+j), Timeout: time.Minute,
			}}))
		}
	}
	var all sync.WaitGroup
	for _, run := range slices.Backward(runs) { // whoever comes to run first
		all.Go(func() { run(t.Context()) })
	}
	all.Wait()
	for _, c := range []*Client{bob, ann} {
		want(t, c.Execute(t.Context(), Request{Principal: user, Session: "team", Submission: Submission{Code: "order"}}), Success, 0, "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]")
	}
	users := func() (names []string) {
		for _, s := range b.Sessions() {
			if s.Name == "team" {
				for _, u := range s.Users {
					if u.Since.IsZero() {
						t.Errorf("%+v: since when?", u)
					}
					names = append(names, u.Client)
				}
			}
		}
		slices.Sort(names)
		return names
	}
	if got, want := users(), []string{"Ann's editor", "Bob's editor"}; !slices.Equal(got, want) {
		t.Errorf("users: got %q, want %q", got, want)
	}
	ann.End()
	if got, want := users(), []string{"Bob's editor"}; !slices.Equal(got, want) {
		t.Errorf("users after the end of one: got %q, want %q", got, want)
	}
}

// TestClientsEnd: code in a session of several clients is interrupted when its client
// goes, and code that the client declared to outlive its connection goes on.
func TestClientsEnd(t *testing.T) {
	t.Parallel()
	b, open, _ := slow(t)
	ann := b.as("ann")
	ctx, leave := context.WithCancelCause(t.Context())
	run := func(ctx context.Context, name, code string, whole bool) <-chan *Result {
		done := make(chan *Result, 1)
		run := ann.Submit(Request{Principal: user, Session: name, Servers: []string{"gate"}, Within: 100 * time.Millisecond, Whole: whole, Submission: Submission{Code: code, Timeout: time.Minute}})
		go func() { done <- run(ctx) }()
		return done
	}
	named, own := run(t.Context(), "kept", "print('named')\nawait mcp_gate.wait()", true), run(t.Context(), "", "print('own')\nawait mcp_gate.wait()", true)
	want(t, ann.Execute(t.Context(), Request{Principal: user, Session: "team", Submission: Submission{Code: "x = 1"}}), Success, 0, "")
	call := run(ctx, "team", "await mcp_gate.wait()", false)
	if r := <-call; r.Status != Running {
		t.Fatalf("got %+v, want that it goes on", r)
	}
	leave(ErrStop)
	ann.End()
	bob := b.as("bob")
	want(t, bob.Execute(t.Context(), Request{Principal: user, Session: "team", Submission: Submission{Code: "x"}}), Success, 0, "1")
	select {
	case <-ann.Ended():
		t.Error("the client has ended before its code")
	default:
	}
	if n := b.Executions(); n != 2 {
		t.Errorf("%d executions go on, want 2", n)
	}
	open()
	for what, done := range map[string]<-chan *Result{"named": named, "own": own} {
		if r := <-done; r.Status != Success || !slices.Equal(r.Stdout, []string{what, "'through'"}) {
			t.Errorf("%s: got %+v, want its result", what, r)
		}
	}
	<-ann.Ended()
	for _, s := range b.Sessions() {
		if s.ClientID == "ann" {
			t.Errorf("its own session is left: %+v", s)
		}
	}
}

// TestDefects: a defect that shows while a request is served ends that request alone.
func TestDefects(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	b, _ := newBroker(t, func(p *parts) {
		p.servers, p.Logger = defective{}, slog.New(slog.NewTextHandler(&log, nil))
	})
	for range 2 { // and the session's next turn comes
		for _, servers := range [][]string{{"broken"}, nil} {
			r := b.Execute(t.Context(), Request{Principal: user, Session: "team", Servers: servers, Submission: Submission{Code: "print(1)", Timeout: time.Minute}})
			if servers != nil && (r.Status != Failed || !strings.Contains(r.Error, "defect")) {
				t.Errorf("got %+v, want an error", r)
			}
			if servers == nil {
				want(t, r, Success, 0, "1")
			}
		}
	}
	if text := log.String(); !strings.Contains(text, "out of order") || !strings.Contains(text, "defective.Open") {
		t.Errorf("log: got %s, want the defect and its stack", text)
	}
}

// defective is a source whose server is a defect.
type defective struct{}

func (defective) Definitions() []upstream.Definition {
	return []upstream.Definition{{Name: "broken", Alias: "broken"}}
}

func (defective) Open(context.Context, string) (bridge.Server, error) { panic("out of order") }

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
