"""The interpreter: waits for executions, runs them, says how they ended."""

from . import BUILTINS as __builtins__

import sys
from posix import _exit, getpid, write

import _signal

from . import channel, execute, output
from .init import CONTROL_IN, CONTROL_OUT, NONCE

PROTOCOL = 1
PACKAGE = __file__.rpartition("/")[0] + "/"


class Session:
    def __init__(self):
        self.channel = channel.Channel(CONTROL_IN, CONTROL_OUT, getpid())
        self.streams = output.Streams()
        self.namespace = execute.namespace()
        self.run = 0  # the execution under way
        self.interruptible = False
        self.interrupted = False
        self.deferred = False
        self.quiet = (PACKAGE,)  # files whose frames no interrupt may break

    def on_interrupt(self, number, frame):
        """The host's SIGINT: it ends what user code does, and nothing of ours."""
        if not self.interruptible:
            return
        self.interrupted = True
        if self.channel.waiting or frame is None or not frame.f_code.co_filename.startswith(self.quiet):
            self.channel.waiting = self.deferred = False
            raise KeyboardInterrupt
        self.deferred = True

    def serve(self):
        """Run what the host sends until it is gone."""
        version = "%d.%d.%d" % sys.version_info[:3]
        self.channel.send('{"type":"ready","protocol":%d,"python":"%s"}' % (PROTOCOL, version))
        while True:
            frame = channel.decode(self.channel.frame())
            kind = frame.get("type")
            if kind == "exec":
                self.execute(frame)
            elif kind == "shutdown":
                return

    def prepare(self):
        """Put right what earlier code may have put wrong."""
        sys.settrace(None)
        sys.setprofile(None)
        if sys.getrecursionlimit() < 500:
            sys.setrecursionlimit(1000)
        self.streams.restore()
        if _signal.getsignal(_signal.SIGINT) != self.on_interrupt:
            _signal.signal(_signal.SIGINT, self.on_interrupt)

    def execute(self, frame):
        self.prepare()
        self.run = run = frame["id"]
        self.interrupted = self.deferred = False
        status, code = execute.run(self, frame["code"], frame.get("filename") or "<cell %d>" % run)
        self.run = 0
        sys.settrace(None)
        sys.setprofile(None)
        self.streams.flush()
        try:
            write(NONCE, frame["nonce"].encode() + b"\n")
        except OSError:
            raise channel.Gone from None
        self.channel.send('{"type":"done","id":%d,"status":"%s","exitCode":%d}' % (run, status, code))


def main():
    session = Session()
    try:
        session.serve()
    except channel.Gone:
        pass
    _exit(0)
