"""The standard streams of user code, and their repair between executions."""

from . import BUILTINS as __builtins__

import sys
from _io import TextIOWrapper, _BufferedIOBase
from _thread import _count as thread_count, allocate_lock, start_new_thread
from posix import O_CLOEXEC, O_RDWR, close, open as open_fd, write

from .codec import quote
from .descriptors import ERR, NONCE, NULL, OUT, SINGLE, dup2

PATIENT = 200  # lines that are written one by one
FULL = 32 << 10
DELAY = 0.01
HELD = 8 << 10  # characters that are held back at most

# What an execution prints last goes with the frame that reports its end: a second
# process then has nothing to forward, and the host nothing to wait for.
held = []  # bytes of standard output
holding = False  # what is written now is such output
written = False  # to a descriptor, since the host last knew that all had arrived
direct = False  # code has used the descriptors without these streams, or may do so

# What code says that opens one of them by its number or name.
DIRECTLY = ("fdopen", "FileIO", "open(0", "open(1", "open(2", "file=0", "file=1", "file=2", "/dev/", "/proc/")
C_STREAMS = ("_ctypes", "_curses", "faulthandler", "readline")


class Output(_BufferedIOBase):
    """The bytes of sys.stdout or sys.stderr, over descriptor 1 or 2.

    Flushed output is written at once: what a child process writes next comes after
    it, and a person who watches sees it. A program that flushes line after line
    without end would pay a system call for each, so after some number of lines its
    output is gathered for a few milliseconds. The io module's own buffer is not
    used, because it takes a lock for each write, and a lock reads the clock, which
    is another system call in some sandboxes.
    """

    mode = "wb"

    def __init__(self, fd, name):
        self.fd = fd
        self.name = name
        self.writes = 0
        self.gathering = False
        self.chunks = []
        self.size = 0
        self.lock = None
        self.helpers = 0  # our running threads
        self.wanted = None  # released when there is something to write later
        self.last = b""  # byte that the execution wrote

    def writable(self):
        return True

    def fileno(self):
        global direct
        direct = True
        return self.fd

    def isatty(self):
        return False

    def close(self):
        """Close nothing: a wrapper that user code put around this closes it when it is
        discarded, and print would stop working."""
        self.flush()

    @property
    def raw(self):
        from io import FileIO

        return FileIO(self.fileno(), "w", closefd=False)

    def write(self, data):
        if type(data) is not bytes:
            data = memoryview(data).tobytes()
        self.last = data[-1:] or self.last
        if holding and self.fd == 1 and not self.gathering:
            held.append(data)
            return len(data)
        if not self.gathering:
            self.writes += 1
            if self.writes < PATIENT or not self.gather():
                put(self.fd, data)
                return len(data)
        with self.lock:
            first = not self.chunks
            self.chunks.append(data)
            self.size += len(data)
            if self.size >= FULL:
                self.drain_locked()
            elif first and self.wanted.locked():
                self.wanted.release()
        return len(data)

    def gather(self):
        """Start writing later. Return whether that is possible."""
        if SINGLE:  # there are no threads
            self.writes = 0
            return False
        self.lock = allocate_lock()
        self.wanted = allocate_lock()
        self.wanted.acquire()
        try:
            start_new_thread(self.write_later, (self.wanted,))
        except RuntimeError:  # there are too many threads
            self.writes = 0
            return False
        self.gathering = True
        return True

    def write_later(self, wanted):
        from time import sleep

        self.helpers += 1
        try:
            while self.wanted is wanted:
                wanted.acquire()
                sleep(DELAY)
                self.drain()
        except OSError:  # the descriptor is closed
            pass
        finally:
            self.helpers -= 1

    def drain(self):
        """Write what was gathered."""
        if self.lock is not None:
            with self.lock:
                self.drain_locked()

    def drain_locked(self):
        chunks, self.chunks, self.size = self.chunks, [], 0
        if chunks:
            put(self.fd, b"".join(chunks))

    def finish(self):
        """The execution has ended: leave nothing for later."""
        self.writes = 0
        if self.gathering or self.chunks:
            with self.lock:
                try:
                    self.drain_locked()
                finally:
                    self.gathering = False
                    wanted, self.wanted = self.wanted, None
                    if wanted is not None and wanted.locked():
                        wanted.release()

    def forget(self):
        """In a forked child: the parent writes what was gathered, and the helper thread
        does not exist here."""
        global direct
        direct = True
        del held[:]
        self.chunks, self.size, self.gathering, self.lock, self.wanted = [], 0, False, None, None
        self.helpers = 0


def midline(stream):
    """Whether what the execution wrote to a stream of ours ends within a line. What
    other processes wrote is not known."""
    output = getattr(stream, "buffer", None)
    if type(output) is not Output:
        return False
    stream.flush()
    return output.last not in (b"", b"\n")


def ours(stream):
    """Whether nothing runs when a stream is written to but what is here."""
    try:
        return type(stream) is TextIOWrapper and type(stream.buffer) is Output
    except BaseException:  # detached
        return False


def hold(stream, text):
    """Write text to a stream, as the last thing that the execution does."""
    global holding
    holding = ours(stream) and len(text) <= HELD and not (direct or thread_count())
    try:
        stream.write(text)
    finally:
        holding = False


def says_direct(source):
    """Note that source may open the descriptors themselves."""
    global direct
    if not direct:
        for word in DIRECTLY:
            if word in source:
                direct = True


def uses(*arguments, **named):
    """Note a call of a function of posix that may be about a standard descriptor."""
    global direct
    direct = direct or any(type(a) is int and a <= 2 for a in (*arguments[:2], *named.values()))


def release():
    """Write what was held back. A signal handler may do so meanwhile."""
    global written
    while held:
        written = True
        try:
            data = held.pop(0)
        except IndexError:
            break
        send(OUT, data)


def put(fd, data):
    """Write data after everything that was written before."""
    global written
    written = True
    if held:
        release()
    send(fd, data)


def send(fd, data):
    n = write(fd, data)
    if n < len(data):
        rest = memoryview(data)[n:]
        while rest:
            rest = rest[write(fd, rest) :]


if SINGLE:
    from . import frames

    def send(fd, data):
        kind, data = b"o" if fd == OUT else b"e", memoryview(data)
        for start in range(0, len(data), frames.MAX):
            frames.send(frames.frame(kind, data[start : start + frames.MAX].tobytes()))


def with_a_descriptor(f):
    """Call f, which needs one free descriptor: if user code has taken all of them,
    closing the private copy of the null device makes room."""
    try:
        return f()
    except OSError:
        if SINGLE:
            raise
    close(NULL)
    try:
        return f()
    finally:
        fd = open_fd("/dev/null", O_RDWR | O_CLOEXEC)
        if fd != NULL:
            dup2(fd, NULL, False)
            close(fd)


class Streams:
    """sys.stdin, sys.stdout and sys.stderr."""

    def __init__(self):
        if SINGLE:
            self.make_input()
        else:
            self.stdin = sys.stdin
        self.make_output()
        self.make_error()
        self.modules = 0
        self.feeders = 0  # threads that fill standard input
        self.foreign = False  # C code is loaded that may use C's own streams

    def make_input(self):
        from io import BytesIO, open

        if SINGLE:  # descriptor 0 carries frames
            self.stdin = TextIOWrapper(BytesIO(), encoding="utf-8")
        else:
            self.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)

    def make_output(self):
        self.output = Output(1, "<stdout>")
        self.stdout = sys.stdout = sys.__stdout__ = text(self.output)

    def make_error(self):
        self.error = Output(2, "<stderr>")
        self.stderr = sys.stderr = sys.__stderr__ = text(self.error)

    def restore(self):
        """Undo what earlier code did to the streams."""
        if unusable(self.stdin):
            self.make_input()
        sys.stdin = sys.__stdin__ = self.stdin
        if unusable(self.stdout):
            self.make_output()
        self.output.last = b""
        sys.stdout = self.stdout
        if unusable(self.stderr):
            self.make_error()
        self.error.last = b""
        sys.stderr = self.stderr

    def reopen(self):
        """Put descriptors 0, 1 and 2 in order. This is done when no caller waits: it
        takes system calls, which are slow in some sandboxes."""
        if SINGLE or not (direct or self.foreign):
            return
        try:
            dup2(NULL, 0)
            dup2(OUT, 1)
            dup2(ERR, 2)
        except OSError:
            # Without the private copies nothing can be put in order. If the
            # channel itself is missing, that is noticed elsewhere.
            pass

    def say(self, message):
        """Write to standard error, whatever user code has done to it."""
        try:
            sys.stderr.write(message)
            return
        except BaseException:  # closed, or replaced
            self.restore()
        try:
            sys.stderr.write(message)
        except BaseException:  # the descriptor is closed
            try:
                put(ERR, message.encode("utf-8", "backslashreplace"))
            except OSError:
                pass

    def end_line(self):
        """Have what comes next on standard error begin a line."""
        try:
            if midline(sys.stderr):
                sys.stderr.write("\n")
        except Exception:  # closed, or replaced
            pass

    def drain(self):
        """Before a child process starts: its output comes after this."""
        for stream in (self.stdout, self.stderr):
            try:
                stream.flush()
                stream.buffer.drain()
            except BaseException:  # closed, or replaced
                pass
        release()

    def settle(self, nonce, alone):
        """Have the host know when everything that the execution wrote has arrived. Return
        the members of a done frame that say so, or nothing: then a nonce follows it. If
        alone, there is nothing else that writes."""
        global written
        if alone and not (written or direct or self.foreign or self.helpers()):
            data = b""
            while held:
                data += held.pop(0)
            try:
                if not written:  # by a signal handler, meanwhile
                    text = data.decode()
                    return ',"drained":true' + (',"stdout":' + quote(text) if text else "")
            except UnicodeDecodeError:
                pass
            if data:
                send(OUT, data)
        release()
        written = False
        self.mark(nonce)
        return ""

    def mark(self, nonce):
        """Report that everything that was written before has arrived."""
        if SINGLE:
            frames.send(frames.frame(b"n", nonce))
        else:
            write(NONCE, nonce + b"\n")

    def helpers(self):
        return self.output.helpers + self.error.helpers + self.feeders

    def flush(self):
        """Flush Python's and C's streams, at the end of an execution."""
        global holding
        streams = self.stdout, self.stderr
        current = getattr(sys, "stdout", None), getattr(sys, "stderr", None)
        if current[0] is not streams[0] or current[1] is not streams[1]:
            streams = {id(s): s for s in (*current, *streams)}.values()
        for stream in streams:
            holding = stream is self.stdout and not (direct or thread_count())
            try:
                stream.flush()
            except BaseException:  # closed, or replaced by anything at all
                pass
        holding = False
        for stream in (self.output, self.error):
            try:
                stream.finish()
            except OSError:
                pass
        if len(sys.modules) != self.modules:
            self.modules = len(sys.modules)
            self.foreign = self.foreign or not SINGLE and uses_c_streams()
        if self.foreign:
            release()
            flush_c()


def text(output):
    stream = TextIOWrapper(output, encoding="utf-8", errors="backslashreplace", newline="\n", line_buffering=True)
    stream.mode = "w"
    return stream


def unusable(stream):
    try:
        return stream.closed
    except BaseException:  # detached
        return True


def uses_c_streams():
    """Whether C code is loaded that may have called printf, or written to descriptors 1
    and 2."""
    if any(name in sys.modules for name in C_STREAMS):
        return True
    for module in list(sys.modules.values()):
        try:
            file = vars(module).get("__file__")
        except Exception:  # any object can be among the modules
            continue
        if type(file) is str and file.endswith(".so") and "/lib-dynload/" not in file:
            return True
    return False


_fflush = None


def flush_c():
    """fflush(NULL)."""
    global _fflush
    try:
        import _ctypes

        if _fflush is None:
            _fflush = _ctypes.dlsym(_ctypes.dlopen(None, 0), "fflush")
        _ctypes.call_function(_fflush, (None,))
    except BaseException:  # an interpreter without ctypes, an interrupt
        _fflush = None
