"""Hints: one line that says what to do about a common mistake.

TABLE has a function for each kind of mistake. It takes an exception that the code
did not catch, and returns the line, or None if it does not apply. The host has
hints of its own (internal/broker): limits that ended the code, lost variables. A
hint is output on standard error, which code can write as well, so nothing may
rely on one.
"""

from . import BUILTINS as __builtins__

import ast
import errno
import sys

from .advice import line
from .errors import MCPError, similar
from .interrupt import call


def hint(session, e):
    """Return the line for an exception, or an empty string."""
    for applies in TABLE:
        try:
            text = applies(session, e)
        except Exception:  # an exception that misbehaves, or the host's refusal
            continue
        if text:
            return line(text)
    return ""


# A forgotten await, and one too many.

WAITING = ("gather", "create_task", "ensure_future", "wait_for", "wait", "as_completed", "shield", "run", "run_until_complete", "start_soon")
MAX_SOURCE = 200000  # characters of code that hints look at
AWAIT = "what it returns does nothing until it is awaited: write `await` before the call"


def unawaited(session, e):
    text = call(str, e)
    if isinstance(e, (TypeError, AttributeError)) and any(form in text for form in ("'coroutine'", "type coroutine", "not coroutine")):
        filename, number = place(e)
        return forgotten(session, session.sources.files.get(filename, ""), number)


def tell(session, source, coroutines):
    """Add the hints for code that has succeeded: the call that it did not await, if
    it has coroutines left, and that an installer can do nothing."""
    if coroutines and not (session.asyncio is not None and session.asyncio.tasks()):  # otherwise they may run yet
        session.streams.say(line(forgotten(session, source, None)))
    if ("subprocess" in source or "os.system" in source) and installs(source):
        session.streams.say(line(NOTHING_INSTALLS))


def forgotten(session, source, last):
    """Return the hint for the call without await: the last one up to a line, or
    without a line the first."""
    calls = [c for c in calls_without_await(session, source) if last is None or c.lineno <= last]
    if not calls:
        return AWAIT
    call = calls[0 if last is None else -1]
    name = ast.unparse(call.func)
    return "line %d: %s(...) was called without await, so it has not run: write await %s(...)" % (call.lineno, name, name)


def calls_without_await(session, source):
    """Return the calls of asynchronous functions that nothing awaits."""
    if len(source) > MAX_SOURCE:
        return []
    try:
        tree = compile(source, "<hint>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
    except (SyntaxError, ValueError):
        return []
    local = {n.name for n in ast.walk(tree) if isinstance(n, ast.AsyncFunctionDef)}
    found, pending = [], [(tree, False)]
    while pending:
        node, awaited = pending.pop()
        inner = False
        if isinstance(node, ast.Call):
            if not awaited and is_async(session, node.func, local):
                found.append(node)
            inner = getattr(node.func, "attr", getattr(node.func, "id", "")) in WAITING
        elif isinstance(node, (ast.Await, ast.Return)):
            inner = True
        elif awaited and isinstance(node, (ast.Starred, ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp)):
            inner = True
        pending += [(child, inner) for child in ast.iter_child_nodes(node)]
    return sorted(found, key=lambda n: (n.lineno, n.col_offset))


def is_async(session, func, local):
    """Report whether an expression that is called is an asynchronous function."""
    root = func
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if not isinstance(root, ast.Name):
        return False
    if root is not func and root.id.startswith("mcp_"):
        return True
    if root is func:
        value = session.namespace.get(func.id)
        if func.id in local or type(value).__name__ in ("Tool", "LateTool"):
            return True
    else:
        value = vars(session.package.runtime).get(func.attr) if isinstance(func, ast.Attribute) and root.id == "runtime" else None
    code = getattr(value, "__code__", None)
    return bool(getattr(code, "co_flags", 0) & 0x80)  # inspect.CO_COROUTINE


def needless_await(session, e):
    text = call(str, e)
    if isinstance(e, TypeError) and ("used in 'await' expression" in text or "can't be awaited" in text):
        return "line %d: this call has returned its value already: remove await" % place(e)[1]


def place(e):
    """Return the file and the line of the code that an exception came from."""
    traceback, found = e.__traceback__, ("", 0)
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if filename.startswith("<cell "):
            found = filename, traceback.tb_lineno
        traceback = traceback.tb_next
    return found


# Packages, and the network that they would come from.

# Where the name to install differs from the one to import.
INSTALLED_AS = {
    "sklearn": "scikit-learn", "PIL": "pillow", "cv2": "opencv-python-headless", "yaml": "pyyaml", "bs4": "beautifulsoup4",
    "docx": "python-docx", "dateutil": "python-dateutil", "dotenv": "python-dotenv", "fitz": "pymupdf",
}  # fmt: skip
CLIENTS = ("requests", "httpx", "aiohttp", "urllib3", "websockets", "boto3", "openai", "anthropic", "selenium", "playwright")
INSTEAD = {
    "pandas": "csv, sqlite3 and statistics", "polars": "csv, sqlite3 and statistics", "numpy": "math, statistics and array",
    "yaml": "json and tomllib", "dateutil": "datetime and zoneinfo", "pytz": "zoneinfo", "bs4": "html.parser", "lxml": "xml.etree",
}  # fmt: skip
TOOL_INSTEAD = "the sandbox has no network. Call a server's tool instead: await search_tool_docs('what it should do') finds one"


def missing_package(session, e):
    if not isinstance(e, ModuleNotFoundError) or not isinstance(e.name, str):
        return None
    name = e.name.partition(".")[0]
    if name in ("mcp", "user_tools", "pip") or name in sys.modules:
        return NOTHING_INSTALLS if name == "pip" else None
    if name.startswith("mcp_"):
        return missing_server(session, name[4:])
    known = session._registry and session._registry.exists(name)
    if known:
        called = session.registry.called(known)
        first = "call" if "[" in called else "import %s, or call" % called
        return "%s is a server: %s await %s.TOOL(...)" % (name, first, called)
    if name in CLIENTS:
        return "%s is not installed, and %s" % (name, TOOL_INSTEAD)
    instead = " Without it: %s of the standard library." % INSTEAD[name] if name in INSTEAD else ""
    return "%s is not installed, and nothing can be installed from here.%s %s The user can add it: sallyport image build -p %s -t NAME, then the setting image: NAME" % (
        name, instead, available(session), INSTALLED_AS.get(name, name),
    )  # fmt: skip


def available(session):
    from .manual import packages

    return packages(session)


NOTHING_INSTALLS = "nothing can be installed from here: the sandbox has no network. capability_summary() lists the installed packages; the user can add others: sallyport image build -p PACKAGE -t NAME, then the setting image: NAME"
INSTALLERS = ("pip", "pip3", "uv", "conda", "apt", "apt-get", "npm")


def installing(session, e):
    if isinstance(e, SyntaxError):
        text = (e.text or "").strip()
        words = text.lstrip("!%").split()
        if words[:1] and words[0] in INSTALLERS:
            return NOTHING_INSTALLS
        if text.startswith("%"):
            return "line %d: remove it: IPython's commands do not exist here, and pictures are shown without them" % e.lineno
        if text.startswith("!"):
            return "line %d: write subprocess.run(%r, shell=True) for a command" % (e.lineno, text[1:])
        if "```" in session.submitted:
            return "send only the code, without the words and the Markdown around it"
    elif isinstance(e, FileNotFoundError) and e.filename in INSTALLERS:
        return NOTHING_INSTALLS
    elif type(e).__name__ == "CalledProcessError" and installs(str(e.cmd)):
        return NOTHING_INSTALLS


def installs(command):
    words = command[:MAX_SOURCE].replace("'", " ").replace('"', " ").replace(",", " ").split()
    return any(a in INSTALLERS and b == "install" for a, b in zip(words, words[1:]))


def no_network(session, e):
    for cause in causes(e):
        unreachable = isinstance(cause, OSError) and cause.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH)
        if (unreachable or type(cause).__name__ == "gaierror") and only_loopback():
            return TOOL_INSTEAD


def causes(e):
    """Return an exception and those that led to it."""
    found, pending = [], [e]
    while pending and len(found) < 20:
        x = pending.pop()
        if isinstance(x, BaseException) and not any(x is f for f in found):
            found.append(x)
            pending += [x.__cause__, x.__context__, getattr(x, "reason", None), *x.args[:20]]
    return found


def only_loopback():
    import socket

    try:
        return all(name == "lo" for _, name in socket.if_nameindex())
    except OSError:
        return True


# Paths of the host.

HOSTS = ("/home/", "/Users/", "/root/", "/mnt/", "/media/", "/Volumes/", "/private/", "/srv/", "/data/")


def host_path(session, e):
    path = getattr(e, "filename", None)
    if not isinstance(e, OSError) or e.errno not in (errno.ENOENT, errno.EACCES, errno.EROFS, errno.ENOTDIR) or not isinstance(path, str):
        return None
    if not (path.startswith(HOSTS) or path[1:3] == ":\\") or path.startswith(session.workspace.path + "/"):
        return None
    text = "%r would be a path of the host, which the sandbox does not see" % path[:200]
    found = session.channel.request_sync("search_tool_docs", '{"query":"read text file from path","limit":10,"detail":"summary"}')
    for tool in found or ():
        name = str(tool.get("tool", "")).lower()
        if "read" in name and "file" in name:
            called = tool.get("call") or "mcp_%s.%s" % (tool.get("serverAlias"), tool.get("toolAlias"))
            return "%s: server %r may have it: await %s(path=%r)" % (text, tool.get("server"), called, path[:200])
    return text + ", and no configured server reads files there. Files of this session lie in %s" % session.workspace.path


# Limits.


def limit(session, e):
    from .manual import facts, size

    def of(key, setting):
        value = facts(session.channel.request_sync).get(key)
        return "%s (setting %s)" % (size(value) if value and key != "processes" else value or "a limit", setting)

    code = getattr(e, "errno", None) if isinstance(e, OSError) else None
    if isinstance(e, MemoryError):
        return "the sandbox has %s of memory: work in smaller parts" % of("memory", "limits.memory")
    if code in (errno.ENOSPC, errno.EDQUOT):
        return "/workspace holds %s of files, and /tmp what limits.tmp says: remove some" % of("workspace", "limits.workspace")
    if code == errno.EAGAIN and came_through(e, "_execute_child") or isinstance(e, RuntimeError) and "can't start new thread" in str(e):
        return "the sandbox may have %s processes and threads" % of("processes", "limits.processes")
    if code == errno.EMFILE:
        return "too many files are open (setting limits.openFiles): close them, or use `with`"


def came_through(e, name):
    """Report whether an exception came through a function of that name."""
    traceback = e.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_name != name:
        traceback = traceback.tb_next
    return traceback is not None


# Names.

USUAL = {
    "np": "import numpy as np", "pd": "import pandas as pd", "plt": "import matplotlib.pyplot as plt", "sns": "import seaborn as sns",
    "Counter": "from collections import Counter", "defaultdict": "from collections import defaultdict",
    "Path": "from pathlib import Path", "timedelta": "from datetime import timedelta",
}  # fmt: skip


def undefined(session, e):
    if not isinstance(e, NameError):
        return None
    name = getattr(e, "name", None)
    if name is None:  # before 3.10
        parts = str(e).split("'")
        name = parts[1] if len(parts) > 1 else ""
    if not isinstance(name, str):
        return None
    if name.startswith("mcp_"):
        return missing_server(session, name[4:])
    if name in session.lacking and name in session.namespace:
        return "%s exists here, but not in a new process: %s" % (name, session.lacking[name])
    if name in USUAL:
        return "write %s first" % USUAL[name]
    if sys.version_info < (3, 12) and name in getattr(sys, "stdlib_module_names", ()):  # later ones say it themselves
        return "write import %s first" % name
    if name in (session.channel.request_sync("tool_names", "{}") or ()):
        return "it is a saved tool: from user_tools import %s" % name


def missing_server(session, alias):
    """Return the hint for a server that code names and cannot have."""
    registry = session.registry
    try:
        if registry.exists(alias):
            return "write from mcp import mcp_%s" % alias
    except MCPError as e:  # it may mean several
        return str(e)
    for server in session.channel.request_sync("find_servers", "{}") or ():
        if alias in (server.get("name"), server.get("alias")) and server.get("state") != "ready":
            return "server %r is %s: %s" % (server.get("name"), server.get("state"), server.get("how"))
    modules = [registry.called(info["name"]) for info in registry.known()]
    there = "the servers are %s" % ", ".join(modules[:20]) if modules else "none is configured"
    return "there is no server mcp_%s%s (%s)" % (alias, similar("mcp_" + alias, modules), there)


def misspelt_tool(session, e):
    if not isinstance(e, ImportError) or not isinstance(e.name, str) or not e.name.startswith(("mcp_", "mcp.servers.")):
        return None
    server = session.registry.get(e.name[len("mcp_") :] if e.name.startswith("mcp_") else e.name.rpartition(".")[2])
    parts = str(e).split("'")
    if server is None or len(parts) < 3:
        return None
    try:
        server.find(parts[1], MCPError)
    except MCPError as e:  # it may mean several
        return str(e)
    return server.lacks(parts[1], 30)


# Arguments of tools.

ABOUT_ARGUMENTS = ("invalid", "required", "argument", "parameter", "validation", "expected", "unrecognized")


def tool_arguments(session, e):
    """Return the signature, if a server has refused the arguments."""
    if not isinstance(e, MCPError) or e.kind not in ("tool", "server") or e.tool is None:
        return None
    text = str(e).lower()
    server = session.registry.get(e.server)
    tool = server and server.by_name.get(e.tool)
    if tool and any(word in text for word in ABOUT_ARGUMENTS):
        return "its signature is %s" % tool._signature()


TABLE = (
    unawaited,
    needless_await,
    installing,
    missing_package,
    no_network,
    host_path,
    limit,
    undefined,
    misspelt_tool,
    tool_arguments,
)
