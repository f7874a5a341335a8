"""Runs the guest as a single process, without what CPython lacks on WASI:
python main.py PATH/OF/sallyport_guest/__main__.py single, or with parked in place of
single as one that returns to its caller when there is nothing to do.
"""

import sys

import _posixsubprocess
import _thread
import errno
import os
import posix
import select


def refuse(*args, **kwargs):
    raise OSError(errno.ENOTSUP, "not supported")


def no_thread(*args, **kwargs):
    raise RuntimeError("can't start new thread")


LACKING = (
    "fork forkpty pipe pipe2 dup dup2 kill killpg register_at_fork system posix_spawn posix_spawnp"
    " execv execve wait waitid P_ALL WEXITED WNOWAIT"
).split()
for name in LACKING:
    for module in (posix, os):
        if hasattr(module, name):
            delattr(module, name)
for name in ("waitpid", "waitstatus_to_exitcode", "WNOHANG"):  # subprocess wants these of os
    delattr(posix, name)
for name in [name for name in vars(select) if name.lower().startswith(("poll", "epoll"))]:
    delattr(select, name)
for name in ("start_new_thread", "start_new", "start_joinable_thread"):
    if hasattr(_thread, name):
        setattr(_thread, name, no_thread)
_posixsubprocess.fork_exec = refuse

import socket

socket.socketpair = refuse

del sys.argv[0]
if sys.argv[1] == "parked":
    sys.path.insert(0, os.path.dirname(os.path.dirname(sys.argv[0])))
    from sallyport_guest import single

    del sys.path[0], sys.argv[1]
    made = single.parked()
    from sallyport_guest import session

    made.open()
    while True:
        wait = session.resume(made)
        select.select([0], [], [], None if wait is None else wait / 1000)
with open(sys.argv[0], encoding="utf-8") as f:
    code = compile(f.read(), sys.argv[0], "exec")
exec(code, {"__name__": "__main__", "__file__": sys.argv[0]})
