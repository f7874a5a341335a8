"""Short forms of long values."""

import base64
import collections

import pytest

from sallyport_guest.shorten import ROOM, shortened


def short(value):
    return shortened(value, repr(value))


@pytest.mark.parametrize(
    "value, begin, end",
    [
        (list(range(10000)), "[0, 1, 2, ", "… 9,950 more]\n(shortened: list of 10,000 items; all of it is in _)"),
        ({"rows": [{"id": i, "text": "x" * 300} for i in range(1000)]}, "{'rows': [{'id': 0, 'text': 'xxx", "(shortened: dict of 1 items; all of it is in _)"),
        ("word " * 5000, "'word word", "… (25,000 characters)\n(shortened: str of 25,000 characters; all of it is in _)"),
        (b"ab" * 5000, "b'abab", "… (10,000 bytes)\n(shortened: bytes of 10,000 bytes; all of it is in _)"),
        ((list(range(5000)),), "([0, 1, ", "more],)\n(shortened: tuple of 1 items; all of it is in _)"),
    ],
)
def test_shortened(value, begin, end):
    text = short(value)
    assert text.startswith(begin) and text.endswith(end), (text[:100], text[-200:])
    assert len(text) <= 2 * ROOM + 100


def test_nesting_is_kept():
    text = short({"a": {"b": {"c": [list(range(3000)), "z"]}}, "last": 1})
    assert text.startswith("{'a': {'b': {'c': [[0, 1, ") and "'z'" in text and "'last': 1}" in text


@pytest.mark.parametrize("count", [1000, 100000])
def test_what_fits_is_whole(count):
    value = [b"\x89PNG\r\n" + bytes(count), "x" * 1000]
    assert short(value) == "[<image/png, %s bytes>, %r]" % (format(count + 6, ","), "x" * 1000)


def test_pictures_in_base64_are_named():
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20).decode()
    assert short({"data": picture}) == "{'data': <base64, image/png, 5,128 bytes>}"
    assert short({"data": "data:image/png;base64," + picture}) == "{'data': <base64, image/png, 5,128 bytes>}"


@pytest.mark.parametrize("text", ["a" * 3000, "1234567890" * 300, "no base64 " * 300, "abcdefghijklmnopqrstuvwxyz" * 100])
def test_other_text_is_no_picture(text):
    assert "base64," not in short([text])


def test_objects_lose_their_middle():
    class Large:
        def __repr__(self):
            return "<" + "y" * 50000 + ">"

    text = short(Large())
    assert text.startswith("<yyy") and text.endswith("yyy>") and "characters left out of a Large, 50,002 characters" in text
    assert len(text) < ROOM + 200
    assert "of a Large" in short([Large()] * 3)


def test_an_object_that_defends_itself():
    class Bad(list):
        def __len__(self):
            raise RuntimeError("no")

    value = Bad(range(5000))
    assert "characters left out" in short(value)


def test_own_reprs_are_respected():
    ordered = collections.OrderedDict((i, i) for i in range(5000))
    assert short(ordered).startswith("OrderedDict")


def test_cycles_end():
    value = list(range(5000))
    value.append(value)
    value.insert(0, value)
    assert len(short(value)) <= 2 * ROOM + 100


def test_parts_are_counted():
    class Item:
        shown = 0

        def __repr__(self):
            Item.shown += 1
            return "item"

    value = [Item()] * 50000
    text = repr(value)
    Item.shown = 0
    assert shortened(value, text).endswith("list of 50,000 items; all of it is in _)")
    assert Item.shown <= 2 * ROOM


def test_many_cycles_end():
    value = []
    value.extend([value] * 300)  # six levels of them would be 300**6 parts
    text = short(value)
    assert text.startswith("[") and text.endswith("list of 300 items; all of it is in _)") and len(text) <= 2 * ROOM + 100
