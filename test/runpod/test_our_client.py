"""Our client with RunPod's own Python worker, through the double."""

import json
import signal

import pytest
from conftest import wait_for


def test_a_plain_worker_is_refused(our_client, fake, endpoint, python_worker, tmp_path):
    """It does not say what it enforces: it gets a question, and no code."""
    python_worker(endpoint)
    (tmp_path / "x.py").write_text("print('secret code')")
    done = our_client(endpoint, "run", "--batch", "runpod", "x.py", expect=None)
    assert done.returncode != 0
    assert "runpod.acceptUnknownWorker" in done.stderr + done.stdout
    assert "No code provided" in done.stderr + done.stdout
    assert not any("secret code" in e["body"] for e in fake.journal())


def test_a_plain_worker_that_is_accepted(our_client, fake, endpoint, python_worker, tmp_path):
    python_worker(endpoint)
    (tmp_path / "x.py").write_text("import sys; print('hello'); print('oops', file=sys.stderr); sys.exit(3)")
    done = our_client(endpoint, "run", "--batch", "runpod", "x.py", expect=3, RUNPOD_ACCEPT_UNKNOWN_WORKER="true")
    assert done.stdout == "hello\n" and "oops\n" in done.stderr
    job = fake.jobs(endpoint)[-1]
    assert job["Input"]["code"].startswith("import sys") and job["Timeout"] == 600_000_000_000


def test_its_failures_are_ours(our_client, endpoint, python_worker, tmp_path):
    python_worker(endpoint, HANDLER_TIMEOUT="1")
    (tmp_path / "boom.py").write_text("raise")
    (tmp_path / "slow.py").write_text("import time; time.sleep(30)")
    accept = {"RUNPOD_ACCEPT_UNKNOWN_WORKER": "true"}
    failed = our_client(endpoint, "run", "--batch", "runpod", "boom.py", expect=None, **accept)
    assert failed.returncode != 0 and "ValueError: boom" in failed.stderr
    slow = our_client(endpoint, "run", "--batch", "runpod", "slow.py", expect=None, **accept)
    assert slow.returncode != 0 and "its own limit on time" in slow.stderr


def test_a_run_is_found_again(our_client, endpoint, python_worker, tmp_path):
    (tmp_path / "x.py").write_text("print('later')")
    python_worker(endpoint)
    accept = {"RUNPOD_ACCEPT_UNKNOWN_WORKER": "true"}
    our_client(endpoint, "run", "--batch", "runpod", "--detach", "x.py", **accept)
    (run,) = json.loads(our_client(endpoint, "runs", "list", "--json", **accept).stdout)["runs"]
    done = our_client(endpoint, "runs", "wait", run["id"], **accept)
    assert done.stdout == "later\n"


def test_cancel(our_client, fake, endpoint, python_worker, tmp_path):
    (tmp_path / "x.py").write_text("import time; time.sleep(100)")
    python_worker(endpoint)
    accept = {"RUNPOD_ACCEPT_UNKNOWN_WORKER": "true"}
    our_client(endpoint, "run", "--batch", "runpod", "--detach", "x.py", **accept)
    wait_for(lambda: fake.jobs(endpoint)[-1]["Status"] == "IN_PROGRESS")
    (run,) = json.loads(our_client(endpoint, "runs", "list", "--json", **accept).stdout)["runs"]
    our_client(endpoint, "runs", "cancel", run["id"], **accept)
    assert fake.jobs(endpoint)[-1]["Status"] == "CANCELLED"


def start_sleeping(our_client_process, fake, endpoint, tmp_path):
    (tmp_path / "x.py").write_text("import time; time.sleep(100)")
    process = our_client_process(endpoint, "run", "--batch", "runpod", "x.py", RUNPOD_ACCEPT_UNKNOWN_WORKER="true")
    wait_for(lambda: any(j["Status"] == "IN_PROGRESS" and "code" in j["Input"] for j in fake.jobs(endpoint)), 60)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels(our_client_process, fake, endpoint, python_worker, tmp_path, number):
    python_worker(endpoint)
    process = start_sleeping(our_client_process, fake, endpoint, tmp_path)
    process.send_signal(number)
    status = process.wait(60)
    assert status == 130 if number == signal.SIGINT else status != 0
    assert fake.jobs(endpoint)[-1]["Status"] == "CANCELLED"


def test_the_list_asks_the_service(our_client, fake, endpoint, python_worker, tmp_path):
    accept = {"RUNPOD_ACCEPT_UNKNOWN_WORKER": "true"}
    (tmp_path / "x.py").write_text("import time; time.sleep(3); print('on its own')")
    python_worker(endpoint)
    our_client(endpoint, "run", "--batch", "runpod", "--detach", "x.py", **accept)

    def listed():
        (run,) = json.loads(our_client(endpoint, "runs", "list", "--json", **accept).stdout)["runs"]
        return run

    wait_for(lambda: fake.jobs(endpoint)[-1]["Status"] == "IN_PROGRESS", 60)
    run = wait_for(lambda: listed() if listed()["state"] == "ended" else None, 60)
    assert run["result"]["stdoutBytes"] == len("on its own\n")
    # And so does fetch.
    our_client(endpoint, "run", "--batch", "runpod", "--detach", "x.py", **accept)
    second = wait_for(lambda: fake.jobs(endpoint)[-1] if len(fake.jobs(endpoint)) > 2 and fake.jobs(endpoint)[-1]["Status"] == "COMPLETED" else None, 60)
    assert second
    names = sorted(p.stem for p in (tmp_path / "state" / "runs").glob("run-*.json"))
    (new,) = [n for n in names if n != run["id"]]
    our_client(endpoint, "runs", "fetch", new, "--out", "got", **accept)
    assert (tmp_path / "got" / f"{new}.stdout").read_text() == "on its own\n"


@pytest.mark.parametrize("command", [("runs", "list"), ("run", "-c", "1")])
def test_any_next_command_cancels_what_a_crash_left(our_client, our_client_process, fake, endpoint, python_worker, tmp_path, command):
    python_worker(endpoint)
    process = start_sleeping(our_client_process, fake, endpoint, tmp_path)
    process.kill()
    process.wait(20)
    assert fake.jobs(endpoint)[-1]["Status"] == "IN_PROGRESS"
    our_client(endpoint, *command, expect=None, RUNPOD_ACCEPT_UNKNOWN_WORKER="true")
    assert fake.jobs(endpoint)[-1]["Status"] == "CANCELLED"


def test_what_a_crash_left_is_cancelled(our_client, our_client_process, fake, endpoint, python_worker, tmp_path):
    python_worker(endpoint)
    process = start_sleeping(our_client_process, fake, endpoint, tmp_path)
    process.kill()
    process.wait(20)
    assert fake.jobs(endpoint)[-1]["Status"] == "IN_PROGRESS"
    served = our_client_process(endpoint, "serve", RUNPOD_ACCEPT_UNKNOWN_WORKER="true")
    wait_for(lambda: fake.jobs(endpoint)[-1]["Status"] == "CANCELLED", 60)

    def ended():
        (run,) = json.loads(our_client(endpoint, "runs", "list", "--json").stdout)["runs"]
        return run["state"] == "ended"

    wait_for(ended, 60)
    served.stdin.close()
    assert served.wait(60) == 0
