"""Documentation of tools: from the servers that are loaded, or from the host."""

from . import BUILTINS as __builtins__

from . import codec
from .errors import MCPError
from .proxy import commented

DETAILS = ("summary", "full")


class Document(dict):
    """What is known of a tool. It prints as the line that a model needs to call it."""

    __slots__ = ()

    def __repr__(self):
        return "\n".join([*loading([self]), self.line()])

    def line(self):
        if self.get("load") is None and "signature" not in self:
            return self.get("description", "")  # a saved tool, which says it itself
        call = self.get("call") or "mcp_%s.%s" % (self["serverAlias"], self["toolAlias"])
        text = call + self.get("signature", "(...)")
        about, _, more = self.get("description", "").partition("\n")
        text = commented(text, about)
        if self.get("warning"):
            text += "  # WARNING: " + self["warning"]
        if "inputSchema" in self:
            text += ("\n" + more if more else "") + "\ninputSchema = " + codec.encode(self["inputSchema"])
        return text


class Documents(list):
    """Documents, which print as lines."""

    __slots__ = ()

    def __repr__(self):
        return "\n".join([*loading(self), *(d.line() for d in self)]) if self else "no tools found"


def loading(documents):
    """The line about the servers of documents that are not loaded yet."""
    names = list(dict.fromkeys(d["server"] for d in documents if "load" in d))
    return ["# loaded by the first call, or by servers=%r of run_python" % names] if names else []


Document.__module__ = Documents.__module__ = "mcp.runtime"


def documents(found):
    """The host's answer, for people to read."""
    return found if found is None else Documents(map(Document, found))


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
    if tool.__qualname__ != "mcp_%s.%s" % (server.alias, tool._alias):
        doc["call"] = tool.__qualname__
    if tool._description:
        doc["description"] = tool._description
    doc["signature"] = tool.parameters.signature("")
    if detail == "full":
        doc["inputSchema"] = tool._definition.get("inputSchema")
    return doc


def not_found(tool, server):
    message = "Tool %r not found for server %s" % (tool, server)
    return MCPError(message, kind="not_found", server=server, tool=tool)


def local(registry, name, tool, detail):
    """Return the documents of a loaded server, or None. For a host that cannot
    answer."""
    server = registry.get(name)
    if server is None:
        return None
    tools = server.tools
    if tool is not None:
        found = server.find(tool, MCPError)
        if found is None:
            raise not_found(tool, server.name)
        tools = [found]
    return documents(document(t, detail) for t in tools)


def search(registry, query, limit, detail):
    """Search the loaded servers, best first: all words must occur; a word in the tool's
    name counts more than one in its description. For a host that cannot search."""
    words = query.lower().split()
    found = []
    for name in registry.granted:
        server = registry.servers[name]
        for tool in server.tools:
            title = " ".join((tool._name, tool._alias)).lower()
            text = " ".join((server.name, server.alias, title, tool._description)).lower()
            if all(word in text for word in words):
                found.append((-sum(word in title for word in words), len(found), tool))
    return documents(document(tool, detail) for _, _, tool in sorted(found)[:limit])


def query_params(registry, server, tool, detail):
    if tool is not None and not isinstance(tool, str):
        raise MCPError("'tool' must be a string when provided", kind="invalid")
    # It may be an alias.
    params = {"server": registry.exists(server) or str(server), "detail": detail if detail in DETAILS else "summary"}
    if tool is not None:
        params["tool"] = tool
    return codec.encode(params)


def search_params(query, limit, detail):
    """Return the parameters of a search, and the limit that results."""
    if not isinstance(query, str) or not query.strip():
        raise MCPError("Missing 'query' value", kind="invalid")
    try:
        limit = max(1, min(20, int(limit)))
    except (TypeError, ValueError, OverflowError):
        raise MCPError("'limit' must be an integer", kind="invalid") from None
    return codec.encode({"query": query, "limit": limit, "detail": detail if detail in DETAILS else "summary"}), limit
