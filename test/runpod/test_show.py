"""The seed's own example, from an MCP client to a worker and back: the plot
arrives as a picture. It needs a Python with matplotlib for the worker
(SALLYPORT_TEST_PLOT_PYTHON; that of .cache/remote is one)."""

import base64
import json
import os
import subprocess

import pytest
from conftest import bare_environment

PYTHON = os.environ.get("SALLYPORT_TEST_PLOT_PYTHON")
ENGINES = os.environ.get("SALLYPORT_TEST_WORKER_ENGINES", "gvisor,process").split(",")

# The seed's README, word for word.
SINE = """import numpy as np
import matplotlib.pyplot as plt

x = np.linspace(0, 10, 100)
y = np.sin(x)
plt.plot(x, y)
plt.title("Sine Wave")
plt.savefig("sine_wave.png")
print("Generated sine wave plot")
"""


class Client:
    """Just enough of an MCP client."""

    def __init__(self, command, env, cwd):
        self.process = subprocess.Popen(command, env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.serial = 0
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "show", "version": "1"}})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.serial += 1
        self.send({"jsonrpc": "2.0", "id": self.serial, "method": method, "params": params})
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self.serial:
                return answer["result"]
        raise AssertionError("the server has ended")

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)


@pytest.fixture(params=ENGINES)
def served(request, fake, endpoint, our_worker, sallyport, tmp_path):
    if not PYTHON:
        pytest.skip("SALLYPORT_TEST_PLOT_PYTHON is not set")
    our_worker(endpoint, WORKER_ENGINE=request.param, PYTHON=PYTHON, RUNPOD_MAX_EXECUTION_TIME="60s")
    env = bare_environment(
        tmp_path, RUNPOD_API_KEY=fake.key, RUNPOD_ENDPOINT_ID=endpoint, MAX_EXECUTION_TIME="60", SALLYPORT_RUNPOD_URL=fake.base,
        SALLYPORT_BATCH_SERVICES="runpod", SALLYPORT_TOOLS_RUNPOD="true", SALLYPORT_STATE_DIR=str(tmp_path / "state"))
    client = Client([sallyport, "serve"], env, tmp_path)
    yield client, request.param
    client.close()


def picture(result):
    (image,) = [c for c in result["content"] if c["type"] == "image"]
    data = base64.b64decode(image["data"])
    assert image["mimeType"] == "image/png" and data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) > 5000
    return data


def test_sine_wave_by_run_python(served):
    client, engine = served
    result = client.ask("tools/call", {"name": "run_python", "arguments": {"code": SINE, "backend": "runpod", "timeout": 60}})
    assert not result.get("isError"), result
    text = "".join(c["text"] for c in result["content"] if c["type"] == "text")
    assert "Generated sine wave plot" in text
    if engine == "process":
        assert "engine process" in text  # every result says so
    out = os.environ.get("SALLYPORT_TEST_RESULTS")
    data = picture(result)
    if out:
        os.makedirs(out, exist_ok=True)
        with open(os.path.join(out, f"sine_wave-{engine}.png"), "wb") as f:
            f.write(data)


def test_sine_wave_by_the_seeds_tool(served):
    client, _ = served
    result = client.ask("tools/call", {"name": "execute_python_code", "arguments": {"code": SINE}})
    assert not result.get("isError"), result
    text = "".join(c["text"] for c in result["content"] if c["type"] == "text")
    assert "Generated sine wave plot" in text
    status = client.ask("tools/call", {"name": "check_runpod_status", "arguments": {}})
    assert not status.get("isError"), status
    assert "Unknown" not in "".join(c.get("text", "") for c in status["content"])
