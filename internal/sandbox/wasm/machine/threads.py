"""Threads where the system has none.

A thread that was started runs when another one waits: for its end, a lock, a queue, an
event, a moment. It runs in the waiter's place, to its own end. Where it has to wait
itself, others run in its place. A thread whose wait only the threads below it can end
is itself ended, once they can go on; a wait that nothing can end raises RuntimeError.

Two threads that take turns at one another's waits cannot both go on, so the rest is to
choose well: what is joined runs first, a thread that sleeps or ticks leaves the others
alone, since that ends by itself, and one that waits longer for another thread does not.
"""

import _thread
import functools
import sys
import threading
import time
from _contextvars import Context
from collections import deque
from itertools import count

from sallyport_guest import belonging
from sallyport_guest.channel import Gone

locks = sys.modules["_sallyport_locks"]

DEADLOCK = (
    "deadlock: nothing can end this wait. Threads do not run at the same time in this sandbox: one that was started runs,"
    " to its end, when another waits. Fill a queue and set an event before the code that waits for them, or use asyncio"
)
ALONE = "threads run while another one waits here, and never at the same time or after the code"
AFTER = 10  # seconds for what is left when the code has ended, or for a thread after those below can go on
GRACE = 1  # the same for a daemon
SLEEPS = 3  # seconds that a thread sleeps before others than its like run meanwhile
TICK = 1  # seconds; a shorter wait for an event is a kind of sleep
EXTRA = 10_000  # what a full queue takes from a thread that would wait for good
MOST = 40  # threads within one another in timed waits
SPINS = 100  # questions after which the threads that could change the answer run

monotonic, real_sleep, real_ident = time.monotonic, time.sleep, _thread.get_ident
session = None
pending = deque()  # of jobs
running = []  # jobs within one another
waits = []  # the waits in which they run
numbers = count(2)
spins = 0
ending = None  # when what is left has to end


class Ended(BaseException):
    """Ends a thread at a wait."""


class Job:
    def __init__(self, function, args, kwargs, handle, daemon):
        self.function, self.args, self.kwargs = function, args, kwargs
        self.handle, self.daemon = handle, daemon
        self.execution = belonging.of()
        self.pool = None
        self.passed = None  # what ended it and ends the code
        self.polls = 0  # of something that only those below can do
        self.asks = False  # whether an event is set, between its sleeps
        self.ticks = False  # waits for an event, but for a moment only
        self.slept = self.late = 0  # seconds; late are those in which the ones below could go on
        self.told = False  # that a wait for an event was in vain
        owner = getattr(function, "__self__", None)
        self.kind = function if owner is None else getattr(owner, "_target", None) or type(owner)

    def can_run(self):
        return self.pool is None or self.pool.at_work < self.pool._max_workers

    def go(self):
        belonging.current.set(self.execution)
        self.function(*self.args, **self.kwargs)


class Wait:
    def __init__(self, ready, deadline, handle=None):
        self.ready, self.deadline = ready, deadline
        self.handle = handle  # of the thread whose end it is about

    def over(self):
        return self.ready() or self.deadline is not None and monotonic() >= self.deadline


def never():
    return False


def get_ident():
    """Return a number that no other thread has now."""
    return running[-1].handle.ident if running else real_ident()


# Waiting.


def block(ready, timeout=None, polls=False, handle=None):
    """Wait until ready() is true, and let other threads run. Return whether it is true;
    it may be false after timeout. It polls if another thread is what makes it true."""
    deadline = None if timeout is None else monotonic() + timeout
    waits.append(Wait(ready, deadline, handle))
    try:
        while not ready():
            job = choose(deadline is not None, polls)
            if job is not None:
                run(job)
            elif deadline is None:
                stuck()
            else:
                leave(polls, deadline)
                seconds = deadline - monotonic()
                if running:
                    running[-1].slept += max(seconds, 0)
                rest(seconds)
            if deadline is not None and monotonic() >= deadline:
                return ready()
        return True
    finally:
        waits.pop()


def choose(timed, polls):
    """Take the thread that runs next, or None. Who holds a lock, or only waits for a
    moment, is not kept from going on by a thread that may wait for it."""
    like = None
    if timed:
        if locks.held or len(running) >= MOST:
            return None
        if running and not open_to_all(running[-1], polls):
            like = running[-1].kind
    joined = waits[-1].handle
    able = [job for job in pending if job.can_run() and (like is None or job.kind == like or job.handle is joined)]
    job = next((job for job in able if job.handle is joined), able[0] if able else None)
    if job is not None:
        pending.remove(job)
    return job


def open_to_all(job, polls):
    """Report whether threads of another kind may run in a thread's timed wait: it is for
    what they do, and no thread below could go on."""
    return (polls and not job.ticks or job.asks or job.slept >= SLEEPS) and not any(wait.over() for wait in waits[:-1])


def stuck():
    """A wait has no deadline and no thread is left: what is below can end it at most."""
    if running:
        if any(wait.over() for wait in waits[:-1]):
            raise Ended
        deadlines = [wait.deadline for wait in waits[:-1] if wait.deadline is not None]
        if deadlines:
            rest(min(deadlines) - monotonic())
            return
    raise RuntimeError(DEADLOCK)


def leave(polls=False, deadline=None):
    """End the running thread if those below can go on and it need not: it is a daemon, or
    asks again and again for what only they can do. Nor does it outlive the code by much."""
    if ending is not None and deadline is not None and deadline > ending:
        raise Ended
    if not running or not any(wait.over() for wait in waits[:-1]):
        return
    job = running[-1]
    job.polls += polls
    if job.polls > (0 if job.daemon else 2):
        raise Ended
    if deadline is not None:
        seconds = max(deadline - monotonic(), 0)
        if job.late + seconds > GRACE if job.daemon else job.late > AFTER:
            if job.daemon:
                job.handle.lost = threading.current_thread().name
            raise Ended
        job.late += seconds


def rest(seconds):
    """Sleep. An interrupt ends it."""
    if seconds > 0:
        interrupts = session.interrupts
        interrupts.check()
        interrupts.waiting = True
        try:
            real_sleep(seconds)
        finally:
            interrupts.waiting = False


def polled():
    """Code has asked for something that is not so yet. If it does nothing else, let other
    threads run."""
    global spins
    if running:
        running[-1].asks = True
        waits.append(Wait(never, None))
        try:
            leave(True)
        finally:
            waits.pop()
        return
    spins += 1
    if spins >= SPINS and pending:
        spins = 0
        block(lambda: not any(job.can_run() for job in pending), 0)


def run(job):
    """Run a thread to its end."""
    running.append(job)
    pool = job.pool
    if pool is not None:
        pool.at_work += 1
    try:
        with aside():
            Context().run(job.go)
    except Ended:
        pass
    except SystemExit:
        pass
    except (Gone, KeyboardInterrupt) as e:
        job.passed = e
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        running.pop()
        job.handle.done = True
        if pool is not None:
            pool.at_work -= 1
    if job.passed is not None:
        raise job.passed
    session.interrupts.stop()


def hook_of_threads(make):
    """Wrap what makes the function that reports a thread's exception."""

    def make_now():
        report = make()

        def reported(thread):
            e = sys.exc_info()[1]
            if isinstance(e, Gone) or isinstance(e, KeyboardInterrupt) and session.interrupts.happened:
                running[-1].passed = e  # it is not the thread's
            elif not isinstance(e, Ended):
                report(thread)
            elif not thread.daemon:
                say("%s was ended at a wait" % thread.name)

        return reported

    return make_now


def say(what):
    session.streams.say("sallyport: %s: %s\n" % (what, ALONE))


class Nothing:
    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


def aside():
    """Put the running event loop aside."""
    if "asyncio.events" not in sys.modules:
        return Nothing()
    from sallyport_guest.loop import Aside

    return Aside()


def others(timeout):
    """An event loop is about to wait. Return whether something has happened."""
    idle = session.channel.idling is not None
    if timeout is not None and timeout <= 0 or not pending and not running:
        return False
    waits.append(Wait(never, None if timeout is None else monotonic() + timeout))
    try:
        for job in pending:
            if job.can_run() and (job.pool is not None or not idle):
                pending.remove(job)
                run(job)
                return True
        if running and not session.channel.pending:
            if timeout is None:
                stuck()
                return True
            leave(deadline=waits[-1].deadline)
        return False
    finally:
        waits.pop()


def finish():
    """The code has ended: run what is left, except for daemons."""
    global ending
    if not pending:
        return
    ending = monotonic() + AFTER
    waits.append(Wait(lambda: True, None))
    try:
        while True:
            job = next((job for job in pending if not job.daemon and job.can_run()), None)
            if job is None:
                return
            pending.remove(job)
            run(job)
    finally:
        ending = None
        waits.pop()


# What module _thread has.


class Handle:
    def __init__(self):
        self.ident, self.done = 0, False
        self.lost = None  # the name of a thread that was ended at its work

    def is_done(self):
        if not self.done:
            polled()
        return self.done

    def _set_done(self):
        self.done = True

    def join(self, timeout=None):
        if timeout is None or timeout < 0:
            block(lambda: self.done, handle=self)
        elif not self.done:
            block(lambda: self.done, timeout, True, self)
        lost, self.lost = self.lost, None
        if lost is not None:  # the end of a daemon matters to who joins it
            say("%s was ended at a wait" % lost)


def make_thread_handle(ident):
    handle = Handle()
    handle.ident = ident
    return handle


def start_joinable_thread(function, handle=None, daemon=True):
    handle = Handle() if handle is None else handle
    handle.ident = next(numbers)
    pending.append(Job(function, (), {}, handle, daemon))
    for thread in list(threading._limbo):
        if thread._handle is handle:  # what starts it waits until it has begun
            thread._ident = handle.ident
            thread._started.set()
    return handle


def start_new_thread(function, args, kwargs={}, /):
    if not callable(function):
        raise TypeError("first arg must be callable")
    handle = make_thread_handle(next(numbers))
    pending.append(Job(function, tuple(args), kwargs, handle, True))
    return handle.ident


def sleep(seconds, /):
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    if pending or running:
        block(never, seconds)
    else:
        rest(seconds)


# What waits in vain.


def is_set(original, self):
    if not original(self):
        polled()
    return original(self)


def wait_for_event(original, self, timeout=None):
    job = running[-1] if running and timeout is not None else None
    if job is None:
        return original(self, timeout)
    job.ticks = timeout < TICK
    try:
        done = original(self, timeout)
    finally:
        job.ticks = False
    if not done and not job.told and any(wait.ready() for wait in waits):
        job.told = True
        say("%s has waited for an event in vain" % threading.current_thread().name)
    return done


def value_of(semaphore):
    return vars(semaphore)["_value"]


def set_value(semaphore, value):
    """Count what is taken from a semaphore among the locks that are held."""
    own = vars(semaphore)
    first = own.setdefault("_first_value", value)
    locks.held += max(first - value, 0) - max(first - own.get("_value", first), 0)
    own["_value"] = value


def drop(semaphore):
    own = vars(semaphore)
    if "_value" in own:
        locks.held -= max(own["_first_value"] - own["_value"], 0)


def put(original, self, item, block=True, timeout=None):
    """Put an item into a queue. One that is full takes it if other threads could only
    make room once this one has ended."""
    size = self.maxsize
    if not (block and 0 < size <= self._qsize() < size + EXTRA and (pending or running)):
        return original(self, item, block, timeout)
    self.maxsize = 0
    try:
        return original(self, item)
    finally:
        self.maxsize = size


# Putting it in place.


def replace(function, instead):
    """Put a function in the place of a method, which it gets as its first argument."""

    @functools.wraps(function)
    def method(self, *args, **kwargs):
        return instead(function, self, *args, **kwargs)

    module, _, name = function.__qualname__.partition(".")
    setattr(getattr(sys.modules[function.__module__], module), name, method)



def install(the_session):
    """Replace the threads of the interpreter, once everything is loaded that keeps the
    real ones."""
    global session
    session = the_session
    if not hasattr(_thread, "start_joinable_thread"):
        return  # before Python 3.13
    import _threading_local
    import queue

    import _queue

    lock = locks.Lock
    lock.__name__ = lock.__qualname__ = "lock"
    locks.block, locks.get_ident = block, get_ident
    for name, value in (
        ("lock", lock), ("LockType", lock), ("allocate_lock", lock), ("allocate", lock), ("RLock", locks.RLock), ("get_ident", get_ident),
        ("start_new_thread", start_new_thread), ("start_new", start_new_thread), ("start_joinable_thread", start_joinable_thread),
        ("_ThreadHandle", Handle), ("_make_thread_handle", make_thread_handle), ("_local", _threading_local.local),
    ):  # fmt: skip
        setattr(_thread, name, value)
    for name, value in (
        ("Lock", lock), ("_allocate_lock", locks.Signal), ("_CRLock", locks.RLock), ("get_ident", get_ident), ("get_native_id", get_ident),
        ("_start_joinable_thread", start_joinable_thread), ("_ThreadHandle", Handle), ("_make_thread_handle", make_thread_handle),
        ("local", _threading_local.local),
    ):  # fmt: skip
        setattr(threading, name, value)
    queue.SimpleQueue = _queue.SimpleQueue = queue._PySimpleQueue
    time.sleep = sleep
    threading._make_invoke_excepthook = hook_of_threads(threading._make_invoke_excepthook)
    for function, instead in ((threading.Event.is_set, is_set), (threading.Event.wait, wait_for_event), (queue.Queue.put, put)):
        replace(function, instead)
    threading.Event.isSet = threading.Event.is_set
    threading.Semaphore._value, threading.Semaphore.__del__ = property(value_of, set_value), drop
    main = threading.main_thread()
    main._handle = make_thread_handle(real_ident())
    session.threads = sys.modules[__name__]
    session.channel.others = others
