"""capability_summary(): what this session has, made from the helpers themselves
and from what the host and the interpreter answer."""

from . import BUILTINS as __builtins__

import sys

from .runtime import NAMES, Runtime

MAX_NAMES = 25

# Packages that are worth a word where they can be imported.
NOTABLE = (
    "numpy", "pandas", "polars", "scipy", "sklearn", "statsmodels", "sympy", "networkx", "matplotlib", "seaborn", "plotly",
    "PIL", "cv2", "torch", "tensorflow", "transformers", "duckdb", "pyarrow", "sqlalchemy", "openpyxl", "docx", "pypdf",
    "lxml", "bs4", "yaml", "jinja2", "requests", "httpx", "aiohttp", "pydantic", "tabulate", "rich", "pytest",
)  # fmt: skip


def manual(session, ask):
    """The text. ask is Runtime._ask_sync."""
    return "\n".join(
        [
            "--- PYTHON SANDBOX MANUAL ---",
            "Python %d.%d.%d. Variables, functions and imports stay between calls; top-level await works; "
            "the value of a last expression is shown; files go to %s." % (*sys.version_info[:3], session.workspace.path),
            *limits(facts(ask)),
            packages(session),
            *servers(session.registry),
            *saved(ask),
            "A server's tool: await mcp_<alias>.<tool>(name=value, ...), await mcp_servers['name']['tool'](...), or "
            "from mcp.servers.<alias> import *. It returns the value itself and raises MCPError when it fails; "
            "help(mcp_<alias>.<tool>) describes it. An argument named like a keyword: class_=..., or **{'class': ...}.",
            "Helpers, by these names, as runtime.<name>, or from mcp.runtime import <name> "
            "([_sync]: <name>_sync(...) does the same without await):",
            *helpers(),
        ]
    )


def facts(ask):
    """What the host says of this session."""
    from .errors import MCPError

    try:
        found = ask("session_facts", "{}")
    except MCPError:  # between executions, in a forked child
        found = None
    return found if isinstance(found, dict) else {}


def saved(ask):
    """The tools that earlier sessions saved."""
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


def seconds(value):
    return "%g s" % value


def size(value):
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return "%g %s" % (round(value, 1), unit)
        value /= 1024
    return "%g GiB" % round(value, 1)


def packages(session):
    """Which packages there are, by the finders and the metadata on the path:
    nothing is imported."""
    from importlib.util import find_spec

    session.paths.add()
    found = []
    for name in NOTABLE:
        try:
            if find_spec(name) is not None:
                found.append(name)
        except Exception:  # a finder of the user's
            pass
    count = distributions()
    more = "; %d installed in all, see importlib.metadata.distributions()" % count if count else ""
    return "Packages besides the standard library: %s%s." % (", ".join(found) or "none of the well known", more)


def distributions():
    """How many distributions are installed on the path."""
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
    loaded = ["mcp_%s (%d tools)" % (s.alias, len(s.tools)) for s in map(registry.servers.get, registry.granted)]
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


def helpers():
    documented = {name: getattr(Runtime, name) for name in NAMES}
    twins = {
        name + "_sync"
        for name in NAMES
        if name + "_sync" in documented and documented[name + "_sync"].__doc__.startswith("The same")
    }
    lines = []
    for name, function in documented.items():
        if name in twins:
            continue
        line = "  %s: %s" % (signature(function), function.__doc__.partition("\n")[0])
        twin = name + "_sync"
        if twin in twins:
            rest = documented[twin].__doc__.partition("\n")[0].rstrip(".")[len("The same") :]
            line += " [_sync%s]" % rest
        lines.append(line)
    return lines


def signature(function):
    """A helper's, as it is called."""
    code = function.__code__
    names = code.co_varnames
    count, keyword_only = code.co_argcount, code.co_kwonlyargcount
    positional = names[1:count]
    defaults = function.__defaults__ or ()
    parts = list(positional[: len(positional) - len(defaults)])
    parts += ["%s=%r" % pair for pair in zip(positional[len(positional) - len(defaults) :], defaults)]
    if keyword_only:
        parts.append("*")
        given = function.__kwdefaults__ or {}
        parts += ["%s=%r" % (n, given[n]) if n in given else n for n in names[count : count + keyword_only]]
    awaited = "await " if code.co_flags & 0x80 else ""  # inspect.CO_COROUTINE
    return "%s%s(%s)" % (awaited, function.__name__, ", ".join(parts))
