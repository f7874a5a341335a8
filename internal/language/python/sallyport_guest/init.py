"""The container's first process.

It forks the interpreter and then only drains, reaps and forwards: what the
interpreter and its children write to descriptors 1 and 2 goes to the container's
standard error as output frames. It imports only what it needs, because it lives as
long as the sandbox.
"""

from posix import (
    O_CLOEXEC,
    O_RDWR,
    WNOHANG,
    _exit,
    close,
    dup,
    dup2,
    fork,
    kill,
    open as open_fd,
    pipe,
    read,
    readv,
    set_blocking,
    waitpid,
    waitstatus_to_exitcode,
)
import _signal
import gc

from . import pressure
from .frames import MAX as CHUNK, exit_payload, frame, send

PIPE_SIZE = 1 << 20
F_SETPIPE_SZ = 1031
MAX_NONCE = 256
# Seconds that the interpreter has to end once no process holds the other end of
# its input, if the container would outlive its host.
ORPHANED = 5
# Milliseconds for which the first output of an execution waits for the
# execution's end: most are short, and the host is then woken only once.
PATIENCE = 2


def main(lifeline=False):
    """With lifeline, the container also ends soon after the other end of its standard
    input was closed, whatever the interpreter is doing."""
    gc.disable()  # it would touch, and so copy, pages that the two processes share
    memory = pressure.find()
    out, err, nonce = pipe(), pipe(), pipe()
    pid = fork()
    if pid == 0:
        become_interpreter(out[1], err[1], nonce[1], memory)
    line = dup(0) if lifeline else -1
    for fd in (0, 1, out[1], err[1], nonce[1]):
        close(fd)
    Drain(pid, out[0], err[0], nonce[0], line, memory).run()


def become_interpreter(out, err, nonce, memory):
    """Put every descriptor in its place and become the interpreter."""
    try:
        null = open_fd("/dev/null", O_RDWR | O_CLOEXEC)
        from . import descriptors

        descriptors.take_places(0, 1, nonce, out, err, null)
        for fd, target in ((null, 0), (out, 1), (err, 2)):
            dup2(fd, target)
        # The pipes' own descriptors are adjacent, above 2.
        for fd in range(3, max(nonce, null) + 1):
            if fd < descriptors.CONTROL_IN:
                try:
                    close(fd)
                except OSError:
                    pass
        from . import session

        gc.freeze()
        gc.enable()
        session.main(memory)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        _exit(70)


class Drain:
    """Forwards what arrives on the captured pipes, until the interpreter ends."""

    def __init__(self, pid, out, err, nonce, line=-1, memory=None):
        self.pid = pid
        self.status = None
        self.nonce_fd = nonce
        self.line = line
        self.partial = b""
        self.streams = [Stream(b"o", out), Stream(b"e", err)]
        self.signals()
        # From now on the interpreter may send a signal, which would end a process that
        # has no handler.
        self.watch = None if memory is None else pressure.Watch(memory, pid, lambda text: send(frame(b"e", text.encode())))

    def signals(self):
        """Survive signals that user code, which has our uid, may send."""
        for number in range(1, 65):
            if number not in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGCHLD, _signal.SIGUSR1, _signal.SIGALRM):
                try:
                    _signal.signal(number, _signal.SIG_IGN)
                except (OSError, ValueError):
                    pass

        def forward(number, frame):
            if self.status is None:
                try:
                    kill(self.pid, number)
                except OSError:
                    pass

        self.wake_fd, wake = pipe()
        set_blocking(self.wake_fd, False)
        set_blocking(wake, False)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (_signal.SIGCHLD, _signal.SIGUSR1, _signal.SIGALRM):
            _signal.signal(number, lambda number, frame: None)
        for number in (_signal.SIGINT, _signal.SIGTERM):
            _signal.signal(number, forward)

    def run(self):
        from select import POLLIN, poll

        try:
            from fcntl import fcntl

            for stream in self.streams:
                fcntl(stream.fd, F_SETPIPE_SZ, PIPE_SIZE)
        except (ImportError, OSError):
            pass
        for fd in (self.nonce_fd, *(s.fd for s in self.streams)):
            set_blocking(fd, False)
        poller, urgent = poll(), poll()
        for fd in (self.nonce_fd, self.wake_fd):
            poller.register(fd, POLLIN)
            urgent.register(fd, POLLIN)
        for stream in self.streams:
            poller.register(stream.fd, POLLIN)
        if self.line >= 0:
            poller.register(self.line, 0)  # only its end matters
        self.reap()
        patient = True
        while self.status is None:
            # Look at the nonces' pipe first: what was written before a nonce is
            # then seen in the pipes that are looked at after it.
            ready = dict(poller.poll())
            if self.line in ready:
                poller.unregister(self.line)
                self.give_notice()
            if patient and self.nonce_fd not in ready and self.wake_fd not in ready:
                if urgent.poll(PATIENCE):
                    ready = dict(poller.poll())
                patient = False
            if self.wake_fd in ready:
                while self.get(self.wake_fd):
                    pass
                self.reap()
                if self.watch is not None and self.status is None:
                    self.watch.signalled()  # afterwards its memory is free
            nonces = self.nonces() if self.nonce_fd in ready else None
            if nonces == b"":
                poller.unregister(self.nonce_fd)
                urgent.unregister(self.nonce_fd)
            frames = []
            for stream in self.streams:
                if stream.fd not in ready:
                    continue
                n = stream.forward(frames)
                if n == 0:
                    poller.unregister(stream.fd)
                # Everything in the pipe goes before a nonce; a short read has
                # emptied it.
                for _ in range(PIPE_SIZE // CHUNK if nonces else 0):
                    if n < CHUNK:
                        break
                    send(frames)
                    frames = []
                    n = stream.forward(frames)
            if nonces:
                patient = True
                for nonce in nonces.split(b"\n")[:-1]:
                    frames += frame(b"n", nonce)
            send(frames)
        self.finish()

    def give_notice(self):
        """The host is gone, or has asked for the end. End even if the interpreter does
        not respond."""

        def end(number, frame):
            if self.status is None:
                kill(self.pid, _signal.SIGKILL)

        self.watch = None  # it has the timer
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        _signal.signal(_signal.SIGALRM, end)
        _signal.alarm(ORPHANED)

    def get(self, fd):
        try:
            return read(fd, 4096)
        except BlockingIOError:
            return None

    def nonces(self):
        """Return the whole lines that have arrived; b"" at the end, None for
        nothing."""
        data = self.get(self.nonce_fd)
        if not data:
            return data
        lines, newline, self.partial = (self.partial + data).rpartition(b"\n")
        if len(self.partial) > MAX_NONCE:
            self.partial = b""
        return lines + newline or None

    def reap(self):
        try:
            while True:
                pid, status = waitpid(-1, WNOHANG)
                if pid == 0:
                    return
                if pid == self.pid:
                    self.status = waitstatus_to_exitcode(status)
        except ChildProcessError:
            if self.status is None:
                self.status = 70

    def finish(self):
        """Send what is left and how the interpreter ended, and exit."""
        for stream in self.streams:
            # Do not wait for a child that goes on writing.
            for _ in range(2 * PIPE_SIZE // CHUNK):
                frames = []
                if stream.forward(frames) <= 0:
                    break
                send(frames)
        code = self.status
        if self.watch is not None:
            self.watch.ended(code)
        send(frame(b"x", exit_payload(code)))
        _exit(code if code >= 0 else 128 - code)


class Stream:
    """One captured pipe."""

    def __init__(self, kind, fd):
        self.kind = kind
        self.fd = fd
        self.buffer = memoryview(bytearray(CHUNK))
        self.buffers = [self.buffer]

    def forward(self, frames):
        """Add the frame of one read to frames, which must be sent before the next read.
        Return the number of bytes read, 0 at the end and -1 if there are none now."""
        try:
            n = readv(self.fd, self.buffers)
        except BlockingIOError:
            return -1
        if n:
            frames += ((n + 1).to_bytes(4, "big") + self.kind, self.buffer[:n])
        return n
