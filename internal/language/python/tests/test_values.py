"""Results, unwrapped as DESIGN has it."""

import copy
import dataclasses
import datetime
import json
import pathlib
import pickle

import pytest

from sallyport_guest import said, values
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
        ({"content": "T"}, "T"),
        ({"content": '{"a": 1}'}, {"a": 1}),
        ({"content": {"type": "text", "text": "T"}}, "T"),
        ({"content": {"text": "T"}}, "T"),
        ({"content": ["T", {"type": "text", "text": "U"}]}, "T\nU"),
        ({"content": ["T", {"text": 5}]}, [{"type": "text", "text": "T"}, {"text": 5}]),
        ({"content": {"type": "image", "data": ""}}, [{"type": "image", "data": ""}]),
        ({"content": None}, []),
        ({}, []),
        ({"content": 5}, []),
        ({"content": text("T"), "isError": "false"}, "T"),
        ({"content": text("T"), "isError": None}, "T"),
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
        ({"content": "no file"}, "no file"),
        ({"content": {"type": "text", "text": "no file"}}, "no file"),
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


@pytest.mark.parametrize("flag", ["true", 1, "yes"], ids=repr)
def test_failures_with_another_flag(flag):
    with pytest.raises(MCPError):
        values.unwrap({"content": "no file", "isError": flag}, "s", "t")


PNG = {"type": "image", "data": "AAAA", "mimeType": "image/png"}


@pytest.mark.parametrize(
    "content, structured",
    [
        (text('{"a": 1, "b": [2]}'), {"b": [2], "a": 1.0}),
        (text('{\n  "a": "\\u00e9"\n}'), {"a": "é"}),
        (text("[1, 2]"), {"result": [1, 2]}),
        (text("1", "two", '{"x": 3}'), {"result": [1, "two", {"x": 3}]}),
        (text("{'a': None}"), {"a": None}),
        (text("5"), {"result": 5}),
        (text("5"), {"result": 5.0}),
        (text("true"), {"result": True}),
        (text("True"), {"result": True}),
        (text("done"), {"result": "done"}),
        (text('"done"'), {"result": "done"}),
        (text('{"result": [1]}'), {"result": [1]}),
        (text('[{"name": "a"}]'), {"entities": [{"name": "a"}]}),
        (text("body"), {"title": "t", "message": {"body": "body\n"}}),
        (text("", " \n"), {"a": 1}),
        (text(json.dumps({"rows": [{"id": i} for i in range(5000)]}, indent=2)), {"rows": [{"id": i} for i in range(5000)]}),
        (text('{"\\u00e9": "' + "x" * 20000 + '"}'), {"é": "x" * 20000}),
        (text("x" * 20000), {"result": "x" * 20000}),
        ([], {"a": 1}),
        ([3], {"a": 1}),
    ],
    ids=lambda v: repr(v)[:60],
)
def test_text_of_structured_content(content, structured):
    """What says the same is the plain value."""
    value = values.unwrap({"content": content, "structuredContent": structured}, "s", "t")
    assert not isinstance(value, said.Said)


@pytest.mark.parametrize(
    "content, structured, kept, parts",
    [
        (text("the real answer"), {"execution_ms": 3}, "the real answer", 1),
        (text("the real answer"), {"result": [1]}, "the real answer", 1),
        (text("the real answer"), {"result": "other"}, "the real answer", 1),
        (text("the real answer"), {"result": 5}, "the real answer", 1),
        (text("the real answer"), {"result": 0.5}, "the real answer", 1),
        (text(json.dumps({"n": 1, "rows": "x" * 20000})), {"n": 1}, json.dumps({"n": 1, "rows": "x" * 20000}), 1),
        (text('{"a": 1}', "and more"), {"a": 1}, "and more", 2),
        (text('{"a": 2}'), {"a": 1}, '{"a": 2}', 1),
        (text("[1]"), {"a": [1], "b": 2}, "[1]", 1),
        (text("a" * 20000), {"a": 1}, "a" * 20000, 1),
        (text('{"a": 1}') + [PNG], {"a": 1}, None, 2),
        ([{"type": "resource_link", "uri": "a://b"}], {"a": 1}, None, 1),
        (text("[" * 5000), {"a": 1}, "[" * 5000, 1),
    ],
    ids=lambda v: repr(v)[:60],
)
def test_text_besides_structured_content(content, structured, kept, parts):
    """What says something else stays with the value, which stays what it was."""
    plain = structured.get("result", structured)
    value = values.unwrap({"content": content, "structuredContent": structured}, "s", "t")
    assert value == plain and isinstance(value, type(plain))
    assert value.text == kept and len(value.content) == parts
    assert json.dumps(value) == json.dumps(plain)
    again = pickle.loads(pickle.dumps(value))
    assert again == plain and type(again) is type(plain)
    assert repr(value) == repr(plain) and copy.copy(value) == plain and {"text", "content"} <= set(dir(value))


def test_members_come_before_text():
    value = values.unwrap({"content": text("other"), "structuredContent": {"text": "mine", "n": 1}}, "s", "t")
    assert value.text == "mine" and value.content == text("other") and value.n == 1
    with pytest.raises(AttributeError):
        value.nothing


def test_told_once_for_each_tool():
    class Session:
        extra = set()
        said = []
        streams = property(lambda self: self)

        def say(self, line):
            self.said.append(line)

    session = Session()
    for tool, structured in [("a", {"n": 1}), ("a", {"n": 2}), ("b", {"result": True}), ("c", {"text": "x", "n": 1}), ("d", {"text": 1, "content": 2})]:
        value = values.unwrap({"content": text("answer"), "structuredContent": structured}, "s", tool, None, session)
    assert session.said == [
        "Hint: a of server 's' also answered text that is not in its structured content: .text of the value has it\n",
        "Hint: b of server 's' also answered text that is not in its structured content: runtime.call_tool('s', 'b', ...) returns all of it\n",
        "Hint: c of server 's' also answered text that is not in its structured content: .content of the value has it\n",
        "Hint: d of server 's' also answered text that is not in its structured content: runtime.call_tool('s', 'd', ...) returns all of it\n",
    ]


def test_many_parts():
    """The structured content is written as Python writes it once, not for each part."""
    count = []

    class Counted(dict):
        def __str__(self):
            count.append(1)
            return dict.__str__(self)

    value = Counted(rows=list(range(5000)))
    parts = text(*("part %d" % i for i in range(5000)))
    assert said.extra(parts, value, value) == parts and len(count) <= 2


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
