"""What is in a release, and whether its packages for npm and Python work.

    scripts/release --snapshot --targets linux/amd64 --out .cache/snapshot
    SALLYPORT_TEST_RELEASE=.cache/snapshot .cache/venv/bin/pytest test/release/packages.py

`UPDATE=1` writes contents.txt anew. pytest does not find this file by itself: it
needs a release, which the suite release of .ci/full makes."""

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
import zlib

import pytest
from registries import Registries

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLOW = 180  # seconds; a limit, not an expectation
OWN = "arm64" if platform.machine() == "aarch64" else "amd64"
# In the names of files that are for other platforms than this.
FOREIGN = re.compile("darwin|macosx|win32|win_amd64|windows|mcpb$|" + ("x64|x86_64|amd64" if OWN == "arm64" else "arm64|aarch64"))


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


def refused(command, env, manager, instead, **more):
    """`sallyport upgrade` leaves the executable to its package manager, and names the command."""
    done = subprocess.run([str(c) for c in [*command, "upgrade"]], env=env, capture_output=True, text=True, timeout=SLOW, **more)
    assert done.returncode == 1 and f"was installed by {manager}, which must replace it: {instead}\n" in done.stderr, done.stderr


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
        if config["architecture"] != OWN:
            continue
        yield f"{config['os']}/{config['architecture']} {json.dumps(config['config'], sort_keys=True)}"
        for layer in manifest["layers"]:
            yield from of_tar(blob(layer))


def archive(dist):
    return next(dist.glob(f"sallyport_*_linux_{OWN}.tar.gz"))


def inside(path):
    """What is in a file of a release."""
    forms = {".tgz": of_tar, ".gz": of_tar, ".apk": of_tar, ".deb": of_deb, ".whl": of_zip, ".zip": of_zip, "_oci.tar": of_image}
    for ending, listed in forms.items():
        if path.name.endswith(ending):
            yield from listed(path.read_bytes())


def contents(dist, version):
    """Every file of a release that is for this platform or for all, and what is inside."""
    lines = []
    for path in sorted(dist.iterdir()):
        if not FOREIGN.search(path.name) and path.name != "SHA256SUMS.minisig":
            lines.append(path.name)
            lines += [f"    {line}" for line in inside(path)]
    text = "\n".join(lines) + "\n"
    commit = json.loads((dist / f"sallyport_{version}.intoto.jsonl").read_text())["predicate"]["buildDefinition"]["resolvedDependencies"][0]["digest"]["gitCommit"]
    text = text.replace(commit, "COMMIT").replace(version, "VERSION").replace(version.replace("-pre.", ".dev"), "PYVERSION")
    if OWN == "arm64":
        text = text.replace("aarch64", "x86_64").replace("linux-arm64", "linux-x64").replace("arm64", "amd64")
    # Their number changes with the commands.
    return re.sub(r"(?m)^ .*/man(?:1)?(?:/.*)?\n|^ .* man/.*\n", "", text)


def test_contents(dist, version):
    golden = ROOT / "test/release/contents.txt"
    got = contents(dist, version)
    if os.environ.get("UPDATE"):
        golden.write_text(got)
    assert got == golden.read_text(), "the release has other files than contents.txt: UPDATE=1 if that is meant"


@pytest.mark.parametrize("patterns, count", [(("*.tar.gz", "*.zip"), 5), (("*.tgz",), 5), (("*.whl",), 5), (("*.deb",), 2), (("*.apk",), 2)])
def test_other_platforms(dist, version, patterns, count):
    """Packages for other platforms have what those for this one have."""
    paths = [p for pattern in patterns for p in dist.glob(pattern) if p.name != f"sallyport-{version}.tgz"]
    if not any(dist.glob("*.mcpb")):
        pytest.skip("a release of one platform")
    # Neither owners, which a zip file has none of, nor Windows' ending matter.
    listed = {p.name: sorted(re.sub(r" \d+:\d+ ", " ", line).removesuffix(".exe") for line in inside(p)) for p in paths}
    assert len(listed) == count, sorted(listed)
    want = next(lines for name, lines in listed.items() if not FOREIGN.search(name))
    for name, lines in listed.items():
        assert lines == want, name


def test_addresses_in_manifests(dist, version):
    """Each address in a manifest is followed by the checksum of that file."""
    if not any(dist.glob("*.mcpb")):
        pytest.skip("a release of one platform")
    sums = dict(reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().splitlines())
    for name, count in {"sallyport.rb": 4, "flake.nix": 4, "sallyport.json": 1, "Sallyport.Sallyport.installer.yaml": 1, "server.json": 1}.items():
        address = rf"https://github\.com/sallyport/sallyport/releases/download/v{re.escape(version)}/([\w.-]+)\W.*?\b(?:sha256-([\w+/]{{43}}=)|([0-9a-fA-F]{{64}})\b)"
        found = re.findall(address, (dist / name).read_text(), re.DOTALL)
        assert len(found) == count, f"{name}: {found}"
        for file, sri, digest in found:
            assert (base64.b64decode(sri).hex() if sri else digest.lower()) == sums[file], f"{name}: {file}"


def test_apk_checksums(dist):
    """What apk compares: the package names the sum of the archive of its files, and
    that one has a sum of each file."""
    for path in dist.glob("*.apk"):
        parts, data = [], path.read_bytes()
        while data:
            z = zlib.decompressobj(wbits=31)
            parts.append((data, tarfile.open(fileobj=io.BytesIO(z.decompress(data) + bytes(1024)))))
            data = z.unused_data
        (_, control), (packed, files) = parts
        about = dict(line.split(" = ") for line in control.extractfile(".PKGINFO").read().decode().splitlines() if " = " in line)
        assert about["datahash"] == hashlib.sha256(packed).hexdigest()
        assert about["arch"] in path.name and re.fullmatch(r"\d+\.\d+\.\d+(_(alpha|beta|pre|rc)\d+)?-r\d+", about["pkgver"]), about
        for m in files:
            if m.isfile():
                assert m.pax_headers["APK-TOOLS.checksum.SHA1"] == hashlib.sha1(files.extractfile(m).read()).hexdigest(), m.name


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
    refused(["npx", "-y", "sallyport"], env, "npx", "npx -y sallyport@latest", cwd=where)


@pytest.fixture
def installed(registries, fresh, tmp_path):
    """The command as npm installs it, without the scripts of packages."""
    env = fresh | {"npm_config_registry": registries.npm}
    run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", tmp_path / "n", "sallyport"], env)
    return tmp_path / "n/node_modules/.bin/sallyport"


def test_npm_passes_status_and_signals(installed, fresh):
    done = subprocess.run([installed, "run", "-c", "import sys; sys.exit(7)"], env=fresh, capture_output=True, timeout=SLOW)
    assert done.returncode == 7, done.stderr
    refused([installed], fresh, "npm", "npm install -g sallyport@latest")
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
    refused([tmp_path / "venv/bin/sallyport"], fresh, "pip", f"{tmp_path}/venv/bin/python3 -m pip install --upgrade sallyport")
    run([*pip, "uninstall", "--quiet", "--yes", "sallyport"], fresh)
    assert {p for p in (tmp_path / "venv").rglob("*")} == before


def test_uvx(registries, version, fresh):
    uv = os.environ.get("SALLYPORT_TEST_UVX")
    if not uv:
        pytest.skip("no uv: test/release/run has one")
    flags = ["--prerelease", "allow", "--default-index", registries.pypi, "--python", sys.executable]
    command = [uv, "--quiet", *flags, "sallyport"]
    assert f"sallyport {version} " in run([*command, "version"], fresh)
    assert run([*command, "run", "-c", "print(6*7)"], fresh) == "42\n"
    refused(command, fresh, "uvx", "uvx sallyport@latest")


def test_uv_tool(registries, version, fresh):
    uv = os.environ.get("SALLYPORT_TEST_UVX")
    if not uv:
        pytest.skip("no uv: test/release/run has one")
    uv = [pathlib.Path(uv).with_name("uv"), "--quiet", "tool"]
    run([*uv, "install", "--prerelease", "allow", "--default-index", registries.pypi, "--python", sys.executable, "sallyport"], fresh)
    tool = pathlib.Path(fresh["HOME"]) / ".local/bin/sallyport"
    assert f"sallyport {version} " in run([tool, "version"], fresh)
    refused([tool], fresh, "uv", "uv tool upgrade sallyport")
    run([*uv, "uninstall", "sallyport"], fresh)
    assert not tool.exists()


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
