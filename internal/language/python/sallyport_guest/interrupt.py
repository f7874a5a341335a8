"""The host's SIGINT: it ends what user code does, and leaves our own state intact.

The handler raises KeyboardInterrupt in user code, and in the one kind of place
where our code waits on its behalf. Anywhere else in our code, and in the event
loop's, the interrupt is deferred until user code continues or waits. So no frame is
ever torn, and no lock stays locked.
"""

from . import BUILTINS as __builtins__

import sys

import _signal

# The files of this package as its byte code names them: an engine without a root of its
# own loads them from elsewhere.
PACKAGE = (lambda: 0).__code__.co_filename.rpartition("/")[0] + "/"
PLACE = "<sallyport>"  # the file name of our code that tracebacks may show
CALL = "<sallyport call>"
OURS = (PACKAGE, PLACE, CALL)

# Calls what may run user code, or C code for long, like the repr of a list: an
# interrupt ends it, while code of this package would wait for its end.
call = eval(compile("lambda function, *arguments: function(*arguments)", CALL, "eval"))

call_named = eval(compile("lambda function, arguments, named: function(*arguments, **named)", CALL, "eval"))
# The function that calls first, and then function, which may take long.
after = eval(compile("lambda first, function: lambda *a, **named: (first(*a, **named), function(*a, **named))[1]", CALL, "eval"))


class Interrupts:
    def __init__(self):
        self.begun = False  # an execution is under way
        self.armed = False  # and user code runs
        self.happened = False  # in this execution
        self.waiting = False  # our code waits for user code: raise there
        self.deferred = False
        self.quiet = PACKAGE, PLACE  # the files of code that is never interrupted
        self.handler = self.on_signal  # one object, so that it can be recognised

    def on_signal(self, number, frame):
        if not self.begun:
            return
        self.happened = True
        if not self.armed:
            self.deferred = True
            return
        if not self.waiting and frame is not None and frame.f_code.co_filename.startswith(self.quiet):
            self.deferred = True
            sys.setprofile(self.on_event)
            return
        self.waiting = self.deferred = False
        raise KeyboardInterrupt

    def on_event(self, frame, event, argument):
        """A profile function: runs at the next call or return of anything."""
        if not self.deferred or not self.armed:
            sys.setprofile(None)
            return
        quiet = frame.f_code.co_filename.startswith(self.quiet)
        if quiet and event == "return" and frame.f_back is not None:
            # Our code is done. If user code has called it, that goes on now.
            quiet = frame.f_back.f_code.co_filename.startswith(self.quiet)
        if not quiet:
            self.deferred = False
            sys.setprofile(None)
            raise KeyboardInterrupt

    def install(self):
        if _signal.getsignal(_signal.SIGINT) is not self.handler:
            _signal.signal(_signal.SIGINT, self.handler)

    def begin(self):
        """An execution begins: from now on interrupts are meant for it."""
        self.happened = self.deferred = False
        self.begun = True

    def arm(self):
        """User code begins."""
        self.armed = True
        self.check()

    def resume(self):
        """Let the host interrupt what user code has left to run after its end: a method of
        its exception, a stream of its own."""
        self.install()
        self.happened = self.deferred = False
        self.begun = self.armed = True

    def stop(self):
        """Raise if there was an interrupt, even if something has caught it."""
        if self.happened:
            self.deferred = False
            raise KeyboardInterrupt

    def disarm(self):
        self.armed = self.begun = False

    def check(self):
        """Raise a deferred interrupt. Called before waiting."""
        if self.deferred:
            self.deferred = False
            sys.setprofile(None)
            if self.armed:
                raise KeyboardInterrupt
