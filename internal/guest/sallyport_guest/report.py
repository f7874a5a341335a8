"""Tracebacks: as Python prints them, without our own frames."""

from . import BUILTINS as __builtins__

import sys
import traceback

from .interrupt import OURS
from .output import with_a_descriptor


def report(session, e, compiling):
    """Print an exception that user code did not catch."""
    session.sources.publish()
    try:
        hook = getattr(sys, "excepthook", sys.__excepthook__)
        if not compiling and hook is not sys.__excepthook__:
            try:
                hook(type(e), e, e.__traceback__)
                return
            except Exception:
                sys.excepthook = sys.__excepthook__
        # Module traceback imports others when it needs them.
        text = with_a_descriptor(lambda: render(e, compiling) + hint(session, e))
    except BaseException as problem:  # a second interrupt, no memory, an exception that defends itself
        text = "%s (its traceback cannot be shown: %s)\n" % (type(e).__name__, type(problem).__name__)
    session.streams.say(text)


def render(e, compiling):
    if compiling:
        # The frames are the compiler's caller, that is ours.
        return "".join(traceback.format_exception_only(type(e), e))
    shown = traceback.TracebackException(type(e), e, e.__traceback__)
    prune(shown)
    return "".join(shown.format())


def prune(shown):
    """Remove our frames from an exception and from all that it refers to, and
    those of asyncio through which ours came to user code."""
    asyncio = getattr(sys.modules.get("asyncio"), "__file__", None)
    carriers = OURS + (asyncio.rpartition("/")[0] + "/",) if isinstance(asyncio, str) else OURS
    pending, seen = [shown], set()
    while pending:
        x = pending.pop()
        if x is None or id(x) in seen:
            continue
        seen.add(id(x))
        if x.stack and x.stack[0].filename.startswith(OURS):
            first = next((i for i, f in enumerate(x.stack) if not f.filename.startswith(carriers)), 0)
            del x.stack[:first]
        if x.stack:
            x.stack[:] = [f for f in x.stack if not f.filename.startswith(OURS)]
        pending += [x.__cause__, x.__context__, *(getattr(x, "exceptions", None) or ())]


def hint(session, e):
    """What to do about a name that only lacks a server, or an import."""
    if not isinstance(e, NameError):
        return ""
    name = getattr(e, "name", None)
    if name is None:  # before 3.10
        parts = str(e).split("'")
        name = parts[1] if len(parts) > 1 else ""
    if not isinstance(name, str):
        return ""
    if name.startswith("mcp_"):
        return session.registry.hint(name[4:])
    from . import saved

    return saved.hint(session, name)
