"""capability_summary(): what this session has, according to the helpers themselves,
the host and the interpreter."""

from . import BUILTINS as __builtins__

import sys

MAX_NAMES = 10
INSTALLERS = ("install_packages", "install_packages_sync")  # which the user's policy may forbid

# The helpers that have a line of their own, those that are needed most first.
FIRST = (
    "search_tool_docs", "query_tool_docs", "load_server", "discovered_servers", "find_servers",
    "save_memory", "load_memory", "save_tool", "call_tool", "read_resource", "install_packages",
)  # fmt: skip

# Packages that are worth mentioning if they can be imported.
NOTABLE = (
    "numpy", "pandas", "polars", "scipy", "sklearn", "statsmodels", "sympy", "networkx", "matplotlib", "seaborn", "plotly",
    "PIL", "cv2", "torch", "tensorflow", "transformers", "duckdb", "pyarrow", "sqlalchemy", "openpyxl", "docx", "pypdf",
    "lxml", "bs4", "yaml", "jinja2", "requests", "httpx", "aiohttp", "pydantic", "tabulate", "rich", "pytest",
)  # fmt: skip


def manual(session, ask, runtime, names, apart):
    """Return the manual. ask is Runtime._ask_sync, runtime the class Runtime, and names
    the names of its helpers."""
    found = facts(ask)
    return "\n".join(
        [
            "--- PYTHON SANDBOX MANUAL ---",
            "Python %d.%d.%d. Variables, functions and imports stay between calls; top-level await works; "
            "a last expression is shown; files go to %s." % (*sys.version_info[:3], session.workspace.path),
            *servers(session.registry),
            "Find a tool: await search_tool_docs('what it does'). "
            "Call it: await mcp_<alias>.<tool>(name=value, ...), which returns the value behind -> in its signature "
            "and raises MCPError when the tool fails; asyncio.gather runs calls in parallel. "
            "help(mcp_<alias>) lists tools, help(mcp_<alias>.<tool>) describes one. "
            "Also: mcp_servers['name']['tool'](...), from mcp.servers.<alias> import *. "
            "An argument named like a keyword: class_=..., or **{'class': ...}.",
            *lacking(),
            *limits(found),
            *environment(found),
            *folders(found),
            packages(session),
            *saved(ask),
            "Helpers, also as runtime.<name> ([_sync]: <name>_sync(...) does the same without await):",
            *helpers(runtime, names if found.get("packages") else [n for n in names if n not in INSTALLERS], apart),
        ]
    )


def lacking():
    if sys.platform != "wasi":
        return []
    from .alone import MANUAL

    return [MANUAL]


def facts(ask):
    """Ask the host about this session."""
    from .errors import MCPError

    try:
        found = ask("session_facts", "{}")
    except MCPError:  # between executions, in a forked child
        found = None
    return found if isinstance(found, dict) else {}


def saved(ask):
    """Return the tools that earlier sessions saved."""
    from .errors import MCPError

    try:
        found = ask("tool_names", "{}")
    except MCPError:
        found = None
    return ["Saved tools: %s (from user_tools import <name>)." % some(found)] if isinstance(found, list) and found else []


def limits(found):
    parts = []
    if found.get("timeout"):
        most = ", at most %s" % seconds(found["maxTimeout"]) if found.get("maxTimeout") else ""
        parts.append("%s of the code's own time for a call (argument timeout%s)" % (seconds(found["timeout"]), most))
    for key, label in (("memory", "of memory"), ("workspace", "of files in /workspace"), ("output", "of output")):
        if found.get(key):
            parts.append("%s %s" % (size(found[key]), label))
    if found.get("processes"):
        parts.append("%d processes" % found["processes"])
    return ["Limits: %s." % ", ".join(parts)] if parts else []


def environment(found):
    name = found.get("environment")
    if not name:
        return []
    others = [other for other in found.get("environments", ()) if other != name]
    more = " Others, for a new session: %s (argument env of run_python)." % some(others) if others else ""
    return ["Environment of this session: %s.%s" % (name, more)]


def folders(found):
    return ["Folders of the user: %s." % ", ".join(found["folders"])] if found.get("folders") else []


def seconds(value):
    return "%g s" % value


def size(value):
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return "%g %s" % (round(value, 1), unit)
        value /= 1024
    return "%g GiB" % round(value, 1)


def packages(session):
    """Find packages through the finders and the metadata on the path: nothing is
    imported."""
    from importlib.util import find_spec

    session.paths.add()
    found = []
    for name in NOTABLE:
        try:
            if find_spec(name) is not None:
                found.append(name)
        except Exception:  # one of the user's finders
            pass
    count = distributions()
    more = "; %d %s installed" % (count, "is" if count == 1 else "are") if count else ""
    return "Packages besides the standard library: %s%s." % (", ".join(found) or "none of the well-known ones", more)


def distributions():
    """Return how many distributions are installed on the path."""
    from os import listdir

    names = set()
    for place in sys.path:
        try:
            entries = listdir(place or ".")
        except OSError:
            continue
        for entry in entries:
            if entry.endswith((".dist-info", ".egg-info")):
                names.add(entry.partition("-")[0].lower())
    return len(names)


def servers(registry):
    loaded = ["%s (%d tools)" % (registry.called(s.name), len(s.tools)) for s in map(registry.servers.get, registry.granted)]
    others = [info["name"] for info in registry.known() if info["name"] not in registry.granted]
    lines = ["MCP servers loaded now: %s." % (some(loaded) or "none")]
    if others:
        lines.append("Configured, not loaded: %s (await runtime.load_server(name), or servers=[...] of run_python)." % some(others))
    elif not loaded:
        lines[0] += " None is configured."
    return lines


def some(names):
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (" and %d more" % more if more > 0 else "")


def helpers(runtime, names, apart):
    """A line for each of the helpers in FIRST, and one with the signatures of the rest."""
    documented = {name: getattr(runtime, name) for name in names}
    twins = {
        name + "_sync"
        for name in names
        if name + "_sync" in documented and documented[name + "_sync"].__doc__.startswith("The same")
    }

    def call(name):
        text, twin = ("runtime." if name in apart else "") + signature(documented[name]), name + "_sync"
        if twin not in twins:
            return text, ""
        rest = documented[twin].__doc__.partition("\n")[0].rstrip(".")[len("The same") :]
        return text, " [_sync%s]" % rest

    lines = []
    for name in filter(documented.get, FIRST):
        text, twin = call(name)
        lines.append("  %s: %s%s" % (text, documented[name].__doc__.partition("\n")[0], twin))
    rest = ["".join(call(name)) for name in documented if name not in FIRST and name not in twins]
    return lines + ["  More (help(name) describes one): " + ", ".join(rest)]


def signature(function):
    """Return a helper's signature, as it is called."""
    code = function.__code__
    names = code.co_varnames
    count, keyword_only = code.co_argcount, code.co_kwonlyargcount
    positional = names[1:count]
    defaults = function.__defaults__ or ()
    parts = list(positional[: len(positional) - len(defaults)])
    parts += ["%s=%r" % pair for pair in zip(positional[len(positional) - len(defaults) :], defaults)]
    if code.co_flags & 0x04:  # inspect.CO_VARARGS
        parts.append("*" + names[count + keyword_only])
    elif keyword_only:
        parts.append("*")
    if keyword_only:
        given = function.__kwdefaults__ or {}
        parts += ["%s=%r" % (n, given[n]) if n in given else n for n in names[count : count + keyword_only]]
    awaited = "await " if code.co_flags & 0x80 else ""  # inspect.CO_COROUTINE
    return "%s%s(%s)" % (awaited, function.__name__, ", ".join(parts))
