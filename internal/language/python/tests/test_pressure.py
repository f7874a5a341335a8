"""The limits of the interpreter, as init sets them."""

import os
import subprocess
import sys
import types

import pytest

from sallyport_guest import pressure

GB = 1 << 30


@pytest.mark.parametrize("before, want", [(1.25, 1.5), (64, 1.25)])
def test_what_is_given_back_may_be_used_unless_it_was_only_reserved(monkeypatch, before, want):
    size, allowed = [before], []
    monkeypatch.setattr(pressure, "content", lambda path: b"%d 0" % (size[0] * GB // pressure.PAGE))
    memory = types.SimpleNamespace(
        shared=bytearray(pressure.SIZE), limit=GB, margin=0, column=0, spare=lambda free: 0, allow=lambda pid, most: allowed.append(most)
    )
    watch = pressure.Watch(memory, 1, None)
    watch.alone = False
    watch.limit(GB // 4, 0.0)
    size[0] = 1
    watch.limit(GB // 4, 0.1)
    assert [most / GB for most in allowed] == [before + 0.25, want]


def test_functions_that_reserve_much_are_not_limited():
    calls = []
    guard = types.SimpleNamespace(unlimited=lambda function: lambda: calls.append("lifted") or function())
    module = types.SimpleNamespace(convert=lambda: "picture", Error=ValueError, version="1")
    pressure.Guard.unlimit(guard, module)
    assert (module.convert(), calls, module.Error, module.version) == ("picture", ["lifted"], ValueError, "1")


@pytest.mark.parametrize("held, want", [(GB * 9 // 10, "921.6 MiB were in use"), (GB // 8, "128 MiB were in use (what is allocated counts before it is written)")])
def test_what_is_only_reserved_is_named(held, want):
    guard = types.SimpleNamespace(held=held, memory=types.SimpleNamespace(limit=GB))
    assert pressure.Guard.in_use(guard) == want


def test_init_is_ready_for_signals_before_the_interpreter_sends_them():
    code = """
import os, signal, types
from sallyport_guest import init, pressure

class Shared(bytearray):
    def __setitem__(self, at, value):
        bytearray.__setitem__(self, at, value)
        if at == pressure.ASLEEP:
            os.kill(os.getpid(), signal.SIGUSR1)

memory = types.SimpleNamespace(shared=Shared(pressure.SIZE))
out, err, nonce = os.pipe(), os.pipe(), os.pipe()
init.Drain(1, out[0], err[0], nonce[0], memory=memory)
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": os.pathsep.join(sys.path)})
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
