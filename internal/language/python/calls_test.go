//go:build unix

package python_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sallyport/sallyport/internal/toolbox/tool"
	"github.com/sallyport/sallyport/internal/wire"
)

// echoServer is a server whose tools answer what the tests need.
var echoServer = wire.Server{
	Name: "my-echo", Alias: "my_echo", Description: "Echoes.", Cwd: "/srv",
	Tools: []tool.Tool{
		{Name: "echo", Alias: "echo", Description: "Say it back.",
			Signature: "(text: str, times: int = ..., mode: Literal['a', 'b'] = ..., deep: dict | None = ...)", InputSchema: json.RawMessage(
				`{"type":"object","properties":{"text":{"type":"string","description":"what to say"},"times":{"type":"integer"},"mode":{"enum":["a","b"]},"deep":{"type":["object","null"]}},"required":["text"],"additionalProperties":false}`)},
		{Name: "getUserProfile", Alias: "getuserprofile", InputSchema: json.RawMessage(`{"type":"object"}`)},
		{Name: "order", Alias: "order", InputSchema: json.RawMessage(
			`{"type":"object","properties":{"m":{},"a":{},"z":{}},"required":["z","m"]}`)},
		{Name: "say", Alias: "say"},
		{Name: "edit", Alias: "edit",
			Signature: "(edits: list[{'old': str}], class_: str = 'x')", Renamed: map[string]string{"class": "class_"}, InputSchema: json.RawMessage(
				`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"edits":{"type":"array","items":{"$ref":"#/definitions/edit"}},"class":{"type":"string","default":"x"}},"required":["edits"],
			"definitions":{"edit":{"type":"object","properties":{"old":{"type":"string","description":"what is there"}},"required":["old"]}}}`)},
	},
}

// say answers call_tool with whatever the argument "result" is, and otherwise
// with the arguments' own bytes as text.
func say(ctx context.Context, c wire.Call) (json.RawMessage, error) {
	if c.Method != wire.MethodCallTool {
		return nil, &wire.CallError{Kind: wire.KindUnsupported, Message: "unknown method " + c.Method}
	}
	var p struct {
		Server, Tool string
		Arguments    json.RawMessage
		Fresh        bool
	}
	if err := json.Unmarshal(c.Params, &p); err != nil {
		return nil, err
	}
	if p.Tool == "say" {
		var a struct {
			Result json.RawMessage
			Sleep  float64
		}
		if err := json.Unmarshal(p.Arguments, &a); err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(a.Sleep * float64(time.Second))):
		case <-ctx.Done():
		}
		return a.Result, nil
	}
	said := string(p.Arguments)
	if p.Fresh {
		said = `{"fresh": ` + said + `}`
	}
	text, err := json.Marshal(said)
	return json.RawMessage(`{"content":[{"type":"text","text":` + string(text) + `}]}`), err
}

func TestCalls(t *testing.T) {
	quoted := func(s string) string { return "'" + s + "'\n" }
	programs := []struct {
		name, code, stdout, stderr string
	}{
		{name: "keyword", code: `await mcp_my_echo.order(z=2, m=1)`, stdout: "{'z': 2, 'm': 1}\n"},
		{name: "order is kept", code: `r = await runtime.call_tool("my-echo", "order", {"z": 1, "a": 2}); print(r["content"][0]["text"])`, stdout: `{"z":1,"a":2}` + "\n"},
		{name: "fresh", code: `dict(await mcp_my_echo.order.fresh(z=1, m=2)), await runtime.call_tool("my-echo", "order", {"z": 1}, fresh=True) != await runtime.call_tool("my-echo", "order", {"z": 1}, fresh=False)`, stdout: "({'fresh': {'z': 1, 'm': 2}}, True)\n"},
		{name: "positional", code: `dict(await mcp_my_echo.order(1, 2, 3))`, stdout: "{'m': 1, 'z': 2, 'a': 3}\n"},
		{name: "big integer", code: `(await mcp_my_echo.order(9007199254740993, 2**70)).m`, stdout: "9007199254740993\n"},
		{name: "unicode", code: `(await mcp_my_echo.order("\U0001F600ä\x00", "\ud800")).m == "\U0001F600ä\x00"`, stdout: "True\n"},
		{name: "null and absent", code: `dict(await mcp_my_echo.order(None, 1))`, stdout: "{'m': None, 'z': 1}\n"},
		{name: "argument names", code: `dict(await mcp_my_echo.getUserProfile(**{"class": 1, "self": 2, "from": 3, "_target": 4, "args": 5}))`,
			stdout: "{'class': 1, 'self': 2, 'from': 3, '_target': 4, 'args': 5}\n"},
		{name: "by name", code: `dict(await mcp_servers["my-echo"].getuserprofile(a=1))`, stdout: "{'a': 1}\n"},
		{name: "by item", code: `dict(await mcp_servers["my-echo"]["getUserProfile"](a=1))`, stdout: "{'a': 1}\n"},
		{name: "from mcp", code: "from mcp import mcp_my_echo as e\ndict(await e.getuserprofile(a=1))", stdout: "{'a': 1}\n"},
		{name: "star", code: "from mcp.servers.my_echo import *\nprint(TOOLS, TOOL_MAP['getuserprofile'])\ndict(await getuserprofile(a=1))",
			stdout: "('echo', 'getUserProfile', 'order', 'say', 'edit') getUserProfile\n{'a': 1}\n"},
		{name: "module", code: "import mcp.servers.my_echo as m\nmcp.servers.my_echo is m, m.__name__", stdout: "(True, 'mcp.servers.my_echo')\n"},
		{name: "runtime module", code: "import mcp.runtime as r\nfrom mcp import runtime as q\nr is q is runtime", stdout: "True\n"},
		{name: "runtime star", code: "from mcp.runtime import *\ncall_tool.__name__, MCPError.__name__", stdout: "('call_tool', 'MCPError')\n"},
		{name: "loaded", code: `LOADED_MCP_SERVERS, list(mcp_servers)`, stdout: "(('my-echo',), ['my-echo'])\n"},
		{name: "structured result", code: `await mcp_my_echo.say(result={"content": [], "structuredContent": {"result": [1, 2]}})`, stdout: "[1, 2]\n"},
		{name: "structured text", code: `await mcp_my_echo.say(result={"content": [{"type": "text", "text": "TODO x"}], "structuredContent": {"content": "TODO x"}})`, stdout: quoted("TODO x")},
		{name: "structured other text", code: `dict(await mcp_my_echo.say(result={"content": [{"type": "text", "text": "y"}], "structuredContent": {"content": "x"}}))`, stdout: "{'content': 'x'}\n",
			stderr: "Hint: say of server 'my-echo' also answered text that is not in its structured content: .text of the value has it\n"},
		{name: "text and structured", code: `(await mcp_my_echo.say(result={"content": [{"type": "text", "text": "the real answer"}], "structuredContent": {"execution_ms": 3}})).text`, stdout: quoted("the real answer")},
		{name: "structured object", code: `r = await mcp_my_echo.say(result={"content": [], "structuredContent": {"items": [{"id": 1}], "n": {"m": 2}}}); print(r["items"][0].id, r.n.m, r.keys())`,
			stdout: "1 2 dict_keys(['items', 'n'])\n"},
		{name: "json again", code: "import json\njson.dumps(r)", stdout: quoted(`{"items": [{"id": 1}], "n": {"m": 2}}`)},
		{name: "pickled", code: "import pickle\npickle.loads(pickle.dumps(r)) == r", stdout: "True\n"},
		{name: "no attribute", code: "r.nothing", stderr: "AttributeError: there is no 'nothing'; there are: items, n"},
		{name: "text", code: `await mcp_my_echo.say(result={"content": [{"type": "text", "text": "plain"}]})`, stdout: quoted("plain")},
		{name: "a number stays text", code: `await mcp_my_echo.say(result={"content": [{"type": "text", "text": "12"}]})`, stdout: quoted("12")},
		{name: "json text", code: `(await mcp_my_echo.say(result={"content": [{"type": "text", "text": " [{\"a\": 1}] "}]}))[0].a`, stdout: "1\n"},
		{name: "not quite json", code: `await mcp_my_echo.say(result={"content": [{"type": "text", "text": "[FILE] a"}]})`, stdout: quoted("[FILE] a")},
		{name: "code is not json", code: `await mcp_my_echo.say(result={"content": [{"type": "text", "text": "{ return 1; }"}]})`, stdout: quoted("{ return 1; }")},
		{name: "a summary is not json", code: `await mcp_my_echo.say(result={"content": [{"type": "text", "text": "[2 files] done"}]})`, stdout: quoted("[2 files] done")},
		{name: "half a surrogate pair", code: `ascii(await mcp_my_echo.say(result={"content": [{"type": "text", "text": "{\ud800"}]}))`, stdout: `"'{\\ud800'"` + "\n"},
		{name: "too many digits", code: `(await mcp_my_echo.say(result={"content": [{"type": "text", "text": "[" + "9" * 5000 + "]"}]}))[:3]`, stdout: quoted("[99")},
		{name: "too deep", code: `(await mcp_my_echo.say(result={"content": [{"type": "text", "text": "[" * 100000}]}))[:3]`, stdout: quoted("[[[")},
		{name: "image", code: `(await mcp_my_echo.say(result={"content": [{"type": "image", "data": "AA", "mimeType": "image/png"}]}))[0].mimeType`, stdout: quoted("image/png")},
		{name: "audio echoed", code: `(await mcp_my_echo.say(result={"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]}))`, stdout: "[<audio audio/wav, 3 bytes: .save(path), .data>]\n"},
		{name: "audio saved", code: "i = _[0]\nprint(i.save('deep/x.png'), open('deep/x.png', 'rb').read() == i.data == bytes(3))\ni", stdout: "deep/x.png True\n<audio audio/wav, 3 bytes: .save(path), .data>\n"},
		{name: "audio, raw", code: `(await runtime.call_tool("my-echo", "say", {"result": {"content": [{"type": "audio", "data": "AAAA"}]}}))`, stdout: "{'content': [<audio, 3 bytes: .save(path), .data>]}\n"},
		{name: "a link leads on", code: `(await mcp_my_echo.say(result={"content": [{"type": "resource_link", "uri": "a://b", "name": "n"}]}))[0].data`, stderr: "MCPError: this is a link: read it with (await runtime.read_resource('my-echo', 'a://b'))[0]"},
		{name: "raw, by alias", code: `(await runtime.call_tool("my_echo", "getuserprofile", {"a": 1}))["content"][0]["text"]`, stdout: quoted(`{"a":1}`)},
		{name: "raw, no tool", code: `await runtime.call_tool("my-echo", None)`, stderr: "MCPError: Missing tool name"},
		{name: "raw arguments", code: `await runtime.call_tool("my-echo", "say", [1])`, stderr: "MCPError: Arguments must be an object"},
		{name: "raw arguments not sendable", code: `await runtime.call_tool("my-echo", "say", {"a": object()})`, stderr: "ArgumentError: runtime.call_tool: the arguments cannot be sent"},
		{name: "no content", code: `await mcp_my_echo.say(result={"content": []})`, stdout: "[]\n"},
		{name: "tool failed", code: `await mcp_my_echo.say(result={"isError": True, "content": [{"type": "text", "text": "no such file"}]})`, stderr: "MCPError: no such file\n"},
		{name: "tool failed, raw", code: `(await runtime.call_tool("my-echo", "say", {"result": {"isError": True, "content": []}}))["isError"]`, stdout: "True\n"},
		{name: "caught", code: "try:\n    await mcp_my_echo.say(result={'isError': True, 'content': []})\nexcept runtime.MCPError as e:\n    print(e.kind, e.server, e.tool, e)",
			stdout: "tool my-echo say my-echo.say failed and gave no reason\n"},
		{name: "unknown argument", code: `await mcp_my_echo.echo(txt="x")`, stderr: "mcp.runtime.ArgumentError: mcp_my_echo.echo: there is no argument 'txt'; did you mean 'text'?; missing 'text'. Signature: mcp_my_echo.echo(text: str, times: int = ..., mode: Literal['a', 'b'] = ..., deep: dict | None = ...)"},
		{name: "missing argument", code: `await mcp_my_echo.echo()`, stderr: "missing 'text'"},
		{name: "wrong type", code: `await mcp_my_echo.echo(text=1)`, stderr: "argument 'text' must be str, not int 1"},
		{name: "bool is no integer", code: `await mcp_my_echo.echo("x", True)`, stderr: "argument 'times' must be int, not bool True"},
		{name: "none for an optional one", code: `await mcp_my_echo.echo("x", None)`, stderr: "leave it out instead"},
		{name: "none where allowed", code: `dict(await mcp_my_echo.echo("x", deep=None))`, stdout: "{'text': 'x', 'deep': None}\n"},
		{name: "enum", code: `await mcp_my_echo.echo("x", mode="c")`, stderr: "argument 'mode' must be one of 'a', 'b', not 'c'"},
		{name: "inside", code: `await mcp_my_echo.edit(edits=[{"old": "x"}, {"old": 5}])`, stderr: "ArgumentError: mcp_my_echo.edit: argument 'edits[1].old' must be str, not int 5. Signature: mcp_my_echo.edit(edits: list[{'old': str}], class_: str = 'x')"},
		{name: "a name that is a keyword", code: `print(dict(await mcp_my_echo.edit([], class_="a")), dict(await mcp_my_echo.edit([], **{"class": "a"})))`, stdout: "{'edits': [], 'class': 'a'} {'edits': [], 'class': 'a'}\n"},
		{name: "too many", code: `await mcp_my_echo.echo("x", 1, "a", None, 5)`, stderr: "5 positional arguments, where at most 4 can be"},
		{name: "twice", code: `await mcp_my_echo.echo("x", text="y")`, stderr: "argument 'text' is given twice"},
		{name: "a TypeError too", code: "try:\n    await mcp_my_echo.echo()\nexcept TypeError as e:\n    print(isinstance(e, runtime.MCPError))", stdout: "True\n"},
		{name: "values converted", code: "import pathlib, datetime\ndict(await mcp_my_echo.order(pathlib.Path('/a'), datetime.date(2020, 1, 2), {3}))", stdout: "{'m': '/a', 'z': '2020-01-02', 'a': [3]}\n"},
		{name: "not sendable", code: `await mcp_my_echo.order(1, object())`, stderr: "the arguments cannot be sent: a value of type object"},
		{name: "not a number", code: `await mcp_my_echo.order(1, float("nan"))`, stderr: "the arguments cannot be sent: Out of range float"},
		{name: "no such tool", code: `mcp_my_echo.ecko`, stderr: "AttributeError: server 'my-echo' has no tool 'ecko'; did you mean 'echo'?"},
		{name: "part of a tool's name", code: `mcp_my_echo.profile`, stderr: "has no tool 'profile'; did you mean 'getuserprofile'?"},
		{name: "signature", code: "import inspect\nprint(inspect.signature(mcp_my_echo.echo))", stdout: "(text: str, times: int = ..., mode: Literal['a', 'b'] = ..., deep: dict | None = ...)\n"},
		{name: "help", code: `help(mcp_my_echo.echo)`, stdout: "await mcp_my_echo.echo("},
		{name: "not loaded", code: `mcp_servers["other"]`, stdout: "<MCP server mcp_other, loaded when it is used>\n"},
		{name: "denied", code: `await mcp_servers["other"].x()`, stderr: "MCPError: MCP server \"other\" is not allowed"},
		{name: "denied by name", code: `await mcp_other.x()`, stderr: "MCPError: MCP server \"other\" is not allowed"},
		{name: "denied to a function", code: "async def use(): return await mcp_other['x'](1)\nawait use()", stderr: "MCPError: MCP server \"other\" is not allowed"},
		{name: "denied when looked at", code: `dir(mcp_other)`, stderr: "MCPError: MCP server \"other\" is not allowed"},
		{name: "denied when imported", code: `from mcp import mcp_other; await mcp_other.x()`, stderr: "MCPError: MCP server \"other\" is not allowed"},
		{name: "denied as a module", code: `import mcp.servers.other`, stderr: "ModuleNotFoundError: MCP server \"other\" is not allowed"},
		{name: "denied as a module of that name", code: `import mcp_other`, stderr: "ModuleNotFoundError: MCP server \"other\" is not allowed"},
		{name: "denied to a helper", code: `await list_tools("other")`, stderr: "MCPError: MCP server \"other\" is not allowed"},
		{name: "a module of that name", code: "import mcp_my_echo as m\nfrom mcp_my_echo import getuserprofile as one\nm is mcp.servers.my_echo, dict(await one(a=1))", stdout: "(True, {'a': 1})\n"},
		{name: "no server of that name", code: "import mcp_qq", stderr: "ModuleNotFoundError: No module named 'mcp_qq'\nHint: there is no server mcp_qq (the servers are mcp_my_echo, mcp_other)"},
		{name: "module unknown", code: `import mcp.servers.nothing`, stderr: "ModuleNotFoundError: No module named 'mcp.servers.nothing'"},
		{name: "call unknown", code: `await runtime.call_tool("nothing", "x")`, stderr: "Server 'nothing' is not available: there is no server of that name"},
		{name: "discovered", code: `runtime.discovered_servers()`, stdout: "('my-echo', 'other')\n"},
		{name: "discovered in detail", code: `runtime.discovered_servers(detailed=True)[1]`, stdout: "{'name': 'other', 'description': 'The other.'}\n"},
		{name: "list_servers", code: `await runtime.list_servers(), runtime.list_servers_sync()`, stdout: "(('my-echo',), ('my-echo',))\n"},
		{name: "list_tools", code: `[t["name"] for t in await mcp_my_echo.list_tools()]`, stdout: "['echo', 'getUserProfile', 'order', 'say', 'edit']\n"},
		{name: "list_tools_sync", code: `[t["alias"] for t in runtime.list_tools_sync("my-echo")]`, stdout: "['echo', 'getuserprofile', 'order', 'say', 'edit']\n"},
		{name: "describe", code: "d = runtime.describe_server('my-echo')\nd['alias'], d['cwd'], len(d['tools'])", stdout: "('my_echo', '/srv', 5)\n"},
		{name: "docs", code: `dict(await runtime.query_tool_docs("my-echo", "echo"))`, stdout: "{'server': 'my-echo', 'serverAlias': 'my_echo', 'tool': 'echo', 'toolAlias': 'echo', 'description': 'Say it back.', 'signature': \"(text: str, times: int = ..., mode: Literal['a', 'b'] = ..., deep: dict | None = ...)\"}\n"},
		{name: "docs as a line", code: `await runtime.query_tool_docs("my-echo", "echo")`, stdout: "mcp_my_echo.echo(text: str, times: int = ..., mode: Literal['a', 'b'] = ..., deep: dict | None = ...)  # Say it back.\n"},
		{name: "docs full", code: `runtime.query_tool_docs_sync("my-echo", "echo", detail="full")[0]["inputSchema"]["required"]`, stdout: "['text']\n"},
		{name: "search", code: `[d["tool"] for d in await runtime.search_tool_docs("back say")]`, stdout: "['echo']\n"},
		{name: "search sync", code: `[d["tool"] for d in runtime.search_tool_docs_sync("my-echo", limit=2)]`, stdout: "['echo', 'getUserProfile']\n"},
		{name: "docs of an unknown tool", code: `await runtime.query_tool_docs("my-echo", "nope")`, stderr: "MCPError: Tool 'nope' not found for server my-echo"},
		{name: "docs of no tool", code: `await runtime.query_tool_docs("my-echo", 5)`, stderr: "MCPError: 'tool' must be a string when provided"},
		{name: "search for nothing", code: `runtime.search_tool_docs_sync(" ")`, stderr: "MCPError: Missing 'query' value"},
		{name: "search with a limit that is none", code: `await search_tool_docs("x", limit="many")`, stderr: "MCPError: 'limit' must be an integer"},
		{name: "tools of no server", code: `list_tools_sync()`, stderr: "MCPError: list_tools_sync(server) requires a server name"},
		{name: "not described", code: `describe_server("other")`, stderr: "MCPError: Server 'other' is not loaded"},
		{name: "bound", code: "[n for n in runtime.__all__ if globals()[n] is not getattr(runtime, n)], list_servers_sync(), MCPError is runtime.MCPError", stdout: "([], ('my-echo',), True)\n"},
		{name: "all", code: "runtime.__all__[:8], runtime.__all__[13]", stdout: "(['MCPError', 'call_tool', 'list_tools', 'list_tools_sync', 'list_servers', 'list_servers_sync', 'discovered_servers', 'describe_server'], 'capability_summary')\n"},
		{name: "the user's name wins", code: "list_servers, runtime_before = 'mine', runtime\nruntime = 5"},
		{name: "and stays", code: "print(list_servers, runtime)\nruntime = runtime_before", stdout: "mine 5\n"},
		{name: "help of a server's name", code: `help(" mcp_my_echo ")`, stdout: "Echoes.\n\nTools (help(mcp_my_echo.NAME) describes one):\n  await mcp_my_echo.echo("},
		{name: "help of a tool's name", code: `help("mcp_my_echo.order"); help("mcp.servers.my_echo.say")`, stdout: "await mcp_my_echo.order(m, z, a=...)\n\nArguments:"},
		{name: "help of a module", code: "import mcp.servers.my_echo as m, mcp_my_echo as n\nhelp(m)\nhelp(n)", stdout: "Echoes.\n\nTools ("},
		{name: "help of all servers", code: "help(mcp_servers); help(mcp); help('mcp')", stdout: "The MCP servers (help(mcp_my_echo) describes the tools of one):\n  mcp_my_echo\n  mcp_other: The other.\nawait search"},
		{name: "help of a server that cannot be loaded", code: "help(mcp_other); help(mcp_other.x)", stdout: "MCP server \"other\" is not allowed\nfind_servers() says"},
		{name: "help of no server", code: "help('mcp_none')", stdout: "Server 'mcp_none' is not available: there is no server of that name (there are: my-echo, other)\nfind_servers() says"},
		{name: "help of no tool", code: "help('mcp_my_echo.order2')", stderr: "AttributeError: server 'my-echo' has no tool 'order2'; did you mean 'order'?"},
		{name: "help of nothing", code: "help()", stdout: "help(x) describes x. capability_summary() describes this sandbox.\n"},
		{name: "help of a type", code: "help('str.upper')", stdout: "Help on method"},
		{name: "a question", code: "mcp_my_echo.order??", stdout: "await mcp_my_echo.order("},
		{name: "a question about a type", code: "?print", stdout: "Help on built-in function print"},
		{name: "help of a helper", code: "help(search_tool_docs)", stdout: "Help on method search_tool_docs in module mcp.runtime:\n\nasync search_tool_docs(query, *, limit=5, detail='summary')"},
		{name: "summary", code: `runtime.capability_summary().startswith("--- PYTHON SANDBOX MANUAL ---")`, stdout: "True\n"},
		{name: "gather", code: "import asyncio\n[dict(x)['m'] for x in await asyncio.gather(*(mcp_my_echo.order(i, 0) for i in range(20)))] == list(range(20))", stdout: "True\n"},
		{name: "in asyncio.run", code: "async def main(): return (await mcp_my_echo.order(5, 0)).m\nasyncio.run(main())", stdout: "5\n"},
		{name: "in a nested run", code: "await asyncio.sleep(0)\nasyncio.run(main())", stdout: "5\n"},
		{name: "in a thread", code: "import threading\ngot = []\nt = threading.Thread(target=lambda: got.append(asyncio.run(main())))\nt.start(); t.join(); got", stdout: "[5]\n"},
		{name: "in threads", code: "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as ex: print(list(ex.map(lambda i: asyncio.run(main()), range(8))))", stdout: "[5, 5, 5, 5, 5, 5, 5, 5]\n"},
		{name: "in to_thread", code: "await asyncio.gather(*[asyncio.to_thread(asyncio.run, main()) for _ in range(3)], main())", stdout: "[5, 5, 5, 5]\n"},
		{name: "sync in a thread", code: "got = []\nt = threading.Thread(target=lambda: got.append(runtime.search_tool_docs_sync('say')))\nt.start(); t.join(); len(got[0])", stdout: "2\n"},
		{name: "after threads", code: "await main()", stdout: "5\n"},
		{name: "selector loop of one's own", code: "loop = asyncio.SelectorEventLoop()\nprint(loop.run_until_complete(main()))\nloop.close()", stdout: "5\n"},
		{name: "timeout", code: "try:\n    await asyncio.wait_for(mcp_my_echo.say(result=1, sleep=5), 0.01)\nexcept asyncio.TimeoutError: print('late')", stdout: "late\n"},
		{name: "after a timeout", code: "await main()", stdout: "5\n"},
		{name: "in a fork", code: "import os, warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('ignore') # 3.12 warns of the threads above\n    pid = os.fork()\nif pid == 0:\n    try: asyncio.run(main())\n    except runtime.MCPError as e: print(e)\nelse: os.waitpid(pid, 0)", stdout: "a forked child process cannot call tools\n"},
		{name: "not awaited", code: "mcp_my_echo.echo('x')", stdout: "<coroutine object mcp_my_echo.echo at ", stderr: "Hint: line 1: mcp_my_echo.echo(...) was called without await, so it has not run: write await mcp_my_echo.echo(...)\n"},
		{name: "rebound", code: "mcp_my_echo = 5"},
		{name: "stays rebound", code: "mcp_my_echo", stdout: "5\n"},
		{name: "unbound", code: "del mcp_my_echo"},
		{name: "bound again", code: "mcp_my_echo", stdout: "<MCP server my-echo: echo, getuserprofile, order, say, edit>\n"},
	}
	p := launch(t)
	define := wire.Exec{
		Code: "1", Grants: []string{"my-echo"}, Define: []wire.Server{echoServer},
		Discovered: []wire.ServerInfo{{Name: "my-echo", Alias: "my_echo"}, {Name: "other", Alias: "other", Description: "The other."}},
	}
	host := func(ctx context.Context, c wire.Call) (json.RawMessage, error) {
		if c.Method == wire.MethodLoadServer {
			if string(c.Params) == `{"name":"my-echo"}` {
				return json.Marshal(echoServer)
			}
			return nil, &wire.CallError{Kind: wire.KindDenied, Message: `MCP server "other" is not allowed`}
		}
		if c.Method == wire.MethodFindServers {
			return json.RawMessage("[]"), nil
		}
		return say(ctx, c)
	}
	if r := p.run(t, define, host); r.err != nil || r.stdout != "1\n" {
		t.Fatal(r)
	}
	for _, prog := range programs {
		if skipped(t, prog.code) {
			continue
		}
		t.Run(prog.name, func(t *testing.T) {
			r := p.run(t, wire.Exec{Code: prog.code, Grants: []string{"my-echo"}}, host)
			if r.err != nil {
				t.Fatal(r.err)
			}
			want := wire.StatusOK
			if prog.stderr != "" && prog.stdout == "" {
				want = wire.StatusError
			}
			if r.Status != want {
				t.Errorf("status %s, want %s", r.Status, want)
			}
			if r.stdout != prog.stdout && (strings.HasSuffix(prog.stdout, "\n") || !strings.Contains(r.stdout, prog.stdout) || prog.stdout == "") {
				t.Errorf("stdout %q, want %q", r.stdout, prog.stdout)
			}
			if !strings.Contains(r.stderr, prog.stderr) || prog.stderr == "" && r.stderr != "" {
				t.Errorf("stderr %q, want %q in it", r.stderr, prog.stderr)
			}
			if strings.Contains(r.stderr, "sallyport_guest") {
				t.Errorf("our own frames are shown: %s", r.stderr)
			}
		})
	}
	// What an execution has not been granted the host grants at its first use, or
	// denies.
	for _, use := range []string{"kept.order(1, 2)", "order(1, 2)", "later()", "mcp_my_echo.order(1, 2)", "mcp_servers['my-echo']['order'](1, 2)"} {
		t.Run("granted by use: "+use, func(t *testing.T) {
			p.run(t, wire.Exec{Code: "kept, order = mcp_my_echo, mcp_my_echo.order\ndef later(): return mcp_my_echo.order(1, 2)", Grants: []string{"my-echo"}}, host)
			r := p.run(t, wire.Exec{Code: "print(LOADED_MCP_SERVERS)\nprint((await " + use + ").z, LOADED_MCP_SERVERS)"}, host)
			if r.stdout != "()\n2 ('my-echo',)\n" || r.stderr != "" {
				t.Error(r.stdout, r.stderr)
			}
			r = p.run(t, wire.Exec{Code: "await " + use}, say)
			if !strings.Contains(r.stderr, "MCPError: unknown method load_server") {
				t.Error(r.stdout, r.stderr)
			}
		})
	}
	t.Run("granted once by a gather", func(t *testing.T) {
		var loads atomic.Int32
		r := p.run(t, wire.Exec{Code: "import asyncio\n[x.m for x in await asyncio.gather(*(mcp_my_echo.order(i, 0) for i in range(3)))]"},
			func(ctx context.Context, c wire.Call) (json.RawMessage, error) {
				if c.Method == wire.MethodLoadServer {
					loads.Add(1)
				}
				return host(ctx, c)
			})
		if r.stdout != "[0, 1, 2]\n" || r.stderr != "" || loads.Load() == 0 {
			t.Error(r.stdout, r.stderr, loads.Load())
		}
	})
}

func TestLoadServer(t *testing.T) {
	p := launch(t)
	r := p.run(t, wire.Exec{
		Code:       "s = await runtime.load_server('my-echo')\nprint(s is mcp_my_echo, LOADED_MCP_SERVERS)\n(await mcp_my_echo.order(1, 2)).z",
		Discovered: []wire.ServerInfo{{Name: "my-echo"}},
	}, func(ctx context.Context, c wire.Call) (json.RawMessage, error) {
		if c.Method == wire.MethodLoadServer {
			if string(c.Params) != `{"name":"my-echo"}` {
				t.Errorf("params %s", c.Params)
			}
			return json.Marshal(echoServer)
		}
		return say(ctx, c)
	})
	if r.err != nil || r.stdout != "True ('my-echo',)\n2\n" || r.stderr != "" {
		t.Errorf("%+v %.500s %.500s", r.Done, r.stdout, r.stderr)
	}
	r = p.exec(t, "await runtime.load_server('x')")
	if r.Status != wire.StatusError || !strings.Contains(r.stderr, "MCPError: no load_server") {
		t.Errorf("%+v %.500s %.500s", r.Done, r.stdout, r.stderr)
	}
}

// TestToolsThatChange: what a server's tools have become during an execution is found
// by code that misses it, and nothing is asked where the tool is known.
func TestToolsThatChange(t *testing.T) {
	before := wire.Server{Name: "db", Alias: "db", Tools: []tool.Tool{
		{Name: "open", Alias: "open"},
		{Name: "find", Alias: "find", InputSchema: json.RawMessage(`{"type":"object","properties":{"key":{}},"additionalProperties":false}`)},
	}}
	after := before
	after.Tools = []tool.Tool{
		{Name: "query", Alias: "query"}, {Name: "close-all", Alias: "close_all"},
		{Name: "find", Alias: "find", InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{}},"additionalProperties":false}`)},
	}
	for _, tt := range []struct {
		name, code, stdout, stderr string
		asked                      int32
	}{
		{"a tool that is known", "await m.find(key=1)\nawait m.open()", "", "", 0},
		{"a new tool", "await m.open()\nprint(await m.query())", "query\n", "", 1},
		{"by the name of the module", "await m.open()\nprint(await mcp_db.query(), await mcp_db['close-all']())", "query close-all\n", "", 1},
		{"of a module", "from mcp.servers.db import open\nimport mcp.servers.db as d\nawait open()\nprint(await d.query())", "query\n", "", 1},
		{"imported", "await m.open()\nfrom mcp.servers.db import query\nprint(await query())", "query\n", "", 1},
		{"missed before", "print(hasattr(m, 'query'))\nawait m.open()\nprint(await m.query())", "False\nquery\n", "", 2},
		{"a tool that is not there", "await m.open()\nm.nothing", "", "has no tool 'nothing' (it has: query, close_all, find)", 1},
		{"an item that is not there", "m['nothing']", "", "KeyError", 1},
		{"other arguments", "await m.open()\nprint(await m.find(text=1))", "find\n", "", 1},
		{"wrong arguments", "await m.open()\nawait m.find(word=1)", "", "there is no argument 'word'. Signature: mcp_db.find(text=...)", 1},
		{"what Python asks for", "hasattr(m, '_repr_html_'), hasattr(m, '__len__')", "", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := launch(t)
			var asked atomic.Int32
			now := before
			r := p.run(t, wire.Exec{Code: "m = mcp_db\n" + tt.code + "\nNone", Grants: []string{"db"}, Define: []wire.Server{before}, Discovered: []wire.ServerInfo{{Name: "db", Alias: "db"}}},
				func(_ context.Context, c wire.Call) (json.RawMessage, error) {
					if c.Method == wire.MethodLoadServer {
						asked.Add(1)
						return json.Marshal(now)
					}
					var params struct{ Tool string }
					_ = json.Unmarshal(c.Params, &params)
					if params.Tool == "open" {
						now = after
					}
					return json.RawMessage(`{"content":[{"type":"text","text":"` + params.Tool + `"}]}`), nil
				})
			if r.stdout != tt.stdout || !strings.Contains(r.stderr, tt.stderr) || (tt.stderr == "") != (r.stderr == "") || strings.Contains(r.stderr, "During") {
				t.Errorf("got %q and %q, want %q and %q", r.stdout, r.stderr, tt.stdout, tt.stderr)
			}
			if asked.Load() != tt.asked {
				t.Errorf("the host was asked %d times, want %d", asked.Load(), tt.asked)
			}
		})
	}
}

// TestAsyncioOnTheWay: code that awaits without naming asyncio runs without a
// loop; what it imports may want one nevertheless.
func TestAsyncioOnTheWay(t *testing.T) {
	p := launch(t)
	r := p.run(t, wire.Exec{Code: "import sys\nprint('async' + 'io' in sys.modules)\n(await mcp_my_echo.order(1, 2)).m", Grants: []string{"my-echo"}, Define: []wire.Server{echoServer}}, say)
	if r.stdout != "False\n1\n" {
		t.Fatal(r.stdout, r.stderr)
	}
	module := "m = '''import asy''' + '''ncio\nasync def nap():\n    t = asy''' + '''ncio.current_task()\n    await asy''' + '''ncio.sleep(0.01)\n    return t is asy''' + '''ncio.current_task()\n'''\nopen('napping.py', 'w').write(m);"
	if r := p.exec(t, module); r.Status != wire.StatusOK {
		t.Fatal(r.stderr)
	}
	r = p.run(t, wire.Exec{Code: "before = await mcp_my_echo.order(1, 2)\nimport napping\nprint(await napping.nap())\n(await mcp_my_echo.order(3, 4)).m", Grants: []string{"my-echo"}}, say)
	if r.stdout != "True\n3\n" || r.stderr != "" {
		t.Fatal(r.stdout, r.stderr)
	}
	if r := p.exec(t, "await napping.nap()"); r.stdout != "True\n" {
		t.Fatal(r.stdout, r.stderr)
	}
}

func TestGatherIsParallel(t *testing.T) {
	p := launch(t)
	code := "import asyncio, time\nt = time.monotonic()\nr = await asyncio.gather(*[mcp_my_echo.say(result={'content': [{'type': 'text', 'text': str(i)}]}, sleep=0.05) for i in range(100)])\nprint(r == [str(i) for i in range(100)], time.monotonic() - t < 1)"
	r := p.run(t, wire.Exec{Code: code, Grants: []string{"my-echo"}, Define: []wire.Server{echoServer}}, say)
	if r.stdout != "True True\n" {
		t.Errorf("%+v %.500s %.500s", r.Done, r.stdout, r.stderr)
	}
}

// TestBeyondTheInterpreter: an answer, or a schema, that the interpreter's
// limits do not let it read costs neither the answer nor the sandbox.
func TestBeyondTheInterpreter(t *testing.T) {
	digits := strings.Repeat("9", 5000)
	server := echoServer
	server.Tools = append([]tool.Tool{{Name: "huge", Alias: "huge", InputSchema: json.RawMessage(
		`{"type":"object","properties":{"n":{"type":"integer","maximum":` + digits + `}}}`)}}, server.Tools...)
	p := launch(t)
	var result string
	answer := func(ctx context.Context, c wire.Call) (json.RawMessage, error) { return json.RawMessage(result), nil }
	for _, test := range []struct{ name, code, result, want string }{
		{"a schema", "await mcp_my_echo.huge(n=5)", `{"content":[{"type":"text","text":"took it"}]}`, "'took it'\n"},
		{"an integer", "v = await mcp_my_echo.say(x=1)\nlen(v.n if isinstance(v.n, str) else hex(v.n)) > 4000, v.m", `{"content":[],"structuredContent":{"n":` + digits + `,"m":5}}`, "(True, 5)\n"},
		{"depth", "import sys\ndef deep(n): return deep(n - 1) if n else type(asyncio.run(mcp_my_echo.say(x=1)))\nimport asyncio\ndeep(sys.getrecursionlimit() * 2 // 3)",
			`{"content":[],"structuredContent":{"a":1,"n":` + strings.Repeat("[", 450) + strings.Repeat("]", 450) + `}}`, "<class 'mcp.runtime.Object'>\n"},
		{"and goes on", "1", "", "1\n"},
	} {
		result = test.result
		r := p.run(t, wire.Exec{Code: test.code, Grants: []string{"my-echo"}, Define: []wire.Server{server}}, answer)
		if r.err != nil || r.stdout != test.want {
			t.Errorf("%s: got %q %q %v, want %q", test.name, r.stdout, r.stderr, r.err, test.want)
		}
	}
}

func TestLargeReply(t *testing.T) {
	p := launch(t)
	big := bytes.Repeat([]byte("x"), 10<<20)
	for _, code := range []string{"len(await mcp_my_echo.say())", "import asyncio\nsum(map(len, await asyncio.gather(mcp_my_echo.say(), mcp_my_echo.say())))"} {
		r := p.run(t, wire.Exec{Code: code, Grants: []string{"my-echo"}, Define: []wire.Server{echoServer}},
			func(ctx context.Context, c wire.Call) (json.RawMessage, error) {
				return fmt.Appendf(nil, `{"content":[{"type":"text","text":"%s"}]}`, big), nil
			})
		if r.stdout != "10485760\n" && r.stdout != "20971520\n" {
			t.Error(r.stdout, r.stderr)
		}
	}
}

func TestLargeArguments(t *testing.T) {
	p := launch(t)
	got := make(chan int, 1)
	r := p.run(t, wire.Exec{Code: "await mcp_my_echo.echo('ä' * 3_000_000);", Grants: []string{"my-echo"}, Define: []wire.Server{echoServer}},
		func(ctx context.Context, c wire.Call) (json.RawMessage, error) {
			got <- len(c.Params)
			return json.RawMessage(`{"content":[]}`), nil
		})
	if r.Status != wire.StatusOK || <-got < 18_000_000 {
		t.Errorf("%+v %.500s %.500s", r.Done, r.stdout, r.stderr)
	}
	r = p.run(t, wire.Exec{Code: "await mcp_my_echo.echo('x' * 34_000_000)", Grants: []string{"my-echo"}}, say)
	if !strings.Contains(r.stderr, "MCPError: the arguments take") {
		t.Errorf("%+v %.500s %.500s", r.Done, r.stdout, r.stderr)
	}
	if r := p.exec(t, "1"); r.stdout != "1\n" {
		t.Errorf("%+v %.500s %.500s", r.Done, r.stdout, r.stderr)
	}
}

// TestCallsOfOtherTimes: what an execution left running makes no calls, neither
// between executions nor with the grants of a later one.
func TestCallsOfOtherTimes(t *testing.T) {
	const begin = `
import asyncio, threading, contextvars, time
from concurrent.futures import ThreadPoolExecutor
go = threading.Event()
said = {}
def call(who):
    try: said[who] = asyncio.run(mcp_my_echo.order(1, 2)).m
    except Exception as e: said[who] = str(e)
    try: said[who + " sync"] = runtime.search_tool_docs_sync("x") and "found"
    except Exception as e: said[who + " sync"] = str(e)
async def later(who):
    while not go.is_set(): await asyncio.sleep(0.01)
    try: said[who] = (await mcp_my_echo.order(1, 2)).m
    except Exception as e: said[who] = str(e)
def wait(who):
    go.wait(60)
    call(who)
def wait_and_start(who):
    go.wait(60)
    t = threading.Thread(target=call, args=(who,)); t.start(); t.join()
pool = ThreadPoolExecutor(2)
`
	const leave = `
task = asyncio.create_task(later("task"))
threads = [threading.Thread(target=wait, args=("thread",)), threading.Thread(target=wait_and_start, args=("thread of a thread",)), threading.Timer(0.3, wait, ("timer",))]
for t in threads: t.start()
import _thread
_thread.start_new_thread(wait, ("low-level thread",))
future = pool.submit(wait, "pool")
context = contextvars.copy_context()
loop = asyncio.new_event_loop()
looping = threading.Thread(target=loop.run_forever, daemon=True); looping.start()
`
	const collect = `
go.set()
context.run(call, "context")
await task
for t in threads: t.join()
future.result()
end = time.monotonic() + 30
while "low-level thread sync" not in said and time.monotonic() < end: await asyncio.sleep(0.01)
refused = sorted(k for k, v in said.items() if "belongs to an earlier execution" in str(v))
said.clear()
print(refused)
`
	// What begins now calls as before, on what was there before, too.
	const control = `
call("here")
await later("await")
await asyncio.create_task(later("task"))
t = threading.Thread(target=call, args=("thread",)); t.start(); t.join()
pool.submit(call, "pool").result()
await asyncio.to_thread(call, "to_thread")
await asyncio.get_running_loop().run_in_executor(None, call, "run_in_executor")
await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(later("loop of before"), loop))
print({k: v for k, v in said.items() if v not in (1, "found")}, len(said))
loop.call_soon_threadsafe(loop.stop)
pool.shutdown()
`
	p := launch(t)
	calls := atomic.Int64{}
	count := func(ctx context.Context, c wire.Call) (json.RawMessage, error) {
		calls.Add(1)
		if c.Method == wire.MethodSearchToolDocs {
			return json.RawMessage(`[{"tool":"x"}]`), nil
		}
		return say(ctx, c)
	}
	r := p.run(t, wire.Exec{Code: begin + leave, Grants: []string{"my-echo"}, Define: []wire.Server{echoServer}}, count)
	if r.Status != wire.StatusOK || r.Background.Tasks != 1 {
		t.Fatalf("%+v %.500s %.500s", r.Done, r.stdout, r.stderr)
	}
	r = p.run(t, wire.Exec{Code: collect, Grants: []string{"my-echo"}}, count)
	want := "['context', 'context sync', 'low-level thread', 'low-level thread sync', 'pool', 'pool sync', 'task', " +
		"'thread', 'thread of a thread', 'thread of a thread sync', 'thread sync', 'timer', 'timer sync']\n"
	if r.stdout != want || r.stderr != "" {
		t.Errorf("refused: got %q %q, want %q", r.stdout, r.stderr, want)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls of what an execution left running reached the host", n)
	}
	r = p.run(t, wire.Exec{Code: control, Grants: []string{"my-echo"}}, count)
	if want := "{} 13\n"; r.stdout != want || r.stderr != "" {
		t.Errorf("of this execution: got %q %q, want %q", r.stdout, r.stderr, want)
	}
	if n := calls.Load(); n != 13 {
		t.Errorf("%d calls of this execution reached the host, want 13", n)
	}
}

// TestGivenUp: a call that nobody awaits is given up at the end of the code,
// and that is said.
func TestGivenUp(t *testing.T) {
	p := launch(t)
	code := "import asyncio\nasync def work():\n    try: await mcp_my_echo.order(1, 2)\n    except Exception as e: return str(e)\nt = asyncio.create_task(work())\nu = asyncio.create_task(work())\nawait asyncio.sleep(0)\nawait asyncio.sleep(0)"
	r := p.run(t, wire.Exec{Code: code, Grants: []string{"my-echo"}, Define: []wire.Server{echoServer}}, never)
	if r.Status != wire.StatusOK || r.stderr != "sallyport: 2 tool calls of background tasks ended with the code, without an answer: await them before the code ends\n" {
		t.Errorf("%+v %q %q", r.Done, r.stdout, r.stderr)
	}
	r = p.run(t, wire.Exec{Code: "await t == await u, await t", Grants: []string{"my-echo"}}, never)
	if r.stdout != "(True, 'the execution that made this call ended before the answer arrived: await background tasks before the code ends')\n" {
		t.Errorf("%+v %q %q", r.Done, r.stdout, r.stderr)
	}
}

// never answers no call before its execution ends.
func never(ctx context.Context, c wire.Call) (json.RawMessage, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
