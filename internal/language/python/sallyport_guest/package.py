"""The names that user code finds: the package mcp, its helpers, and a few builtins.

They are bound once, when the session starts: if the user rebinds one of these
names, that stays, and no execution pays for it. The code that calls servers is
imported on first use: most executions use none.
"""

from . import BUILTINS as __builtins__

import builtins
import sys

from . import runtime

Module = type(sys)


class Package:
    def __init__(self, session):
        self.session = session
        self.mcp = Module("mcp", "The MCP servers of this sandbox, and what helps to use them.")
        self.runtime = Module("mcp.runtime")
        self.servers = Module("mcp.servers", "One module for each loaded server.")
        self.user_tools = Module("user_tools", "The functions that save_tool has kept, in this session and earlier ones.")
        vars(self.mcp).update(
            __path__=[],
            __all__=["runtime", "servers"],
            __getattr__=self.mcp_attribute,
            runtime=self.runtime,
            servers=self.servers,
        )
        vars(self.servers).update(__path__=[], __getattr__=self.server_module)
        vars(self.user_tools).update(__path__=[], __getattr__=self.saved_tool, __dir__=self.saved_tools)
        attributes = runtime.names(session)
        vars(self.runtime).update(attributes)
        session.namespace.update(
            {name: attributes[name] for name in attributes["__all__"] if name not in runtime.APART},
            mcp=self.mcp,
            runtime=self.runtime,
            user_tools=self.user_tools,
            mcp_servers=Loaded(session),
            LOADED_MCP_SERVERS=(),
        )
        builtins.input = no_input
        builtins.exit = Exit("exit")
        builtins.quit = Exit("quit")
        builtins.help = help_of(session)
        builtins.display = show_values

    def install(self):
        """Stay importable, whatever user code did to sys.modules."""
        modules = sys.modules
        modules["mcp"] = self.mcp
        modules["mcp.runtime"] = self.runtime
        modules["mcp.servers"] = self.servers
        modules["user_tools"] = self.user_tools

    def mcp_attribute(self, name):
        """from mcp import mcp_github"""
        if name == "mcp_servers":
            return self.session.loaded
        if name.startswith("mcp_"):
            return self.session.registry.by_alias(name[4:])
        raise AttributeError("module 'mcp' has no attribute %r" % name)

    def server_module(self, name):
        """mcp.servers.github, without an import of its own"""
        if not name.startswith("_"):
            module = self.session.registry.module(name)
            if module is not None:
                sys.modules["mcp.servers." + name] = module
                return module
        raise AttributeError("module 'mcp.servers' has no attribute %r" % name)

    def saved_tool(self, name):
        """user_tools.f"""
        from . import saved

        return saved.attribute(self.session, name)

    def saved_tools(self):
        """dir(user_tools)"""
        from . import saved

        return saved.names(self.session)


class Loaded(dict):
    """The MCP servers by name: await mcp_servers['NAME'].TOOL(...)"""

    def __init__(self, session):
        self.session = session
        session.loaded = self

    def __missing__(self, name):
        from .errors import MCPError, NotLoaded
        from .late import Late

        registry = self.session.registry
        try:
            return Late(self.session, registry.existing(name), True)
        except MCPError as e:
            raise NotLoaded(str(e), kind="denied", server=name) from None


python_input = builtins.input  # for an execution that has an input


def no_input(prompt="", /):
    """There is no one to ask."""
    raise EOFError("input() cannot work here: there is no one to answer. Put the value into the code.")


class Exit:
    """exit() and quit() end the execution, not the session."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return "Use %s() to end this execution; the session goes on." % self.name

    def __call__(self, code=None):
        raise SystemExit(code)


def show_values(*values, **options):
    """Show values, as the last expression of a cell is shown: display(x)."""
    from .display import display

    display(*values, **options)


def help_of(session):
    """Return help(), which knows the servers of a session."""

    def help(*args, **kwargs):
        """Describe an object. For a server and a tool, print only what a caller needs."""
        from . import about

        text = about.about(session, args[0]) if len(args) == 1 else None if args or kwargs else about.NOTHING
        if text is not None:
            print(text)
            return None
        import pydoc

        return pydoc.help(*args, **kwargs)

    return help
