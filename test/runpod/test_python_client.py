"""The real Python client against the double."""

import asyncio
import threading

import pytest
import requests
import runpod
from conftest import wait_for
from runpod.endpoint import Endpoint

runpod.api_key = "unset"


@pytest.fixture
def client(fake, endpoint, monkeypatch):
    monkeypatch.setattr(runpod, "endpoint_url_base", fake.base)
    return Endpoint(endpoint, api_key=fake.key)


def test_run_and_output(client, fake, endpoint, python_worker):
    python_worker(endpoint)
    job = client.run({"input": {"code": "print(1+1)"}, "policy": {"executionTimeout": 30000, "ttl": 60000}})
    assert job.output(timeout=40) == {"stdout": "2\n", "stderr": "", "return_code": 0}
    assert job.status() == "COMPLETED"
    (known,) = fake.jobs(endpoint)
    assert known["Timeout"] == 30_000_000_000 and known["TTL"] == 60_000_000_000 and known["Deliveries"] == ["py1"]
    # What the SDK sends is what the double is built for.
    (run,) = [e for e in fake.journal("run") if endpoint in e["path"]]
    assert run["authorization"] == "Bearer " + fake.key and run["method"] == "POST"


def test_run_sync(client, endpoint, python_worker):
    python_worker(endpoint)
    assert client.run_sync({"input": {"code": "print('x'*3)"}}, timeout=40)["stdout"] == "xxx\n"


def test_failures(client, endpoint, python_worker):
    python_worker(endpoint)
    job = client.run({"input": {"code": "raise"}})
    assert job.output(timeout=40) is None
    assert job.status() == "FAILED"
    soft = client.run({"input": {"nothing": 1}})
    wait_for(lambda: soft.status() == "FAILED")


def test_stream(client, endpoint, python_worker):
    python_worker(endpoint, HANDLER="stream")
    job = client.run({"input": {"a": 1}})
    chunks = list(job.stream())
    assert chunks == [{"output": {"stdout": f"chunk {i}\n"}} for i in range(3)] or [c.get("output", c) for c in chunks] == [{"stdout": f"chunk {i}\n"} for i in range(3)]
    assert job.output(timeout=20) == [{"stdout": f"chunk {i}\n"} for i in range(3)]


def test_cancel_health_purge(client):
    first, second = client.run({"input": {"a": 1}}), client.run({"input": {"a": 2}})
    health = client.health()
    assert health["jobs"]["inQueue"] == 2 and health["workers"]["idle"] == 0
    assert first.cancel()["status"] == "CANCELLED"
    assert first.status() == "CANCELLED"
    assert client.purge_queue()["removed"] == 1
    assert second.status() == "CANCELLED"


def test_errors(client, fake, endpoint, monkeypatch):
    with pytest.raises(RuntimeError, match="401"):
        Endpoint(endpoint, api_key="wrong").health()
    with pytest.raises(requests.HTTPError, match="404"):
        Endpoint("nowhere", api_key=fake.key).health()
    job = client.run({"input": {"a": 1}})
    fake.fault(op="status", status=429, times=1)
    # The SDK asks again over plain http, as the double's address is.
    assert job.status() == "IN_QUEUE"


def test_async_client(fake, endpoint, python_worker, monkeypatch):
    monkeypatch.setattr(runpod, "endpoint_url_base", fake.base)
    monkeypatch.setattr(runpod, "api_key", fake.key)
    python_worker(endpoint)

    async def go():
        import aiohttp
        from runpod import AsyncioEndpoint

        async with aiohttp.ClientSession() as session:
            job = await AsyncioEndpoint(endpoint, session).run({"code": "print('async')"})
            return await job.output(timeout=40)

    assert asyncio.run(go())["stdout"] == "async\n"


def test_a_killed_worker(client, fake, endpoint, python_worker):
    """A job whose worker is gone goes to the next."""
    python_worker(endpoint, "py1")
    job = client.run({"input": {"code": "import time; time.sleep(3); print('done')"}})
    wait_for(lambda: job.status() == "IN_PROGRESS")
    fake.kill(endpoint, "py1")
    python_worker(endpoint, "py2")
    assert job.output(timeout=40)["stdout"] == "done\n"
    assert fake.jobs(endpoint)[0]["Deliveries"] == ["py1", "py2"]


def test_batches(client, fake, endpoint, python_worker):
    jobs = [client.run({"input": {"code": f"print({i})"}}) for i in range(4)]
    python_worker(endpoint, HANDLER_CONCURRENCY="4")
    assert [j.output(timeout=40)["stdout"] for j in jobs] == [f"{i}\n" for i in range(4)]
    assert any(endpoint in e["path"] for e in fake.journal("job-take-batch"))
    pings = [e for e in fake.journal("ping") if endpoint in e["path"]]
    assert pings and "runpod_version=1.12.0" in pings[0]["query"]
    assert threading.active_count() < 50
