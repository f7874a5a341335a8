"""The whole program on the fake Kaggle: the command line, an MCP client, and
what Kaggle's own command sees of it."""

import json
import os
import pathlib
import subprocess
import threading

import pytest

from fakekaggle import ROOT, TOKEN, Fake

SINE = """
import math, sys, time
print("one", flush=True)
total = sum(math.sin(i) ** 2 for i in range(300_000))
print("args", sys.argv[1:])
open("result.txt", "w").write("%.3f" % total)
print("two")
"""


@pytest.fixture(scope="module")
def sallyport():
    path = pathlib.Path(os.environ.get("SALLYPORT_BIN", ROOT / "bin/sallyport")).resolve()
    if not path.exists():
        pytest.fail(f"{path} is missing: CGO_ENABLED=0 go build -o bin/sallyport ./cmd/sallyport", pytrace=False)
    return path


@pytest.fixture
def world(tmp_path, sallyport):
    """A Kaggle of the test's own, and an environment that leads to it."""
    fake = Fake(tmp_path / "kaggle")
    home = tmp_path / "home"
    home.mkdir()
    fake.env = {
        "PATH": os.environ["PATH"], "HOME": str(home), "SALLYPORT_STATE_DIR": str(tmp_path / "state"), "XDG_RUNTIME_DIR": str(tmp_path / "run"), "SALLYPORT_HUB_ENABLED": "false",
        "SALLYPORT_BATCH_SERVICES": "kaggle", "SALLYPORT_KAGGLE_URL": fake.url, "SALLYPORT_CARBON_KAGGLE_LOCATION": "USA/oregon", "KAGGLE_API_TOKEN": TOKEN,
    }

    def command(*words, code=0, **more):
        done = subprocess.run([sallyport, *words], env={**fake.env, **more}, cwd=tmp_path, capture_output=True, text=True, timeout=240)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    fake.command = command
    yield fake
    fake.close()


def cut(fake):
    """The network fails at the hand-over, while the run is followed, and while
    its files are fetched."""
    fake.fault(call="SaveKernel", kind="drop-after")
    fake.fault(call="GetKernelSessionStatus", kind="drop-before", skip=1, times=2)
    fake.fault(call="storage", kind="truncate", times=2)


def test_a_run_and_the_network_is_cut_three_times(world, tmp_path):
    (tmp_path / "sine.py").write_text(SINE)
    cut(world)
    done = world.command("run", "--batch", "kaggle", "--json", "sine.py", "a b", "c'\"d")
    result = json.loads(done.stdout)
    assert result["stdout"] == ["one", "args ['a b', 'c\\'\"d']", "two"] and result["status"] == "success"
    assert result["usage"]["energy"]["joules"] > 0 and result["usage"]["emissions"]["grid"]["region"] == "oregon"
    assert "result.txt" in [a["path"] for a in result["artifacts"]]
    # One kernel, one session, one outcome; and nothing of it is left there.
    assert len(world.journal("SaveKernel")) == 1 and world.ask("sessions") == {"sessions": 1, "ghosts": 0} and not world.ask("kernels")
    assert len([r for r in json.loads(world.command("runs", "list", "--json").stdout)]) == 1
    for entry in world.journal():
        assert entry["host"] == "api" or not entry.get("authorization")
    state = b"".join(p.read_bytes() for p in (tmp_path / "state").rglob("*") if p.is_file())
    assert TOKEN.encode() not in state and TOKEN not in done.stdout + done.stderr


def test_what_kaggles_own_command_sees(world, tmp_path):
    (tmp_path / "sine.py").write_text(SINE)
    world.command("run", "--batch", "kaggle", "--keep", "sine.py")
    [kernel] = world.ask("kernels")
    assert kernel["Private"] and not kernel["Internet"] and kernel["TimeoutSeconds"] > 0
    name = "ada/" + kernel["Slug"]
    home = tmp_path / "cli"
    assert "COMPLETE" in world.cli(home, "kernels", "status", name)
    world.cli(home, "kernels", "output", name, "-p", str(tmp_path / "out"))
    manifest = json.loads((tmp_path / "out/sallyport-manifest.json").read_text())
    assert abs(float((tmp_path / "out/result.txt").read_text()) - 150_000) < 1
    assert manifest["code"]["filename"] == "sine.py" and manifest["outcome"]["exitCode"] == 0 and any(p.startswith("pytest==") for p in manifest["packages"])
    assert {f["path"] for f in manifest["files"]} == {"result.txt"}


def test_a_failing_program_and_codecarbon_beside_it(world, tmp_path):
    (tmp_path / "fails.py").write_text("import time\ntime.sleep(3)\ndef f():\n    raise ValueError('no')\nf()\n")
    done = world.command("run", "--batch", "kaggle", "--internet", "fails.py", code=1, SALLYPORT_KAGGLE_CODECARBON="true")
    assert 'File "fails.py", line 4, in f' in done.stderr and "ValueError: no" in done.stderr
    assert "codecarbon 3.3.2 alongside the code" in done.stderr and "(USA)" in done.stderr


class Client:
    """An MCP client over standard input and output."""

    def __init__(self, command, env, cwd):
        self.process = subprocess.Popen(command, env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.number = 0
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"})
        self.tell("notifications/initialized")

    def tell(self, method, **more):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **more}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, **params):
        self.number += 1
        self.tell(method, id=self.number, params=params)
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
        raise AssertionError("the program ended")

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


class Dashboard:
    """CodeCarbon's, for tests."""

    EXPERIMENT = "0d6c4b2a-1f53-4f0e-9c2b-2f1d1a7c9e10"

    def __init__(self):
        binary = ROOT / ".cache/bin/carbonpeer"
        subprocess.run(["go", "build", "-o", binary, "./test/carbon/peer"], cwd=ROOT, check=True, timeout=300, env={**os.environ, "CGO_ENABLED": "0"})
        self.process = subprocess.Popen([binary, "api"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.env = {
            "CODECARBON_API_ENDPOINT": self.process.stdout.readline().strip(), "CODECARBON_API_KEY": "cpt_peer", "CODECARBON_EXPERIMENT_ID": self.EXPERIMENT,
        }

    def close(self):
        """What was posted."""
        self.process.stdin.close()
        posted = json.loads(self.process.stdout.read())
        self.process.wait(30)
        return posted


def test_an_agent_asks_for_kaggle(world, tmp_path, sallyport):
    """Output, files, energy and emissions to the agent; the run on the user's
    dashboard, once; and the network cut three times in the middle."""
    dashboard = Dashboard()
    client = Client([sallyport, "serve"], {**world.env, **dashboard.env, "SALLYPORT_OUTPUT_USAGE": "true"}, tmp_path)
    try:
        [tool] = [t for t in client.ask("tools/list")["tools"] if t["name"] == "run_python"]
        assert "kaggle" in json.dumps(tool["inputSchema"]["properties"]["backend"])
        cut(world)
        result = client.ask("tools/call", name="run_python", arguments={"code": SINE + "time.sleep(1.5)\n6 * 7\n", "backend": "kaggle"})
        text = "\n".join(c.get("text", "") for c in result["content"])
        assert not result.get("isError") and "one" in text and "42" in text and "result.txt" in text, result
        assert "g CO2e" in text and "ran on Kaggle" in text
        [uri] = [r["uri"] for r in client.ask("resources/list")["resources"] if r["name"] == "result.txt"]
        [content] = client.ask("resources/read", uri=uri)["contents"]
        assert abs(float(content["text"]) - 150_000) < 1
        assert len(world.journal("SaveKernel")) == 1 and world.ask("sessions")["sessions"] == 1
    finally:
        client.close()
    world.command("carbon", "sync", **dashboard.env)  # whatever was not posted yet
    posted = dashboard.close()
    assert len(posted["runs"]) == 1, posted
    [emission] = posted["emissions"]
    assert emission["energy_consumed"] > 0 and emission["emissions_sum"] > 0 and emission["duration"] >= 1
    [row] = [r for r in json.loads(world.command("carbon", "report", "--json", "--by", "backend").stdout)["groups"] if r["name"] == "kaggle"]
    assert row["runs"] == 1 and row["joules"] > 0 and row["grams"] > 0
