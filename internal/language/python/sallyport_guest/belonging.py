"""Which execution code belongs to: the one that started it. Code left over from an
earlier execution must not use the grants of the current one.

Tasks and callbacks carry the execution in their context, threads from their start,
and work in a thread pool from where it was submitted. This serves honest code:
everything in one interpreter can reach everything else in it.
"""

from . import BUILTINS as __builtins__

import sys
from _contextvars import ContextVar

import _thread

from .interrupt import PLACE

current = ContextVar("sallyport_execution", default=None)
thread = _thread._local()  # .execution: of a thread that Python code started


def after_start():
    """Called after the start of a thread. The session may have its own."""


def begin(execution):
    """From now on, what the main thread does belongs to execution."""
    current.set(execution)


def of():
    """Return the execution of the calling code, or None."""
    execution = current.get()
    return getattr(thread, "execution", None) if execution is None else execution


# These are not lines of this file, because they appear in tracebacks of user
# code.
_started = eval(
    compile(
        "lambda enter, execution, function: lambda *args, **kwargs: (enter(execution), function(*args, **kwargs))[1]", PLACE, "eval"
    )
)
_names = {}
exec(
    compile(
        "def submitted(current, execution, function):\n"
        "    def work(*args, **kwargs):\n"
        "        token = current.set(execution)\n"
        "        try:\n"
        "            return function(*args, **kwargs)\n"
        "        finally:\n"
        "            current.reset(token)\n"
        "    return work\n",
        PLACE,
        "exec",
    ),
    _names,
)


def _enter(execution):
    thread.execution = execution
    current.set(execution)


def starting(start):
    """Wrap a function that starts threads, so that a thread knows its execution."""

    def start_new_thread(function, *args, **kwargs):
        if callable(function):
            function = _started(_enter, of(), function)
        started = start(function, *args, **kwargs)
        after_start()
        return started

    start_new_thread.__name__ = start_new_thread.__qualname__ = start.__name__
    start_new_thread.__doc__ = start.__doc__
    return start_new_thread


STARTERS = ("start_new_thread", "start_new", "start_joinable_thread")


def install(after):
    """Call this before user code runs. after maps module names to hooks that run after
    their import."""
    wrapped = {name: starting(getattr(_thread, name)) for name in STARTERS if hasattr(_thread, name)}
    for name, start in wrapped.items():
        setattr(_thread, name, start)
        if "threading" in sys.modules:
            setattr(sys.modules["threading"], "_" + name, start)
    after["concurrent.futures.thread"] = pools


def pools():
    from concurrent.futures.thread import ThreadPoolExecutor

    submit = ThreadPoolExecutor.submit

    def submit_here(self, fn, /, *args, **kwargs):
        interpreters = sys.modules.get("concurrent.futures.interpreter")
        if interpreters is not None and isinstance(self, interpreters.InterpreterPoolExecutor):
            return submit(self, fn, *args, **kwargs)  # nothing of ours is there
        return submit(self, _names["submitted"](current, of(), fn), *args, **kwargs)

    submit_here.__name__, submit_here.__qualname__, submit_here.__doc__ = submit.__name__, submit.__qualname__, submit.__doc__
    ThreadPoolExecutor.submit = submit_here
