"""What an execution left in the workspace: files that are new or changed."""

from . import BUILTINS as __builtins__

from posix import fchmod, mkdir, scandir, stat

from . import codec

MAX_REPORTED = 200
MAX_SEEN = 20000
MAX_DEPTH = 32
SKIPPED = {"__pycache__", ".cache", ".config", ".local"}


class Workspace:
    def __init__(self, path):
        self.path = path
        self.files = {}  # relative path -> what identifies its content
        self.directories = False
        self.changed = None  # when the directory's own list last changed

    def seed(self, source):
        """Copy the files that the host put into source, and take what is there
        now as known."""
        try:
            stat(source)
        except OSError:
            pass
        else:
            copy(source, self.path, 0)
            self.scan()

    def report(self):
        """The members of a done frame that name the artifacts, or nothing."""
        if not self.files and not self.directories:
            # As a rule nothing is there: one call tells.
            try:
                changed = stat(self.path).st_mtime_ns
            except OSError:
                return ""
            if changed == self.changed:
                return ""
            self.changed = changed
        found = self.scan()
        return artifacts_member(found)

    def scan(self):
        """Look at every file; (path, size) of those that are new or changed."""
        known, self.files, self.directories = self.files, {}, False
        found = []
        left = MAX_SEEN
        pending = [("", 0)]
        while pending:
            prefix, depth = pending.pop()
            try:
                entries = sorted(scandir(self.path + "/" + prefix), key=lambda e: e.name)
            except OSError:
                continue
            for entry in entries:
                left -= 1
                if left < 0:
                    return found
                try:
                    path = prefix + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in SKIPPED and depth < MAX_DEPTH:
                            self.directories = True
                            pending.append((path + "/", depth + 1))
                    elif entry.is_file(follow_symlinks=False):
                        s = entry.stat(follow_symlinks=False)
                        mark = self.files[path] = (s.st_mtime_ns, s.st_size, s.st_ino)
                        if known.get(path) != mark:
                            found.append((path, s.st_size))
                except OSError:  # gone meanwhile
                    pass
        return found


def artifacts_member(found):
    """The members of a done frame for a list of (path, size), or nothing."""
    if not found:
        return ""
    items = ",".join('{"path":%s,"size":%d}' % (codec.quote(path), size) for path, size in found[:MAX_REPORTED])
    more = ',"artifactsTruncated":true' if len(found) > MAX_REPORTED else ""
    return ',"artifacts":[%s]%s' % (items, more)


def copy(source, target, depth):
    for entry in scandir(source):
        path = target + "/" + entry.name
        if entry.is_dir():
            if depth < MAX_DEPTH:
                try:
                    mkdir(path)
                except FileExistsError:
                    pass
                copy(entry.path, path, depth + 1)
        else:
            from io import open

            with open(entry.path, "rb") as r, open(path, "wb") as w:
                while True:
                    data = r.read(1 << 20)
                    if not data:
                        break
                    w.write(data)
                fchmod(w.fileno(), entry.stat().st_mode & 0o777)
