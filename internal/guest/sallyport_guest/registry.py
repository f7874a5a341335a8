"""The servers that a session knows, and those that the execution may use."""

from . import BUILTINS as __builtins__

import sys

from . import codec
from .errors import MCPError, similar
from .proxy import Server, is_pythons

Module = type(sys)


class Registry:
    def __init__(self, session):
        self.session = session
        self.channel = session.channel
        self.servers = {}  # name -> Server, all that were ever defined
        self.granted = []  # names, for the execution under way
        self.discovered = []  # {"name", "description"} of all that exist
        self.told = False  # whether the host has said which those are
        self.bound = {}  # the servers whose proxies we put into the user's namespace, by name there
        self.modules = {}  # alias -> module

    # From the host.

    def update(self, frame):
        """Take over what an exec frame says of servers."""
        if "discovered" in frame:
            self.discovered = frame["discovered"] or []
            self.told = True
        for definition in frame.get("define") or ():
            self.define(definition)
        granted = [name for name in frame.get("grants") or () if name in self.servers]
        self.granted = granted
        self.bind()

    def define(self, definition):
        server = Server(self, definition)
        old = self.servers.get(server.name)
        self.servers[server.name] = server
        if old is not None:
            self.forget_module(old.alias)
        return server

    def bind(self):
        """Make the user's namespace show the granted servers, and leave alone
        what the user has bound."""
        namespace = self.session.namespace
        wanted = {"mcp_" + server.alias: server for server in map(self.servers.get, self.granted)}
        for name in [n for n in self.bound if n not in wanted]:
            server = self.bound.pop(name)
            if namespace.get(name) is server.proxy:
                del namespace[name]
            self.forget_module(server.alias)
        for name, server in wanted.items():
            bound = self.bound.get(name)
            if name not in namespace or bound is not None and namespace[name] is bound.proxy:
                namespace[name] = server.proxy
            self.bound[name] = server
        loaded = self.session.loaded
        loaded.clear()
        loaded.update((name, self.servers[name].proxy) for name in self.granted)
        names = tuple(self.granted)
        if namespace.get("LOADED_MCP_SERVERS", ()) == self.bound_names:
            namespace["LOADED_MCP_SERVERS"] = self.bound_names = names

    bound_names = ()  # LOADED_MCP_SERVERS as we bound it

    async def load(self, name):
        """Have the host add a server to this execution. Its proxy."""
        if name not in self.granted:
            self.add(await self.channel.request("load_server", codec.encode({"name": name})))
        return self.servers[name].proxy

    def load_sync(self, name):
        if name not in self.granted:
            self.add(self.channel.request_sync("load_server", codec.encode({"name": name})))
        return self.servers[name].proxy

    def add(self, definition):
        """Take over a server that the host has granted to this execution."""
        server = self.define(definition)
        if server.name not in self.granted:  # else two tasks asked for it
            self.granted.append(server.name)
        self.bind()

    def added(self, definition):
        """add, and the proxy."""
        self.add(definition)
        return self.servers[definition["name"]].proxy

    def known(self):
        """{name, description} of every server that exists, by name."""
        infos = {info["name"]: info.get("description") or "" for info in self.discovered}
        for server in self.living():
            infos.setdefault(server.name, server.description)
        return [{"name": name, "description": infos[name]} for name in sorted(infos)]

    # For proxies and helpers.

    def check(self, server):
        if server.name not in self.granted:
            raise MCPError(self.not_available(server.name), kind="denied", server=server.name)

    def get(self, name):
        """A granted server by its name or its alias."""
        if name in self.granted:
            return self.servers[name]
        for granted in self.granted:
            if self.servers[granted].alias == name:
                return self.servers[granted]
        raise MCPError(self.not_available(name), kind="denied", server=name)

    def by_alias(self, alias):
        """mcp_<alias>, or an AttributeError that importing turns into its own
        error, unless something better can be said."""
        for name in self.granted:
            if self.servers[name].alias == alias:
                return self.servers[name].proxy
        if self.exists(alias):
            raise MCPError(self.not_available(alias), kind="denied", server=alias)
        raise AttributeError("module 'mcp' has no attribute 'mcp_%s'" % alias)

    def exists(self, name):
        """The name of a server that exists, by its name or alias, or None."""
        for info in self.discovered:
            if name in (info.get("name"), info.get("alias")):
                return info["name"]
        for server in self.living():
            if name in (server.name, server.alias):
                return server.name
        return None

    def living(self):
        """The servers that were defined, without those that the host has none
        of any more."""
        names = self.granted if self.told else self.servers
        return [self.servers[name] for name in names]

    def not_available(self, name):
        known = self.exists(name)
        if known is None:
            names = sorted(info["name"] for info in self.discovered) or sorted(server.name for server in self.living())
            text = "Server %r is not available: there is none of that name" % (name,)
            return text + similar(str(name), names) + (" (there are: %s)" % ", ".join(names[:50]) if names else "")
        return "Server %r is not available in this execution: pass servers=[%r] to run_python, or await runtime.load_server(%r)" % (
            known,
            known,
            known,
        )

    def hint(self, alias):
        """What to add to a NameError for mcp_<alias>."""
        name = self.exists(alias)
        if name is None:
            return ""
        return "Hint: add %r to servers: pass servers=[%r] to run_python, or await runtime.load_server(%r)\n" % (name, name, name)

    # mcp.servers.<alias>

    def module(self, alias):
        """The module of a granted server, or None."""
        if alias in self.modules:
            return self.modules[alias]
        server = next((self.servers[n] for n in self.granted if self.servers[n].alias == alias), None)
        if server is None:
            if self.exists(alias):
                raise ModuleNotFoundError(self.not_available(alias), name="mcp.servers." + alias)
            # from mcp.servers.class import ... is no Python.
            if alias.endswith("_") and is_keyword(alias[:-1]):
                return self.module(alias[:-1])
            return None
        self.modules[alias] = module = module_of(server)
        return module

    def forget_module(self, alias):
        if self.modules.pop(alias, None) is not None:
            for name in (alias, alias + "_"):
                sys.modules.pop("mcp.servers." + name, None)
                vars(self.session.package.servers).pop(name, None)


def module_of(server):
    """A server as a module: its tools by alias, and by their own names. What
    Python itself keeps in a module stays Python's."""
    tools = [tool for tool in server.tools if not is_pythons(tool._alias)]
    module = Module("mcp.servers." + server.alias, server.description or None)
    attributes = vars(module)
    attributes["list_tools"] = server.proxy.list_tools
    attributes.update((tool._alias, tool) for tool in tools)
    attributes["TOOLS"] = tuple(tool._name for tool in server.tools)
    attributes["TOOL_MAP"] = {tool._alias: tool._name for tool in server.tools}

    def attribute(name):
        if name != "__all__":
            raise AttributeError("module %r has no attribute %r" % (module.__name__, name))
        from . import stars
        from .proxy import Tool

        def mine(value):
            return type(value) is Tool and value._server.name == server.name

        aliases = [tool._alias for tool in tools]
        session = server.registry.session
        return stars.names(session, aliases, mine, module.__name__, "mcp_%s.NAME" % server.alias) + ["TOOLS", "TOOL_MAP"]

    attributes["__getattr__"] = attribute
    for tool in tools:
        if tool._name.isidentifier() and not is_pythons(tool._name):
            attributes.setdefault(tool._name, tool)
    return module


def is_keyword(name):
    from keyword import iskeyword

    return iskeyword(name)
