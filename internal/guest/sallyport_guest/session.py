"""The interpreter: waits for executions, runs them, says how they ended."""

from . import BUILTINS as __builtins__

import builtins
import sys
from posix import _exit, chdir, environ, register_at_fork, unsetenv, write

import _signal

from . import artifacts, belonging, channel, execute, hooks, output, sources
from .channel import Gone
from .init import CONTROL_IN, CONTROL_OUT, ERR, NONCE, NULL, OUT
from .interrupt import Interrupts

NAME = "__sandbox__"
WORKSPACE = "/workspace"
FILES = "/opt/sallyport-files"
FAILED = 70


class Session:
    def __init__(self):
        self.interrupts = Interrupts()
        self.interrupts.install()
        self.channel = channel.Channel(CONTROL_IN, CONTROL_OUT, self.interrupts)
        self.streams = output.Streams()
        self.sources = sources.Sources()
        self.asyncio = None
        self.forked = False
        self.error = None  # what ended the execution: its type and message
        self.driving = False  # execute.drive is at work
        self.stdin = None  # of an execution that has one
        workspace, files = setting(b"SALLYPORT_WORKSPACE", WORKSPACE), setting(b"SALLYPORT_FILES", FILES)
        self.workspace = artifacts.Workspace(workspace)
        try:
            chdir(workspace)
        except OSError:
            pass
        self.workspace.seed(files)

        # User code's module. It is also the main one: what is defined in it
        # can then be found by pickle, dataclasses and typing.
        self.module = type(sys)(NAME)
        self.namespace = vars(self.module)
        self.original_main = sys.modules["__main__"]
        self._registry = None
        from . import package

        self.package = package.Package(self)
        self.paths = hooks.SitePaths(self.streams)
        self.imports = hooks.Imports(self)
        belonging.install(self.imports.after)
        self.imports.after["asyncio"] = self.asyncio_imported
        self.imports.after["linecache"] = self.sources.publish
        self.imports.after["inspect"] = self.sources.inspect_imported
        sys.path.insert(0, "")
        # A file that is written twice within a second must be compiled twice.
        sys.dont_write_bytecode = True
        sys.displayhook = execute.displayhook
        self.imports.after["_posixsubprocess"] = self.subprocess_imported
        register_at_fork(before=self.streams.drain, after_in_child=self.in_child, after_in_parent=self.in_parent)

    @property
    def registry(self):
        """The servers; made when there are any, or when somebody asks."""
        if self._registry is None:
            from .registry import Registry

            self._registry = Registry(self)
        return self._registry

    # asyncio.

    def use_asyncio(self):
        if self.asyncio is None:
            self.imports.after.pop("asyncio", None)
            from .loop import Asyncio

            self.asyncio = Asyncio(self.channel, self.interrupts)
        return self.asyncio

    def asyncio_imported(self):
        """User code, or what it imports, has imported asyncio without saying
        its name."""
        if not self.interrupts.armed or channel.get_ident() != self.channel.main:
            return  # used from the next execution on
        asyncio = self.use_asyncio()
        if self.driving:
            asyncio.expect()
        else:
            asyncio.enter()

    # Children.

    def subprocess_imported(self):
        """Have what was gathered written before a child process starts."""
        module = sys.modules["_posixsubprocess"]
        fork_exec = module.fork_exec

        def fork_exec_after_output(*args):
            self.forked = True
            if self.stdin is not None and (len(args) < 7 or args[6] == -1):  # it inherits ours
                self.stdin.feed()
            self.streams.drain()
            return fork_exec(*args)

        module.fork_exec = fork_exec_after_output

    def in_child(self):
        """This is a forked child now. It speaks to the host no more, and ends
        where the code that forked it does."""
        from posix import close

        self.channel.closed = True
        self.streams.output.forget()
        self.streams.error.forget()
        if self.stdin is not None:
            self.stdin.forget()
        for fd in (CONTROL_IN, CONTROL_OUT, NONCE, OUT, ERR, NULL):
            try:
                close(fd)
            except OSError:
                pass
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)

    def in_parent(self):
        self.forked = True

    # Executions.

    def serve(self):
        """Run what the host sends until it is gone."""
        self.prepare()
        self.channel.send(channel.ready_frame())
        while True:
            if self.asyncio is not None and not self.channel.execs and self.asyncio.busy():
                self.asyncio.idle()
            self.execute(self.channel.next_exec())
            # Nobody waits for what follows.
            if self.asyncio is not None and self.asyncio.loop.is_closed():
                try:
                    self.asyncio.reopen()
                except OSError:  # no descriptors are left; perhaps after the next execution
                    pass
            self.streams.reopen()
            self.paths.add()

    def prepare(self):
        """Put right what earlier code may have put wrong."""
        self.interrupts.install()
        sys.settrace(None)
        sys.setprofile(None)
        for hook in ("displayhook", "excepthook"):
            if not hasattr(sys, hook):
                setattr(sys, hook, execute.displayhook if hook == "displayhook" else sys.__excepthook__)
        if sys.getrecursionlimit() < 500:
            sys.setrecursionlimit(1000)
        self.streams.restore()
        self.imports.install()
        modules = sys.modules
        modules[NAME] = modules["__main__"] = self.module
        self.namespace["__builtins__"] = builtins  # else it would be our copy
        self.package.install()

    def execute(self, frame):
        self.interrupts.begin()
        self.prepare()
        run = frame["id"]
        self.channel.begin_run(run)
        self.error = None
        if "reseed" in frame:
            from .reseed import reseed

            reseed(bytes.fromhex(frame["reseed"]))
        if self._registry is not None or "grants" in frame or "define" in frame or "discovered" in frame:
            self.registry.update(frame)
        filename = frame.get("filename") or "<cell %d>" % run
        if "stdin" in frame:
            from .stdin import Input

            self.stdin = Input(self)
            self.stdin.begin()
        if "task" in frame:
            from . import tasks

            status, code = tasks.run(self, frame["task"])
        elif "script" in frame:
            from . import script

            status, code = script.run(self, frame["code"], filename, frame.get("args", []))
        else:
            arguments = getattr(sys, "argv", [])
            if "args" in frame:
                sys.argv = ["-c", *frame["args"]]
            status, code = execute.run(self, frame["code"], filename, True)
            sys.argv = arguments
        if self.stdin is not None:
            self.stdin.finish()
            self.stdin = None
        given_up = self.channel.end_run()
        if given_up:
            self.streams.say("sallyport: %d tool calls of background tasks were given up: await them before the code ends\n" % given_up)
        self.streams.flush()
        # First, because what init does with it takes longer than the rest.
        try:
            write(NONCE, frame["nonce"].encode() + b"\n")
        except OSError:
            raise Gone from None
        more = execute.error_member(self.error) + self.background()
        if "task" not in frame:
            more += self.workspace.report()
        self.channel.send(channel.done_frame(run, status, code, more))

    def background(self):
        """The member of a done frame that counts what goes on, or nothing."""
        # A thread of ours that starts or ends meanwhile makes this one too low.
        threads = max(0, channel.thread_count() - self.channel.threaded - self.streams.helpers())
        tasks = 0 if self.asyncio is None else self.asyncio.tasks()
        children = 0
        if self.forked:
            from .children import count

            children = count()
        member = background_member(threads, tasks, children)
        if member:
            from . import children as running

            member += running.member(self.asyncio)
        return member


def background_member(threads, tasks, children):
    if not (threads or tasks or children):
        return ""
    return ',"background":{"threads":%d,"tasks":%d,"children":%d}' % (threads, tasks, children)


def setting(name, usual):
    """What an engine without a root of its own says, taken out of the
    environment."""
    if name not in environ:
        return usual
    unsetenv(name)
    return environ.pop(name).decode("utf-8", "surrogateescape")


def main():
    session = None
    try:
        session = Session()
        session.serve()
    except Gone:
        _exit(0)
    except BaseException:
        # A defect of ours. Init reports the death, and this says why.
        import traceback

        write(ERR, traceback.format_exc().encode("utf-8", "backslashreplace"))
    _exit(FAILED)
