"""What the host does with a session besides running code in it: taking files out of
the workspace, putting files in, and letting go of files before it is saved."""

from . import BUILTINS as __builtins__

from itertools import islice
from posix import O_CREAT, O_EXCL, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_WRONLY, close, fchmod, fstat, mkdir, open, read, rename, scandir, stat, unlink, urandom, write

from . import codec
from .artifacts import MAX_DEPTH, MAX_SEEN
from .channel import Gone
from .execute import described

CHUNK = 768 << 10
SKIPPED = "__pycache__"


def run(session, task):
    """Do a task. Return the status and the exit code of its execution."""
    interrupts = session.interrupts
    try:
        try:
            interrupts.arm()
            TASKS[task](session)
        finally:
            interrupts.disarm()
    except Gone:
        raise
    except KeyboardInterrupt:
        return "interrupted", 130
    except BaseException as e:
        session.error = described(e)
        return "error", 1
    return "ok", 0


def take_out(session):
    """Send every regular file and directory of the workspace."""
    root = session.workspace.path
    from .install import added

    for package in added(session.packages):
        leave(session, "package " + package, "add it with runtime.install_packages")
    walk(session, root, "")


def walk(session, root, below):
    """Send the files and directories below one, which is the workspace or ends with a slash."""
    seen = 0
    pending = [(below, 0)]
    while pending:
        prefix, depth = pending.pop()
        with scandir(root + "/" + prefix) as entries:
            listed = sorted(islice(entries, MAX_SEEN + 1), key=lambda e: e.name)
        for entry in listed:
            path = prefix + entry.name
            seen += 1
            if seen > MAX_SEEN:
                leave(session, path, "there are more than %d files" % MAX_SEEN)
                return
            try:
                path.encode("utf-8")
            except UnicodeError:
                leave(session, ascii(path), "its name is not valid text")
                continue
            try:
                if entry.is_symlink():
                    leave(session, path, "a symbolic link")
                elif entry.is_dir():
                    if entry.name == SKIPPED:
                        continue
                    if depth >= MAX_DEPTH:
                        leave(session, path, "nested too deeply")
                        continue
                    tell(session, {"path": path, "mode": entry.stat().st_mode & 0o777, "directory": True})
                    pending.append((path + "/", depth + 1))
                elif entry.is_file():
                    send(session, root, path, entry.stat().st_mode & 0o777)
                else:
                    leave(session, path, "not a file")
            except OSError as e:
                leave(session, path, e.strerror or "cannot be read")


def take_named(session):
    """Send the files that the host names, one after the other, and those below directories."""
    root = session.workspace.path
    while True:
        part = session.channel.request_sync("task_next", "{}")
        if part is None:
            return
        path = part["path"]
        try:
            mode = stat(root + "/" + path, follow_symlinks=False).st_mode
            if mode & 0o170000 == 0o040000:
                walk(session, root, "" if path == "." else path + "/")
            elif mode & 0o170000 != 0o100000:
                leave(session, path, "not a file or a directory")
            else:
                send(session, root, path, mode & 0o777)
        except OSError as e:
            leave(session, path, e.strerror or "cannot be read")


def tell(session, params):
    return session.channel.request_sync("task_file", codec.encode(params))


def leave(session, path, why):
    tell(session, {"path": path, "leftOut": why})


def send(session, root, path, mode):
    from binascii import b2a_base64

    fd = open(root + "/" + path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
    try:
        rest = fstat(fd).st_size  # later writes are not included
        more = True
        while more:
            data = read(fd, min(CHUNK, rest))
            rest -= len(data)
            more = len(data) == CHUNK and rest > 0
            # Not by the codec, which would look at each character of the data.
            head = codec.encode({"path": path, "mode": mode, "more": more})[:-1]
            params = "".join((head, ',"data":"', str(b2a_base64(data, newline=False), "ascii"), '"}'))
            session.channel.request_sync("task_file", params)
    finally:
        close(fd)


def put_in(session):
    """Create the files that the host names. One that does not come whole changes nothing."""
    from binascii import a2b_base64

    root = session.workspace.path
    fd = -1
    try:
        while True:
            part = session.channel.request_sync("task_next", "{}")
            if part is None:
                break
            path = root + "/" + part["path"]
            if part.get("directory"):
                try:
                    mkdir(path, part.get("mode", 0))
                except FileExistsError:
                    pass
                continue
            if fd < 0:
                draft = path[: path.rindex("/")] + "/.sallyport-" + urandom(8).hex()
                fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600)
                fchmod(fd, part.get("mode", 0))
            rest = memoryview(a2b_base64(part.get("data", "")))
            while rest:
                rest = rest[write(fd, rest) :]
            if not part.get("more"):
                rename(draft, path)
                fd, done = -1, fd
                close(done)
    finally:
        if fd >= 0:
            close(fd)
            unlink(draft)
        session.workspace.scan()  # these are not the next execution's artifacts


def let_go(session):
    """Let go of files in the user's folders that are not there any more: a sandbox that
    holds one cannot be saved. Descriptors stay, and every use of them fails."""
    from posix import O_PATH, chdir, dup2, listdir

    for fd in listdir("/proc/self/fd"):
        if gone("/proc/self/fd/" + fd):
            nothing = open("/", O_PATH)
            try:
                dup2(nothing, int(fd))
            finally:
                close(nothing)
    if gone("/proc/self/cwd"):
        chdir(session.workspace.path)


def gone(link):
    from posix import readlink

    try:
        path = readlink(link)
    except OSError:
        return False
    # Deleted files elsewhere are the sandbox's own.
    return path.startswith("/") and path.endswith(" (deleted)") and not path.startswith(OWN_PLACES)


OWN_PLACES = ("/workspace/", "/tmp/", "/dev/", "/packages/", "/memfd:")

TASKS = {"take_out": take_out, "put_in": put_in, "take_named": take_named, "let_go": let_go}
