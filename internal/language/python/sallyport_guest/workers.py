"""What module multiprocessing does differently here."""

from . import BUILTINS as __builtins__

FAILED = 1, -9  # the exit codes after an exception that is not a task's own, and when killed


def context_imported():
    """Use a start method that works: from Python 3.14 on, the usual one needs
    sockets."""
    from multiprocessing import context

    usual = context._default_context
    if usual._default_context.get_start_method() != "forkserver":
        return
    import socket

    try:
        socket.socket(socket.AF_UNIX).close()
    except OSError:
        usual._default_context = usual.get_context("spawn")


def pool_imported():
    """End a pool whose workers die: it would start others forever, and the tasks that
    the dead ones had taken would never end."""
    from functools import wraps
    from multiprocessing.pool import Pool
    from threading import current_thread
    from weakref import ref

    start, join = Pool.__init__, Pool._join_exited_workers

    @wraps(start)
    def __init__(self, *args, **kwargs):
        start(self, *args, **kwargs)
        self._worker_handler.pool = ref(self)

    def join_exited(workers):
        before = list(workers)
        ended = join(workers)
        # Without the attribute, the pool has had no task yet, and what starts now fails too.
        pool = getattr(current_thread(), "pool", lambda: None)()
        if pool is None or not any(w.exitcode in FAILED for w in before if w not in workers):
            return ended
        end(pool)
        return False

    Pool.__init__, Pool._join_exited_workers = __init__, staticmethod(join_exited)


def end(pool):
    """End a pool as an executor ends: what waits for a result gets an exception."""
    from multiprocessing.pool import TERMINATE
    from threading import Thread, current_thread

    pool._state = current_thread()._state = TERMINATE
    # This is the thread that starts workers, and terminate waits for its end.
    Thread(target=finish, args=(pool, pool._cache), daemon=True).start()


def finish(pool, jobs):
    from multiprocessing.pool import IMapIterator

    pool.terminate()
    error = RuntimeError("a worker process of this pool ended without a result: what it wrote to standard error says why")
    for number, job in list(jobs.items()):
        try:
            if isinstance(job, IMapIterator):
                job._set(job._index, (False, error))
                if number in jobs:
                    job._set_length(job._index)
            while number in jobs:
                job._set(0, (False, error))
        except Exception:  # of a callback
            pass
