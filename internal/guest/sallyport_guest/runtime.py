"""What user code finds in mcp.runtime.

A helper is a method of Runtime whose name has no underscore in front; its first
line of documentation is also its line in capability_summary. NAMES gives the
order.
"""

from . import BUILTINS as __builtins__

from . import codec, values
from .errors import MCPError
from .proxy import list_tools

DETAILS = ("summary", "full")

NAMES = (
    "call_tool",
    "list_tools",
    "list_tools_sync",
    "list_servers",
    "list_servers_sync",
    "discovered_servers",
    "load_server",
    "describe_server",
    "list_loaded_server_metadata",
    "query_tool_docs",
    "query_tool_docs_sync",
    "search_tool_docs",
    "search_tool_docs_sync",
    "capability_summary",
)


def names(session):
    """The attributes of the module."""
    runtime = Runtime(session)
    attributes = {name: getattr(runtime, name) for name in NAMES}
    attributes["MCPError"] = MCPError
    attributes["__all__"] = ["MCPError", *NAMES]
    attributes["__doc__"] = "Helpers for the use of MCP servers from inside the sandbox."
    return attributes


class Runtime:
    def __init__(self, session):
        self._session = session
        self._registry = session.registry
        self._channel = session.channel

    # Calling.

    async def call_tool(self, server, tool, arguments=None):
        """await call_tool(server, tool, arguments): a tool's raw result as a dict; isError is for you to look at."""
        params = '{"server":%s,"tool":%s,"arguments":%s}' % (
            codec.quote(self._registry.get(server)._name),
            codec.quote(str(tool)),
            codec.encode({} if arguments is None else arguments, values.sendable),
        )
        return await self._channel.request("call_tool", params)

    async def list_tools(self, server):
        """await list_tools(server): its tools as it describes them itself, schemas included."""
        return await list_tools(self._registry.get(server))

    def list_tools_sync(self, server=None):
        """list_tools_sync(server): its tools as {name, alias, description, input_schema}."""
        if server is None:
            raise MCPError("list_tools_sync(server) requires a server name")
        return tuple(tool_metadata(tool) for tool in self._registry.get(server)._tools)

    # Which servers there are.

    async def list_servers(self):
        """await list_servers(): the names of the servers of this execution."""
        return tuple(sorted(self._registry.granted))

    def list_servers_sync(self):
        """list_servers_sync(): the same, without await."""
        return tuple(sorted(self._registry.granted))

    def discovered_servers(self, detailed=False):
        """discovered_servers(detailed=False): every server that exists, loaded or not; detailed adds descriptions."""
        infos = [
            {"name": info["name"], "description": info.get("description") or ""} for info in self._registry.discovered
        ]
        known = {info["name"] for info in infos}
        for server in self._registry.servers.values():
            if server._name not in known:
                infos.append({"name": server._name, "description": server._description})
        infos.sort(key=lambda info: info["name"])
        return tuple(infos) if detailed else tuple(info["name"] for info in infos)

    async def load_server(self, name):
        """await load_server(name): add a server to this execution; returns it, and binds mcp_<alias>."""
        return await self._registry.load(name)

    def describe_server(self, name):
        """describe_server(name): {name, alias, tools, cwd} of a loaded server."""
        try:
            return server_metadata(self._registry.get(name))
        except MCPError:
            raise MCPError("Server %r is not loaded" % (name,), kind="denied", server=name) from None

    def list_loaded_server_metadata(self):
        """list_loaded_server_metadata(): the same of all loaded servers."""
        return tuple(server_metadata(self._registry.servers[name]) for name in self._registry.granted)

    # Documentation of tools.

    async def query_tool_docs(self, server, tool=None, detail="summary"):
        """await query_tool_docs(server, tool=None, detail="summary"): documentation; detail="full" has the schemas."""
        docs = self._local_docs(server, tool, detail)
        if docs is None:
            docs = await self._ask("query_tool_docs", query_params(server, tool, detail))
        if docs is None:
            raise self._unknown(server)
        return one(docs, server, tool) if tool is not None else docs

    def query_tool_docs_sync(self, server, tool=None, detail="summary"):
        """query_tool_docs_sync(server, tool=None, detail="summary"): the same without await, always a list."""
        docs = self._local_docs(server, tool, detail)
        if docs is None:
            docs = self._ask_sync("query_tool_docs", query_params(server, tool, detail))
        if docs is None:
            raise self._unknown(server)
        return docs

    async def search_tool_docs(self, query, *, limit=5, detail="summary"):
        """await search_tool_docs(query, limit=5, detail="summary"): find tools of all servers by what they do."""
        limit = max(1, min(20, int(limit)))
        docs = await self._ask("search_tool_docs", search_params(query, limit, detail))
        return self._search(query, limit, detail) if docs is None else docs

    def search_tool_docs_sync(self, query, *, limit=5, detail="summary"):
        """search_tool_docs_sync(query, limit=5, detail="summary"): the same, without await."""
        limit = max(1, min(20, int(limit)))
        docs = self._ask_sync("search_tool_docs", search_params(query, limit, detail))
        return self._search(query, limit, detail) if docs is None else docs

    def capability_summary(self):
        """capability_summary(): this text."""
        lines = [
            "--- PYTHON SANDBOX MANUAL ---",
            "Variables, functions and imports stay between calls; top-level await works; files go to /workspace.",
            "A server's tool: await mcp_<alias>.<tool>(...), mcp_servers['name'] or from mcp.servers.<alias> import *.",
            "It returns the value itself and raises MCPError when it fails. help(mcp_<alias>.<tool>) describes it.",
            "Helpers (from mcp import runtime, or the name runtime):",
        ]
        for name in NAMES:
            lines.append("  " + getattr(Runtime, name).__doc__.replace(name + "(", "runtime." + name + "(", 1))
        loaded = ", ".join("mcp_" + self._registry.servers[n]._alias for n in self._registry.granted)
        lines.append("Loaded now: %s" % (loaded or "no servers"))
        return "\n".join(lines)

    # Help.

    def _unknown(self, server):
        return MCPError(self._registry.not_available(server), kind="denied", server=server)

    def _local_docs(self, name, tool, detail):
        """The documents of a loaded server, or None."""
        try:
            server = self._registry.get(name)
        except MCPError:
            return None
        tools = server._tools
        if tool is not None:
            tools = [t for t in tools if tool in (t._name, t._alias)]
            if not tools:
                raise MCPError("Server %r has no tool %r" % (server._name, tool), kind="not_found", server=server._name)
        return [document(t, detail) for t in tools]

    async def _ask(self, method, params):
        """The host's answer, or None if it has none to give."""
        try:
            return await self._channel.request(method, params)
        except MCPError as e:
            if e.kind != "unsupported":
                raise
            return None

    def _ask_sync(self, method, params):
        try:
            return self._channel.request_sync(method, params)
        except MCPError as e:
            if e.kind != "unsupported":
                raise
            return None

    def _search(self, query, limit, detail):
        """What the loaded servers have, best first: all words must be there;
        a word in the tool's name counts more than one in its description."""
        words = str(query).lower().split()
        found = []
        for name in self._registry.granted:
            server = self._registry.servers[name]
            for tool in server._tools:
                title = " ".join((tool._name, tool._alias)).lower()
                text = " ".join((server._name, server._alias, title, tool._description)).lower()
                if all(word in text for word in words):
                    found.append((-sum(word in title for word in words), len(found), tool))
        return [document(tool, detail) for _, _, tool in sorted(found)[:limit]]


def tool_metadata(tool):
    return {
        "name": tool._name,
        "alias": tool._alias,
        "description": tool._description,
        "input_schema": tool._definition.get("inputSchema"),
    }


def server_metadata(server):
    return {
        "name": server._name,
        "alias": server._alias,
        "tools": [tool_metadata(tool) for tool in server._tools],
        "cwd": server._definition.get("cwd"),
    }


def document(tool, detail):
    server = tool._server
    doc = {"server": server._name, "serverAlias": server._alias, "tool": tool._name, "toolAlias": tool._alias}
    if tool._description:
        doc["description"] = tool._description
    if detail == "full":
        doc["inputSchema"] = tool._definition.get("inputSchema")
    return doc


def one(docs, server, tool):
    if not docs:
        raise MCPError("Server %r has no tool %r" % (server, tool), kind="not_found", server=server, tool=tool)
    return docs[0]


def query_params(server, tool, detail):
    params = {"server": str(server), "detail": detail if detail in DETAILS else "summary"}
    if tool is not None:
        params["tool"] = str(tool)
    return codec.encode(params)


def search_params(query, limit, detail):
    return codec.encode({"query": str(query), "limit": limit, "detail": detail if detail in DETAILS else "summary"})
