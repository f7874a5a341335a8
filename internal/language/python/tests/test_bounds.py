"""What our code looks at of what user code has made is bounded."""

import collections
import contextlib
import itertools
import sys
import types

import pytest

from sallyport_guest import artifacts, children, display, distributions, errors, execute, hints, literals, objects, shorten, tasks
from sallyport_guest.validate import MAX_STEPS, Checker


@pytest.fixture(autouse=True)
def without_a_session(monkeypatch):
    monkeypatch.setattr(execute, "rich", lambda value: None)


class Counting:
    shown = 0

    def __repr__(self):
        Counting.shown += 1
        return "c"


def last_value(value, capsys):
    """What a cell shows that ends with value, and how many of its parts were asked."""
    Counting.shown = 0
    execute.displayhook(value, keep=False)
    return capsys.readouterr().out[:-1], Counting.shown


MANY = [Counting()] * 10**5
CONTAINERS = {
    "list": MANY,
    "tuple": tuple(MANY),
    "dict": dict(enumerate(MANY)),
    "set": {Counting() for _ in range(10**4)},
    "frozenset": frozenset(Counting() for _ in range(10**4)),
    "OrderedDict": collections.OrderedDict(enumerate(MANY)),
    "defaultdict": collections.defaultdict(int, enumerate(MANY)),
    "deque": collections.deque(MANY),
    "dict_keys": {Counting(): 1 for _ in range(10**4)}.keys(),
    "dict_values": dict(enumerate(MANY)).values(),
    "dict_items": dict(enumerate(MANY)).items(),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_last_values_are_not_shown_whole_first(kind, capsys):
    text, shown = last_value(CONTAINERS[kind], capsys)
    assert shown <= 2 * shorten.ROOM and len(text) < 2 * shorten.ROOM
    assert "more" in text and "(shortened: %s of %s items" % (kind, format(len(CONTAINERS[kind]), ",")) in text, text[-200:]


def shared(depth, empty=list):
    value = [Counting()]
    for _ in range(depth):
        value = [value, value]
    return value


def test_shared_parts_are_not_shown_without_end(capsys):
    for value in (shared(200), {"a": shared(200)}, collections.deque(shared(200))):
        text, shown = last_value(value, capsys)
        assert shown == 0 and len(text) < 3 * shorten.ROOM


def test_what_is_short_looks_like_its_repr(capsys):
    itself = [1]
    itself.append(itself)
    own = {"a": 1}
    own["own"] = own
    twice = [1, 2]
    for value in (itself, own, [twice, twice], [[[[[[[[[[1]]]]]]]]]], {(1, 2): {3: [4]}}, collections.deque([1]), collections.defaultdict(list, {1: [2]}), {}.keys(), ((),), {1.5, "x"}):
        assert last_value(value, capsys)[0] == repr(value)


def test_deep_values(capsys):
    value = 1
    for _ in range(10**4):
        value = [value]
    assert last_value(value, capsys)[0].startswith("[[[[[[")


def test_integers_that_python_does_not_print(capsys):
    assert last_value(10**100000, capsys)[0] == "<int of about 100,001 digits: hex() shows it>"
    assert last_value([1, 10**100000], capsys)[0] == "[1, <int of about 100,001 digits: hex() shows it>]"
    assert last_value(10**4000, capsys)[0] == repr(10**4000)


def test_a_long_blob_is_looked_at_in_part():
    import base64

    data = base64.b64encode(bytes(range(256)) * 4096).decode()
    assert shorten.shortened(data, None) == "<base64, 1,048,576 bytes>"
    assert shorten.shortened("abc def " * 10**5, None).endswith("(shortened: str of 800,000 characters; all of it is in _)")


def test_similar_names_are_bounded():
    names = ("name%d" % i for i in itertools.count())
    assert errors.similar("name17x", names) == "; did you mean 'name17'?"
    assert next(names) == "name%d" % errors.MAX_NAMES
    assert errors.similar("x" * 10**7, ["x"]) == ""
    assert errors.similar("names", ["x" * 10**7, "name"]) == "; did you mean 'name'?"


def test_errors_of_objects_are_bounded():
    with pytest.raises(AttributeError) as e:
        objects.Object.fromkeys(map(str, range(10**5))).absent
    assert len(str(e.value)) < 1000 and str(e.value).startswith("there is no 'absent'; there are: 0, 1, ")


class Entries:
    """A directory without end."""

    class Entry:
        def __init__(self, n):
            self.name = self.path = "n%d" % n

        def is_file(self, follow_symlinks=True):
            return False

        is_dir = is_symlink = is_file

    @contextlib.contextmanager
    def scandir(self, path):
        yield (self.Entry(i) for i in itertools.count())


def test_directories_without_end(monkeypatch):
    monkeypatch.setattr(artifacts, "scandir", Entries().scandir)
    assert artifacts.Workspace("/").look("", {}, []) == ({}, [])

    left = []
    monkeypatch.setattr(tasks, "scandir", Entries().scandir)
    monkeypatch.setattr(tasks, "leave", lambda session, path, why: left.append(why))
    tasks.take_out(types.SimpleNamespace(workspace=types.SimpleNamespace(path="/"), packages="/none"))
    assert len(left) == tasks.MAX_SEEN + 1 and "more than" in left[-1]


def test_literals_stop_when_they_are_too_large():
    class Stranger:
        pass

    with pytest.raises(ValueError, match="too large"):
        literals.text([1] * literals.MAX_TEXT + [Stranger()])


def test_large_arguments_pass():
    schema = {"type": "array", "items": {"type": "integer"}}
    assert Checker(schema).problem([1] * 1000 + ["x"], schema) is not None
    checker = Checker(schema)
    assert checker.problem([1] * MAX_STEPS + ["x"], schema) is None
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert Checker(schema).problem(dict.fromkeys(map(str, range(MAX_STEPS)), "x"), schema) is None


def test_hints_look_at_a_bounded_part():
    e = OSError(*[ValueError(i) for i in range(10**5)])
    assert len(hints.causes(e)) <= 21
    assert hints.calls_without_await(None, "f()\n" * hints.MAX_SOURCE) == []
    assert not hints.installs("x " * hints.MAX_SOURCE + "pip install y")


def test_names_of_tasks_are_bounded(monkeypatch):
    import asyncio

    asked = []

    class Task:
        def get_name(self):
            asked.append(1)
            return "n"

        def get_coro(self):
            return None

    monkeypatch.setattr(asyncio, "all_tasks", lambda loop: [Task() for _ in range(10**4)])
    assert len(children.tasks(types.SimpleNamespace(loop=None))) == children.NAMED == len(asked)


def test_open_figures_are_bounded(monkeypatch, capsys):
    saved, closed = [], []
    pyplot = types.ModuleType("pyplot")
    pyplot.get_fignums = lambda: list(range(10**4))
    pyplot.figure = lambda number: types.SimpleNamespace(axes=[1], lines=[])
    pyplot.close = closed.append
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    monkeypatch.setattr(display, "save_figure", lambda figure, place: saved.append(figure))
    display.finish("/")
    assert len(saved) == display.MAX_OPEN and closed == ["all"]
    assert "50 of 10000 open figures" in capsys.readouterr().err

    def interrupted(figure, place):
        raise KeyboardInterrupt

    monkeypatch.setattr(display, "save_figure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        display.finish("/")
    assert closed == ["all", "all"]


SESSION = types.SimpleNamespace(streams=types.SimpleNamespace(end_line=lambda: None))


@pytest.mark.parametrize("code, want", [(None, 0), (3, 3), (-1, 255), (10**10000 + 7, 7), (True, 1), ("text", 1)], ids=["none", "three", "negative", "huge", "true", "text"])
def test_exit_codes(code, want, capsys):
    assert execute.exit_code(SESSION, SystemExit(code)) == want


def test_exit_codes_of_hostile_classes():
    class Int(int):
        def __and__(self, other):
            return "not a number"

    assert execute.exit_code(SESSION, SystemExit(Int(5))) == 5


def test_arguments_of_any_depth_have_an_error():
    from sallyport_guest import values

    deep, itself = [], []
    for _ in range(10**5):
        deep = [deep]
    itself.append(itself)
    limit = sys.getrecursionlimit()
    try:
        for value in (deep, itself, {"a": itself}):
            for most in (limit, 10**6):
                sys.setrecursionlimit(most)
                with pytest.raises(errors.ArgumentError, match="cannot be sent"):
                    values.encode("t", {"v": value})
                assert sys.getrecursionlimit() == most
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize(
    "command, want",
    [
        ("pip install pandas", ["pandas"]),
        ("subprocess.run(['pip', 'install', 'pandas>=2', 'httpx'], check=True)", ["pandas", "httpx"]),
        ("[sys.executable, '-m', 'pip', '-q', 'install', '-U', 'x[all]']", ["x"]),
        ("/usr/bin/pip3.12 install --target lib x && ls", ["x"]),
        ("uv pip install polars", ["polars"]),
        ("uv add polars", ["polars"]),
        ("conda install -n base scipy", ["scipy"]),
        ("pip install -r requirements.txt", []),
        ("apt-get install -y gcc", []),
        ("pip install ./x.whl --target lib", None),
        ("pip install --no-index --find-links wheels x", None),
        ("pip install -e .", None),
        ("pip list; pip show x", None),
        ("echo install x", None),
    ],
)
def test_commands_that_install(command, want):
    assert hints.installs(command) == want


@pytest.mark.parametrize(
    "module, line, want",
    [
        ("sklearn.svm", "", "scikit-learn"),
        ("google", "from google.cloud import storage", "google-cloud-storage"),
        ("google", "import google.cloud.bigquery_storage_v1 as b", "google-cloud-bigquery-storage"),
        ("google", "from google.cloud import secretmanager", "google-cloud-secret-manager"),
        ("google", "from google.cloud import anything", None),
        ("google", "from google import genai", "google-genai"),
        ("google.protobuf.json_format", "", "protobuf"),
        ("google", "x = 5", None),
        ("helper_of_mine", "", None),
        ("." * 1000, "import " * 1000, None),
    ],
)
def test_names_to_install(module, line, want):
    assert distributions.distribution(module, line) == want
