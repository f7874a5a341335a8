"""Servers that are loaded when code uses them: those that it names without
having been granted them, and those of saved tools."""

from . import BUILTINS as __builtins__


class Late:
    """mcp_<alias>: whatever server has that alias when it is used. The host then
    decides whether to grant it to the execution."""

    def __init__(self, session, alias):
        self.__late__ = (session, alias)

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self.tool(name, getattr)

    def __getitem__(self, name):
        return self.tool(name, lambda server, name: server[name])

    def tool(self, name, get):
        session, alias = self.__late__
        server = session.registry.get(alias)
        return LateTool(self, name, get) if server is None else get(server.proxy, name)

    def __dir__(self):
        return dir(loaded(self))

    def __repr__(self):
        return "<MCP server mcp_%s, loaded when it is used>" % self.__late__[1]


class LateTool:
    def __init__(self, late, name, get):
        self.late = late
        self.name = name
        self.get = get

        self.__name__ = name
        self.__qualname__ = "mcp_%s.%s" % (late.__late__[1], name)

    def __call__(self, /, *args, **kwargs):
        self.late.__late__[0].registry.unstarted += 1
        call = self._call(args, kwargs)
        call.__name__, call.__qualname__ = self.__name__, self.__qualname__
        return call

    async def _call(self, args, kwargs):
        session, alias = self.late.__late__
        session.registry.unstarted -= 1
        server = await session.registry.need(alias)
        return await self.get(server.proxy, self.name)(*args, **kwargs)

    def __getattr__(self, name):
        if name.startswith("__") and name != "__signature__":
            raise AttributeError(name)
        return getattr(self.get(loaded(self.late), self.name), name)

    @property
    def __doc__(self):
        return self.get(loaded(self.late), self.name).__doc__

    def __repr__(self):
        return "<MCP tool %s, loaded when it is called>" % self.__qualname__


def loaded(late):
    """Load the server, for code that inspects it."""
    session, alias = late.__late__
    return session.registry.need_sync(alias).proxy
