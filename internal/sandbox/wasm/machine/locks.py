"""Locks where only one thread runs at a time: a flag each, and a way to wait."""

import _thread

TIMEOUT_MAX = _thread.TIMEOUT_MAX
held = 0  # locks of user code
block = get_ident = None  # of threads.py


class Lock:
    __slots__ = "_held", "__weakref__"
    __module__ = "_thread"

    def __init__(self):
        self._held = False

    def _free(self):
        return not self._held

    def _wait(self, blocking, timeout):
        """Wait until the lock is free. Return whether it is."""
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        if timeout < 0 and timeout != -1:
            raise ValueError("timeout value must be a non-negative number")
        if timeout > TIMEOUT_MAX:
            raise OverflowError("timeout value is too large")
        return bool(blocking) and timeout != 0 and block(self._free, None if timeout == -1 else timeout)

    def acquire(self, blocking=True, timeout=-1):
        global held
        if self._held and not self._wait(blocking, timeout):
            return False
        self._held = True
        held += 1
        return True

    def release(self):
        global held
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        held -= 1

    def locked(self):
        return self._held

    def _at_fork_reinit(self):
        self._held = False

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()

    def __del__(self):
        if self._held:
            self.release()

    def __repr__(self):
        return "<%s _thread.lock object at %#x>" % ("locked" if self._held else "unlocked", id(self))

    acquire_lock, release_lock, locked_lock = acquire, release, locked


class Signal(Lock):
    """A lock of a condition: while it is held, no thread is kept from anything."""

    __slots__ = ("polls",)

    def __init__(self):
        self._held = self.polls = False

    def acquire(self, blocking=True, timeout=-1):
        if self._held and not (timeout > 0 and block(self._free, timeout, True) or timeout <= 0 and self._wait(blocking, timeout)):
            return False
        self._held = True
        return True

    def release(self):
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()


class RLock:
    __slots__ = "_owner", "_count", "__weakref__"
    __module__ = "_thread"

    def __init__(self):
        self._owner, self._count = None, 0

    def acquire(self, blocking=True, timeout=-1):
        global held
        me = get_ident()
        if self._count and self._owner != me:
            if not Lock._wait(self, blocking, timeout):
                return False
        if not self._count:
            held += 1
        self._owner = me
        self._count += 1
        return True

    def _free(self):
        return not self._count

    def release(self):
        global held
        if not self._count or self._owner != get_ident():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            held -= 1

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()

    def __del__(self):
        global held
        if self._count:
            held -= 1

    def _is_owned(self):
        return self._count > 0 and self._owner == get_ident()

    def _recursion_count(self):
        return self._count if self._owner == get_ident() else 0

    def _release_save(self):
        global held
        if not self._count:
            raise RuntimeError("cannot release un-acquired lock")
        held -= 1
        state = self._count, self._owner
        self._count, self._owner = 0, None
        return state

    def _acquire_restore(self, state):
        global held
        if self._count:
            block(self._free)
        held += 1
        self._count, self._owner = state

    def _at_fork_reinit(self):
        self._owner, self._count = None, 0

    def __repr__(self):
        return "<%s _thread.RLock object owner=%s count=%d at %#x>" % (
            "locked" if self._count else "unlocked", self._owner or 0, self._count, id(self),
        )  # fmt: skip
