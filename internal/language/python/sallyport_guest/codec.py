"""JSON by the interpreter's own C code. The json package takes too long to import:
it brings regular expressions and more."""

from . import BUILTINS as __builtins__

import sys

import _json

from .interrupt import call


# In the parameters of a call whose result must not be that of an earlier one.
FRESH = ',"fresh":true'


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
    """Return a function that decodes JSON, and raises ValueError if it cannot; hook
    makes the objects. Its attribute loose decodes what is known to be JSON in spite of
    the interpreter's limits."""
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
            # later ones import it, and may find one of the user's files instead.
            raise ValueError("not JSON, or not readable here (%s)" % type(e).__name__) from None
        if end != len(text) and text[end:].strip(" \t\r\n"):
            raise ValueError("more than one JSON value")
        return value

    def loose(text):
        """Like decode, but from any stack depth, and with integers of more digits than
        the interpreter converts."""
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


MAX_LIMIT = 10000  # of recursion: the stack of the C code has room for this


def integer(digits):
    try:
        return int(digits)
    except ValueError:
        return digits


decode = decoder()


def _refuse(value):
    raise TypeError("a value of type %s cannot be sent as JSON" % type(value).__name__)


def encode(value, default=_refuse):
    """Return value as JSON: ASCII, no white space, no NaN. default turns a value that
    JSON cannot represent into one that it can."""
    make = _json.make_encoder({}, default, _json.encode_basestring_ascii, None, ":", ",", False, False, False)
    limit = sys.getrecursionlimit()
    if limit <= MAX_LIMIT:
        return "".join(call(make, value, 0))
    sys.setrecursionlimit(MAX_LIMIT)
    try:
        return "".join(call(make, value, 0))
    finally:
        sys.setrecursionlimit(limit)


def quote(text):
    """Return text as a JSON string."""
    return _json.encode_basestring_ascii(text)
