"""The source of executed code, for tracebacks and inspect.getsource."""

from . import BUILTINS as __builtins__

import sys

MAX_BYTES = 16 << 20
OWN = ("__main__",)  # the session's module


class Sources:
    def __init__(self):
        self.files = {}
        self.size = 0

    def add(self, filename, text):
        self.size += len(text) - len(self.files.pop(filename, ""))
        self.files[filename] = text
        while self.size > MAX_BYTES and len(self.files) > 1:
            oldest = next(iter(self.files))
            self.size -= len(self.files.pop(oldest))
            linecache = sys.modules.get("linecache")
            if linecache is not None:
                linecache.cache.pop(oldest, None)
        linecache = sys.modules.get("linecache")
        if linecache is not None:
            self.cache(linecache, filename, text)

    def publish(self):
        """Give everything to linecache. This is done once it is imported, and again
        before a traceback is printed, in case code cleared it."""
        linecache = sys.modules.get("linecache")
        if linecache is not None:
            for filename, text in self.files.items():
                if filename not in linecache.cache:
                    self.cache(linecache, filename, text)

    def with_class(self, name):
        """Return the name of the last source that defines a class, or None."""
        statement = "class " + name
        for filename in reversed(list(self.files)):
            for line in self.files[filename].splitlines():
                line = line.strip()
                if line.startswith(statement) and not line[len(statement) : len(statement) + 1].isidentifier():
                    return filename
        return None

    def inspect_imported(self):
        """Make inspect find the classes of the session: a class does not say where it
        comes from, and the module is not one file."""
        inspect = sys.modules["inspect"]
        getfile = inspect.getfile

        def getfile_also_here(object):
            # __file__ names none of the cells.
            filename = self.with_class(object.__name__) if isinstance(object, type) and object.__module__ in OWN else None
            if filename is None:
                return getfile(object)
            self.publish()
            return filename

        inspect.getfile = getfile_also_here

    def cache(self, linecache, filename, text):
        lines = [line + "\n" for line in text.splitlines()]
        # Without a modification time, it is never checked against a file.
        linecache.cache[filename] = (len(text), None, lines, filename)
