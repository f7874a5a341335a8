"""Every block of the manual runs, in the order of the text, through the executable
and a real server, and prints what the text shows. The skill has all of these blocks;
the resource and the prompt leave out those marked as examples, and what is printed."""

import asyncio
import json
import re
import subprocess

import pytest
from conftest import ROOT
from mcp import Client, StdioServerParameters

MANUAL = (ROOT / "internal/manual/manual.md").read_text(encoding="utf-8")
# (language, body, the output that the text shows or None)
BLOCKS = [
    (m[1], m[2], m[3])
    for m in re.finditer(r"^```(python|json)(?: example)?\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", MANUAL, re.M | re.S)
]


@pytest.fixture
def parameters(sallyport, npm, environment, tmp_path):
    """The server and the files that the examples speak of."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "notes.txt").write_text("call Ana about the release\n")
    (folder / "todo.txt").write_text("buy milk\n")
    servers = {"filesystem": {"command": str(npm / ".bin/mcp-server-filesystem"), "args": ["."], "cwd": str(folder)}}
    (tmp_path / "home/MCPs").mkdir()
    (tmp_path / "home/MCPs/servers.json").write_text(json.dumps({"mcpServers": servers}))
    # What a search finds does not depend on how long listing takes.
    done = subprocess.run([sallyport, "tools", "refresh"], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

    def with_environment(**more):
        return StdioServerParameters(command=sallyport, args=["serve"], env=environment | more, cwd=str(tmp_path))

    return with_environment


def play(parameters, scenario):
    async def main():
        async with Client(parameters) as client:
            return await scenario(client)

    return asyncio.run(asyncio.wait_for(main(), 120))


def text(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


def as_shown(output, shown):
    """… in what is shown stands for anything."""
    return re.fullmatch(".*".join(re.escape(part) for part in shown.rstrip("\n").split("…")), output, re.S)


def test_every_block_is_tried():
    tried = sum(1 + (shown is not None) for _, _, shown in BLOCKS)
    assert tried == len(re.findall(r"^```\w+(?: example)?$", MANUAL, re.M)), "a block has another language, or output without code"
    assert len(BLOCKS) >= 10
    # Code without output is the example of waiting, which has a test of its own.
    assert [body for _, body, shown in BLOCKS if shown is None] == ['{"code": ""}\n']


def test_examples(parameters):
    async def scenario(client):
        wrong = []
        for language, body, shown in BLOCKS:
            if shown is None:
                continue
            arguments = {"code": body} if language == "python" else json.loads(body)
            result = await client.call_tool("run_python", arguments)
            if result.is_error or not as_shown(text(result), shown):
                wrong.append(f"{body}\ngot:\n{text(result)[-3000:]}\nwant:\n{shown}")
        return wrong

    wrong = play(parameters(), scenario)
    assert not wrong, "\n\n".join(wrong)


def test_waiting(parameters):
    """Code that outlasts the client is waited for with empty code, and can be stopped
    from another session."""

    async def scenario(client):
        parts = [await client.call_tool("run_python", {"code": "import time\nprint('began')\ntime.sleep(3)\nprint('ended')"})]
        assert text(parts[0]).startswith("status: running\n"), text(parts[0])
        while "status: running" in text(parts[-1]):
            parts.append(await client.call_tool("run_python", json.loads('{"code": ""}')))
        lines = "\n".join(text(p) for p in parts).splitlines()
        assert (lines.count("began"), lines.count("ended")) == (1, 1), lines

        endless = await client.call_tool("run_python", {"code": "import time\nwhile True: time.sleep(0.1)"})
        assert "status: running" in text(endless)
        stopped = await client.call_tool("run_python", {"code": 'runtime.cancel("default")', "session": "analysis"})
        assert not stopped.is_error, text(stopped)
        last = endless
        while "status: running" in text(last):
            last = await client.call_tool("run_python", {"code": ""})
        return text(last)

    last = play(parameters(SALLYPORT_ANSWER_WITHIN="1s"), scenario)
    assert "KeyboardInterrupt" in last or "cancel" in last, last


def test_server_gives_it(parameters):
    """A client reads the manual as a resource and as a prompt."""

    async def scenario(client):
        (prompt,) = (await client.list_prompts()).prompts
        message = (await client.get_prompt(prompt.name, {"task": "count the words"})).messages[0]
        resources = (await client.list_resources()).resources
        read = [(await client.read_resource(r.uri)).contents[0].text for r in resources if str(r.uri).endswith("/capabilities")]
        return [message.content.text, *read]

    texts = play(parameters(), scenario)
    assert len(texts) == 3
    brief = re.sub(r"^```(?:\w+ example|text)\n.*?^```\n\n?", "", MANUAL, flags=re.M | re.S)
    for t in texts:
        assert brief.strip() in t
    skill = (ROOT / "skills/sallyport/SKILL.md").read_text(encoding="utf-8")
    assert MANUAL.replace(" example\n", "\n").strip() in skill
    assert texts[0].rstrip().endswith("count the words")
