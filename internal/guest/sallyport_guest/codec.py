"""JSON by the interpreter's own C code. The json package takes too long to
import: it brings regular expressions and more."""

from . import BUILTINS as __builtins__

import sys

import _json


class _Settings:
    strict = True
    object_pairs_hook = None
    parse_float = float
    parse_constant = staticmethod(
        {"-Infinity": float("-inf"), "Infinity": float("inf"), "NaN": float("nan")}.__getitem__
    )

    def __init__(self, hook, parse_int=int):
        self.object_hook = hook
        self.parse_int = parse_int
        self.memo = {}


def decoder(hook=None, parse_int=int):
    """A function from a JSON text to its value, which raises ValueError for
    every text that it cannot read; hook makes the objects. Its attribute loose
    reads texts that are known to be JSON in spite of the limits of the
    interpreter."""
    scan = _json.make_scanner(_Settings(hook, parse_int))

    def decode(text):
        try:
            value, end = scan(text, 0)
        except StopIteration as e:
            raise ValueError("not JSON at character %s" % e.value) from None
        except ValueError:
            raise
        except Exception as e:
            # Too deep or too large. SystemError: CPython 3.10 and 3.11 take the
            # class of their error from json.decoder, which need not be imported;
            # later ones import it, and may find a file of the user's instead.
            raise ValueError("not JSON, or not readable here (%s)" % type(e).__name__) from None
        if end != len(text) and text[end:].strip(" \t\r\n"):
            raise ValueError("more than one JSON value")
        return value

    def loose(text):
        """As decode, wherever it is called from, and with integers of more
        digits than the interpreter converts as texts."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + DEEPEST)
        try:
            return decoder(hook, integer)(text)
        finally:
            try:
                sys.setrecursionlimit(limit)
            except RecursionError:  # called at the very limit
                pass

    decode.loose = loose
    return decode


DEEPEST = 1000  # levels of a frame; the host refuses deeper answers


def integer(digits):
    try:
        return int(digits)
    except ValueError:
        return digits


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
