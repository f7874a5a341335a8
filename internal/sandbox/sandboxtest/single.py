# Comes before prelude.py where code is a single process. What does not exist there
# is an object of which every call fails as in a kernel that has no such call.
import contextlib, errno, json, os, platform, sys


class _Absent:
    def __init__(self, name, *arguments):
        self.__dict__["_name"] = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent("%s.%s" % (self._name, name))

    def __setattr__(self, name, value):
        pass

    def __call__(self, *arguments, **named):
        if self._name in ("ctypes.CDLL", "ctypes.Structure") or self._name.startswith("ctypes.c_"):
            return _Absent("libc" if self._name == "ctypes.CDLL" else self._name)
        raise OSError(errno.ENOSYS, self._name + " does not exist here")

    def __index__(self):
        return 0

    def __bool__(self):
        return False

    def _zero(self, *other):
        return 0

    __or__ = __ror__ = __and__ = __rand__ = __add__ = __radd__ = __mul__ = __rmul__ = __invert__ = _zero


sys.modules["ctypes"] = _Absent("ctypes")  # one that is there has no functions to call
for _name in ("array", "fcntl", "glob", "mmap", "select", "signal", "socket", "struct", "subprocess", "resource"):
    try:
        __import__(_name)
    except ImportError:
        sys.modules[_name] = _Absent(_name)
if not hasattr(os, "__file__"):  # the library is in one file
    os.__file__ = next(path for path in sys.path if os.path.isfile(path))


def _effective(name, change):
    """Has a call of os fail that does nothing, which probes take for success."""
    real = getattr(os, name)

    def call(path, *arguments):
        before = os.stat(path)
        real(path, *change(before))
        if os.stat(path)[:6] == before[:6]:
            raise OSError(errno.EPERM, name + " changes nothing here")
        real(path, *arguments)

    setattr(os, name, call)


_effective("chmod", lambda s: [s.st_mode & 0o7777 ^ 0o111])
_effective("chown", lambda s: [s.st_uid + 1, s.st_gid + 1])
platform.machine = lambda: "x86_64"  # whose calls have numbers, and are not there
