"""Facts of docs/COMPATIBILITY.md that no other test shows, in one conversation
with the whole program. Cells run in the order of this file and share a session."""

import json
import re
import subprocess

import pytest
from live import INTERPRETER, Live

# name: (code, what it prints), with the servers stub, jira and Odd.Names.
CELLS = {
    # What the namespace has.
    "module-name": ("print(__name__)", ["__main__"]),
    "mcp-is-bound": ("print(mcp.__name__, sorted(mcp.__all__))", ["mcp ['runtime', 'servers']"]),
    "servers-by-name": ("print(sorted(mcp_servers), type(mcp_servers).__mro__[-2].__name__)", ["['Odd.Names', 'jira', 'stub'] dict"]),
    "loaded-servers": ("print(type(LOADED_MCP_SERVERS).__name__, sorted(LOADED_MCP_SERVERS))", ["tuple ['Odd.Names', 'jira', 'stub']"]),
    "proxies-by-alias": ("print(mcp_stub is mcp_servers['stub'], mcp_odd_names is mcp_servers['Odd.Names'])", ["True True"]),
    "runtime-is-bound": ("import mcp.runtime\nfrom mcp import runtime as r\nprint(runtime is r is mcp.runtime)", ["True"]),
    "helpers-are-bound": (
        "print([n for n in runtime.__all__ if globals().get(n) is not getattr(runtime, n)])",
        ["['output', 'cancel']"],
    ),
    "every-helper": (
        """
documented = '''MCPError call_tool list_tools list_tools_sync list_servers list_servers_sync discovered_servers
describe_server list_loaded_server_metadata query_tool_docs_sync query_tool_docs search_tool_docs_sync search_tool_docs
capability_summary save_tool save_memory load_memory delete_memory list_memories update_memory memory_exists
get_memory_info'''.split()
print([n for n in documented if n not in runtime.__all__], [n for n in runtime.__all__ if not hasattr(runtime, n)])
""",
        ["[] []"],
    ),
    "helpers-and-await": (
        """
import inspect
print(sorted(n for n in documented if inspect.iscoroutinefunction(getattr(runtime, n))))
""",
        ["['call_tool', 'list_servers', 'list_tools', 'query_tool_docs', 'search_tool_docs']"],
    ),
    "helper-signatures": (
        """
import inspect
def shape(f):
    return str(inspect.signature(f))
print(shape(runtime.call_tool), shape(runtime.list_tools), shape(runtime.list_tools_sync))
print(shape(runtime.discovered_servers), shape(runtime.query_tool_docs), shape(runtime.query_tool_docs_sync))
print(shape(runtime.search_tool_docs), shape(runtime.search_tool_docs_sync))
""",
        [
            "(server, tool, arguments=None, *, fresh=False) (server) (server=None)",
            "(detailed=False) (server, tool=None, detail='summary') (server, tool=None, detail='summary')",
            "(query, *, limit=5, detail='summary') (query, *, limit=5, detail='summary')",
        ],
    ),
    # Each helper.
    "error-class": ("print(issubclass(runtime.MCPError, RuntimeError), runtime.MCPError.__name__)", ["True MCPError"]),
    "raw-result": (
        "r = await runtime.call_tool('jira', 'get_issue', {'id': 'AP-1'})\nprint(sorted(r), type(r) is dict, r['content'][0]['type'], r['structuredContent']['id'])",
        ["['content', 'structuredContent'] True text AP-1"],
    ),
    "list-tools": ("t = await runtime.list_tools('stub')\nprint(type(t).__name__, t[0]['name'], t[0]['inputSchema']['required'])", ["list echo ['message']"]),
    "list-tools-sync": ("t = runtime.list_tools_sync('stub')\nprint(type(t).__name__, list(t[0]))", ["tuple ['name', 'alias', 'description', 'input_schema']"]),
    "list-tools-sync-of-none": (
        "try:\n    runtime.list_tools_sync()\nexcept runtime.MCPError as e:\n    print(e)",
        ["list_tools_sync(server) requires a server name"],
    ),
    "list-servers": ("print(await runtime.list_servers())", ["('Odd.Names', 'jira', 'stub')"]),
    "list-servers-sync": ("print(runtime.list_servers_sync())", ["('Odd.Names', 'jira', 'stub')"]),
    "discovered": (
        "d = runtime.discovered_servers()\nprint(type(d).__name__, 'github' in d, 'stub' in d)",
        ["tuple True True"],
    ),
    "discovered-in-detail": (
        "print([d for d in runtime.discovered_servers(detailed=True) if d['name'] == 'stub'])",
        ["[{'name': 'stub', 'description': 'Says what it hears'}]"],
    ),
    "describe": (
        "d = runtime.describe_server('stub')\nprint(list(d), d['alias'], d['cwd'].rsplit('/', 1)[1], d['tools'][0]['alias'])",
        ["['name', 'alias', 'tools', 'cwd'] stub compat echo"],
    ),
    "describe-what-is-not-loaded": (
        "try:\n    runtime.describe_server('github')\nexcept runtime.MCPError as e:\n    print(e)",
        ["Server 'github' is not loaded"],
    ),
    "metadata": (
        "m = runtime.list_loaded_server_metadata()\nprint(type(m).__name__, sorted(x['name'] for x in m), runtime.describe_server('stub') in m)",
        ["tuple ['Odd.Names', 'jira', 'stub'] True"],
    ),
    "docs": (
        "d = await runtime.query_tool_docs('stub')\nprint(isinstance(d, list), d == runtime.query_tool_docs_sync('stub'), list(d[0]))",
        ["True True ['server', 'serverAlias', 'tool', 'toolAlias', 'description', 'signature']"],
    ),
    "docs-of-one-tool": (
        "d = await runtime.query_tool_docs('stub', tool='echo')\nl = runtime.query_tool_docs_sync('stub', tool='echo')\nprint(isinstance(d, dict), isinstance(l, list), l == [d])",
        ["True True True"],
    ),
    "docs-in-full": (
        "print((await runtime.query_tool_docs('stub', 'echo', detail='full'))['inputSchema']['required'])",
        ["['message']"],
    ),
    "docs-in-another-detail": (
        "print(await runtime.query_tool_docs('stub', 'echo', detail='much') == await runtime.query_tool_docs('stub', 'echo'))",
        ["True"],
    ),
    "docs-by-alias": (
        "print((await runtime.query_tool_docs('Odd.Names', 'list_things'))['tool'])",
        ["list-things"],
    ),
    "docs-of-no-tool": (
        "try:\n    await runtime.query_tool_docs('stub', 'ecco')\nexcept runtime.MCPError as e:\n    print('ecco' in str(e), 'stub' in str(e))",
        ["True True"],
    ),
    "search": (
        "s = await runtime.search_tool_docs('search issues of a project')\nprint(isinstance(s, list), s[0]['server'], s[0]['tool'], s[:1] == runtime.search_tool_docs_sync('search issues of a project')[:1])",
        ["True jira search_issues True"],
    ),
    "search-in-full": ("print('inputSchema' in (await runtime.search_tool_docs('echo', detail='full'))[0])", ["True"]),
    "search-limits": (
        "n = [len(runtime.search_tool_docs_sync('odd names', limit=n)) for n in (-5, 0, 1, 3, 99)]\nprint(n[:4], 7 <= n[4] <= 20)",
        ["[1, 1, 1, 3] True"],
    ),
    # Servers that never ran are looked at in the background.
    "search-of-what-is-not-loaded": (
        """
import asyncio
for _ in range(600):
    found = [d['tool'] for d in await runtime.search_tool_docs('salesforce record')]
    if 'update_record' in found:
        break
    await asyncio.sleep(0.1)
print(found[0], 'salesforce' in await runtime.list_servers())
""",
        ["update_record False"],
    ),
    "manual": ("print(runtime.capability_summary().splitlines()[0])", ["--- PYTHON SANDBOX MANUAL ---"]),
    # Proxies.
    "tools-by-alias": (
        "import mcp.servers.odd_names as odd\nprint(sorted(odd.TOOL_MAP))",
        ["['_', '_3d_render', 'a b', 'a-b', 'class_', 'getuserprofile', 'list_things']"],
    ),
    "call-by-alias": (
        "print(await mcp_odd_names.list_things(), await mcp_odd_names.getuserprofile(), await mcp_odd_names._3d_render(), await mcp_odd_names.class_())",
        ["list-things getUserProfile 3d.render class"],
    ),
    "call-by-own-name": ("print(await mcp_odd_names.getUserProfile(), await getattr(mcp_odd_names, '3d.render')())", ["getUserProfile 3d.render"]),
    "proxy-lists-tools": ("print([t['name'] for t in await mcp_stub.list_tools()])", ["['echo']"]),
    "proxy-unknown-tool": ("try:\n    mcp_stub.ecco\nexcept AttributeError as e:\n    print(e)", ["server 'stub' has no tool 'ecco'; did you mean 'echo'? (it has: echo)"]),
    "module-names": (
        "import mcp.servers.stub as m\nprint([n for n in ('TOOLS', 'TOOL_MAP', '__all__') if not hasattr(m, n)], 'echo' in m.__all__)\nprint(await m.echo(message='hi'))",
        ["[] True", "hi"],
    ),
    "module-failures": (
        "from mcp.servers.jira import get_issue\ntry:\n    await get_issue(wrong=1)\nexcept runtime.MCPError as e:\n    print('wrong' in str(e))",
        ["True"],
    ),
    "import-that-people-try": ("from mcp import mcp_stub, mcp_servers\nprint(await mcp_stub.echo(message='x'), 'stub' in mcp_servers)", ["x True"]),
    # Memory.
    "memory-saved": ("print(runtime.save_memory('plan', {'step': 1, 'ids': [2**60, None, 'ü']}, metadata={'by': 'test'}))", ["Memory 'plan' saved."]),
    "memory-loaded": ("print(load_memory('plan'), load_memory('nothing'), load_memory('nothing', default=5))", ["{'step': 1, 'ids': [1152921504606846976, None, 'ü']} None 5"]),
    "memory-exists": ("print(memory_exists('plan'), memory_exists('nothing'))", ["True False"]),
    "memory-info": (
        "i = get_memory_info('plan')\nprint(sorted(i), i['key'], i['metadata'], i['value']['step'], i['created_at'] <= i['updated_at'], get_memory_info('nothing'))",
        ["['created_at', 'key', 'metadata', 'updated_at', 'value'] plan {'by': 'test'} 1 True None"],
    ),
    "memory-updated": (
        "print(update_memory('plan', lambda v: {**v, 'step': v['step'] + 1})['step'], load_memory('plan')['step'], get_memory_info('plan')['metadata'])",
        ["2 2 {'by': 'test'}"],
    ),
    "memories-listed": ("m = list_memories()\nprint(type(m).__name__, m[0]['key'], sorted(m[0]))", ["list plan ['created_at', 'key', 'metadata', 'updated_at']"]),
    "memory-without-a-key": ("try:\n    save_memory('', 1)\nexcept ValueError as e:\n    print(e)", ["Memory key cannot be empty"]),
    "memory-keys": (
        """
keys = ['a/b', 'a b', 'a_b', '../../etc', 'ключ', 'long' * 40, 'long' * 40 + '!']
for number, key in enumerate(keys):
    save_memory(key, number)
print([load_memory(key) for key in keys], [delete_memory(key)[-8:] for key in keys] == ['deleted.'] * len(keys))
""",
        ["[0, 1, 2, 3, 4, 5, 6] True"],
    ),
    "memory-of-no-json": (
        "try:\n    save_memory('odd', object())\nexcept (TypeError, ValueError, runtime.MCPError) as e:\n    print('object' in str(e), memory_exists('odd'))",
        ["True False"],
    ),
    "memory-deleted": ("print(delete_memory('plan'), delete_memory('plan'))", ["Memory 'plan' deleted. Memory 'plan' not found."]),
    # Saved tools.
    "tool-to-save": ("import math\ndef area(radius, digits=2):\n    \"\"\"The area of a circle.\"\"\"\n    return round(math.pi * radius ** 2, digits)", []),
    "tool-saved": ("print(save_tool(area))", ["Tool 'area' saved. It will be available in future sessions."]),
    "saved-tool-imported": ("from user_tools import area as kept\nimport user_tools\nprint(kept(1), user_tools.area(1, digits=1))", ["3.14 3.1"]),
    "tool-that-is-none": ("for wrong in (5, 'area', None):\n    try:\n        save_tool(wrong)\n    except ValueError as e:\n        print('function' in str(e))", ["True"] * 3),
    # The manual.
    "manual-names-every-helper": ("m = runtime.capability_summary()\nprint([n for n in documented if n.replace('_sync', '') not in m])", ["[]"]),
    # Answers to calls that cannot be.
    "not-available": (
        "try:\n    await runtime.call_tool('nothing', 'create_issue', {})\nexcept runtime.MCPError as e:\n    print(e)",
        ["Server 'nothing' is not available", ...],
    ),
    "arguments-that-are-no-object": (
        "try:\n    await runtime.call_tool('stub', 'echo', [1])\nexcept runtime.MCPError as e:\n    print(e)",
        ["Arguments must be an object"],
    ),
    "limit-that-is-no-integer": (
        "try:\n    await runtime.search_tool_docs('x', limit='many')\nexcept runtime.MCPError as e:\n    print(e)",
        ["'limit' must be an integer"],
    ),
    # Execution.
    "top-level-await": ("import asyncio\nprint(await asyncio.sleep(0, 'awaited'))", ["awaited"]),
    "one-loop": ("loop = asyncio.get_running_loop()\nawait asyncio.sleep(0)", []),
    "same-loop": ("await asyncio.sleep(0)\nprint(asyncio.get_running_loop() is loop)", ["True"]),
    "last-expression": ("21 * 2", ["42"]),
    "workspace": ("import os\nprint(os.getcwd(), os.environ['HOME'], os.getuid(), os.getgid())", ["/workspace /workspace 65534 65534"]),
    "python-variables": (
        "import sys\nprint(sys.stdout.encoding, sys.dont_write_bytecode)\nsys.stdout.write('no line feed')\nNone",
        ["utf-8 True", "no line feed"],
    ),
    "no-metadata-in-the-environment": ("print([n for n in os.environ if n.startswith('MCP_')])", ["[]"]),
    "big-frames": ("print(len(await mcp_stub.echo(message='x' * 1_000_000)))", ["1000000"]),
}


@pytest.fixture(scope="module")
def live(sallyport, tmp_path_factory):
    client = Live(sallyport, tmp_path_factory.mktemp("interface"))
    yield client
    client.close()


@pytest.mark.parametrize("name", CELLS)
def test_cell(live, name):
    code, lines = CELLS[name]
    result = live.run(code, servers=["stub", "jira", "Odd.Names"], timeout=120)
    assert not result.error, result
    printed = (result.structured or {}).get("stdout", [])
    if lines and lines[-1] is ...:
        assert len(printed) == 1 and printed[0].startswith(lines[0])
    else:
        assert printed == lines


def test_one_tool(live):
    assert [tool["name"] for tool in live.ask("tools/list")["result"]["tools"]] == ["run_python"]


def test_what_is_told_is_there(live):
    """Every helper that the tool's description and the resource name exists."""
    told = live.ask("tools/list")["result"]["tools"][0]["description"]
    uri = "resource://mcp-server-code-execution-mode/capabilities"
    told += live.ask("resources/read", uri=uri)["result"]["contents"][0]["text"]
    names = set(re.findall(r"(?<![\w.])(?:runtime\.)?([a-z_]+)\(", told)) - {"run_python", "print", "help", "display"}
    names -= set(re.findall(r"from user_tools import (\w+)", told))
    assert {"discovered_servers", "search_tool_docs", "save_memory", "load_memory", "save_tool", "describe_server"} <= names
    assert live.run(f"print([n for n in {sorted(names)} if not hasattr(runtime, n)])").text == "[]"


def test_other_servers_in_the_next_call(live):
    first = live.run("print(await mcp_stub.echo(message='a'))", servers=["stub"])
    second = live.run("print((await mcp_jira.get_issue(id='AP-2')).title)", servers=["jira"])
    third = live.run("print(LOADED_MCP_SERVERS, await mcp_stub.echo(message='b'))", servers=["jira"])
    assert (first.text, second.text, third.text) == ("a", "New colours", "('jira',) b")


def test_servers_stay_warm(live):
    code = "print(await mcp_server.process())"
    assert live.run(code, servers=["server"]).text == live.run(code, servers=["server"]).text


def test_schemas_of_any_size(live):
    result = live.run("print(len(str(runtime.list_tools_sync('large'))) > 1_000_000, len(mcp_large.list_tools.__doc__ or 'x') > 0)", servers=["large"])
    assert result.text == "True True", result


def test_frames_of_asyncio(live):
    """A traceback has only the code's own frames, wherever the engine has the library."""
    result = live.run("import asyncio\nawait asyncio.sleep(0.001)\n1/0")
    assert result.error and "line 3, in <module>" in result.text and "base_events" not in result.text, result


def test_packages_of_a_virtual_environment(sallyport, tmp_path):
    """The packages of the environment that `python` names are there, as agents
    that analyse data need them."""
    subprocess.run([INTERPRETER, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True, timeout=60)
    (packages,) = (tmp_path / "venv/lib").glob("python3.*/site-packages")
    (packages / "parcel.py").write_text("content = 'in a package'\n")
    live = Live(sallyport, tmp_path, {"SALLYPORT_PYTHON": str(tmp_path / "venv/bin/python3")})
    result = live.run("import parcel\nprint(parcel.content)\ntry:\n    open(parcel.__file__, 'a')\nexcept OSError as e:\n    print('read-only')")
    live.close()
    assert result.text == "in a package\nread-only", result


def test_what_outlives_a_session(sallyport, tmp_path):
    """Memories and saved tools, where MCP_BRIDGE_STATE_DIR says."""
    state = {"SALLYPORT_STATE_DIR": "", "MCP_BRIDGE_STATE_DIR": str(tmp_path / "kept")}
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first = Live(sallyport, tmp_path / "one", state)
    assert not first.run("save_memory('colour', 'blue')\ndef shout(text):\n    return text.upper()\nsave_tool(shout)").error
    first.close()
    readable = [p for p in (tmp_path / "kept").rglob("*") if p.is_file() and '"blue"' in p.read_text(errors="replace")]
    assert len(readable) == 1, "a memory is a file that people can read"

    second = Live(sallyport, tmp_path / "two", state)
    result = second.run("from user_tools import shout\nprint(shout(load_memory('colour')))")
    assert result.text == "BLUE", result
    second.close()


NESTED = """
import json, os, sys
os.execv(json.load(open(sys.argv[1]))["program"], ["started", "serve"])
"""


@pytest.mark.parametrize("allowed", [False, True])
def test_nested_start(sallyport, tmp_path, allowed):
    """A server that is this program in a way that nothing in its definition
    shows knows by its depth; and where it is allowed, it works."""
    (tmp_path / "start.json").write_text(json.dumps({"program": sallyport}))
    (tmp_path / "start.py").write_text(NESTED)
    nested = {"mcpServers": {"inner": {"command": INTERPRETER, "args": [str(tmp_path / "start.py"), str(tmp_path / "start.json")]}}}
    live = Live(
        sallyport, tmp_path, {"MCP_BRIDGE_ALLOW_SELF_SERVER": "1"} if allowed else {}, home_files={"MCPs/inner.json": json.dumps(nested)}
    )
    result = live.run("print(await mcp_inner.run_python(code='6*7'))", servers=["inner"])
    live.close()
    if allowed:
        assert "42" in result.text and not result.error, result
    else:
        # Code reads that it did not start; why is for the user.
            assert result.error and '"inner": did not start' in result.text, result
