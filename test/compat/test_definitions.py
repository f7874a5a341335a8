"""Where definitions of servers are found, with the whole program."""

import json
import subprocess

import pytest
from live import Live, write_definitions


def of(*names, command="true"):
    return json.dumps({"mcpServers": {name: {"command": command} for name in names}})


HOME = {
    "MCPs/a.json": of("mcps", "everywhere", command="first"),
    ".config/mcp/servers/a.json": of("shared", "everywhere"),
    ".claude.json": of("claude", "everywhere"),
    ".cursor/mcp.json": of("cursor", "everywhere"),
    ".opencode.json": of("opencode"),
    ".codeium/windsurf/mcp_config.json": of("windsurf"),
    ".config/Code/User/settings.json": of("code"),
    ".gemini/settings.json": of("gemini"),
    ".gemini/antigravity/mcp_config.json": of("antigravity"),
    ".codex/config.toml": '[mcp_servers.codex]\ncommand = "true"\n',
    "last.json": of("last", "everywhere"),
}
PROJECT = {
    "mcp-servers/a.json": of("folder"),
    ".vscode/mcp.json": json.dumps({"servers": {"vscode": {"type": "stdio", "command": "true"}}}),
}


@pytest.fixture
def listed(sallyport, environment, tmp_path):
    home, project = tmp_path / "home", tmp_path / "project"
    for top, files in ((home, HOME), (project, PROJECT)):
        for name, text in files.items():
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_text(text)
    done = subprocess.run(
        [sallyport, "servers", "--json"], cwd=project, capture_output=True, text=True, timeout=60,
        env=environment | {"MCP_SERVERS_CONFIG": str(home / "last.json"), "SALLYPORT_STATE_DIR": str(tmp_path / "state")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {server["name"]: server for server in json.loads(done.stdout)["servers"]}


def test_places(listed):
    expected = {"mcps", "everywhere", "shared", "claude", "cursor", "opencode", "windsurf", "code", "gemini", "antigravity", "codex", "last"}
    assert {name for name, server in listed.items() if server["state"] == "ready"} == expected
    assert listed["everywhere"]["command"] == "first"


def test_a_project_is_only_offered(listed):
    assert {name for name, server in listed.items() if server["state"] == "offered"} == {"folder", "vscode"}


def test_definitions_are_read_again(sallyport, tmp_path):
    """A file that appears while the program runs counts in the next call."""
    live = Live(sallyport, tmp_path)
    assert "Unknown MCP server: fresh" in live.run("1", servers=["fresh"]).text
    write_definitions(tmp_path / "roles.json", tmp_path / "log")
    stub = json.loads((tmp_path / "roles.json").read_text())["mcpServers"]["stub"]
    (tmp_path / "home/MCPs/fresh.json").write_text(json.dumps({"mcpServers": {"fresh": stub}}))
    result = live.run("print(await mcp_fresh.echo(message='new'), 'fresh' in discovered_servers())", servers=["fresh"])
    live.close()
    assert result.text == "new True", result
