package bridge

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/internal/authz"
	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/upstream"
	"github.com/sallyport/sallyport/internal/wire"
)

// TestAlikeNames: documents say how each tool is called, and are of the tool that
// was asked for. What code cannot use takes nothing from what it can.
func TestAlikeNames(t *testing.T) {
	s := newStub()
	of := func(name string, tools ...string) {
		server := &stubServer{call: s.servers["fs"].call}
		for _, name := range tools {
			server.tools = append(server.tools, newTool(name, "does "+name))
		}
		s.servers[name] = server
		s.definitions = append(s.definitions, upstream.Definition{Name: name, Alias: tool.ServerAlias(name)})
	}
	of("DB Prod", "delete-all", "delete_all", "a.b", "a-b", "list_tools")
	of("db_prod", "who")
	of("only.one", "Ask")
	of("few", "x-y")
	s.definitions[len(s.definitions)-1].DenyTools = []string{"x_y"}
	s.definitions = append(s.definitions,
		upstream.Definition{Name: "only-one", Alias: "only_one", Disabled: true},
		upstream.Definition{Name: "only one", Alias: "only_one", Offer: "offered"})
	b, err := New(Config{Source: s, Gate: authz.New(authz.Config{Policy: authz.Default()})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	x := b.Begin(self, nil)
	for _, tt := range []struct{ params, want string }{
		{`{"server":"DB Prod"}`, "delete-all mcp_servers['DB Prod']['delete-all'], delete_all mcp_servers['DB Prod'].delete_all, a.b mcp_servers['DB Prod']['a.b'], a-b mcp_servers['DB Prod']['a-b'], list_tools mcp_servers['DB Prod']['list_tools']"},
		{`{"server":"DB Prod","tool":"delete_all"}`, "delete_all mcp_servers['DB Prod'].delete_all"},
		{`{"server":"DB Prod","tool":"delete-all"}`, "delete-all mcp_servers['DB Prod']['delete-all']"},
		{`{"server":"db_prod"}`, "who "},
		{`{"server":"few"}`, "x-y mcp_few['x-y']"},
		{`{"server":"only.one","tool":"ask"}`, "Ask "},
		{`{"server":"DB Prod","tool":"a_b"}`, "invalid: several tools may be meant by 'a_b': write one of 'a.b', 'a-b'"},
		{`{"server":"DB Prod","tool":"delet"}`, "not_found: Tool 'delet' not found for server DB Prod (nearest: delete-all, delete_all, a.b)"},
		{`{"server":"db.prod"}`, "not_found: Unknown MCP server: db.prod (nearest: DB Prod, db_prod, broken)"},
	} {
		got := ask(t, x, "query_tool_docs", tt.params)
		var docs []document
		if json.Unmarshal([]byte(got), &docs) == nil {
			var calls []string
			for _, d := range docs {
				calls = append(calls, d.Tool+" "+d.Call)
			}
			got = strings.Join(calls, ", ")
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.params, got, tt.want)
		}
	}
	if docs := docsOf(t, x, "search_tool_docs", `{"query":"does delete-all","server":"DB Prod","limit":1}`); len(docs) != 1 || !strings.HasPrefix(docs[0].Call, "mcp_servers['DB Prod']") {
		t.Errorf("got %+v, want how the tool is called", docs)
	}
	if d, err := b.describe(t.Context(), self, "few"); err != nil || strings.Join(d.Denied, " ") != "x_y" {
		t.Errorf("got %+v, %v, want the tool that is denied", d, err)
	}
	// Calls name servers and tools exactly.
	for _, params := range []string{`{"server":"DB-Prod","tool":"a.b"}`, `{"server":"DB Prod","tool":"a.b"}`} {
		if result, err := x.Call(t.Context(), wire.Call{Method: wire.MethodCallTool, Params: json.RawMessage(params)}); err == nil {
			t.Errorf("%s without a grant: %s", params, result)
		}
	}
}
