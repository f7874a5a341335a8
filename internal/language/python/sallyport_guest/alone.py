"""Hints for Python without an operating system, as it is in WebAssembly: what it lacks,
and where there is more."""

from . import BUILTINS as __builtins__

import errno
import sys

from .missing import INSTEAD, TOOL_INSTEAD, package_facts

# Import names of packages with compiled code, and without a part that works alone.
COMPILED = frozenset(
    (
        "numpy pandas scipy matplotlib seaborn sklearn statsmodels polars pyarrow duckdb PIL cv2 skimage lxml torch tensorflow jax"
        " keras transformers onnxruntime xgboost lightgbm numba cython cffi cryptography nacl bcrypt psycopg2 asyncpg pymongo grpc"
        " orjson ujson msgpack pydantic_core tokenizers tiktoken shapely geopandas pyproj rasterio h5py tables netCDF4 fitz pymupdf"
        " greenlet gevent uvloop zmq psutil spacy faiss altair vl_convert rdkit pygame soundfile librosa"
    ).split()
)
ELSEWHERE = (
    "A sandbox with an operating system can have it: engine gvisor, or podman or docker with an image or environment that"
    " holds it. sallyport doctor tells the user which work here"
)
LIBRARY = {
    "ssl": "no network and no TLS", "mmap": "no mapping of files", "fcntl": "no file locks",
    "multiprocessing": "no processes", "posixsubprocess": "no processes", "posixshmem": "no processes", "pwd": "no users", "grp": "no users",
    "spwd": "no users", "resource": "no limits of its own", "termios": "no terminal", "tty": "no terminal", "pty": "no terminal",
    "curses": "no terminal", "readline": "no terminal", "tkinter": "no screen", "turtle": "no screen", "syslog": "no system log",
    "dbm": "no dbm library: use sqlite3 or shelve with dbm.dumb", "gdbm": "no dbm library: use sqlite3", "venv": "no environments",
    "ensurepip": "no installer",
}  # fmt: skip
MANUAL = (
    "Python runs alone, in WebAssembly: no processes, no network, no packages with compiled code (numpy, pandas)."
    " Threads run while another waits, not at the same time; asyncio works."
)
NO_PROCESSES = "there are no processes here: Python runs alone, in WebAssembly."
PROCESSES = (
    NO_PROCESSES + " Do it in Python (shutil, pathlib, zipfile, csv, asyncio, threads one after the other)."
    " Where a command is needed: engine gvisor, podman or docker"
)
WORKERS = (
    NO_PROCESSES + " Use threads, which take turns: threading, queue,"
    " concurrent.futures.ThreadPoolExecutor or multiprocessing.pool.ThreadPool, and plain objects with threading.Lock in place of"
    " shared memory. Where processes are needed: engine gvisor, podman or docker"
)
LOCKED = (
    "another connection of this session uses the file, and waiting does not help, because nothing else runs meanwhile. End what it"
    " does (commit, rollback, or read all rows), close it, or use one connection for everything"
)
SHARED = frozenset(("mmap", "_multiprocessing", "_posixshmem"))  # what module multiprocessing needs
NO_PROCESS = ("does not support processes", "has no processes")
GONE = frozenset(("fork", "forkpty", "pipe", "execv", "execve", "execvp", "posix_spawn", "posix_spawnp", "wait", "wait3", "wait4", "waitid"))
TIMERS = (
    "no timer and no signal interrupts code here. Compare time.monotonic() with a deadline, use asyncio.timeout around what is awaited,"
    " or pass timeout to run_python for all of the code"
)
NAMES = {  # what a module has elsewhere: what to do instead
    "signal.alarm": TIMERS, "signal.setitimer": TIMERS, "signal.getitimer": TIMERS, "signal.pause": TIMERS, "signal.sigwait": TIMERS,
    "time.tzset": "the time zone is UTC here. Use zoneinfo: datetime.now(ZoneInfo('Europe/Berlin'))",
    "os.sched_getaffinity": "there is one processor here, as os.cpu_count() says",
    "os.get_terminal_size": "there is no terminal here. shutil.get_terminal_size() returns 80 columns",
}  # fmt: skip
TOO_LARGE = (
    "Python has 32 bits here, in WebAssembly: lengths and indexes are below 2**31. Work on parts of the data, or count without"
    " them: random.randrange(10**12), while n < 10**12"
)


def lacking(session, e):
    """Return the hint for what does not exist without an operating system."""
    if sys.platform != "wasi":
        return None
    if isinstance(e, ModuleNotFoundError) and isinstance(e.name, str):
        if e.name in SHARED and came_through(e, "/multiprocessing/"):
            return WORKERS
        return module(session, e.name.partition(".")[0])
    text = str(e)
    if shares_nothing(e, text):
        return WORKERS
    if starts_nothing(e):
        return PROCESSES
    if isinstance(e, AttributeError) and text.startswith("module '"):
        module_name = text.split("'")[1]
        if module_name == "os" and (e.name in GONE or str(e.name).startswith("spawn")):
            return PROCESSES
        return NAMES.get("%s.%s" % (module_name, e.name))
    if isinstance(e, NameError) and e.name in ("execv", "execve"):
        return PROCESSES
    if isinstance(e, OverflowError) and text.endswith(("into an index-sized integer", "too large to convert to C ssize_t")):
        return TOO_LARGE
    if type(e).__name__ == "OperationalError" and type(e).__module__ == "sqlite3" and text == "database is locked":
        return LOCKED
    if "unknown url type: https" in text or unsupported(e) and ("socket" in text or came_through(e, "/socket.py")):
        return TOOL_INSTEAD
    return None


def module(session, name):
    """Return the hint for a module that cannot be here, or None for another."""
    why = LIBRARY.get(name.lstrip("_"))
    if why is not None:
        return "module %s does not exist here: Python runs alone, in WebAssembly, with %s" % (name.lstrip("_"), why)
    if name not in COMPILED:
        return None
    facts = package_facts(session, name, name)
    elsewhere = facts.get("elsewhere")
    instead = " Without it: %s of the standard library." % INSTEAD[name] if name in INSTEAD else ""
    return "%s is compiled for an operating system, and Python runs alone here, in WebAssembly. %s.%s" % (
        name, elsewhere if isinstance(elsewhere, str) and elsewhere else ELSEWHERE, instead,
    )  # fmt: skip


def unsupported(e):
    return isinstance(e, OSError) and e.errno == errno.ENOTSUP


def starts_nothing(e):
    """Report whether an exception says that there are no processes."""
    return unsupported(e) and any(part in str(e) for part in NO_PROCESS)


def shares_nothing(e, text):
    """Report whether an exception says that module multiprocessing has no processes."""
    if isinstance(e, NotImplementedError) or starts_nothing(e):
        return "multiprocessing" in text
    if isinstance(e, AttributeError) and text == "module 'os' has no attribute 'pipe'" or unsupported(e):
        return came_through(e, "/multiprocessing/")
    return isinstance(e, (ImportError, AttributeError)) and "'SharedMemoryManager'" in text


def came_through(e, place):
    """Report whether an exception came through a file whose path contains place."""
    tb = e.__traceback__
    while tb is not None:
        if place in tb.tb_frame.f_code.co_filename:
            return True
        tb = tb.tb_next
    return False
