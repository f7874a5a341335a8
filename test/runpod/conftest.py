"""RunPod's double in a process of its own, the real Python client and worker,
and ours. They run with the Python of .cache/remote (scripts/setup), which has
PyPI's runpod; with another they are not collected."""

import importlib.util
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
collect_ignore_glob = [] if importlib.util.find_spec("runpod") else ["test_*.py"]

KEY = "rpa_TESTKEY0123456789"


class Fake:
    """The double, and what a test can do with it."""

    def __init__(self, process, url):
        self.process, self.url, self.key = process, url, KEY
        self.base = url + "/v2"

    def _call(self, method, path, body=None):
        data = json.dumps(body).encode() if body is not None else (b"" if method == "POST" else None)
        request = urllib.request.Request(self.url + "/_test/" + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def endpoint(self, name):
        self._call("POST", f"endpoint/{name}")
        return name

    def journal(self, *ops):
        return [e for e in self._call("GET", "journal") if not ops or e["op"] in ops]

    def jobs(self, endpoint):
        return self._call("GET", f"jobs/{endpoint}") or []

    def fault(self, **fault):
        self._call("POST", "fault", fault)

    def kill(self, endpoint, worker):
        self._call("POST", f"kill/{endpoint}/{worker}")

    def worker_environment(self, endpoint, worker):
        env = dict(line.split("=", 1) for line in self._call("GET", f"env/{endpoint}/{worker}"))
        env["RUNPOD_PING_INTERVAL"] = "1000"
        return env


@pytest.fixture(scope="session")
def fake(tmp_path_factory):
    binary = os.environ.get("SALLYPORT_TEST_FAKE_RUNPOD")
    if not binary:
        binary = str(tmp_path_factory.mktemp("fake") / "fake")
        subprocess.run(["go", "build", "-o", binary, "./test/runpod/fake"], cwd=ROOT, check=True,
                       env={**os.environ, "CGO_ENABLED": "0"}, timeout=300)
    process = subprocess.Popen([binary, "-take", "500ms"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url = process.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:")
    yield Fake(process, url)
    process.stdin.close()
    process.wait(20)


@pytest.fixture
def endpoint(fake, request):
    """An endpoint of the test's own: tests of all files share the double."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[-50:].strip("-")
    return fake.endpoint(f"{name}-{secrets.token_hex(4)}")


def bare_environment(home, **more):
    """What a program gets of ours: no keys, and a home of its own."""
    env = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "TMPDIR", "GOCACHE")}
    env["SALLYPORT_HUB_ENABLED"] = "false"
    return {**env, "HOME": str(home), **more}


@pytest.fixture
def python_worker(fake, tmp_path):
    """Starts RunPod's own Python worker, as the first handlers used it."""
    started = []

    def start(endpoint, worker="py1", handler="handler.py", **more):
        env = bare_environment(
            tmp_path, **fake.worker_environment(endpoint, worker),
            RUNPOD_SKIP_AUTO_SYSTEM_CHECKS="true", RUNPOD_SKIP_GPU_CHECK="true", **more)
        log = open(tmp_path / f"{worker}.log", "wb")
        process = subprocess.Popen([sys.executable, str(pathlib.Path(__file__).parent / handler)], env=env, cwd=tmp_path,
                                   stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        started.append(process)
        return process

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)  # it would wait for its job, and for its polls; and it has a child that pings
    for process in started:
        process.wait(10)


@pytest.fixture(scope="session")
def sallyport():
    path = pathlib.Path(os.environ.get("SALLYPORT_BIN", ROOT / "bin/sallyport")).resolve()
    if not path.exists():
        pytest.fail(f"{path} is missing: CGO_ENABLED=0 go build -o bin/sallyport ./cmd/sallyport", pytrace=False)
    return str(path)


def client_environment(fake, endpoint, tmp_path, settings):
    return bare_environment(
        tmp_path, RUNPOD_API_KEY=fake.key, RUNPOD_ENDPOINT_ID=endpoint, SALLYPORT_RUNPOD_URL=fake.base,
        SALLYPORT_BATCH_SERVICES="runpod", SALLYPORT_STATE_DIR=str(tmp_path / "state"),
        **{"SALLYPORT_" + k: v for k, v in settings.items()})


@pytest.fixture
def our_client_process(fake, sallyport, tmp_path):
    """Starts our command line with an endpoint of the double."""
    started = []

    def start(endpoint, *args, **settings):
        process = subprocess.Popen([sallyport, *args], env=client_environment(fake, endpoint, tmp_path, settings), cwd=tmp_path,
                                   stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=open(tmp_path / "client.log", "ab"))
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait(10)


@pytest.fixture
def our_client(fake, sallyport, tmp_path):
    """Runs our command line with an endpoint of the double."""

    def run(endpoint, *args, expect=0, timeout=60, **settings):
        env = client_environment(fake, endpoint, tmp_path, settings)
        done = subprocess.run([sallyport, *args], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=timeout)
        if expect is not None:
            assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        assert fake.key not in done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def our_worker(fake, sallyport, tmp_path):
    """Starts our worker on an endpoint of the double."""
    started = []

    def start(endpoint, worker="go1", **settings):
        home = tmp_path / worker
        home.mkdir()
        env = bare_environment(home, **fake.worker_environment(endpoint, worker), SALLYPORT_STATE_DIR=str(home / "state"),
                               SALLYPORT_LOG_LEVEL="info", **{"SALLYPORT_" + k: v for k, v in settings.items()})
        log = open(tmp_path / f"{worker}.log", "wb")
        process = subprocess.Popen([sallyport, "worker", "runpod"], env=env, cwd=home, stdout=log, stderr=subprocess.STDOUT)
        started.append((process, tmp_path / f"{worker}.log"))
        return process

    yield start
    for process, _ in started:
        process.terminate()
    for process, log in started:
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail("the worker did not end: " + log.read_text()[-2000:])


def wait_for(what, seconds=120):
    """Waits until what() is true, and answers it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        value = what()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError("it did not happen")
