"""Tracebacks as Python prints them, without our own frames, and without the source
lines of libraries."""

from . import BUILTINS as __builtins__

import sys
import traceback

from . import hints
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
        # Module traceback imports others on demand.
        text = with_a_descriptor(lambda: render(e, compiling) + hints.hint(session, e))
    except BaseException as problem:  # a second interrupt, no memory, an exception that defends itself
        text = "%s (its traceback cannot be shown: %s)\n" % (type(e).__name__, type(problem).__name__)
    session.streams.say(text)


def render(e, compiling):
    if compiling:
        # The frames are those of the compiler's caller, which is our code.
        return "".join(traceback.format_exception_only(type(e), e))
    shown = traceback.TracebackException(type(e), e, e.__traceback__)
    prune(shown)
    return "".join(shown.format())


def prune(shown):
    """Remove our frames, and those of asyncio through which ours reached user code,
    from an exception and everything that it refers to."""
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
            x.stack[:] = [folded(f) for f in x.stack if not f.filename.startswith(OURS)]
        pending += [x.__cause__, x.__context__, *(getattr(x, "exceptions", None) or ())]


def folded(frame):
    """A frame of a library takes one line: its source says little about the code."""
    if not frame.filename.startswith(LIBRARIES) and not any(place in frame.filename for place in PACKAGES):
        return frame
    return traceback.FrameSummary(frame.filename, frame.lineno, frame.name, lookup_line=False, line="")


LIBRARIES = (traceback.__file__.rpartition("/")[0] + "/", "<frozen ")
PACKAGES = ("/site-packages/", "/dist-packages/")
