"""The entry point of a container's first process.

The other modules come from one file of byte code, if the engine compiled one for
this interpreter: finding each module by itself takes milliseconds in a sandbox.
"""

import sys
from posix import O_CLOEXEC, O_RDONLY, close, open as open_fd, read

HERE = __file__.rpartition("/")[0]


class Bundle:
    """A finder and loader of the modules in a bundle."""

    def __init__(self, codes, loads):
        self.codes = codes
        self.loads = loads

    def find_spec(self, name, path=None, target=None):
        if name not in self.codes:
            return None
        spec = type(sys.__spec__)(name, self, origin="%s/%s.py" % (HERE, name.rpartition(".")[2]))
        if "." not in name:
            spec.origin, spec.submodule_search_locations = HERE + "/__init__.py", [HERE]
        spec.has_location = True
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(self.loads(self.codes[module.__name__]), vars(module))


def bundle():
    """The bundle for this interpreter, or None."""
    from marshal import loads

    magic = sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
    try:
        fd = open_fd("%s/bundle.%s" % (HERE, sys.implementation.cache_tag), O_RDONLY | O_CLOEXEC)
    except OSError:
        return None
    data = read(fd, 1 << 20)
    close(fd)
    if data[: len(magic)] != magic:
        return None
    return Bundle(loads(data[len(magic) :]), loads)


def start():
    found = bundle()
    if found is not None:
        sys.meta_path.insert(0, found)
    else:
        sys.path.insert(0, HERE.rpartition("/")[0])
    if sys.argv[1:] == ["single"]:
        del sys.argv[1:]
        import sallyport_guest.single as first
    else:
        import sallyport_guest.init as first

    if found is None:
        del sys.path[0]
    first.main()


start()
