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
from sallyport_guest.runtime import Runtime
from sallyport_guest.schema import Parameters

DATA = pathlib.Path(__file__).resolve().parents[4] / "test" / "proxies" / "testdata"
LISTED = {d["server"]: d["tools"] for d in (json.loads(p.read_text("utf-8")) for p in sorted(DATA.glob("tools/*.json")))}
OWN = "odd names!"
# What the host sends of each tool, and the schemas that no real tool has.
GOLDEN = pathlib.Path(__file__).resolve().parents[3] / "toolbox" / "signature" / "testdata"
SENT = {g["tool"]: g for g in json.loads((GOLDEN / "signatures.json").read_text("utf-8"))}
ODD = {t["name"]: t["inputSchema"] for t in json.loads((GOLDEN / "odd.json").read_text("utf-8"))["tools"]}


def sent(server, tool):
    golden = SENT["%s/%s" % (server, tool)]
    return {"signature": golden["signature"], "renamed": golden.get("renamed"), "unwrap": golden.get("unwrap", "")}


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
    tools = [{**tool, "alias": aliases[tool["name"]], **sent(request.param, tool["name"])} for tool in LISTED[request.param]]
    return Server(None, {"name": request.param, "alias": "x", "tools": tools})


def test_all_are_there():
    assert sum(len(tools) for name, tools in LISTED.items() if name != OWN) == 458


def test_arguments_keep_their_bytes(server):
    for alias, name, arguments, text in calls(server.name):
        tool = server.proxy[name]
        assert tool._alias == alias
        assert values.encode("x", tool.parameters.bind("x", (), arguments)) == text


def test_help_is_bounded():
    tools = [{"name": "t%d" % i, "alias": "t%d" % i, "description": "It does a thing, at length. " * 9} for i in range(500)]
    lines = Server(None, {"name": "x", "alias": "x", "description": "y" * 10_000, "tools": tools}).proxy.__doc__.split("\n")
    assert len("\n".join(lines)) < 11_000 and lines[3] == "  await mcp_x.t0()  # It does a thing, at length"
    assert lines[-1] == "400 more tools: dir(mcp_x) names them all, await search_tool_docs('what it does') finds one"
    wide = [{**tool, "inputSchema": {"type": "object", "required": ["a%d" % i for i in range(1000)]}} for tool in tools]
    lines = Server(None, {"name": "x", "alias": "x", "tools": wide}).proxy.__doc__.split("\n")
    assert lines[3].startswith("  await mcp_x.t0(") and lines[-1].startswith("499 more tools: ")


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
        if "..." not in text.replace(" = ...", "").replace("=...", ""):
            function = ast.parse("def %s: pass" % text).body[0]
            assert [a.arg for a in function.args.args] == list(written.values())
        assert inspect.isroutine(tool) and tool.__doc__.startswith("await mcp_x")


def test_both_languages_agree():
    """The host's signatures show the arguments that the guest binds, in its order."""
    schemas = {"odd/" + name: schema for name, schema in ODD.items()}
    schemas.update(("%s/%s" % (server, t["name"]), t["inputSchema"]) for server, tools in LISTED.items() for t in tools)
    assert set(schemas) == set(SENT) and len(SENT) >= 468
    for tool, golden in SENT.items():
        p = Parameters(schemas[tool], golden["signature"], golden.get("renamed"))
        assert (p.order, len(p.required)) == (golden["arguments"], golden["required"]), tool
        assert str(p.inspected()).startswith("(") and p.described() is not None
        for name in p.order:
            written = p.written.get(name, name)
            try:
                arguments = p.bind(tool, (), {written: None})
            except ArgumentError as e:
                assert "there is no argument" not in str(e), tool
            else:
                assert name in arguments, tool
            shown = golden["signature"].count("...)") or repr(name)[1:-1] in golden["signature"] or written in golden["signature"]
            assert shown or "\\u" in golden["signature"], (tool, name)


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


def test_learned_results():
    """What was learned from calls stands behind a signature as a comment."""
    schema = {"properties": {"a": {"type": "string"}}, "required": ["a"]}
    tools = [{"name": "f", "alias": "f", "description": "Says it.", "inputSchema": schema, "signature": "(a: str) -> list[int]  # learned"}]
    tool = Server(None, {"name": "s", "alias": "s", "tools": tools}).tools[0]
    assert str(inspect.signature(tool)) == "(a: str, **more)"
    assert tool._line(True) == "mcp_s.f(a: str) -> list[int]  # learned; Says it"
    assert tool.__doc__.startswith("await mcp_s.f(a: str) -> list[int]  # learned\n\nSays it.")
    with pytest.raises(ArgumentError, match=r"Signature: mcp_s.f\(a: str\)"):
        tool.parameters.bind("mcp_s.f", (), {})


def test_a_fresh_result():
    """runtime.call_tool(..., fresh=True) and tool.fresh(...) say so to the host."""
    asked = []

    class Channel:
        async def request(self, method, params, decode=None):
            asked.append(json.loads(params))
            return {}

    class Session:
        class registry:
            channel, granted, unstarted = Channel(), {"s"}, 0

            async def need(name):
                return server

    Session.channel, Session.registry.session = Session.registry.channel, Session
    server = Server(Session.registry, {"name": "s", "alias": "s", "tools": [{"name": "t", "alias": "t", "inputSchema": {"type": "object"}}]})
    tool, runtime = server.proxy.t, Runtime(Session)
    for call in (tool(), tool.fresh(), runtime.call_tool("s", "t"), runtime.call_tool("s", "t", fresh=False), runtime.call_tool("s", "t", {}, fresh=True)):
        with pytest.raises(StopIteration):
            call.send(None)
    assert [params.get("fresh") for params in asked] == [None, True, None, None, True]
    assert Session.registry.unstarted == 0
