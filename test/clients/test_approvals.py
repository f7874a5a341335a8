"""A person agrees before code's calls go out: the official Python client and a
second terminal, with the real filesystem server under `policy.profile: careful`."""

import asyncio
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest
from conftest import hubs_of
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult

LOOP = """
import asyncio
async def one(i):
    await mcp_filesystem.write_file(path=f"{i}.txt", content="same")
await asyncio.gather(*(one(i) for i in range(40)))
print("written")
"""
SEQUENTIAL = """
for i in range(40):
    await mcp_filesystem.write_file(path=f"{i}.txt", content=str(i))
print("written")
"""
REFUSED = """
try:
    await mcp_filesystem.write_file(path="0.txt", content="")
except runtime.MCPError as e:
    print("refused:", e.kind, e)
"""


@pytest.fixture
def parameters(sallyport, definitions, folder, environment):
    return StdioServerParameters(
        command=sallyport, args=["serve", "--servers-config", definitions(folder)], cwd=str(folder),
        env=environment | {"SALLYPORT_POLICY_PROFILE": "careful"})


@pytest.fixture
def approvals(sallyport, environment):
    """The second terminal."""

    def run(*args):
        done = subprocess.run([sallyport, "approvals", *args], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def written(folder):
    return sorted(int(p.stem) for p in folder.glob("*.txt"))


def play(parameters, mode, code, answer, seconds=90):
    """Runs code; answer says what the person fills in. Returns the output and what was asked."""
    asked = []

    async def person(context, params):
        asked.append(params)
        return answer(params)

    async def main():
        async with Client(parameters, mode=mode, elicitation_callback=person) as client:
            result = await client.call_tool("run_python", {"code": code, "servers": ["filesystem"]})
            return "\n".join(block.text for block in result.content)

    return asyncio.run(asyncio.wait_for(main(), seconds)), asked


def accept(**content):
    return lambda params: ElicitResult(action="accept", content=content)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_loop_is_one_question_with_a_table(parameters, folder, mode):
    output, asked = play(parameters, mode, LOOP, accept(answer="waiting"))
    assert output == "written"
    (form,) = asked
    lines = form.message.splitlines()
    assert "filesystem.write_file, 40 calls" in lines[2], lines[2]
    assert '  each with content = "same"' in lines
    rows = [line.split() for line in lines if line.endswith('.txt"')]
    assert [r[0] for r in rows] == [str(i) for i in range(1, 41)]
    assert sorted(r[1] for r in rows) == sorted(f'"{i}.txt"' for i in range(40))
    assert written(folder) == list(range(40))


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("content", [{"answer": "tool"}, {"answer": "next", "count": 40, "vary": "path, content"}], ids=["tool", "next"])
def test_one_answer_for_calls_one_after_the_other(parameters, folder, mode, content):
    output, asked = play(parameters, mode, SEQUENTIAL, accept(**content))
    assert output == "written"
    assert len(asked) == 1 and "1 call," in asked[0].message
    assert written(folder) == list(range(40))


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_no_raises_with_the_words(parameters, folder, mode):
    output, asked = play(parameters, mode, REFUSED, accept(answer="no", words="write to /tmp instead"))
    assert "refused: denied" in output and "write to /tmp instead" in output, output
    output, asked = play(parameters, mode, REFUSED, lambda _: ElicitResult(action="decline"))
    assert "did not allow filesystem.write_file" in output, output
    assert written(folder) == []


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_second_terminal_answers(parameters, folder, mode, approvals):
    """The user dismisses the form, and answers elsewhere."""

    async def main():
        seen = []

        async def progress(value, total, message):
            seen.append(message)

        async def person(context, params):
            return ElicitResult(action="cancel")

        async with Client(parameters, mode=mode, elicitation_callback=person) as client:
            call = asyncio.create_task(client.call_tool("run_python", {"code": LOOP, "servers": ["filesystem"]}, progress_callback=progress))
            while not any("waiting for approval of filesystem.write_file (40 calls): sallyport approvals" in (m or "") for m in seen):
                await asyncio.sleep(0.05)
                assert not call.done(), call.result()
            (question,) = json.loads(await asyncio.to_thread(approvals, "list", "--json"))["open"]
            assert question["waiting"] == 40 and len(question["calls"]) == 40
            told = await asyncio.to_thread(approvals, "approve", f"{question['id']}.{question['revision']}")
            assert told == "40 calls: allowed.\n"
            return await call

    result = asyncio.run(asyncio.wait_for(main(), 90))
    assert result.content[0].text == "written"
    assert written(folder) == list(range(40))


def test_a_client_without_forms_waits(parameters, folder, approvals):
    async def main():
        async with Client(parameters) as client:
            call = asyncio.create_task(client.call_tool("run_python", {"code": REFUSED, "servers": ["filesystem"]}))
            while not (open := json.loads(await asyncio.to_thread(approvals, "list", "--json"))["open"]):
                await asyncio.sleep(0.05)
            await asyncio.to_thread(approvals, "deny", f"{open[0]['id']}.1", "--because", "not now")
            return await call

    assert "not now" in asyncio.run(asyncio.wait_for(main(), 90)).content[0].text
    assert written(folder) == []


def test_after_kill_9_the_call_was_never_sent(parameters, folder, approvals, sallyport, environment):
    process = subprocess.Popen([sallyport, *parameters.args], cwd=parameters.cwd, env=parameters.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        for message in (
            {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "doomed", "version": "1"}}},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": LOOP, "servers": ["filesystem"]}}},
        ):
            print(json.dumps({"jsonrpc": "2.0"} | message), file=process.stdin, flush=True)
        while not (open := json.loads(approvals("list", "--json"))["open"]) or not open[0]["settled"]:
            time.sleep(0.05)
        (hub,) = hubs_of(sallyport, environment)
        os.kill(hub["pid"], signal.SIGKILL)
        while pathlib.Path("/proc", str(hub["pid"])).exists():
            time.sleep(0.02)
        told = approvals()
        assert f"Process {hub['pid']} was killed" in told and "40 of filesystem.write_file waited for approval. None was sent." in told, told
        assert json.loads(approvals("list", "--json")) == {"open": [], "lost": []}, "it is reported once"
        assert written(folder) == []
    finally:
        process.kill()
        process.wait()
