"""The hints about what an interpreter without an operating system lacks."""

import errno
import sqlite3
import sys
import types

import pytest

from sallyport_guest import alone, manual


class Channel:
    def __init__(self, facts):
        self.facts = facts

    def request_sync(self, method, params):
        assert method == "package_facts"
        return self.facts


def session(facts=None):
    return types.SimpleNamespace(channel=Channel(facts or {}))


def missing(module, name):
    return AttributeError("module %r has no attribute %r" % (module, name), name=name) if sys.version_info >= (3, 10) else None


def within(file, error):
    """The error as a file of the standard library raises it."""
    if error is None:
        return None
    try:
        exec(compile("raise error", "/usr/lib/python3.13/" + file, "exec"), {"error": error})
    except type(error) as e:
        return e


@pytest.mark.parametrize(
    ("error", "facts", "want"),
    [
        (ModuleNotFoundError("m", name="numpy"), {}, "numpy is compiled for an operating system"),
        (ModuleNotFoundError("m", name="numpy.linalg"), {}, "Without it: math, statistics and array"),
        (ModuleNotFoundError("m", name="numpy"), {"elsewhere": "Image x has it"}, "WebAssembly. Image x has it."),
        (ModuleNotFoundError("m", name="numpy"), {"elsewhere": 3}, alone.ELSEWHERE),
        (ModuleNotFoundError("m", name="_ssl"), {}, "module ssl does not exist here"),
        (ModuleNotFoundError("m", name="fcntl"), {}, "no file locks"),
        (ModuleNotFoundError("m", name="yaml"), {}, None),
        (ModuleNotFoundError("m"), {}, None),
        (NotImplementedError("This Python build lacks multiprocessing.synchronize"), {}, alone.WORKERS),
        (NotImplementedError("x"), {}, None),
        (OSError(errno.ENOTSUP, "multiprocessing.Value: this sandbox has no processes"), {}, alone.WORKERS),
        (within("multiprocessing/heap.py", ModuleNotFoundError("m", name="mmap")), {}, alone.WORKERS),
        (within("multiprocessing/synchronize.py", ModuleNotFoundError("m", name="_multiprocessing")), {}, alone.WORKERS),
        (within("multiprocessing/pool.py", ModuleNotFoundError("m", name="numpy")), {}, "numpy is compiled"),
        (within("multiprocessing/managers.py", missing("os", "pipe")), {}, alone.WORKERS),
        (within("multiprocessing/connection.py", OSError(errno.ENOTSUP, "Not supported")), {}, alone.WORKERS),
        (within("socket.py", OSError(errno.ENOTSUP, "Not supported")), {}, alone.TOOL_INSTEAD),
        (ModuleNotFoundError("m", name="mmap"), {}, "no mapping of files"),
        (ImportError("cannot import name 'SharedMemoryManager' from 'multiprocessing.managers'"), {}, alone.WORKERS),
        (missing("os", "pipe"), {}, alone.PROCESSES),
        (OSError(errno.ENOTSUP, "wasi does not support processes."), {}, "there are no processes here"),
        (OSError(errno.ENOTSUP, "something else"), {}, None),
        (ValueError("x"), {}, None),
        (sqlite3.OperationalError("database is locked"), {}, "another connection of this session uses the file"),
        (sqlite3.OperationalError("no such table: x"), {}, None),
        (missing("os", "fork"), {}, "there are no processes here"),
        (missing("os", "spawnlp"), {}, "there are no processes here"),
        (missing("os", "sched_getaffinity"), {}, "one processor"),
        (missing("os", "nothing"), {}, None),
        (missing("signal", "alarm"), {}, "time.monotonic()"),
        (missing("time", "tzset"), {}, "zoneinfo"),
        (missing("mine", "fork"), {}, None),
        (NameError("name 'execv' is not defined", name="execv") if sys.version_info >= (3, 10) else None, {}, "there are no processes here"),
        (OverflowError("cannot fit 'int' into an index-sized integer"), {}, "32 bits"),
        (OverflowError("Python int too large to convert to C ssize_t"), {}, "random.randrange"),
        (OverflowError("math range error"), {}, None),
    ],
)
def test_lacking(monkeypatch, error, facts, want):
    monkeypatch.setattr(sys, "platform", "wasi")
    if error is None:
        pytest.skip("before 3.10 the name is not known")
    got = alone.lacking(session(facts), error)
    assert got is None if want is None else want in got, (got, want)


def test_elsewhere_nothing_is_lacking(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    assert alone.lacking(session(), ModuleNotFoundError("m", name="numpy")) is None


@pytest.mark.parametrize(("platform", "want"), [("wasi", [alone.MANUAL]), ("linux", [])])
def test_manual(monkeypatch, platform, want):
    monkeypatch.setattr(sys, "platform", platform)
    assert manual.lacking() == want
