"""The file that __file__ names, in the workspace. It is written when something may
look at it, and exists until the code ends."""

from . import BUILTINS as __builtins__

from posix import O_CLOEXEC, O_CREAT, O_EXCL, O_WRONLY, lstat, open as open_fd, unlink

CELL = ".cell.py"
OTHER = ".sallyport-"  # goes before a name that is taken


class MainFile:
    def __init__(self, directory, name, source):
        self.source = source
        self.path = directory + "/" + name
        self.written = False
        if self.taken():
            self.path = directory + "/" + OTHER + name

    def data(self):
        return self.source.encode("utf-8", "surrogatepass")

    def taken(self):
        """Whether there is something else at the path."""
        try:
            found = lstat(self.path)
        except (OSError, ValueError):
            return False
        data = self.data()
        if found.st_mode & 0o170000 != 0o100000 or found.st_size != len(data):
            return True
        from io import open

        try:
            with open(self.path, "rb") as f:
                return f.read() != data
        except OSError:
            return True

    def write(self):
        """Write the file, unless there is one."""
        try:
            fd = open_fd(self.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
        except (OSError, ValueError):
            return
        from io import open

        self.written = True
        try:
            with open(fd, "wb") as f:
                f.write(self.data())
        except OSError:  # the disk is full
            pass

    def remove(self):
        if self.written and not self.taken():
            try:
                unlink(self.path)
            except OSError:
                pass
