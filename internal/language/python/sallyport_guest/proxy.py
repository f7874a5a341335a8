"""mcp_<alias>, and mcp_<alias>.<tool>: servers and tools as user code sees them.

A Server is what the session knows. Its Proxy is what user code holds: every
attribute is a tool, except list_tools and names that Python itself uses (__class__
and the like), whose tools are available as proxy["name"].
"""

from . import BUILTINS as __builtins__

from . import codec, values
from .errors import ArgumentError, MCPError, similar
from .schema import LEARNED, Parameters


MAX_WHOLE = 15  # tools of a server whose help shows whole signatures
MAX_LINES = 100  # tools of a server whose help has a line
MAX_HELP = 8000  # characters of these lines
MAX_SAID = 2000  # characters of a server's description in its help
MAX_ABOUT = 80  # characters of a description in a list
MAX_CHOICES = 20  # of a name that several have


def meanings(pairs):
    """Return what identifiers mean: {identifier: names}. pairs are (name, alias) of all
    servers, or of all tools of one. A name means what has it. Only if nothing has it, it
    is an alias, or what Python makes of a name in source code (NFKC): if it fits several,
    it means none of them, whatever their order."""
    meant = {}
    for name, alias in pairs:
        for identifier in {alias or name, normal(name)}:
            meant.setdefault(identifier, []).append(name)
    for name, _ in pairs:
        meant[name] = [name]
    return meant


def meaning(meant, name):
    """Return the names that meanings has for a name."""
    return meant.get(name) or meant.get(normal(name), ()) if isinstance(name, str) else ()


def normal(name):
    if name.isascii():
        return name
    from unicodedata import normalize

    return normalize("NFKC", name)


def choices(module, names):
    """Return what a message says about the names that one may mean."""
    return " or ".join("%s[%r]" % (module, name) for name in names[:MAX_CHOICES])


class Server:
    def __init__(self, registry, definition):
        self.registry = registry
        self.name = definition["name"]
        self.alias = definition["alias"]
        self.called = "mcp_" + self.alias
        self.take(definition)
        self.proxy = Proxy(self)

    def take(self, definition):
        """Become what a definition of this server says."""
        self.definition = definition
        self.description = definition.get("description") or ""
        definitions = definition.get("tools") or ()
        pairs = [(d["name"], d["alias"]) for d in definitions]
        self.meanings = meanings(pairs + [(name, name) for name in definition.get("denied") or ()])
        self.tools = tools = [Tool(self, d) for d in definitions]
        self.by_name = {tool._name: tool for tool in tools}

    def rename(self, called):
        """Apply how code writes the server."""
        if called != self.called:
            self.called = called
            for tool in self.tools:
                tool.__qualname__ = called + tool._suffix

    def find(self, name, error):
        """Return the tool that a name means, or None. Raise an error with the choices if
        it may mean several."""
        tool = self.by_name.get(name)
        if tool is None:
            names = meaning(self.meanings, name)
            if len(names) > 1:
                raise error("server %r has several tools that %r may mean: write %s" % (self.name, name, choices(self.called, names)))
            tool = self.by_name.get(names[0]) if names else None
        return tool

    def lacks(self, name, most=50):
        """Return the message about a tool that there is not."""
        have = [tool._shown for tool in self.tools]
        return "server %r has no tool %r%s (it has: %s)" % (self.name, name, similar(name, have), ", ".join(have[:most]) or "none")


def is_pythons(name):
    """Whether Python itself uses attributes with such a name."""
    return name.startswith("__") and name.endswith("__")


class Proxy:
    """An MCP server. Its tools are its attributes: await server.tool(...)"""

    def __init__(self, server):
        # A name that Python itself uses: every other may be the name of a tool.
        self.__server__ = server

    @property
    def __doc__(self):
        server = self.__server__
        called, tools = server.called, server.tools
        whole = len(tools) <= MAX_WHOLE
        about = server.description or "The MCP server %s." % server.name
        lines = [about if len(about) <= MAX_SAID else about[:MAX_SAID] + "…", "", "Tools (help(%s.NAME) describes one):" % called]
        left = MAX_HELP
        for i, tool in enumerate(tools[:MAX_LINES]):
            line = "  await %s" % tool._line(whole)
            left -= len(line)
            if left < 0 and i:
                break
            lines.append(line)
        more = len(tools) - (len(lines) - 3)
        if more:
            lines.append("%d more tools: dir(%s) names them all, await search_tool_docs('what it does') finds one" % (more, called))
        return "\n".join(lines)

    def __getattr__(self, name):
        if is_pythons(name):
            raise AttributeError(name)
        server = self.__server__
        tool = server.by_name.get(name) or server.find(name, AttributeError)
        if tool is None and name[:1] != "_" and server.registry.renew(server):
            tool = server.find(name, AttributeError)
        if tool is None:
            raise AttributeError(server.lacks(name))
        return tool

    def __getitem__(self, name):
        """Return a tool by its name, even one that is not an identifier."""
        server = self.__server__
        tool = server.find(name, KeyError)
        if tool is None and server.registry.renew(server):
            tool = server.find(name, KeyError)
        if tool is None:
            raise KeyError("server %r has no tool %r%s" % (server.name, name, similar(str(name), server.by_name)))
        return tool

    def __dir__(self):
        return ["list_tools", *(t._alias for t in self.__server__.tools if t._suffix[0] == ".")]

    def __repr__(self):
        server = self.__server__
        return "<MCP server %s: %s>" % (server.name, ", ".join(tool._shown for tool in server.tools) or "no tools")

    def __reduce__(self):
        raise TypeError("a server cannot be pickled")

    async def list_tools(self):
        """The server's tools as it describes them itself."""
        return await list_tools(self.__server__)


def commented(text, about):
    """A signature with a comment, behind the one that it may have."""
    return text + (("; " if text.endswith(LEARNED) else "  # ") + about if about else "")


Proxy.__module__ = "mcp.runtime"
Proxy.__qualname__ = Proxy.__name__ = "Server"


async def list_tools(server):
    await server.registry.load(server.name)
    try:
        return await server.registry.channel.request("list_tools", codec.encode({"server": server.name}))
    except MCPError as e:
        if e.kind != "unsupported":
            raise
    return [tool._described() for tool in server.tools]


class Tool:
    """A tool of an MCP server."""

    def __init__(self, server, definition):
        self._server = server
        self._definition = definition
        self._name = definition["name"]
        self._alias = definition["alias"]
        self._description = definition.get("description") or ""
        self._parameters = None
        self._declared = definition.get("unwrap", "") if definition.get("outputSchema") else None
        # This makes inspect and pydoc see a coroutine function.
        self.__name__ = self._alias
        # Whether the alias means this tool.
        self._own = own = server.meanings[self._alias] == [self._name]
        by_item = not own or is_pythons(self._alias) or self._alias == "list_tools"
        self._suffix = "[%r]" % self._name if by_item else "." + self._alias
        self._shown = self._suffix.lstrip(".")
        self.__qualname__ = server.called + self._suffix
        self.__module__ = "mcp.servers." + server.alias

    @property
    def parameters(self):
        if self._parameters is None:
            d = self._definition
            self._parameters = Parameters(d.get("inputSchema"), d.get("signature"), d.get("renamed"))
        return self._parameters

    def __call__(self, /, *args, **kwargs):
        return self._begun(args, kwargs, "")

    def fresh(self, /, *args, **kwargs):
        """The same call, without a result that was kept from an earlier one."""
        return self._begun(args, kwargs, codec.FRESH)

    def _begun(self, args, kwargs, how):
        self._server.registry.unstarted += 1
        call = self._call(args, kwargs, how)
        # For the warning that it was not awaited.
        call.__name__, call.__qualname__ = self.__name__, self.__qualname__
        return call

    async def _call(self, args, kwargs, how):
        server = self._server
        registry = server.registry
        registry.unstarted -= 1
        if server.name not in registry.granted:
            await registry.load(server.name)
        parameters = self.parameters
        try:
            arguments = parameters.bind(self.__qualname__, args, kwargs)
        except ArgumentError:
            now = registry.renew(server) and server.by_name.get(self._name)
            if not now:
                raise
            parameters, arguments = now.parameters, None
        if arguments is None:
            arguments = parameters.bind(self.__qualname__, args, kwargs)
        if parameters.listed is not None and not parameters.listed.issuperset(arguments):
            from . import advice

            advice.tell_unlisted(registry.session, self.__qualname__, parameters, arguments)
        text = values.encode(self.__qualname__, arguments)
        params = '{"server":%s,"tool":%s,"arguments":%s%s}' % (codec.quote(server.name), codec.quote(self._name), text, how)
        try:
            result = await registry.channel.request("call_tool", params, values.decode)
        except MCPError as e:
            e.server, e.tool = server.name, self._name
            raise
        return values.unwrap(result, server.name, self._name, self._declared, registry.session, self.__qualname__)

    def _signature(self):
        return self.parameters.signature(self.__qualname__)

    def _line(self, whole):
        """The tool in a list: its call, without optional arguments if not whole."""
        text = self._signature() if whole else self.parameters.brief(self.__qualname__)
        about = " ".join(self._description.split("\n", 1)[0].split()).partition(". ")[0].rstrip(".")
        if len(about) > MAX_ABOUT:
            about = about[: MAX_ABOUT - 1] + "…"
        return commented(text, about)

    def _described(self):
        """Return the tool as MCP describes it."""
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
        details = self.parameters.described()
        return text + ("\n\nArguments:\n" + "\n".join(details) if details else "")

    @property
    def __signature__(self):
        return self.parameters.inspected()

    def __get__(self, instance, owner=None):
        # With this method and without __set__, inspect.isroutine counts it as a
        # routine.
        return self

    def __repr__(self):
        return "<MCP tool %s>" % self._signature()
