"""The page that shows the HTML of a result, in a host of MCP Apps: AppBridge of
@modelcontextprotocol/ext-apps in Chromium. The HTML of the first file is hostile."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent
ATTEMPTS = re.findall(r"^  try_(\w+)", (HERE / "result_page_hostile.html").read_text(), re.M)


def test_html_of_a_result(node22, npm, sallyport, environment, tmp_path):
    browser = shutil.which("chromium")
    if not browser:
        pytest.skip("chromium is missing (Debian: apt-get install chromium)")
    done = subprocess.run(
        [node22, str(HERE / "result_page_host.mjs"), browser, str(HERE / "result_page_hostile.html"), sallyport, "serve"],
        env=environment | {"SALLYPORT_TEST_NPM": str(npm)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)
    hostile, large = [c["uri"] for c in seen["result"] if c["type"] == "resource_link"]

    assert seen["type"] == "text/html;profile=mcp-app"
    assert seen["titles"] == ["1.html", "2.html"]
    assert seen["large"] == ["begin", 2_500_000, 1, "end"]
    # What the page asks the host for is the two files, the large one in two parts.
    assert seen["asked"][:2] == [f"read {hostile}", f"read {large}"]
    assert len(seen["asked"]) == 3 and seen["asked"][2].startswith(f"read {large}?offset="), seen["asked"]
    assert seen["teardown"] == {}

    assert len(ATTEMPTS) >= 12 and seen["tried"] == ATTEMPTS
    assert seen["requests"] == ["/last"]
    assert seen["own"] == "chrome-error://chromewebdata/" and seen["address"]
    assert seen["controls"] == ATTEMPTS
