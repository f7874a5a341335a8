"""The official MCP Inspector's command line against `sallyport serve`, one
process and one server for each method. test_session.py has it play a session."""

import json
import subprocess

import pytest


@pytest.fixture
def inspect(node22, npm, sallyport, definitions, folder, environment, tmp_path):
    """Runs one method through the Inspector; answers its exit status and JSON."""
    # The Inspector's own options would take ours, so that the server is named
    # in a file, as a person's client names it.
    config = tmp_path / "inspector.json"
    config.write_text(
        json.dumps(
            {
                "mcpServers": {
                    "sallyport": {
                        "type": "stdio",
                        "command": sallyport,
                        "args": ["serve", "--servers-config", definitions(folder)],
                        "cwd": str(folder),
                    }
                }
            }
        )
    )

    def run(*args):
        done = subprocess.run(
            [node22, str(npm / ".bin/mcp-inspector"), "--cli", "--config", str(config), "--server", "sallyport", *args],
            env=environment | {"MCP_INSPECTOR_SECRET_STORE": "memory"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=90,
        )
        start = done.stdout.find("{")
        assert start >= 0, f"no JSON: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        answer, _ = json.JSONDecoder().raw_decode(done.stdout[start:])
        return done, answer

    return run


def test_lists_the_tool_without_portability_problems(inspect):
    done, answer = inspect("--method", "tools/list", "--strict")
    assert done.returncode == 0, done.stderr
    assert [t["name"] for t in answer["tools"]] == ["run_python"]


def call(inspect, **arguments):
    pairs = []
    for key, value in arguments.items():
        pairs += ["--tool-arg", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return inspect("--method", "tools/call", "--tool-name", "run_python", *pairs)


def test_success(inspect):
    done, answer = call(inspect, code="print(6 * 7)")
    assert done.returncode == 0, done.stderr
    assert answer["content"][0]["text"] == "42"
    assert "structuredContent" not in answer, "the text says all of it"
    _, answer = call(inspect, code="print('before')\nraise SystemExit(3)")
    assert answer["content"][0]["text"].startswith("status: error\nexit: 3\nbefore")
    assert answer["structuredContent"] == {"status": "error", "exitCode": 3}


def test_filesystem_server(inspect, folder):
    _, answer = call(
        inspect,
        code="await mcp_filesystem.write_file(path='inspected.txt', content='seen')\nprint('written')",
        servers=["filesystem"],
    )
    assert answer["content"][0]["text"] == "written", answer
    assert (folder / "inspected.txt").read_text() == "seen"


def test_a_picture_of_a_tool(inspect):
    _, answer = call(inspect, code="await mcp_everything.get_tiny_image()", servers=["everything"])
    text, name, picture = answer["content"]
    assert "<image image/png" in text["text"], answer
    assert name["text"].startswith("get_tiny_image-1.png: mcp_everything.get_tiny_image, image/png "), answer
    assert picture["type"] == "image" and picture["mimeType"] == "image/png" and picture["data"].startswith("iVBORw0KGgo")
