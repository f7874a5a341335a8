"""The new and changed files that an execution left in the workspace."""

from . import BUILTINS as __builtins__

from itertools import islice
from posix import chmod, fchmod, lstat, mkdir, scandir, stat, unlink

from . import codec

MAX_REPORTED = 1000  # as many as the host takes
MAX_SEEN = 20000
MAX_DEPTH = 32
MAX_NOTED = 1000  # pictures of an execution of which something is known
MAX_ABOUT = 200  # characters of it
SHOWN = ("png", "jpg", "gif", "webp", "svg", "html")
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")  # by their names, as the host has them
SKIPPED = {"__pycache__", ".cache", ".config", ".local"}

# With more files than this, a directory whose own listing has not changed is
# skipped: a file that was rewritten in place then goes unnoticed, but an
# execution next to a large tree does not pay for the tree.
LARGE = 500


class Workspace:
    def __init__(self, path):
        self.path = path
        self.directories = {}  # relative path -> (time of change, files, subdirectories)
        self.count = 0  # of files
        self.shown = {}  # of this execution: path of a picture -> what it is
        self.html = False  # who reads the result sees pages

    def seed(self, source):
        """Copy the files that the host put into source, and record what is there now as
        known."""
        try:
            stat(source)
        except OSError:
            pass
        else:
            copy(source, self.path, 0)
            self.set_modes(source + ".modes")
            self.scan()

    def set_modes(self, file):
        """Set the modes of files. In source they have to be readable, whatever their
        modes."""
        from io import open

        try:
            with open(file, "rb") as f:
                records = f.read().split(b"\0")[:-1]
        except FileNotFoundError:
            return
        for record in records:
            mode, _, path = record.partition(b" ")
            chmod(self.path.encode("utf-8", "surrogateescape") + b"/" + path, int(mode, 8))

    def report(self):
        """Return the members of a done frame that name the artifacts, or nothing."""
        shown, self.shown = self.shown, {}
        found = self.scan()
        return artifacts_member(ordered(found, shown) if found else found, shown)

    def note(self, path, about):
        """Keep what a picture shows, which is a file of the workspace."""
        about = " ".join(about.split())
        if len(self.shown) < MAX_NOTED:
            self.shown.pop(path, None)
            self.shown[path] = about if len(about) <= MAX_ABOUT else about[: MAX_ABOUT - 1] + "…"

    def free(self, stem, suffix):
        """Return the path of the next picture or page with such a name."""
        number = 1
        while any(exists("%s/%s-%d.%s" % (self.path, stem, number, s)) for s in SHOWN):
            number += 1
        return "%s/%s-%d.%s" % (self.path, stem, number, suffix)

    def write(self, stem, suffix, data, name=None):
        """Write the next picture or page with such a name, or one of exactly that name if
        it is free, whole or not at all. Return its path in the workspace."""
        from io import open

        path = name and self.path + "/" + name
        while True:
            path = path or self.free(stem, suffix)
            try:
                f = open(path, "xb")
                break
            except FileExistsError:  # another thread was first
                path = None
        try:
            with f:
                f.write(data)
        except OSError:
            unlink(path)
            raise
        return path[len(self.path) + 1 :]

    def scan(self):
        """Look at every file. Return (path, size, time of change) of those that are new
        or changed."""
        known, self.directories = self.directories, {}
        large, self.count = self.count > LARGE, 0
        found = []
        pending = [("", 0)]
        while pending and self.count + len(self.directories) < MAX_SEEN:
            prefix, depth = pending.pop()
            before = known.get(prefix)
            try:
                changed = stat(self.path + "/" + prefix).st_mtime_ns
                if before is not None and before[0] == changed and (large or not before[1]):
                    # Usually the workspace is empty: one call shows it.
                    files, below = before[1:]
                else:
                    files, below = self.look(prefix, before[1] if before else {}, found)
            except OSError:  # gone meanwhile
                continue
            self.directories[prefix] = (changed, files, below)
            self.count += len(files)
            if depth < MAX_DEPTH:
                pending += [(prefix + name + "/", depth + 1) for name in below]
        return found

    def look(self, prefix, known, found):
        """Return the files and subdirectories of one directory."""
        files, below = {}, []
        with scandir(self.path + "/" + prefix) as entries:
            listed = sorted(islice(entries, MAX_SEEN), key=lambda e: e.name)
        for entry in listed:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in SKIPPED:
                        below.append(entry.name)
                elif entry.is_file(follow_symlinks=False):
                    s = entry.stat(follow_symlinks=False)
                    mark = files[entry.name] = (s.st_mtime_ns, s.st_size, s.st_ino)
                    if known.get(entry.name) != mark:
                        found.append((prefix + entry.name, s.st_size, s.st_mtime_ns))
            except OSError:
                pass
        return files, below


def ordered(found, shown):
    """Return files with the pictures first, in the order in which they were made: of
    those of one moment, those that were shown come first, in their order."""
    at = {path: i for i, path in enumerate(shown)}
    pictures = [f for f in found if f[0].lower().endswith(PICTURES)]
    pictures.sort(key=lambda f: (f[2], at.get(f[0], MAX_NOTED)))
    return pictures + [f for f in found if not f[0].lower().endswith(PICTURES)]


def artifacts_member(found, shown):
    """Return the members of a done frame for a list of (path, size, ...), or nothing."""
    if not found:
        return ""

    def about(path):
        return ',"about":%s' % codec.quote(shown[path]) if shown.get(path) else ""

    items = ",".join('{"path":%s,"size":%d%s}' % (codec.quote(path), size, about(path)) for path, size, *_ in found[:MAX_REPORTED])
    more = ',"artifactsTruncated":true' if len(found) > MAX_REPORTED else ""
    return ',"artifacts":[%s]%s' % (items, more)


def exists(path):
    try:
        lstat(path)
    except (OSError, ValueError):
        return False
    return True


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
