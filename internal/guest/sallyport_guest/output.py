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
        for stream in (self.stdout, self.stderr):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)

    def restore(self):
        """Undo what earlier code did to the streams and descriptors."""
        dup2(OUT, 1)
        dup2(ERR, 2)
        if unusable(self.stdin):
            self.reopen_input()
        if unusable(self.stdout):
            self.stdout = sys.__stdout__ = self.open(1)
        if unusable(self.stderr):
            self.stderr = sys.__stderr__ = self.open(2)
        sys.stdin, sys.stdout, sys.stderr = self.stdin, self.stdout, self.stderr

    def open(self, fd):
        from io import open

        stream = open(fd, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
        stream.reconfigure(line_buffering=True)
        return stream

    def reopen_input(self):
        from io import open

        try:
            null = open_fd("/dev/null", O_RDONLY | O_CLOEXEC)
            if null != 0:
                dup2(null, 0)
                close(null)
        except OSError:
            pass
        self.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)

    def flush(self):
        """Write out what Python's streams and C's hold."""
        for stream in (sys.stdout, sys.stderr, self.stdout, self.stderr):
            try:
                stream.flush()
            except BaseException:  # closed, or replaced by anything at all
                pass
        if "_ctypes" in sys.modules:
            flush_c()


def unusable(stream):
    try:
        return stream.closed
    except BaseException:  # detached
        return True


_fflush = None


def flush_c():
    """fflush(NULL), for C code that used printf."""
    global _fflush
    try:
        import _ctypes

        if _fflush is None:
            _fflush = _ctypes.dlsym(_ctypes.dlopen(None, 0), "fflush")
        _ctypes.call_function(_fflush, (None,))
    except BaseException:
        _fflush = None
