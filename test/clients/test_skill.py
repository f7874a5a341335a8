"""The skill, as clients that read skills find it."""

import json
import subprocess

import pytest
from conftest import ROOT


@pytest.fixture
def clients():
    """The commands of the clients from npm."""
    folder = ROOT / ".cache/clients/node_modules/.bin"
    if not folder.exists():
        pytest.fail(f"{folder} is missing: run scripts/setup", pytrace=False)
    return folder


@pytest.fixture
def at_home(environment, node22, tmp_path):
    """A project, and what runs a command in it."""
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    environment = environment | {"PATH": f"{node22.rpartition('/')[0]}:{environment['PATH']}", "DISABLE_TELEMETRY": "1"}

    def run(*command, **more):
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=120, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run.project, run.environment = project, environment
    return run


def installed(run, sallyport, client, *flags):
    """Where the skill is, once it is installed for a client."""
    (report,) = json.loads(run(sallyport, "skill", "install", client, "--json", *flags))["skills"]
    return report["path"]


def test_real_client_gemini(sallyport, clients, at_home):
    path = installed(at_home, sallyport, "gemini")
    listed = at_home(str(clients / "gemini"), "skills", "list")
    assert "\nsallyport [Enabled]\n" in listed and path in listed, listed


@pytest.mark.parametrize("flags", [(), ("--project",)], ids=["user", "project"])
def test_real_client_codex(sallyport, clients, at_home, flags):
    (at_home.project.parent / "home/.codex").mkdir()
    path = installed(at_home, sallyport, "codex", *flags)
    requests = [
        {"id": 0, "method": "initialize", "params": {"clientInfo": {"name": "test", "version": "1"}}},
        {"method": "initialized"},
        {"id": 1, "method": "skills/list", "params": {"cwds": [str(at_home.project)]}},
    ]
    with subprocess.Popen(
        ["timeout", "60", str(clients / "codex"), "app-server"], cwd=at_home.project, env=at_home.environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as server:  # fmt: skip
        for r in requests:
            server.stdin.write(json.dumps(r) + "\n")
        server.stdin.flush()
        for line in server.stdout:
            answer = json.loads(line)
            if answer.get("id") == 1:
                break
        server.stdin.close()
        server.terminate()
    found = {s["name"]: s for entry in answer["result"]["data"] for s in entry["skills"]}
    assert found["sallyport"]["path"] == path and found["sallyport"]["enabled"], answer


def test_skills_add(sallyport, npm, at_home, node22):
    """`npx skills add` finds the skill in the repository and puts it where
    `sallyport skill` expects it."""
    (at_home.project.parent / "home/.claude").mkdir()
    source = at_home.project.parent / "repository"
    (source / "skills/sallyport").mkdir(parents=True)
    text = (ROOT / "skills/sallyport/SKILL.md").read_text(encoding="utf-8")
    (source / "skills/sallyport/SKILL.md").write_text(text, encoding="utf-8")
    at_home(node22, str(npm / ".bin/skills"), "add", str(source), "-a", "claude-code", "-g", "-y")
    (report,) = json.loads(at_home(sallyport, "skill", "status", "claude-code", "--json"))["skills"]
    assert report["state"] == "current", report
