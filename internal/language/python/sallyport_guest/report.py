"""Tracebacks as Python prints them, without our own frames, and with few of those of
libraries.

User code makes what they consist of, which may be huge, endless or hostile. So this
looks at a bounded part of it. Where it counts the rest, or runs user code, it calls
check, which raises after an interrupt.
"""

from . import BUILTINS as __builtins__

import linecache
import sys
import traceback
from collections import deque
from itertools import islice
from posix import stat

from . import hints
from .interrupt import OURS, call
from .output import with_a_descriptor
from .shorten import middle, thousands

# How much is shown. A place is a frame, one that repeats, or a run of library frames.
FIRST_PLACES, LAST_PLACES = 20, 30
REPEATS = 3  # of one frame, as in module traceback
NEWEST, OLDEST = 8, 3  # exceptions of a chain
MEMBERS, LEVELS = 15, 10  # of exception groups
EXCEPTIONS = 40
NOTES = 20
MAX_TEXT = 50000  # characters of a message, a note, a name
MAX_LINE, PART = 1000, 400  # of a longer line, only a part is shown
MAX_SPAN = 50  # lines of a statement

MAX_LINKS = 100000  # of a chain, which are counted
MAX_SOURCE = 16 << 20  # bytes of a file
MAX_KEPT = 10000  # frames that stay alive in sys.last_value

# Classes of user code can have attributes of these names.
TRACEBACK, CAUSE, CONTEXT = BaseException.__traceback__, BaseException.__cause__, BaseException.__context__
SUPPRESSES = vars(BaseException)["__suppress_context__"]
try:
    GROUP = BaseExceptionGroup
except NameError:  # before 3.11
    GROUP = ()


def report(session, e, compiling):
    """Print an exception that user code did not catch."""
    session.sources.publish()
    keep(e, compiling)
    hook = getattr(sys, "excepthook", sys.__excepthook__)
    if not compiling and hook is not sys.__excepthook__:
        try:
            hook(type(e), e, e.__traceback__)
            return
        except Exception:
            sys.excepthook = sys.__excepthook__
    # Module traceback imports others on demand.
    text = with_a_descriptor(lambda: render(e, compiling, session.interrupts.stop))
    try:
        text += hints.hint(session, e)
    except KeyboardInterrupt:
        pass
    session.streams.say(text)


def keep(e, compiling):
    """Leave an exception to the code that runs next, as Python's prompt does."""
    tb = None if compiling else ours_removed(TRACEBACK.__get__(e))
    frames, rest = 0, tb
    while rest is not None and frames <= MAX_KEPT:
        frames, rest = frames + 1, rest.tb_next
    if rest is not None or issubclass(type(e), MemoryError):  # what they hold may be needed
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        return
    TRACEBACK.__set__(e, tb)
    sys.last_type, sys.last_value, sys.last_traceback = type(e), e, tb
    if sys.version_info >= (3, 12):
        sys.last_exc = e


def render(e, compiling, check=lambda: None):
    forms = Forms(check)
    if compiling:
        # The frames are those of the compiler's caller, which is our code.
        lines = forms.one(e, 0, None).format_exception_only()
    else:
        lines = forms.chain(e, 0).format()
    return "".join(middle(line, "", 2 * MAX_TEXT) for line in lines)


class Everything(set):
    """Keeps TracebackException from following the chain, for which it needs no bound."""

    def __contains__(self, item):
        return True


class Omitted(traceback.TracebackException):
    """Stands for exceptions that are not shown."""

    stack, exceptions = (), None
    __cause__ = __context__ = None
    __suppress_context__ = _truncated = False

    def __init__(self, text):
        self.text = text

    def format_exception_only(self, **options):
        yield "[… %s …]\n" % self.text


class Stack(list):
    """Takes the place of a StackSummary. It holds frames, and lines between them."""

    def format(self, **options):
        for item in self:
            yield from (item,) if type(item) is str else traceback.StackSummary.from_list([item]).format()


class Forms:
    """The TracebackExceptions of an exception and of all that it refers to."""

    def __init__(self, check):
        self.check = check
        self.left = EXCEPTIONS
        self.seen = set()

    def chain(self, e, level):
        """Return the form of an exception, linked to those of the ones that led to it."""
        newest, oldest, links, hidden = [], deque(), 0, (None, False)
        while e is not None and links < MAX_LINKS and not (links and id(e) in self.seen):
            if links % 1000 == 0:
                self.check()
            self.seen.add(id(e))
            links += 1
            cause = CAUSE.__get__(e)
            (newest if len(newest) < NEWEST else oldest).append((e, cause is not None))
            if len(oldest) > OLDEST:
                hidden = oldest.popleft()
            if cause is None and not SUPPRESSES.__get__(e):
                cause = CONTEXT.__get__(e)
            e = cause
        shown = [(self.one(x, level), caused) for x, caused in newest]
        if hidden[0] is not None:
            shown.append((Omitted(counted(links - len(newest) - len(oldest), "exception")), hidden[1]))
        shown += [(self.one(x, level), caused) for x, caused in oldest]
        for (form, caused), (earlier, _) in zip(shown, shown[1:]):
            form.__suppress_context__ = False
            form.__cause__, form.__context__ = (earlier, None) if caused else (None, earlier)
        return shown[0][0]

    def one(self, e, level, places=...):
        """Return the form of one exception."""
        self.left -= 1
        if places is ...:
            places = Places(TRACEBACK.__get__(e), self.check)
        tb = None if places is None else places.traceback()
        form = traceback.TracebackException(type(e), e, tb, lookup_lines=False, _seen=Everything())
        self.check()  # it swallows the interrupt of a method of the exception
        form._str = bounded(form._str)
        if places is not None:
            form.stack = places.stack(form.stack)
        form.__cause__ = form.__context__ = form.exceptions = None
        self.notes(form)
        if issubclass(type(e), SyntaxError):
            clip(form)
        if GROUP and issubclass(type(e), GROUP):
            form.exceptions = self.members(GROUP.exceptions.__get__(e), level)
        return form

    def members(self, exceptions, level):
        if level > LEVELS:
            return [Omitted(counted(len(exceptions), "exception"))]
        shown = []
        for e in exceptions[:MEMBERS]:
            if self.left <= 0:
                break
            shown.append(self.chain(e, level + 1))
        if len(shown) < len(exceptions):
            del shown[MEMBERS - 1 :]
            shown.append(Omitted(counted(len(exceptions) - len(shown), "exception")))
        return shown

    def notes(self, form):
        notes = getattr(form, "__notes__", None)
        if notes is None:
            return
        if not isinstance(notes, (list, tuple)):
            form.__notes__ = [self.text(notes, repr)]
            return
        form.__notes__ = [self.text(note, str) for note in islice(iter(notes), NOTES)]
        if len(notes) > NOTES:
            form.__notes__.append("[… %s …]" % counted(len(notes) - NOTES, "note"))

    def text(self, value, function):
        try:
            text = call(function, value)
        except Exception:
            text = "<%s() failed>" % function.__name__
        self.check()
        return bounded(text)


def bounded(text):
    return middle(text if type(text) is str else str.__str__(text), "", MAX_TEXT)


def counted(n, what):
    return "%s %s%s left out" % (thousands(n), what, "" if n == 1 else "s")


# Frames.


def gap(n, what):
    return "  [… %s %s …]\n" % (thousands(n), what)


LIBRARIES = (traceback.__file__.rpartition("/")[0] + "/", "<frozen ")
PACKAGES = ("/site-packages/", "/dist-packages/")


def is_library(filename):
    return filename.startswith(LIBRARIES) or any(place in filename for place in PACKAGES)


def ours_removed(tb):
    """Remove our frames, and those of asyncio through which ours reached user code,
    from the beginning."""
    if tb is None or not tb.tb_frame.f_code.co_filename.startswith(OURS):
        return tb
    loop = sys.modules.get(__package__ + ".loop")
    carriers = OURS if loop is None else OURS + (loop.FOLDER,)
    first = tb
    while first is not None and first.tb_frame.f_code.co_filename.startswith(carriers):
        first = first.tb_next
    return first or tb


class Place:
    """Frames that follow each other and are shown as one: of libraries, or the same."""

    __slots__ = ("key", "first", "last", "count")

    def __init__(self, begin, end):
        """Make a place of where it and the next one begin. Each is a key, the place's first
        entry, how many frames come before it, and the entry of the last one of them."""
        self.key, tb, before, _ = begin
        self.count, self.last = end[2] - before, end[3]
        self.first = []
        while len(self.first) < min(self.count, REPEATS):
            if not tb.tb_frame.f_code.co_filename.startswith(OURS):
                self.first.append(tb)
            tb = tb.tb_next

    def shown(self):
        if self.count <= REPEATS or self.key is not None:
            return self.first
        return [self.first[0], self.last]

    def rest(self):
        """Return the line for the frames that are not shown, or None, and how many lines
        of the others stand behind it."""
        n = self.count - len(self.shown())
        if n <= 0:
            return None, 0
        if self.key is None:
            return gap(n, "frames of libraries"), 1
        return "  [Previous line repeated %d more time%s]\n" % (n, "" if n == 1 else "s"), 0


class Places:
    """The places of a traceback: the first ones and the last ones."""

    def __init__(self, tb, check):
        first, last = [], deque(maxlen=LAST_PLACES)
        # A traceback may have a million entries, so the loop reads little of each. Where there
        # is an audit hook, tb_frame, f_code and id() cost most: each raises an event.
        same, index, identity = None, -1, object.__hash__
        libraries, keys, current, seen, frames, before = {}, {}, OURS, 0, 0, None
        tb = ours_removed(tb)
        while tb is not None:
            if seen % 1000 == 0:
                check()
            seen += 1
            code = tb.tb_frame.f_code
            if code is not same or tb.tb_lasti != index:
                # The number of a line takes a walk through the lines of the code.
                at = identity(code), tb.tb_lasti
                key = keys.get(at, OURS)
                if key is OURS:
                    filename = code.co_filename
                    if filename.startswith(OURS):
                        tb = tb.tb_next
                        continue
                    library = libraries.get(filename)
                    if library is None:
                        library = libraries[filename] = is_library(filename)
                    key = keys[at] = None if library else (filename, tb.tb_lineno, code.co_name)
                same, index = code, at[1]
                if key != current:
                    current = key
                    if len(first) <= FIRST_PLACES:  # one more than are shown: there the last of them ends
                        first.append((key, tb, frames, before))
                    if len(first) > FIRST_PLACES:
                        last.append((key, tb, frames, before))
            frames += 1
            before = tb
            tb = tb.tb_next
        end = None, None, frames, before
        self.hidden = last[0][2] - first[FIRST_PLACES][2] if last else 0
        self.first = [Place(*ends) for ends in zip(first[:FIRST_PLACES], (*first[1:], end))]
        self.last = [Place(*ends) for ends in zip(last, (*islice(last, 1, None), end))]

    def traceback(self):
        """Return a traceback of the frames that are shown."""
        made = None
        for tb in reversed([tb for place in (*self.first, *self.last) for tb in place.shown()]):
            made = type(tb)(made, tb.tb_frame, tb.tb_lasti, -1 if tb.tb_lineno is None else tb.tb_lineno)
        return made

    def stack(self, frames):
        """Return the Stack; frames is what module traceback has made of traceback()."""
        found, frames = Stack(), iter(frames)
        for number, place in enumerate((*self.first, *self.last)):
            if number == len(self.first) and self.hidden:
                found.append(gap(self.hidden, "frames"))
            mine = [trimmed(f, place.key is None) for f in islice(frames, len(place.shown()))]
            line, behind = place.rest()
            if line is not None and mine:
                mine.insert(len(mine) - behind, line)
            found += mine
        return found


def trimmed(frame, library):
    """Return a frame without what is too long. A frame of a library takes one line: its
    source says little about the code."""
    if library or not readable(frame.filename):
        return traceback.FrameSummary(frame.filename, frame.lineno, frame.name, lookup_line=False, line="")
    line = frame.lineno or 0
    end = getattr(frame, "end_lineno", None) or line
    if end - line <= MAX_SPAN and all(len(linecache.getline(frame.filename, n)) <= MAX_LINE for n in range(line, end + 1)):
        return frame
    text, _ = part(linecache.getline(frame.filename, line).strip(), getattr(frame, "colno", None) or 0)
    return traceback.FrameSummary(frame.filename, frame.lineno, frame.name, lookup_line=False, line=text)


def readable(filename):
    """Whether the source can be read at once: a file of any size, or none at all, can
    have its name."""
    if filename in linecache.cache or filename[:1] == "<":
        return True
    try:
        found = stat(filename)
    except (OSError, ValueError):  # a loader may know it
        return True
    return found.st_mode & 0o170000 == 0o100000 and found.st_size <= MAX_SOURCE


def part(line, at):
    """Return the part of a long line around a character, and how far it has moved."""
    if len(line) <= MAX_LINE:
        return line, 0
    start = max(0, min(at, len(line)) - PART // 2)
    before = "… " if start else ""
    return "%s%s …" % (before, line[start : start + PART]), start - len(before)


def clip(form):
    """Bound what a SyntaxError shows of its line."""
    if type(form.text) is not str:
        form.text = None
        return
    end = getattr(form, "end_offset", None)
    columns = [n if type(n) is int else 0 for n in (form.offset, end)]
    form.text, moved = part(form.text, columns[0])
    most = len(form.text) + 1
    if type(form.offset) is not int:
        form.offset = None
    else:
        form.offset = min(max(columns[0] - moved, 0), most)
    if end is not None:
        form.end_offset = min(max(columns[1] - moved, 0), most) if columns[1] > 0 else columns[1] and -1
