"""The servers that a session knows, and those that the execution may use."""

from . import BUILTINS as __builtins__

import sys

from . import codec
from .errors import MCPError, similar
from .late import SERVERS, Late
from .proxy import Server, choices, is_pythons, meaning, meanings, normal

Module = type(sys)


class Registry:
    def __init__(self, session):
        self.session = session
        self.channel = session.channel
        self.servers = {}  # name -> Server, all that were ever defined
        self.granted = []  # names, for the execution under way
        self.discovered = []  # {"name", "description"} of all that exist
        self.told = False  # whether the host has listed them
        self.bound = {}  # what we put into the user's namespace, by its name there
        self.unstarted = 0  # calls of tools in this execution that nothing has awaited
        self.modules = {}  # key -> (mcp_<key>, the name of its server)
        self.meant = None  # see meanings
        self.aliases = {}  # of the same servers

    # From the host.

    def update(self, frame):
        """Apply what an exec frame says about servers."""
        if "discovered" in frame:
            self.discovered = frame["discovered"] or []
            self.told = True
            self.meant = None
        for definition in frame.get("define") or ():
            self.define(definition)
        self.unstarted = 0
        granted = [name for name in frame.get("grants") or () if name in self.servers]
        self.granted = granted
        if any(self.aliases.get(name) != self.servers[name].alias for name in granted):
            self.meant = None
        self.bind()

    def define(self, definition):
        server = Server(self, definition)
        self.servers[server.name] = server
        self.forget_modules(server.name)
        if self.meant is not None and self.aliases.get(server.name) == server.alias:
            server.rename(self.called(server.name))
        else:
            self.meant = None
        return server

    def bind(self):
        """Make the user's namespace show the granted servers, and leave alone what the
        user has bound. A name stays when its server is no longer granted, or no longer
        what it means: its next use finds out, and loads the server again."""
        wanted = {}
        for name in self.granted:
            server = self.servers[name]
            for key in (server.alias, normal(name)):
                if self.meanings()[key] == [name] and ("mcp_" + key).isidentifier():
                    wanted["mcp_" + key] = server.proxy
        for name, value in self.bound.items():
            if name not in wanted and type(value) is not Late:
                self.forget_module(name[4:])
                self.put(name, Late(self.session, name[4:]))
        for name, proxy in wanted.items():
            self.put(name, proxy)
        loaded = self.session.loaded
        loaded.clear()
        loaded.update((name, self.servers[name].proxy) for name in self.granted)
        names, namespace = tuple(self.granted), self.session.namespace
        if namespace.get("LOADED_MCP_SERVERS", ()) == self.bound_names:
            namespace["LOADED_MCP_SERVERS"] = self.bound_names = names

    bound_names = ()  # LOADED_MCP_SERVERS as we bound it

    def put(self, name, value):
        """Bind a name in the namespace, unless the user has bound it."""
        namespace, bound = self.session.namespace, self.bound
        if name == "mcp_" + SERVERS:
            return
        if name not in namespace or name in bound and namespace[name] is bound[name]:
            namespace[name] = value
        bound[name] = value

    def mentioned(self, source):
        """Bind the servers that code names and does not have: they are loaded when it
        uses them."""
        source = normal(source)  # as Python reads identifiers
        for key in self.meanings():
            name = "mcp_" + key
            if name in source and name not in self.session.namespace and name.isidentifier():
                self.put(name, Late(self.session, key))

    async def load(self, name):
        """Ask the host to add a server to this execution. Return its proxy."""
        if name not in self.granted:
            self.add(await self.channel.request("load_server", codec.encode({"name": name})))
        return self.servers[name].proxy  # loaded by now, by whichever task asked first

    def load_sync(self, name):
        if name not in self.granted:
            self.add(self.channel.request_sync("load_server", codec.encode({"name": name})))
        return self.servers[name].proxy

    def renew(self, server):
        """Bring a server up to date that lacks what code uses: its tools may have
        changed since the execution began. Report whether they have."""
        had = server.definition
        try:
            self.load_sync(server.name)
            now = self.channel.request_sync("load_server", codec.encode({"name": server.name}))
        except MCPError:
            return False
        known = self.servers[server.name]
        if now != known.definition:
            known.take(now)
            self.forget_modules(server.name)
        if server.definition is not known.definition:
            server.take(known.definition)
        return server.definition is not had

    def add(self, definition):
        """Apply a server that the host has granted to this execution."""
        if definition["name"] not in self.granted:  # otherwise two tasks asked for it
            self.granted.append(self.define(definition).name)
            self.bind()

    def added(self, definition):
        """Like add, but return the proxy."""
        self.add(definition)
        return self.servers[definition["name"]].proxy

    def known(self):
        """Return {name, description} of every server that exists, by name."""
        infos = {info["name"]: info.get("description") or "" for info in self.discovered}
        for server in self.living():
            infos.setdefault(server.name, server.description)
        return [{"name": name, "description": infos[name]} for name in sorted(infos)]

    # For proxies and helpers.

    def get(self, name):
        """Return a granted server by its name or its alias, or None."""
        if name not in self.granted:
            name = self.exists(name)
        return self.servers[name] if name in self.granted else None

    async def need(self, name):
        """Return a server by its name or its alias. Ask the host to grant it if
        necessary."""
        server = self.get(name)
        if server is None:
            name = self.existing(name)
            await self.load(name)
            server = self.servers[name]
        return server

    def need_sync(self, name):
        server = self.get(name)
        if server is None:
            name = self.existing(name)
            self.load_sync(name)
            server = self.servers[name]
        return server

    def existing(self, name):
        """Return the name of a server, given its name or alias. Raise an MCPError if
        there is none."""
        known = self.exists(name)
        if known is None:
            raise MCPError(self.not_available(name), kind="denied", server=name)
        return known

    def by_alias(self, alias):
        """Return mcp_<alias>. Raise an AttributeError, which importing turns into its
        own error, if there is none."""
        server = self.get(alias)
        if server is None and not self.exists(alias):
            raise AttributeError("module 'mcp' has no attribute 'mcp_%s'" % alias)
        return Late(self.session, alias) if server is None else server.proxy

    def exists(self, name):
        """Return the name of an existing server, given its name or alias, or None. Raise
        an MCPError with the choices if it may mean several."""
        names = meaning(self.meanings(), name)
        if len(names) > 1:
            raise MCPError("there are several servers that %r may mean: write %s" % (name, choices("mcp_servers", names)), kind="invalid", server=name)
        return names[0] if names else None

    def meanings(self):
        """Return what identifiers mean, among the servers that code may use: others change
        nothing, so that no project's definition makes a name of the user's ambiguous
        before the user trusts it."""
        if self.meant is None:
            self.aliases = aliases = {info["name"]: info.get("alias") for info in self.discovered}
            aliases.update((server.name, server.alias) for server in self.living())
            self.meant = meanings(aliases.items())
            for server in self.servers.values():
                server.rename(self.called(server.name))
        return self.meant

    def called(self, name):
        """Return how code writes a server."""
        meant = self.meanings()
        alias = self.aliases.get(name)
        return "mcp_" + alias if alias and alias != SERVERS and meant[alias] == [name] else "mcp_servers[%r]" % name

    def living(self):
        """Return the servers that were defined and that the host still has."""
        names = self.granted if self.told else self.servers
        return [self.servers[name] for name in names]

    def not_available(self, name):
        names = sorted(info["name"] for info in self.discovered) or sorted(server.name for server in self.living())
        text = "Server %r is not available: there is no server of that name" % (name,)
        return text + similar(str(name), names) + (" (there are: %s)" % ", ".join(names[:50]) if names else "")

    # mcp.servers.<alias>, and mcp_<alias> where it is imported

    def module(self, alias):
        """Return the module of a server, and load the server if necessary; or return
        None."""
        if alias in self.modules:
            return self.modules[alias][0]
        try:
            if self.exists(alias):
                server = self.need_sync(alias)
            # "from mcp.servers.class import ..." is not valid Python.
            elif alias.endswith("_") and is_keyword(alias[:-1]):
                return self.module(alias[:-1])
            else:
                return None
        except MCPError as e:
            raise ModuleNotFoundError(str(e), name="mcp.servers." + alias) from None
        module = module_of(server, alias)
        self.modules[alias] = module, server.name
        return module

    def forget_modules(self, server):
        for key, (_, name) in list(self.modules.items()):
            if name == server:
                self.forget_module(key)

    def forget_module(self, alias):
        if self.modules.pop(alias, None) is not None:
            for name in (alias, alias + "_"):
                sys.modules.pop("mcp.servers." + name, None)
                sys.modules.pop("mcp_" + name, None)
                vars(self.session.package.servers).pop(name, None)


def module_of(server, key):
    """Return a server as a module: its tools by alias, and by their own names. Names
    that Python itself keeps in a module stay Python's."""
    tools = [tool for tool in server.tools if tool._own and not is_pythons(tool._alias)]
    module = Module("mcp.servers." + key, server.description or None)
    attributes = vars(module)
    attributes["list_tools"] = server.proxy.list_tools
    attributes.update((tool._alias, tool) for tool in tools)
    attributes["TOOLS"] = tuple(tool._name for tool in server.tools)
    attributes["TOOL_MAP"] = {tool._alias if tool._own else tool._name: tool._name for tool in server.tools}

    def attribute(name):
        if name != "__all__":
            tool = None if is_pythons(name) else server.find(name, AttributeError)
            if tool is None and name[:1] != "_" and server.registry.renew(server):
                tool = server.find(name, AttributeError)
            if tool is None:
                raise AttributeError("module %r has no attribute %r" % (module.__name__, name))
            return tool
        from . import stars
        from .proxy import Tool

        def mine(value):
            return type(value) is Tool and value._server.name == server.name

        aliases = [tool._alias for tool in tools]
        aliases += [tool._name for tool in server.tools if not tool._own and tool._name.isidentifier() and not is_pythons(tool._name)]
        session = server.registry.session
        return stars.names(session, aliases, mine, module.__name__, server.called + ".NAME") + ["TOOLS", "TOOL_MAP"]

    attributes["__getattr__"] = attribute
    return module


def is_keyword(name):
    from keyword import iskeyword

    return iskeyword(name)
