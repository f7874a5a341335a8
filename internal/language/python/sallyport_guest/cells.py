"""What the source of the session's cells contains: where a function or a class is
defined, and what was imported."""

from . import BUILTINS as __builtins__

import ast
import sys

TREE = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
NOTHING = None, 0, ()


class Cells:
    def __init__(self, sources):
        self.sources = sources
        self.trees = {}

    def tree(self, filename):
        tree = self.trees.get(filename)
        if tree is None:
            text = self.sources.get(filename)
            try:
                tree = compile("" if text is None else text, filename, "exec", TREE, True)
            except (SyntaxError, ValueError):  # it ran, so the file has changed since
                tree = compile("", filename, "exec", TREE, True)
            self.trees[filename] = tree
        return tree

    def lines(self, filename, node):
        """Return the lines of a definition, and the number of the first."""
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        # Count lines as the compiler does; str.splitlines knows more line ends.
        lines = self.sources[filename].replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return first, lines[first - 1 : node.end_lineno]

    def function(self, code):
        """Return the definition of a function: its node, first line's number, lines."""
        for node in ast.walk(self.tree(code.co_filename)):
            if isinstance(node, DEFS) and node.name == code.co_name:
                first, lines = self.lines(code.co_filename, node)
                if first == code.co_firstlineno:
                    return node, first, lines
        return NOTHING

    def klass(self, name, codes):
        """Return the definition of a class: the one with these methods if it has any,
        otherwise the last of that name."""
        filenames = list(dict.fromkeys(c.co_filename for c in codes if c.co_filename in self.sources))
        for filename in filenames or [f for f in reversed(list(self.sources)) if "class " + name in self.sources[f]]:
            for node in reversed(list(ast.walk(self.tree(filename)))):
                if not isinstance(node, ast.ClassDef) or node.name != name:
                    continue
                starts = [c.co_firstlineno for c in codes if c.co_filename == filename]
                first, lines = self.lines(filename, node)  # the decorators count: from 3.14 on there is code that begins there
                if not starts or any(first <= start <= node.end_lineno for start in starts):
                    return node, first, lines
        return NOTHING

    def assignment(self, name):
        """Return the expression last assigned to a name outside functions and classes,
        or None."""
        for filename in reversed(list(self.sources)):
            if name in self.sources[filename]:
                for node in reversed(self.tree(filename).body):
                    if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                        return node.value
                    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                        return node.value
        return None

    def imports(self, name):
        """Return what was imported as name, last first: the lines that import it, the
        module, and the object as it is now."""
        for filename in reversed(list(self.sources)):
            if "import" not in self.sources[filename]:
                continue
            for node in reversed(list(ast.walk(self.tree(filename)))):
                if isinstance(node, ast.Import):
                    yield from self.plain_imports(node, name)
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    for alias in node.names:
                        module = sys.modules.get(node.module)
                        if (alias.asname or alias.name) == name and hasattr(module, alias.name):
                            text = "from %s import %s" % (node.module, spelled(alias))
                            yield [text], node.module, vars(module).get(alias.name)

    def plain_imports(self, node, name):
        for alias in node.names:
            if alias.asname is not None:
                if alias.asname == name:
                    yield ["import " + spelled(alias)], alias.name, sys.modules.get(alias.name)
            elif alias.name.partition(".")[0] == name:
                # import xml.dom and import xml.sax bind the same name.
                every = sorted(m for m in self.dotted(name) if m in sys.modules)
                yield ["import " + m for m in every], name, sys.modules.get(name)

    def dotted(self, top):
        found = set()
        for filename, text in self.sources.items():
            if "import " in text and top in text:
                for node in ast.walk(self.tree(filename)):
                    if isinstance(node, ast.Import):
                        found.update(a.name for a in node.names if not a.asname and a.name.partition(".")[0] == top)
        return found

    def enclosing_names(self, node, filename):
        """Return the names that belong to the functions around a definition."""
        found = set()
        for outer in ast.walk(self.tree(filename)):
            if isinstance(outer, DEFS) and outer is not node and any(n is node for n in ast.walk(outer)):
                arguments = outer.args
                every = arguments.posonlyargs + arguments.args + arguments.kwonlyargs + [arguments.vararg, arguments.kwarg]
                found.update(a.arg for a in every if a is not None)
                for inner in ast.walk(outer):
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        found.add(inner.id)
                    elif isinstance(inner, DEFS + (ast.ClassDef,)) and inner is not outer:
                        found.add(inner.name)
                    elif isinstance(inner, (ast.Import, ast.ImportFrom)):
                        found.update((a.asname or a.name).partition(".")[0] for a in inner.names)
        return found

    def with_defaults(self, node, first, lines, function, render, without):
        """Return a function's source with its default values as they are now: the
        expressions that produced them may give something else by now. Also return the
        nodes that render, which is Collected.plain_text, cannot express. The decorators
        in without are left out."""
        arguments = node.args
        pairs = []
        if len(function.__defaults__ or ()) == len(arguments.defaults):
            pairs += zip(arguments.defaults, function.__defaults__ or ())
        given = function.__kwdefaults__ or {}
        pairs += [(d, given[a.arg]) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults) if d is not None and a.arg in given]
        text = [line.encode("utf-8", "surrogatepass") for line in lines]
        left = []
        for default, value in sorted(pairs, key=lambda p: (p[0].lineno, p[0].col_offset), reverse=True):
            if isinstance(default, ast.Constant):
                continue
            new = render(value)
            if new is None:
                left.append(default)
                continue
            begin, end = default.lineno - first, default.end_lineno - first
            joined = text[begin][: default.col_offset] + new.encode() + text[end][default.end_col_offset :]
            text[begin : end + 1] = [joined]
        for decorator in reversed(without):  # they stand before what was replaced
            del text[decorator.lineno - first : decorator.end_lineno - first + 1]
        return b"\n".join(text).decode("utf-8", "surrogatepass"), left


def spelled(alias):
    return alias.name + (" as " + alias.asname if alias.asname else "")
