"""Where the interpreter keeps its own descriptors, and how functions of posix that use
some are replaced."""

import posix
import sys

dup2 = getattr(posix, "dup2", None)  # an engine without processes has none

# The interpreter's own descriptors, away from those that user code opens, and
# from code that closes "all" descriptors, if their limit allows it.
BASES = (700, 200, 100, 48, 24, 12)
CONTROL_IN = CONTROL_OUT = NONCE = OUT = ERR = NULL = -1  # set by take_places
SINGLE = False  # this is the sandbox's only process: set by stay


def take_places(*fds):
    """Duplicate the descriptors to their places."""
    global CONTROL_IN, CONTROL_OUT, NONCE, OUT, ERR, NULL
    for base in BASES:
        try:
            dup2(fds[-1], base + len(fds) - 1, False)
        except OSError:  # beyond the limit
            if base == BASES[-1]:
                raise
            continue
        places = range(base, base + len(fds))
        for fd, place in zip(fds, places):
            dup2(fd, place, False)
        CONTROL_IN, CONTROL_OUT, NONCE, OUT, ERR, NULL = places
        return


def stay():
    """Use the standard descriptors themselves: in a single process, user code has
    Python streams only."""
    global CONTROL_IN, CONTROL_OUT, OUT, ERR, SINGLE
    CONTROL_IN, CONTROL_OUT, OUT, ERR = 0, 1, 1, 2
    SINGLE = True


def replace(function):
    """Put a function in the place of the one of posix that has its name."""
    for module in (posix, sys.modules.get("os")):
        if module is not None:
            setattr(module, function.__name__, function)
