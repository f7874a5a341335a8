"""Documentation of tools: from the servers that are loaded, or from the host."""

from . import BUILTINS as __builtins__

from . import codec
from .errors import MCPError

DETAILS = ("summary", "full")


def tool_metadata(tool):
    return {
        "name": tool._name,
        "alias": tool._alias,
        "description": tool._description,
        "input_schema": tool._definition.get("inputSchema"),
    }


def server_metadata(server):
    return {
        "name": server.name,
        "alias": server.alias,
        "tools": [tool_metadata(tool) for tool in server.tools],
        "cwd": server.definition.get("cwd"),
    }


def document(tool, detail):
    server = tool._server
    doc = {"server": server.name, "serverAlias": server.alias, "tool": tool._name, "toolAlias": tool._alias}
    if tool._description:
        doc["description"] = tool._description
    if detail == "full":
        doc["inputSchema"] = tool._definition.get("inputSchema")
    return doc


def not_found(tool, server):
    message = "Tool %r not found for server %s" % (tool, server)
    return MCPError(message, kind="not_found", server=server, tool=tool)


def local(registry, name, tool, detail):
    """The documents of a loaded server, or None. For a host that has none."""
    try:
        server = registry.get(name)
    except MCPError:
        return None
    tools = server.tools
    if tool is not None:
        tools = [t for t in tools if tool in (t._name, t._alias)]
        if not tools:
            raise not_found(tool, server.name)
    return [document(t, detail) for t in tools]


def search(registry, query, limit, detail):
    """What the loaded servers have, best first: all words must be there; a word
    in the tool's name counts more than one in its description. For a host that
    cannot search."""
    words = query.lower().split()
    found = []
    for name in registry.granted:
        server = registry.servers[name]
        for tool in server.tools:
            title = " ".join((tool._name, tool._alias)).lower()
            text = " ".join((server.name, server.alias, title, tool._description)).lower()
            if all(word in text for word in words):
                found.append((-sum(word in title for word in words), len(found), tool))
    return [document(tool, detail) for _, _, tool in sorted(found)[:limit]]


def query_params(registry, server, tool, detail):
    if tool is not None and not isinstance(tool, str):
        raise MCPError("'tool' must be a string when provided", kind="invalid")
    try:
        server = registry.get(server).name  # it may be an alias
    except MCPError:
        pass
    params = {"server": str(server), "detail": detail if detail in DETAILS else "summary"}
    if tool is not None:
        params["tool"] = tool
    return codec.encode(params)


def search_params(query, limit, detail):
    """The parameters of a search, and what they came to."""
    if not isinstance(query, str) or not query.strip():
        raise MCPError("Missing 'query' value", kind="invalid")
    try:
        limit = max(1, min(20, int(limit)))
    except (TypeError, ValueError, OverflowError):
        raise MCPError("'limit' must be an integer", kind="invalid") from None
    return codec.encode({"query": query, "limit": limit, "detail": detail if detail in DETAILS else "summary"}), limit
