"""`sallyport install` as the clients themselves see it: the real Claude Code,
Codex and Gemini CLI read what it writes. They need no account for that, and
nothing outside this machine."""

import json
import os
import pathlib
import subprocess

import pytest
from conftest import ROOT

PROGRAMS = pathlib.Path(os.environ.get("SALLYPORT_TEST_CLIENTS", ROOT / ".cache/clients/node_modules/.bin"))


@pytest.fixture
def machine(sallyport, node22, environment, tmp_path):
    """A home with the program in its search path; runs commands there."""
    home = pathlib.Path(environment["HOME"])
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "sallyport").symlink_to(sallyport)
    work = tmp_path / "work"
    work.mkdir()
    # Gemini starts no server in a folder that the user has not trusted.
    (home / ".gemini").mkdir()
    (home / ".gemini/trustedFolders.json").write_text(json.dumps({str(work): "TRUST_FOLDER"}))
    path = os.pathsep.join([str(bin), str(pathlib.Path(node22).parent), "/usr/bin", "/bin"])

    def run(*command, status=0):
        done = subprocess.run(
            command,
            env=environment | {"PATH": path, "CODEX_HOME": str(home / ".codex")},
            cwd=work,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == status, f"{command}: exit {done.returncode}, want {status}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    (home / ".codex").mkdir()
    run.home, run.work = home, work
    return run


def client(name):
    path = PROGRAMS / name
    if not path.exists():
        pytest.fail(f"{path} is missing: run scripts/setup", pytrace=False)
    return str(path)


def test_claude_code(machine):
    machine("sallyport", "install", "--yes", "claude-code")
    listed = machine(client("claude"), "mcp", "list")
    assert "sallyport" in listed and "Connected" in listed, listed
    # Claude Code keeps more than servers in the file, and has written to it.
    machine("sallyport", "install", "--undo", "--yes")
    listed = machine(client("claude"), "mcp", "list")
    assert "sallyport" not in listed, listed
    assert "firstStartVersion" in (machine.home / ".claude.json").read_text()
    machine("sallyport", "install", "--yes", "claude-code")
    machine("sallyport", "uninstall", "--yes", "claude-code")
    listed = machine(client("claude"), "mcp", "list")
    assert "sallyport" not in listed, listed


def test_claude_code_shows_the_tool_from_the_first_turn(machine):
    machine("sallyport", "install", "--yes", "claude-code")
    shown = machine(client("claude"), "mcp", "get", "sallyport")
    assert "Connected" in shown and "serve" in shown, shown
    entry = json.loads((machine.home / ".claude.json").read_text())["mcpServers"]["sallyport"]
    assert entry["alwaysLoad"] is True, f"Claude Code kept {entry}"


def test_codex(machine):
    (machine.home / ".codex/config.toml").write_text('# mine\nmodel = "m"\n')
    machine("sallyport", "install", "--yes", "codex")
    servers = json.JSONDecoder().raw_decode(machine(client("codex"), "mcp", "list", "--json"))[0]
    assert [(s["name"], s["enabled"], s["transport"]["args"]) for s in servers] == [("sallyport", True, ["serve"])], servers
    machine("sallyport", "install", "--undo", "--yes")
    assert (machine.home / ".codex/config.toml").read_text() == '# mine\nmodel = "m"\n'


def test_gemini(machine):
    machine("sallyport", "install", "--yes", "gemini")
    listed = machine(client("gemini"), "mcp", "list")
    assert "sallyport" in listed and "Connected" in listed, listed


def other(npm):
    """A server of the client's own."""
    return str(npm / ".bin/mcp-server-filesystem")


def test_taking_over_from_claude_code(machine, npm, tmp_path):
    machine(client("claude"), "mcp", "add", "--scope", "user", "files", "--", other(npm), str(tmp_path))
    settings = machine.home / ".claude/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"permissions": {"deny": ["mcp__files__write_file"], "allow": ["mcp__files__read_text_file"]}}))
    before = (machine.home / ".claude.json").read_bytes()
    said = machine("sallyport", "install", "--take-over", "--yes", "claude-code")
    assert "denied tools: write_file" in said and "approved in the client: read_text_file" in said, said
    copy = json.loads((machine.home / "MCPs/files.json").read_text())["mcpServers"]["files"]
    assert copy["disabledTools"] == ["write_file"] and copy["source"]["claude-code"]["approvedTools"] == ["read_text_file"], copy
    # Nothing has written to the file yet, so that it comes back.
    machine("sallyport", "install", "--give-back", "--yes")
    assert (machine.home / ".claude.json").read_bytes() == before
    machine("sallyport", "install", "--take-over", "--yes", "claude-code")
    listed = machine(client("claude"), "mcp", "list")
    assert "sallyport" in listed and "files" not in listed, listed
    done = machine("sallyport", "run", "--server", "files", "-c", "print(len(await mcp_files.list_allowed_directories()) > 0)")
    assert "True" in done, done
    # Claude Code has written to its file since: the servers change places again.
    machine("sallyport", "install", "--give-back", "--yes")
    listed = machine(client("claude"), "mcp", "list")
    assert "files" in listed and "sallyport" not in listed, listed
    assert not (machine.home / "MCPs/files.json").exists()


@pytest.mark.parametrize("name", ["codex", "gemini"])
def test_taking_over_switches_servers_off(machine, npm, tmp_path, name):
    scope = ["--scope", "user"] if name == "gemini" else []
    machine(client(name), "mcp", "add", *scope, "files", *(["--"] if name == "codex" else []), other(npm), str(tmp_path))
    machine("sallyport", "install", "--take-over", "--yes", name)
    if name == "codex":
        servers = json.JSONDecoder().raw_decode(machine(client(name), "mcp", "list", "--json"))[0]
        enabled = {s["name"]: s["enabled"] for s in servers}
    else:
        listed = machine(client(name), "mcp", "list").splitlines()
        enabled = {n: any(f" {n}:" in line and "Connected" in line for line in listed) for n in ("files", "sallyport")}
    assert enabled == {"files": False, "sallyport": True}, enabled
    assert "files" in machine("sallyport", "servers"), "the copy"


def test_each_connection_works(machine):
    machine("sallyport", "install", "--yes", "--all")
    states = json.loads(machine("sallyport", "install", "--status", "--json"))["clients"]
    assert {s["client"]: (s["state"], s["tools"]) for s in states} == {
        name: ("connected", ["run_python"]) for name in ("codex", "gemini")
    }, states
