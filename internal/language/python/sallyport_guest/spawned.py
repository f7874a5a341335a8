"""What a process that module multiprocessing starts anew finds in __main__.

Python lets such a process run the file of the program again. A session has no such
file: its main module is what many executions have left, and to run them again would
repeat what they did. The process gets a main module whose names are made when they
are looked up, from what they are in the session at that moment: functions and
classes from their statements, modules by import, values by pickle. A name brings
what it uses, and nothing else.
"""

from . import BUILTINS as __builtins__

import __future__
import ast
import io
import marshal
import pickle
import sys

from .cells import DEFS, TREE, Cells
from .execute import AWAITS, described
from .interrupt import PLACE

MAX_BYTES = 64 << 20  # of values
MAX_TEXT = 4 << 20  # of the source that is looked at, the newest
Function = type(lambda: None)
Module = type(sys)
Code = type((lambda: None).__code__)
MAIN = "__main__"
SERVER = "ignore"  # the name that the fork server is started with

# Modules whose objects cannot be pickled, and are as good when they are made again.
REMADE = ("_thread", "threading", "functools", "typing")

# Names that a statement may use which runs again to make an empty container, if what
# is in it now belongs to what is being made: functions that a decorator has noted in it.
CONTAINERS = {"dict", "list", "set", "collections", "defaultdict", "OrderedDict", "deque", "Counter", "int", "float", "str", "tuple"}


def install(session):
    """Call this when multiprocessing.spawn has been imported."""
    spawn = sys.modules["multiprocessing.spawn"]
    before = spawn.get_preparation_data
    indexed = {}

    def get_preparation_data(name, *args, **kwargs):
        session.paths.add()  # the process gets our sys.path
        if session.file is not None:
            session.file.write()
        data = before(name, *args, **kwargs)
        if name == SERVER:  # it outlives what is in __main__ now
            data.pop("init_main_from_path", None)
        elif not session.scripted and sys.modules.get(MAIN) is session.module:
            data.pop("init_main_from_path", None)
            data["init_main"] = Main(session, indexed)
        return data

    spawn.get_preparation_data = get_preparation_data
    util = sys.modules["multiprocessing.util"]
    passing = util.spawnv_passfds
    # It fails if a global and an argument have the same descriptor.
    util.spawnv_passfds = lambda path, args, fds: passing(path, args, set(fds))


START = (
    "import marshal\n"
    "known = {'__builtins__': __builtins__, '__name__': '__mp_main__'}\n"
    "type(lambda: 0)(marshal.loads(code), known)(start, code, parts, sources, lacking, file)"
)


class Main:
    """Becomes the main module where it is unpickled. Python has nothing of ours there,
    so that all it needs comes along."""

    def __init__(self, session, indexed):
        self.session = session
        self.indexed = indexed

    def __reduce__(self):
        parts = Parts(self.session, self.indexed)
        parts.collect()
        self.session.lacking = parts.lacking
        given = {
            "start": START,
            "code": marshal.dumps(placed(in_process.__code__)),
            "parts": parts.found,
            "sources": parts.sources(),
            "lacking": parts.lacking,
            "file": self.session.namespace.get("__file__"),
        }
        return exec, (START, given)


def placed(code):
    """Tracebacks show a file name that is not that of a file of the session's."""
    inner = tuple(placed(c) if isinstance(c, Code) else c for c in code.co_consts)
    return code.replace(co_filename=PLACE, co_consts=inner)


class Binding:
    """A statement of a cell that binds a name."""

    def __init__(self, node, names, kind, filename, flags):
        self.names = names
        self.kind = kind  # "def", "class" or "="
        self.filename = filename
        self.line = node.lineno
        self.code = compile(ast.Module([node], []), filename, "exec", flags, True)
        self.uses = used(self.code)
        # Whether it uses what the name meant before.
        self.again = kind == "=" and any(isinstance(n.ctx, ast.Load) and n.id in names for n in ast.walk(node) if isinstance(n, ast.Name))


class Parts:
    """The names that a new process may look up, and how it makes each of them."""

    def __init__(self, session, indexed):
        self.namespace = session.namespace
        self.content = {}
        self.bindings = {}  # name -> its bindings, in the order of execution
        self.dotted = set()  # what was imported by more than one name
        self.found = {}  # name -> (order, kind, what it is made of, the names that this uses)
        self.lacking = {}  # name -> why the process cannot have it
        self.left = MAX_BYTES
        size = 0
        for filename, text in reversed(list(session.sources.files.items())):
            size += len(text)
            if size > MAX_TEXT:
                break
            self.content[filename] = text
        for filename in [f for f in indexed if f not in self.content]:
            del indexed[filename]
        for number, (filename, text) in enumerate(reversed(list(self.content.items()))):
            if filename not in indexed or indexed[filename][0] is not text:
                indexed[filename] = text, *index(filename, text)
            for binding in indexed[filename][1]:
                binding.order = 2, number, binding.line
                for name in binding.names:
                    self.bindings.setdefault(name, []).append(binding)
            self.dotted |= indexed[filename][2]

    def collect(self):
        pending = [name for name, value in list(self.namespace.items()) if self.is_root(name, value)]
        while pending:
            name = pending.pop()
            if name in self.found or name in self.lacking or name not in self.namespace:
                continue
            value = self.namespace[name]
            try:
                part = self.part(name, value)
            except Exception as e:
                self.lacking[name] = "a value of type %s cannot be sent to it (%s)" % (type(value).__name__, described(e)[1])
                continue
            self.found[name] = part
            pending += part[3]

    def is_root(self, name, value):
        """Whether a pickle can refer to the name."""
        return named(value) == name or any(b.kind != "=" for b in self.bindings.get(name, ()))

    def part(self, name, value):
        if isinstance(value, Module):
            more = sorted(m for m in self.dotted if m.startswith(value.__name__ + ".") and m in sys.modules)
            return (0,), "import", [value.__name__, *more], []
        bindings = self.bindings.get(name, [])
        last = chosen(bindings, value)
        if (last is None or last.kind == "=") and named(value) != name:
            try:
                data = self.pickled(value)
                if last is None or last.again or not last.uses - {name} <= CONTAINERS:
                    return self.order(last, data), "value", (data, None), []
                return self.order(last, data), "value", (data, marshal.dumps(last.code)), sorted(last.uses)
            except Exception:
                if last is None or not remade(value):
                    raise
        if last is None:
            return self.function(value)
        chain, uses = [], set()
        for binding in reversed(bindings[: bindings.index(last) + 1]):
            chain.insert(0, marshal.dumps(binding.code))
            uses |= binding.uses
            if binding.code.co_flags & AWAITS:
                raise ValueError("it was made with await")
            if not binding.again:
                break
        return last.order, "code", chain, sorted(uses)

    def order(self, binding, data):
        """Values come before the code that uses them, and after classes of theirs."""
        if MAIN.encode() not in data:
            return (1,)
        return (3,) if binding is None else binding.order

    def function(self, value):
        """A function that is in no cell: one that exec has made."""
        if type(value) is not Function or value.__closure__:
            raise ValueError("no cell defines it")
        data = self.pickled((value.__name__, value.__defaults__, value.__kwdefaults__, vars(value)))
        return (3,), "function", (marshal.dumps(value.__code__), data), sorted(used(value.__code__))

    def pickled(self, value):
        from multiprocessing.reduction import ForkingPickler

        file = Bounded(self.left)
        ForkingPickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
        self.left -= file.tell()
        return file.getvalue()

    def sources(self):
        filenames = {b.filename for name in self.found for b in self.bindings.get(name, ())}
        return {f: self.content[f] for f in filenames}


def index(filename, text):
    """Return what a cell binds, in order, and what it imports by more than one name."""
    bindings, dotted = [], set()
    tree = Cells({filename: text}).tree(filename)
    flags = TREE & ~ast.PyCF_ONLY_AST
    pending = list(reversed(tree.body))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                flags |= getattr(__future__, alias.name).compiler_flag
        elif isinstance(node, ast.Import):
            dotted.update(a.name for a in node.names if "." in a.name)
        names, kind = bound(node)
        if names:
            bindings.append(Binding(node, names, kind, filename, flags))
        else:
            # The statements within if, try, for, with and match.
            pending += reversed([n for n in ast.iter_child_nodes(node) if isinstance(n, BLOCKS)])
    return bindings, dotted


BLOCKS = (ast.stmt, ast.excepthandler) + ((ast.match_case,) if hasattr(ast, "match_case") else ())


class Bounded(io.BytesIO):
    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def write(self, data):
        if self.tell() + memoryview(data).nbytes > self.limit:
            raise ValueError("values of more than %d MiB" % (MAX_BYTES >> 20))
        return super().write(data)


def bound(node):
    """Return the names that a statement binds, and how."""
    if isinstance(node, DEFS):
        return [node.name], "def"
    if isinstance(node, ast.ClassDef):
        return [node.name], "class"
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) and node.value else []
    return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)], "="


def named(value):
    """Return the name by which a pickle refers to the value in __main__, or None."""
    try:
        if getattr(value, "__module__", None) != MAIN:
            return None
        return getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    except Exception:  # of user code
        return None


def chosen(bindings, value):
    """Return the binding that made a value: the last, unless code shows that it was
    another one. The last may be in a cell that did not get so far."""
    codes = []
    if isinstance(value, type):
        codes = [f.__code__ for f in vars(value).values() if type(f) is Function]
    elif type(value) is Function:
        codes = [value.__code__]
    for binding in reversed(bindings):
        if any(has(binding.code, c) for c in codes):
            return binding
    return bindings[-1] if bindings else None


def has(code, wanted):
    """Whether wanted is code of a definition, or of a class's method."""
    inner = [c for c in code.co_consts if isinstance(c, Code)]
    inner += [c for outer in inner for c in outer.co_consts if isinstance(c, Code)]
    return any(c == wanted and c.co_filename == wanted.co_filename for c in inner)


def remade(value):
    """Whether a statement may run again in order to make a value."""
    kind = type(value)
    return isinstance(value, (type, Function)) or kind.__module__ in REMADE or kind.__name__ == "ContextVar"


def used(code):
    """Return the names that code uses. Those of attributes are among them."""
    found, pending = set(), [code]
    while pending:
        code = pending.pop()
        found.update(code.co_names)
        pending += [c for c in code.co_consts if isinstance(c, Code)]
    return found


def in_process(start, code, parts, sources, lacking, file):
    """Run in the new process, without any global names."""
    import sys
    from _thread import RLock
    from marshal import loads

    given = {"start": start, "code": code, "parts": dict(parts), "sources": dict(sources), "lacking": lacking, "file": file}

    class Main:
        """It goes on to the processes that this one starts."""

        def __reduce__(self):
            return exec, (start, given)

    def get_preparation_data(name, *args, **kwargs):
        data = prepared(name, *args, **kwargs)
        data.pop("init_main_from_path", None)
        data["init_main"] = Main()
        return data

    spawn = sys.modules["multiprocessing.spawn"]
    prepared, spawn.get_preparation_data = spawn.get_preparation_data, get_preparation_data
    before = sys.modules["__main__"]
    module = type(sys)("__mp_main__")
    namespace = vars(module)
    lock = RLock()
    errors = {}

    def make(name):
        wanted, pending = [], [name]
        while pending:
            next = pending.pop()
            if next in parts:
                part = parts.pop(next)
                wanted.append((part[0], next, part))
                pending += part[3]
        wanted.sort(key=lambda w: w[0])
        emptied = set()
        while wanted:
            failed = []
            for one in wanted:
                try:
                    run(one[1], one[2][1], one[2][2])
                except Exception as e:
                    errors[one[1]] = e
                    failed.append(one)
            if len(failed) == len(wanted) and not empty(failed, emptied):
                parts.update((one[1], one[2]) for one in failed)
                break
            wanted = failed  # perhaps they needed others

    def empty(failed, emptied):
        """Make the containers whose content needs what needs them. It comes later."""
        found = [one for one in failed if one[2][1] == "value" and one[2][2][1] is not None and one[1] not in emptied]
        for one in found:
            emptied.add(one[1])
            try:
                exec(loads(one[2][2][1]), namespace)
            except Exception as e:
                errors[one[1]] = e
        return found

    def run(name, kind, made_of):
        if kind == "import":
            from importlib import import_module

            namespace[name] = [import_module(m) for m in made_of][0]
        elif kind == "value":
            from multiprocessing.popen_spawn_posix import _DupFd
            from os import dup
            from pickle import loads as unpickled

            detach, _DupFd.detach = _DupFd.detach, lambda self: dup(self.fd)  # an argument may have it too
            try:
                namespace[name] = unpickled(made_of[0])
            finally:
                _DupFd.detach = detach
        elif kind == "function":
            from pickle import loads as unpickled

            own, defaults, keywords, attributes = unpickled(made_of[1])
            function = namespace[name] = type(run)(loads(made_of[0]), namespace, own, defaults)
            function.__kwdefaults__ = keywords
            vars(function).update(attributes)
        else:
            for code in made_of:
                exec(loads(code), namespace)

    def __getattr__(name):
        if sources:
            from linecache import cache

            while sources:
                filename, text = sources.popitem()
                cache[filename] = len(text), None, text.splitlines(True), filename
        with lock:
            make(name)
        if name in namespace:
            return namespace[name]
        if name in errors:
            e = errors[name]
            raise ImportError("%s cannot be made in this process: %s: %s" % (name, type(e).__name__, e)) from e
        if name in lacking:
            raise ImportError("this process does not have %s: %s" % (name, lacking[name]))
        raise AttributeError("module '__main__' has no attribute %r (a process has what was defined when it started)" % name)

    namespace.update(__builtins__=__builtins__, __getattr__=__getattr__, __before__=before)
    if file is not None:
        namespace["__file__"] = file
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
