"""The official Python client (PyPI `mcp`) against `sallyport serve`, in each of
its ways to connect."""

import asyncio
import contextlib
import re
import time

import pytest
from mcp import Client, ClientSession, StdioServerParameters, stdio_client

WAYS = ["auto", "legacy", "2026-07-28", "session"]


@contextlib.asynccontextmanager
async def connected(way, parameters):
    if way == "session":
        async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            yield session
    else:
        async with Client(parameters, mode=way) as client:
            yield client


@pytest.fixture
def parameters(sallyport, definitions, folder, environment):
    return StdioServerParameters(
        command=sallyport,
        args=["serve", "--servers-config", definitions(folder)],
        env=environment,
        cwd=str(folder),
    )


@pytest.fixture(params=WAYS)
def play(request, parameters):
    """Runs a coroutine function with a connected client, bounded in time."""

    def run(scenario, seconds=60):
        async def main():
            async with connected(request.param, parameters) as client:
                return await scenario(client)

        return asyncio.run(asyncio.wait_for(main(), seconds))

    return run


def text(result):
    return "\n".join(block.text for block in result.content)


async def python(client, code, **arguments):
    return await client.call_tool("run_python", {"code": code, **arguments})


def test_one_tool_is_listed(play):
    async def scenario(client):
        return await client.list_tools()

    (tool,) = play(scenario).tools
    assert tool.name == "run_python"
    assert tool.input_schema["required"] == ["code"]
    assert {"code", "servers", "timeout"} <= set(tool.input_schema["properties"])


def test_success(play):
    async def scenario(client):
        return await python(client, "print('two:', 1 + 1)\n'echoed'")

    result = play(scenario)
    assert not result.is_error, text(result)
    assert text(result) == "two: 2\n'echoed'"
    assert result.structured_content is None, "frameworks with this SDK give their model that in place of the text"


def test_pictures_of_tools_follow_their_names(play):
    async def scenario(client):
        return await python(client, "(await mcp_everything.get_tiny_image(), await mcp_everything.get_tiny_image())", servers=["everything"])

    result = play(scenario)
    assert [block.type for block in result.content] == ["text", "text", "image", "text", "image"]
    first, *named = result.content
    assert first.text.count("<image image/png") == 2 and "iVBOR" not in first.text
    for i in (0, 2):
        name, picture = named[i : i + 2]
        assert re.fullmatch(r"get_tiny_image-%d\.png: mcp_everything\.get_tiny_image, image/png \d+×\d+" % (i // 2 + 1), name.text)
        assert picture.mime_type == "image/png" and picture.data.startswith("iVBORw0KGgo")


def test_exception(play):
    async def scenario(client):
        failed = await python(client, "x = 20\nprint('before')\n1 / 0")
        return failed, await python(client, "x + 1")

    failed, after = play(scenario)
    assert failed.is_error
    assert text(failed).startswith("status: error\nexit: 1\nbefore\nstderr:\n"), text(failed)
    assert text(failed).count("ZeroDivisionError: division by zero") == 1
    assert "line 3" in text(failed)
    assert text(after) == "21", "an exception must not cost the session"


def test_exit_status(play):
    async def scenario(client):
        return await python(client, "import sys\nsys.exit(3)")

    result = play(scenario)
    assert result.is_error
    assert text(result) == "status: error\nexit: 3"


def test_timeout_keeps_the_session(play):
    async def scenario(client):
        await python(client, "kept = 42")
        begin = time.monotonic()
        late = await python(client, "print('partial')\nwhile True: pass", timeout=1)
        return late, time.monotonic() - begin, await python(client, "kept")

    late, seconds, after = play(scenario)
    assert late.is_error
    assert text(late).startswith("status: timeout\npartial\n"), text(late)
    assert seconds < 15
    assert text(after) == "42", "an interrupted loop must not cost the session"


def test_state_over_three_calls(play):
    async def scenario(client):
        first = await python(client, "import math\nradii = [1, 2, 3]")
        second = await python(client, "areas = [math.pi * r * r for r in radii]")
        third = await python(client, "print(f'{sum(areas):.3f}')")
        return first, second, third

    results = play(scenario)
    assert [r.is_error for r in results] == [False] * 3
    assert text(results[2]) == "43.982"


def test_tools_of_real_servers(play, folder):
    async def scenario(client):
        return await python(
            client,
            """
listing = await mcp_filesystem.list_directory(path="texts")
print(sorted(line.split()[-1] for line in listing.splitlines())[-1])
await mcp_servers["filesystem"].write_file(path="from_the_sandbox.txt", content="grüße\\n")
print(await mcp_everything.get_sum(a=40, b=2))
""",
            servers=["filesystem", "everything"],
        )

    result = play(scenario)
    assert not result.is_error, text(result)
    assert text(result).splitlines() == ["verwandlung.txt", "The sum of 40 and 2 is 42."]
    assert (folder / "from_the_sandbox.txt").read_text(encoding="utf-8") == "grüße\n"


def test_server_errors_raise(play):
    async def scenario(client):
        return await python(
            client,
            "try:\n    await mcp_filesystem.read_text_file(path='/etc/passwd')\n"
            "except Exception as e:\n    print('refused:', 'outside' in str(e))",
            servers=["filesystem"],
        )

    assert text(play(scenario)) == "refused: True"


def test_grants_end_with_their_call(play):
    async def scenario(client):
        await python(client, "1", servers=["everything"])
        return await python(client, "print(list_servers_sync(), (await mcp_everything.echo(message='x')))")

    assert text(play(scenario)) == "() Echo: x"


def test_unknown_server(play):
    async def scenario(client):
        return await python(client, "1", servers=["no-such-server"])

    result = play(scenario)
    assert result.is_error
    assert "no-such-server" in text(result)


@pytest.mark.parametrize(
    "arguments", [{}, {"code": ""}, {"code": 7}, {"code": "1", "servers": "x"}, {"code": "1", "timeout": "soon"}]
)
def test_bad_arguments_are_refused(play, arguments):
    async def scenario(client):
        try:
            bad = await client.call_tool("run_python", arguments)
        except Exception as e:  # a protocol error is a right answer too
            bad = str(e)
        return bad, await python(client, "'still here'")

    bad, after = play(scenario)
    assert isinstance(bad, str) or bad.is_error
    assert text(after) == "'still here'"


def test_cancellation_stops_the_code(play):
    async def scenario(client):
        await python(client, "beats = []")
        running = asyncio.ensure_future(
            python(client, "import time\nwhile True:\n    beats.append(time.time())\n    time.sleep(0.05)", timeout=60)
        )
        await asyncio.sleep(1)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        begin = time.monotonic()
        after = await python(client, "n = len(beats)\ntime.sleep(0.5)\nprint(n > 3, len(beats) == n)")
        return after, time.monotonic() - begin

    after, seconds = play(scenario)
    assert text(after) == "True True"
    assert seconds < 15, "the next call waited for the cancelled one"


def test_code_outlives_its_call(parameters):
    async def main():
        async with connected("auto", parameters) as client:
            answer = await python(client, "import time\nfor i in range(4):\n    print(i, flush=True)\n    time.sleep(1)")
            statuses, printed = [], ""
            while True:
                statuses.append((answer.structured_content or {}).get("status", "success"))
                printed += "".join(line + "\n" for line in (answer.structured_content or {}).get("stdout", ()))
                if statuses[-1] != "running":
                    return statuses, printed, answer
                assert not answer.is_error and "empty code" in text(answer), text(answer)
                answer = await python(client, "")

    parameters.env |= {"SALLYPORT_ANSWER_WITHIN": "1s", "SALLYPORT_OUTPUT_STRUCTURED": "always"}
    statuses, printed, last = asyncio.run(asyncio.wait_for(main(), 60))
    assert statuses[0] == "running" and statuses[-1] == "success", (statuses, text(last))
    assert printed == "0\n1\n2\n3\n"


def test_progress_heartbeats(play):
    async def scenario(client):
        beats = []

        async def note(progress, total, message):
            beats.append(progress)

        await client.call_tool(
            "run_python", {"code": "import time\ntime.sleep(7)\nprint('done')"}, progress_callback=note
        )
        return beats

    beats = play(scenario)
    assert len(beats) >= 1
    assert beats == sorted(set(beats)), "progress must increase"


def test_parallel_calls_each_get_their_answer(play):
    async def scenario(client):
        return await asyncio.gather(*(python(client, f"print({i} * 111)") for i in range(8)))

    assert [text(r) for r in play(scenario)] == [str(i * 111) for i in range(8)]


def test_long_output_is_shortened_and_can_be_read(parameters):
    async def main():
        async with connected("auto", parameters) as client:
            answer = await python(client, "for i in range(20000):\n    print('line', i)", session="long")
            uri = re.search(r"sallyport://output/\S+", text(answer))
            assert uri, text(answer)[-500:]
            whole = await client.read_resource(uri[0])
            listed = [str(r.uri) for r in (await client.list_resources()).resources]
            again = await python(client, "got = runtime.output(-1)\nprint(len(got), got.endswith('line 19999\\n'))", session="long")
            echoed = await python(client, "got.splitlines()", session="long")
            return answer, uri[0], whole.contents[0].text, listed, again, echoed

    answer, uri, whole, listed, again, echoed = asyncio.run(asyncio.wait_for(main(), 60))
    lines = text(answer).splitlines()
    assert lines[0] == "line 0" and lines[-2] == "line 19999" and lines[-1].startswith("note: shortened: "), lines[-3:]
    assert 15_000 < len(text(answer)) < 40_000, "10,000 tokens"
    assert whole == "".join("line %d\n" % i for i in range(20000)) and uri in listed
    assert text(again) == "%d True" % len(whole)
    assert text(echoed).endswith("(shortened: list of 20,000 items; all of it is in _)") and len(text(echoed)) < 5000


def test_large_output_is_bounded_and_said(play):
    async def scenario(client):
        return await python(client, "print('x' * 50_000_000)"), await python(client, "'after'")

    large, after = play(scenario)
    assert len(text(large)) < 100_000
    assert "characters left out" in text(large), "what was cut must be said"
    assert text(after) == "'after'"
