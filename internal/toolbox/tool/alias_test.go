package tool

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

func TestAliases(t *testing.T) {
	for name, want := range map[string]string{
		"github": "github", "GitHub-Server": "github_server", "a.b c//d": "a_b_c_d", "3d": "_3d", "--": "_", "": "server",
		"日本": "_", "über": "_ber", "K8s": "k8s", "İx": "i_x", "_a_": "_a_", "class": "class", "a__b": "a__b",
	} {
		if got := ServerAlias(name); got != want {
			t.Errorf("ServerAlias(%q) = %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{
		"list-things": "list_things", "getUserProfile": "getuserprofile", "3d.render": "_3d_render", "class": "class_", "Class": "class_",
		"": "tool", "!": "_", "None": "none", "async": "async_", "match": "match",
	} {
		if got := Alias(name); got != want {
			t.Errorf("Alias(%q) = %q, want %q", name, got, want)
		}
	}
}

// TestCalls: an alias is shown only where it means the one that it is shown for,
// whatever the order of names.
func TestCalls(t *testing.T) {
	decomposed, wide := norm.NFD.String("é"), "ｄｂ"
	for _, test := range []struct {
		names          []string
		servers, tools []string
	}{
		{[]string{"db_prod", "DB Prod"}, []string{"mcp_db_prod", "mcp_servers['DB Prod']"}, []string{".db_prod", "['DB Prod']"}},
		{[]string{"DB Prod", "db.prod"}, []string{"mcp_servers['DB Prod']", "mcp_servers['db.prod']"}, []string{"['DB Prod']", "['db.prod']"}},
		{[]string{"servers", "Runtime"}, []string{"mcp_servers['servers']", "mcp_runtime"}, []string{".servers", ".runtime"}},
		{[]string{"db-prod"}, []string{"mcp_db_prod"}, []string{".db_prod"}},
		{[]string{"db", "DB", "Db"}, []string{"mcp_db", "mcp_servers['DB']", "mcp_servers['Db']"}, []string{".db", "['DB']", "['Db']"}},
		{[]string{"db_", "db "}, []string{"mcp_db_", "mcp_servers['db ']"}, []string{".db_", "['db ']"}},
		{[]string{"x-y", "x_y_2"}, []string{"mcp_x_y", "mcp_x_y_2"}, []string{".x_y", ".x_y_2"}},
		{[]string{"é", decomposed}, []string{"mcp__", "mcp_e_"}, []string{"._", ".e_"}},
		{[]string{"DB", wide}, []string{"mcp_servers['DB']", "mcp__"}, []string{"['DB']", "._"}}, // Python reads wide letters as plain ones
		{[]string{"db", wide}, []string{"mcp_db", "mcp__"}, []string{".db", "._"}},
		{[]string{"3d", "_3d"}, []string{"mcp_servers['3d']", "mcp__3d"}, []string{"['3d']", "._3d"}},
		{[]string{"İ", "i̇"}, []string{"mcp_servers['İ']", "mcp_servers['i̇']"}, []string{"['İ']", "['i̇']"}},
		{[]string{"class", "class_"}, []string{"mcp_class", "mcp_class_"}, []string{"['class']", ".class_"}},
		{[]string{"list_tools", "__class__"}, []string{"mcp_list_tools", "mcp___class__"}, []string{"['list_tools']", "['__class__']"}},
		{[]string{`a"b`, "a'b"}, []string{`mcp_servers["a\"b"]`, `mcp_servers["a'b"]`}, []string{`["a\"b"]`, `["a'b"]`}},
	} {
		for range 2 {
			tools := make([]Tool, len(test.names))
			for i, name := range test.names {
				tools[i].Name = name
			}
			servers, calls := ServerCalls(test.names), Calls(tools, nil)
			for i, name := range test.names {
				if servers[name] != test.servers[i] || calls[name] != test.tools[i] {
					t.Errorf("%q of %q: got %s and %s, want %s and %s", name, test.names, servers[name], calls[name], test.servers[i], test.tools[i])
				}
			}
			slices.Reverse(test.names)
			slices.Reverse(test.servers)
			slices.Reverse(test.tools)
		}
	}
	for denied, want := range map[string]string{"delete_all": "['delete-all']", "delete-all": ".delete_all", "*": ".delete_all"} {
		if got := Calls([]Tool{{Name: "delete-all"}}, []string{denied})["delete-all"]; got != want {
			t.Errorf("without %s: got %s, want %s", denied, got, want)
		}
	}
	// As many tools of one alias as there may be.
	same := make([]string, 20_000)
	for i := range same {
		same[i] = strings.Repeat(" ", i%500) + strings.Repeat(".", i/500+1)
	}
	if got := slices.Compact(slices.Sorted(maps.Values(ServerCalls(same)))); len(got) != len(same) {
		t.Errorf("%d calls for %d names", len(got), len(same))
	}
}

func TestFind(t *testing.T) {
	tools := []Tool{{Name: "delete-all", Alias: "delete_all"}, {Name: "delete_all", Alias: "delete_all"}, {Name: "a.b", Alias: "a_b"}, {Name: "a-b", Alias: "a_b"}, {Name: "Only", Alias: "only"}, {Name: "caf\u00e9", Alias: "caf_"}}
	for wanted, want := range map[string]string{
		"cafe\u0301": "caf\u00e9", "delete_all": "delete_all", "delete-all": "delete-all", "a.b": "a.b", "only": "Only", "Only": "Only", "b": "",
		".only": "Only", "['a.b']": "a.b", "only(x: int) -> str": "Only",
		"a_b": "several tools may be meant by 'a_b': write one of 'a.b', 'a-b'",
	} {
		got := ""
		found, err := Find(tools, wanted)
		if found != nil {
			got = found.Name
		} else if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", wanted, got, want)
		}
	}
}
