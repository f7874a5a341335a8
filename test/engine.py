"""The engine on which the tests of the whole program run: the one that the program
chooses, or the one that SALLYPORT_TEST_ENGINE names. What is expected to fail on that is in
expected.txt."""

import atexit
import fnmatch
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

NAME = os.environ.get("SALLYPORT_TEST_ENGINE", "")
LEVELS = {"": None, "wasm": "wasm", "podman": "container", "docker": "container"}
LEVEL = LEVELS[NAME]
EXPECTED = pathlib.Path(__file__).with_name("expected.txt")


def chosen(sallyport, environ):
    """The variables of a program that uses the engine, from those that it has without."""
    if not NAME:
        return environ
    if NAME == "wasm":
        _give_compiled(sallyport, environ)
    return {"SALLYPORT_ENGINE": NAME, "SALLYPORT_POLICY_MIN_ISOLATION": LEVEL} | environ


def _give_compiled(sallyport, environ):
    """Saves each test the seconds of compiling the interpreter. The key that authenticates
    compiled code is in the state directory."""
    home = pathlib.Path(environ["HOME"])
    state = environ.get("SALLYPORT_STATE_DIR") or environ.get("MCP_BRIDGE_STATE_DIR")
    state = pathlib.Path(state or pathlib.Path(environ.get("XDG_STATE_HOME", home / ".local/state"), "sallyport"))
    compiled = _compiled(sallyport)
    for source, target in (
        (compiled / ".cache/sallyport/wasm", home / ".cache/sallyport/wasm"),
        (compiled / ".local/state/sallyport/snapshots", state / "snapshots"),
    ):
        os.makedirs(target, 0o700, exist_ok=True)
        for file in source.iterdir():
            if not (target / file.name).exists():
                os.link(file, target / file.name)


@functools.cache
def _compiled(sallyport):
    """A home in which the interpreter has been compiled."""
    home = os.environ.get("SALLYPORT_TEST_COMPILED")  # keeps it
    if not home:
        home = tempfile.mkdtemp(prefix="sallyport-compiled-")
        atexit.register(shutil.rmtree, home)
    os.makedirs(home, 0o700, exist_ok=True)
    variables = {
        "HOME": home, "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": home, "SALLYPORT_HUB_ENABLED": "false",
        "SALLYPORT_ENGINE": NAME, "SALLYPORT_POLICY_MIN_ISOLATION": LEVEL,
    }  # fmt: skip
    subprocess.run([sallyport, "run", "-c", "pass"], env=variables, cwd=home, check=True, timeout=600)
    return pathlib.Path(home)


def expect(config, items):
    """Marks the tests that expected.txt names. One that passes all the same is a failure,
    and so is a line that is about no test in its file."""
    if not NAME:
        return
    whole = {item.nodeid.partition("::")[0] for item in items} if not any("::" in a for a in config.args) else set()
    for number, line in enumerate(EXPECTED.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        on, test, outcome, reason = line.split(maxsplit=3)
        if on != NAME:
            continue
        named = [item for item in items if fnmatch.fnmatchcase(_name(item), test.replace("[", "[[]"))]
        if not named and "test/" + test.partition("::")[0] in whole and not config.option.keyword:
            raise pytest.UsageError(f"{EXPECTED}:{number}: there is no test {test}")
        for item in named:
            item.add_marker(pytest.mark.skip(reason=reason) if outcome == "skip" else pytest.mark.xfail(reason=reason, strict=True))


def _name(item):
    """A test's file below this folder, and its name."""
    return item.nodeid.removeprefix("test/")
