"""The start method of module multiprocessing."""

import socket
from multiprocessing import context

import pytest

from sallyport_guest import workers


@pytest.mark.parametrize("usual, sockets, want", [("forkserver", True, "forkserver"), ("forkserver", False, "spawn"), ("fork", False, "fork")])
def test_start_method(monkeypatch, usual, sockets, want):
    def refuse(*args):
        raise PermissionError

    # Like Python 3.14 and later, or earlier ones.
    fresh = context.DefaultContext(context._concrete_contexts[usual])
    monkeypatch.setattr(context, "_default_context", fresh)
    if not sockets:
        monkeypatch.setattr(socket, "socket", refuse)
    workers.context_imported()
    assert fresh.get_start_method() == want
