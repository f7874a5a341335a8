"""One scripted session, session.json, through the official Python and TypeScript
clients and the Inspector, in each of their ways to connect. test/smoke plays it
through the Go client."""

import asyncio
import json
import os
import pathlib
import subprocess
import sys

import engine
import pytest
from conftest import ROOT
from test_python_client import WAYS, connected

from mcp import StdioServerParameters

HERE = pathlib.Path(__file__).resolve().parent
SCRIPT = HERE / "session.json"
CONVERSATIONS = json.loads(SCRIPT.read_text(encoding="utf-8"))["conversations"]

sys.path.insert(0, str(ROOT / "test/compat"))
import live  # noqa: E402  the servers of the script


@pytest.fixture
def server(sallyport, environment, tmp_path):
    """The command line that a client is given, and its environment."""
    definitions = tmp_path / "servers.json"
    live.write_definitions(definitions, tmp_path / "calls.jsonl")
    return (
        # A busy machine may take long to interrupt what has timed out.
        [sallyport, "serve", "--servers-config", str(definitions), "--set", "timeouts.grace=30s"],
        engine.chosen(sallyport, environment | {"SALLYPORT_STATE_DIR": str(tmp_path / "state"), "SALLYPORT_OUTPUT_STRUCTURED": "always"}),
    )


def judge(seen):
    """What a client saw is what the script expects, step by step."""
    assert [len(answers) for answers in seen] == [len(steps) for steps in CONVERSATIONS]
    for steps, answers in zip(CONVERSATIONS, seen):
        for step, answer in zip(steps, answers):
            wrong = list(problems(step, answer))
            assert not wrong, f"{step['name']}: {wrong}\n{json.dumps(answer, indent=1)[:3000]}"


def problems(step, answer):
    expect = dict(step["expect"])
    if "list" in step:
        key = {"tools": "name", "resources": "uri"}[step["list"]]
        names = [item[key] for item in answer[step["list"]]]
        if "names" in expect and names != expect.pop("names"):
            yield f"listed: {names}"
        if missing := set(expect.pop("includes", [])) - set(names):
            yield f"not listed: {missing}"
    blocks = answer.get("content") or answer.get("contents") or []
    text = "\n".join(block.get("text", "") for block in blocks)
    if "text" in expect and text != expect.pop("text"):
        yield f"text: {text!r}"
    for part in expect.pop("contains", []):
        if part not in text:
            yield f"no {part!r} in the text"
    if "isError" in expect and bool(answer.get("isError")) != expect.pop("isError"):
        yield f"isError: {answer.get('isError')}"
    for key, value in expect.pop("structured", {}).items():
        if (answer.get("structuredContent") or {}).get(key) != value:
            yield f"{key} is not {value!r}"
    if expect:
        yield f"the script expects what nothing checks: {expect}"


def test_judge():
    """The judge sees what is wrong: every step fails for an empty answer, and
    for an answer to another."""
    for steps in CONVERSATIONS:
        for step in steps:
            empty = {"tools": [], "resources": []} if "list" in step else {"content": [], "isError": not step["expect"].get("isError", True)}
            assert list(problems(step, empty)), step["name"]


@pytest.mark.parametrize("way", WAYS)
def test_python(way, server):
    command, environment = server
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=environment)

    async def play(client, step):
        if step.get("list") == "tools":
            return await client.list_tools()
        if step.get("list") == "resources":
            return await client.list_resources()
        if "read" in step:
            return await client.read_resource(step["read"])
        return await client.call_tool("run_python", step["call"])

    async def main():
        seen = []
        for steps in CONVERSATIONS:
            async with connected(way, parameters) as client:
                seen.append([(await play(client, step)).model_dump(mode="json", by_alias=True) for step in steps])
        return seen

    judge(asyncio.run(asyncio.wait_for(main(), 90)))


def played(command, environment):
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
def test_typescript(mode, node22, npm, server):
    command, environment = server
    script = [node22, str(HERE / "typescript_client.mjs"), mode, str(SCRIPT)]
    judge(played(script + command, environment | {"SALLYPORT_TEST_NPM": str(npm)}))


def test_inspector(node22, npm, server, tmp_path):
    """The Inspector's own command line over one connection, with a daemon of
    the test's own. One era is enough: each command is a process that takes long."""
    era = "auto"
    command, environment = server
    mcpdo = [node22, str(npm / ".bin/mcpdo"), "--format", "json"]
    environment = environment | {"MCP_INSPECTOR_SECRET_STORE": "memory"}
    exports = subprocess.run([*mcpdo[:2], "private"], env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    for line in exports.splitlines():
        name, _, value = line.removeprefix("export ").rstrip(";").partition("=")
        if value:
            environment[name] = value.strip("'\"")
    (tmp_path / "inspector.json").write_text(
        json.dumps(
            {"mcpServers": {"sallyport": {"type": "stdio", "command": command[0], "args": command[1:], "env": environment, "protocolEra": era}}}
        )
    )

    def do(*arguments):
        done = subprocess.run([*mcpdo, *arguments], env=environment, capture_output=True, text=True, timeout=90)
        start = done.stdout.find("{")
        assert start >= 0, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.JSONDecoder().raw_decode(done.stdout[start:])[0]

    seen = []
    try:
        for steps in CONVERSATIONS:
            do("connect", "sallyport", "--config", str(tmp_path / "inspector.json"), "--era", era)
            answers = []
            for step in steps:
                if "list" in step:
                    answers.append(do("@sallyport", step["list"] + "/list"))
                elif "read" in step:
                    answers.append(do("@sallyport", "resources/read", step["read"]))
                else:
                    answers.append(do("@sallyport", "tools/call", "run_python", "--tool-args-json", json.dumps(step["call"])))
            seen.append(answers)
            do("disconnect", "sallyport")
    finally:
        subprocess.run([*mcpdo, "daemon", "stop"], env=environment, capture_output=True, timeout=60)
    judge(seen)
