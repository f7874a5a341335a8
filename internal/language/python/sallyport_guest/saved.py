"""user_tools: functions that save_tool keeps for later sessions.

The host keeps the source of a module for each. It is fetched and compiled on first
use, and stays for the session; importlib.reload forgets it.
"""

from . import BUILTINS as __builtins__

import builtins
import sys
from _thread import get_ident

from . import codec
from .errors import similar
from .late import Late

MODULE = "user_tools"


class Tools:
    """The saved tools that a session has used."""

    def __init__(self, session):
        self.session = session
        self.loading = []
        self.saving = None  # the thread that tests what it saves
        self.servers = {}  # alias -> Late
        self.made = {}  # name -> the namespace of its module

    def ask(self, method, params):
        return self.session.channel.request_sync(method, params)

    def names(self):
        return self.ask("tool_names", "{}") or []

    def load(self, name):
        """Return the function of that name, or None."""
        if name in self.loading:
            raise ImportError("the saved tools %s import each other" % " and ".join(self.loading), name=MODULE)
        found = self.ask("tool_load", '{"name":%s}' % codec.quote(name))
        if found is None:
            return None
        self.loading.append(name)
        try:
            filename = "<user_tools.%s version %d>" % (name, found["version"])
            namespace = self.run(filename, found["source"], found.get("servers") or ())
        finally:
            self.loading.remove(name)
        try:
            function = namespace[name]
        except KeyError:
            raise ImportError("the saved tool %r does not define %s" % (name, name), name=MODULE) from None
        self.made[name] = namespace
        vars(self.session.package.user_tools)[name] = function
        return function

    def run(self, filename, source, servers):
        """Run a saved module's source. Return its namespace."""
        namespace = {"__name__": MODULE, "__builtins__": builtins}
        namespace.update(("mcp_" + alias, self.server(alias)) for alias in servers)
        self.session.sources.add(filename, source)
        exec(compile(source, filename, "exec", 0, True), namespace)
        return namespace

    def server(self, alias):
        late = self.servers.get(alias)
        if late is None:
            late = self.servers[alias] = Late(self.session, alias)
        return late

    def forget(self, names=None):
        attributes = vars(self.session.package.user_tools)
        for name in list(self.made if names is None else names):
            self.made.pop(name, None)
            attributes.pop(name, None)


def tools(session):
    found = vars(session).get("tools")
    if found is None:
        found = session.tools = Tools(session)
    return found


# The module user_tools.


def attribute(session, name):
    """Return an attribute that the module does not have yet."""
    if name == "__all__":
        from . import stars

        loaded = vars(session.package.user_tools)
        return stars.names(
            session, names(session), lambda value: loaded.get(getattr(value, "__name__", None)) is value, MODULE, "user_tools.NAME"
        )
    if not name.startswith("__"):
        function = tools(session).load(name)
        if function is not None:
            return function
    raise AttributeError("module 'user_tools' has no attribute %r" % name)


def names(session):
    return tools(session).names()


class Loader:
    """A loader for the import system, which usually finds the module in sys.modules."""

    def __init__(self, session):
        self.session = session

    def create_module(self, spec):
        return self.session.package.user_tools

    def exec_module(self, module):
        tools(self.session).forget()


def find_spec(session, name):
    if name == MODULE:
        return type(sys.__spec__)(name, Loader(session), is_package=True)
    # Code imports a name that was not found as an attribute.
    wanted, found = name[len(MODULE) + 1 :], names(session)
    if wanted in found:
        raise ModuleNotFoundError("%s is not a module: write from user_tools import %s" % (name, wanted), name=MODULE)
    known = " (there are: %s)" % ", ".join(found[:50]) if found else ": none is saved"
    raise ImportError("there is no saved tool %r%s%s" % (wanted, similar(wanted, found), known), name=MODULE)


# save_tool.


def save(session, func):
    from . import extract

    kept = tools(session)
    if kept.saving == get_ident():
        raise ValueError("save_tool was called by what is being saved")
    made = extract.tool(session, func)
    kept.saving = get_ident()
    try:
        namespace = kept.run("<user_tools.%s, as it is saved>" % made["name"], made["source"], made["servers"])
    except Exception as e:
        raise ValueError(
            "save_tool(%s): it could not be imported later: %s: %s" % (made["name"], type(e).__name__, e)
        ) from e
    finally:
        kept.saving = None
    if not callable(namespace.get(made["name"])):
        raise ValueError("save_tool(%s): its decorators do not return a function" % made["name"])
    kept.ask("tool_save", codec.encode(made))
    kept.forget([made["name"]])
    return "Tool '%s' saved. It will be available in future sessions." % made["name"]
