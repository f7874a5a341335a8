"""One execution: compile, run, show the last value, report how it ended."""

from . import BUILTINS as __builtins__

import builtins
import sys
from posix import _exit

from . import codec, output
from .channel import Gone
from .compiler import compile_source
from .interrupt import PLACE, call, call_named
from .output import midline, with_a_descriptor
from .slot import Slot

AWAITS = 0x80  # inspect.CO_COROUTINE


async def _nothing():
    pass


_coroutine = _nothing()
Coroutine = type(_coroutine)
_coroutine.close()

namespace = {}  # the session's
RETURN = compile("f()", "", "eval").co_code[-2:-1]


def print_last(*arguments, **named):
    """What code calls that ends with a call of print."""
    function = printing()
    text = printed(arguments, **named) if function is print and named.keys() <= {"sep", "end"} else None
    if text is None:
        call_named(function, arguments, named)
    else:
        output.hold(sys.stdout, text)


def print_perhaps(*arguments, **named):
    """What code calls that may end with a call of print."""
    frame = sys._getframe(1)
    # Nothing of the user's may run once something is held back.
    ends = frame.f_code.co_code[frame.f_lasti + 2 :].lstrip(b"\0")[:1] == RETURN
    if ends:
        print_last(*arguments, **named)
    else:
        call_named(printing(), arguments, named)


def printing():
    """Return what the name print stands for in the session."""
    function = namespace.get("print", absent)
    if function is absent:
        function = vars(builtins).get("print", absent)
        if function is absent:
            raise NameError("name 'print' is not defined")
    return function


def printed(arguments, sep=" ", end="\n"):
    """Return what print writes, or None if that may be long, or may run user code."""
    for value in (*arguments, sep, end):
        kind = type(value)
        if kind not in PRINTED or kind is int and not fits(value) or kind is str and len(value) > output.HELD:
            return None
    if len(arguments) > 100 or not type(sep) is type(end) is str:
        return None
    return sep.join(map(str, arguments)) + end


absent = object()
PRINTED = frozenset([bool, int, float, complex, str, type(None)])


def run(session, source, filename, echo):
    """Run source. Return the status and the exit code of the execution."""
    interrupts = session.interrupts
    del shown[:]
    session.told = ()
    try:
        try:
            interrupts.armed = True  # a warning may run user code
            code, last = compile_source(source, filename, echo)
        except BaseException as e:
            session.submitted = source
            repaired = repair(source, filename, e) if echo else e
            if isinstance(repaired, BaseException):
                outcome = failed(session, repaired, True)
                interrupts.disarm()
                return outcome
            source, code, last = repaired
        finally:
            interrupts.armed = False
        session.sources.add(filename, source)
        loop = session.asyncio
        if loop is None and ("asyncio" in source or "asyncio" in sys.modules):
            loop = session.use_asyncio()
        awaits = (0 if code is None else code.co_flags) | (0 if last is None else last.co_flags)
        try:
            interrupts.arm()
            if session.wanted or "# /// script" in source:
                packages(session, source)
            try:
                if awaits & AWAITS:
                    steps = run_awaiting(code, last, session.namespace)
                    if loop is not None:
                        loop.run(steps)
                    else:
                        drive(session, steps)
                else:
                    if loop is not None:
                        loop.enter()
                    if code is not None:
                        exec(code, session.namespace)
                    if last is not None:
                        evaluate_and_show(last, session.namespace, eval, show)
            except MemoryError:
                if session.guard is not None:
                    session.guard.relieve()
                raise
            finally:
                if session.threads is not None and not interrupts.happened:
                    if session.threads.pending:
                        output.release()
                    session.threads.finish()
                if "matplotlib.pyplot" in sys.modules and not interrupts.happened and not session.channel.closed:
                    output.release()
                    session.show_figures()
        finally:
            # This comes before any other call of ours. The interpreter itself
            # removes what raises; a profile function sees even this call.
            try:
                sys.settrace(None)
                sys.setprofile(None)
            except BaseException:
                pass
            interrupts.disarm()
    except Gone:
        raise
    except SystemExit as e:
        interrupts.resume()
        outcome = "exit", exit_code(session, e)
    except BaseException as e:
        outcome = failed(session, e, False)
    else:
        outcome = "ok", 0
        if echo and (forgotten(session, code) or "install" in source or "add" in source):
            tell(session, source, code)
    # This comes after the last object that only the exception kept alive.
    interrupts.disarm()
    if session.channel.closed:
        # The code forked and this is the child: it ends where the code ends.
        session.streams.flush()
        _exit(outcome[1])
    return outcome


def packages(session, source):
    """Add what the code needs before it runs."""
    from . import inline, install

    wanted, session.wanted = session.wanted, ()
    install.again(session, wanted)
    inline.prepare(session, source)


def tell(session, source, code):
    """Add hints for code that has succeeded."""
    session.interrupts.resume()
    try:
        from . import hints

        hints.tell(session, source, forgotten(session, code))
    except Gone:
        raise
    except BaseException:  # an interrupt, or code that nests too deeply
        pass


def repair(source, filename, error):
    """Compile source without its Markdown fences or uniform indentation. Return
    (source, code, last), or the error."""
    if not isinstance(error, SyntaxError):
        return error
    from .bare import bare

    source = bare(source)
    if source is None:
        return error
    try:
        return (source, *compile_source(source, filename, True))
    except BaseException as e:
        return e


def forgotten(session, code):
    """Report whether the code has called something that it did not await: a tool, or
    an asynchronous function whose coroutine it still has."""
    registry = session._registry
    if shown or registry is not None and registry.unstarted > 0:
        return True
    get = session.namespace.get
    for name in () if code is None else code.co_names:
        if type(get(name)) is Coroutine:
            return True
    return False


# A warning about a value that is dropped here (a coroutine that was not
# awaited) names this frame, so it should not be a line of this file.
evaluate_and_show = eval(compile("lambda code, namespace, eval, show: show(eval(code, namespace))", PLACE, "eval"))


async def run_awaiting(code, last, namespace):
    if code is not None:
        result = eval(code, namespace)
        if code.co_flags & AWAITS:
            await result
    if last is not None:
        value = eval(last, namespace)
        if last.co_flags & AWAITS:
            value = await value
        show(value)


def drive(session, coroutine):
    """Run a coroutine without an event loop: while it waits only for the host's replies
    it needs none, and importing asyncio is slow."""
    channel = session.channel
    resume, argument = coroutine.send, None
    session.driving = True
    try:
        while True:
            awaited = resume(argument)
            resume, argument = coroutine.send, None
            if type(awaited) is Slot:
                try:
                    channel.wait(awaited)
                except KeyboardInterrupt as e:
                    resume, argument = coroutine.throw, e
            elif session.asyncio is not None:
                return session.asyncio.take_over(coroutine, awaited)
            else:
                resume = coroutine.throw
                argument = RuntimeError("%r cannot be awaited without a running event loop" % (awaited,))
    except StopIteration as e:
        return e.value
    finally:
        session.driving = False
        if session.asyncio is not None:
            relay = session.asyncio.expected()
            if relay is not None:
                session.asyncio.loop.run_until_complete(relay.task)


LONG = 1000  # characters of a repr that may be worth shortening


def show(value):
    """Print the value of a last expression, like an interactive Python."""
    if value is None:
        return
    hook = sys.displayhook
    if hook is displayhook:
        displayhook(value, last=True)
    else:
        hook(value)


shown = []  # the coroutines that displayhook was given in this execution


# Types whose values have nothing besides their repr.
PLAIN = frozenset([bool, int, float, complex, str, bytes, bytearray, set, frozenset, Coroutine])
HOLDERS = frozenset([list, tuple, dict])  # of figures and pictures, if there are any
HELD = ("matplotlib.figure", "sallyport_guest.content")
rich = None  # session.Session.rich


def displayhook(value, keep=True, last=False):
    """sys.displayhook, unless user code has set its own. It keeps the value as _. The
    last one is what the execution ends with."""
    if value is None:
        return
    kind = type(value)
    text = None
    if any(name in sys.modules for name in HELD) if kind in HOLDERS else kind not in PLAIN:
        text = rich(value)
    if text is None:
        text = call(repr, value) if fits(value) else None
        if text is None or len(text) > LONG:
            from .shorten import shortened

            text = shortened(value, text)
    out = sys.stdout
    text = "\n" + text + "\n" if midline(out) else text + "\n"
    if last:
        output.hold(out, text)
    else:
        out.write(text)
    if not keep:
        return
    if kind is not Coroutine:  # else nothing would say that it was not awaited
        builtins._ = value
    elif value.cr_frame is not None:  # it has not ended
        shown.append(value.__name__)


CONTAINERS = frozenset([list, tuple, set, frozenset, dict, type({}.keys()), type({}.values()), type({}.items())])
DEEP = 100  # containers in one another, of which no repr fits


def fits(value):
    """Return whether the repr of a value may be short. Values of Python's own types may
    have an endless one, which no interrupt ends."""
    try:
        return room(value, LONG) >= 0
    except RuntimeError:  # a thread changes it
        return True


def room(value, left, around=()):
    """Return how many characters are left at most after the repr of a value, less than 0
    if it does not fit. around has the containers that it is in."""
    kind = type(value)
    if kind in (str, bytes, bytearray):
        return left - len(value)
    if kind is int:
        return left - (value.bit_length() >> 2)
    if kind not in CONTAINERS and getattr(sys.modules.get("_collections"), CLASS_NAME(kind), None) is not kind or id(value) in around:
        return left
    left -= len(value) + 1
    if left < 0 or len(around) > DEEP:
        return -1
    around += (id(value),)
    for part in (value, value.values()) if isinstance(value, dict) else (value,):
        for item in part:
            left = room(item, left, around)
            if left < 0:
                return left
    return left


def exit_code(session, e):
    """Convert sys.exit's argument to an exit code. It may be any object."""
    try:
        code = e.code
        if code is None:
            return 0
        if issubclass(type(code), int):
            return int.__and__(code, 0xFF)
        session.streams.end_line()
        print(call(str, code), file=sys.stderr)
    except BaseException:
        pass
    return 1


def failed(session, e, compiling):
    """Report an exception. After an interrupt this ends with what is known then."""
    interrupts = session.interrupts
    before = interrupts.happened
    interrupted = before and isinstance(e, KeyboardInterrupt)
    interrupts.resume()
    if session.guard is not None and (session.guard.scarce() or issubclass(type(e), MemoryError)):
        session.guard.relieve()
    try:
        session.streams.end_line()
        with_a_descriptor(import_report).report(session, e, compiling)
    except Gone:
        raise
    except BaseException as problem:  # an interrupt, no memory, an exception that defends itself
        why = "an interrupt came first" if interrupts.happened else CLASS_NAME(type(problem))
        known = ": ".join(filter(None, plainly(e)))
        session.streams.say("%s\n(its traceback cannot be shown: %s)\n" % (known, why))
    if not interrupted and not interrupts.happened:
        session.error = described(e)
    interrupted = interrupted or interrupts.happened
    interrupts.happened = interrupted or before
    try:  # a method of the exception may have set these
        sys.settrace(None)
        sys.setprofile(None)
    except BaseException:
        pass
    return ("interrupted", 130) if interrupted else ("error", 1)


def import_report():
    from . import report

    return report


MAX_TYPE = 200
MAX_MESSAGE = 500


def described(e):
    """Return the type of an exception, and the first line of its message. Both come
    from user code, which can make them raise or return anything."""
    kind, message = "Exception", ""
    try:
        name, module = type(e).__qualname__, type(e).__module__
        if isinstance(module, str) and module not in ("builtins", "__main__"):
            name = module + "." + name
        kind = str.strip(name)[:MAX_TYPE] or kind
    except BaseException:
        pass
    try:
        message = str.strip(call(str, e))
        message = message.splitlines()[0][:MAX_MESSAGE] if message else ""
    except BaseException:
        pass
    return kind, message


CLASS_NAME = vars(type)["__name__"].__get__


def plainly(e):
    """Return the same without running any user code."""
    arguments = BaseException.args.__get__(e)
    message = arguments[0] if len(arguments) == 1 and type(arguments[0]) is str else ""
    return str.__str__(CLASS_NAME(type(e)))[:MAX_TYPE], message.strip()[:MAX_MESSAGE]


def error_member(error):
    """Return the member of a done frame that names an uncaught exception, or
    nothing."""
    if error is None:
        return ""
    return ',"error":{"type":%s,"message":%s}' % (codec.quote(error[0]), codec.quote(error[1]))
