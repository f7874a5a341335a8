"""Counting child processes that are left running."""

from . import BUILTINS as __builtins__

from posix import P_ALL, WEXITED, WNOHANG, WNOWAIT, getpid, listdir, waitid

MAX = 1000


def count():
    try:
        # Looks without reaping: that is for whoever started them.
        waitid(P_ALL, 0, WEXITED | WNOHANG | WNOWAIT)
    except OSError:
        return 0  # there are none, as a rule
    me = b"%d" % getpid()
    running = 0
    try:
        for name in listdir("/proc")[:MAX]:
            if name.isdigit():
                try:
                    with open("/proc/" + name + "/stat", "rb") as f:
                        state, parent = f.read(4096).rpartition(b")")[2].split()[:2]
                except (OSError, ValueError):
                    continue
                if parent == me and state != b"Z":
                    running += 1
    except OSError:
        pass
    return running
