"""Our worker on the double, with the real Python client and with ours."""

import base64
import json
import os
import signal
import time
import urllib.parse

import pytest
import runpod
from conftest import wait_for
from runpod.endpoint import Endpoint

runpod.api_key = "unset"

# Whether the tests' machine lets engine gvisor run is the machine's affair.
ENGINES = os.environ.get("SALLYPORT_TEST_WORKER_ENGINES", "gvisor,process").split(",")


@pytest.fixture
def client(fake, endpoint, monkeypatch):
    monkeypatch.setattr(runpod, "endpoint_url_base", fake.base)
    return Endpoint(endpoint, api_key=fake.key)


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


def of(fake, endpoint, *ops):
    return [e for e in fake.journal(*ops) if f"/{endpoint}/" in e["path"]]


def test_a_plain_job(client, fake, endpoint, our_worker, engine):
    """{"input": {"code": …}} is answered with the seed's three, and more."""
    our_worker(endpoint, WORKER_ENGINE=engine)
    code = "import sys, os\nprint('out')\nprint('err', file=sys.stderr)\nprint(sorted(k for k in os.environ if 'RUNPOD' in k or 'KEY' in k))\nsys.exit(3)"
    job = client.run({"input": {"code": code}})
    output = job.output(timeout=60)
    assert (output["stdout"], output["stderr"], output["return_code"]) == ("out\n[]\n", "err\n", 3)
    assert output["sallyport"]["report"]["engine"] == engine
    assert output["sallyport"]["report"]["isolation"] == {"gvisor": "kernel", "process": "platform"}[engine]
    # What weaker isolation there is, every result says.
    assert bool(output["sallyport"].get("notes")) == (engine == "process")
    assert client.run_sync({"input": {"code": "print('sync')"}}, timeout=60)["stdout"] == "sync\n"
    failed = client.run({"input": {"nothing": 1}})
    wait_for(lambda: failed.status() == "FAILED")


def test_the_worker_is_hidden_from_code(client, fake, endpoint, our_worker, engine):
    our_worker(endpoint, WORKER_ENGINE=engine)
    token = fake.worker_environment(endpoint, "go1")["RUNPOD_AI_API_KEY"]
    code = f"""
import glob, os
found = []
for name in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        if {token[:8]!r} + {token[8:]!r} in open(name, errors="replace").read():
            found.append(name)
    except OSError:
        pass
print(found)
import socket
try:
    socket.create_connection(("127.0.0.1", {int(fake.url.rsplit(':', 1)[1])}), timeout=5)
    print("reached")
except OSError as e:
    print("no network")
"""
    output = client.run({"input": {"code": code}}).output(timeout=60)
    assert output["stdout"] == "[]\nno network\n", output


def test_on_the_wire(client, fake, endpoint, our_worker, python_worker):
    """Our requests beside those of RunPod's own worker, for the same job."""
    python_worker(endpoint, "py1")
    client.run({"input": {"code": "print(1)"}}).output(timeout=40)
    fake.kill(endpoint, "py1")
    our_worker(endpoint, "go1")
    client.run({"input": {"code": "print(1)"}}).output(timeout=60)

    def shape(worker, op):
        for e in of(fake, endpoint, op):
            if f"/{worker}" in e["path"] and not (op == "job-done" and "IN_PROGRESS" in e["body"]):
                path = e["path"].split("/" + worker)[0]
                query = urllib.parse.parse_qs(e["query"])
                query.pop("job_id", None)  # of a ping, while there is a job
                return e["method"], path, query, e["authorization"]
        raise AssertionError((worker, op))

    for op in ("job-take", "job-stop", "ping", "job-done"):
        assert shape("py1", op) == shape("go1", op), op
    bodies = {w: json.loads(next(e["body"] for e in of(fake, endpoint, "job-done") if f"/{w}/" in e["path"] and "IN_PROGRESS" not in e["body"])) for w in ("py1", "go1")}
    assert bodies["py1"].keys() == bodies["go1"].keys() == {"output"}
    assert bodies["py1"]["output"] == {k: v for k, v in bodies["go1"]["output"].items() if k != "sallyport"}


def test_batches(client, fake, endpoint, our_worker):
    jobs = [client.run({"input": {"code": f"import time; time.sleep(0.5); print({i})"}}) for i in range(6)]
    our_worker(endpoint, WORKER_CONCURRENCY="3")
    assert [j.output(timeout=60)["stdout"] for j in jobs] == [f"{i}\n" for i in range(6)]
    assert of(fake, endpoint, "job-take-batch") and not of(fake, endpoint, "job-take")


def test_stream(client, endpoint, our_worker):
    """What the code writes comes while it runs, through the real client."""
    our_worker(endpoint)
    code = "import time\nfor i in range(3):\n    print('line', i, flush=True)\n    time.sleep(1)"
    job = client.run({"input": {"code": code, "sallyport": {"output": {"stream": True}}}})
    chunks = [c.get("output", c) for c in job.stream()]
    assert "started" in chunks[0] and len(chunks) >= 3
    assert "".join(c.get("stdout", "") for c in chunks) == "line 0\nline 1\nline 2\n"


def test_cancel(client, fake, endpoint, our_worker):
    our_worker(endpoint)
    job = client.run({"input": {"code": "import time; time.sleep(100)"}})
    wait_for(lambda: job.status() == "IN_PROGRESS")
    job.cancel()
    # It is stopped, and the worker takes the next.
    assert client.run({"input": {"code": "print('next')"}}).output(timeout=60)["stdout"] == "next\n"
    assert not any(job.job_id in e["path"] for e in of(fake, endpoint, "job-done"))


def test_max_execution_time(client, endpoint, our_worker):
    """The seed's limit reaches the worker, whose own handler had 5 seconds."""
    our_worker(endpoint, RUNPOD_MAX_EXECUTION_TIME="2s")
    job = client.run({"input": {"code": "print('begun', flush=True)\nwhile True: pass"}})
    wait_for(lambda: job.status() == "FAILED", 60)


def test_sigterm(client, endpoint, our_worker):
    """The job at work ends, and is answered; no other is taken."""
    process = our_worker(endpoint)
    job = client.run({"input": {"code": "import time; time.sleep(3); print('done')"}})
    wait_for(lambda: job.status() == "IN_PROGRESS")
    process.send_signal(signal.SIGTERM)
    time.sleep(1)
    waiting = client.run({"input": {"code": "1"}})
    assert process.wait(40) == 0
    assert job.output(timeout=10)["stdout"] == "done\n"
    assert waiting.status() == "IN_QUEUE"


def test_a_killed_worker(client, fake, endpoint, our_worker):
    """kill -9 leaves nothing that runs, and the job goes to the next worker."""
    process = our_worker(endpoint, "go1", WORKER_ENGINE=ENGINES[-1])
    mark = f"mark-{os.getpid()}-{time.time_ns()}"
    job = client.run({"input": {"code": f"import subprocess\nsubprocess.run(['sleep', '300', {mark!r}][:2])", "sallyport": {"env": {"MARK": mark}}}})
    wait_for(lambda: job.status() == "IN_PROGRESS")

    def marked():
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if mark.encode() in open(f"/proc/{pid}/environ", "rb").read():
                    found.append(pid)
            except OSError:
                pass
        return found

    if os.geteuid() == 0 and ENGINES[-1] == "process":
        wait_for(marked, 60)
    process.kill()
    process.wait(10)
    wait_for(lambda: not marked(), 60)
    fake.kill(endpoint, "go1")
    assert client.run({"input": {"code": "1"}}).status() == "IN_QUEUE"


def test_our_client(our_client, fake, endpoint, our_worker, tmp_path, engine):
    """Our client with our worker: files in and out, an argument, an exit code."""
    our_worker(endpoint, WORKER_ENGINE=engine)
    (tmp_path / "in.txt").write_text("given")
    (tmp_path / "x.py").write_text(
        "import os, sys\nprint(open('in.txt').read(), sys.argv[1])\nos.makedirs('deep')\nopen('deep/out.bin', 'wb').write(bytes(range(256)))\nsys.exit(4)")
    done = our_client(endpoint, "run", "--batch", "runpod", "--file", "in.txt", "--out", "left", "x.py", "argument", expect=4, timeout=120)
    assert done.stdout == "given argument\n"
    assert (tmp_path / "left/deep/out.bin").read_bytes() == bytes(range(256))


def test_demands(our_client, fake, endpoint, our_worker, tmp_path):
    """A policy that this worker does not meet: no code is sent."""
    our_worker(endpoint, WORKER_ENGINE="process")
    (tmp_path / "x.py").write_text("print('secret code')")
    done = our_client(endpoint, "run", "--batch", "runpod", "x.py", expect=None, timeout=120, POLICY_BATCH_SERVICES_MIN_ISOLATION="kernel")
    assert done.returncode != 0 and "isolation" in done.stderr + done.stdout
    assert not any("secret code" in e["body"] for e in of(fake, endpoint, "run", "runsync"))


def test_files_of_a_plain_job(client, endpoint, our_worker):
    our_worker(endpoint)
    output = client.run({"input": {"code": "open('a.bin', 'wb').write(b'abc')"}}).output(timeout=60)
    (file,) = output["sallyport"]["files"]
    assert file["path"] == "a.bin" and base64.b64decode(file["data"]) == b"abc"


def test_much_output(our_client, our_client_process, fake, endpoint, our_worker, engine, tmp_path):
    """What is over the worker's limit is left out, and is no failure."""
    our_worker(endpoint, WORKER_ENGINE=engine)
    (tmp_path / "x.py").write_text("for i in range(50):\n    print('x' * (1 << 20))\nprint('the end')")
    done = our_client(endpoint, "run", "--batch", "runpod", "--timeout", "120", "x.py", timeout=180)
    assert done.stdout.startswith("xxx") and done.stdout.endswith("x\nthe end\n") and len(done.stdout) < 3 << 20
    assert "left out" in done.stdout


def test_the_workers_own_limits(our_client, fake, endpoint, our_worker, engine, tmp_path):
    """Only what the user has set travels with a job."""
    our_worker(endpoint, WORKER_ENGINE=engine)
    (tmp_path / "x.py").write_text("held = bytearray(b'x') * (700 << 20)\nprint(len(held) >> 20)")
    done = our_client(endpoint, "run", "--batch", "runpod", "x.py", timeout=180)
    assert done.stdout == "700\n"
    limited = our_client(endpoint, "run", "--batch", "runpod", "x.py", expect=None, timeout=180, LIMITS_MEMORY="300m")
    assert limited.returncode != 0 and "700" not in limited.stdout
    limits = [j["Input"]["sallyport"].get("limits", {}) for j in fake.jobs(endpoint) if "code" in j["Input"]["sallyport"]]
    assert limits == [{}, {"memoryBytes": 300 << 20}]
