"""The official TypeScript client (npm `@modelcontextprotocol/client`)."""

import json
import pathlib
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).with_name("typescript_client.mjs")


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
def test_scenario(mode, node22, npm, sallyport, definitions, folder, environment):
    done = subprocess.run(
        [node22, str(SCRIPT), mode, sallyport, "serve", "--servers-config", definitions(folder)],
        env=environment | {"SALLYPORT_TEST_NPM": str(npm)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)

    def text(name):
        return "\n".join(block["text"] for block in seen[name]["content"])

    assert seen["tools"] == ["run_python"]
    assert text("success") == "42"
    assert text("state") == "43"
    assert seen["exception"]["isError"] and "IndexError: list index out of range" in text("exception")
    assert seen["timeout"]["isError"] and seen["timeout"]["structuredContent"]["status"] == "timeout"
    assert text("server") == "Echo: hello"
    assert seen["cancelled"] is True
    assert text("after") == "after 42"
    assert seen["afterMs"] < 15000
