"""The loader of sandbox.Loader: starts the guest in a root that contains none of
its files.

It reads records from standard input, up to the one that ends them: the guest's
sources or byte code, files, variables. It then becomes the guest, and standard
input carries frames. It must compile on any Python 3.
"""

import sys
from posix import O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY, _exit, chmod, close, environ, fchmod, mkdir, putenv, read, symlink, unsetenv, write
from posix import open as open_fd

HERE = "/opt/sallyport/sallyport_guest"
WORKSPACE = "/workspace/"
# Variables that an engine or an image sets for programs in general, and for Python.
DROPPED = (b"PYTHON", b"SALLYPORT_")
PROXIES = (b"HTTP_PROXY", b"HTTPS_PROXY", b"FTP_PROXY", b"NO_PROXY", b"ALL_PROXY")


def take(n):
    parts = []
    while n:
        part = read(0, min(n, 1 << 20))
        if not part:
            _exit(0)  # the host has given up
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def fail(text):
    write(2, ("sallyport: " + text + "\n").encode("utf-8", "replace"))
    _exit(66)


class Modules:
    """Finds and loads modules from what the host sent."""

    def __init__(self, sources, codes):
        self.sources = sources
        self.codes = codes

    def find_spec(self, name, path=None, target=None):
        if name not in self.codes and name not in self.sources:
            return None
        spec = type(sys.__spec__)(name, self, origin="%s/%s.py" % (HERE, name.rpartition(".")[2]))
        if "." not in name:
            spec.origin, spec.submodule_search_locations = HERE + "/__init__.py", [HERE]
        spec.has_location = True
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        from marshal import loads

        name = module.__name__
        if name in self.codes:
            code = loads(self.codes[name])
        else:
            code = compile(self.sources[name], module.__spec__.origin, "exec", 0, True)
        exec(code, vars(module))


def module_of(path):
    """Return the name of the module in one of the guest's files."""
    name = path[: -len(".py")].replace("/", ".")
    return name[: -len(".__init__")] if name.endswith(".__init__") else name


def put(path, mode, data):
    """Write a file that the caller sent: into the workspace, which is empty, or at the
    absolute path of a folder's copy, where what it lies in came before it."""
    if path[0] != "/":
        parts = path.split("/")
        for i in range(1, len(parts)):
            try:
                mkdir(WORKSPACE + "/".join(parts[:i]), 0o755)
            except FileExistsError:
                pass
        path = WORKSPACE + path
    if mode & 0o170000 == 0o040000:
        try:
            mkdir(path, 0o700)
        except FileExistsError:
            pass  # the copy itself
        return chmod(path, mode & 0o777)
    if mode & 0o170000 == 0o120000:
        return symlink(data, path)
    fd = open_fd(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
    fchmod(fd, mode)
    view = memoryview(data)
    while view:
        view = view[write(fd, view) :]
    close(fd)


def variables(given):
    for name in list(environ):
        if name.startswith(DROPPED) or name.upper() in PROXIES or name in (b"container", b"HOSTNAME", b"TERM"):
            unsetenv(name)
            del environ[name]
    for name, value in given:
        putenv(name, value)
        environ[name] = value


def main():
    if sys.version_info < (3, 9):
        fail("the image's Python is %d.%d; 3.9 or newer is needed" % sys.version_info[:2])
    if sys.implementation.name != "cpython":
        fail("the image's Python is %s; CPython is needed" % sys.implementation.name)
    sources, codes, given, marker, trial = {}, {}, [], b"", None
    while True:
        head = take(17)
        name, data = take(int(head[1:9], 16)), take(int(head[9:17], 16))
        kind = head[:1]
        if kind == b"m":
            sources[module_of(name.decode())] = data
        elif kind == b"b":
            magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
            if data[: len(magic)] == magic:
                from marshal import loads

                codes = loads(data[len(magic) :])
        elif kind == b"f":
            mode, _, path = name.decode("utf-8", "surrogateescape").partition(" ")
            try:
                put(path, int(mode, 8), data)
            except OSError as e:
                fail("the file %s cannot be put into the sandbox: %s" % (path, e.strerror))
        elif kind == b"e":
            given.append((name, data))
        elif kind == b"t":
            trial = data
        elif kind == b".":
            marker = data
            break
    variables(given)
    write(2, marker)
    if trial is not None:
        exec(compile(trial, "<trial>", "exec"), {"__name__": "trial", "sources": sources, "here": HERE})
        _exit(0)
    sys.argv[:] = [HERE + "/__main__.py"]
    sys.meta_path.insert(0, Modules(sources, codes))
    from sallyport_guest import init

    init.main(lifeline=True)


main()
