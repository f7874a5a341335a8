# Run by TestEveryTool behind a line that sets CASES.
import contextlib
import importlib
import inspect
import io
import json

PYTHON = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
cases = json.loads(CASES)
called = 0

for server in dict.fromkeys(case["server"] for case in cases):
    mine = [case for case in cases if case["server"] == server]
    alias = mine[0]["serverAlias"]
    proxy = mcp_servers[server]
    assert proxy is globals()["mcp_" + alias], alias
    module = importlib.import_module("mcp.servers." + alias)
    assert list(module.TOOLS) == [case["tool"] for case in mine], server
    assert module.TOOL_MAP == {case["alias"]: case["tool"] for case in mine}, server
    schemas = {tool["name"]: tool["inputSchema"] for tool in await proxy.list_tools()}
    for number, case in enumerate(mine):
        name, arguments = case["tool"], case["arguments"]
        what = server, name
        tool = getattr(module, case["alias"])
        by_item = case["alias"] == "list_tools"
        assert proxy[name] is tool and (by_item or getattr(proxy, case["alias"]) is tool), what
        if name.isidentifier() and name not in ("list_tools", "from", "class"):
            assert getattr(module, name) is tool, what

        schema = schemas[name]
        parameters = inspect.signature(tool).parameters
        required = schema.get("required", [])
        for key, of in schema["properties"].items():
            if not key.isidentifier() or key in ("class", "from"):
                continue
            parameter = parameters[key]
            if key in required:
                assert parameter.default is inspect.Parameter.empty, (what, key)
            elif "default" in of:
                assert parameter.default == of["default"], (what, key)
            else:
                assert repr(parameter.default) == "...", (what, key)
            if str(of.get("type")) in PYTHON and "enum" not in of and "const" not in of:
                shown = str(parameter).partition(": ")[2].partition(" = ")[0]
                assert shown == PYTHON[of["type"]], (what, str(parameter))
        page = io.StringIO()
        with contextlib.redirect_stdout(page):
            help(tool)
        for key in schema["properties"]:
            assert "\n  %s" % key in page.getvalue(), (what, key, page.getvalue())

        if number % 4 == 0:
            result = await tool(**arguments)
        elif number % 4 == 1:
            result = await proxy[name](**arguments)
        elif number % 4 == 2:
            result = await runtime.call_tool(server, name, arguments)
            result = result["content"][0]["text"]
        else:
            # As many as possible by position.
            first = []
            for key in list(parameters):
                if key not in arguments or list(arguments)[len(first)] != key:
                    break
                first.append(key)
            rest = {key: value for key, value in arguments.items() if key not in first}
            result = await tool(*[arguments[key] for key in first], **rest)
        assert result == "recorded", (what, result)
        called += 1
print(called, "calls")
