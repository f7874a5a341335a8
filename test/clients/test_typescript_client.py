"""The official TypeScript client (npm `@modelcontextprotocol/client`): what the
scripted session of test_session.py does not ask of every client."""

import json
import pathlib
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).with_name("typescript_client.mjs")


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
def test_cancellation(mode, node22, npm, sallyport, environment, tmp_path):
    done = subprocess.run(
        [node22, str(SCRIPT), mode, "cancel", sallyport, "serve"],
        env=environment | {"SALLYPORT_TEST_NPM": str(npm)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)
    assert seen["cancelled"] is True
    assert seen["after"]["content"][0]["text"] == "after 42"
    assert seen["afterMs"] < 15000
