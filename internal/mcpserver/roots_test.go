package mcpserver

//lint:file-ignore SA1019 clients still have roots, in all revisions

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sallyport/sallyport/internal/broker"
	"github.com/sallyport/sallyport/internal/mcpserver/tasks"
	"github.com/sallyport/sallyport/internal/sandbox"
	"github.com/sallyport/sallyport/internal/store"
)

// seeingExecutor notes the folders of each request.
type seeingExecutor struct {
	stubExecutor
	mu   sync.Mutex
	seen []string // "CODE: SOURCE TARGET MODE, …"
}

func (e *seeingExecutor) Submit(req broker.Request) func(context.Context) *broker.Result {
	var all []string
	for _, m := range req.Mounts {
		all = append(all, fmt.Sprintf("%s %s %s", m.Source, m.Target, m.Mode))
	}
	e.mu.Lock()
	e.seen = append(e.seen, req.Code+": "+strings.Join(all, ", "))
	e.mu.Unlock()
	return e.stubExecutor.Submit(req)
}

func (e *seeingExecutor) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.seen)
}

// allow takes every folder but those whose name begins with secret.
func allow(m sandbox.Mount) (sandbox.Mount, error) {
	if strings.Contains(m.Source, "/secret") {
		return m, fmt.Errorf("folder %q: it is secret", m.Source)
	}
	m.Source = strings.Replace(m.Source, "/link", "/real", 1)
	return m, nil
}

// TestRootsOfTheSDKsClient: the SDK's client is asked in every revision, on both ways,
// and code of its sessions sees its roots.
func TestRootsOfTheSDKsClient(t *testing.T) {
	for _, version := range revisions {
		for _, sdkOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, SDK only %v", version, sdkOnly), func(t *testing.T) {
				e := &seeingExecutor{}
				s := connect(t, Config{Executor: e, Root: allow, SDKOnly: sdkOnly, Backends: []string{"gvisor", "kaggle"}}, version, nil,
					&mcp.Root{URI: "file:///home/u/project"}, &mcp.Root{URI: "file:///home/u/secret%20keys", Name: "keys"})
				run := func(code, session, backend string) string {
					t.Helper()
					result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": code, "session": session, "backend": backend}})
					if err != nil {
						t.Fatal(err)
					}
					return result.Content[0].(*mcp.TextContent).Text
				}
				const refused = `root left out: folder "/home/u/secret keys": it is secret`
				for _, tt := range []struct {
					code, session, backend string
					want, noted            bool
				}{
					{"print 1", "", "kaggle", false, false}, {"print 2", "", "", true, true}, {"print 3", "default", "", true, false}, {"print 4", "other", "gvisor", true, true}, {"print 5", "other", "", true, false},
				} {
					text := run(tt.code, tt.session, tt.backend)
					want := tt.code + ": "
					if tt.want {
						want += "/home/u/project /roots/project ro"
					}
					if got := e.all(); got[len(got)-1] != want {
						t.Errorf("got the requests %q, want %q last", got, want)
					}
					if strings.Contains(text, refused) != tt.noted {
						t.Errorf("%s: got %q, want the note %q: %v", tt.code, text, refused, tt.noted)
					}
				}
				if got := e.all(); len(got) != 5 {
					t.Errorf("got the requests %q, want each once", got)
				}
			})
		}
	}
}

// rooted begins a session with a handshake of a client that has roots.
func rooted(t *testing.T, config Config) *client {
	t.Helper()
	config.Root = allow
	c := serve(t, config)
	c.send(strings.Replace(fmt.Sprintf(initialize, legacyLatest), `"capabilities":{}`, `"capabilities":{"roots":{"listChanged":true}}`, 1))
	c.receive()
	c.send(initialized)
	return c
}

// rootsRequest reads roots/list and returns its ID.
func (c *client) rootsRequest() string {
	c.t.Helper()
	m := c.receive()
	if m["method"] != "roots/list" {
		c.t.Fatalf("got %v, want roots/list", m)
	}
	raw, _ := json.Marshal(m["id"])
	return string(raw)
}

func (c *client) rootsAnswer(id string, uris ...string) {
	var list []mcp.Root
	for _, uri := range uris {
		list = append(list, mcp.Root{URI: uri})
	}
	raw, _ := json.Marshal(list)
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":%s}}`, id, raw))
}

// answers reads answers to calls, and returns their texts by ID.
func (c *client) answers(n int) map[string]string {
	c.t.Helper()
	all := map[string]string{}
	for range n {
		m := c.receive()
		all[fmt.Sprint(m["id"])] = fmt.Sprint(m["result"], m["error"])
	}
	return all
}

const rootsChanged = `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`

// TestRootsByRequest: calls wait for the roots and stay in their order; the client is
// asked again once its roots have changed.
func TestRootsByRequest(t *testing.T) {
	e := &seeingExecutor{}
	c := rooted(t, Config{Executor: e})
	c.send(call("1", "print 1", ""), call("2", "print 2", ""), call("3", "print 3", ""))
	id := c.rootsRequest()
	c.send(call("4", "print 4", ""), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	c.rootsAnswer(id, "file:///a")
	c.answers(3)
	c.send(call("5", "print 5", ""))
	c.answers(1)
	want := []string{"print 1: /a /roots/a ro", "print 3: /a /roots/a ro", "print 4: /a /roots/a ro", "print 5: /a /roots/a ro"}
	if got := slices.DeleteFunc(e.all(), func(s string) bool { return strings.HasPrefix(s, "print 2") }); !slices.Equal(got, want) {
		t.Errorf("got the requests %q, want %q", got, want)
	}
	c.send(rootsChanged, call("6", "print 6", ""))
	id = c.rootsRequest()
	c.send(rootsChanged) // while it answers
	c.rootsAnswer(id, "file:///b")
	c.rootsAnswer(c.rootsRequest(), "file:///c")
	c.answers(1)
	c.send(rootsChanged, call("7", "print 7", ""))
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"not\nnow"}}`, c.rootsRequest()))
	if got := c.answers(1)["7"]; !strings.Contains(got, "the client has roots and did not name them: ") || !strings.Contains(got, "not now") {
		t.Errorf("a client that fails: got %s, want a note", got)
	}
	c.send(call("8", "print 8", ""))
	if got := c.answers(1)["8"]; strings.Contains(got, "did not name them") {
		t.Errorf("a client that has failed: got %s, want no second note", got)
	}
	if got, want := e.all()[len(e.all())-3:], []string{"print 6: /c /roots/c ro", "print 7: ", "print 8: "}; !slices.Equal(got, want) {
		t.Errorf("got the requests %q, want %q", got, want)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
}

// TestRootsOfASilentClient: a client that does not answer has its code run without its
// roots after a while, and with them once it has answered.
func TestRootsOfASilentClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &seeingExecutor{}
		c := rooted(t, Config{Executor: e})
		c.send(call("1", "print 1", ""), call("2", "print 2", ""))
		id := c.rootsRequest()
		if got := c.answers(2)["1"]; !strings.Contains(got, "the client did not answer roots/list in 15 s: the sandbox sees none of its folders") {
			t.Errorf("got %s, want a note", got)
		}
		c.rootsAnswer(id, "file:///a")
		synctest.Wait()
		c.send(call("3", "print 3", ""))
		c.answers(1)
		if got, want := e.all(), []string{"print 1: ", "print 2: ", "print 3: /a /roots/a ro"}; !slices.Equal(got, want) {
			t.Errorf("got the requests %q, want %q", got, want)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestRootsThatCannotCome: calls of a client that says nothing more do not wait for its
// roots.
func TestRootsThatCannotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := rooted(t, Config{})
		c.send(call("1", "print 1", ""), call("2", "print 2", ""))
		c.rootsRequest()
		c.in.Close()
		for range 2 {
			if m := c.unlessWithdrawn(); m["result"] == nil || strings.Contains(fmt.Sprint(m), "did not answer roots/list in") {
				t.Errorf("got %v, want a result that waited for nothing", m)
			}
		}
	})
}

var withRoots = meta("test", `{"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`)

// TestRootsByResult: a client of the stateless revisions is asked by the first call's
// result, once in each session, and nothing runs before it repeats the call.
func TestRootsByResult(t *testing.T) {
	for _, sdkOnly := range []bool{false, true} {
		for _, tasked := range []bool{false, true} {
			e := &seeingExecutor{}
			config := Config{Executor: e, Root: allow, SDKOnly: sdkOnly}
			if tasked {
				config.Tasks = tasks.New(tasks.Options{Log: slog.New(slog.DiscardHandler), Dir: store.At(t.TempDir()), Moment: time.Hour})
				t.Cleanup(func() { config.Tasks.Close(broker.ErrStop) })
			}
			c := serve(t, config)
			c.run("1", "", withRoots) // which runs nothing, and makes the client known
			c.run("2", "print 0", withoutTasks)
			request := func(session, code, more string) map[string]any {
				r, failure := c.request("3", "tools/call", fmt.Sprintf(`"name":"run_python","arguments":{"code":%q,"session":%q}%s,%s`, code, session, more, withRoots))
				if failure != nil {
					t.Fatalf("%s: got %v", code, failure)
				}
				return r
			}
			for _, session := range []string{"default", "other"} {
				r := request(session, "print 1", "")
				if got, _ := json.Marshal(r["inputRequests"]); r["resultType"] != "input_required" || string(got) != `{"roots":{"method":"roots/list","params":{}}}` {
					t.Errorf("got %v, want the question", r)
				}
			}
			const repeat = `,"requestState":"roots","inputResponses":{"roots":`
			request("default", "print 2", repeat+`{"roots":[{"uri":"file:///a"},null]}}`)
			if got := fmt.Sprint(request("other", "print 3", `,"requestState":"roots"`)); !strings.Contains(got, "the client was asked for its roots and named none") {
				t.Errorf("a repeat without roots: got %s, want a note", got)
			}
			request("other", "print 4", "")
			request("third", "print 5", repeat+`{"roots":[{"uri":"file:///b","name":"../B c"}]}}`)
			want := []string{": ", "print 0: ", "print 2: /a /roots/a ro", "print 3: ", "print 4: ", "print 5: /b /roots/B-c ro"}
			if got := e.all(); !slices.Equal(got, want) {
				t.Errorf("got the requests %q, want %q", got, want)
			}
			if err := c.end(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestRootsNotAsked(t *testing.T) {
	c := serve(t, Config{}) // by default
	if r := c.run("1", "print 1", withRoots); r["resultType"] != "complete" {
		t.Errorf("got %v, want a result", r)
	}
	c = serve(t, Config{Root: allow})
	if r := c.run("1", "print 1", meta("test", `{"roots":null}`)); r["resultType"] != "complete" {
		t.Errorf("a client without roots: got %v, want a result", r)
	}
	if _, failure := c.request("2", "tools/call", fmt.Sprintf(`"name":"run_python","arguments":{"code":"print 2"},"requestState":"other",%s`, withRoots)); failure == nil {
		t.Error("another state is taken for the one of roots")
	}
}

func TestRootFolders(t *testing.T) {
	config := Config{Root: allow}
	many := make([]*mcp.Root, maxRoots+2)
	for i := range many {
		many[i] = &mcp.Root{URI: fmt.Sprintf("file:///secret%d", i)}
	}
	for _, tt := range []struct {
		name  string
		roots []*mcp.Root
		want  string // sources and places
		notes []string
	}{
		{"names", []*mcp.Root{{URI: "file:///b/x"}, {URI: "file:///a/x"}, {URI: "file:///c", Name: "x"}, {URI: "file:///d/.git"}, {URI: "file:///e", Name: "/../"}}, "/d/.git /roots/git, /e /roots/root, /b/x /roots/x, /a/x /roots/x-2, /c /roots/x-3", nil},
		{"one folder twice", []*mcp.Root{{URI: "file:///link/a"}, {URI: "file:///real/a/"}}, "/real/a /roots/a", nil},
		{"odd names", []*mcp.Root{{URI: "file:///a", Name: "Grüße, 世界\x00\n"}, {URI: "file:///b", Name: strings.Repeat("é", 100)}}, "/a /roots/Grüße--世界, /b /roots/" + strings.Repeat("é", 32), nil},
		{"too many", many, "", []string{
			`root left out: folder "/secret0": it is secret`, `root left out: folder "/secret1": it is secret`, `root left out: folder "/secret2": it is secret`,
			"roots left out for such reasons: 13 more", "roots left out: the client has 2 more than the 16 that a sandbox sees",
		}},
		{"no file", []*mcp.Root{nil, {URI: "https://example.com/a\x01"}, {URI: "https://example.com/" + strings.Repeat("a", 1000)}}, "", []string{
			`root left out: "https://example.com/a\x01": its URI is invalid`,
			`root left out: "https://example.com/` + strings.Repeat("a", 280-20) + "…",
		}},
	} {
		f := config.rootFolders(tt.roots)
		var got []string
		for _, m := range f.mounts {
			got = append(got, m.Source+" "+m.Target)
		}
		if s := strings.Join(got, ", "); s != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, s, tt.want)
		}
		if !slices.EqualFunc(f.notes, tt.notes, func(a, b string) bool {
			return a == b || strings.HasSuffix(b, "…") && strings.HasPrefix(a, b[:200]) && len(a) < 400
		}) {
			t.Errorf("%s: got the notes %q, want %q", tt.name, f.notes, tt.notes)
		}
		if err := sandbox.CheckMounts(f.mounts); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	writable := Config{Root: func(m sandbox.Mount) (sandbox.Mount, error) { m.Mode = sandbox.ReadWrite; return m, nil }}
	if f := writable.rootFolders([]*mcp.Root{{URI: "file:///a"}}); len(f.mounts) > 0 {
		t.Errorf("got %v, want no folder that is not read-only", f.mounts)
	}
}

func TestRootPath(t *testing.T) {
	for _, tt := range []struct {
		uri     string
		windows bool
		want    string // or the error
	}{
		{"file:///home/u/a%20b%23c%25", false, "/home/u/a b#c%"},
		{"file://localhost/a/../b/", false, "/b"},
		{"FILE:///a", false, "/a"},
		{"file:////a//b", false, "/a/b"},
		{"file:///c%3A/Users/u", true, `C:\Users\u`},
		{"file:///C:/Users/u%20v", true, `C:\Users\u v`},
		{"file:///home/u", true, "its path has no drive"},
		{"file:////server/share", true, "its path has no drive"},
		{"file://server/share", true, "it is a folder of another computer"},
		{"file://server/share", false, "it is a folder of another computer"},
		{"file://u@localhost/a", false, "it is a folder of another computer"},
		{"file:///home/u/C#", false, "its URI has a ? or # that is not percent-encoded"},
		{"file:///home/u/C#/x", false, "its URI has a ? or # that is not percent-encoded"},
		{"file:///home/u/what?", false, "its URI has a ? or # that is not percent-encoded"},
		{"file:home", false, "its path is not absolute"},
		{"file:", false, "its path is not absolute"},
		{"/home/u", false, "only file:// URIs are folders of this computer"},
		{"https://example.com/a", false, "only file:// URIs are folders of this computer"},
		{"file:///a%zz", false, "its URI is invalid"},
		{"", false, "only file:// URIs are folders of this computer"},
	} {
		got, err := rootPath(tt.uri, tt.windows)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("rootPath(%q, %v) = %q, want %q", tt.uri, tt.windows, got, tt.want)
		}
	}
}

func FuzzRootFolders(f *testing.F) {
	for _, s := range []string{"file:///a", "file:///a%2f..%2fb", "file://h/a", "x", ""} {
		f.Add(s, "name", s, "name")
	}
	config := Config{Root: allow}
	f.Fuzz(func(t *testing.T, uri1, name1, uri2, name2 string) {
		folders := config.rootFolders([]*mcp.Root{{URI: uri1, Name: name1}, {URI: uri2, Name: name2}})
		if err := sandbox.CheckMounts(folders.mounts); err != nil && !strings.ContainsRune(uri1+uri2, 0) && !strings.Contains(uri1+uri2, "%00") {
			t.Errorf("got %+v: %v", folders.mounts, err)
		}
		for _, m := range folders.mounts {
			if !strings.HasPrefix(m.Target, "/roots/") || len(m.Target) > len("/roots/-2")+maxRootName {
				t.Errorf("got the place %q, want one in /roots", m.Target)
			}
		}
	})
}
