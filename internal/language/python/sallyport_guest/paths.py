"""The hint about a file that is not there, or not to be written: the sandbox has none
of the user's files, except in folders that the user shows it."""

from . import BUILTINS as __builtins__

import ast
import errno
import sys

from .errors import MCPError, similar

MAX_SOURCE = 200000  # characters of code that hints look at

HOSTS = ("/home/", "/Users/", "/root/", "/mnt/", "/media/", "/Volumes/", "/private/", "/srv/", "/data/")

FILE_ERRORS = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
# Functions of libraries, and those that code itself calls: these have no frame, and
# some of the others have names that mean something else as well.
MAKERS = ("mkdir", "makedirs")
WRITERS = ("write_text", "write_bytes", "touch", "savefig", "save", "savetxt", "copyfile", "move")
OWN_WRITERS = ("touch", "symlink")
LISTERS = ("listdir", "scandir", "iterdir", "walk", "chdir", "rglob", "glob")
# What code wanted with a path -> what a tool for that is found by, and parts of its name.
TOOLS = {
    "read": ("read text file from path", ("read", "file"), "path=%r"),
    "write": ("write text file to path", ("write", "file"), "path=%r, content=..."),
    "make": ("create directory at path", ("create", "dir"), "path=%r"),
    "list": ("list directory at path", ("list", "dir"), "path=%r"),
}


def missing_path(session, e):
    if type(e).__name__ == "OperationalError" and "unable to open database file" in str(e):
        e = database(session, e)
    if not isinstance(e, OSError) or e.errno not in FILE_ERRORS and not isinstance(e, FileNotFoundError) or came_through(e, "_execute_child"):
        return None
    from os import path as paths

    path, other, workspace = getattr(e, "filename", None), getattr(e, "filename2", None), session.workspace.path
    wanted = purpose(session, e)
    if isinstance(path, str) and isinstance(other, str) and paths.lexists(path):  # it is renamed, or linked
        path, wanted = other, "write"
    if isinstance(path, bytes):
        path = path.decode("utf-8", "replace")
    if path is not None and not isinstance(path, str):
        return None
    if path and e.errno == errno.ENOENT and paths.islink(path):
        return "%r is a link to %s, which is not in the sandbox" % (path[:200], target(path))
    inside = path is None or path[:1] != "/" or path.startswith(workspace + "/")
    windows = path is not None and path[1:3] in (":\\", ":/")
    facts = {} if inside and not windows else folder_facts(session, path)
    if facts.get("folder"):
        return in_folder(session, path[:200], wanted, e.errno, facts)
    of_host = not inside and (path.startswith(HOSTS) or e.errno == errno.ENOENT and not paths.exists("/" + path.split("/", 2)[1]))
    if of_host or windows:
        return path_of_host(session, path[:200], wanted, facts)
    folder = path.rpartition("/")[0] if path else ""
    if e.errno == errno.ENOTDIR and paths.isfile(folder):
        return "%r is a file, so it holds no others" % folder[:200]
    if wanted in ("write", "make", "open"):
        if e.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return "files can be written to %s, which is the working directory, and to /tmp, and nowhere else" % workspace
        if folder and not paths.exists(folder) and (inside or path.startswith("/tmp/")):
            return "the folder %r does not exist: import os; os.makedirs(%r, exist_ok=True) first" % (folder[:200], folder[:200])
    if not inside or e.errno not in (errno.ENOENT, None):
        return None
    return not_here(session, path, wanted)


def target(path):
    """Return where a link points, for a person."""
    from os import readlink

    try:
        return repr(readlink(path)[:200])
    except OSError:  # it is gone
        return "something"


def not_loaded(session, e):
    if isinstance(e, ImportError) and "failed to map segment" in str(e):
        return "extension modules (.so) load only from the packages of the sandbox, not from %s or a folder of the user" % session.workspace.path


def database(session, e):
    """Return an error with the path of an SQLite database that cannot be opened, or
    None."""
    for node in nodes_at(session, e):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "connect" and node.args:
            path = getattr(node.args[0], "value", None)
            if isinstance(path, str):
                path = path.partition("?")[0][5:] if path.startswith("file:") else path
                return FileNotFoundError(errno.ENOENT, "", path).with_traceback(e.__traceback__)


def not_here(session, path, wanted):
    """Return the hint for a file that code expects in the workspace."""
    from os import listdir

    have = sorted(name for name in listdir(session.workspace.path)[:1000] if name[:1] != ".")
    near = similar(path.rpartition("/")[2], have) if path else ""
    there = "%s has %s" % (session.workspace.path, some(have))
    text = "%s is not in the sandbox, which has none of the user's files%s (%s)" % (repr(path[:100]) if path else "the file", near, there)
    if near or wanted == "list":
        return text
    if session.scripted:
        from shlex import quote

        given = path[:100] if path and not path.startswith("/") else "PATH"
        return "%s: sallyport run --file %s %s copies it along" % (text, quote(given + "=" + given if "/" in given else given), quote(sys.argv[0]))
    tool = tool_for(session, "read", "/path/on/the/host")
    return "%s. %s" % (text, "For a file of the user: server " + tool if tool else "`sallyport run --file PATH` copies one along; a server that reads files would give others")


def some(names):
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "") or "no files"


def folder_facts(session, path):
    """Ask the host which folder in the sandbox a path is about."""
    from . import codec

    try:
        found = session.channel.request_sync("folder_facts", codec.encode({"path": path[:2000]}))
    except MCPError:  # a host that does not know, or a forked child
        found = None
    return found if isinstance(found, dict) else {}


def in_folder(session, path, wanted, number, facts):
    """Return the hint for a path in a folder that the user shows the sandbox, or None."""
    folder, place = str(facts["folder"]), facts.get("place")
    text = "%r is %s in the sandbox" % (path, place) if place else ""
    if facts.get("readOnly") and wanted in ("write", "make"):
        return "%s%s is a folder of the user and read-only: write to %s" % (text and text + ". ", folder, session.workspace.path)
    if place or number != errno.ENOENT:
        return text or None
    from os import listdir

    parent, _, name = path.rpartition("/")
    try:
        have = sorted(listdir(parent)[:1000])
    except OSError:
        return "the folder %r does not exist" % parent
    near = similar(name, have)
    return "there is no %r in %s%s It has %s" % (name[:100], parent, near or ".", some(have))


def path_of_host(session, path, wanted, facts):
    text = "%r would be a path of the host, which the sandbox does not see" % path
    if facts.get("folders"):
        text += ", except for these folders: %s" % ", ".join(facts["folders"])
    tool = tool_for(session, "read" if wanted == "open" else wanted, path)
    if wanted in ("write", "make"):
        return "%s: write to %s. %s; `sallyport run --out DIR` copies what is new there" % (
            text, session.workspace.path, "Server " + tool if tool else "No configured server writes files of the host",
        )  # fmt: skip
    if tool:
        return "%s: server %s" % (text, tool)
    show = "`sallyport run --mount DIR` shows the sandbox a folder" if session.scripted else "the user can show it a folder: setting files.mounts"
    return "%s, and no configured server reads files there; %s. Files of this session lie in %s" % (text, show, session.workspace.path)


def tool_for(session, wanted, path):
    """Return the call of a tool that does with a path of the host what code wanted, or
    None."""
    query, parts, arguments = TOOLS[wanted]
    found = session.channel.request_sync("search_tool_docs", '{"query":"%s","limit":10,"detail":"summary","own":true}' % query)
    for tool in found or ():
        name = str(tool.get("tool", "")).lower()
        if all(part in name for part in parts):
            called = tool.get("call") or "mcp_%s.%s" % (tool.get("serverAlias"), tool.get("toolAlias"))
            return "%r may have it: await %s(%s)" % (tool.get("server"), called, arguments % path)


def purpose(session, e):
    """Return what code wanted with a path: read, write, make a folder, list, or open
    a database, which also makes it."""
    if e.errno == errno.EROFS:
        return "write"
    names, listing = set(), False
    traceback = e.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code.co_name[:1] != "<" and not is_code(session, frame.f_code.co_filename):
            names.add(frame.f_code.co_name)
            if is_mode(frame.f_locals.get("mode")):
                return "write"
        traceback = traceback.tb_next
    for node in nodes_at(session, e):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            listing |= name in LISTERS
            if name in MAKERS:
                return "make"
            if name == "connect":
                return "open"
            if name in OWN_WRITERS:
                return "write"
            arguments = [*node.args[:2], *(k.value for k in node.keywords if k.arg == "mode")]
            if name == "open" and any(is_mode(getattr(a, "value", None)) for a in arguments):
                return "write"
    if names.intersection(MAKERS):
        return "make"
    if any(name in WRITERS or name.startswith(("to_", "write_")) and name != "to_thread" for name in names):
        return "write"
    return "list" if listing or names.intersection(LISTERS) else "read"


def is_mode(value):
    return type(value) is str and 0 < len(value) < 5 and set(value) <= set("rwaxbt+U") and bool(set(value) & set("wax+"))


def is_code(session, filename):
    """Report whether a file is code that was submitted, or a program that is run."""
    return filename.startswith("<cell ") or filename in session.sources.files


def place(session, e):
    """Return the file and the line of the code that an exception came from."""
    traceback, found = e.__traceback__, ("", 0)
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if is_code(session, filename):
            found = filename, traceback.tb_lineno
        traceback = traceback.tb_next
    return found


def nodes_at(session, e):
    """Return what is on the line of the code that an exception came from, as nodes of
    its syntax tree."""
    filename, number = place(session, e)
    source = session.sources.files.get(filename, "")
    if len(source) > MAX_SOURCE:
        return []
    try:
        tree = compile(source, "<hint>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
    except (SyntaxError, ValueError):
        return []
    return [n for n in ast.walk(tree) if isinstance(n, ast.expr) and n.lineno <= number <= n.end_lineno]


def came_through(e, name):
    """Report whether an exception came through a function of that name."""
    traceback = e.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_name != name:
        traceback = traceback.tb_next
    return traceback is not None
