"""The fake Kaggle as Kaggle's own clients see it: the kagglesdk package and the
kaggle command. What they cannot use is not like Kaggle."""

import concurrent.futures
import json
import pathlib
import subprocess
import sys
import time

import pytest
import requests
from kagglesdk.kernels.types.kernels_api_service import (
    ApiCancelKernelSessionRequest,
    ApiDeleteKernelRequest,
    ApiGetAcceleratorQuotaStatisticsRequest,
    ApiGetKernelRequest,
    ApiGetKernelSessionLogsStreamRequest,
    ApiGetKernelSessionStatusRequest,
    ApiListKernelSessionOutputRequest,
    ApiListKernelsRequest,
    ApiSaveKernelRequest,
)
from kagglesdk.kernels.types.kernels_enums import KernelsListViewType, KernelWorkerStatus

from fakekaggle import KEY, REFRESH, ROOT, TOKEN

ORDER = json.loads((ROOT / "internal/batch/kaggle/testdata/order.json").read_text())


def request(kind, **fields):
    r = kind()
    for name, value in fields.items():
        setattr(r, name, value)
    return r


def save(api, slug, text, **fields):
    return api.save_kernel(request(
        ApiSaveKernelRequest, slug="ada/" + slug, new_title=slug, text=text, language="python", kernel_type="script",
        is_private=True, enable_gpu=False, enable_internet=False, session_timeout_seconds=60, **fields,
    ))


def about(kind, slug, **fields):
    return request(kind, user_name="ada", kernel_slug=slug, **fields)


def ended(api, slug):
    for _ in range(600):
        status = api.get_kernel_session_status(about(ApiGetKernelSessionStatusRequest, slug))
        if status.status not in (KernelWorkerStatus.QUEUED, KernelWorkerStatus.RUNNING):
            return status
        time.sleep(0.1)
    raise AssertionError("the session does not end")


@pytest.mark.parametrize("credentials", [{"api_token": TOKEN}, {"username": "ada", "password": KEY}], ids=["token", "key"])
def test_the_life_of_a_kernel(kaggle, credentials):
    slug = "life-with-" + ("key" if "password" in credentials else "token")
    with kaggle.sdk(**credentials) as client:
        api = client.kernels.kernels_api_client
        kaggle.ask("hold")
        code = "import os\nprint('hi')\nos.makedirs('d', exist_ok=True)\nfor i in range(25): open('d/%02d' % i, 'w').write(str(i))\n"
        saved = save(api, slug, code)
        assert (saved.ref, saved.version_number, saved.error) == ("/code/ada/" + slug, 1, "") and saved.kernel_id > 0
        queued = api.get_kernel_session_status(about(ApiGetKernelSessionStatusRequest, slug))
        assert queued.status == KernelWorkerStatus.QUEUED
        assert not api.list_kernel_session_output(about(ApiListKernelSessionOutputRequest, slug)).log
        kaggle.ask("release")
        assert ended(api, slug).status == KernelWorkerStatus.COMPLETE

        names, token = [], ""
        for page in range(2):
            out = api.list_kernel_session_output(about(ApiListKernelSessionOutputRequest, slug, page_size=20, page_token=token))
            names += [f.file_name for f in out.files]
            token = out.next_page_token
        assert names == ["d/%02d" % i for i in range(25)] and not token
        assert requests.get(out.files[-1].url, timeout=30).text == "24"
        assert requests.get(out.files[-1].url, timeout=30, headers={"Authorization": "Bearer x"}).status_code == 400
        assert [e["data"] for e in json.loads(out.log)] == ["hi\n"]

        blob = api.get_kernel_session_logs_stream(about(ApiGetKernelSessionLogsStreamRequest, slug))
        assert [e["data"] for e in blob.json()] == ["hi\n"]
        assert api.get_kernel(about(ApiGetKernelRequest, slug)).blob.source == code
        mine = api.list_kernels(request(ApiListKernelsRequest, group=KernelsListViewType.PROFILE, search=slug, page_size=10))
        assert [k.ref for k in mine.kernels] == ["ada/" + slug] and mine.kernels[0].is_private and mine.kernels[0].last_run_time
        assert not api.delete_kernel(about(ApiDeleteKernelRequest, slug)).error_message
        with pytest.raises(requests.HTTPError, match="kernels.get"):
            api.get_kernel_session_status(about(ApiGetKernelSessionStatusRequest, slug))


def test_what_it_refuses(kaggle):
    with kaggle.sdk(api_token=TOKEN) as client:
        api = client.kernels.kernels_api_client
        kaggle.ask("hold")
        assert [save(api, "gpu-number-%d" % i, "1", machine_shape="NvidiaTeslaT4").error for i in range(3)] == ["", "", "Maximum batch GPU session count of 2 reached."]
        api.delete_kernel(about(ApiDeleteKernelRequest, "gpu-number-0"))
        # Its session goes on, and holds its place.
        assert save(api, "gpu-number-3", "1", machine_shape="NvidiaTeslaT4").error and kaggle.ask("sessions")["ghosts"] == 1
        kaggle.ask("release")
        assert save(api, "with-data", "1", dataset_data_sources=["x/missing", "x/there"]).invalid_dataset_sources == ["x/missing"]
        with pytest.raises(requests.HTTPError, match="internal"):
            save(api, "s" * 51, "1")
        with pytest.raises(requests.HTTPError, match="kernelSessions.cancel"):
            api.cancel_kernel_session(request(ApiCancelKernelSessionRequest, kernel_session_id=1))
        quota = api.get_accelerator_quota_statistics(ApiGetAcceleratorQuotaStatisticsRequest())
        assert quota.gpu_quota.total_time_allowed.total_seconds() == 108000 and quota.tpu_quota.total_time_allowed.total_seconds() == 72000
        for legacy in (False, True):
            kaggle.fault(call="GetAcceleratorQuotaStatistics", kind="status", status=429, retryAfter="1", legacy=legacy)
            with pytest.raises(requests.HTTPError):
                api.get_accelerator_quota_statistics(ApiGetAcceleratorQuotaStatisticsRequest())
    with kaggle.sdk(api_token="KGAT_wrong") as client, pytest.raises(requests.HTTPError, match="Unauthenticated"):
        client.kernels.kernels_api_client.get_accelerator_quota_statistics(ApiGetAcceleratorQuotaStatisticsRequest())


def test_oauth(kaggle, tmp_path):
    from kagglesdk.kaggle_creds import KaggleCredentials

    path = tmp_path / "credentials.json"
    path.write_text(json.dumps({"refresh_token": REFRESH, "username": "ada"}))
    with kaggle.sdk() as client:
        creds = KaggleCredentials.load(client, str(path))
        answer = creds.generate_access_token()
        assert answer.expires_in == 43200 and answer.user_name == "ada"
    with kaggle.sdk(api_token=answer.token) as client:
        assert client.kernels.kernels_api_client.get_accelerator_quota_statistics(ApiGetAcceleratorQuotaStatisticsRequest()).gpu_quota


def test_the_command(kaggle, tmp_path):
    folder = tmp_path / "kernel"
    folder.mkdir()
    (folder / "code.py").write_text("import time\nfor i in range(3):\n    print('line', i, flush=True)\nopen('left.txt', 'w').write('left')\n")
    (folder / "kernel-metadata.json").write_text(json.dumps({
        "id": "ada/from-the-command", "title": "from the command", "code_file": "code.py", "language": "python", "kernel_type": "script",
        "is_private": True, "enable_gpu": False, "enable_internet": False,
    }))
    kaggle.ask("hold")
    assert "version 1 successfully pushed" in kaggle.cli(tmp_path, "kernels", "push", "-p", str(folder), "-t", "60")
    assert "QUEUED" in kaggle.cli(tmp_path, "kernels", "status", "ada/from-the-command")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        follow = pool.submit(kaggle.cli, tmp_path, "kernels", "logs", "--follow", "ada/from-the-command")
        while not kaggle.journal("logs"):
            time.sleep(0.05)
        kaggle.ask("release")
        assert follow.result().split() == "line 0 line 1 line 2".split()
    with kaggle.sdk(api_token=TOKEN) as client:
        ended(client.kernels.kernels_api_client, "from-the-command")
    assert "COMPLETE" in kaggle.cli(tmp_path, "kernels", "status", "ada/from-the-command")
    kaggle.cli(tmp_path, "kernels", "output", "ada/from-the-command", "-p", str(tmp_path / "out"))
    assert (tmp_path / "out/left.txt").read_text() == "left"
    assert [e["data"] for e in json.loads((tmp_path / "out/from-the-command.log").read_text())] == ["line 0\n", "line 1\n", "line 2\n"]
    assert "30.00h" in kaggle.cli(tmp_path, "quota")
    assert "ada/from-the-command" in kaggle.cli(tmp_path, "kernels", "list", "--user", "ada")
    assert "deleted successfully" in kaggle.cli(tmp_path, "kernels", "delete", "-y", "ada/from-the-command")


def test_the_order_of_credentials(tmp_path):
    """The kaggle command finds the credentials of each case in the same place
    as the engine does (TestOrder)."""
    cases = []
    for number, case in enumerate(ORDER):
        home = tmp_path / str(number)
        for name, text in case["files"].items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o600)
        env = {k: v.replace("$HOME", str(home)) for k, v in case["env"].items()}
        cases.append({"HOME": str(home), "PATH": "/usr/bin:/bin", **env})
    program = pathlib.Path(__file__).with_name("whose.py")
    done = subprocess.run([sys.executable, program], input=json.dumps(cases), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {c["name"]: f for c, f in zip(ORDER, found)} == {c["name"]: c["want"] for c in ORDER}
