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
from .alone import lacking, starts_nothing
from .errors import MCPError, similar
from .interrupt import call
from .late import Late, place as place_of
from .missing import CLIENTS, INSTEAD, TOOL_INSTEAD, package_facts
from .paths import MAX_SOURCE, came_through, missing_path, nodes_at, not_loaded, place


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
AWAIT = "what it returns does nothing until it is awaited: write `await` before the call"


def unawaited(session, e):
    text = call(str, e)
    if isinstance(e, (TypeError, AttributeError)) and any(form in text for form in ("'coroutine'", "type coroutine", "not coroutine")):
        filename, number = place(session, e)
        return forgotten(session, session.sources.files.get(filename, ""), number)


def tell(session, source, coroutines):
    """Add the hints for code that has succeeded: the call that it did not await, if
    it has coroutines left, and that an installer can do nothing."""
    if coroutines and not (session.asyncio is not None and session.asyncio.tasks()):  # otherwise they may run yet
        session.streams.say(line(forgotten(session, source, None)))
    wanted = installs(source) if any(way in source for way in ("subprocess", "os.system", "os.popen")) else None
    if wanted is not None:
        session.streams.say(line(nothing_installs(session, wanted)))


def forgotten(session, source, last):
    """Return the hint for the call without await: the last one up to a line, or
    without a line the first."""
    calls = [c for c in calls_without_await(session, source) if last is None or c.lineno <= last]
    if not calls:
        return AWAIT
    call = calls[0 if last is None else -1]
    name = ast.unparse(call.func)
    write = "(await %s(...))" if getattr(call, "used", False) else "await %s(...)"
    return "line %d: %s(...) was called without await, so it has not run: write %s" % (call.lineno, name, write % name)


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
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            node.value.used = True  # what await binds to is all of node
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
    if isinstance(e, RuntimeError) and text == "cannot reuse already awaited coroutine":
        return "line %d: a call is awaited once: keep what that await returned" % place(session, e)[1]
    if not isinstance(e, TypeError) or "used in 'await' expression" not in text and "can't be awaited" not in text:
        return None
    number = place(session, e)[1]
    operands = [node.value for node in nodes_at(session, e) if isinstance(node, ast.Await)]
    for node in operands:
        if isinstance(node, ast.Attribute) and is_async(session, node, ()):
            return "line %d: call it: await %s(...)" % (number, ast.unparse(node))
    if operands and not any(isinstance(node, ast.Call) for node in operands):
        return "line %d: only calls of tools and of async functions are awaited: remove await" % number
    return "line %d: this call has returned its value already: remove await" % number


def dashed_tool(session, e):
    """Name the tool that a name with dashes means, which Python reads as a
    subtraction."""
    if isinstance(e, SyntaxError):
        words = (e.text or "").replace(",", " ").split()
        dashed = [w for w in words[1:] if "-" in w.strip("-")]
        if words[:1] in (["from"], ["import"]) and words[1:2] and words[1].startswith("mcp") and dashed:
            return "line %d: Python reads a dash as minus: write %s" % (e.lineno, dashed[0].replace("-", "_"))
        return None
    if not isinstance(e, (AttributeError, TypeError, NameError)):
        return None
    for node in nodes_at(session, e):
        names, left = [], node
        while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Sub):
            right = left.right.func if isinstance(left.right, ast.Call) else left.right
            if not isinstance(right, ast.Name):
                break
            names.insert(0, right.id)
            left = left.left
        left = left.value if isinstance(left, ast.Await) else left
        if not names or not isinstance(left, ast.Attribute) or not isinstance(left.value, ast.Name):
            continue
        tool = tool_called(session, left.value.id, "-".join([left.attr, *names]))
        if tool:
            return "line %d: Python reads the dash as minus: write await %s(...)" % (node.lineno, tool)


def tool_called(session, proxy, name):
    """Return how code writes a tool of a server that it has under a name, or None."""
    value = session.namespace.get(proxy)
    server = getattr(value, "__server__", None)
    if type(value) is Late:
        server = session.registry.get(place_of(value)[1])
        if server is None:  # it is not loaded: its tools are not known yet
            return "%s.%s" % (proxy, name.replace("-", "_"))
    try:
        tool = server and server.find(name, MCPError)
    except MCPError:  # it may mean several
        return None
    return tool and tool.__qualname__


# Packages, and the network that they would come from.


def missing_package(session, e):
    if not isinstance(e, ModuleNotFoundError) or not isinstance(e.name, str):
        return None
    from .distributions import WINDOWS, distribution

    name = e.name.partition(".")[0]
    filename, number = place(session, e)
    wanted = "".join(session.sources.files.get(filename, "").split("\n")[number - 1 : number]) if number else ""
    package = distribution(e.name[:200], wanted)
    if name in ("mcp", "user_tools") or name in sys.modules and "." not in (package and e.name):
        return None
    if name == "pip":
        return nothing_installs(session, [])
    if name.startswith("mcp_"):
        return missing_server(session, name[4:])
    known = session._registry and session._registry.exists(name)
    if known:
        called = session.registry.called(known)
        first = "call" if "[" in called else "import %s, or call" % called
        return "%s is a server: %s await %s.TOOL(...)" % (name, first, called)
    if name in WINDOWS:
        return "%s is a module of Windows, and the sandbox runs Linux" % name
    if package is None and (name in INSTEAD or name in notable()):
        package = name
    facts = package_facts(session, name, package or "")
    if package is None and facts["named"]:
        package = facts["named"]
        facts = package_facts(session, name, package)
    if name in CLIENTS and not facts["environments"] and facts["install"] != "listed":
        return "%s is not installed, and %s" % (name, TOOL_INSTEAD)
    if package is None and not facts["environments"]:
        hint = unknown_module(session, e, name)
        return hint and hint + facts["may"]
    instead = " Without it: %s of the standard library." % INSTEAD[name] if name in INSTEAD else ""
    return "%s is not installed. %s%s %s" % (e.name[:100], ways(session, facts, package), instead, available(session))


def ways(session, facts, package):
    """Say how code gets a package; None: only the environments that have it are known."""
    from shlex import quote

    said, script = [], session.scripted and quote(sys.argv[0])
    if not script and facts["command"]:
        script = "-" if sys.argv[:1] == ["-"] else "-c CODE"
    environments = facts["environments"]
    if environments:
        first = environments[0]
        how = "sallyport run --env %s %s" % (first, script) if script else 'call run_python with env="%s" and a new session' % first
        said.append("%s: %s." % (("The environments %s have it" if environments[1:] else "The environment %s has it") % ", ".join(environments[:5]), how))
    if package is None:
        return " ".join(said)
    if facts["install"] != "none":
        asks = ", which asks the user" if facts["install"] == "ask" else ""
        said.append('Install it: await runtime.install_packages("%s")%s.' % (package, asks))
    elif script:
        said.append("Or run: sallyport run --with %s %s." % (package, script) if said else "Run it with the package: sallyport run --with %s %s." % (package, script))
    elif not environments:
        this = facts["this"] if facts["this"] not in ("", "host") else "data"
        may = facts["may"][2:] or "Code may not install packages"
        said.append("%s; the user can add it: sallyport env add %s -p %s." % (may, this, package))
    return " ".join(said)


def unknown_module(session, e, name):
    """Return the hint for a name that may be a module of the user, and must not be
    installed because of its name."""
    from difflib import get_close_matches

    if not name.isidentifier() or len(name) > 100:
        return None
    filename, number = place(session, e)
    folder = any(name + "." in text for text in session.sources.files.get(filename, "").split("\n")[number - 1 : number])
    module = name if folder else name + ".py"
    if session.scripted:
        from shlex import quote

        folder, slash, script = sys.argv[0].rpartition("/")
        here = "if %s is in the folder of %s, copy it along: sallyport run --file %s %s" % (module, script, quote(folder + slash + module), quote(sys.argv[0]))
    else:
        here = "if it is the user's, write its content to %s/%s first" % (session.workspace.path, module)
    # Names that are known: another may be that of a stranger's package.
    from .distributions import INSTALLED_AS, SAME_NAME

    near = get_close_matches(name, {*getattr(sys, "stdlib_module_names", ()), *notable(), *CLIENTS, *INSTALLED_AS, *SAME_NAME, *INSTEAD}, 1, 0.8)
    if near:
        return "there is no module %s here; did you mean %r? Or %s" % (name, near[0], here)
    return "there is no module %s here; %s. capability_summary() lists the packages. If it is another, ask the user for its name: on PyPI, %s may be something else" % (name, here, name)


def notable():
    from .manual import NOTABLE

    return NOTABLE


def available(session):
    from .manual import packages

    return packages(session)


INSTALLERS = ("pip", "pip3", "uv", "conda", "mamba", "poetry", "apt", "apt-get", "npm")


def nothing_installs(session, wanted):
    """Say what code can do in place of running an installer for some packages."""
    if wanted:
        from .distributions import INSTALLED_AS

        name = INSTALLED_AS.get(wanted[0], wanted[0])
        return "installers reach no index from here: the sandbox has no network. " + ways(session, package_facts(session, name.replace("-", "_"), name), name)
    facts = package_facts(session, "", "")
    how = "await runtime.install_packages('PACKAGE') can add some" if facts["install"] != "none" else "the user can add others: sallyport env add data -p PACKAGE"
    return "installers reach no index from here: the sandbox has no network. capability_summary() lists the installed packages; %s" % (how + facts["may"])


def installing(session, e):
    if isinstance(e, SyntaxError):
        text = (e.text or "").strip()
        words = text.lstrip("!%").split()
        if words[:1] and words[0] in INSTALLERS:
            return nothing_installs(session, installs(" ".join(words)) or [])
        if text.startswith("%"):
            return "line %d: remove it: IPython's commands do not exist here, and pictures are shown without them" % e.lineno
        if text.startswith("!"):
            return "line %d: write subprocess.run(%r, shell=True) for a command, after import subprocess" % (e.lineno, text[1:])
        if "```" in session.submitted:
            return "send only the code, without the words and the Markdown around it"
    elif isinstance(e, FileNotFoundError) and e.filename in INSTALLERS or starts_nothing(e):
        wanted = installs("".join(ast.unparse(n) for n in nodes_at(session, e) if isinstance(n, ast.Call)))
        if wanted is not None or not starts_nothing(e):
            return nothing_installs(session, wanted or [])
    elif type(e).__name__ == "CalledProcessError" and (wanted := installs(str(e.cmd))) is not None:
        return nothing_installs(session, wanted)


def installs(command):
    """Return the packages that a command asks an installer for, or None if it asks an
    index for nothing. Files and folders need no index."""
    from .distributions import packages_of

    words = command[:MAX_SOURCE].replace("'", " ").replace('"', " ").replace(",", " ").split()
    for i, word in enumerate(words):
        tool = word.rpartition("/")[2]
        if tool not in INSTALLERS and not tool.startswith("pip3."):
            continue
        rest = [w for w in words[i + 1 : i + 6] if not w.startswith("-") and w != "pip"][:1]
        if rest not in (["install"], ["add"]):
            continue
        start = words.index(rest[0], i) + 1
        wanted = packages_of(words[start : start + 50])
        if wanted is not None:
            return wanted if tool not in ("apt", "apt-get", "npm") else []
    return None


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


# Limits.


def limit(session, e):
    from .manual import facts, size

    def of(key, setting):
        value = facts(session.channel.request_sync).get(key)
        return "%s (setting %s)" % (size(value) if value and key != "processes" else value or "a limit", setting)

    code = getattr(e, "errno", None) if isinstance(e, OSError) else None
    if isinstance(e, MemoryError):
        held = "" if session.guard is None else ", of which " + session.guard.in_use()
        return "the sandbox has %s of memory%s: work in smaller parts, or delete what is not needed" % (of("memory", "limits.memory"), held)
    if code in (errno.ENOSPC, errno.EDQUOT):
        return "/workspace holds %s of files, and /tmp what limits.tmp says: remove some" % of("workspace", "limits.workspace")
    if code == errno.EAGAIN and came_through(e, "_execute_child") or isinstance(e, RuntimeError) and "can't start new thread" in str(e):
        return "the sandbox may have %s processes and threads" % of("processes", "limits.processes")
    if code == errno.EMFILE:
        return "too many files are open (setting limits.openFiles): close them, or use `with`"


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
        module = USUAL[name].split()[1].partition(".")[0]
        return missing_package(session, ModuleNotFoundError(name=module)) if lacks(module) else "write %s first" % USUAL[name]
    if sys.version_info < (3, 12) and name in getattr(sys, "stdlib_module_names", ()):  # later ones say it themselves
        return "write import %s first" % name
    if session.registry.exists(name):
        return "it is a server: write %s" % session.registry.called(session.registry.exists(name))
    if name in (session.channel.request_sync("tool_names", "{}") or ()):
        return "it is a saved tool: from user_tools import %s" % name


def lacks(module):
    from importlib.util import find_spec

    return module not in sys.modules and find_spec(module) is None


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
    return "there is no server mcp_%s%s (%s)" % (alias, similar(alias, [m[4:] for m in modules]).replace("'", "'mcp_", 1), there)


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
    dashed_tool,
    unawaited,
    needless_await,
    installing,
    lacking,
    missing_package,
    no_network,
    missing_path,
    not_loaded,
    limit,
    undefined,
    misspelt_tool,
    tool_arguments,
)
