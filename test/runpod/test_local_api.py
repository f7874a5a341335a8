"""Our worker's own API server, with the real Python client, beside RunPod's."""

import json
import os
import re
import subprocess

import pytest
import requests
import runpod
from conftest import bare_environment, wait_for
from runpod.endpoint import Endpoint

ENGINE = os.environ.get("SALLYPORT_TEST_WORKER_ENGINES", "gvisor,process").split(",")[0]


@pytest.fixture
def served(sallyport, tmp_path):
    env = bare_environment(tmp_path, SALLYPORT_STATE_DIR=str(tmp_path / "state"), SALLYPORT_WORKER_ENGINE=ENGINE)
    process = subprocess.Popen([sallyport, "worker", "runpod", "--serve-api", "--port", "0"], env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    lines = []
    for line in process.stderr:
        lines.append(line)
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        if found:
            break
    else:
        pytest.fail("".join(lines))
    yield found.group()
    process.terminate()
    assert process.wait(30) == 0


def test_the_python_client(served, monkeypatch):
    monkeypatch.setattr(runpod, "endpoint_url_base", served + "/v2")
    client = Endpoint("local", api_key="any")
    assert client.run_sync({"input": {"code": "print('hello')"}}, timeout=60)["stdout"] == "hello\n"
    job = client.run({"input": {"code": "print('later')"}})
    assert job.output(timeout=60)["stdout"] == "later\n"
    assert client.health()["jobs"]["completed"] == 2
    slow = client.run({"input": {"code": "import time; time.sleep(100)"}})
    wait_for(lambda: slow.status() == "IN_PROGRESS")
    assert slow.cancel()["status"] == "CANCELLED"
    assert slow.status() == "CANCELLED"
    stream = client.run({"input": {"code": "print('s')", "sallyport": {"output": {"stream": True}}}})
    assert any(c.get("output", c).get("stdout") == "s\n" for c in stream.stream())


def test_as_the_sdks_own(served):
    """The answers of RunPod's server for tests (rp_serve_api)."""
    answer = requests.post(served + "/run", json={"input": {"code": "print(1)"}}, timeout=60)
    job = answer.json()
    assert answer.status_code == 200 and re.fullmatch(r"test-[0-9a-f-]{36}", job["id"]) and job["status"] == "IN_PROGRESS"
    done = requests.post(f"{served}/status/{job['id']}", timeout=60).json()
    assert done["status"] == "COMPLETED" and done["output"]["stdout"] == "1\n"
    assert requests.post(served + "/runsync", json={"input": [1]}, timeout=60).status_code == 422
    assert requests.post(served + "/status/test-none", timeout=60).json() == {"id": "test-none", "status": "FAILED", "error": "Job ID not found"}


def test_a_page_cannot_run_code(served):
    for headers in ({"Origin": "https://evil.example", "Content-Type": "application/json"}, {"Content-Type": "text/plain"}):
        assert requests.post(served + "/runsync", data='{"input": {"code": "1"}}', headers=headers, timeout=60).status_code >= 400


def test_one_job(sallyport, tmp_path):
    env = bare_environment(tmp_path, SALLYPORT_STATE_DIR=str(tmp_path / "state"), SALLYPORT_WORKER_ENGINE=ENGINE)

    def run(*args, **more):
        return subprocess.run([sallyport, "worker", "runpod", *args], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, **more)

    done = run("--test-input", '{"input": {"code": "print(6 * 7)"}}')
    assert done.returncode == 0 and json.loads(done.stdout)["output"]["stdout"] == "42\n"
    (tmp_path / "test_input.json").write_text('{"input": {"code": "print(43)"}}')
    assert json.loads(run().stdout)["output"]["stdout"] == "43\n"
    assert run("--test-input", '{"nothing": 1}').returncode == 1
    assert run("--test-input", '{"input": {}}').returncode == 1
    beyond = run("--serve-api", "--host", "0.0.0.0", "--port", "0")
    assert beyond.returncode == 1 and "--key-file" in beyond.stderr
