"""Pools of threads: those of concurrent.futures and of multiprocessing.pool."""

import sys
import threading
from functools import partial

threads = sys.modules["_sallyport_threads"]


def submit(self, fn, /, *args, **kwargs):
    """Each piece of work is a thread of its own, of which no more run within one another
    than the pool may have."""
    from concurrent.futures import thread as module

    if self._broken:
        raise module.BrokenThreadPool(self._broken)
    if self._shutdown:
        raise RuntimeError("cannot schedule new futures after shutdown")
    future = module._base.Future()
    item = module._WorkItem(future, partial(told, fn), args, kwargs)
    if not hasattr(self, "work"):
        self.work, self.at_work, self.begun = [], 0, 0
    self.work = [other for other in self.work if not other.done()]
    self.work.append(future)

    def work():
        if self._initializer is not None:
            initializer, self._initializer = self._initializer, None
            try:
                initializer(*self._initargs)
            except BaseException:
                self._broken = "A thread initializer failed, the thread pool is not usable anymore"
                module._base.LOGGER.critical("Exception in initializer:", exc_info=True)
        if self._broken:
            if future.set_running_or_notify_cancel():
                future.set_exception(module.BrokenThreadPool(self._broken))
            return
        item.run()

    name = "%s_%d" % (self._thread_name_prefix, self.begun % self._max_workers)
    self.begun += 1
    threading.Thread(target=work, name=name).start()
    threads.pending[-1].pool, threads.pending[-1].kind = self, self
    return future


def told(fn, /, *args, **kwargs):
    """Call a function. If its thread is ended, whoever asks for the result hears why."""
    try:
        return fn(*args, **kwargs)
    except threads.Ended:
        raise RuntimeError("this work was ended at a wait: " + threads.ALONE) from None


def shutdown(self, wait=True, *, cancel_futures=False):
    self._shutdown = True
    work = getattr(self, "work", ())
    if cancel_futures:
        for future in work:
            future.cancel()
    if wait:
        threads.block(lambda: all(future.done() for future in work))


class Result:
    """What apply_async and map_async return."""

    def __init__(self, futures, single, callback=None, error_callback=None):
        self.futures, self.single = futures, single
        self.callback, self.error_callback = callback, error_callback
        self.left = len(futures)
        for future in futures:
            future.add_done_callback(self.one_done)

    def one_done(self, future):
        self.left -= 1
        if self.left:
            return
        error = next((f.exception() for f in self.futures if f.exception() is not None), None)
        call, value = (self.callback, None) if error is None else (self.error_callback, error)
        if call is not None:
            call(self.values() if error is None else value)

    def values(self):
        found = [future.result() for future in self.futures]
        return found[0] if self.single else found

    def wait(self, timeout=None):
        from concurrent.futures import wait

        wait(self.futures, timeout)

    def get(self, timeout=None):
        from multiprocessing import TimeoutError

        self.wait(timeout)
        if not self.ready():
            raise TimeoutError
        return self.values()

    def ready(self):
        return all(future.done() for future in self.futures)

    def successful(self):
        if not self.ready():
            raise ValueError("%r not ready" % self)
        return all(future.exception() is None for future in self.futures)


class ThreadPool:
    """multiprocessing.pool.ThreadPool on an executor."""

    def __init__(self, processes=None, initializer=None, initargs=()):
        from concurrent.futures import ThreadPoolExecutor

        if processes is not None and processes < 1:
            raise ValueError("Number of processes must be at least 1")
        self.executor = ThreadPoolExecutor(processes or 1, "Thread", initializer, initargs)

    def apply(self, func, args=(), kwds={}):
        return self.apply_async(func, args, kwds).get()

    def apply_async(self, func, args=(), kwds={}, callback=None, error_callback=None):
        return Result([self.executor.submit(func, *args, **kwds)], True, callback, error_callback)

    def map(self, func, iterable, chunksize=None):
        return self.map_async(func, iterable).get()

    def map_async(self, func, iterable, chunksize=None, callback=None, error_callback=None):
        result = Result([self.executor.submit(func, item) for item in iterable], False, callback, error_callback)
        if not result.futures and callback is not None:
            callback([])
        return result

    def starmap(self, func, iterable, chunksize=None):
        return self.starmap_async(func, iterable).get()

    def starmap_async(self, func, iterable, chunksize=None, callback=None, error_callback=None):
        return self.map_async(partial(spread, func), iterable, None, callback, error_callback)

    def imap(self, func, iterable, chunksize=1):
        return (future.result() for future in [self.executor.submit(func, item) for item in iterable])

    def imap_unordered(self, func, iterable, chunksize=1):
        from concurrent.futures import as_completed

        return (future.result() for future in as_completed([self.executor.submit(func, item) for item in iterable]))

    def close(self):
        self.executor.shutdown(wait=False)

    def terminate(self):
        self.executor.shutdown(wait=False, cancel_futures=True)

    def join(self):
        self.executor.shutdown()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.terminate()


def spread(func, arguments):
    return func(*arguments)


def install():
    """Replace what would wait for its threads' next piece of work."""
    from concurrent.futures.thread import ThreadPoolExecutor

    ThreadPoolExecutor.submit, ThreadPoolExecutor.shutdown = submit, shutdown


def imported():
    """Module multiprocessing.pool has been imported."""
    from multiprocessing import pool

    ThreadPool.__module__ = Result.__module__ = "multiprocessing.pool"
    pool.ThreadPool = ThreadPool
