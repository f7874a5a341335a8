"""The tools commands over real servers."""

import json
import subprocess

import pytest

SEARCHES = {
    "read several files at once": "filesystem.read_multiple_files",
    "move a file to another folder": "filesystem.move_file",
    "add two numbers": "everything.get-sum",
    "create entities in the knowledge graph": "memory.create_entities",
    "delete relations": "memory.delete_relations",
}


@pytest.fixture
def tools(sallyport, definitions, environment, tmp_path):
    """Runs a tools command over real servers, in a place of its own."""
    folder = tmp_path / "files"
    folder.mkdir()
    file = definitions(folder)

    def run(*args):
        command = [sallyport, "tools", *args, "--servers-config", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_over_real_servers(tools):
    listed = json.loads(tools("list", "--json").stdout)["servers"]
    count = {s["server"]: len(s["tools"]) for s in listed}
    assert set(count) == {"filesystem", "everything", "memory"}
    assert count["filesystem"] >= 11 and count["everything"] >= 8 and count["memory"] == 9
    assert not any(s.get("problem") for s in listed)
    everything = next(s for s in listed if s["server"] == "everything")
    assert everything["resources"] and everything["prompts"] and everything["version"]

    # Nothing is started for these.
    for query, want in SEARCHES.items():
        found = json.loads(tools("search", "--cached", "--limit", "1", "--json", query).stdout)
        assert [f"{t['server']}.{t['tool']}" for t in found["tools"]] == [want], query
    assert "paths: list[str]" in tools("show", "--cached", "filesystem", "read_multiple_files").stdout

    # Servers that say the same again have changed nothing.
    tools("refresh")
    again = json.loads(tools("list", "--cached", "--json").stdout)["servers"]
    assert not [t for s in again for t in s["tools"] if t.get("state")]
