"""A figure without savefig arrives as a picture in other people's clients. (That of the
Python client is in every notebook; this is the first one that people try.)"""

import asyncio
import base64
import io
import json
import subprocess
import sys

import pytest
from mcp import Client, StdioServerParameters
from PIL import Image

CODE = """
import matplotlib.pyplot as plt
import numpy as np

t = np.linspace(0, 4 * np.pi, 400)
plt.plot(t, np.sin(t))
plt.title("A sine wave")
plt.grid(True)
"""
ARGUMENTS = ["serve", "--set", "python=" + sys.executable, "--set", "timeouts.default=2m"]


def python_client(sallyport, environment):
    async def main():
        async with Client(StdioServerParameters(command=sallyport, args=ARGUMENTS, env=environment)) as client:
            return await client.call_tool("run_python", {"code": CODE})

    return asyncio.run(asyncio.wait_for(main(), 300)).model_dump(mode="json", by_alias=True)


@pytest.fixture
def inspector(request, tmp_path):
    def call(sallyport, environment):
        node, npm = request.getfixturevalue("node22"), request.getfixturevalue("npm")
        config = tmp_path / "inspector.json"
        config.write_text(json.dumps({"mcpServers": {"sallyport": {"type": "stdio", "command": sallyport, "args": ARGUMENTS}}}))
        command = [node, str(npm / ".bin/mcp-inspector"), "--cli", "--config", str(config), "--server", "sallyport"]
        done = subprocess.run(
            [*command, "--method", "tools/call", "--tool-name", "run_python", "--tool-arg", "code=" + CODE],
            env=environment | {"MCP_INSPECTOR_SECRET_STORE": "memory"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert "{" in done.stdout, f"no JSON: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.JSONDecoder().raw_decode(done.stdout[done.stdout.find("{") :])[0]

    return call


@pytest.mark.parametrize("client", ["python", "inspector"])
def test_sine(client, inspector, sallyport, environment):
    answer = (python_client if client == "python" else inspector)(sallyport, environment)
    assert not answer.get("isError"), answer
    pictures = [block for block in answer["content"] if block["type"] == "image"]
    assert len(pictures) == 1, [block["type"] for block in answer["content"]]
    assert pictures[0]["mimeType"] == "image/png"
    assert any(block.get("text", "").endswith(": A sine wave") for block in answer["content"]), answer
    image = Image.open(io.BytesIO(base64.b64decode(pictures[0]["data"]))).convert("RGB")
    # The line's colour, on both halves and above and below the middle.
    width, height = image.size
    blue = [(x, y) for x in range(width) for y in range(height) if image.getpixel((x, y)) == (31, 119, 180)]
    for of, size in ((0, width), (1, height)):
        assert {p[of] * 2 < size for p in blue} == {True, False}, "no line in one half of %s" % (image.size,)
