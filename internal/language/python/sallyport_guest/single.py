"""The guest as a single process, for an engine without processes.

No other process can turn what is written to descriptors 1 and 2 into frames, and
there is no other place for the channel: the three standard descriptors are the
channel. User code has Python's standard streams, which make the frames, and is kept
off the descriptors themselves, so that honest code does not break the channel.
Hostile code can forge frames, as it can everywhere.
"""

from . import BUILTINS as __builtins__

import posix
import sys

from . import descriptors, frames

EBADF = 9


def main():
    prepare()
    from . import session

    protect()
    session.main()


def parked():
    """Return a session whose waits for the next frame leave the interpreter: its caller
    opens it once, and then calls session.resume whenever there is something to do."""
    prepare()
    from select import select

    from . import session

    protect()
    made = session.Session()
    inputs = [made.channel.fd_in]
    made.channel.ready = lambda: select(inputs, (), (), 0)[0]
    return made


def prepare():
    exit_now = posix._exit

    def _exit(status):
        """Report to the host how the interpreter ends, as init does elsewhere."""
        frames.send(frames.frame(b"x", frames.exit_payload(status & 0xFF)))
        exit_now(status)

    descriptors.replace(_exit)  # before the session imports it
    descriptors.stay()


def protect():
    """Make os.read and os.write use the streams, and prevent their descriptors from
    being opened and closed."""
    from .output import put

    reading, writing, closing = posix.read, posix.write, posix.close

    def read(fd, length, /):
        return reading(fd, length) if fd != 0 else b""

    def write(fd, data, /):
        if fd not in (1, 2):
            return writing(fd, data)
        data = memoryview(data).tobytes()
        put(fd, data)
        return len(data)

    def close(fd):
        if fd in (0, 1, 2):
            raise refused()
        closing(fd)

    def audit(event, args):
        if event == "open" and type(args[0]) is int and args[0] in (0, 1, 2):
            raise refused()

    for f in (read, write, close):
        descriptors.replace(f)
    if sys.platform != "wasi":  # where the interpreter does so itself: a hook in Python makes id() slow
        sys.addaudithook(audit)


def refused():
    return OSError(EBADF, "the standard streams have no descriptors here: use sys.stdin, sys.stdout, sys.stderr")
