"""A soft end of memory: an allocation that the sandbox has no memory for raises
MemoryError, and the session goes on.

Every process gets a limit on its address space (with Linux as the sandbox's kernel,
on its private memory): what it has, and what is free. Init looks at both while code
runs, and some more often when little is free. In an idle session it sleeps. The
interpreter itself takes account of what it reserves but does not use: the memory of
libraries that it loads, and the stacks of threads. Where that is too late, because
processes use what they were allowed all at once, init kills the largest process that
is not the interpreter. The engine's limit, which ends the sandbox, is the last
resort.
"""

from . import BUILTINS as __builtins__

from posix import O_CLOEXEC, O_RDONLY, close, getpid, getppid, kill, listdir, open as open_fd, read, stat, sysconf
from time import monotonic
import _signal

PAGE = sysconf("SC_PAGE_SIZE")
OURS = 1907  # bytes in the last page of a limit that is not the code's own (forks.go)
MB = 1 << 20
# What gVisor's own kernel needs, which it does not count as the sandbox's: so much, a
# part of what is mapped (of a large file, that is little), and so much for each child of
# a few that use memory.
KERNEL, CHILD = 24 * MB, 3 * MB
# The least that an execution can have, the most to report its MemoryError, and what
# Python needs to start.
FLOOR, REPORT, START = 8 * MB, 32 * MB, 32 * MB
PROGRAMS = ("system", "posix_spawn", "posix_spawnp", "execv", "execve")
STACK = 24 * MB  # of a thread of a library's, and its buffers
# Seconds between two looks, and from the last change to sleep.
OFTEN, USUAL, AWAKE = 0.005, 0.025, 1.0
RELEASE = 0.2  # seconds until what was released is free
CRASHES = (-_signal.SIGSEGV, -_signal.SIGABRT, -_signal.SIGBUS)
# Bytes that init and the interpreter share.
RUNNING, ASLEEP, REPORTING, COUNT, SCARCE, LIFTED, SIZE = 0, 1, 2, 3, 4, 5, 4096


def content(path):
    """Return the beginning of a small file."""
    fd = open_fd(path, O_RDONLY | O_CLOEXEC)
    try:
        return read(fd, 8192)
    finally:
        close(fd)


def row(text, name):
    """Return the bytes that a row of /proc/meminfo names."""
    return int(text[text.index(name) + len(name) :].split(None, 1)[0]) << 10


class Memory:
    """What the sandbox may have and has, and a limit for each of its processes."""

    def __init__(self, resource, limit):
        from mmap import mmap

        self.resource = resource
        self.shared = mmap(-1, SIZE)
        self.limit = limit
        self.stacks = 0
        self.margin = limit // 20
        self.infinite = resource.RLIM_INFINITY

    def spare(self, free):
        """Return what a process may reserve beyond what is free."""
        return self.stacks if free > self.limit // 4 else 0

    def size(self, pid="self"):
        """Return the bytes of a process that its limit counts."""
        return int(content("/proc/%s/statm" % pid).split()[self.column]) * PAGE

    def own(self, now, hard):
        """Report whether the code itself has set a limit."""
        return now != hard and now % PAGE != OURS

    def allow(self, pid, most):
        """Let a process have so many bytes. None: as many as the engine lets it. A limit
        that the code has set for itself stays."""
        now, hard = self.resource.prlimit(pid, self.kind)
        if self.own(now, hard):
            return
        if most is not None:
            most = most // PAGE * PAGE + OURS
        if most is None or hard != self.infinite and most > hard:
            most = hard
        # A change of less than this does not matter.
        if now == self.infinite or most == self.infinite or abs(now - most) > MB // 4:
            self.resource.prlimit(pid, self.kind, (most, hard))


class GVisor(Memory):
    column = 0

    def __init__(self, resource):
        super().__init__(resource, sysconf("SC_PHYS_PAGES") * PAGE)
        self.kind = resource.RLIMIT_AS
        # Libraries start a thread for each processor at once, and exit if they cannot.
        self.stacks = max(0, sysconf("SC_NPROCESSORS_ONLN") - 4) * STACK

    def free(self):
        """Return how many bytes more the sandbox can have, which may be negative. The
        kernel also counts files of the host that are mapped, which the engine does
        not, and what is anonymous it knows a few milliseconds later."""
        text = content("/proc/meminfo")
        used, mapped = row(text, b"AnonPages:"), row(text, b"Mapped:")
        rest = sysconf("SC_AVPHYS_PAGES") * PAGE
        if rest:
            used = max(used, self.limit - rest - mapped)
        return self.limit - used - KERNEL - min(mapped, 2 * self.limit) // 16 - self.margin


class Container(Memory):
    """A container's control group. Files that Linux keeps in memory for speed do not
    count."""

    column = 5

    def __init__(self, resource, limit, used, stat, cached):
        super().__init__(resource, limit)
        self.kind = resource.RLIMIT_DATA
        self.used, self.stat, self.cached = used, stat, cached

    def free(self):
        used = int(content(self.used))
        for line in content(self.stat).splitlines():
            name, _, value = line.partition(b" ")
            if name in self.cached:
                used -= int(value)
        return self.limit - used - self.margin


def find():
    """Return the sandbox's memory, or None if no limit is known."""
    try:
        import resource

        try:
            stat("/proc/sentry-meminfo")
            return GVisor(resource)
        except FileNotFoundError:
            pass
        for maximum, current, where, cached in (
            ("/memory.max", "/memory.current", "", (b"inactive_file", b"active_file")),
            ("/memory.limit_in_bytes", "/memory.usage_in_bytes", "/memory", (b"total_inactive_file", b"total_active_file")),
        ):
            where = "/sys/fs/cgroup" + where
            try:
                limit = content(where + maximum).strip()
            except OSError:
                continue
            if limit.isdigit() and int(limit) < 1 << 50:
                found = Container(resource, int(limit), where + current, where + "/memory.stat", cached)
                found.free()
                return found
    except (ImportError, OSError, ValueError):
        pass
    return None


class Guard:
    """The interpreter's part."""

    def __init__(self, memory):
        self.memory = memory
        self.shared = memory.shared
        self.init = getppid()
        self.hit, self.held = False, 0  # a MemoryError, and what the sandbox had
        self.prlimit = memory.resource.prlimit
        hard = self.prlimit(0, memory.kind)[1]
        self.lifted = 0, memory.kind, (hard, hard)
        import _imp
        import os
        import posix

        _imp.create_dynamic = self.unlimited(_imp.create_dynamic)
        for name in PROGRAMS:
            start = getattr(posix, name, None)
            if start is not None:
                setattr(posix, name, self.unlimited(start))
                setattr(os, name, getattr(posix, name))
        self.adjust()

    def begin(self):
        """An execution begins."""
        shared = self.shared
        shared[COUNT] = shared[COUNT] + 1 & 255
        shared[REPORTING] = 0
        shared[RUNNING] = 1
        if shared[ASLEEP]:
            kill(self.init, _signal.SIGUSR1)
        if shared[SCARCE]:
            self.adjust(self.prlimit(0, self.memory.kind)[0])

    def end(self):
        self.shared[RUNNING] = 0

    def scarce(self):
        return self.shared[SCARCE]

    def adjust(self, least=0):
        """Take account of what was reserved since init looked."""
        if self.shared[LIFTED]:
            return
        try:
            memory = self.memory
            free = memory.free()
            memory.allow(0, max(least, memory.size() + max(free, FLOOR) + memory.spare(free)))
        except (OSError, ValueError):  # no descriptor, a limit of the code's own
            pass

    def unlimited(self, function):
        """Wrap a function that loads a library or starts a program. Some reserve more
        than there is."""

        def call(*args, **kwargs):
            self.shared[LIFTED] = 1
            try:
                self.memory.allow(0, None)
            except (OSError, ValueError):
                pass
            try:
                return function(*args, **kwargs)
            finally:
                self.shared[LIFTED] = 0
                self.adjust()

        call.__name__, call.__qualname__, call.__doc__ = function.__name__, function.__qualname__, function.__doc__
        return call

    def unlimit(self, module):
        """Wrap what a module's functions do with an engine for JavaScript: it reserves
        gigabytes of addresses, and ends the process without them."""
        for name, function in list(vars(module).items()):
            if callable(function) and not isinstance(function, type):
                setattr(module, name, self.unlimited(function))

    def relieve(self):
        """Have memory to report a MemoryError."""
        self.shared[REPORTING] = 1
        try:
            own = self.memory.own(*self.prlimit(0, self.memory.kind))
        except MemoryError:
            own = False
        try:
            if not own:
                self.prlimit(*self.lifted)  # makes nothing
            if not self.hit:
                self.hit = True
                self.held = self.memory.limit - self.memory.margin - self.memory.free()
            self.memory.allow(0, self.memory.size() + REPORT)
        except (OSError, ValueError, MemoryError):
            pass

    def in_use(self):
        """Return what was in use when a MemoryError came, for a person."""
        from .manual import size

        reserved = " (what is allocated counts before it is written)" if self.held < self.memory.limit * 3 // 4 else ""
        return "%s were in use%s" % (size(self.held), reserved)

    def recover(self):
        """Release what a MemoryError has left. No caller waits."""
        if self.hit:
            self.hit = False
            from gc import collect

            collect()
            self.adjust()

    def spawned(self, pid, program):
        """Let a program other than Python reserve what it likes."""
        try:
            if not program.rpartition(b"/")[2].startswith(b"python"):
                self.memory.allow(pid, None)
        except (OSError, ValueError):
            pass


class Watch:
    """Init's part."""

    def __init__(self, memory, interpreter, say):
        self.memory = memory
        self.shared = memory.shared
        self.interpreter = interpreter
        self.say = say
        self.count = -1
        self.floor = self.unused = self.size = self.most = 0
        self.released = 0.0
        self.killed, self.large = set(), set()  # of the children
        self.before = 0
        self.until = 0.0
        self.alone = getpid() == 1  # otherwise processes of others are in /proc
        self.shared[ASLEEP] = 1
        self.every = 0

    def tick(self, every):
        """Have a signal so often. With a timeout for each wait of init's, every warm call
        would set a timer."""
        if every != self.every:
            self.every = every
            _signal.setitimer(_signal.ITIMER_REAL, every, every)

    def signalled(self):
        """Called after signals: the timer's, perhaps the interpreter's."""
        shared, memory = self.shared, self.memory
        if not self.every and not shared[RUNNING]:
            return
        now = monotonic()
        try:
            free = memory.free()
            if self.every:  # otherwise the limits are those of a moment ago
                self.limit(free, now)
        except OSError:
            free = self.before
        if shared[RUNNING] or abs(free - self.before) > MB:
            shared[ASLEEP] = 0
            self.until = now + AWAKE
        elif shared[ASLEEP]:  # since the last time, and nothing has begun
            self.tick(0)
            return
        elif now > self.until:
            shared[ASLEEP] = 1
        self.before = free
        shared[SCARCE] = free < memory.limit // 4
        self.tick(OFTEN if shared[SCARCE] and shared[RUNNING] else USUAL)

    def limit(self, free, now):
        """Set the limit of every process."""
        memory, shared, interpreter = self.memory, self.shared, self.interpreter
        sizes = content("/proc/%d/statm" % interpreter).split()
        size = int(sizes[memory.column]) * PAGE
        unused = size - int(sizes[1]) * PAGE
        if shared[COUNT] != self.count:
            self.count, self.unused = shared[COUNT], unused
            self.floor = size + min(FLOOR, max(0, free + memory.margin) // 4)
        if size < self.size - memory.limit:  # so much was only reserved, by an engine for JavaScript
            self.size, self.floor, self.most = size, 0, 0
        # A list that grows has more than it uses, and will use it.
        later = min(max(0, unused - self.unused), memory.limit // 16)
        most = max(size + max(free - later, 0) + memory.spare(free), self.floor)
        # What a process has released is free a moment later.
        if size < self.size:
            self.released = now + RELEASE
        self.size = size
        if now < self.released:
            most = max(most, self.most)
        self.most = most
        if not (shared[REPORTING] or shared[LIFTED]):
            memory.allow(interpreter, most)
        if self.alone:
            self.children(free, int(sizes[1]) * PAGE)

    def children(self, free, common):
        """Share what is free among the children, and end the largest if it is too late
        for that."""
        memory, lifted = self.memory, self.shared[LIFTED]
        pids = [pid for pid in map(int, filter(str.isdigit, listdir("/proc"))) if pid not in (1, self.interpreter)]
        rest = max(free - CHILD * min(len(pids), 8), 0)
        # While there is enough, a child may have more than an equal part.
        share = rest * (2 if rest > memory.limit // 2 else 1) // (len(pids) + 1)
        found = []
        for pid in pids:
            try:
                sizes = content("/proc/%d/statm" % pid).split()
                resident = int(sizes[1]) * PAGE
                python = content("/proc/%d/comm" % pid).startswith(b"python")
                # What a child of Python has is in part the interpreter's.
                found.append((max(resident - common, MB) if python else resident, pid))
                # Other programs reserve what they like, but what has more than is left
                # may not take that at once.
                large = not python and resident > rest
                # While the interpreter starts a program, pid may be about to become one.
                if not lifted and (python or large or pid in self.large):
                    most = max(int(sizes[memory.column]) * PAGE + share, START)
                    memory.allow(pid, most if python or large else None)
                    (self.large.add if large else self.large.discard)(pid)
            except (OSError, ValueError):  # it has ended
                pass
        self.killed.intersection_update(pids)
        self.large.intersection_update(pids)
        # What was killed has its memory for another moment.
        for size, pid in sorted(found, reverse=True):
            if free > -memory.margin // 4:
                break
            free += size
            if pid not in self.killed:
                self.end(pid, size)

    def ended(self, status):
        """Say of the interpreter's end what may have caused it: C code may take for
        granted that there is memory."""
        if status in CRASHES and self.shared[SCARCE]:
            self.say(
                "sallyport: the interpreter crashed when little memory was left: the sandbox may use %d MB (limits.memory)\n"
                % (self.memory.limit // MB)
            )

    def end(self, pid, size):
        try:
            kill(pid, _signal.SIGKILL)
        except OSError:
            return
        self.killed.add(pid)
        self.say(
            "sallyport: process %d, which had %d MB, was killed to keep the session: the sandbox may use %d MB (limits.memory)\n"
            % (pid, size // MB, self.memory.limit // MB)
        )
