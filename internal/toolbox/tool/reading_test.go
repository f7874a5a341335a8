package tool

import (
	"slices"
	"strings"
	"testing"
)

func TestReadServer(t *testing.T) {
	servers := []string{"github", "DB Prod", "my.files", "db_prod", "x", "mcp_x", "A b", "a.b", "servers"}
	for _, test := range []struct{ text, want, err string }{
		{"github", "github", ""},
		{" mcp_github ", "github", ""},
		{"DB Prod", "DB Prod", ""},
		{"db_prod", "db_prod", ""},
		{"mcp_db_prod", "db_prod", ""},
		{"mcp_servers['DB Prod']", "DB Prod", ""},
		{`mcp_servers["DB Prod"]`, "DB Prod", ""},
		{"mcp_servers[DB Prod]", "DB Prod", ""}, // a shell has read the quotes
		{"my.files", "my.files", ""},
		{"mcp_my_files", "my.files", ""},
		{"my_files", "my.files", ""},
		{"mcp_x", "mcp_x", ""},
		{"mcp_servers['x']", "x", ""},
		{"servers", "servers", ""},
		{"mcp_servers", "", ""},
		{"a_b", "", "several may be meant by 'a_b': write one of mcp_servers['A b'], mcp_servers['a.b']"},
		{"GitHub", "", ""},
		{"github.create_issue", "", ""},
		{"github(1)", "", ""},
		{"mcp_servers['github'", "", ""},
		{"", "", ""},
	} {
		got, err := ReadServer(servers, test.text)
		if got != test.want || message(err) != test.err {
			t.Errorf("%q: got %q, %v; want %q, %q", test.text, got, err, test.want, test.err)
		}
	}
}

func TestReadTool(t *testing.T) {
	servers := []string{"github", "DB Prod", "a", "a.b", "x", "mcp_x"}
	for _, test := range []struct{ text, server, tool, err string }{
		{"github.create_issue", "github", "create_issue", ""},
		{"github create-issue", "github", "create-issue", ""},
		{"mcp_github.create_issue", "github", "create_issue", ""},
		{"mcp_github['create issue']", "github", "create issue", ""},
		{"mcp_github.create_issue(title: str, body: str = '') -> dict", "github", "create_issue", ""},
		{"await mcp_github.create_issue(title='a.b')", "github", "create_issue", ""},
		{`await mcp_servers["DB Prod"].query(sql="select 1")`, "DB Prod", "query", ""},
		{`mcp_servers['DB Prod']["say \"hi\""]("x")`, "DB Prod", `say "hi"`, ""},
		{"mcp_servers[DB Prod][say hi]", "DB Prod", "say hi", ""},
		{"DB Prod.query", "DB Prod", "query", ""},
		{"DB Prod query", "DB Prod", "query", ""},
		{"github.*", "github", "*", ""},
		{"a.c", "a", "c", ""},
		{"a.b", "a", "b", ""},
		{"a.b.c", "", "", "several may be meant by 'a.b.c': write one of mcp_servers['a']['b.c'], mcp_servers['a.b']['c']"},
		{"mcp_servers['a.b']['c']", "a.b", "c", ""},
		{"mcp_x.t", "", "", "several may be meant by 'mcp_x.t': write one of mcp_servers['mcp_x']['t'], mcp_servers['x']['t']"},
		{"github", "", "", ""},
		{"github.", "", "", ""},
		{"github(x)", "", "", ""},
		{"gitlab.create_issue", "", "", ""},
		{"", "", "", ""},
	} {
		server, tool, err := ReadTool(servers, test.text)
		if server != test.server || tool != test.tool || message(err) != test.err {
			t.Errorf("%q: got %q, %q, %v; want %q, %q, %q", test.text, server, tool, err, test.server, test.tool, test.err)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// FuzzReadTool: every form that is printed for a tool, or a server, is read as
// that one.
func FuzzReadTool(f *testing.F) {
	f.Add("github", "DB Prod", "create_issue", "mcp_github.create_issue(")
	f.Add("a.b", "a", "['x']", `mcp_servers["`)
	f.Add("mcp_x", "x", `"`, "await \xff")
	f.Fuzz(func(t *testing.T, one, other, name, text string) {
		servers := []string{one, other}
		if _, err := ReadServer(servers, text); err == nil {
			_, _, _ = ReadTool(servers, text)
		}
		if one == other || slices.ContainsFunc([]string{one, other, name}, func(s string) bool { return strings.TrimSpace(s) != s || s == "" || strings.ToValidUTF8(s, "") != s }) {
			return
		}
		for _, printed := range []string{"mcp_servers[" + PythonString(one) + "]", one} {
			if got, err := ReadServer(servers, printed); (got != one || err != nil) && printed != other {
				t.Errorf("of %q, %q means %q (%v), want %q", servers, printed, got, err, one)
			}
		}
		call := "mcp_servers[" + PythonString(one) + "]" + Calls([]Tool{{Name: name, Alias: Alias(name)}}, nil)[name]
		server, tool, err := ReadTool(servers, "await "+call+"(a='b')")
		if found, _ := Find([]Tool{{Name: name, Alias: Alias(name)}}, tool); err == nil && (server != one || found == nil) && !strings.HasPrefix(other, "mcp_servers") {
			t.Errorf("of %q, %q means %q, %q, want %q, %q", servers, call, server, tool, one, name)
		}
	})
}
