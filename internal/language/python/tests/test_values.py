"""Results, unwrapped as DESIGN has it."""

import dataclasses
import datetime
import pathlib

import pytest

from sallyport_guest import values
from sallyport_guest.errors import MCPError


def text(*texts):
    return [{"type": "text", "text": t} for t in texts]


@pytest.mark.parametrize(
    "result, value",
    [
        ({"content": text("a")}, "a"),
        ({"content": text("a", "b")}, "a\nb"),
        ({"content": text("")}, ""),
        ({"content": text("12")}, "12"),
        ({"content": text("null")}, "null"),
        ({"content": text('"x"')}, '"x"'),
        ({"content": text(' {"a": 1}\n')}, {"a": 1}),
        ({"content": text("[1, 2]")}, [1, 2]),
        ({"content": text("[DIR] a")}, "[DIR] a"),
        ({"content": text("{1}")}, "{1}"),
        ({"content": []}, []),
        ({}, []),
        ({"content": text("a") + [{"type": "image"}]}, text("a") + [{"type": "image"}]),
        ({"content": [], "structuredContent": {"result": 5}}, 5),
        ({"content": [], "structuredContent": {"result": None}}, None),
        ({"content": text("x"), "structuredContent": {"result": {"a": 1}}}, {"a": 1}),
        ({"content": text("T"), "structuredContent": {"content": "T"}}, "T"),
        ({"content": text("T"), "structuredContent": {"content": "U"}}, {"content": "U"}),
        ({"content": text("1"), "structuredContent": {"content": 1}}, {"content": 1}),
        ({"content": text("T"), "structuredContent": {"a": "T", "b": 1}}, {"a": "T", "b": 1}),
        ({"content": text("T"), "structuredContent": {}}, {}),
        ({"content": text("T"), "structuredContent": [1]}, [1]),
        ({"content": text("T"), "structuredContent": None}, "T"),
        ({"content": "nonsense"}, []),
        ({"content": [3]}, [3]),
        ([1], [1]),
    ],
    ids=repr,
)
def test_unwrap(result, value):
    assert values.unwrap(result, "s", "t") == value


@pytest.mark.parametrize(
    "declared, structured, value",
    [
        ("content", {"content": "T"}, "T"),
        ("content", {"content": "U"}, "U"),
        ("content", {"content": "U", "more": 1}, {"content": "U", "more": 1}),
        ("content", {"other": "T"}, {"other": "T"}),
        ("result", {"result": [1]}, [1]),
        ("", {"result": 5}, {"result": 5}),
        ("", {"content": "T"}, {"content": "T"}),
        ("content", None, "T"),
    ],
    ids=repr,
)
def test_unwrap_as_declared(declared, structured, value):
    result = {"content": text("T"), "structuredContent": structured}
    assert values.unwrap(result, "s", "t", declared) == value


@pytest.mark.parametrize(
    "result, message",
    [
        ({"content": text("no file")}, "no file"),
        ({"content": text("a", "", "b")}, "a\nb"),
        ({"content": [], "structuredContent": {"code": 5}}, '{"code":5}'),
        ({"content": [{"type": "image"}]}, "s.t failed and gave no reason"),
    ],
    ids=repr,
)
def test_failures(result, message):
    with pytest.raises(MCPError) as e:
        values.unwrap({**result, "isError": True}, "s", "t")
    assert str(e.value) == message
    assert (e.value.kind, e.value.server, e.value.tool) == ("tool", "s", "t")
    assert e.value.result["isError"] is True


def test_sendable():
    @dataclasses.dataclass
    class D:
        a: int

    class Numpy:
        def tolist(self):
            return [1, 2]

    assert values.sendable(pathlib.PurePosixPath("/a")) == "/a"
    assert values.sendable(datetime.date(2020, 1, 2)) == "2020-01-02"
    assert values.sendable(frozenset([1])) == [1]
    assert values.sendable(Numpy()) == [1, 2]
    assert values.sendable(D(1)) == {"a": 1}
    with pytest.raises(TypeError, match="object cannot be sent"):
        values.sendable(object())
