"""The guest's modules import one another in one direction."""

import ast

from conftest import PACKAGE

GUEST = PACKAGE / "sallyport_guest"


def imported(path, names):
    """The modules of the guest that a module imports anywhere, in functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            # "from . import name" imports the module of that name, if there is one.
            found = [node.module] if node.module else [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sallyport_guest"):
            found = [node.module.partition(".")[2]] + [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [alias.name.partition(".")[2] for alias in node.names if alias.name.startswith("sallyport_guest.")]
        else:
            continue
        yield from (name for name in found if name in names)


def cycle(graph):
    """The modules of one cycle, or None."""
    finished, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name) :] + [name]
        if name in finished:
            return None
        path.append(name)
        for other in sorted(graph[name]):
            found = visit(other)
            if found:
                return found
        path.pop()
        finished.add(name)
        return None

    for name in sorted(graph):
        found = visit(name)
        if found:
            return found
    return None


def test_no_cycles():
    names = {p.stem for p in GUEST.glob("*.py")} - {"__init__"}
    graph = {name: set(imported(GUEST / (name + ".py"), names)) for name in names}
    assert graph["session"] >= {"artifacts", "registry", "interrupt"}, "the control: imports in functions are found"
    found = cycle(graph)
    assert found is None, "the modules import each other: " + " -> ".join(found or [])


def test_cycles_are_found(tmp_path):
    (tmp_path / "a.py").write_text("def f():\n    from . import b\n")
    (tmp_path / "b.py").write_text("from .c import x\n")
    (tmp_path / "c.py").write_text("import sallyport_guest.a\n")
    graph = {name: set(imported(tmp_path / (name + ".py"), {"a", "b", "c"})) for name in "abc"}
    assert cycle(graph) == ["a", "b", "c", "a"]
    graph["c"].clear()
    assert cycle(graph) is None
