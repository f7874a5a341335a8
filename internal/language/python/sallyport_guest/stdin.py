"""Standard input of an execution that has one.

The host is asked for a piece when code reads, not before: input that no code reads
is left for whoever reads it after Sallyport. sys.stdin asks directly. Everything
else, such as a child process, gets a pipe at descriptor 0, which is filled once it
may be needed.
"""

from . import BUILTINS as __builtins__

import builtins
import posix
import sys
from _io import BufferedReader, TextIOWrapper, UnsupportedOperation, _RawIOBase
from _thread import allocate_lock, start_new_thread
from posix import close, readv, set_blocking, write

from . import codec, package
from .descriptors import SINGLE, dup2, replace
from .slot import Slot

MOST = 64 << 10  # per piece
NAMES = (0, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
STARTS = ("os.fork", "os.forkpty", "os.system", "os.posix_spawn", "os.exec")

current = None  # the input of the execution under way
hooked = False


def decode(text):
    from binascii import a2b_base64

    frame = codec.decode(text)
    if frame["ok"]:
        data = frame["result"]
        frame["result"] = b"" if data is None else a2b_base64(data["data"])
    return frame


def audit(event, args):
    if current is not None and (event in STARTS or event == "open" and args[0] in NAMES):
        current.feed()


class Input(_RawIOBase):
    """The bytes of sys.stdin."""

    name = "<stdin>"
    mode = "rb"

    def __init__(self, session):
        self.channel = session.channel
        self.streams = session.streams
        self.lock = allocate_lock()
        self.over = False
        self.fed = False
        self.ended = False
        self.asking = 0
        self.slot = None
        self.end_fd = -1

    def begin(self):
        global current, hooked
        if not hooked:
            sys.addaudithook(audit)
            hooked = True
        current = self
        self.stream = TextIOWrapper(BufferedReader(self, MOST), encoding="utf-8", errors="surrogateescape")
        self.stream.mode = "r"
        sys.stdin = sys.__stdin__ = self.stream
        original, self.input = package.python_input, builtins.input
        reading, self.read_fd = posix.read, posix.read

        def input(prompt="", /):
            # The descriptor is used only to see whether it is a terminal.
            self.asking += 1
            try:
                return original(prompt)
            finally:
                self.asking -= 1
                self.streams.output.last = b""  # the answer has ended the line

        def read(fd, length, /):
            if fd == 0:
                if SINGLE:
                    return self.read(length)
                self.feed()
            return reading(fd, length)

        builtins.input = self.asks = input
        self.reads = read
        replace(read)

    def finish(self):
        """The code has ended: nothing more is read."""
        global current
        current, self.over = None, True
        if builtins.input is self.asks:
            builtins.input = self.input
        for module in (posix, sys.modules.get("os")):
            if getattr(module, "read", None) is self.reads:
                module.read = self.read_fd
        with self.lock:
            slot, self.slot = self.slot, None
        if slot is not None and self.channel.pending.pop(slot.id, None) is not None:
            slot.deliver(True, b"")

    # The file.

    def readable(self):
        return True

    def isatty(self):
        return False

    def fileno(self):
        if not self.asking:
            self.feed()
        return 0

    def readinto(self, buffer):
        if self.fed:
            return readv(0, [buffer])
        if self.over or self.ended:
            return 0
        view = memoryview(buffer).cast("B")
        if not len(view):
            return 0
        from .errors import MCPError

        try:
            data = self.channel.request_sync("stdin", '{"most":%d}' % min(MOST, len(view)), decode)
        except MCPError as e:
            raise OSError(str(e)) from None
        self.ended = not data
        view[: len(data)] = data
        return len(data)

    def readall(self):
        parts = []
        while True:
            part = self.read(MOST)
            if not part:
                return b"".join(parts)
            parts.append(part)

    # The pipe.

    def feed(self):
        """Make descriptor 0 a pipe, and start filling it."""
        if SINGLE:
            raise UnsupportedOperation("standard input is sys.stdin here: it has no descriptor")
        from posix import pipe

        with self.lock:
            if self.fed or self.over or self.channel.closed:
                return
            reader, self.end_fd = pipe()
            dup2(reader, 0)
            close(reader)
            set_blocking(self.end_fd, False)
            self.fed = True
            if not self.ended:
                self.streams.feeders += 1
                try:
                    start_new_thread(self.pump, ())
                    return
                except RuntimeError:  # there are too many threads
                    self.streams.feeders -= 1
            close(self.end_fd)
            self.end_fd = -1

    def pump(self):
        try:
            while not self.over:
                data = self.ask()
                if not data:
                    break
                self.pour(data)
        except Exception:  # nothing reads the pipe, or the execution is over
            pass
        finally:
            fd, self.end_fd = self.end_fd, -1
            close(fd)
            self.streams.feeders -= 1

    def ask(self):
        slot = Slot(decode)
        slot.lock = allocate_lock()
        slot.lock.acquire()
        self.channel.read_elsewhere()
        with self.lock:
            if self.over:
                return b""
            self.channel.begin(slot, "stdin", '{"most":%d,"ahead":true}' % MOST)
            self.slot = slot
        slot.lock.acquire()
        self.slot = None
        return slot.result()

    def pour(self, data):
        from select import POLLOUT, poll

        rest, room = memoryview(data), poll()
        room.register(self.end_fd, POLLOUT)
        while rest and not self.over:
            try:
                rest = rest[write(self.end_fd, rest) :]
            except BlockingIOError:
                room.poll(100)

    def forget(self):
        """In a forked child, which inherits the pipe's other end."""
        fd, self.end_fd = self.end_fd, -1
        if fd >= 0:
            try:
                close(fd)
            except OSError:
                pass
