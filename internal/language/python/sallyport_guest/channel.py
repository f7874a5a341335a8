"""The interpreter's end of the control channel: frames, and calls under way.

Exactly one thread reads at a time. Usually it is the main thread, while it waits
for something: a reply, or the next execution. A call from another thread, when the
main thread may not wait, starts a reader thread, which takes over until it has read
the next exec frame.

While there is only one thread, no lock is taken: a lock reads the clock (in CPython
3.11 and 3.12), and where that is a system call, and system calls are slow, a few of
them cost as much as the call itself.
"""

from . import BUILTINS as __builtins__

import sys
from _thread import _count as thread_count, allocate_lock, get_ident, start_new_thread
from itertools import count
from posix import read, readv, set_blocking, write

from . import belonging, codec
from .messages import behind_frame, call_frame, cancel_frame, framed, parsed
from .slot import Slot

MAX_TO_GUEST = 128 << 20
MAX_FROM_GUEST = 32 << 20
KEEP = 64 << 10
WINDOW = 1000  # calls under way; further ones wait here


class Gone(BaseException):
    """The host is no longer there."""


class Parked(BaseException):
    """There is nothing to do until a frame arrives, or for some milliseconds if that is
    not None. It leaves the interpreter: see session.resume."""

    def __init__(self, milliseconds):
        super().__init__(milliseconds)
        self.milliseconds = milliseconds


class Channel:
    def __init__(self, fd_in, fd_out, interrupts):
        self.fd_in = fd_in
        self.fd_out = fd_out
        self.interrupts = interrupts
        self.main = get_ident()
        self.closed = False  # in a forked child

        self.run = 0  # the execution under way, or 0
        self.execution = None  # a unique object for it: numbers may repeat
        self.execs = []  # received while none was under way
        self.on_exec = None  # ends the main thread's event loop
        self.idle = None  # the slot that the main thread waits on for one
        self.ready = None  # in a single process that parks: whether fd_in can be read
        self.come = None  # a frame has; None: it is to be asked
        self.idling = None  # the event loop that may park
        self.others = None  # lets threads run in an event loop's wait, if no system does

        self.pending = {}
        self.behind = {}  # of those, the frames of calls that are not sent yet, by ID
        self.told = 0  # how many those are, as the host knows
        self.ids = count(1)
        self.outbox = []  # frames that wait for the event loop's next turn
        self.outbox_size = 0
        self.write_lock = allocate_lock()
        self.state_lock = allocate_lock()
        self.read_lock = allocate_lock()  # held while reading a frame
        self.threaded = False  # the reader thread reads
        self.unlocked = False  # the main thread reads, and has not taken the lock
        self.wake_fds = None
        self.poller = None

        self.fds = [fd_in]
        self.buffer = bytearray(KEEP)
        self.view = memoryview(self.buffer)
        self.whole = [[self.view]]
        self.start = self.end = 0
        # Reads that are not yet counted in end. C code inside extend appends the number: no
        # signal handler can run between a read and recording how much it read.
        self.arrived = []

    # Frames.

    def fill(self, buffers):
        """Wait for bytes."""
        interrupts = self.interrupts
        main = get_ident() == self.main
        if main:
            interrupts.check()
            interrupts.waiting = True
        try:
            self.arrived.extend(map(readv, self.fds, buffers))
        except OSError:
            raise Gone from None
        finally:
            if main:
                interrupts.waiting = False

    def count(self):
        while self.arrived:
            n = self.arrived.pop()
            if n == 0:
                raise Gone
            self.end += n

    def buffered(self):
        """Whether a frame, or its beginning, has arrived."""
        self.count()
        return self.end > self.start

    def frame(self):
        """Wait for the next frame and return its JSON."""
        while True:
            self.count()
            have = self.end - self.start
            if have >= 4:
                size = int.from_bytes(self.view[self.start : self.start + 4], "big")
                if have >= 4 + size:
                    start = self.start + 4
                    text = str(self.view[start : start + size], "utf-8")
                    self.start = start + size
                    if self.start == self.end:
                        self.start = self.end = 0
                    return text
                if size > MAX_TO_GUEST:
                    raise Gone
                if 4 + size > KEEP:
                    return self.large(size)
            if self.end == 0:
                self.fill(self.whole)
                continue
            if self.start:
                self.buffer[: self.end - self.start] = self.buffer[self.start : self.end]
                self.end -= self.start
                self.start = 0
            self.fill([[self.view[self.end :]]])

    def large(self, size):
        """Read a frame that the buffer cannot hold. It is being written at this moment,
        so an interrupt can wait."""
        body = bytearray(size)
        view = memoryview(body)
        have = self.end - self.start - 4
        view[:have] = self.view[self.start + 4 : self.end]
        self.start = self.end = 0
        while have < size:
            try:
                n = readv(self.fd_in, [view[have:]])
            except OSError:
                n = 0
            if n == 0:
                raise Gone
            have += n
        return str(body, "utf-8")

    def send(self, text):
        """Send one frame. text is ASCII."""
        data = framed(text)
        if not thread_count():
            self.put(data)
        else:
            with self.write_lock:
                self.put(data)

    def send_later(self, text):
        """Send one frame when the main thread's event loop next waits: the calls of a
        gather then need one system call instead of one each."""
        data = framed(text)
        self.outbox.append(data)
        self.outbox_size += len(data)
        if self.outbox_size > KEEP:
            self.flush()

    def flush(self):
        """Send the waiting frames. Main thread only."""
        if len(self.behind) != self.told:
            self.told = len(self.behind)
            self.outbox.append(framed(behind_frame(self.run, self.told)))
        if self.outbox:
            data, self.outbox, self.outbox_size = b"".join(self.outbox), [], 0
            if not thread_count():
                self.put(data)
            else:
                with self.write_lock:
                    self.put(data)

    def put(self, data):
        try:
            n = write(self.fd_out, data)
            if n < len(data):
                rest = memoryview(data)[n:]
                while rest:
                    rest = rest[write(self.fd_out, rest) :]
        except OSError:
            raise Gone from None

    def dispatch(self, text):
        """Give a frame to its recipient. Frames without one are dropped: a late reply,
        an exec during an execution."""
        if text.startswith('{"type":"reply","id":'):
            slot = self.pending.pop(int(text[21 : text.index(",", 21)]), None)
            if slot is None:
                return
            if self.behind:
                self.proceed()
            try:
                frame = parsed(text, slot.decode)
                slot.deliver(frame["ok"], frame["result"] if frame["ok"] else frame["error"])
            except Exception as e:
                slot.deliver(False, {"kind": "internal", "message": "the reply cannot be read: %s" % e})
            return
        frame = parsed(text, codec.decode)
        kind = frame["type"]
        if kind == "shutdown":
            raise Gone
        if kind == "exec" and self.run == 0:
            self.execs.append(frame)
            if self.on_exec is not None:
                self.on_exec()
            if self.idle is not None:
                with self.state_lock:
                    self.idle.deliver(True, None)

    # Who reads.

    def pump(self):
        """In the main thread: wait for a frame and dispatch it. Return early if another
        thread has taken over the reading."""
        self.come = False
        self.flush()
        if not thread_count():
            # There is no other thread. (Unless one has just been started that
            # does not count yet: read_on checks unlocked for that.)
            self.unlocked = True
            try:
                text = self.frame()
            finally:
                self.unlocked = False
            self.dispatch(text)
            return
        if not self.buffered() and not self.wait_readable():
            return
        if self.read_lock.acquire(False):
            try:
                if self.threaded:
                    return
                text = self.frame()
            finally:
                self.read_lock.release()
            self.dispatch(text)

    def wakeable(self):
        """Return the descriptor on which the main thread can be woken."""
        if self.wake_fds is None:
            from posix import pipe

            fds = pipe()
            for fd in fds:
                set_blocking(fd, False)
            self.wake_fds = fds
        return self.wake_fds[0]

    def wake(self):
        if self.wake_fds is not None:
            try:
                write(self.wake_fds[1], b"w")
            except OSError:  # full: it will wake
                pass

    def woken(self):
        """Consume the bytes that woke us."""
        try:
            read(self.wake_fds[0], 4096)
        except BlockingIOError:
            pass
        except OSError:  # user code closed it
            self.wake_fds = self.poller = None

    def wait_readable(self):
        """Wait for a frame, or for another thread to wake us. Return whether a frame
        has arrived."""
        import select

        wake = self.wakeable()
        if self.poller is None:
            self.poller = select.poll()
            self.poller.register(self.fd_in, select.POLLIN)
            self.poller.register(wake, select.POLLIN)
        if self.threaded:  # whoever sets it from now on will wake us
            return False
        self.interrupts.check()
        self.interrupts.waiting = True
        try:
            ready = self.poller.poll()
        finally:
            self.interrupts.waiting = False
        fds = [fd for fd, _ in ready]
        if wake in fds:
            self.woken()
        return self.fd_in in fds

    def read_elsewhere(self):
        """Make sure that some thread reads even if the main thread does not."""
        with self.state_lock:
            if self.threaded:
                return
            self.threaded = True
            try:
                start_new_thread(self.read_on, ())
            except RuntimeError:  # there are too many threads, or none can be
                self.threaded = False
                raise
        self.wake()

    def read_on(self):
        """The reader thread."""
        from posix import _exit
        from time import sleep

        try:
            with self.read_lock:
                while self.unlocked:
                    sleep(0.001)
                while True:
                    text = self.frame()
                    if text.startswith('{"type":"exec"') and self.run == 0:
                        # The main thread takes the reading back.
                        self.threaded = False
                        break
                    self.dispatch(text)
            self.dispatch(text)
            self.wake()
        except Gone:
            _exit(0)

    # Calls.

    def begin(self, slot, method, params, later=False):
        """Send a call. params is its JSON text."""
        if self.closed:
            from .errors import MCPError

            raise MCPError("a forked child process cannot call tools")
        if self.run == 0:
            from .errors import MCPError

            raise MCPError("tools can only be called while run_python runs: await a background task before the code ends")
        if belonging.of() is not self.execution:
            from .errors import MCPError

            raise MCPError(LEFT_OVER, kind="cancelled")
        if len(params) + 128 > MAX_FROM_GUEST:
            from .errors import MCPError

            raise MCPError("the arguments take %d bytes as JSON; the limit is %d" % (len(params), MAX_FROM_GUEST))
        slot.id = next(self.ids)
        self.pending[slot.id] = slot
        text = call_frame(slot.id, self.run, method, params)
        if len(self.pending) - len(self.behind) > WINDOW:
            self.behind[slot.id] = text
            if not later:
                self.tell()
        elif later:
            self.send_later(text)
        else:
            self.send(text)

    def proceed(self):
        """Send calls that wait, as far as there is room."""
        while self.behind and len(self.pending) - len(self.behind) < WINDOW:
            number = next(iter(self.behind), None)
            text = self.behind.pop(number, None)
            if text is not None:
                self.send(text)
        self.tell()

    def tell(self):
        """Tell the host how many calls wait."""
        if len(self.behind) != self.told:
            self.told = len(self.behind)
            self.send(behind_frame(self.run, self.told))

    def abandon(self, slot):
        """Stop waiting for the reply."""
        if self.pending.pop(slot.id, None) is None or self.closed:
            return
        if self.behind.pop(slot.id, None) is None:
            self.send(cancel_frame(slot.id))
        if self.told:
            self.proceed()

    async def request(self, method, params, decode=codec.decode):
        """Call the host and await the reply."""
        slot = Slot(decode)
        loop = running_loop()
        later = False
        if loop is not None:
            slot.loop, slot.future, slot.thread = loop, loop.create_future(), get_ident()
            later = slot.thread == self.main and getattr(getattr(loop, "_selector", None), "reads_channel", False)
            if not later:
                self.read_elsewhere()
        elif get_ident() != self.main:
            return self.request_sync(method, params, decode)
        self.begin(slot, method, params, later)
        try:
            await slot
        finally:
            if not slot.done:
                self.abandon(slot)
        return slot.result()

    def request_sync(self, method, params, decode=codec.decode):
        """Call the host and wait for the reply."""
        slot = Slot(decode)
        main = get_ident() == self.main
        if not main:
            slot.lock = allocate_lock()
            slot.lock.acquire()
            self.read_elsewhere()
        self.begin(slot, method, params)
        try:
            if main:
                self.wait(slot)
            else:
                slot.lock.acquire()
        finally:
            if not slot.done:
                self.abandon(slot)
        return slot.result()

    def wait(self, slot):
        """In the main thread: wait until slot has been delivered."""
        while not slot.done:
            if not self.threaded:
                self.pump()
                continue
            with self.state_lock:
                if slot.done or not self.threaded:
                    continue
                lock = allocate_lock()
                lock.acquire()
                slot.lock = lock
            if slot.done:  # delivered before it had a lock to release
                return
            self.interrupts.check()
            self.interrupts.waiting = True
            try:
                lock.acquire()
            finally:
                self.interrupts.waiting = False

    def next_exec(self):
        """In the main thread: wait for the next exec frame."""
        while not self.execs:
            if not self.threaded:
                self.park()
                self.pump()
                continue
            self.idle = Slot()
            if not self.execs:
                self.wait(self.idle)
            self.idle = None
        return self.execs.pop(0)

    def park(self, timeout=None):
        """In a single process that parks: leave, unless a frame has begun to arrive."""
        if self.ready is not None and not self.buffered():
            come, self.come = self.come, False
            if come or come is None and self.ready():
                return
            raise Parked(None if timeout is None else -int(-timeout * 1000 // 1))

    def begin_run(self, run):
        self.run = run
        self.execution = object()
        belonging.begin(self.execution)

    def end_run(self):
        """The execution is over: replies it still waits for never arrive. Return how
        many calls that were."""
        self.run = 0
        self.outbox, self.outbox_size = [], 0
        self.behind, self.told = {}, 0
        given_up = len(self.pending)
        while self.pending:
            _, slot = self.pending.popitem()
            slot.deliver(False, {"kind": "cancelled", "message": GIVEN_UP})
        return given_up


GIVEN_UP = "the execution that made this call ended before the answer arrived: await background tasks before the code ends"
LEFT_OVER = "this code belongs to an earlier execution, which has ended: start code that calls tools in the execution that grants them"


def running_loop():
    """Return the event loop that runs in this thread, without importing asyncio."""
    events = sys.modules.get("asyncio.events")
    return None if events is None else events._get_running_loop()
