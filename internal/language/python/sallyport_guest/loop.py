"""asyncio, for sessions that use it: one event loop that lives as long as the
session, and reads the channel itself.

Reading in the loop's own selector saves every tool call two switches between
threads. Loops that user code makes (asyncio.run does) read the channel in the same
way while they run in the main thread.
"""

from . import BUILTINS as __builtins__

import asyncio
import functools
import selectors
import sys
from _thread import _count as thread_count, get_ident
from asyncio import events, tasks

from .channel import Gone, Parked
from .descriptors import SINGLE

if SINGLE:
    from select import select
    from selectors import SelectSelector as BaseSelector
else:
    from select import POLLIN, POLLOUT
    from selectors import PollSelector as BaseSelector

# Of asyncio's code. In an archive, __file__ is another one.
FOLDER = events.AbstractEventLoop.close.__code__.co_filename.rpartition("/")[0] + "/"
LOOKING_IS_CHEAP = sys.version_info >= (3, 12)  # before, it takes a system call


class Selector(BaseSelector):
    reads_channel = True

    def __init__(self, channel):
        super().__init__()
        self.channel = channel
        self.loop = None  # set by it
        self.watched = ()

    def watch(self):
        """Watch the channel only while it is this thread's turn to read."""
        channel = self.channel
        wanted = ()
        if not channel.closed and get_ident() == channel.main:
            wake = channel.wakeable()
            wanted = (wake,) if channel.threaded else (wake, channel.fd_in)
        if wanted != self.watched:
            for fd in self.watched:
                if fd not in wanted:
                    self._selector.unregister(fd)
            for fd in wanted:
                self._selector.register(fd, POLLIN)
            self.watched = wanted

    def alone(self):
        """Whether only a frame can arrive: the one descriptor is the loop's own, on
        which threads and signals wake it. Waiting in the read itself then saves a
        system call."""
        return (
            len(self.get_map()) == 1
            and not thread_count()
            and not self.channel.threaded
            and not self.loop._signal_handlers
        )

    def select(self, timeout=None):
        channel = self.channel
        if channel.closed or get_ident() != channel.main:
            if self.watched:
                self.watch()
            return super().select(timeout)
        channel.flush()
        interrupts = channel.interrupts
        interrupts.check()
        if channel.others is not None and channel.others(timeout):
            timeout = 0
        if channel.buffered() and not channel.threaded:
            channel.pump()
            timeout = 0
        elif SINGLE and self.loop is channel.idling and timeout != 0:
            channel.park(timeout)
            return self.wait_for_frame(timeout)
        elif timeout is None and self.alone():
            channel.pump()
            return []
        if SINGLE:
            return self.wait_for_frame(timeout)
        self.watch()
        if timeout is None:
            wait = None
        elif timeout <= 0:
            wait = 0
        else:
            wait = -int(-timeout * 1000 // 1)
        interrupts.waiting = wait != 0
        try:
            polled = self._selector.poll(wait)
        finally:
            interrupts.waiting = False
        ready = []
        for fd, event in polled:
            if fd == channel.fd_in:
                channel.pump()
            elif fd in self.watched:
                channel.woken()
            else:
                key = self.get_map().get(fd)
                if key is not None:
                    mask = (selectors.EVENT_WRITE if event & ~POLLIN else 0) | (
                        selectors.EVENT_READ if event & ~POLLOUT else 0
                    )
                    ready.append((key, mask & key.events))
        return ready

    def wait_for_frame(self, timeout):
        """In a single process, only a frame can arrive or the timeout expire."""
        channel = self.channel
        if timeout is not None:
            channel.interrupts.waiting = timeout > 0
            try:
                ready = select([channel.fd_in], (), (), max(timeout, 0))[0]
            finally:
                channel.interrupts.waiting = False
            if not ready:
                return []
        channel.pump()
        return []


class Loop(asyncio.SelectorEventLoop):
    """The loop of a session, and every loop that asyncio makes for user code."""

    def __init__(self, channel):
        selector = Selector(channel)
        super().__init__(selector)
        selector.loop = self

    if SINGLE:  # no thread can wake it: it needs no sockets for that

        def _make_self_pipe(self):
            pass

        def _close_self_pipe(self):
            pass

        def _write_to_self(self):
            pass


class Aside:
    """Puts the running loop of this thread aside, so that another can run: to the first
    one, this is a blocking call."""

    def __enter__(self):
        self.loop = events._get_running_loop()
        if self.loop is not None:
            self.task = tasks.current_task(self.loop)
            if self.task is not None:
                tasks._leave_task(self.loop, self.task)
            events._set_running_loop(None)

    def __exit__(self, *error):
        if self.loop is not None:
            events._set_running_loop(self.loop)
            if self.task is not None:
                tasks._enter_task(self.loop, self.task)


class Asyncio:
    """asyncio as a session sees it. Made once, in the main thread."""

    def __init__(self, channel, interrupts):
        self.channel = channel
        interrupts.quiet += (asyncio.__file__.rpartition("/")[0] + "/", selectors.__file__)
        self.relay = None
        self.marked = False  # the loop is marked as running, but does not run
        policy = getattr(events, "_get_event_loop_policy", events.get_event_loop_policy)()
        policy._loop_factory = functools.partial(Loop, channel)
        self.loop = Loop(channel)
        events.set_event_loop(self.loop)
        allow_nesting(channel)

    def enter(self):
        """Mark the loop as the running one for code that runs outside it, so that
        asyncio.create_task works as in a notebook. The mark stays between executions:
        setting it takes system calls in CPython 3.11."""
        if not self.marked or LOOKING_IS_CHEAP and events._get_running_loop() is None:
            self.marked = True
            events._set_running_loop(self.loop)

    def leave(self):
        if self.marked:
            self.marked = False
            events._set_running_loop(None)

    def run(self, coroutine):
        """Run a coroutine to its end, and everything else in the loop meanwhile."""
        self.leave()
        loop = self.loop
        task = loop.create_task(coroutine)
        try:
            return loop.run_until_complete(task)
        except (KeyboardInterrupt, SystemExit) as e:
            if task.done():
                raise
            # It arrived while the loop waited, or came from another task.
            task.cancel()
            try:
                loop.run_until_complete(task)
            except asyncio.CancelledError as c:
                if isinstance(e, KeyboardInterrupt):
                    # This is where the code was when it was interrupted.
                    raise e.with_traceback(cancelled_at(c)) from None
            raise e from None

    def busy(self):
        """Whether there is anything to do between executions."""
        loop = self.loop
        return bool(
            loop._ready or loop._scheduled or len(loop._selector.get_map()) > 1 or thread_count() or self.tasks()
        )

    def tasks(self):
        try:
            return len(tasks.all_tasks(self.loop))
        except Exception:  # changed by a thread meanwhile, or a task of another kind
            return 1

    def idle(self):
        """Run what is in the loop until an exec frame arrives."""
        channel = self.channel
        self.leave()

        def stop():
            if get_ident() == channel.main:
                self.loop.stop()
            else:
                self.loop.call_soon_threadsafe(self.loop.stop)

        channel.on_exec = stop
        channel.idling = self.loop
        try:
            while not channel.execs:
                try:
                    self.loop.run_forever()
                except (Gone, Parked):
                    raise
                except BaseException:
                    # From a task; the task has it too.
                    if self.loop.is_closed():
                        self.reopen()
                        return
        finally:
            channel.on_exec = channel.idling = None

    def reopen(self):
        """User code closed the loop."""
        self.leave()
        self.loop = Loop(self.channel)
        events.set_event_loop(self.loop)

    # If execute.drive runs a coroutine without a loop and the coroutine imports
    # asyncio, a task takes it over. The task exists from the import on, because
    # code may ask for the current one.

    def expect(self):
        self.enter()
        self.relay = Relay(self.loop)
        tasks._enter_task(self.loop, self.relay.task)

    def expected(self):
        """Either there was nothing to take over, or it has been taken over."""
        relay, self.relay = self.relay, None
        if relay is not None:
            tasks._leave_task(self.loop, relay.task)
        self.leave()
        return relay

    def take_over(self, coroutine, awaited):
        relay = self.expected() or Relay(self.loop)
        relay.coroutine, relay.awaited = coroutine, awaited
        try:
            return self.loop.run_until_complete(relay.task)
        except (KeyboardInterrupt, SystemExit):
            relay.task.cancel()
            raise


def cancelled_at(e):
    """Return the traceback of the code that was cancelled. Before 3.11 it is that of an
    error from which this one was made."""
    while isinstance(e.__context__, asyncio.CancelledError):
        e = e.__context__
    return e.__traceback__


class Relay:
    """A task for a coroutine that has run without one so far."""

    def __init__(self, loop):
        self.coroutine = self.awaited = None
        self.task = loop.create_task(self.go())

    async def go(self):
        if self.coroutine is not None:
            return await self

    def __await__(self):
        awaited = self.awaited
        while True:
            try:
                value = yield awaited
            except BaseException as e:
                resume, argument = self.coroutine.throw, e
            else:
                resume, argument = self.coroutine.send, value
            try:
                awaited = resume(argument)
            except StopIteration as e:
                return e.value


def allow_nesting(channel):
    """Let another loop run inside the running one: agents write asyncio.run all the
    time. A loop that is itself running still refuses."""

    def nesting(f):
        @functools.wraps(f)
        def run(*args, **kwargs):
            if get_ident() != channel.main:
                return f(*args, **kwargs)
            with Aside():
                return f(*args, **kwargs)

        return run

    asyncio.run = asyncio.runners.run = nesting(asyncio.runners.run)
    if hasattr(asyncio, "Runner"):
        asyncio.Runner.run = nesting(asyncio.Runner.run)
    for name in ("run_forever", "run_until_complete"):
        setattr(asyncio.BaseEventLoop, name, nesting(getattr(asyncio.BaseEventLoop, name)))
