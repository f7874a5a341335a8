"""What is in a release, and whether its packages for npm and Python work.

    scripts/release --snapshot --targets linux/amd64 --out .cache/snapshot
    SALLYPORT_TEST_RELEASE=.cache/snapshot .cache/venv/bin/pytest test/release/packages.py

`UPDATE=1` writes contents.txt anew. pytest does not find this file by itself: it
needs a release, which .ci/run makes."""

import base64
import csv
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import zipfile

import pytest
from registries import Registries

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLOW = 180  # seconds; a limit, not an expectation


@pytest.fixture(scope="session")
def dist():
    folder = os.environ.get("SALLYPORT_TEST_RELEASE")
    if not folder:
        pytest.fail("SALLYPORT_TEST_RELEASE is not set: scripts/release --snapshot, then dist", pytrace=False)
    folder = pathlib.Path(folder).resolve()
    assert (folder / "SHA256SUMS").exists(), f"{folder} has no finished release: run scripts/release"
    return folder


@pytest.fixture(scope="session")
def version(dist):
    return json.loads((dist / "server.json").read_text())["version"]


@pytest.fixture(scope="session")
def registries(dist):
    r = Registries(dist)
    yield r
    r.close()


@pytest.fixture
def fresh(tmp_path):
    """The environment of a user who has nothing yet."""
    node = os.environ.get("SALLYPORT_TEST_NODE_DIR", str(ROOT / ".cache/node/bin"))
    home = tmp_path / "home"
    home.mkdir()
    return {"HOME": str(home), "PATH": f"{node}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "XDG_RUNTIME_DIR": str(tmp_path)}


def run(command, env, **more):
    """Runs a command; answers its output."""
    done = subprocess.run([str(c) for c in command], env=env, capture_output=True, text=True, timeout=SLOW, **more)
    assert done.returncode == 0, f"{command}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def mode(bits, folder=False):
    return ("d" if folder else "-") + stat.filemode(bits)[1:]


def of_tar(data):
    """Lists a tar file, or several in a row."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:*", ignore_zeros=True) as t:
        for m in t:
            yield f"{mode(m.mode, m.isdir())} {m.uid}:{m.gid} {m.name}"


def of_zip(data):
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        for i in z.infolist():
            yield f"{mode(i.external_attr >> 16)} {i.filename}"


def of_deb(data):
    """A deb is an archive of `ar` with two tar files."""
    assert data[:8] == b"!<arch>\n"
    at = 8
    while at < len(data):
        name, size = data[at : at + 16].decode().strip().rstrip("/"), int(data[at + 48 : at + 58])
        if ".tar" in name:
            yield from (f"{name.partition('.')[0]} {line}" for line in of_tar(data[at + 60 : at + 60 + size]))
        at += 60 + size + size % 2


def of_image(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as t:
        files = {m.name: t.extractfile(m).read() for m in t if m.isfile()}

    def blob(descriptor):
        return files["blobs/" + descriptor["digest"].replace(":", "/")]

    (index,) = json.loads(files["index.json"])["manifests"]
    yield index["annotations"]["io.containerd.image.name"]
    for described in json.loads(blob(index))["manifests"]:
        manifest = json.loads(blob(described))
        config = json.loads(blob(manifest["config"]))
        yield f"{config['os']}/{config['architecture']} {json.dumps(config['config'], sort_keys=True)}"
        for layer in manifest["layers"]:
            yield from of_tar(blob(layer))


def archive(dist):
    return next(dist.glob(f"sallyport_*_linux_{'arm64' if platform.machine() == 'aarch64' else 'amd64'}.tar.gz"))


def contents(dist, version):
    """Every file of a release, and what is inside."""
    forms = {".tgz": of_tar, ".gz": of_tar, ".apk": of_tar, ".deb": of_deb, ".whl": of_zip, ".zip": of_zip, "_oci.tar": of_image}
    lines = []
    for path in sorted(dist.iterdir()):
        lines.append(path.name)
        for ending, listed in forms.items():
            if path.name.endswith(ending):
                lines += [f"    {line}" for line in listed(path.read_bytes())]
    text = "\n".join(lines) + "\n"
    commit = json.loads((dist / f"sallyport_{version}.intoto.jsonl").read_text())["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"]["gitCommit"]
    text = text.replace(commit, "COMMIT").replace(version, "VERSION").replace(version.replace("-pre.", ".dev"), "PYVERSION")
    if platform.machine() == "aarch64":
        text = text.replace("aarch64", "x86_64").replace("linux-arm64", "linux-x64").replace("arm64", "amd64")
    # Their number changes with the commands.
    return re.sub(r"(?m)^ .*/man(?:1)?(?:/.*)?\n|^ .* man/.*\n", "", text)


def test_contents(dist, version):
    golden = ROOT / "test/release/contents.txt"
    got = contents(dist, version)
    if os.environ.get("UPDATE"):
        golden.write_text(got)
    assert got == golden.read_text(), "the release has other files than contents.txt: UPDATE=1 if that is meant"


def test_man_pages(dist):
    assert [line for line in of_deb(next(dist.glob("*.deb")).read_bytes()) if line.endswith("/usr/share/man/man1/sallyport.1.gz")]
    assert [line for line in of_tar(archive(dist).read_bytes()) if line.endswith(" man/sallyport.1")]


def test_checksums_and_provenance(dist, version):
    """SHA256SUMS lists every file but itself and its signature; the provenance
    lists what was there before it."""
    sums = dict(reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == {p.name for p in dist.iterdir()} - {"SHA256SUMS", "SHA256SUMS.minisig"}
    for name, want in sums.items():
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == want, name
    provenance = f"sallyport_{version}.intoto.jsonl"
    statement = json.loads((dist / provenance).read_text())
    subjects = {s["name"]: s["digest"]["sha256"] for s in statement["subject"]}
    assert subjects == {n: s for n, s in sums.items() if n != provenance}


def test_modules_are_listed(dist, version):
    """The list of contents has the modules of the executable, each with a licence."""
    bom = json.loads((dist / f"sallyport_{version}.cdx.json").read_text())
    assert bom["bomFormat"] == "CycloneDX" and bom["metadata"]["component"]["version"] == f"v{version}"
    names = {c["name"]: c for c in bom["components"]}
    assert {"stdlib", "gvisor.dev/gvisor", "github.com/modelcontextprotocol/go-sdk"} <= set(names)
    without = [name for name, c in names.items() if not c.get("licenses")]
    assert not without, "NOTICE does not have them: go run ./scripts/notice"


def test_wheel_record(dist):
    for path in dist.glob("*.whl"):
        with zipfile.ZipFile(path) as z:
            (record,) = [n for n in z.namelist() if n.endswith("/RECORD")]
            listed = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO(z.read(record).decode()))}
            assert set(listed) == set(z.namelist())
            for name, (digest, size) in listed.items():
                if name != record:
                    want = base64.urlsafe_b64encode(hashlib.sha256(z.read(name)).digest()).rstrip(b"=").decode()
                    assert (digest, size) == (f"sha256={want}", str(len(z.read(name)))), name


def test_archive_runs(dist, version, fresh, tmp_path):
    subprocess.run(["tar", "-xzf", archive(dist), "-C", tmp_path], check=True)
    assert f"sallyport {version} " in run([tmp_path / "sallyport", "version"], fresh)
    assert run([tmp_path / "sallyport", "run", "-c", "print(6*7)"], fresh) == "42\n"


def test_npx(registries, version, fresh, tmp_path):
    """`npx -y sallyport` of someone who has nothing but Node.js."""
    env = fresh | {"npm_config_registry": registries.npm, "npm_config_update_notifier": "false"}
    where = tmp_path / "where"
    where.mkdir()
    assert f"sallyport {version} " in run(["npx", "-y", "sallyport", "version"], env, cwd=where)
    assert run(["npx", "-y", "sallyport", "run", "-c", "print(6*7)"], env, cwd=where) == "42\n"
    assert not list(where.iterdir())


@pytest.fixture
def installed(registries, fresh, tmp_path):
    """The command as npm installs it, without the scripts of packages."""
    env = fresh | {"npm_config_registry": registries.npm}
    run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", tmp_path / "n", "sallyport"], env)
    return tmp_path / "n/node_modules/.bin/sallyport"


def test_npm_passes_status_and_signals(installed, fresh):
    done = subprocess.run([installed, "run", "-c", "import sys; sys.exit(7)"], env=fresh, capture_output=True, timeout=SLOW)
    assert done.returncode == 7, done.stderr
    # It says when it runs, is told to end, and ends as the executable does.
    code = "import time; print('ready', flush=True); time.sleep(600)"
    statuses = []
    program = next(installed.parents[1].glob("@sallyport/*/bin/sallyport"))
    for command in (program, installed):
        p = subprocess.Popen([command, "run", "--timeout", "120", "-c", code], env=fresh, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        try:
            assert p.stdout.readline() == "ready\n"
            p.send_signal(signal.SIGTERM)
            statuses.append(p.wait(timeout=SLOW))
        finally:
            p.kill()
            p.stdout.close()
    assert statuses[0] == statuses[1] != 0


def test_npm_without_a_platform(installed, fresh):
    shutil.rmtree(installed.parents[1] / "@sallyport")
    done = subprocess.run([installed, "version"], env=fresh, capture_output=True, text=True, timeout=SLOW)
    assert done.returncode == 125 and "optional dependencies" in done.stderr, done.stderr


def test_pip(registries, version, fresh, tmp_path):
    """pip installs the executable as it is, and removes all of it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    pip = [python, next((ROOT / ".cache").glob("pip-*.whl")) / "pip"]
    before = {p for p in (tmp_path / "venv").rglob("*")}
    flags = ["--quiet", "--disable-pip-version-check", "--no-cache-dir", "--pre", "--index-url", registries.pypi]
    run([*pip, "install", *flags, "sallyport"], fresh)
    assert f"sallyport {version} " in run([tmp_path / "venv/bin/sallyport", "version"], fresh)
    assert run([tmp_path / "venv/bin/sallyport", "run", "-c", "print(6*7)"], fresh) == "42\n"
    run([*pip, "uninstall", "--quiet", "--yes", "sallyport"], fresh)
    assert {p for p in (tmp_path / "venv").rglob("*")} == before


def test_uvx(registries, version, fresh):
    uv = os.environ.get("SALLYPORT_TEST_UVX")
    if not uv:
        pytest.skip("no uv: test/release/run has one")
    command = [uv, "--quiet", "--prerelease", "allow", "--default-index", registries.pypi, "--python", sys.executable, "sallyport"]
    assert f"sallyport {version} " in run([*command, "version"], fresh)
    assert run([*command, "run", "-c", "print(6*7)"], fresh) == "42\n"


def test_proofs_of_ownership(dist, version):
    """What the MCP registry compares with server.json's name."""
    name = json.loads((dist / "server.json").read_text())["name"]
    with tarfile.open(dist / f"sallyport-{version}.tgz") as t:
        about = json.load(t.extractfile("package/package.json"))
    assert about["mcpName"] == name and "scripts" not in about
    assert all(v == version for v in about["optionalDependencies"].values()) and len(about["optionalDependencies"]) == 5
    for path in dist.glob("*.whl"):
        with zipfile.ZipFile(path) as z:
            (metadata,) = [n for n in z.namelist() if n.endswith("/METADATA")]
            assert f"\nmcp-name: {name}\n" in z.read(metadata).decode()
    image = next(dist.glob("*_oci.tar")).read_bytes()
    assert any(f'"io.modelcontextprotocol.server.name": "{name}"' in line for line in of_image(image))
