"""runtime.install_packages: adds packages to the running sandbox.

The host resolves and checks them, and sends one archive. It is unpacked next to what
is there already, and then moved into place, so that a failure leaves nothing of it.
"""

from . import BUILTINS as __builtins__

import sys
from _thread import allocate_lock

from . import codec
from .errors import MCPError

MAX_PACKAGES = 200
PIECE = 64 << 10  # bytes
OWN = getattr(sys, "stdlib_module_names", ())
moving = allocate_lock()
numbers = iter(range(1, sys.maxsize))


class Installed:
    """What an installation has added."""

    __module__ = "mcp.runtime"

    def __init__(self, packages, size):
        self.packages = packages  # name -> version
        self.bytes = size

    def __repr__(self):
        if not self.packages:
            return "everything is installed already"
        named = ", ".join("%s %s" % pair for pair in self.packages.items())
        return "installed %s (%s)" % (named, megabytes(self.bytes))


def megabytes(size):
    return "%d MB" % round(size / 1e6) if size >= 1e6 else "%d kB" % max(1, round(size / 1e3))


def requested(packages):
    """Return the requirements as a list of strings."""
    if len(packages) == 1 and isinstance(packages[0], (list, tuple)):
        packages = packages[0]
    if not packages:
        raise MCPError('install_packages needs names: await runtime.install_packages("pandas>=2")', kind="invalid")
    if len(packages) > MAX_PACKAGES:
        raise MCPError("install_packages: %d packages at once; the most is %d" % (len(packages), MAX_PACKAGES), kind="invalid")
    for package in packages:
        if not isinstance(package, str) or not package.strip():
            raise MCPError("install_packages: a package must be str, not %s" % type(package).__name__, kind="invalid")
    return [package.strip() for package in packages]


def name_of(requirement):
    """Return the name that a requirement begins with."""
    from re import match

    return match(r"[A-Za-z0-9._-]*", requirement.strip()).group()


def normalised(name):
    parts = [part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part]
    return "-".join(parts)


def listed(facts, module):
    """Return, for hints, what the user's list allows, and the name in it that is a
    module's."""
    names = facts.get("listed") or ()
    named = next((name_of(n) for n in names if normalised(name_of(n)) == normalised(module)), None)
    if not names:
        return {"may": "", "named": None}
    start = ". Without a question, code may" if facts["install"] == "ask" else ". Code may"
    more = " and %d more" % (len(names) - 8) if len(names) > 8 else ""
    return {"may": "%s install what is in policy.packages: %s%s" % (start, ", ".join(names[:8]), more), "named": named}


def present(session):
    """Return the installed distributions: normalised name -> version."""
    from importlib import metadata

    session.paths.add()
    use(session)
    found = {}
    for distribution in metadata.distributions():
        try:
            name, version = distribution.metadata["Name"], distribution.version
        except Exception:  # damaged metadata
            continue
        if isinstance(name, str) and isinstance(version, str):
            found.setdefault(normalised(name), version)
    return found


def params(session, packages):
    """Return what to ask the host for, or None: names without versions that are there
    already need no one's permission."""
    installed = present(session)
    if all(normalised(package) in installed for package in packages):
        return None
    from .target import target

    return codec.encode({"packages": packages, "target": target(), "interpreter": sys.executable or "", "installed": installed})


async def install(session, packages):
    """Ask for packages and add them. Return an Installed."""
    asked = params(session, packages)
    try:
        return add(session, await session.channel.request("install_packages", asked) if asked else {})
    except MCPError as e:
        raise denied(e) from None


def install_sync(session, packages):
    asked = params(session, packages)
    try:
        return add(session, session.channel.request_sync("install_packages", asked) if asked else {})
    except MCPError as e:
        raise denied(e) from None


def denied(e):
    if e.kind == "unsupported":
        return MCPError("packages cannot be installed here", kind="denied")
    return e.with_traceback(None)  # without the frames of tarfile


def add(session, answer):
    """Add what the host has answered with, and what others are adding now."""
    packages = {str(p["name"]): str(p["version"]) for p in answer.get("packages") or ()}
    others = [archive for archive in answer.get("also") or () if archive not in session.archives]
    for archive in [*others, *([answer["archive"]] if packages else ())]:
        fetch(session, str(archive))
        session.channel.request_sync("packages_installed", '{"archive":%s}' % codec.quote(str(archive)))
    return Installed(packages, answer.get("bytes") or 0)


class Parts:
    """An archive, which the host sends in parts, as a file."""

    def __init__(self, session, archive):
        self.channel = session.channel
        self.archive = codec.quote(archive)
        self.part = b""
        self.at = self.offset = 0
        self.last = False

    def read(self, size):
        if self.at == len(self.part) and not self.last:
            from binascii import a2b_base64

            answer = self.channel.request_sync("package_part", '{"archive":%s,"offset":%d}' % (self.archive, self.offset))
            self.part, self.last, self.at = a2b_base64(answer["data"]), answer["last"], 0
            self.offset += len(self.part)
        data = self.part[self.at : self.at + size]
        self.at += len(data)
        return data


def unpack(file, where):
    """Write the files of an archive."""
    import tarfile
    from os import chmod, makedirs
    from shutil import copyfileobj

    made = set()
    with tarfile.open(fileobj=file, mode="r|", bufsize=PIECE) as tar:
        for entry in tar:
            if not entry.isreg() or any(part in ("", ".", "..") for part in entry.name.split("/")):
                raise ValueError("%.100r leads elsewhere, or is not a file" % entry.name)
            path = where + "/" + entry.name
            folder = path.rpartition("/")[0]
            if folder not in made:
                makedirs(folder, exist_ok=True)
                made.add(folder)
            with open(path, "xb") as f:
                copyfileobj(tar.extractfile(entry), f, PIECE)
            if entry.mode & 0o111:
                chmod(path, 0o755)


def fetch(session, archive, returns=False):
    """Get an archive and add what is in it, also if code has removed that. What returns
    from an earlier sandbox has to suit this one's Python."""
    from importlib import invalidate_caches
    from posix import getpid, mkdir
    from shutil import rmtree
    from tarfile import TarError

    where = "%s/.new-%d-%d" % (session.packages, getpid(), next(numbers))
    try:
        mkdir(where, 0o755)
        unpack(Parts(session, archive), where)
        unfit = foreign(where) if returns else ()
        if unfit:
            raise MCPError("they are for another Python (%s): install them again" % ", ".join(unfit), kind="not_found")
        with moving:
            Move(where, session.packages).run()
            if archive not in session.archives:
                session.archives.append(archive)
    except OSError as e:
        raise failure(session, e) from None
    except (TarError, ValueError) as e:
        raise MCPError("the packages that arrived cannot be used: %s" % e, kind="internal") from None
    finally:
        rmtree(where, ignore_errors=True)
    use(session)
    invalidate_caches()


def added(folder):
    """Return the packages there, as NAME VERSION."""
    from posix import listdir

    end = ".dist-info"
    try:
        return [name[: -len(end)].replace("-", " ") for name in sorted(listdir(folder)) if name.endswith(end)]
    except OSError:
        return []


def foreign(folder):
    """Return the packages there that were compiled for another version of Python."""
    ours, found = "cp%d%d" % sys.version_info[:2], []
    for package in added(folder):
        try:
            with open("%s/%s.dist-info/WHEEL" % (folder, package.replace(" ", "-")), encoding="utf-8", errors="replace") as f:
                tags = [line[4:].strip() for line in f if line.startswith("Tag:")]
        except OSError:
            continue
        if tags and not any(tag.startswith(("py", ours + "-")) or "-abi3-" in tag for tag in tags):
            found.append(package)
    return found


def failure(session, e):
    import errno

    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        try:
            from os import statvfs

            stat = statvfs(session.packages)
            holds = megabytes(stat.f_blocks * stat.f_frsize)
        except OSError:
            holds = "what limits.packages says"
        return MCPError(
            "the packages do not fit into %s, which holds %s: nothing of them was kept. The user can raise the setting limits.packages"
            % (session.packages, holds),
            kind="limit_exceeded",
        )
    return MCPError("the packages cannot be written to %s: %s" % (session.packages, e.strerror), kind="internal")


class Move:
    """Moves what is in one directory to another. Directories that both have are
    merged; files are replaced. A failure undoes it. What has the name of a module of
    Python itself stays behind: only a child process would find it, and break."""

    def __init__(self, source, target):
        self.source = source
        self.target = target
        self.moved = []

    def run(self):
        try:
            self.move("")
        except BaseException:
            from posix import rename

            for path in reversed(self.moved):
                rename(self.target + path, self.source + path)
            raise

    def move(self, folder):
        from os.path import isdir, islink, lexists
        from posix import listdir, rename

        for name in sorted(listdir(self.source + folder)):
            if not folder and name.partition(".")[0] in OWN:
                continue
            path = folder + "/" + name
            source, target = self.source + path, self.target + path
            if isdir(source) and isdir(target) and not islink(target):
                self.move(path)
            else:
                new = not lexists(target)
                rename(source, target)
                if new:
                    self.moved.append(path)


def use(session):
    """Let this process and its children import what is there, after everything else."""
    from os import environ

    folder = session.packages
    if folder not in sys.path or sys.path[-1] != folder:
        session.paths.add()
        sys.path[:] = [*(p for p in sys.path if p != folder), folder]
    for name, path in (("PYTHONPATH", folder), ("PATH", folder + "/bin")):
        have = environ.get(name)
        if name == "PATH" and have is None:
            have = "/usr/local/bin:/usr/bin:/bin"
        if path not in (have or "").split(":"):
            environ[name] = have + ":" + path if have else path


def again(session, archives):
    """Add the packages of an earlier sandbox of this session, unless that was done."""
    for archive in archives:
        if archive in session.archives:
            continue
        try:
            fetch(session, archive, True)
        except MCPError as e:
            session.streams.say("sallyport: packages that this session had are missing: %s\n" % e)
