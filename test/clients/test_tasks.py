"""The Tasks extension through the executable: a task outlives its call, and one
whose hub was killed has failed."""

import contextlib
import itertools
import json
import os
import pathlib
import signal
import subprocess
import time

import engine
import pytest
from conftest import hubs_of

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


class Client:
    def __init__(self, process):
        self.process, self.numbers = process, itertools.count()

    def ask(self, method, **params):
        number = next(self.numbers)
        print(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params | {"_meta": META}}), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == number, answer
        return answer.get("result") or answer["error"]

    def begin(self, code):
        return self.ask("tools/call", name="run_python", arguments={"code": code})

    def finish(self, task):
        while task.get("status") == "working":
            task = self.ask("tasks/get", taskId=task["taskId"])
        return task


@pytest.fixture
def client(sallyport, environment, tmp_path):
    """Starts a Sallyport and connects to it."""

    @contextlib.contextmanager
    def start():
        with subprocess.Popen([sallyport, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env=engine.chosen(sallyport, environment | {"SALLYPORT_STATE_DIR": str(tmp_path / "state")})) as process:
            yield Client(process)
            process.stdin.close()

    return start


def test_a_task_outlives_its_call_and_its_client(client, sallyport, environment):
    with client() as first:
        done = first.begin("import time\ntime.sleep(3)\nprint('late')")
        assert done["resultType"] == "task" and done["status"] == "working", done
        ended = first.finish(done)
        assert ended["status"] == "completed" and ended["result"]["content"][0]["text"] == "late", ended
        lost = first.begin("import time\ntime.sleep(60)")
        assert lost["resultType"] == "task", lost
        first.process.kill()
        first.process.wait()
    with client() as second:
        again = second.ask("tasks/get", taskId=done["taskId"])
        assert again["status"] == "completed" and again["result"] == ended["result"], again
        goes_on = second.ask("tasks/get", taskId=lost["taskId"])
        assert goes_on["status"] == "working", goes_on
        (hub,) = hubs_of(sallyport, environment)
        os.kill(hub["pid"], signal.SIGKILL)
        while pathlib.Path("/proc", str(hub["pid"])).exists():
            time.sleep(0.02)
        failed = second.ask("tasks/get", taskId=lost["taskId"])
        assert failed["status"] == "failed" and "has ended" in failed["error"]["message"], failed
        assert second.ask("tasks/cancel", taskId="A" * 26)["code"] == -32602
