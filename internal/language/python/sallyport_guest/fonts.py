"""matplotlib's list of fonts, which takes longer than a first figure."""

from . import BUILTINS as __builtins__

import sys
from posix import O_RDWR, environ, waitpid

import posix

from .artifacts import exists

LIST = "import matplotlib.font_manager"


def prepare():
    """Have matplotlib write its list of fonts, if it is installed. A process does that which
    ends: a session that draws nothing does not carry matplotlib."""
    if not any(exists(folder + "/matplotlib/font_manager.py") for folder in sys.path) or not hasattr(posix, "posix_spawn"):
        return
    null = [(posix.POSIX_SPAWN_OPEN, fd, "/dev/null", O_RDWR, 0) for fd in range(3)]
    waitpid(posix.posix_spawn(sys.executable, [sys.executable, "-c", LIST], environ, file_actions=null), 0)
