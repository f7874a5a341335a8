//go:build unix

package python_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tiktoken-go/tokenizer"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/wire"
)

// oddServers have the names that Python, or the guest, has other uses for.
var oddServers = []wire.Server{
	{Name: "class", Alias: "class", Tools: []tool.Tool{
		{Name: "__class__", Alias: "__class__"},
		{Name: "__all__", Alias: "__all__"},
		{Name: "__path__", Alias: "__path__"},
		{Name: "list_tools", Alias: "list_tools"},
		{Name: "@tools", Alias: "_tools"},
		{Name: "_name", Alias: "_name"},
		{Name: "by_name", Alias: "by_name"},
		{Name: "import", Alias: "import_"},
		{Name: "TOOLS", Alias: "tools"},
		{Name: "__private", Alias: "__private"},
		{Name: "Read", Alias: "read"},
		{Name: "read", Alias: "read"},
		{Name: "getThing", Alias: "getthing"},
		{Name: "größe", Alias: "gr_e"},
		{Name: "3d.render", Alias: "_3d_render"},
	}},
	{Name: "import_", Alias: "import_", Tools: []tool.Tool{{Name: "a", Alias: "a"}}},
	{Name: "runtime", Alias: "runtime", Tools: []tool.Tool{{Name: "a", Alias: "a"}}},
	{Name: "Servers!", Alias: "servers_", Tools: []tool.Tool{}},
	{Name: "servers", Alias: "servers", Tools: []tool.Tool{{Name: "a", Alias: "a"}}},
}

// which answers call_tool with the server's and the tool's name.
func which(_ context.Context, c wire.Call) (json.RawMessage, error) {
	var p struct{ Server, Tool string }
	if err := json.Unmarshal(c.Params, &p); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": p.Server + " " + p.Tool}}})
}

func TestNames(t *testing.T) {
	programs := []struct{ name, code, stdout, stderr string }{
		{"alias", `await mcp_class.getthing()`, "'class getThing'\n", ""},
		{"original name", `await mcp_class.getThing()`, "'class getThing'\n", ""},
		{"a name of the guest's", `await mcp_class._tools(), await mcp_class._name(), await mcp_class.by_name()`, "('class @tools', 'class _name', 'class by_name')\n", ""},
		{"two underscores", `await mcp_class.__private()`, "'class __private'\n", ""},
		{"two underscores in a class", "class A:\n    async def f(self): return await mcp_class._3d_render()\nawait A().f()", "'class 3d.render'\n", ""},
		{"keyword", `await mcp_class.import_()`, "'class import'\n", ""},
		{"an alias that is another's name", `await mcp_class.read(), await mcp_class.Read()`, "('class read', 'class Read')\n", ""},
		{"items go by the name", `await mcp_class["read"](), await mcp_class["Read"]()`, "('class read', 'class Read')\n", ""},
		{"unicode", `await mcp_class.größe(), await mcp_class.gr_e()`, "('class größe', 'class größe')\n", ""},
		{"Python's own", `type(mcp_class).__name__, mcp_class.__class__ is type(mcp_class), await mcp_class["__class__"](), await mcp_class["__all__"]()`, "('Server', True, 'class __class__', 'class __all__')\n", ""},
		{"Python's own, called", `mcp_class["__class__"]`, "<MCP tool mcp_class['__class__']()>\n", ""},
		{"list_tools", `[t["name"] for t in await mcp_class.list_tools()][3], await mcp_class["list_tools"]()`, "('list_tools', 'class list_tools')\n", ""},
		{"no such item", `mcp_class["nothing"]`, "", "KeyError: \"server 'class' has no tool 'nothing'; did you mean 'getThing'?\""},
		{"dir", `"__class__" in dir(mcp_class), "_tools" in dir(mcp_class)`, "(False, True)\n", ""},
		{"module of a keyword", "from mcp.servers.class_ import *\nawait read(), await Read(), await import_(), list_tools is runtime.list_tools, TOOLS[0], TOOL_MAP['__class__']", "('class read', 'class Read', 'class import', True, '__class__', '__class__')\n", "leaves out list_tools: the name is taken"},
		{"the same module", "import mcp.servers.class_ as c, importlib\nc is importlib.import_module('mcp.servers.class'), c.__name__, isinstance(c.__all__, list)", "(True, 'mcp.servers.class', True)\n", "leaves out list_tools"},
		{"original names in the module", "from mcp.servers.class_ import getThing, größe\nawait getThing()", "'class getThing'\n", ""},
		{"no path", "c.__path__", "", "AttributeError"},
		{"a server that is named so", "from mcp.servers.import_ import a\nawait a()", "'import_ a'\n", ""},
		{"a server named runtime", "await mcp_runtime.a(), runtime.list_servers_sync()", "('runtime a', ('Servers!', 'class', 'import_', 'runtime', 'servers'))\n", ""},
		{"without tools", "from mcp.servers.servers_ import *\nmcp_servers_, mcp_servers['Servers!'] is mcp_servers_", "(<MCP server Servers!: no tools>, True)\n", ""},
		{"a server named servers", "import mcp.servers.servers as s\nfrom mcp import mcp_servers as m\nm is mcp_servers, await mcp_servers['servers'].a(), await s.a()", "(True, 'servers a', 'servers a')\n", ""},
		{"not copied", "import copy\ncopy.deepcopy(mcp_class)", "", "TypeError: a server cannot be pickled"},
		{"signature", "import inspect\nstr(inspect.signature(mcp_class.read)), inspect.isroutine(mcp_class.read)", "('(**more)', True)\n", ""},
		{"help of a server", "help(mcp_class)", "The MCP server class.\n\nTools (help(mcp_class.NAME) describes one):\n  await mcp_class['__class__']()", ""},
	}
	p := launch(t)
	var grants []string
	for _, s := range oddServers {
		grants = append(grants, s.Name)
	}
	if r := p.run(t, wire.Exec{Code: "1", Grants: grants, Define: oddServers}, which); r.err != nil || r.stdout != "1\n" {
		t.Fatal(r.stdout, r.stderr, r.err)
	}
	for _, prog := range programs {
		t.Run(prog.name, func(t *testing.T) {
			r := p.run(t, wire.Exec{Code: prog.code, Grants: grants}, func(ctx context.Context, c wire.Call) (json.RawMessage, error) {
				if c.Method != wire.MethodCallTool {
					return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "no " + c.Method}
				}
				return which(ctx, c)
			})
			if r.err != nil {
				t.Fatal(r.err)
			}
			if r.stdout != prog.stdout && (strings.HasSuffix(prog.stdout, "\n") || prog.stdout == "" || !strings.HasPrefix(r.stdout, prog.stdout)) {
				t.Errorf("stdout %.600q, want %q", r.stdout, prog.stdout)
			}
			if !strings.Contains(r.stderr, prog.stderr) || prog.stderr == "" && r.stderr != "" {
				t.Errorf("stderr %.600q, want %q in it", r.stderr, prog.stderr)
			}
		})
	}
}

// TestNotGranted: a module of a keyword's name is granted by the host, or not.
func TestNotGranted(t *testing.T) {
	p := launch(t)
	p.run(t, wire.Exec{Code: "1", Define: oddServers}, which)
	if r := p.exec(t, "import mcp.servers.class_"); !strings.Contains(r.stderr, "ModuleNotFoundError: no load_server") {
		t.Error(r.stderr)
	}
}

// TestManual: the manual names each helper once, and is true
// for the session.
func TestManual(t *testing.T) {
	p := launch(t)
	facts := func(_ context.Context, c wire.Call) (json.RawMessage, error) {
		if c.Method == wire.MethodSessionFacts {
			return json.RawMessage(`{"timeout":30,"maxTimeout":120,"memory":536870912,"workspace":134217728,"processes":128,"environment":"data","environments":["data","ml","host"],"packages":"any","folders":["/mnt/data (read-only)","/mnt/out (a private copy)"]}`), nil
		}
		return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "no " + c.Method}
	}
	code := "t = capability_summary()\nprint(t)\nm = [n for n in runtime.__all__ if n != 'MCPError' and n + '(' not in t and not (n.endswith('_sync') and '[_sync' in t.rpartition('await ' + n[:-5] + '(')[2].partition('\\n')[0])]"
	r := p.run(t, wire.Exec{Code: code + "\nm", Grants: []string{"my-echo"}, Define: []wire.Server{echoServer},
		Discovered: []wire.ServerInfo{{Name: "my-echo"}, {Name: "other"}}}, facts)
	if r.Status != wire.StatusOK || !strings.HasPrefix(r.stdout, "--- PYTHON SANDBOX MANUAL ---\nPython 3.") || !strings.HasSuffix(r.stdout, "\n[]\n") {
		t.Fatalf("%+v\n%s%s", r.Done, r.stdout, r.stderr)
	}
	for _, want := range []string{
		"\nLimits: 30 s of the code's own time for a call (argument timeout, at most 120 s), 512 MiB of memory, 128 MiB of files in /workspace, 128 processes.\n" +
			"Environment of this session: data. Others, for a new session: ml, host (argument env of run_python).\n" +
			"Folders of the user: /mnt/data (read-only), /mnt/out (a private copy).\n",
		"\nMCP servers loaded now: mcp_my_echo (5 tools).\nConfigured, not loaded: other (",
		"\n  await query_tool_docs(server, tool=None, detail='summary'): ",
		"\n  await search_tool_docs(query, *, limit=5, detail='summary'): Find tools of all servers by what they do, best first. [_sync]\n",
		"\n  await install_packages(*packages): Add packages to this session: \"pandas>=2\", \"httpx\". [_sync]\n",
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("the manual lacks %q:\n%s", want, r.stdout)
		}
	}
	if find, limits := strings.Index(r.stdout, "Find a tool"), strings.Index(r.stdout, "Limits:"); find < 0 || find > limits || strings.Index(r.stdout, "search_tool_docs(query") > strings.Index(r.stdout, "save_memory(key") {
		t.Errorf("the manual does not begin with what is most important:\n%s", r.stdout)
	}
	if r := p.exec(t, "capability_summary()"); strings.Contains(r.stdout, "install_packages") {
		t.Errorf("where policy allows no packages the manual names install_packages:\n%s", r.stdout)
	}
	documented := "MCPError call_tool list_tools list_tools_sync list_servers list_servers_sync discovered_servers describe_server " +
		"list_loaded_server_metadata query_tool_docs_sync query_tool_docs search_tool_docs_sync search_tool_docs capability_summary " +
		"save_tool save_memory load_memory delete_memory list_memories update_memory memory_exists get_memory_info "
	if r := p.exec(t, "print(*runtime.__all__)"); !strings.HasPrefix(r.stdout, documented) {
		t.Errorf("__all__ begins otherwise than documented: %s%s", r.stdout, r.stderr)
	}
	// What is importable is looked for, not remembered.
	has := "open('polars.py', 'w').write(''); capability_summary().count('polars'), capability_summary().count('wonderland')"
	r = p.run(t, wire.Exec{Code: has}, facts)
	if !strings.HasSuffix(r.stdout, "(1, 0)\n") {
		t.Error(r.stdout, r.stderr)
	}
	// A host that says nothing of limits.
	r = p.exec(t, "'Limits' in capability_summary(), 'loaded now: none' in capability_summary(), 'polars' in __import__('sys').modules")
	if r.stdout != "(False, True, False)\n" {
		t.Error(r.stdout, r.stderr)
	}
}

// TestManualIsShort counts the tokens of a manual with many servers, saved tools
// and packages.
func TestManualIsShort(t *testing.T) {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	answer := func(_ context.Context, c wire.Call) (json.RawMessage, error) {
		if c.Method == wire.MethodToolNames {
			return json.RawMessage(`["clean_rows","weekly_report","plot_sales"]`), nil
		}
		return json.RawMessage(`{"timeout":30,"maxTimeout":120,"memory":536870912,"workspace":134217728,"output":1048576,"processes":128}`), nil
	}
	exec := wire.Exec{Code: "from sallyport_guest import manual\nfor n in manual.NOTABLE: open(n + '.py', 'w').close()\nprint(capability_summary())"}
	for i := range 40 {
		name := fmt.Sprintf("some-server-%d", i)
		exec.Discovered = append(exec.Discovered, wire.ServerInfo{Name: name})
		if i < 5 {
			exec.Grants = append(exec.Grants, name)
			exec.Define = append(exec.Define, wire.Server{Name: name, Alias: strings.ReplaceAll(name, "-", "_")})
		}
	}
	r := launch(t).run(t, exec, answer)
	n, err := codec.Count(r.stdout)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d tokens", n)
	if n > 900 || !strings.Contains(r.stdout, "seaborn") || !strings.Contains(r.stdout, "plot_sales") || !strings.Contains(r.stdout, " and 25 more") {
		t.Errorf("got %d tokens, want at most 900\n%s%s", n, r.stdout, r.stderr)
	}
}

// TestStarImports: names that a server, or earlier code, has chosen take the
// place of nothing that the code means by them, and what is left out is told.
func TestStarImports(t *testing.T) {
	named := func(name string) tool.Tool { return tool.Tool{Name: name, Alias: name} }
	greedy := wire.Server{Name: "greedy", Alias: "greedy", Tools: []tool.Tool{
		named("open"), named("print"), named("__import__"), named("json"), named("mine"), named("runtime"), named("load_memory"), named("mcp_other"), named("fetch"), named("again"),
	}}
	other := wire.Server{Name: "other", Alias: "other", Tools: []tool.Tool{named("fetch"), named("own")}}
	p := launch(t)
	define := wire.Exec{Code: "1;", Grants: []string{"greedy", "other"}, Define: []wire.Server{greedy, other}}
	if r := p.run(t, define, which); r.err != nil || r.stderr != "" {
		t.Fatalf("%v %s", r.err, r.stderr)
	}
	const left = "sallyport: from mcp.servers.%s import * leaves out %s: the name is taken; write mcp_%s.NAME\n"
	for _, test := range []struct{ name, code, stdout, stderr string }{
		{"nothing is taken", "import builtins, json\nmine = 5\nbefore = {n: globals().get(n) for n in ('json', 'mine', 'runtime', 'load_memory', 'mcp_other')}\nfrom mcp.servers.greedy import *\n" +
			"print(all(globals()[n] is v for n, v in before.items()), 'open' in globals(), open is builtins.open, await fetch(), await again())",
			"True False True greedy fetch greedy again\n",
			fmt.Sprintf(left, "greedy", "open, print, json, mine, runtime, load_memory, mcp_other", "greedy")},
		{"a server's own names again", "del json, mine\nfrom mcp.servers.greedy import *\nprint(await json(), await mine())", "greedy json greedy mine\n",
			fmt.Sprintf(left, "greedy", "open, print, runtime, load_memory, mcp_other", "greedy")},
		{"another server's", "from mcp.servers.other import *\nprint(await fetch(), await own(), TOOLS)", "greedy fetch other own ('fetch', 'own')\n",
			fmt.Sprintf(left, "other", "fetch", "other")},
		{"by name it is one's own choice", "from mcp.servers.greedy import open\nprint(await open())", "greedy open\n", ""},
	} {
		r := p.run(t, wire.Exec{Code: test.code, Grants: []string{"greedy", "other"}}, which)
		if r.err != nil || r.stdout != test.stdout || r.stderr != test.stderr {
			t.Errorf("%s: got %q %q %v, want %q %q", test.name, r.stdout, r.stderr, r.err, test.stdout, test.stderr)
		}
	}
	saved := func(_ context.Context, c wire.Call) (json.RawMessage, error) {
		if c.Method == wire.MethodToolNames {
			return json.RawMessage(`["print","f","runtime"]`), nil
		}
		return json.RawMessage(`{"name":"f","version":1,"servers":[],"source":"def f(): return 7\n"}`), nil
	}
	r := p.run(t, wire.Exec{Code: "from user_tools import *\nfrom user_tools import *\nprint(f(), runtime.list_servers_sync())"}, saved)
	one := "sallyport: from user_tools import * leaves out print, runtime: the name is taken; write user_tools.NAME\n"
	if want := "7 ()\n"; r.stdout != want || r.stderr != one {
		t.Errorf("saved tools: got %q %q, want %q %q", r.stdout, r.stderr, want, one)
	}
}
