"""The interpreter: waits for executions, runs them, reports how they ended."""

from . import BUILTINS as __builtins__

import builtins
import posix
import sys
from posix import _exit, chdir, environ, unsetenv

from . import artifacts, belonging, channel, compiler, execute, hooks, messages, output, sources
from .channel import Gone, Parked
from .descriptors import CONTROL_IN, CONTROL_OUT, ERR, NONCE, NULL, OUT, SINGLE, replace
from .interrupt import Interrupts, after

NAME = "__main__"
WORKSPACE = "/workspace"
FILES = "/opt/sallyport-files"
PACKAGES = "/packages"
FAILED = 70
SHOWN = (
    "matplotlib.figure", "matplotlib.pyplot", "PIL.Image", "plotly.io._renderers", "altair", "bokeh.io.showing", "bokeh.io.output",
    "IPython.core.display_functions",
)  # fmt: skip


class Session:
    def __init__(self, memory=None):
        self.interrupts = Interrupts()
        self.interrupts.install()
        self.channel = channel.Channel(CONTROL_IN, CONTROL_OUT, self.interrupts)
        self.streams = output.Streams()
        self.sources = sources.Sources()
        self.asyncio = None
        self.forked = False
        self.error = None  # what ended the execution: its type and message
        self.submitted = ""  # the code that could not be compiled last
        self.told = ()  # hints of this execution about arguments
        self.extra = set()  # tools whose hint says that they answer more than their value
        self.lacking = {}  # name -> why the last new process did not get it
        self.driving = False  # execute.drive is at work
        self.prepared = False  # for the next execution, see prepare
        self.archives = []  # of packages that code has added
        self.wanted = ()  # those that this session had in an earlier sandbox
        self.stdin = None  # the execution's, if it has one
        self.file = None  # what __file__ names, while it may exist
        self.scripted = False  # that file is all of the program
        workspace, files = setting(b"SALLYPORT_WORKSPACE", WORKSPACE), setting(b"SALLYPORT_FILES", FILES)
        self.packages = setting(b"SALLYPORT_PACKAGES", PACKAGES)
        self.workspace = artifacts.Workspace(workspace)
        try:
            chdir(workspace)
        except OSError:
            pass
        self.workspace.seed(files)

        # User code's module is the main one, so pickle, dataclasses and typing find
        # what is defined in it, and the last lines of a program run.
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
        for module in SHOWN:
            self.imports.after[module] = lambda module=module: self.showing(module)
        self.imports.after["linecache"] = self.sources.publish
        self.imports.after["inspect"] = self.sources.inspect_imported
        self.imports.after["multiprocessing.spawn"] = self.spawn_imported
        for module in ("context", "pool"):
            self.imports.after["multiprocessing." + module] = lambda module=module: self.workers_imported(module)
        self.threads = None  # lets them run, where no system does
        self.guard = None
        if memory is not None:
            from . import pressure

            self.guard = pressure.Guard(memory)
            belonging.after_start = self.guard.adjust
            self.imports.after["vl_convert"] = lambda: self.guard.unlimit(sys.modules["vl_convert"])
        sys.path.insert(0, "")
        # If a file is written twice within a second, both versions must be compiled.
        sys.dont_write_bytecode = True
        sys.displayhook = execute.displayhook
        execute.rich, execute.namespace = self.rich, self.namespace
        self.imports.after["_posixsubprocess"] = self.subprocess_imported
        if not SINGLE:
            from posix import register_at_fork

            register_at_fork(before=self.streams.drain, after_in_child=self.in_child, after_in_parent=self.in_parent)
            self.announce()

    @property
    def registry(self):
        """The servers; made on first use."""
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
        """User code, or what it imports, has imported asyncio without naming it."""
        if not self.interrupts.armed or channel.get_ident() != self.channel.main:
            return  # used from the next execution on
        asyncio = self.use_asyncio()
        if self.driving:
            asyncio.expect()
        else:
            asyncio.enter()

    def showing(self, module):
        """Show the pictures of a module that user code has imported."""
        from . import display

        display.IMPORTED[module](sys.modules[module], self.workspace)

    def rich(self, value):
        """Show what a value has besides its repr: see display.show."""
        from . import display

        return display.show(value, self.workspace)

    def show_figures(self):
        """Show the figures that the code has left open."""
        from . import display

        display.finish(self.workspace)

    # Children.

    def subprocess_imported(self):
        """Write gathered output before a child process starts."""
        module = sys.modules["_posixsubprocess"]
        fork_exec = module.fork_exec

        def fork_exec_after_output(*args):
            self.forked = True
            if self.stdin is not None and (len(args) < 7 or args[6] == -1):  # it inherits ours
                self.stdin.feed()
            self.streams.drain()
            pid = fork_exec(*args)
            if self.guard is not None:
                self.guard.spawned(pid, args[1][0])
            return pid

        module.fork_exec = fork_exec_after_output

    def announce(self):
        """Notice when code starts a child process, or uses the standard descriptors."""

        def about_to_spawn(*arguments, **named):
            self.forked = True
            self.streams.drain()

        for first, names in (
            (about_to_spawn, ("system", "posix_spawn", "posix_spawnp")),
            (output.uses, ("write", "writev", "pwrite", "pwritev", "dup", "dup2", "close", "closerange", "sendfile", "splice")),
        ):
            for name in names:
                function = getattr(posix, name, None)
                if function is None:
                    continue
                announced = after(first, function)
                announced.__name__ = announced.__qualname__ = name
                announced.__module__, announced.__doc__, announced.__wrapped__ = "posix", function.__doc__, function
                replace(announced)

    def spawn_imported(self):
        from . import spawned

        spawned.install(self)

    def workers_imported(self, module):
        from . import workers

        getattr(workers, module + "_imported")()

    def in_child(self):
        """Run in a forked child. It does not speak to the host any more, and ends where
        the code that forked it ends."""
        import _signal
        from posix import close

        self.channel.closed = True
        if self.guard is not None:
            self.guard.shared = bytearray(8)  # the interpreter's is not for us
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
        self.open()
        while True:
            self.turn()

    def open(self):
        """Tell the host that the session is ready."""
        self.prepare()
        self.channel.send(messages.ready_frame())

    def turn(self):
        """Wait for an execution and run it."""
        if self.asyncio is not None and not self.channel.execs and self.asyncio.busy():
            self.asyncio.idle()
        self.execute(self.channel.next_exec())
        # From here on no caller waits.
        if self.guard is not None:
            self.guard.recover()
        if self.asyncio is not None and self.asyncio.loop.is_closed():
            try:
                self.asyncio.reopen()
            except OSError:  # no descriptors are left; perhaps after the next execution
                pass
        self.streams.reopen()
        self.paths.add()
        if self.asyncio is None and self.alone():  # nothing runs until the next execution
            self.interrupts.resume()
            try:
                self.prepare()
                self.prepared = True
            except BaseException:  # a method of an object that is replaced
                pass
            self.interrupts.disarm()

    def prepare(self):
        """Undo what earlier code may have changed."""
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
        modules[NAME] = self.module
        self.namespace["__builtins__"] = builtins  # otherwise it would be our copy
        vars(builtins)[compiler.PRINT], vars(builtins)[compiler.PERHAPS] = execute.print_last, execute.print_perhaps
        self.package.install()

    def execute(self, frame):
        self.interrupts.begin()
        if not self.prepared:
            self.interrupts.armed = True  # an object that is replaced may have methods
            self.prepare()
            self.interrupts.armed = False
        self.prepared = False
        run = frame["id"]
        self.channel.begin_run(run)
        if self.guard is not None:
            self.guard.begin()
        self.error = None
        self.workspace.html = "html" in frame
        if "reseed" in frame:
            from .reseed import reseed

            reseed(bytes.fromhex(frame["reseed"]))
        if self._registry is not None or "grants" in frame or "define" in frame or "discovered" in frame:
            self.registry.update(frame)
        if self._registry is not None and "task" not in frame and "mcp_" in frame["code"]:
            self._registry.mentioned(frame["code"])
        output.says_direct(frame["code"])
        self.wanted = frame.get("packages", ())
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
            if "__file__" in frame["code"]:
                self.name_file(frame["code"])
            status, code = execute.run(self, frame["code"], filename, True)
            self.remove_file()
            sys.argv = arguments
        if self.stdin is not None:
            self.stdin.finish()
            self.stdin = None
            output.direct = True  # descriptor 0 may have become a pipe
        given_up = self.channel.end_run()
        self.interrupts.resume()
        try:
            if given_up:
                self.streams.say("sallyport: %s: await them before the code ends\n" % ended_early(given_up))
            self.streams.flush()
        except BaseException:  # a stream of the code's own, an interrupt
            pass
        # This comes first, because init takes longer to handle a nonce than the rest.
        try:
            more = self.streams.settle(frame["nonce"].encode(), self.alone())
        except OSError:
            raise Gone from None
        more += execute.error_member(self.error)
        try:
            more += self.background(given_up)
        except BaseException:
            pass
        if "task" not in frame:
            more += self.workspace.report()
        self.interrupts.disarm()
        if self.guard is not None:
            self.guard.end()
        self.channel.send(messages.done_frame(run, status, code, more))

    def alone(self):
        """Whether nothing runs besides the execution that has just ended."""
        return not (self.forked or channel.thread_count() or self.threads is not None and self.threads.pending)

    def name_file(self, source):
        """Give code that has no file of its own one to look at."""
        from . import mainfile

        self.file = mainfile.MainFile(self.workspace.path, mainfile.CELL, source)
        self.file.write()
        self.namespace.setdefault("__file__", self.file.path)

    def remove_file(self):
        if self.file is not None:
            self.file.remove()
            self.file = None

    def background(self, given_up):
        """Return the member of a done frame that counts what is still running, or
        nothing. Tasks whose calls were given up have yet to get that error: those that
        then go on are counted after the next execution."""
        # If one of our threads starts or ends meanwhile, this is one too low.
        threads = len(self.threads.pending) if self.threads is not None else max(0, channel.thread_count() - self.channel.threaded - self.streams.helpers())
        tasks = 0 if self.asyncio is None or given_up else self.asyncio.tasks()
        children = 0
        if self.forked:
            from .children import count

            children = count()
        member = background_member(threads, tasks, children)
        if member:
            from . import children as running

            member += running.member(self.asyncio)
        return member


def ended_early(calls):
    if calls == 1:
        return "1 tool call of a background task ended with the code, without an answer"
    return "%d tool calls of background tasks ended with the code, without an answer" % calls


def background_member(threads, tasks, children):
    if not (threads or tasks or children):
        return ""
    return ',"background":{"threads":%d,"tasks":%d,"children":%d}' % (threads, tasks, children)


def setting(name, usual):
    """Take a setting out of the environment, where an engine without a root of its own
    passes it."""
    if name not in environ:
        return usual
    unsetenv(name)
    return environ.pop(name).decode("utf-8", "surrogateescape")


def main(memory=None):
    end_with(lambda: Session(memory).serve())


def end_with(serve):
    """Serve the host to its end, which is that of the process, or until it parks."""
    try:
        serve()
    except Gone:
        _exit(0)
    except Parked:
        raise
    except BaseException:
        # A bug of ours. Init reports the death, and this says why.
        import _signal

        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
        import traceback

        output.put(ERR, traceback.format_exc().encode("utf-8", "backslashreplace"))
    _exit(FAILED)


def resume(session):
    """Do all the work of a single process that parks. Return the milliseconds
    until there is more, or None if only a frame can bring it."""

    def serve():
        while True:
            session.turn()

    try:
        end_with(serve)
    except Parked as e:
        session.channel.come = True if e.milliseconds is None else None  # what ends the wait
        return e.milliseconds
