"""What a traceback shows, and how much of it is looked at."""

import json
import os
import subprocess
import sys
import traceback

import pytest

from sallyport_guest import report
from sallyport_guest.report import render

PATH = os.path.dirname(os.path.dirname(report.__file__))


def own():
    return json.loads("{")


def shown(function, check=lambda: None):
    try:
        function()
    except BaseException as e:
        return render(e, False, check).splitlines()
    raise AssertionError("no exception")


def raised(e):
    def f():
        raise e

    return f


def library(source, **names):
    """Functions that look like those of a library."""
    exec(compile(source, "/lib/site-packages/far/away.py", "exec"), names)
    return names


def test_frames_of_libraries_take_one_line():
    lines = shown(own)
    ours = [i for i, line in enumerate(lines) if "test_report.py" in line]
    theirs = [i for i, line in enumerate(lines) if "/json/" in line]
    assert lines[ours[-1] + 1].strip() == 'return json.loads("{")', lines
    assert len(theirs) >= 2 and theirs == list(range(theirs[0], theirs[0] + len(theirs))), lines
    assert lines[-1].startswith("json.decoder.JSONDecodeError: ")


def test_causes_are_folded_too():
    def both():
        try:
            own()
        except ValueError as e:
            raise KeyError("x") from e

    lines = shown(both)
    assert sum("/json/" in line for line in lines) >= 2
    assert not any("raise JSONDecodeError" in line for line in lines), lines


def test_a_run_of_library_frames_keeps_its_ends():
    source = "def f0(): 1/0\n" + "".join("def f%d(): f%d()\n" % (i, i - 1) for i in range(1, 16))
    source += "def back(f): again(f)\ndef again(f): f()\n"
    theirs = library(source)

    def mine():
        theirs["f15"]()

    lines = shown(lambda: theirs["back"](mine))
    text = "\n".join(lines)
    assert [line.strip().rpartition(" ")[2] for line in lines if "away.py" in line] == ["back", "again", "f15", "f0"], text
    assert "  [… 14 frames of libraries …]" in lines and lines.index("  [… 14 frames of libraries …]") == len(lines) - 3, text
    assert 'theirs["f15"]()' in text, text


def recursion(n):
    if n:
        recursion(n - 1)
    else:
        raise KeyError("end")


def deep(function):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(30000)
    try:
        return shown(function)
    finally:
        sys.setrecursionlimit(limit)


def test_repeated_frames_are_counted():
    lines = deep(lambda: recursion(20000))
    repeated = [line for line in lines if "repeated" in line]
    assert repeated == ["  [Previous line repeated 19997 more times]"], lines
    assert sum("in recursion" in line for line in lines) == report.REPEATS + 1, lines


def test_repeated_frames_of_libraries_are_counted():
    theirs = library("def f(n): f(n - 1) if n else 1/0\n")
    lines = deep(lambda: theirs["f"](20000))
    assert "  [… 19,999 frames of libraries …]" in lines and len(lines) < 15, lines


def test_a_long_stack_shows_its_ends():
    names = {}
    exec("def even(n):\n    odd(n - 1) if n else 1/0\ndef odd(n):\n    even(n - 1)\n", names)
    frames, lines = [], []

    class Counted(traceback.FrameSummary):
        def __init__(self, *args, **kwargs):
            frames.append(1)
            super().__init__(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traceback, "FrameSummary", Counted)
        lines = deep(lambda: names["even"](20000))
    places = report.FIRST_PLACES + report.LAST_PLACES
    hidden = 20001 + 2 - places  # with those of this file
    assert [line for line in lines if "…" in line] == ["  [… %s frames …]" % format(hidden, ",")]
    assert len(frames) <= 2 * places and sum(line.startswith("  File") for line in lines) == places


def chained(n, link):
    e = None
    for i in range(n):
        x = ValueError(i)
        setattr(x, link, e)
        e = x
    return e


# By the number of functions that call each other.
RECURSIONS = {
    "one": "def f(d):\n 1 / 0 if d == 0 else f(d - 1)\n",
    "two": "def f(d):\n 1 / 0 if d == 0 else g(d - 1)\ndef g(d):\n f(d) if d else f(0)\n",
    "two on a line": "f = lambda d: g(d - 1) if d else 1 / 0; g = lambda d: f(d - 1) if d else 1 / 0\n",
    "two of one name": "def f(d, g=None):\n 1 / 0 if d == 0 else (g or f)(d - 1)\ng = f\ndef f(d):\n g(d, f)\n",
}


def places(tb):
    """The places of a traceback, all of them, each as its key and its entries."""
    found = []
    while tb is not None:
        code = tb.tb_frame.f_code
        key = None if report.is_library(code.co_filename) else (code.co_filename, tb.tb_lineno, code.co_name)
        if not code.co_filename.startswith(report.OURS):
            if not found or found[-1][0] != key:
                found.append((key, []))
            found[-1][1].append(tb)
        tb = tb.tb_next
    return found


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4, 18, 19, 20, 21, 48, 49, 50, 51, 52, 90])
@pytest.mark.parametrize("source", RECURSIONS.values(), ids=RECURSIONS)
def test_places(source, depth):
    tb = None
    for file in ("/user/a.py", "/lib/site-packages/b.py", report.OURS[0] + "c.py", "/user/d.py"):
        names = {}
        exec(compile(source, file, "exec"), names)
        entries = []
        try:
            names["f"](depth)
        except ZeroDivisionError as e:
            entry = e.__traceback__
            while entry is not None:
                entries.append(entry)
                entry = entry.tb_next
        for entry in reversed(entries):
            tb = type(entry)(tb, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    want, made = places(tb), report.Places(tb, lambda: None)
    first, last = want[: report.FIRST_PLACES], want[report.FIRST_PLACES :][-report.LAST_PLACES :]
    for got, kept in ((made.first, first), (made.last, last)):
        assert [(p.key, p.count, p.first, p.last) for p in got] == [(key, len(tbs), tbs[: report.REPEATS], tbs[-1]) for key, tbs in kept]
    hidden = want[len(first) : len(want) - len(last)]
    assert made.hidden == sum(len(tbs) for _, tbs in hidden)


@pytest.mark.parametrize("kind", ["one", "two"])
def test_a_walk_reads_little_of_an_entry(kind):
    """Each auditing event of an entry takes as long as the rest of its part of the walk."""
    code = """if 1:
        import sys
        from sallyport_guest.report import Places
        events = 0
        def count(event, args):
            global events
            events += event in ("object.__getattr__", "builtins.id")
        def walked(depth):
            global events
            try:
                f(depth)
            except ZeroDivisionError as e:
                tb = e.__traceback__
            events = 0
            Places(tb, lambda: None)
            return events
        sys.setrecursionlimit(5000)
        sys.addaudithook(count)
        print((walked(2000) - walked(1000)) / 1000)
    """
    done = subprocess.run([sys.executable, "-c", RECURSIONS[kind] + code], stdout=subprocess.PIPE, env={"PYTHONPATH": PATH})
    entries = 1 if kind == "one" else 2
    assert float(done.stdout) <= 2 * entries, done.stdout


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_a_long_chain_shows_its_ends(link):
    lines = shown(raised(chained(10000, link)))
    messages = [line for line in lines if line.startswith("ValueError")]
    want = ["ValueError: %d" % i for i in (0, 1, 2, *range(10000 - report.NEWEST, 10000))]
    assert messages == want, lines
    assert "[… 9,989 exceptions left out …]" in lines, lines
    assert sum("direct cause" in line for line in lines) == (len(messages) if link == "__cause__" else 0), lines


def test_chains_that_end_nowhere():
    e = ValueError("a")
    e.__cause__ = e
    assert shown(raised(e))[-1] == "ValueError: a"

    class Endless(Exception):
        @property
        def __cause__(self):
            return Endless()

    assert shown(raised(Endless("b")))[-1].endswith("Endless: b")


groups = pytest.mark.skipif(sys.version_info < (3, 11), reason="this interpreter has no exception groups")


@groups
@pytest.mark.parametrize("kind", ["wide", "deep", "nested", "its own cause"])
def test_groups(kind):
    e = ValueError(1)
    if kind == "wide":
        e = ExceptionGroup("g", [ValueError(i) for i in range(10000)])
    elif kind == "deep":
        for _ in range(10000):
            e = ExceptionGroup("g", [e])
    elif kind == "nested":
        for _ in range(100):
            e = ExceptionGroup("g", [e] * 20)
    else:
        e = ExceptionGroup("g", [e])
        e.exceptions[0].__cause__ = e
    made = []
    with pytest.MonkeyPatch.context() as patch:
        one = report.Forms.one
        patch.setattr(report.Forms, "one", lambda *a: made.append(1) or one(*a))
        lines = shown(raised(e))
    assert len(made) <= 2 * report.EXCEPTIONS and len(lines) < 300, lines
    if kind == "wide":
        assert any("[… 9,986 exceptions left out …]" in line for line in lines), lines
    if kind == "its own cause":
        assert sum("ValueError: 1" in line for line in lines) == 1, lines


@groups
def test_members_keep_their_causes():
    member = KeyError("k")
    member.__cause__ = TypeError("t")
    text = "\n".join(shown(raised(ExceptionGroup("g", [member]))))
    assert text.index("TypeError: t") < text.index("direct cause") < text.index("KeyError: 'k'"), text


class Text(str):
    """A str whose methods must not count."""

    def __len__(self):
        return 0


@pytest.mark.parametrize("message", ["x" * 10**6, "x\n" * 10**6, Text("x" * 10**6)], ids=["line", "lines", "own"])
def test_messages_are_bounded(message):
    class E(Exception):
        def __str__(self):
            return message

    text = "\n".join(shown(raised(E())))
    assert len(text) < report.MAX_TEXT + 2000 and "characters left out" in text


@pytest.mark.skipif(sys.version_info < (3, 11), reason="this interpreter has no notes")
def test_notes_are_bounded():
    class Failing:
        def __str__(self):
            raise ZeroDivisionError

    e = ValueError("m")
    e.__notes__ = ["first", Failing(), *["n"] * 10**5]
    lines = shown(raised(e))
    assert lines[-21:-18] == ["first", "<str() failed>", "n"] and lines[-1] == "[… 99,982 notes left out …]", lines[-25:]
    e.__notes__ = 5
    assert shown(raised(e))[-1] == "5"


@pytest.mark.parametrize("offset", [None, 0, 3, 10**6, 10**12, -5, "x"])
def test_syntax_errors_are_bounded(offset):
    for text in ("abc", "x" * 10**6 + "!" * 10**6, 5):
        e = SyntaxError("bad", ("f", 1, offset, text))
        if sys.version_info >= (3, 10):
            e.end_lineno, e.end_offset = 1, 10**12
        lines = shown(raised(e))
        assert lines[-1] == "SyntaxError: bad" and max(map(len, lines)) <= report.MAX_LINE, lines
        if offset == 10**6 and type(text) is str and len(text) > 3:
            assert "xx!!" in "".join(lines), lines


def test_lines_are_bounded(tmp_path):
    def run(source):
        file = tmp_path / "long.py"
        file.write_text(source)
        return shown(lambda: exec(compile(source, str(file), "exec"), {}))

    assert max(map(len, run("y = '%s'; 1/0" % ("x" * 10**6)))) < report.MAX_LINE
    lines = run("(1/0,\n%s)" % ("1,\n" * 10000))
    assert len(lines) < 20, lines


def test_files_that_are_no_source(tmp_path):
    import os

    fifo, huge = tmp_path / "fifo", tmp_path / "huge"
    os.mkfifo(fifo)
    with open(huge, "w") as f:
        f.truncate(1 << 40)
    for name in (str(fifo), str(huge), "/dev/zero"):
        lines = shown(lambda: exec(compile("1/0", name, "exec"), {}))
        assert lines[-1] == "ZeroDivisionError: division by zero" and name in lines[-2], lines


@pytest.mark.parametrize("calls", [1, 2, 5])
def test_every_long_walk_asks_whether_to_stop(calls):
    def walks():
        yield lambda: deep(lambda: recursion(20000)), lambda check: deep_with(check)
        yield None, lambda check: shown(raised(chained(10000, "__context__")), check)

    def deep_with(check):
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(30000)
        try:
            return shown(lambda: recursion(20000), check)
        finally:
            sys.setrecursionlimit(limit)

    for _, walk in walks():
        left = [calls]

        def check():
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            walk(check)


def test_interrupts_that_an_exception_swallows_still_end_the_walk():
    """Module traceback catches whatever a method __str__ raises."""
    asked, interrupted = [], []

    class E(Exception):
        def __str__(self):
            asked.append(1)
            interrupted.append(1)
            raise KeyboardInterrupt

    def check():
        if interrupted:
            raise KeyboardInterrupt

    e = E()
    e.__context__ = E()
    with pytest.raises(KeyboardInterrupt):
        shown(raised(e), check)
    assert len(asked) == 1


def test_kept_as_at_the_prompt(capsys):
    def f():
        1 / 0

    def kept(e, compiling=False):
        report.keep(e, compiling)
        return getattr(sys, "last_value", None)

    try:
        f()
    except ZeroDivisionError as e:
        assert kept(e) is e
        # print_last() of Python 3.12 has a fault: it prints nothing.
        traceback.print_exception(sys.last_type, sys.last_value, sys.last_traceback)
        assert "in f\n" in capsys.readouterr().err
    try:
        deep_limit = sys.getrecursionlimit()
        sys.setrecursionlimit(30000)
        recursion(report.MAX_KEPT + 1)
    except KeyError as e:
        assert kept(e) is None and not hasattr(sys, "last_traceback")
    finally:
        sys.setrecursionlimit(deep_limit)
    assert kept(MemoryError()) is None
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        vars(sys).pop(name, None)
