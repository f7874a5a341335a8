"""Every block of README.md is tried, and of docs/GUIDE.md what it gives to clients,
which is read as each client reads it, and started by an official one."""

import asyncio
import json
import re
import shlex
import subprocess

import pytest
import yaml
from conftest import ROOT
from mcp import Client, StdioServerParameters

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

GUIDE = (ROOT / "docs/GUIDE.md").read_text(encoding="utf-8")


def blocks(text):
    """(heading, language, body) of every block."""
    return [
        (heading.split("\n", 1)[0], language, body)
        for heading in re.split(r"^## ", text, flags=re.M)[1:]
        for language, body in re.findall(r"^```(\w+)\n(.*?)^```", heading, re.M | re.S)
    ]


BLOCKS = blocks(GUIDE)
BY_HAND = "Connect a client by hand"
PATH = "/path/to/sallyport"


def entry(server):
    """The member forms that most clients share."""
    assert server.pop("type", "stdio") == "stdio"
    assert set(server) == {"command", "args"}
    return [server["command"], *server["args"]]


# How a client reads the command line that starts a server, by the member at the
# top of its file.
def opencode(server):
    assert server.pop("type") == "local" and server.pop("enabled") is True and set(server) == {"command"}
    return server["command"]


def goose(server):
    assert server["type"] == "stdio" and server["enabled"] is True and server["name"] == "sallyport" and server["timeout"] > 0
    return [server["cmd"], *server["args"]]


FILES = {
    ("json", "mcpServers"): entry,
    ("json", "servers"): entry,
    ("json", "context_servers"): entry,
    ("json", "mcp"): opencode,
    ("toml", "mcp_servers"): entry,
    ("yaml", "extensions"): goose,
}
READERS = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


def of_a_file(language, body):
    (top, servers), *more = READERS[language](body).items()
    assert not more and list(servers) == ["sallyport"]
    return FILES[language, top](servers["sallyport"])


def of_a_command(line):
    """The server's command line in a client's own command, which must add it for
    every folder. test/docs/run runs the commands of the clients that it has."""
    words = shlex.split(line.replace("$(command -v sallyport)", PATH))
    if words[:2] == ["code", "--add-mcp"]:
        (definition,) = words[2:]
        definition = json.loads(definition)
        assert definition.pop("name") == "sallyport"
        return entry(definition)
    assert words[1:3] == ["mcp", "add"], line
    name, after = {
        "claude": (["--scope", "user", "sallyport"], ["--"]),
        "codex": (["sallyport"], ["--"]),
        "gemini": (["--scope", "user", "sallyport"], []),
    }[words[0]]
    assert words[3 : 3 + len(name) + len(after)] == name + after, line
    return words[3 + len(name) + len(after) :]


def snippets():
    """(name, command line) of everything that connects a client by hand."""
    for heading, language, body in BLOCKS:
        if heading != BY_HAND:
            continue
        if language == "sh":
            for line in body.splitlines():
                yield line.split()[0], of_a_command(line)
        else:
            yield next(iter(READERS[language](body))), of_a_file(language, body)


SNIPPETS = dict(snippets())


def test_main_clients_are_there():
    assert set(SNIPPETS) == {
        "claude", "codex", "gemini", "code",
        "mcpServers", "servers", "context_servers", "mcp", "mcp_servers", "extensions",
    }  # fmt: skip
    section = GUIDE.split("## " + BY_HAND, 1)[1].split("\n## ", 1)[0]
    for client in ("Claude Code", "Claude Desktop", "Cursor", "VS Code", "Windsurf", "Zed", "Cline", "Codex", "Gemini CLI", "OpenCode", "Goose", "Copilot"):
        assert client in section


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippet_starts(name, sallyport, environment, tmp_path):
    command, *arguments = SNIPPETS[name]
    assert command == PATH and arguments, "a reader could not tell what to put there"

    async def main():
        parameters = StdioServerParameters(command=sallyport, args=arguments, env=environment, cwd=str(tmp_path))
        async with Client(parameters) as client:
            return await client.call_tool("run_python", {"code": "print(6 * 7)"})

    result = asyncio.run(asyncio.wait_for(main(), 60))
    assert [block.text for block in result.content] == ["42"]


def block(heading, language):
    """The first such block under a heading."""
    return next(body for h, l, body in BLOCKS if (h, l) == (heading, language))


def test_servers(sallyport, environment, npm, tmp_path):
    """The first definition and the first code of the guide, with the server that is
    installed."""
    definition = json.loads(block("Give code an MCP server", "json"))
    server = definition["mcpServers"]["filesystem"]
    assert server["command"] == "npx" and server["args"][:2] == ["-y", "@modelcontextprotocol/server-filesystem"]
    (tmp_path / "notes.txt").write_text("seen")
    assert server["args"][2:] == ["/tmp"]
    server |= {"command": str(npm / ".bin/mcp-server-filesystem"), "args": [str(tmp_path)]}
    folder = tmp_path / "home/MCPs"
    folder.mkdir()
    (folder / "filesystem.json").write_text(json.dumps(definition))
    (tmp_path / "code.py").write_text(block("Call tools from code", "python").replace("/tmp", str(tmp_path)))
    done = subprocess.run(
        [sallyport, "run", "--server", "filesystem", "code.py"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "[FILE] notes.txt\n"), done.stderr


def test_no_block_of_the_readme_is_untried():
    """test/docs/run tries blocks of commands."""
    found = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found and {language for _, language, _ in found} <= {"sh", "console"}
