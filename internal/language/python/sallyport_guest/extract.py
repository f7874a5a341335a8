"""Turn a function of the session into the source of a module that defines it, with
the functions, classes, values and imports that it uses, and nothing else."""

from . import BUILTINS as __builtins__

import __future__
import ast
import builtins
import inspect
import re
import sys
import symtable
from posixpath import abspath

from . import literals
from .cells import Cells

MAX_DOC = 4000
MAX_SIGNATURE = 1000
MAX_ATTRIBUTES = 1000
Function = type(lambda: None)
Module = type(sys)
SAVING = ("save_tool", "runtime.save_tool", "mcp.runtime.save_tool")
SESSION = ("__main__",)
FUTURE = __future__.annotations.compiler_flag


def tool(session, func):
    """Return what is sent to the host for func."""
    title = getattr(func, "__name__", None)
    title = title if isinstance(title, str) else type(func).__name__
    function = check(func, title)
    collected = Collected(session, title)
    name = collected.function(func, function)
    return {
        "name": name,
        "source": collected.text(),
        "signature": signature(func),
        "doc": clean(inspect.getdoc(function) or "")[:MAX_DOC],
        "async": inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(function),
        "servers": sorted(collected.servers),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "schema": schema(function),
    }


def check(func, title):
    """Return the plain function behind func."""
    if isinstance(func, type):
        raise ValueError("save_tool needs a function, not the class %s" % title)
    function = plain(func)
    if function is None:
        kind = type(func).__name__
        raise ValueError("save_tool needs a function, not " + article(kind) + ("" if kind == title else " " + title))
    if function.__name__ == "<lambda>" or function.__code__.co_name == "<lambda>":
        raise ValueError("save_tool needs a function with a name: a lambda has none; write it with def")
    return function


def article(word):
    return ("an " if word[:1].lower() in "aeiou" else "a ") + word


def plain(func):
    """Return the function that a def made, behind its decorators; or None."""
    for _ in range(100):
        inner = getattr(func, "__wrapped__", None)
        if inner is None:
            break
        func = inner
    if type(func) is not Function:
        return None
    # A decorator without functools.wraps: its wrapper holds the function, whose
    # name is bound to the wrapper.
    for cell in func.__closure__ or ():
        inner = contents(cell)
        if type(inner) is Function and inner.__globals__.get(inner.__name__) is func and inner is not func:
            return plain(inner)
    return func


def contents(cell):
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def clean(text):
    """Make text acceptable to the host: valid, and without zero bytes."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def signature(func):
    """Like (x, y=2) -> int, on one line."""
    try:
        text = str(inspect.signature(func))
    except Exception:  # an annotation that cannot be evaluated, a default that cannot be shown
        text = "(...)"
    text = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in clean(text)))
    return text if len(text) <= MAX_SIGNATURE else "(...)"


TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "list": "array", "tuple": "array", "dict": "object"}


def schema(function):
    """Return a JSON Schema of the arguments."""
    properties, required, more = {}, [], False
    try:
        parameters = inspect.signature(function).parameters.values()
    except Exception:
        return {"type": "object"}
    for p in parameters:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            more = True
            continue
        annotation = p.annotation if isinstance(p.annotation, str) else getattr(p.annotation, "__name__", "")
        described = {"type": TYPES[annotation]} if annotation in TYPES else {}
        if p.default is p.empty:
            required.append(p.name)
        elif type(p.default) in (int, str, bool) and len(str(p.default)) < 100:
            described["default"] = clean(p.default) if type(p.default) is str else p.default
        properties[p.name] = described
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": more}


class Collected:
    """The parts of the module, each after those that it needs."""

    def __init__(self, session, title):
        self.session = session
        self.title = title
        self.cells = Cells(session.sources.files)
        self.imports = []  # lines
        self.parts = []  # source code
        self.bound = {}  # name -> what the module has under it
        self.defined = {}  # id of a function or class -> its name in the module
        self.kept = []  # keeps these alive, for their ids
        self.servers = set()
        self.future = False

    def text(self):
        head = ["from __future__ import annotations"] if self.future else []
        imports = sorted(set(self.imports), key=lambda line: (line.startswith("from "), line))
        return "\n\n\n".join(filter(None, ["\n".join(head + imports), *self.parts])) + "\n"

    def fail(self, reason):
        raise ValueError("save_tool(%s): %s" % (self.title, reason))

    def claim(self, name, value):
        """Whether the module does not have name yet; from now on it means value."""
        if name in self.bound:
            if self.bound[name] is not value:
                self.fail("it uses two different things that are called %s" % name)
            return False
        self.bound[name] = value
        return True

    # Functions and classes.

    def function(self, value, function):
        """Define a function; value is the function with its decorators. Return its
        name."""
        if id(value) in self.defined:
            return self.defined[id(value)]
        node, first, lines = self.cells.function(function.__code__)
        if node is None:
            self.fail(self.no_source(function))
        # This may be the decorator that is running.
        saving = [d for d in node.decorator_list if ast.unparse(d) in SAVING]
        decorators = [d for d in node.decorator_list if d not in saving]
        if value is not function and not decorators:
            self.fail("%s was wrapped by a call; write the decorator above its def" % node.name)
        name = node.name
        self.claim(name, value)
        self.defined[id(value)] = self.defined[id(function)] = name
        self.kept += [value, function]
        text, left = self.cells.with_defaults(node, first, lines, function, self.plain_text, saving)
        indent = re.match(r"[ \t]*", text).group()
        free = {}
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if variable == "__class__":
                self.fail("%s uses super() or __class__: a method cannot be saved alone" % name)
            try:
                free[variable] = cell.cell_contents
            except ValueError:
                self.fail("%s uses %s, which has no value yet" % (name, variable))
        own = {name}
        if free:
            maker = "_make_" + name
            own.add(maker)
            given = [
                "%s=%s" % (variable, self.given(name, variable, inner))
                for variable, inner in free.items()
                if inner is not function and inner is not value
            ]
            arguments = ", ".join(a.partition("=")[0] for a in given)
            text = "def %s(%s):\n%s\n%sreturn %s\n\n\n%s = %s(%s)" % (
                maker, arguments, text, indent, name, name, maker, ", ".join(given),
            )  # fmt: skip
        elif indent:
            text = "if True:\n" + text
        if function.__code__.co_flags & FUTURE:
            self.future = True
        if decorators or "<locals>" in function.__qualname__:
            outer = self.cells.enclosing_names(node, function.__code__.co_filename)
            for used in sorted(outer & evaluated(decorators + left) - set(free) - own):
                self.fail("%s uses %s of its enclosing function when it is defined" % (name, used))
        if value is function:
            if len(vars(function)) > MAX_ATTRIBUTES:
                self.fail("%s has more than %d attributes" % (name, MAX_ATTRIBUTES))
            for attribute, held in vars(function).items():
                text += "\n%s.%s = %s" % (name, attribute, self.expression(name, "its attribute " + attribute, held))
        self.names(text, own, function.__globals__, name, function.__code__.co_flags & FUTURE)
        self.parts.append(text)
        return name

    def no_source(self, function):
        module = function.__module__
        if module not in SESSION and module in sys.modules and self.lasts(module):
            return "%s belongs to the module %s: later sessions can import it from there" % (function.__name__, module)
        return "the source of %s is not known: it was not typed in this session, or too long ago" % function.__name__

    def klass(self, value):
        """Define a class. Return its name."""
        if id(value) in self.defined:
            return self.defined[id(value)]
        name = value.__name__
        if "<locals>" in value.__qualname__:
            self.fail("the class %s is defined inside a function" % name)
        methods = [f for f in map(method, vars(value).values()) if f is not None and f.__code__.co_filename in self.cells.sources]
        node, first, lines = self.cells.klass(name, [f.__code__ for f in methods])
        if node is None:
            self.fail("the source of the class %s is not known" % name)
        self.claim(name, value)
        self.defined[id(value)] = name
        self.kept.append(value)
        text = "\n".join(lines)
        if text[:1] in " \t":
            text = "if True:\n" + text
        future = any(f.__code__.co_flags & FUTURE for f in methods)
        self.future |= future
        scope = methods[0].__globals__ if methods else self.session.namespace
        self.names(text, {name}, scope, name, future)
        self.parts.append(text)
        return name

    # Names.

    def names(self, text, own, scope, owner, future):
        """Provide the names that source code uses."""
        if future:
            text = unannotated(text)
        for name in sorted(global_names(text) - own):
            if name.startswith("__") and name.endswith("__"):
                continue
            if name in scope:
                self.provide(owner, name, scope[name])
            elif name in self.bound or hasattr(builtins, name):
                continue
            elif name.startswith("mcp_"):
                self.servers.add(name[4:])
            elif not assigned_as_global(text, name):
                self.fail("%s uses %s, which is not defined" % (owner, name))

    def provide(self, owner, name, value):
        """Bind a name of the module."""
        if name in self.bound and self.bound[name] is value or getattr(builtins, name, self) is value:
            return
        found = self.imported(name, value)
        if found is None:
            text = self.expression(owner, name, value)
            if text == name:
                return  # it is defined by that name, or a server
            found = []
            self.parts.append("%s = %s" % (name, text))
        self.claim(name, value)
        self.imports += found

    def given(self, owner, name, value):
        """Return an expression for what a function takes from its enclosing
        function."""
        found = self.imported(name, value)
        if found is None:
            return self.expression(owner, name, value)
        self.claim(name, value)
        self.imports += found
        return name

    def expression(self, owner, name, value):
        """Return an expression for value, after providing what it needs."""
        server = self.server(value)
        if server is not None:
            return server
        text = self.plain_text(value)
        if text is not None:
            return text
        own = getattr(value, "__name__", None)
        if isinstance(own, str) and getattr(builtins, own, self) is value:
            return own
        if isinstance(value, type):
            if value.__module__ in SESSION + ("user_tools",):
                made = literals.named_tuple(value)
                if made is not None:
                    self.imports.append("import collections")
                    return made
                return self.klass(value)
        else:
            function = plain(value)
            if function is not None and self.cells.function(function.__code__)[0] is not None:
                return self.function(value, function)
        made = literals.special(value)
        if made is not None:
            self.imports.append("import " + made[0])
            return made[1]
        made = self.assigned(owner, name, value)
        if made is not None:
            return made
        kind = article(type(value).__name__)
        self.fail(
            "%s uses %s, %s, which cannot be kept: it can use functions, classes, modules and plain values. "
            "Make it inside the function, or pass it as an argument" % (owner, name, kind)
        )

    def assigned(self, owner, name, value):
        """Return the expression that was assigned to a name, if it is sure to produce
        the same value again: the name of a type, or a library value that never changes.
        Otherwise None."""
        node = self.cells.assignment(name)
        if node is None:
            return None
        calls = any(isinstance(n, literals.ACTIVE) for n in ast.walk(node))
        if calls and type(value).__module__ not in literals.UNCHANGING:
            return None
        text, scope = ast.unparse(node), self.session.namespace
        try:
            again = eval(text, scope)
            if not (again == value or type(again) is type(value) and literals.is_variable(value)):
                return None
        except Exception:
            return None
        self.names(text, set(), scope, owner, False)
        return text

    def plain_text(self, value):
        try:
            return literals.text(value)
        except ValueError:
            return None

    def server(self, value):
        """Return an expression for a server, or for one of its tools; otherwise
        None."""
        from . import late

        if type(value) is late.Late:
            called, tool = late.written(value), ""
        elif type(value) is late.LateTool:
            called, tool = late.written(value.late), "[%r]" % value.name
        elif "sallyport_guest.proxy" in sys.modules:
            from .proxy import Proxy, Tool

            if type(value) is Proxy:
                server, tool = value.__server__, ""
            elif type(value) is Tool:
                server, tool = value._server, "[%r]" % value._name
            else:
                return None
            called = server.registry.called(server.name)
        else:
            return None
        if "[" in called:
            self.claim("mcp_servers", self.session.loaded)
            self.imports.append("from mcp import mcp_servers")
        else:
            self.servers.add(called[4:])
        return called + tool

    # Imports.

    def imported(self, name, value):
        """Return lines that import value as name, or None."""
        if self.server(value) is not None:
            return None  # it may be granted later
        as_name = "" if getattr(value, "__name__", None) == name else " as " + name
        if value is self.session.loaded:
            return ["from mcp import mcp_servers" + ("" if name == "mcp_servers" else " as " + name)]
        if vars(self.session.package.user_tools).get(getattr(value, "__name__", "")) is value and not isinstance(value, Module):
            return ["from user_tools import " + value.__name__ + as_name]
        for statement, module, found in self.cells.imports(name):
            if found is value and self.lasts(module):
                return statement
        if isinstance(value, Module):
            if sys.modules.get(value.__name__) is value and self.lasts(value.__name__):
                return ["import " + value.__name__ + as_name]
            self.fail("it uses the module %s, which later sessions do not have" % value.__name__)
        module, attribute = getattr(value, "__module__", None), getattr(value, "__name__", None)
        if not isinstance(module, str) or not isinstance(attribute, str) or module in SESSION + ("builtins", "user_tools"):
            return None
        if getattr(sys.modules.get(module), attribute, self) is value and self.lasts(module):
            return ["from %s import %s%s" % (module, attribute, as_name)]
        return None

    def lasts(self, name):
        """Whether later sessions have the module, too."""
        module = sys.modules.get(name)
        if name.partition(".")[0] in ("mcp", "user_tools"):
            return True
        file = getattr(module, "__file__", None)
        if not isinstance(file, str):
            return getattr(module, "__spec__", None) is not None
        places = (self.session.workspace.path + "/", "/tmp/")
        # An interpreter may itself be installed below /tmp.
        own = (sys.prefix + "/", sys.base_prefix + "/")
        return abspath(file).startswith(own) or not abspath(file).startswith(places)


def method(value):
    """Return the function behind a class attribute, or None."""
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", value)
    value = plain(value)
    return value


def global_names(text):
    """Return the global names that a module's source uses."""
    found = set()
    pending = [symtable.symtable(text, "<save_tool>", "exec")]
    while pending:
        table = pending.pop()
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            # For a function named top, is_global reports too much: module
            # symtable takes it for a module.
            inner = symbol.is_declared_global() or symbol.is_global() and not symbol.is_local()
            if symbol.is_referenced() if top else inner:
                found.add(symbol.get_name())
        pending += table.get_children()
    return found


def unannotated(text):
    """Return a module's source without annotations, which are never evaluated."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.unparse(tree)


def assigned_as_global(text, name):
    """Whether a function in the source assigns to that global name."""
    pending = [symtable.symtable(text, "<save_tool>", "exec")]
    while pending:
        table = pending.pop()
        if name in table.get_identifiers() and table.get_type() != "module":
            symbol = table.lookup(name)
            if symbol.is_declared_global() and symbol.is_assigned():
                return True
        pending += table.get_children()
    return False


def evaluated(nodes):
    """Return the names that expressions use."""
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
