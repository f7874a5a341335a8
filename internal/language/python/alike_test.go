//go:build unix

package python_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/wire"
)

// alike are two names, an identifier that fits both or looks like it, and which
// of them it means. "" is an error with both.
type alike struct{ a, b, identifier, means string }

// alikes are all pairs of the ways to write db_prod, and more.
func alikes() []alike {
	forms := []string{"db_prod", "db-prod", "db prod", "db.prod", "DB_Prod", "ｄｂ_ｐｒｏｄ"}
	var pairs []alike
	for i, a := range forms {
		for _, b := range forms[i+1:] {
			pair := alike{a: a, b: b, identifier: "db_prod"}
			if a == "db_prod" {
				pair.means = a
			}
			pairs = append(pairs, pair)
		}
	}
	composed := "caf" + norm.NFC.String("é")
	return append(pairs,
		alike{composed, norm.NFD.String(composed), composed, composed},
		alike{composed, norm.NFD.String(composed), "caf_", composed}, // not an alias of the other, which is cafe_
		alike{composed, norm.NFD.String(composed), "cafe_", norm.NFD.String(composed)},
		alike{norm.NFD.String(composed), "x", composed, norm.NFD.String(composed)}, // Python reads it as composed
		alike{composed, "x", composed, composed},
		alike{"DB", "db", "DB", "DB"},
		alike{"DB", "Db", "db", ""},
		alike{"DB", "Db", "Db", "Db"},
		alike{"db", "db ", "db", "db"},
		alike{"db", "db ", "db_", "db "},
		alike{" db", "-db", "_db", ""},
		alike{"İ", norm.NFD.String("i̇"), "i_", ""},
		alike{"3d", "3D", "_3d", ""},
		alike{"file", "ﬁle", "ﬁle", "file"}, // Python reads the ligature as two letters
		alike{"ﬁle", "x", "ﬁle", "ﬁle"},
		alike{"x-y", "x_y_2", "x_y", "x-y"},
		alike{"x-y", "x_y_2", "x_y_2", "x_y_2"},
	)
}

// TestAlikeNames: a name means what has it, wherever it stands, and only if
// nothing has it an alias counts, whatever the order of names and what is granted.
func TestAlikeNames(t *testing.T) {
	p := launch(t)
	for _, pair := range alikes() {
		names := []string{pair.a, pair.b}
		for i := range 8 {
			if i == 4 {
				slices.Reverse(names)
			}
			exec := wire.Exec{Grants: []string{}, Discovered: []wire.ServerInfo{}}
			tools := []tool.Tool{}
			for j, name := range names {
				exec.Discovered = append(exec.Discovered, wire.ServerInfo{Name: name, Alias: tool.ServerAlias(name)})
				tools = append(tools, tool.Tool{Name: name, Alias: tool.Alias(name)})
				if i&(1<<j) != 0 {
					exec.Grants = append(exec.Grants, name)
					exec.Define = append(exec.Define, servant(name))
				}
			}
			exec.Grants = append(exec.Grants, "t")
			exec.Discovered = append(exec.Discovered, wire.ServerInfo{Name: "t", Alias: "t"})
			exec.Define = append(exec.Define, wire.Server{Name: "t", Alias: "t", Tools: tools})
			quoted, _ := json.Marshal(names)
			exec.Code = fmt.Sprintf(`async def check():
    for name in %[1]s:
        uri, prompt = "r:" + name, "p:" + name
        said = [(await mcp_servers[name].who()).split(" ")[0], (await runtime.call_tool(name, "who"))["content"][0]["text"].split(" ")[0]]
        said += [list_resources_sync(name)[0].uri, (await read_resource(name, uri))[0].text, (await list_prompts(name))[0].name, get_prompt_sync(name, prompt)["description"]]
        assert [bytes.fromhex(s).decode() for s in said] == [name] * 3 + [uri, name, prompt], (name, said)
        said = [await mcp_t[name](), await getattr(mcp_t, name)(), (await runtime.call_tool("t", name))["content"][0]["text"]]
        assert [bytes.fromhex(s.split(" ")[1]).decode() for s in said] == [name] * 3, (name, said)
        try:
            called = eval(mcp_servers[name].who.__qualname__.removesuffix(".who"))
        except NameError:  # loaded by now, but this code does not have it
            called = mcp_servers[name]
        assert (await called.who()).split(" ")[0] == name.encode().hex(), (name, mcp_servers[name].who.__qualname__)
        assert eval(mcp_t[name].__qualname__) is mcp_t[name], mcp_t[name].__qualname__
    for where in "server", "tool":
        try:
            said = bytes.fromhex((await mcp_%[2]s.who() if where == "server" else await mcp_t.%[2]s()).split(" ")[where == "tool"]).decode()
        except (MCPError, AttributeError) as e:
            assert all(repr(name) in str(e) for name in %[1]s), (where, str(e))
            said = ""
        assert said == %[3]s, (where, said)
await check()`, quoted, pair.identifier, mustJSON(pair.means))
			if r := p.run(t, exec, servants); r.err != nil || r.stdout+r.stderr != "" {
				t.Errorf("%q, granted %q: %v\n%s%s", names, exec.Grants, r.err, r.stdout, r.stderr)
				break
			}
		}
	}
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// servant is a server that says who it is.
func servant(name string) wire.Server {
	return wire.Server{Name: name, Alias: tool.ServerAlias(name), Tools: []tool.Tool{{Name: "who", Alias: "who"}}}
}

// servants answers with what a call is about, in hexadecimal digits, which no one
// reads as something else.
func servants(_ context.Context, c wire.Call) (json.RawMessage, error) {
	var p struct{ Server, Tool, Name, URI string }
	if err := json.Unmarshal(c.Params, &p); err != nil {
		return nil, err
	}
	hex := func(s string) string { return fmt.Sprintf("%x", s) }
	switch c.Method {
	case wire.MethodLoadServer:
		return json.Marshal(servant(p.Name))
	case wire.MethodCallTool:
		return json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":"%x %x"}]}`, p.Server, p.Tool)), nil
	case wire.MethodListResources:
		return json.RawMessage(fmt.Sprintf(`[{"uri":%q,"name":"x"}]`, hex(p.Server))), nil
	case wire.MethodReadResource:
		return json.RawMessage(fmt.Sprintf(`{"contents":[{"uri":"x:","text":%q}]}`, hex(p.URI))), nil
	case wire.MethodListPrompts:
		return json.RawMessage(fmt.Sprintf(`[{"name":%q}]`, hex(p.Server))), nil
	case wire.MethodGetPrompt:
		return json.RawMessage(fmt.Sprintf(`{"description":%q,"messages":[]}`, hex(p.Name))), nil
	}
	return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "no " + c.Method}
}

// TestNewNamesTakeNothing: what a name means is found out when it is used.
func TestNewNamesTakeNothing(t *testing.T) {
	p := launch(t)
	infos := func(names ...string) (out []wire.ServerInfo) {
		for _, name := range names {
			out = append(out, wire.ServerInfo{Name: name, Alias: tool.ServerAlias(name)})
		}
		return out
	}
	is := func(expression, name string) string {
		return fmt.Sprintf("assert (await %s.who()).split(' ')[0] == %q\n", expression, fmt.Sprintf("%x", name))
	}
	raises := func(expression string, errors, choices string) string {
		return fmt.Sprintf("try:\n    %s\nexcept %s as e:\n    assert %s in str(e), e\nelse:\n    assert False\n", expression, errors, mustJSON(choices))
	}
	const both = "mcp_servers['DB Prod'] or mcp_servers['db.prod']"
	defined := map[string]bool{}
	for i, step := range []struct {
		grants, there []string
		code          string
	}{
		{[]string{"DB Prod"}, []string{"DB Prod"}, is("mcp_db_prod", "DB Prod") +
			"import mcp.servers.db_prod as m, mcp_db_prod as n\nfrom mcp.servers.db_prod import who\nkept = mcp_db_prod\n" + is("m", "DB Prod") +
			"assert m is n and who.__qualname__ == 'mcp_db_prod.who', who.__qualname__\n"},
		// Another one of its alias: neither has it, and what code holds stays.
		{[]string{"DB Prod"}, []string{"DB Prod", "db.prod"}, raises("await mcp_db_prod.who()", "MCPError", both) +
			raises("dir(mcp_db_prod)", "MCPError", both) + raises("mcp_servers['db_prod']", "KeyError", both) +
			raises("await runtime.call_tool('db_prod', 'who')", "MCPError", both) + raises("await load_server('db_prod')", "MCPError", both) +
			raises("import mcp.servers.db_prod", "ImportError", both) + raises("import mcp_db_prod", "ImportError", both) +
			raises("from mcp import mcp_db_prod", "MCPError", both) + "repr(mcp_db_prod)\n" +
			is("kept", "DB Prod") + is("m", "DB Prod") + is("mcp_servers['DB Prod']", "DB Prod") + is("mcp_servers['db.prod']", "db.prod") +
			"assert who.__qualname__ == \"mcp_servers['DB Prod'].who\", who.__qualname__\n" +
			"assert \"mcp_servers['DB Prod'] (1 tools)\" in capability_summary(), capability_summary()\n"},
		// One that has the name: it is meant.
		{[]string{"DB Prod", "db_prod"}, []string{"DB Prod", "db.prod", "db_prod", "x_y"}, "held = mcp_servers['x_y']\n" + is("held", "x_y") + is("mcp_db_prod", "db_prod") + is("mcp_servers['db_prod']", "db_prod") +
			"import mcp.servers.db_prod as m\n" + is("m", "db_prod") + is("kept", "DB Prod") + is("mcp_servers['DB Prod']", "DB Prod")},
		// It is gone again.
		{nil, []string{"DB Prod", "x-y"}, raises("await held.who()", "MCPError", "'x_y' is not available") + is("mcp_x_y", "x-y") + is("mcp_db_prod", "DB Prod") + "import mcp.servers.db_prod as m\n" + is("m", "DB Prod") + is("mcp_servers['db_prod']", "DB Prod")},
	} {
		exec := wire.Exec{Code: step.code, Grants: step.grants, Discovered: infos(step.there...)}
		for _, name := range step.grants {
			if !defined[name] {
				exec.Define = append(exec.Define, servant(name))
			}
			defined[name] = true
		}
		if r := p.run(t, exec, servants); r.err != nil || r.stdout+r.stderr != "" {
			t.Fatalf("step %d: %v\n%s%s", i, r.err, r.stdout, r.stderr)
		}
	}
}

// TestServerOfServers: no server's alias takes the name of all of them.
func TestServerOfServers(t *testing.T) {
	p := launch(t)
	exec := wire.Exec{Grants: []string{"servers"}, Define: []wire.Server{servant("servers")}}
	exec.Code = "print(mcp_servers['servers'].who.__qualname__, list(mcp_servers))\ndel mcp_servers"
	if r := p.run(t, exec, servants); r.stdout+r.stderr != "mcp_servers['servers'].who ['servers']\n" {
		t.Error(r.stdout, r.stderr)
	}
	if r := p.run(t, wire.Exec{Code: "mcp_servers", Grants: []string{"servers"}}, servants); !strings.Contains(r.stderr, "NameError") {
		t.Error(r.stdout, r.stderr)
	}
	exec = wire.Exec{Grants: []string{}, Discovered: []wire.ServerInfo{{Name: "servers", Alias: "servers"}, {Name: "x", Alias: "x"}}}
	exec.Code = "from mcp import mcp_servers\nprint(mcp_servers['servers'].who, mcp_x[1], mcp_x[None])\nimport pydoc; pydoc.help(mcp_x.who)\nhelp(mcp_x.who)\nhelp(mcp_x)"
	want := "<MCP tool mcp_servers['servers'].who, loaded when it is called> <MCP tool mcp_x[1], loaded when it is called> <MCP tool mcp_x[None], loaded when it is called>\n" +
		"Help on Tool in module mcp.runtime:\n\nwho = <MCP tool mcp_x.who, loaded when it is called>\n    await mcp_x.who()\n\n" +
		"await mcp_x.who()\nThe MCP server x.\n\nTools (help(mcp_x.NAME) describes one):\n  await mcp_x.who()\n"
	if r := launch(t).run(t, exec, servants); r.stdout+r.stderr != want {
		t.Errorf("got %s%s\nwant %s", r.stdout, r.stderr, want)
	}
}

// TestDeniedNames: the name of a tool that the definition denies is not the alias
// of another tool.
func TestDeniedNames(t *testing.T) {
	d := wire.Server{Name: "t", Alias: "t", Tools: []tool.Tool{{Name: "delete-all", Alias: "delete_all"}}, Denied: []string{"delete_all", "*"}}
	exec := wire.Exec{Grants: []string{"t"}, Define: []wire.Server{d}}
	exec.Code = `print(mcp_t["delete-all"].__qualname__, dir(mcp_t), bytes.fromhex((await runtime.call_tool("t", "delete_all"))["content"][0]["text"].split()[1]))
mcp_t.delete_all`
	want := "mcp_t['delete-all'] ['list_tools'] b'delete_all'\n"
	r := launch(t).run(t, exec, func(ctx context.Context, c wire.Call) (json.RawMessage, error) {
		if c.Method == wire.MethodLoadServer {
			return json.Marshal(d)
		}
		return servants(ctx, c)
	})
	if r.stdout != want || !strings.HasSuffix(r.stderr, "server 't' has no tool 'delete_all'; did you mean \"['delete-all']\"? (it has: ['delete-all'])\n") {
		t.Errorf("got %s%s\nwant %s", r.stdout, r.stderr, want)
	}
}

// TestOtherForms: a name that nothing has in this form of Unicode is the one that
// looks like it.
func TestOtherForms(t *testing.T) {
	composed := norm.NFC.String("é")
	exec := wire.Exec{Grants: []string{composed}, Define: []wire.Server{{Name: composed, Alias: "_", Tools: []tool.Tool{{Name: composed, Alias: "_"}}}}}
	exec.Code = fmt.Sprintf(`s = %[1]q
said = await mcp_servers[s][s](), await getattr(mcp_servers[s], s)(), (await runtime.call_tool(s, s))["content"][0]["text"]
print(said == ("%[2]x %[2]x",) * 3, said)`, norm.NFD.String(composed), composed)
	if r := launch(t).run(t, exec, servants); !strings.HasPrefix(r.stdout, "True ") {
		t.Error(r.stdout, r.stderr)
	}
}

// TestHintsOfNames: a hint never proposes what the code has written.
func TestHintsOfNames(t *testing.T) {
	p := launch(t)
	infos := []wire.ServerInfo{{Name: "DB Prod", Alias: "db_prod"}, {Name: "a.b", Alias: "a_b"}, {Name: "a-b", Alias: "a_b"}, {Name: "ﬁle", Alias: "_le"}}
	for _, test := range []struct{ code, stderr string }{
		{"exec('mcp_db_prod', {})", "Hint: write from mcp import mcp_db_prod\n"},
		{"exec('mcp_a_b', {})", "Hint: there are several servers that 'a_b' may mean: write mcp_servers['a.b'] or mcp_servers['a-b']\n"},
		{"exec('mcp_db_prot', {})", "Hint: there is no server mcp_db_prot; did you mean 'mcp_db_prod'? (the servers are mcp_db_prod, mcp_servers['a-b'], mcp_servers['a.b'], mcp_t, mcp__le)\n"},
		{"mcp_t.a_c", "server 't' has no tool 'a_c' (it has: ['a.b'], ['a-b'], ['is'], is_)\n"},
		{"mcp_t['d']", "KeyError: \"server 't' has no tool 'd'\"\n"},
		{"from mcp.servers.t import a_b", "Hint: server 't' has several tools that 'a_b' may mean: write mcp_t['a.b'] or mcp_t['a-b']\n"},
	} {
		tools := []tool.Tool{{Name: "a.b", Alias: "a_b"}, {Name: "a-b", Alias: "a_b"}, {Name: "is", Alias: "is_"}, {Name: "is_", Alias: "is_"}}
		exec := wire.Exec{Code: test.code, Grants: []string{"t"}, Discovered: infos, Define: []wire.Server{{Name: "t", Alias: "t", Tools: tools}}}
		r := p.run(t, exec, func(ctx context.Context, c wire.Call) (json.RawMessage, error) {
			switch c.Method {
			case wire.MethodFindServers:
				return json.RawMessage(`[]`), nil
			case wire.MethodLoadServer: // the tools are still the same
				return json.Marshal(exec.Define[0])
			}
			return servants(ctx, c)
		})
		if !strings.HasSuffix(r.stderr, test.stderr) {
			t.Errorf("%s: got %s\nwant %s", test.code, r.stderr, test.stderr)
		}
	}
}

// TestNearestTool: a call of a tool that a server does not have says which one
// comes near, whether the server answers with an error or with a result.
func TestNearestTool(t *testing.T) {
	p := launch(t)
	notes := wire.Server{Name: "notes", Alias: "notes", Tools: []tool.Tool{{Name: "put", Alias: "put"}, {Name: "get", Alias: "get"}}}
	p.run(t, wire.Exec{Code: "1", Grants: []string{"notes"}, Define: []wire.Server{notes}}, servants)
	const near = "server 'notes' has no tool 'putt'; did you mean 'put'? (it has: put, get)\n"
	for _, test := range []struct{ code, stderr string }{
		{`await runtime.call_tool("notes", "putt", {"name": "x"})`, "MCPError: unknown tool: " + near},
		{`(await runtime.call_tool("notes", "puttt"))["isError"]`, strings.ReplaceAll("Hint: "+near, "putt", "puttt")},
	} {
		r := p.run(t, wire.Exec{Code: test.code, Grants: []string{"notes"}}, func(_ context.Context, c wire.Call) (json.RawMessage, error) {
			if strings.Contains(string(c.Params), "puttt") {
				return json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"no such tool"}]}`), nil
			}
			return nil, &wire.CallError{Kind: wire.KindServer, Message: "unknown tool"}
		})
		if !strings.HasSuffix(r.stderr, test.stderr) {
			t.Errorf("%s: got %s%s\nwant %s", test.code, r.stdout, r.stderr, test.stderr)
		}
	}
}

// TestSavedNames: a saved function keeps the server that it was saved with.
func TestSavedNames(t *testing.T) {
	var kept wire.SavedTool
	keep := func(ctx context.Context, c wire.Call) (json.RawMessage, error) {
		switch c.Method {
		case wire.MethodToolSave:
			return json.RawMessage("1"), json.Unmarshal(c.Params, &kept)
		case wire.MethodToolLoad:
			return json.RawMessage(fmt.Sprintf(`{"name":"f","version":1,"servers":%s,"source":%s}`, mustJSON(kept.Servers), mustJSON(kept.Source))), nil
		}
		return servants(ctx, c)
	}
	infos := []wire.ServerInfo{{Name: "DB Prod", Alias: "db_prod"}, {Name: "db.prod", Alias: "db_prod"}, {Name: "DB", Alias: "db"}, {Name: "db", Alias: "db"}}
	exec := wire.Exec{Grants: []string{"DB Prod"}, Define: []wire.Server{servant("DB Prod")}, Discovered: infos}
	exec.Code = `db, who, late = mcp_servers["DB Prod"], mcp_servers["DB Prod"].who, mcp_servers["db.prod"]
async def f():
    return [bytes.fromhex((await call()).split(" ")[0]).decode() for call in (db.who, who, late.who, late["who"], mcp_DB.who, mcp_db.who)]
save_tool(f)`
	p := launch(t)
	if r := p.run(t, exec, keep); r.Status != wire.StatusOK || !slices.Equal(kept.Servers, []string{"DB", "db"}) {
		t.Fatalf("servers %q\n%s%s", kept.Servers, r.stdout, r.stderr)
	}
	r := launch(t).run(t, wire.Exec{Code: "from user_tools import f\nawait f()", Discovered: infos}, keep)
	if r.stdout != "['DB Prod', 'DB Prod', 'db.prod', 'db.prod', 'DB', 'db']\n" {
		t.Errorf("%s%s\n%s", r.stdout, r.stderr, kept.Source)
	}
}
