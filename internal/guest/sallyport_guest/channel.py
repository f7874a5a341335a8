"""The interpreter's end of the control channel: frames, and calls under way.

Exactly one thread reads at a time. As a rule it is the main thread, while it
waits for something: a reply, or the next execution. A call from another thread
starts a reader thread, which takes over until it has read the next exec frame.

An interrupt (the host's SIGINT) must not tear a frame apart. The signal handler
therefore raises nothing while code of this package runs, except at the one place
where it waits (`waiting` is true); see session.on_interrupt.
"""

from . import BUILTINS as __builtins__

from _thread import _count as thread_count, allocate_lock, get_ident, start_new_thread
from posix import _exit, getpid, readv, write

import _json

MAX_FRAME = 128 << 20
KEEP = 64 << 10


class Gone(BaseException):
    """The host is no longer there."""


class _Scanner:
    """What the C scanner wants to know; the json package takes too long to import."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod({"-Infinity": float("-inf"), "Infinity": float("inf"), "NaN": float("nan")}.__getitem__)

    def __init__(self, hook=None):
        self.object_hook = hook
        self.memo = {}


def decoder(hook=None):
    """A function from a JSON text to its value."""
    scan = _json.make_scanner(_Scanner(hook))

    def decode(text):
        try:
            value, end = scan(text, 0)
        except StopIteration as e:
            raise ValueError("not JSON at character %s" % e.value) from None
        if end != len(text) and text[end:].strip(" \t\r\n"):
            raise ValueError("more than one JSON value")
        return value

    return decode


decode = decoder()


def encode(value, default=None):
    """The JSON text of value, in ASCII, without white space."""
    if default is None:
        default = _refuse
    make = _json.make_encoder({}, default, _json.encode_basestring_ascii, None, ":", ",", False, False, False)
    return "".join(make(value, 0))


def _refuse(value):
    raise TypeError("a value of type %s cannot be sent as JSON" % type(value).__name__)


class Channel:
    def __init__(self, fd_in, fd_out, pid):
        self.fd_in = [fd_in]
        self.fd_out = fd_out
        self.pid = pid
        self.main = get_ident()
        self.waiting = False
        self.on_wait = None  # called before the main thread waits
        self.on_exec = None  # takes exec frames

        self.buffer = bytearray(KEEP)
        self.view = memoryview(self.buffer)
        self.whole = [[self.view]]
        self.start = self.end = 0
        # Bytes that arrived and are not yet counted in end. Appending here
        # happens in C, inside of extend: no signal handler runs between the
        # read and the count of what it read.
        self.arrived = []

        self.write_lock = allocate_lock()
        self.pending = {}
        self.last_id = 0

    # Reading.

    def fill(self, view, target):
        """Wait for bytes and put them at the beginning of view."""
        main = get_ident() == self.main
        if main:
            self.waiting = True
        try:
            self.arrived.extend(map(readv, self.fd_in, target or [[view]]))
        except OSError:
            raise Gone from None
        finally:
            if main:
                self.waiting = False

    def count(self):
        """Count what has arrived."""
        while self.arrived:
            n = self.arrived.pop()
            if n == 0:
                raise Gone
            self.end += n

    def buffered(self):
        """Whether at least the beginning of a frame is here already."""
        self.count()
        return self.end > self.start

    def frame(self):
        """The text of the next frame. Waits for it."""
        while True:
            self.count()
            have = self.end - self.start
            if have >= 4:
                size = int.from_bytes(self.view[self.start : self.start + 4], "big")
                if have >= 4 + size:
                    start = self.start + 4
                    text = str(self.view[start : start + size], "utf-8")
                    self.start = start + size
                    if self.start == self.end:
                        self.start = self.end = 0
                    return text
                if size > MAX_FRAME:
                    raise Gone
                if 4 + size > KEEP:
                    return self.large(size)
            if self.end == 0:
                self.fill(None, self.whole)
                continue
            if self.start:
                self.buffer[: self.end - self.start] = self.view[self.start : self.end]
                self.end -= self.start
                self.start = 0
            self.fill(self.view[self.end :], None)

    def large(self, size):
        """A frame that the buffer cannot hold: read into its own memory. It is
        being written at this moment, so an interrupt can wait."""
        body = bytearray(size)
        view = memoryview(body)
        have = self.end - self.start - 4
        view[:have] = self.view[self.start + 4 : self.end]
        self.start = self.end = 0
        while have < size:
            try:
                n = readv(self.fd_in[0], [view[have:]])
            except OSError:
                n = 0
            if n == 0:
                raise Gone
            have += n
        return str(body, "utf-8")

    # Writing.

    def send(self, text):
        """Send one frame."""
        body = text.encode("ascii")
        data = len(body).to_bytes(4, "big") + body
        with self.write_lock:
            try:
                n = write(self.fd_out, data)
                if n < len(data):
                    rest = memoryview(data)[n:]
                    while rest:
                        rest = rest[write(self.fd_out, rest) :]
            except OSError:
                raise Gone from None
