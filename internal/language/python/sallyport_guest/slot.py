"""What waits for a reply of the host."""

from . import BUILTINS as __builtins__

from _thread import get_ident

from . import codec


class Slot:
    """A reply that code waits for."""

    __slots__ = ("id", "done", "ok", "value", "decode", "lock", "future", "loop", "thread")

    def __init__(self, decode=codec.decode):
        self.id = None
        self.done = False
        self.ok = self.value = None
        self.decode = decode
        self.lock = None  # held until the reply is here, if another thread reads
        self.future = None  # or a future of an event loop
        self.loop = None
        self.thread = None

    def deliver(self, ok, value):
        self.ok, self.value = ok, value
        if self.future is None:
            self.done = True
            lock = self.lock
            if lock is not None:
                lock.release()
        elif self.thread == get_ident():
            self.resolve()
        else:
            try:
                self.loop.call_soon_threadsafe(self.resolve)
            except RuntimeError:  # the loop is closed
                pass

    def resolve(self):
        self.done = True
        if not self.future.done():
            self.future.set_result(None)

    def result(self):
        if self.ok:
            return self.value
        from .errors import from_host

        raise from_host(self.value)

    def __await__(self):
        """For code that runs without an event loop: execute.drive does the waiting."""
        if self.future is not None:
            yield from self.future.__await__()
        else:
            yield self
