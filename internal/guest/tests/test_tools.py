"""The tools of real servers: what the tests in test/proxies have in Go's hands,
on every Python."""

import ast
import inspect
import json
import pathlib

import pytest

from sallyport_guest import values
from sallyport_guest.errors import ArgumentError
from sallyport_guest.proxy import Server

DATA = pathlib.Path(__file__).resolve().parents[3] / "test" / "proxies" / "testdata"
LISTED = {d["server"]: d["tools"] for d in (json.loads(p.read_text("utf-8")) for p in sorted(DATA.glob("tools/*.json")))}
OWN = "odd names!"


def calls(server):
    """(alias, tool, the arguments, their JSON text) of each call."""
    for line in (DATA / "calls.json").read_text("utf-8").split("\n")[1:-2]:
        line = line.rstrip(",")
        call = json.loads(line)
        if call["server"] == server:
            yield call["alias"], call["tool"], call["arguments"], line.partition('"arguments":')[2][:-1]


@pytest.fixture(params=LISTED)
def server(request):
    aliases = {tool: alias for alias, tool, _, _ in calls(request.param)}
    tools = [{**tool, "alias": aliases[tool["name"]]} for tool in LISTED[request.param]]
    return Server(None, {"name": request.param, "alias": "x", "tools": tools})


def test_all_are_there():
    assert sum(len(tools) for name, tools in LISTED.items() if name != OWN) == 458


def test_arguments_keep_their_bytes(server):
    for alias, name, arguments, text in calls(server.name):
        tool = server.proxy[name]
        assert tool._alias == alias
        assert values.encode("x", tool.parameters.bind("x", (), arguments)) == text


def test_signatures(server):
    for tool in server.tools:
        p = tool.parameters
        written = {name: p.written.get(name, name) for name in p.order}
        shown = inspect.signature(tool).parameters
        assert [shown[w].default is inspect.Parameter.empty for w in written.values() if w in shown] == [
            name in p.required for name, w in written.items() if w in shown
        ]
        if server.name == OWN:
            continue
        assert set(shown) >= set(written.values())
        text = p.signature("f")
        if ": list of" not in text and "..." not in text.replace(" = ...", ""):
            function = ast.parse("def %s: pass" % text).body[0]
            assert [a.arg for a in function.args.args] == list(written.values())
        assert inspect.isroutine(tool) and tool.__doc__.startswith("await mcp_x")


def test_wrong_arguments_are_named(server):
    wrong = {"string": 5, "integer": "x", "number": "x", "boolean": "x", "array": 5, "object": 5}
    for _, name, arguments, _ in calls(server.name):
        p = server.proxy[name].parameters
        for key, schema in p.properties.items():
            kind = schema.get("type")
            if not isinstance(kind, str) or "enum" in schema or "const" in schema:
                continue
            with pytest.raises(ArgumentError) as e:
                p.bind("label", (), {**arguments, key: wrong[kind]})
            assert repr(key) in str(e.value) and "Signature: label(" in str(e.value)
        for key in p.required:
            with pytest.raises(ArgumentError, match="missing"):
                p.bind("label", (), {k: v for k, v in arguments.items() if k != key})
