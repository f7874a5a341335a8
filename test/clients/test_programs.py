"""Code as agents write it, on another engine than the one that the program chooses: it prints
what it prints on Linux. The programs are those of internal/language/python, whose TestSnippets
describes their form and runs them on Linux.
"""

import subprocess

import engine
import pytest
from conftest import ROOT

PROGRAMS = sorted((ROOT / "internal/language/python/testdata/snippets").glob("*.py"))
pytestmark = pytest.mark.skipif(not engine.NAME, reason="TestSnippets of internal/language/python runs them on Linux")


def said_of(code, what):
    """The rest of a line `# WHAT: REST`, or nothing."""
    return next((line.partition(": ")[2] for line in code.splitlines() if line.startswith("# %s: " % what)), "")


@pytest.mark.parametrize("file", [pytest.param(p, id=p.stem) for p in PROGRAMS])
def test_program(sallyport, environment, file):
    code, _, output = file.read_text(encoding="utf-8").partition("# Output:\n")
    if (only := said_of(code, "Only")) and only != engine.NAME:
        pytest.skip("it is about " + only)
    want = "".join(line.removeprefix("#").removeprefix(" ") for line in output.splitlines(keepends=True))
    error, says = said_of(code, "Error"), said_of(code, "Says")
    done = subprocess.run([sallyport, "run", "-c", code], env=environment, capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    stderr = "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("sallyport: kept: "))
    assert (done.stdout, done.returncode) == (want, 1 if error else 0), stderr
    assert (error or says) in stderr
    assert error or says or stderr == ""


def test_there_are_programs():
    assert len(PROGRAMS) >= 40
