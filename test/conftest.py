"""What the tests of the whole program share: the executable, real MCP servers,
and a folder with something in it.

A missing piece is a failure, not a skip: `scripts/setup` installs all of it.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import engine
import pytest

# A shell in the background and nohup ignore signals, which children would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _name in ("SIGHUP", "SIGQUIT", "SIGTERM"):
    if hasattr(signal, _name):
        signal.signal(getattr(signal, _name), signal.SIG_DFL)

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Their tests have an environment or a suite of their own: `remote`, `frameworks`, `oauth` and `notebooks` of .ci/full.
# (Not asked for by the name of a folder here, which Python takes for a package.)
collect_ignore = [] if importlib.util.find_spec("kagglesdk") else ["kaggle", "runpod"]
collect_ignore += [] if "SALLYPORT_TEST_FRAMEWORKS" in os.environ else ["frameworks"]
collect_ignore += [] if "SALLYPORT_TEST_OAUTH" in os.environ else ["oauth"]
collect_ignore += [] if importlib.util.find_spec("ipykernel") else ["notebooks"]
NPM = pathlib.Path(os.environ.get("SALLYPORT_TEST_NPM", ROOT / ".cache/npm/node_modules"))


def pytest_collection_modifyitems(config, items):
    engine.expect(config, items)


def _must_exist(path, remedy):
    if not path.exists():
        pytest.fail(f"{path} is missing: {remedy}", pytrace=False)
    return path


@pytest.fixture(scope="session")
def sallyport():
    """The executable under test."""
    path = pathlib.Path(os.environ.get("SALLYPORT_BIN", ROOT / "bin/sallyport")).resolve()
    return str(_must_exist(path, "CGO_ENABLED=0 go build -o bin/sallyport ./cmd/sallyport"))


@pytest.fixture(scope="session")
def npm():
    """The node_modules folder with the official servers and clients."""
    return _must_exist(NPM, "run scripts/setup")


@pytest.fixture(scope="session")
def node22():
    """A Node.js of version 22 or newer."""
    return str(_must_exist(pathlib.Path(os.environ.get("SALLYPORT_TEST_NODE", ROOT / ".cache/node/bin/node")), "run scripts/setup"))


@pytest.fixture
def definitions(npm, tmp_path):
    """Writes a server file over a folder; answers its path."""

    def write(folder, **more):
        servers = {
            "filesystem": {
                "command": str(npm / ".bin/mcp-server-filesystem"),
                "args": ["."],
                "cwd": str(folder),
                "description": "Reads and writes files under one folder",
            },
            "everything": {"command": str(npm / ".bin/mcp-server-everything"), "args": []},
            "memory": {
                "command": str(npm / ".bin/mcp-server-memory"),
                "env": {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")},
            },
            **more,
        }
        path = tmp_path / "servers.json"
        path.write_text(json.dumps({"mcpServers": servers}))
        return str(path)

    return write


@pytest.fixture
def folder(tmp_path):
    """A folder of real texts that a test may write into."""
    target = tmp_path / "folder"
    shutil.copytree(ROOT / "examples/texts", target / "texts")
    return target


@pytest.fixture
def environment(tmp_path, monkeypatch, sallyport):
    """A home of the test's own, so that nobody's servers are found. Hubs end with it."""
    home, run = tmp_path / "home", tmp_path / "run"
    home.mkdir()
    run.mkdir(mode=0o700)
    for name in list(os.environ):
        if name.startswith(("MCP_BRIDGE_", "XDG_")) or (name.startswith("SALLYPORT_") and name != "SALLYPORT_BIN"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(run))
    environ = engine.chosen(sallyport, {k: os.environ[k] for k in ("HOME", "PATH", "XDG_RUNTIME_DIR")} | {"LANG": "C.UTF-8"})
    yield environ
    for hub in hubs_of(sallyport, environ):
        os.kill(hub["pid"], signal.SIGTERM)
        while pathlib.Path("/proc", str(hub["pid"])).exists():
            time.sleep(0.02)


def hubs_of(sallyport, environ):
    """The hubs of a test's home: others of this user may run, too."""
    done = subprocess.run([sallyport, "hub", "status", "--json"], env=environ, capture_output=True, text=True, check=True, timeout=60)
    return [h for h in json.loads(done.stdout)["hubs"] if h["settings"]["home"] == environ["HOME"]]
