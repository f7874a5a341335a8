"""Unpacks a tar that arrives in pieces into an empty directory."""

from . import BUILTINS as __builtins__

from posix import O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY, close, mkdir, open, write

BLOCK = 512
MAX_EXTENDED = 1 << 20  # bytes of a record with a long name
MAX_PATH = 4096
FILES, DIRECTORY, EXTENDED, GLOBAL = (b"0", b"\0"), b"5", b"x", b"g"


class Untar:
    """It accepts regular files and directories alone, below the directory."""

    def __init__(self, root):
        self.root = root
        self.made = {""}  # directories
        self.files = self.bytes = 0
        self.pending = b""
        self.left = self.padding = 0  # bytes of the current entry, and behind it
        self.fd = -1
        self.record = None  # of the current extended header
        self.extended = {}  # what it says of the next entry
        self.ended = False

    def feed(self, data):
        data = memoryview(self.pending + bytes(data))
        while not self.ended:
            if self.left:
                part = data[: self.left]
                if not part:
                    break
                self.content(part)
                self.left -= len(part)
                data = data[len(part) :]
                if not self.left:
                    self.finish()
            elif self.padding:
                skipped = min(self.padding, len(data))
                if not skipped:
                    break
                self.padding -= skipped
                data = data[skipped:]
            elif len(data) < BLOCK:
                break
            else:
                self.header(bytes(data[:BLOCK]))
                data = data[BLOCK:]
        self.pending = b"" if self.ended else bytes(data)

    def content(self, part):
        if self.record is not None:
            self.record += part
            return
        while part:
            part = part[write(self.fd, part) :]

    def header(self, block):
        if not block.strip(b"\0"):
            self.ended = True
            return
        plain = block[:148] + b" " * 8 + block[156:]
        if sum(plain) != octal(block[148:156]):
            raise ValueError("a header has a wrong checksum")
        kind, size = block[156:157], octal(block[124:136])
        name, prefix = text(block[:100]), text(block[345:500])
        if prefix and block[257:262] == b"ustar":
            name = prefix + "/" + name
        if kind in (EXTENDED, GLOBAL):
            if size > MAX_EXTENDED:
                raise ValueError("a header is too large")
            self.record, self.kind = bytearray(), kind
        else:
            size = int(self.extended.get("size", size))
            path = self.checked(self.extended.get("path", name))
            self.extended = {}
            self.entry(kind, path, octal(block[100:108]), size)
        self.left, self.padding = size, -size % BLOCK
        if not size:
            self.finish()

    def checked(self, path):
        path = path[:-1] if path.endswith("/") else path
        path = path[2:] if path.startswith("./") else path
        if not path or len(path) > MAX_PATH or any(part in ("", ".", "..") for part in path.split("/")):
            raise ValueError("the path %.100r leads elsewhere" % path)
        return path

    def entry(self, kind, path, mode, size):
        if kind == DIRECTORY and not size:
            self.directory(path)
            return
        if kind not in FILES or size < 0:
            raise ValueError("%.100r is neither a file nor a directory" % path)
        self.directory(path.rpartition("/")[0])
        self.fd = open(self.root + "/" + path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o755 if mode & 0o111 else 0o644)
        self.files += 1
        self.bytes += size

    def directory(self, path):
        if path not in self.made:
            self.directory(path.rpartition("/")[0])
            mkdir(self.root + "/" + path, 0o755)
            self.made.add(path)

    def finish(self):
        """The current entry is complete."""
        if self.record is not None:
            if self.kind == EXTENDED:
                self.extended = records(bytes(self.record))
            self.record = None
        self.close()

    def close(self):
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            close(fd)

    def check(self):
        """Raise an exception unless everything has arrived."""
        if not self.ended and (self.left or self.pending or self.record is not None):
            raise ValueError("it is incomplete")


def octal(field):
    if field[:1] >= b"\x80":
        raise ValueError("a number is too large")
    return int(field.strip(b"\0 ") or b"0", 8)


def text(field):
    return field.partition(b"\0")[0].decode("utf-8")


def records(data):
    """Return what an extended header says: lines of "LENGTH KEY=VALUE"."""
    found = {}
    while data:
        length = int(data.partition(b" ")[0])
        line = data[:length]
        if length < 5 or line[-1:] != b"\n":
            raise ValueError("a header cannot be read")
        key, _, value = line[:-1].partition(b" ")[2].partition(b"=")
        found[key.decode("utf-8")] = value.decode("utf-8")
        data = data[length:]
    return found
