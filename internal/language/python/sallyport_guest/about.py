"""help(x) of what belongs to servers: their tools, as a caller needs them."""

from . import BUILTINS as __builtins__

import sys

from .errors import MCPError
from .late import Late, LateTool
from .proxy import Proxy, Tool

MAX_SERVERS = 50
MAX_ABOUT = 100  # characters of a server's description in a list
NOTHING = "help(x) describes x. capability_summary() describes this sandbox."
FURTHER = "find_servers() says which servers there are; await search_tool_docs('what it does') finds their tools"
PARTS = ("mcp.servers.", "mcp_servers.", "mcp.", "")  # before mcp_<alias> or <alias> in a name


def about(session, thing):
    """Return what to print about a value, or about what a string names; None for
    anything else."""
    if isinstance(thing, str):
        name = thing.strip()
        thing = named(session, name)
        if thing is None:
            return "%s\n%s" % (session.registry.not_available(name), FURTHER) if name.startswith("mcp_") else None
    package = session.package
    if any(thing is one for one in (session.loaded, package.mcp, package.servers)):
        return servers(session)
    if type(thing) is type(sys) and session._registry is not None:
        for module, name in session.registry.modules.values():
            if module is thing:
                thing = session.registry.servers[name].proxy
    if type(thing) not in (Proxy, Tool, Late, LateTool):
        return None
    try:
        return thing.__doc__
    except MCPError as e:  # it could not be loaded
        return "%s\n%s" % (e, FURTHER)


def named(session, text):
    """Return what a string such as "mcp_x.tool" names, or None."""
    if text in ("mcp", "mcp_servers", "mcp.servers"):
        return session.loaded
    for before in PARTS:
        if text.startswith(before):
            text = text[len(before) :]
            break
    server, _, tool = text.partition(".")
    key = server[4:] if server.startswith("mcp_") else server if before == "mcp.servers." else None
    if key is None or not session.registry.exists(key):
        return None
    late = Late(session, key)
    return getattr(late, tool) if tool else late


def servers(session):
    """The list of the servers."""
    registry = session.registry
    known = registry.known()
    if not known:
        return "There are no MCP servers."
    lines = ["The MCP servers (help(%s) describes the tools of one):" % registry.called(known[0]["name"])]
    for info in known[:MAX_SERVERS]:
        said = " ".join(info["description"][: 2 * MAX_ABOUT].split())
        said = said if len(said) <= MAX_ABOUT else said[: MAX_ABOUT - 1] + "…"
        lines.append("  " + registry.called(info["name"]) + (": " + said if said else ""))
    if len(known) > MAX_SERVERS:
        lines.append("%d more: discovered_servers() names them all" % (len(known) - MAX_SERVERS))
    return "\n".join(lines + ["await search_tool_docs('what it does') finds tools of all of them."])
