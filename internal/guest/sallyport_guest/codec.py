"""JSON by the interpreter's own C code. The json package takes too long to
import: it brings regular expressions and more."""

from . import BUILTINS as __builtins__

import _json


class _Settings:
    strict = True
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(
        {"-Infinity": float("-inf"), "Infinity": float("inf"), "NaN": float("nan")}.__getitem__
    )

    def __init__(self, hook):
        self.object_hook = hook
        self.memo = {}


def decoder(hook=None):
    """A function from a JSON text to its value; hook makes the objects."""
    scan = _json.make_scanner(_Settings(hook))

    def decode(text):
        try:
            value, end = scan(text, 0)
        except StopIteration as e:
            raise ValueError("not JSON at character %s" % e.value) from None
        if end != len(text) and text[end:].strip(" \t\r\n"):
            raise ValueError("more than one JSON value")
        return value

    return decode


decode = decoder()


def _refuse(value):
    raise TypeError("a value of type %s cannot be sent as JSON" % type(value).__name__)


def encode(value, default=_refuse):
    """The JSON text of value: ASCII, no white space, no NaN. default turns a
    value that JSON does not have into one that it has."""
    make = _json.make_encoder({}, default, _json.encode_basestring_ascii, None, ":", ",", False, False, False)
    return "".join(make(value, 0))


def quote(text):
    """text as a JSON string."""
    return _json.encode_basestring_ascii(text)
