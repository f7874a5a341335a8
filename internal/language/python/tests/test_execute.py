"""Compiling: which value is shown."""

import pytest

from sallyport_guest import execute
from sallyport_guest.sources import MAX_BYTES, Sources


def shown(source):
    code, last = execute.compile_source(source, "<t>", True)
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


@pytest.mark.parametrize("source", ["await f()", "x = await f()", "async with a: pass", "[y async for y in z]"])
def test_awaiting(source):
    code, last = execute.compile_source(source, "<t>", True)
    assert any(c is not None and c.co_flags & execute.AWAITS for c in (code, last))


@pytest.mark.parametrize("source", ["x = = 1", "return 1", "def f(:", "'", "\udc80"])
def test_errors(source):
    with pytest.raises((SyntaxError, UnicodeEncodeError)):
        execute.compile_source(source, "<t>", True)


def test_scripts_show_nothing():
    code, last = execute.compile_source("1+1", "<t>", False)
    assert code is not None and last is None


def test_sources_are_bounded():
    s = Sources()
    for i in range(40):
        s.add("<cell %d>" % i, "x" * (MAX_BYTES // 10))
    assert s.size <= MAX_BYTES and "<cell 39>" in s.files and "<cell 0>" not in s.files
    s.add("<cell 39>", "y")
    assert s.files["<cell 39>"] == "y" and s.size == sum(map(len, s.files.values()))
