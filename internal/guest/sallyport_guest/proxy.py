"""mcp_<alias>, and mcp_<alias>.<tool>: servers and tools as user code has them.

A server's own names begin with an underscore, list_tools excepted: all others
are for its tools.
"""

from . import BUILTINS as __builtins__

from . import codec, values
from .errors import ArgumentError, MCPError
from .schema import Parameters, similar


class Server:
    """An MCP server. Its tools are its attributes: await server.tool(...)"""

    def __init__(self, registry, definition):
        self._registry = registry
        self._definition = definition
        self._name = definition["name"]
        self._alias = definition["alias"]
        self._description = definition.get("description") or ""
        self._tools = tools = [Tool(self, d) for d in definition.get("tools") or ()]
        self._index = {tool._name: tool for tool in tools}
        self._index.update((tool._alias, tool) for tool in tools)

    @property
    def __doc__(self):
        lines = [self._description or "The MCP server %s." % self._name, "", "Tools:"]
        lines += ["  await %s" % tool._signature() for tool in self._tools]
        return "\n".join(lines)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        tool = self._index.get(name)
        if tool is None:
            aliases = [t._alias for t in self._tools]
            raise AttributeError(
                "server %r has no tool %r%s (it has: %s)"
                % (self._name, name, similar(name, aliases), ", ".join(aliases[:50]) or "none")
            )
        return tool

    def __getitem__(self, name):
        """A tool by its name, also one that is no identifier."""
        try:
            return self._index[name]
        except KeyError:
            raise KeyError("server %r has no tool %r" % (self._name, name)) from None

    def __dir__(self):
        return ["list_tools", *(tool._alias for tool in self._tools)]

    def __repr__(self):
        return "<MCP server %s: %s>" % (self._name, ", ".join(tool._alias for tool in self._tools) or "no tools")

    async def list_tools(self):
        """The server's tools as it describes them itself."""
        return await list_tools(self)


async def list_tools(server):
    server._registry.check(server)
    try:
        return await server._registry.channel.request("list_tools", codec.encode({"server": server._name}))
    except MCPError as e:
        if e.kind != "unsupported":
            raise
    return [tool._described() for tool in server._tools]


class Tool:
    """A tool of an MCP server."""

    def __init__(self, server, definition):
        self._server = server
        self._definition = definition
        self._name = definition["name"]
        self._alias = definition["alias"]
        self._description = definition.get("description") or ""
        self._parameters = None
        # What makes inspect and pydoc see a coroutine function.
        self.__name__ = self._alias
        self.__qualname__ = "mcp_%s.%s" % (server._alias, self._alias)
        self.__module__ = "mcp.servers." + server._alias

    @property
    def parameters(self):
        if self._parameters is None:
            self._parameters = Parameters(self._definition.get("inputSchema"))
        return self._parameters

    def __call__(self, /, *args, **kwargs):
        call = self._call(args, kwargs)
        # For the warning that it was not awaited.
        call.__name__, call.__qualname__ = self.__name__, self.__qualname__
        return call

    async def _call(self, args, kwargs):
        server = self._server
        registry = server._registry
        registry.check(server)
        arguments = self.parameters.bind(self.__qualname__, args, kwargs)
        try:
            text = codec.encode(arguments, values.sendable)
        except (TypeError, ValueError, RecursionError) as e:
            raise ArgumentError(
                "%s: the arguments cannot be sent: %s" % (self.__qualname__, e), kind="invalid"
            ) from None
        params = '{"server":%s,"tool":%s,"arguments":%s}' % (codec.quote(server._name), codec.quote(self._name), text)
        try:
            result = await registry.channel.request("call_tool", params, values.decode)
        except MCPError as e:
            e.server, e.tool = server._name, self._name
            raise
        return values.unwrap(result, server._name, self._name)

    def _signature(self):
        return self.parameters.signature(self.__qualname__)

    def _described(self):
        """The tool as MCP describes one."""
        described = {"name": self._name}
        for key in ("description", "inputSchema", "outputSchema"):
            if self._definition.get(key):
                described[key] = self._definition[key]
        return described

    @property
    def __doc__(self):
        text = "await %s" % self._signature()
        if self._description:
            text += "\n\n" + self._description
        details = [
            "  %s: %s" % (name, schema["description"])
            for name, schema in self.parameters.properties.items()
            if isinstance(schema, dict) and isinstance(schema.get("description"), str)
        ]
        return text + ("\n\nArguments:\n" + "\n".join(details) if details else "")

    @property
    def __signature__(self):
        return self.parameters.inspected()

    def __get__(self, instance, owner=None):
        # Having this, and not __set__, inspect.isroutine counts it as a routine.
        return self

    def __repr__(self):
        return "<MCP tool %s>" % self._signature()
