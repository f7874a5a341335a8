"""Counting and naming what is left running: mostly child processes."""

from . import BUILTINS as __builtins__

from posix import getpid, listdir

MAX = 1000


# Processes of Python's own that serve others, and live as long as the interpreter.
HELPERS = b"from multiprocessing.resource_tracker import ", b"from multiprocessing.forkserver import "


def count():
    from posix import P_ALL, WEXITED, WNOHANG, WNOWAIT, waitid

    try:
        # Look without reaping: that is up to whoever started them.
        waitid(P_ALL, 0, WEXITED | WNOHANG | WNOWAIT)
    except OSError:
        return 0  # usually there are none
    try:
        return sum(1 for _ in children())
    except OSError:
        return 0


def children():
    """Yield the process ID and the command line of each child."""
    me = b"%d" % getpid()
    for name in listdir("/proc")[:MAX]:
        if not name.isdigit():
            continue
        try:
            with open("/proc/" + name + "/stat", "rb") as f:
                state, parent = f.read(4096).rpartition(b")")[2].split()[:2]
            if parent != me or state == b"Z":
                continue
            with open("/proc/" + name + "/cmdline", "rb") as f:
                words = f.read(4096)
        except (OSError, ValueError):
            continue
        if not any(helper in words for helper in HELPERS):
            yield name, words.rstrip(b"\0").replace(b"\0", b" ")


NAMED = 16  # of each kind
LENGTH = 100


def member(asyncio):
    """Return the member of a done frame that names what is still running. Most of it is
    user code's own objects, which can raise or return anything."""
    from . import codec

    found = []
    for list_some in (threads, lambda: tasks(asyncio), processes):
        try:
            found += list_some()[:NAMED]
        except BaseException:
            pass
    return ',"running":[%s]' % ",".join(codec.quote(line[:LENGTH]) for line in found) if found else ""


def threads():
    from sys import modules

    threading = modules.get("threading")
    if threading is None:
        return []
    me = threading.current_thread()
    return ["thread " + str.strip(t.name) for t in threading.enumerate() if t is not me and t is not threading.main_thread()]


def tasks(asyncio):
    if asyncio is None:
        return []
    from asyncio import all_tasks
    from itertools import islice

    return ["task %s %s" % (str.strip(t.get_name()), getattr(t.get_coro(), "__qualname__", "")) for t in islice(all_tasks(asyncio.loop), NAMED)]


def processes():
    return ["process %s %s" % (name, words.decode("utf-8", "replace")) for name, words in children()]
