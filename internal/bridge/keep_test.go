package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/memory"
	"github.com/sallyport/sallyport/internal/savedtools"
	"github.com/sallyport/sallyport/internal/store"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/wire"
)

// kept is what every owner has, in tests with one.
type kept struct {
	memory Memory
	tools  SavedTools
}

func (k kept) Memory(string) Memory         { return k.memory }
func (k kept) SavedTools(string) SavedTools { return k.tools }

// keeping is a bridge with memory and saved tools in a directory.
func keeping(t *testing.T, s *stub, limits memory.Limits) (*Bridge, string) {
	t.Helper()
	dir := t.TempDir()
	b, err := New(Config{
		Source: s, Gate: authz.New(authz.Config{Policy: authz.Default()}),
		Stores: kept{memory.Open(store.At(dir).Sub("memory"), limits), savedtools.Open(store.At(dir).Sub("user_tools"), savedtools.Limits{Tools: 2})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b, dir
}

// ask makes a call; the result, or "kind: message".
func ask(t *testing.T, x *Execution, method, params string) string {
	t.Helper()
	result, err := x.Call(t.Context(), wire.Call{Method: method, Params: json.RawMessage(params)})
	if err == nil {
		if !json.Valid(result) {
			t.Fatalf("%s %s: %s is not JSON", method, params, result)
		}
		return string(result)
	}
	var answered *wire.CallError
	if !errors.As(err, &answered) {
		t.Fatalf("%s: a %T", method, err)
	}
	return answered.Kind + ": " + answered.Message
}

func TestMemoryCalls(t *testing.T) {
	b, dir := keeping(t, newStub(), memory.Limits{Value: 50, Keys: 3})
	x, other := b.Begin(self, nil), b.Begin(self, []string{"fs"})
	big := `"` + strings.Repeat("x", 60) + `"`
	steps := []struct {
		name, method, params string
		want                 string // all of the answer, or its beginning before …
	}{
		{"nothing", "memory_get", `{"key":"k"}`, "null"},
		{"put", "memory_put", `{"key":"k","value":{"b":1,"a":9007199254740993},"metadata":{"t":1}}`, "true"},
		{"get", "memory_get", `{"key":"k"}`, `{"key":"k","metadata":{"t":1},"created_at":"…`},
		{"list", "memory_list", `{}`, `[{"key":"k","metadata":{"t":1},"created_at":"…`},
		{"swap of nothing", "memory_put", `{"key":"k","value":2,"version":""}`, "false"},
		{"swap of another", "memory_put", `{"key":"k","value":2,"version":"abc"}`, "false"},
		{"swapped into being", "memory_put", `{"key":"l","value":2,"version":""}`, "true"},
		{"delete", "memory_delete", `{"key":"l"}`, "true"},
		{"deleted", "memory_delete", `{"key":"l"}`, "false"},
		{"no key", "memory_get", `{}`, "invalid: a memory's key cannot be empty"},
		{"a key that is a number", "memory_get", `{"key":1}`, "invalid: 'key' and…"},
		{"no object", "memory_put", `[]`, "invalid: 'key' and…"},
		{"nothing at all", "memory_put", ``, "invalid: 'key' and…"},
		{"no value", "memory_put", `{"key":"k"}`, "invalid: not a value that can be kept: it is not JSON"},
		{"metadata that are a list", "memory_put", `{"key":"k","value":1,"metadata":[]}`, "invalid: not a value…"},
		{"a large value", "memory_put", `{"key":"k","value":` + big + `}`, "limit_exceeded: too much to keep: the value takes 62 bytes as JSON, at most 50 bytes can be kept (setting memories.maxValue)"},
		{"a long key", "memory_put", `{"key":` + `"` + strings.Repeat("k", 2000) + `","value":1}`, "limit_exceeded: too much…"},
		{"a path", "memory_put", `{"key":"../../x","value":1}`, "true"},
		{"the third", "memory_put", `{"key":"third","value":1}`, "true"},
		{"a fourth", "memory_put", `{"key":"fourth","value":1}`, "limit_exceeded: too much to keep: there are 3 memories already (setting memories.maxKeys)"},
	}
	for _, s := range steps {
		got := ask(t, x, s.method, s.params)
		want, part := strings.CutSuffix(s.want, "…")
		if got != want && !(part && strings.HasPrefix(got, want)) {
			t.Errorf("%s: %s, want %s", s.name, got, s.want)
		}
	}
	var e struct {
		Value   json.RawMessage
		Version string
	}
	// Another execution, with other servers, has the same memory.
	if err := json.Unmarshal([]byte(ask(t, other, "memory_get", `{"key":"k"}`)), &e); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(strings.Fields(string(e.Value)), ""); got != `{"b":1,"a":9007199254740993}` {
		t.Errorf("the value is %s", e.Value)
	}
	if got := ask(t, other, "memory_put", fmt.Sprintf(`{"key":"k","value":3,"version":%q,"metadata":{"not":"this"}}`, e.Version)); got != "true" {
		t.Error(got)
	}
	if got := ask(t, x, "memory_get", `{"key":"k","info":true}`); !strings.Contains(got, `"metadata":{"t":1}`) || strings.Contains(got, `"value"`) {
		t.Errorf("after a swap: %s", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "memory", "k.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, x, "memory_get", `{"key":"k"}`); !strings.HasPrefix(got, "internal: the file is broken") || strings.Contains(got, dir) {
		t.Errorf("of a broken file: %s", got)
	}
	if got := ask(t, x, "memory_list", `{}`); !strings.Contains(got, `{"key":"k","error":"Failed to read"}`) {
		t.Errorf("a list with a broken file: %s", got)
	}
}

// TestKeepingNowhere: what goes wrong on the host does not show its places.
func TestKeepingNowhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	calls := []struct{ method, params string }{
		{"memory_put", `{"key":"k","value":1}`},
		{"tool_save", `{"name":"f","source":"def f(): pass","signature":"()"}`},
	}
	for name, dir := range map[string]store.Dir{
		"unavailable: there is no place to keep it": store.At(""), "internal: it cannot be read or written": store.At(file).Sub("x"),
	} {
		b, err := New(Config{Source: newStub(), Gate: authz.New(authz.Config{Policy: authz.Default()}),
			Stores: kept{memory.Open(dir, memory.Limits{}), savedtools.Open(dir, savedtools.Limits{})}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		for _, c := range calls {
			if got := ask(t, b.Begin(self, nil), c.method, c.params); !strings.HasPrefix(got, name) || strings.Contains(got, file) {
				t.Errorf("%s: %s, want %s", c.method, got, name)
			}
		}
	}
	off, err := New(Config{Source: newStub(), Gate: authz.New(authz.Config{Policy: authz.Default()})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(off.Close)
	for _, c := range append(calls, struct{ method, params string }{"tool_names", `{}`}, struct{ method, params string }{"memory_list", `{}`}) {
		if got := ask(t, off.Begin(self, nil), c.method, c.params); !strings.HasPrefix(got, "denied: ") || !strings.Contains(got, "switched off") {
			t.Errorf("%s: %s", c.method, got)
		}
	}
}

func TestSavedToolCalls(t *testing.T) {
	b, _ := keeping(t, newStub(), memory.Limits{})
	x := b.Begin(self, nil)
	steps := []struct{ name, method, params, want string }{
		{"none", "tool_names", `{}`, `[]`},
		{"no such", "tool_load", `{"name":"f"}`, `null`},
		{"a path", "tool_load", `{"name":"../f"}`, `null`},
		{"save", "tool_save", `{"name":"f","source":"def f(): pass","signature":"(x: int) -> str","doc":"Counts the lines.","async":true,"servers":["git"],"schema":{"type":"object"}}`, `1`},
		{"the same again", "tool_save", `{"name":"f","source":"def f(): pass","signature":"(x: int) -> str","doc":"Counts the lines.","async":true,"servers":["git"],"schema":{"type":"object"}}`, `1`},
		{"another", "tool_save", `{"name":"g","source":"def g(): pass","signature":"()"}`, `1`},
		{"changed", "tool_save", `{"name":"g","source":"def g(): return 1","signature":"()"}`, `2`},
		{"names", "tool_names", `{}`, `["f","g"]`},
		{"load", "tool_load", `{"name":"f"}`, `{"name":"f","version":1,"servers":["git"],"source":"def f(): pass"}`},
		{"load the last", "tool_load", `{"name":"g"}`, `{"name":"g","version":2,"servers":null,"source":"def g(): return 1"}`},
		{"one too many", "tool_save", `{"name":"h","source":"def h(): pass","signature":"()"}`, "limit_exceeded: too much to keep: there are 2 saved tools already (setting savedTools.maxTools)"},
		{"no function's name", "tool_save", `{"name":"../h","source":"x","signature":"()"}`, `invalid: not a tool that can be saved: "../h" is not the name of a function`},
		{"no source", "tool_save", `{"name":"g","signature":"()"}`, `invalid: not a tool that can be saved: g has no source`},
		{"a source that is a list", "tool_save", `{"name":"g","source":[]}`, `invalid: this is not a saved tool`},
	}
	for _, s := range steps {
		if got := ask(t, x, s.method, s.params); got != s.want {
			t.Errorf("%s: %s, want %s", s.name, got, s.want)
		}
	}
}

// TestSavedToolsInDiscovery: discovery shows them, unless a server has their name.
func TestSavedToolsInDiscovery(t *testing.T) {
	const save = `{"name":"count_lines","source":"def count_lines(): pass","signature":"(x: int)","doc":"Counts them.\n\nAll.","async":true,"servers":["git","fs"],"schema":{"type":"object","properties":{"x":{}}}}`
	b, _ := keeping(t, newStub(), memory.Limits{})
	x := b.Begin(self, nil)
	if got := ask(t, x, "tool_save", save); got != "1" {
		t.Fatal(got)
	}
	const description = `from user_tools import count_lines; await count_lines(x: int) (needs the servers mcp_git mcp_fs): Counts them.\n\nAll.`
	if got := ask(t, x, "query_tool_docs", `{"server":"user_tools","detail":"full"}`); !strings.Contains(got, description) || !strings.Contains(got, `"inputSchema":{"type":"object","properties":{"x":{}}}`) {
		t.Error(got)
	}
	if got := ask(t, x, "query_tool_docs", `{"server":"user_tools","tool":"nope"}`); got != "not_found: Tool 'nope' not found for server user_tools (nearest: count_lines)" {
		t.Error(got)
	}
	if got := ask(t, x, "search_tool_docs", `{"query":"count lines"}`); !strings.Contains(got, `"server":"user_tools","serverAlias":"user_tools","tool":"count_lines"`) {
		t.Error(got)
	}
	for _, s := range first(b.Discovered()) {
		if s.Name == SavedServer {
			t.Error("user_tools is told to be a server")
		}
	}

	s := newStub()
	s.definitions = append(s.definitions, upstream.Definition{Name: "user_tools", Alias: "user_tools"})
	s.servers["user_tools"] = &stubServer{tools: []tool.Tool{newTool("theirs", "a server's")}}
	b, _ = keeping(t, s, memory.Limits{})
	x = b.Begin(self, nil)
	if got := ask(t, x, "tool_save", save); got != "1" {
		t.Fatal(got)
	}
	if got := ask(t, x, "query_tool_docs", `{"server":"user_tools"}`); !strings.Contains(got, "theirs") || strings.Contains(got, "count_lines") {
		t.Errorf("a server of that name: %s", got)
	}
}

func first(list []wire.ServerInfo, _ string) []wire.ServerInfo { return list }

// eachOwner has stores for every owner.
type eachOwner struct{ dir store.Dir }

func (e eachOwner) Memory(owner string) Memory {
	return memory.Open(e.dir.Sub(owner).Sub("memory"), memory.Limits{})
}

func (e eachOwner) SavedTools(owner string) SavedTools {
	return savedtools.Open(e.dir.Sub(owner).Sub("user_tools"), savedtools.Limits{})
}

// What an owner's code keeps, another's neither finds nor searches.
func TestOwnersKeepApart(t *testing.T) {
	b, err := New(Config{Source: newStub(), Gate: authz.New(authz.Config{Policy: authz.Default()}), Stores: eachOwner{store.At(t.TempDir())}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	ann, bob := b.Begin(authz.Principal{Owner: "ann"}, nil), b.Begin(authz.Principal{Owner: "bob"}, nil)
	ask(t, ann, "memory_put", `{"key":"k","value":"ann's"}`)
	ask(t, ann, "tool_save", `{"name":"f","source":"def f(): pass","signature":"()","doc":"The golden mean."}`)
	for _, tt := range []struct {
		who          string
		x            *Execution
		method, want string
		params       string
	}{
		{"ann", ann, "memory_list", `"k"`, `{}`},
		{"bob", bob, "memory_list", `[]`, `{}`},
		{"bob", bob, "memory_get", `null`, `{"key":"k"}`},
		{"ann", ann, "tool_names", `"f"`, `{}`},
		{"bob", bob, "tool_names", `[]`, `{}`},
		{"ann", ann, "search_tool_docs", `user_tools`, `{"query":"golden mean"}`},
		{"bob", bob, "query_tool_docs", `[]`, `{"server":"user_tools"}`},
	} {
		if got := ask(t, tt.x, tt.method, tt.params); !strings.Contains(got, tt.want) {
			t.Errorf("%s of %s: got %s, want %s", tt.method, tt.who, got, tt.want)
		}
	}
	if got := ask(t, bob, "search_tool_docs", `{"query":"golden mean"}`); strings.Contains(got, "user_tools") {
		t.Errorf("search of bob: got %s, want nothing of ann's", got)
	}
}
