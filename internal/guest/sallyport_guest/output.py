"""The standard streams of user code, and their repair between executions."""

from . import BUILTINS as __builtins__

import sys
from posix import O_CLOEXEC, O_RDONLY, close, dup2, open as open_fd

from .init import ERR, OUT


class Streams:
    """sys.stdin, sys.stdout and sys.stderr over descriptors 0, 1 and 2.

    Lines are written at once: what a child process writes next comes after
    them, and a person who watches sees them.
    """

    def __init__(self):
        self.stdin, self.stdout, self.stderr = sys.stdin, sys.stdout, sys.stderr
        self.modules = 0
        self.foreign = False  # C code that may use C's own streams is loaded
        for stream in (self.stdout, self.stderr):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)

    def restore(self):
        """Undo what earlier code did to the streams."""
        if self.stdin is not sys.stdin or unusable(self.stdin):
            if unusable(self.stdin):
                self.stdin = sys.__stdin__ = self.open(0, "r")
            sys.stdin = self.stdin
        if self.stdout is not sys.stdout or unusable(self.stdout):
            if unusable(self.stdout):
                self.stdout = sys.__stdout__ = self.open(1, "w")
            sys.stdout = self.stdout
        if self.stderr is not sys.stderr or unusable(self.stderr):
            if unusable(self.stderr):
                self.stderr = sys.__stderr__ = self.open(2, "w")
            sys.stderr = self.stderr

    def open(self, fd, mode):
        from io import open

        stream = open(fd, mode, encoding="utf-8", errors="backslashreplace", closefd=False)
        if mode == "w":
            stream.reconfigure(line_buffering=True)
        return stream

    def reopen(self):
        """Put descriptors 0, 1 and 2 in order. Done when nobody waits: it
        takes system calls, which are slow in some sandboxes."""
        try:
            dup2(OUT, 1)
            dup2(ERR, 2)
            null = open_fd("/dev/null", O_RDONLY | O_CLOEXEC)
            if null:
                dup2(null, 0)
                close(null)
        except OSError:
            # Without the private copies nothing can be put in order; the
            # channel itself is found missing elsewhere.
            pass

    def flush(self):
        """Write out what Python's streams and C's hold."""
        for stream in {id(s): s for s in (sys.stdout, sys.stderr, self.stdout, self.stderr)}.values():
            try:
                stream.flush()
            except BaseException:  # closed, or replaced by anything at all
                pass
        if len(sys.modules) != self.modules:
            self.modules = len(sys.modules)
            self.foreign = self.foreign or uses_c_streams()
        if self.foreign:
            flush_c()


def unusable(stream):
    try:
        return stream.closed
    except BaseException:  # detached
        return True


def uses_c_streams():
    """Whether C code is loaded that is not the standard library's: it may have
    called printf."""
    if "_ctypes" in sys.modules:
        return True
    for module in list(sys.modules.values()):
        try:
            file = vars(module).get("__file__")
        except TypeError:
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
    except Exception:  # an interpreter without ctypes
        _fflush = None
