"""What the interpreter lacks on WASI, as far as something can take its place."""

import _signal
import _socket as socket
import errno
import posix
import sys

USER = 65534
NO_PROCESSES = "this sandbox has no processes: it runs Python alone"
# What to use with threads in place of what module multiprocessing has.
INSTEAD = {
    "Pool": "multiprocessing.pool.ThreadPool",
    **dict.fromkeys(("Queue", "JoinableQueue", "Pipe"), "queue.Queue"),
    "SimpleQueue": "queue.SimpleQueue",
    **{name: f"threading.{name}" for name in ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier")},
    **dict.fromkeys(("Value", "RawValue", "Array", "RawArray", "Manager"), "a plain object and threading.Lock"),
}
IGNORED = frozenset((17, 18, 19, 20, 21, 22, 23, 28))  # or they stop a process, or continue it
mask = 0o022
exit_now = posix._exit
raise_now = _signal.raise_signal
limit_now = sys.setrecursionlimit
deepest = 1_000_000  # recursion limit; the session's memory may lower it
ROOM = 20_000  # above it, for the guest's own code


def no_processes(*args, **kwargs):
    raise OSError(errno.ENOTSUP, NO_PROCESSES)


def umask(mask_now, /):
    global mask
    before, mask = mask, mask_now & 0o777
    return before


def kill(pid, number, /):
    """Only this process can be sent a signal."""
    if pid not in (0, posix.getpid()):
        raise ProcessLookupError(errno.ESRCH, posix.strerror(errno.ESRCH))
    if number:
        raise_signal(number)


def raise_signal(signalnum, /):
    """Send this process a signal."""
    if ends(signalnum):
        end(signalnum)
    raise_now(signalnum)


def ends(number):
    """Report whether a signal ends a process. The C library would trap."""
    if number in IGNORED or not 0 < number < _signal.NSIG:
        return False
    return number == 9 or _signal.getsignal(number) == _signal.SIG_DFL


def end(number):
    """End as a process that a signal ends."""
    frames = sys.modules["sallyport_guest.frames"]
    frames.send(frames.frame(b"x", frames.exit_payload(-number)))
    exit_now(128 + number)


def setrecursionlimit(limit, /):
    """Set the recursion limit, to no more than there is memory for: where it runs out
    within a call, CPython raises a SystemError that explains nothing."""
    if limit > deepest + ROOM:
        import warnings

        warnings.warn(
            f"the recursion limit is {deepest:,} and not {limit:,}: the sandbox has no memory for more", RuntimeWarning, 2
        )
        limit = deepest
    limit_now(limit)


def fchmod(fd, mode):
    posix.fstat(fd)


def chown(path, uid, gid, *, dir_fd=None, follow_symlinks=True):
    posix.stat(path, follow_symlinks=follow_symlinks)


def getlogin():
    return posix.environ.get(b"USER", b"sandbox").decode()


def uname():
    return posix.uname_result(("WASI", "sandbox", "0.0.0", "0.0.0", "wasm32"))


def statvfs(path):
    raise OSError(errno.ENOSYS, posix.strerror(errno.ENOSYS))


def abort():
    end(6)


def no_network(*args, **kwargs):
    raise socket.gaierror(-3, "Temporary failure in name resolution: this sandbox has no network")


def waitpid(pid, options, /):
    raise ChildProcessError(errno.ECHILD, posix.strerror(errno.ECHILD))


def install():
    """Add what is missing to posix. Module os, which is not loaded yet, takes it from
    there."""
    for name in ("getuid", "geteuid", "getgid", "getegid"):
        add(name, lambda: USER)
    add("getgroups", lambda: [USER])
    add("getppid", lambda: 1)
    add("getlogin", getlogin)
    add("umask", umask)
    add("kill", kill)
    add("fchmod", fchmod)
    add("chown", chown)
    add("waitpid", waitpid)
    add("statvfs", statvfs)
    add("WNOHANG", 1)
    add("system", no_processes)
    add("if_nameindex", list, socket)
    add("getaddrinfo", no_network, socket)
    add("gethostbyname", no_network, socket)
    add("gethostbyaddr", no_network, socket)
    add("gethostname", lambda: "sandbox", socket)
    posix.uname = uname
    posix.abort = abort
    _signal.raise_signal = raise_signal
    sys.setrecursionlimit = setrecursionlimit


def multiprocessing_imported():
    """Whatever would need a process says so."""
    from multiprocessing import context

    for name, instead in INSTEAD.items():
        setattr(context.BaseContext, name, no_sharing(name, instead))
    for process in (context.Process, context.SpawnProcess, getattr(context, "ForkProcess", context.Process)):
        process._Popen = staticmethod(no_sharing("Process", "threading.Thread"))


def no_sharing(name, instead):
    """Return what raises an error in place of what module multiprocessing has."""

    def raises(*args, **kwargs):
        raise OSError(errno.ENOTSUP, f"multiprocessing.{name}: this sandbox has no processes, only threads: use {instead}")

    return raises


def ctypes_imported():
    """Who finds no functions of the interpreter does without them."""
    vars(sys.modules["ctypes"]).pop("pythonapi", None)


def add(name, value, module=posix):
    if not hasattr(module, name):
        if callable(value) and value.__name__ != name:
            f = value
            value = lambda *args, **kwargs: f(*args, **kwargs)
            value.__name__ = value.__qualname__ = name
        setattr(module, name, value)
