"""sallyport deploy runpod, over the double's REST API, to a first result."""

import json
import subprocess

import pytest
from conftest import bare_environment, wait_for


@pytest.fixture
def deploy(fake, sallyport, tmp_path):
    def run(*args, expect=0, **settings):
        env = bare_environment(tmp_path, RUNPOD_API_KEY=fake.key, SALLYPORT_DEPLOY_RUNPOD_URL=fake.url, SALLYPORT_STATE_DIR=str(tmp_path / "state"),
                               **settings)
        done = subprocess.run([sallyport, "deploy", "runpod", *args], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
        assert fake.key not in done.stdout + done.stderr
        return done

    return run


def changes(fake):
    return [(e["method"], e["path"], json.loads(e["body"] or "null")) for e in fake.journal() if e["method"] in ("POST", "PATCH", "DELETE")
            and ("/templates" in e["path"] or "/serverless" in e["path"])]


def test_from_an_account_to_a_result(deploy, our_client, our_worker, fake, tmp_path):
    args = ("--name", "show", "--image", "docker.io/me/worker:1", "--env", "SOME_TOKEN=hunter2")
    before = len(changes(fake))
    dry = deploy(*args, "--dry-run")
    assert "POST /v2/templates" in dry.stdout and "POST /v2/serverless" in dry.stdout and "hunter2" not in dry.stdout
    assert len(changes(fake)) == before

    done = deploy(*args, "--json", MAX_EXECUTION_TIME="45")
    out = json.loads(done.stdout)
    assert out["workers"]["idle"] == 1
    template, endpoint = (c[2] for c in changes(fake)[before:])
    # As in the first server's README: 1 to 3 workers, five minutes.
    assert endpoint["workers"] == {"min": 1, "max": 3, "idleTimeout": 300} and endpoint["templateId"] == out["template"]
    assert template["env"] == {"MAX_EXECUTION_TIME": "45", "SALLYPORT_DEPLOY_RUNPOD_NAME": "show", "SOME_TOKEN": "hunter2"}
    assert template["image"] == "docker.io/me/worker:1" and template["serverless"] is True

    made = len(changes(fake))
    deploy(*args, MAX_EXECUTION_TIME="45")
    assert len(changes(fake)) == made
    deploy(*args, "--max-workers", "5", "--no-wait", MAX_EXECUTION_TIME="45")
    (change,) = changes(fake)[made:]
    assert change[0] == "PATCH" and change[2] == {"workers": {"min": 1, "max": 5, "idleTimeout": 300}}

    # A worker with the template's own environment.
    our_worker(out["endpoint"], DEPLOY_RUNPOD_NAME="show", WORKER_ENGINE="auto")
    (tmp_path / "x.py").write_text("print('first result')")
    result = our_client(out["endpoint"], "run", "--batch", "runpod", "x.py", timeout=120)
    assert result.stdout == "first result\n"

    deploy("--name", "show", "--destroy")
    assert [c[0] for c in changes(fake)[-2:]] == ["DELETE", "DELETE"]
    assert "There is no endpoint show" in deploy("--name", "show", "--destroy").stdout
    wait_for(lambda: our_client(out["endpoint"], "run", "--batch", "runpod", "x.py", expect=None).returncode != 0)


def test_problems_are_told(deploy):
    refused = deploy("--name", "bad", "--image", "a/b:1", "--no-wait", "--registry", "reg1", "--data-center", "EU-RO-1", "--gpu", "ADA_24", "--disk", "30")
    assert "Endpoint bad: ep" in refused.stdout
    deploy("--name", "bad", "--destroy")
    wrong = deploy("--name", "x", "--image", "a/b:1", "--idle-timeout", "2h", expect=2)
    assert "--idle-timeout" in wrong.stderr


def test_kinds(deploy, fake):
    """The kind that was asked for last is the only one, whatever a file says."""
    args = ("--name", "kind", "--image", "a/b:1", "--no-wait")
    before = len(changes(fake))
    deploy(*args, "--cpu", "cpu3c", SALLYPORT_DEPLOY_RUNPOD_GPU="ADA_24")
    (made,) = [body for method, path, body in changes(fake)[before:] if "/serverless" in path]
    assert made["cpu"] == [{"id": "cpu3c", "vcpuCount": 2}] and "gpu" not in made
    before = len(changes(fake))
    refused = deploy(*args, "--gpu", "ADA_24", expect=1, SALLYPORT_DEPLOY_RUNPOD_CPU="cpu3c")
    assert "RunPod cannot change an endpoint to a GPU" in refused.stderr and not changes(fake)[before:]
    deploy("--name", "kind", "--destroy")
    deploy(*args, "--gpu", "ADA_24", SALLYPORT_DEPLOY_RUNPOD_CPU="cpu3c")
    deploy("--name", "kind", "--destroy")
