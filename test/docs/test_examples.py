"""Every example, on its real input."""

import collections
import json
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.fixture
def examples(tmp_path):
    target = tmp_path / "examples"
    shutil.copytree(ROOT / "examples", target, ignore=shutil.ignore_patterns("out", ".venv", "__pycache__"))
    return target


@pytest.fixture
def config(examples, npm):
    """The examples' own servers.json with the servers that are installed."""
    servers = json.loads((examples / "servers.json").read_text())
    for name, server in servers["mcpServers"].items():
        assert server["args"][0] == "-y"
        server["command"] = str(npm / f".bin/mcp-server-{name}")
        server["args"] = server["args"][2:]
    path = examples / "installed.json"
    path.write_text(json.dumps(servers))
    return str(path)


def test_pinned_versions_are_the_tested_ones(examples):
    """servers.json names the versions that the lock file installs."""
    lock = json.loads((ROOT / "scripts/npm/package-lock.json").read_text())["packages"]
    for server in json.loads((examples / "servers.json").read_text())["mcpServers"].values():
        package, _, version = server["args"][1].rpartition("@")
        assert lock[f"node_modules/{package}"]["version"] == version


def run(examples, environment, *command, **more):
    return subprocess.run(command, cwd=examples, env=environment, capture_output=True, text=True, timeout=120, **more)


def test_word_ranking(sallyport, examples, config, environment):
    done = run(
        examples, environment,
        sallyport, "run", "--servers-config", config, "--server", "filesystem", "--server", "everything",
        "word_ranking.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = (examples / "out/word_ranking.md").read_text(encoding="utf-8")

    words, rows = collections.Counter(), []
    for path in sorted((examples / "texts").glob("*.txt")):
        found = re.findall(r"[^\W\d_]{4,}", path.read_text(encoding="utf-8").lower())
        words.update(found)
        rows.append(f"| {path.name} | {len(found)} | {len(set(found))} |")
    assert len(rows) == 6
    for row in rows:
        assert row in report
    total = sum(words.values())
    assert f"{total} words in 6 files." in report
    ranked = re.findall(r"^\d+\. (\S+) \((\d+)\)$", report, re.M)
    assert [(w, int(n)) for w, n in ranked] == words.most_common(20)
    assert done.stdout.startswith(f"{total} words in 6 files; the first five:\n")
    assert f"report: out/word_ranking.md, {len(report)} characters" in done.stdout


def test_failing(sallyport, examples, config, environment):
    done = run(examples, environment, sallyport, "run", "--servers-config", config, "--server", "filesystem", "failing.py")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("caught: ") and "no such file" in lines[0]
    assert lines[1].startswith("caught: ") and "outside allowed directories" in lines[1]
    assert lines[2:] == ["now one that nobody catches"]
    assert "IndexError: list index out of range" in done.stderr
    assert "numbers[7]" in done.stderr
    frames = re.findall(r'File "([^"]+)"', done.stderr)
    assert len(frames) == 1, f"only the script's own frame is shown: {frames}"


def test_session(sallyport, examples, config, environment):
    done = run(examples, environment, sys.executable, "session/drive.py", sallyport, config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "--- 1_load.py",
        "['CXVI', 'CXXX', 'XVIII', 'XXIX']",
        "--- 2_count.py",
        "['day', 'temperate', 'may', 'date']",
        "--- 3_answer.py",
        "CXVI   proved / loved",
        "CXXX   rare / compare",
        "XVIII  see / thee",
        "XXIX   brings / kings",
        "files: %d" % len(list((examples / "texts").iterdir())),
    ]
