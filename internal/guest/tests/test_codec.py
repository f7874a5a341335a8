"""JSON without the json package means what it means with it."""

import json
import math
import random

import pytest

from sallyport_guest import codec, values

VALUES = [
    None, True, False, 0, -1, 2**53 + 1, 2**200, 1.5, -0.0, 1e300, 5e-324, "", "a", 'q"\\/\b\f\n\r\t\x00\x7f', "ä€\U0001f600",
    "\ud800", [], [1, [2, []]], {}, {"a": {"b": [None]}}, {"z": 1, "a": 2}, (1, 2), {1: 2, None: 3, True: 4, 1.5: 5},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_encode(value):
    assert codec.encode(value) == json.dumps(value, separators=(",", ":"))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_round_trip(value):
    text = json.dumps(value)
    assert codec.decode(text) == json.loads(text)


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {"a": {1, 2}}, {(1, 2): 3}, b"x"], ids=repr)
def test_not_json(value):
    with pytest.raises((TypeError, ValueError)):
        codec.encode(value)


def test_circular():
    x = []
    x.append(x)
    with pytest.raises((ValueError, RecursionError)):
        codec.encode(x)


@pytest.mark.parametrize("text", ["", " ", "{", "[1,", "nul", '{"a" 1}', "1 2", "{} x", "'a'", '{"a":1,}', "\x00"])
def test_malformed(text):
    with pytest.raises(ValueError):
        codec.decode(text)


def test_random_texts():
    random.seed(1)
    for _ in range(3000):
        text = "".join(random.choices('{}[]",:0123.e-+ntfalsu\\ \n', k=random.randrange(12)))
        try:
            want = json.loads(text.lstrip())
        except ValueError:
            want = ValueError
        try:
            got = codec.decode(text.lstrip())
        except ValueError:
            got = ValueError
        assert repr(got) == repr(want), text


def test_objects():
    value = values.decode('{"items": [{"id": 1, "n": {"m": 2}}], "keys": 3, "not an identifier": 4}')
    assert value["items"][0].n.m == 2
    assert callable(value.keys) and value["keys"] == 3
    assert json.dumps(value) == '{"items": [{"id": 1, "n": {"m": 2}}], "keys": 3, "not an identifier": 4}'
    assert not hasattr(value, "absent")
    with pytest.raises(AttributeError, match="there is no 'absent'; there are: items, keys"):
        value.absent
    assert type(value.copy()) is values.Object
    assert "not an identifier" not in dir(value)
