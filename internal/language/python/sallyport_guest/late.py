"""Servers that are loaded when code uses them: those that it names without
having been granted them, and those of saved tools."""

from . import BUILTINS as __builtins__

from .errors import MCPError

SERVERS = "servers"  # mcp_servers is all of them

class Late:
    """A server by its name, or mcp_<alias>: whatever server that means when it is
    used. The host then decides whether to grant it to the execution."""

    def __init__(self, session, key, named=False):
        self.__late__ = (session, key, named)

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self.tool(name, getattr)

    def __getitem__(self, name):
        return self.tool(name, lambda server, name: server[name])

    def tool(self, name, get):
        session, key = place(self)
        server = session.registry.get(key)
        return LateTool(self, name, get) if server is None else get(server.proxy, name)

    def __dir__(self):
        return dir(loaded(self))

    @property
    def __doc__(self):
        return loaded(self).__doc__

    def __repr__(self):
        return "<MCP server %s, loaded when it is used>" % written(self)


class LateTool:
    def __init__(self, late, name, get):
        self.late = late
        self.name = name
        self.get = get

        self.__name__ = str(name)
        self.__qualname__ = ("%s.%s" if isinstance(name, str) and name.isidentifier() else "%s[%r]") % (written(late), name)

    def __call__(self, /, *args, **kwargs):
        self.late.__late__[0].registry.unstarted += 1
        call = self._call(args, kwargs)
        call.__name__, call.__qualname__ = self.__name__, self.__qualname__
        return call

    async def _call(self, args, kwargs):
        session = self.late.__late__[0]
        session.registry.unstarted -= 1
        server = await session.registry.need(place(self.late)[1])
        return await self.get(server.proxy, self.name)(*args, **kwargs)

    def __getattr__(self, name):
        if name.startswith("__") and name not in ("__signature__", "__doc__"):
            raise AttributeError(name)
        return getattr(self.get(loaded(self.late), self.name), name)

    @property
    def __doc__(self):
        return self.get(loaded(self.late), self.name).__doc__

    def __repr__(self):
        return "<MCP tool %s, loaded when it is called>" % self.__qualname__


# What pydoc calls them.
for _class, _name in ((Late, "Server"), (LateTool, "Tool")):
    _class.__module__, _class.__name__, _class.__qualname__ = "mcp.runtime", _name, _name


def place(late):
    """Return the session, and what finds the server there."""
    session, key, named = late.__late__
    if named and session.registry.exists(key) != key:  # it is gone, and the name an alias at most
        raise MCPError(session.registry.not_available(key), kind="denied", server=key)
    return session, key


def loaded(late):
    """Load the server, for code that inspects it."""
    session, key = place(late)
    return session.registry.need_sync(key).proxy


def written(late):
    """Return how code writes the server."""
    session, key, _ = late.__late__
    return "mcp_" + key if key.isascii() and ("mcp_" + key).isidentifier() and key != SERVERS else session.registry.called(key)
