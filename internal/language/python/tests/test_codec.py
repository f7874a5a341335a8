"""JSON without the json package means what it means with it."""

import json
import math
import random
import sys
import types
from unittest import mock

import hypothesis
import hypothesis.strategies
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


# Texts that look like JSON, on the way to being an error of any kind.
ALMOST = [
    "{ return 1; }", "[2 files] done", '{"a":1,}', '{"a" 1}', '{"a":"\n"}', '["\\u12"]', '["\\x"]', "[1 2", "[-]", "[1.]", '["a', "[nul]",
    "[" + "9" * 5000 + "]" if hasattr(sys, "set_int_max_str_digits") else "[.]", "[" * 100_000, '{"a":' * 100_000, "\ud800[", "{\ud800}",
]  # fmt: skip


@pytest.mark.parametrize("json_is", ["imported", "not imported", "a file of the user's"])
@pytest.mark.parametrize("text", ALMOST, ids=lambda text: ascii(text[:12]))
def test_almost_json_stays_text(monkeypatch, text, json_is):
    if json_is != "imported":
        for name in [name for name in sys.modules if name.split(".")[0] == "json"]:
            monkeypatch.delitem(sys.modules, name)
    if json_is == "a file of the user's":
        monkeypatch.setitem(sys.modules, "json", types.ModuleType("json"))
    with pytest.raises(ValueError):
        codec.decode(text)
    assert values.unwrap({"content": [{"type": "text", "text": text}]}, "s", "t") == text


def test_what_python_calls_json():
    """Not a number and half a surrogate pair are values, as they are for the
    json package."""
    (value,) = values.unwrap({"content": [{"type": "text", "text": "[NaN]"}]}, "s", "t")
    assert math.isnan(value)
    assert values.unwrap({"content": [{"type": "text", "text": '["\\ud800"]'}]}, "s", "t") == ["\ud800"]


def test_frames_beyond_the_limits_of_the_interpreter():
    digits = "9" * 5000
    (number,) = codec.decode.loose("[%s]" % digits)
    assert number == digits if hasattr(sys, "set_int_max_str_digits") else number == int(digits)
    assert codec.decode.loose('{"a":[1,-2,%d]}' % 2**70) == {"a": [1, -2, 2**70]}
    assert type(values.decode.loose('{"a":1}')) is values.Object

    def below(depth):
        return below(depth - 1) if depth else codec.decode.loose("[" * 400 + "]" * 400)

    limit = sys.getrecursionlimit()
    value = below(limit // 2)
    depth = 0
    while value:
        (value,) = value
        depth += 1
    assert (depth, sys.getrecursionlimit()) == (399, limit)


JSON = hypothesis.strategies.recursive(
    hypothesis.strategies.none()
    | hypothesis.strategies.booleans()
    | hypothesis.strategies.integers()
    | hypothesis.strategies.floats(allow_nan=False, allow_infinity=False)
    | hypothesis.strategies.text(),
    lambda inner: hypothesis.strategies.lists(inner) | hypothesis.strategies.dictionaries(hypothesis.strategies.text(), inner),
)
TEXTS = hypothesis.strategies.text() | hypothesis.strategies.text('{}[]",:0123.e-+ntfalsuNaI\\ \n\ud800')


@hypothesis.given(JSON)
def test_any_value_comes_back(value):
    assert codec.decode(codec.encode(value)) == value


@hypothesis.settings(max_examples=500)
@hypothesis.given(hypothesis.strategies.sampled_from(["", "{", "[", ' {"a":']), TEXTS)
def test_any_text_is_what_json_says_or_itself(start, rest):
    text = start + rest
    with mock.patch.dict(sys.modules):
        sys.modules.pop("json.decoder", None)
        got = values.unwrap({"content": [{"type": "text", "text": text}]}, "s", "t")
    try:
        want = json.loads(text.strip()) if text.strip()[:1] in ("{", "[") else text
    except (ValueError, RecursionError):
        want = text
    assert repr(got) == repr(want)
