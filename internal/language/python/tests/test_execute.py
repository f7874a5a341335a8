"""Compiling: which value is shown."""

import types

import hypothesis
import hypothesis.strategies as st
import pytest

from sallyport_guest import compiler, execute
from sallyport_guest.sources import MAX_BYTES, Sources


def shown(source):
    code, last = compiler.compile_source(source, "<t>", True)
    namespace = {}
    if code is not None:
        exec(code, namespace)
    return None if last is None else eval(last, namespace)


@pytest.mark.parametrize(
    "source, value",
    [
        ("1+1", 2),
        ("x = 1", None),
        ("x = 1\nx", 1),
        ("x = 1; x", 1),
        ("x = 1; x;", None),
        ("1;", None),
        ("1 ; # c", None),
        ("1 # c;", 1),
        ("(1\n)", 1),
        ("(1\n);", None),
        ("'a;b'", "a;b"),
        ("'é;'", "é;"),
        ("'é' ;", None),
        ("\n\n3\n\n", 3),
        ("'''a\n;\n'''", "a\n;\n"),
        ("if True:\n    5", None),
        ("for i in range(2): i", None),
        ("# only a comment", None),
        ("r'\\d'", "\\d"),
    ],
    ids=repr,
)
def test_last_value(source, value):
    assert shown(source) == value


LINES = (
    "x = 1", "x", "print(x)", "print(f(x), g(y))", "print(x) or y", "print(x, end='')", "'a'", "'''", '"""', "(", ")", "[x", "for x in y]", "]",
    "f(", "a=1,", "    y", "\ty", "if x:", "else:", "for a in b:", "def f():", "@d", "# c", "x  # c)", "x;", "x; y", "", "x \\", "+2", "*x,", "lambda: 1",
    "await f()", "yield", "x == 1", "x += 1", "d['a'] = 1", "f(a=1)", "(z := 1)", "import a", "pass", "return", "{", "}", "'\\d'", "x\ry", "\f", "not x",
    "match x:", "    case 1: pass", "case",
)  # fmt: skip


def compiled(source):
    """What a source is compiled to, or how it fails."""
    try:
        parts = compiler.compile_source(source, "<t>", True)
    except Exception as e:
        return type(e), str(e)
    return [plain(part) for part in parts if part is not None and part.co_code != NOTHING.co_code]


NOTHING = compile("", "<t>", "exec")


def plain(code):
    """The parts of a code object that can differ, without the name of print."""
    consts = [plain(c) if isinstance(c, types.CodeType) else (type(c), c) for c in code.co_consts]
    names = ["print" if name in (compiler.PRINT, compiler.PERHAPS) else name for name in code.co_names]
    return code.co_code, consts, names, code.co_flags, list(code.co_lines()) if hasattr(code, "co_lines") else code.co_lnotab


@pytest.mark.filterwarnings("ignore")
@hypothesis.settings(max_examples=3000, derandomize=True)
@hypothesis.given(st.lists(st.sampled_from(LINES), min_size=1, max_size=7))
def test_the_shorter_way_is_the_same(lines):
    source = "\n".join(lines)
    with pytest.MonkeyPatch.context() as patch:
        got = compiled(source)
        patch.setattr(compiler, "last_line", lambda source: -1)
        want = compiled(source)
    assert got == want


@pytest.mark.parametrize(
    "source, name",
    [
        ("print(1)", compiler.PRINT),
        ("x = 1\nprint(f(g(x)))", compiler.PRINT),
        ("print(')', (1))", compiler.PERHAPS),
        ("print(f(x), g(x))", compiler.PERHAPS),
        ("print(1) or (2)", compiler.PERHAPS),
        ("print(1) or x  #)", compiler.PERHAPS),
        ("print(1) or x[')']", compiler.PERHAPS),
        ("print(print)", "print"),
        ("f(print)", "f"),
    ],
)
def test_the_last_print(source, name):
    assert compiler.compile_source(source, "<t>", True)[1].co_names[0] == name


@pytest.mark.parametrize("source", ["await f()", "x = await f()", "async with a: pass", "[y async for y in z]"])
def test_awaiting(source):
    code, last = compiler.compile_source(source, "<t>", True)
    assert any(c is not None and c.co_flags & execute.AWAITS for c in (code, last))


@pytest.mark.parametrize("source", ["x = = 1", "return 1", "def f(:", "'", "\udc80"])
def test_errors(source):
    with pytest.raises((SyntaxError, UnicodeEncodeError)):
        compiler.compile_source(source, "<t>", True)


def test_scripts_show_nothing():
    code, last = compiler.compile_source("1+1", "<t>", False)
    assert code is not None and last is None


def test_sources_are_bounded():
    s = Sources()
    for i in range(40):
        s.add("<cell %d>" % i, "x" * (MAX_BYTES // 10))
    assert s.size <= MAX_BYTES and "<cell 39>" in s.files and "<cell 0>" not in s.files
    s.add("<cell 39>", "y")
    assert s.files["<cell 39>"] == "y" and s.size == sum(map(len, s.files.values()))
