"""Values as Python expressions that produce them again."""

from . import BUILTINS as __builtins__

import ast
import re

MAX_TEXT = 200000
MAX_DEPTH = 50


# Nodes that run code, besides operators.
ACTIVE = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Lambda)

# Library modules whose values never change.
UNCHANGING = ("datetime", "zoneinfo", "uuid", "ipaddress", "fractions", "decimal", "pathlib", "pathlib._local", "typing")


def is_variable(value):
    """Whether value is a type variable: each is equal only to itself."""
    return type(value).__name__ in ("TypeVar", "ParamSpec", "NewType") and type(value).__module__ == "typing"


def text(value):
    """Return the expression for a plain value. Raise ValueError if it is something
    else, or too large."""
    parts, size = [], 0

    def out(part):
        nonlocal size
        size += len(part)
        if size > MAX_TEXT:
            raise ValueError("too large")
        parts.append(part)

    render(value, out, 0)
    return "".join(parts)


def render(value, out, depth):
    kind = type(value)
    if value is None or kind in (bool, str, bytes, range) or value is Ellipsis:
        out(repr(value))
    elif kind is int:
        out(repr(value) if -(1 << 64) < value < 1 << 64 else hex(value))
    elif kind is float:
        out(repr(value) if value - value == 0 else "float(%r)" % repr(value))
    elif kind is complex:
        out("complex(")
        render(value.real, out, depth)
        out(", ")
        render(value.imag, out, depth)
        out(")")
    elif depth == MAX_DEPTH:
        raise ValueError("too deep, or contains itself")
    elif kind is dict:
        out("{")
        for i, (key, member) in enumerate(value.items()):
            out(", " if i else "")
            render(key, out, depth + 1)
            out(": ")
            render(member, out, depth + 1)
        out("}")
    elif kind in BRACKETS:
        begin, end = BRACKETS[kind]
        out(begin)
        for i, member in enumerate(value):
            out(", " if i else "")
            render(member, out, depth + 1)
        out(",)" if kind is tuple and len(value) == 1 else end)
    else:
        raise ValueError("a value of type %s" % kind.__name__)


BRACKETS = {list: ("[", "]"), tuple: ("(", ")"), set: ("{*[", "]}"), frozenset: ("frozenset([", "])")}


def special(value):
    """Return the module to import and the expression, for values of a few types that
    are as good as plain; or None."""
    if isinstance(value, re.Pattern):
        flags = value.flags & ~(re.UNICODE if isinstance(value.pattern, str) else 0)
        return "re", "re.compile(%r%s)" % (value.pattern, ", %d" % flags if flags else "")
    name = "%s.%s" % (type(value).__module__, type(value).__name__)
    name = {"pathlib._local.PosixPath": "pathlib.PosixPath"}.get(name, name)
    if name in ("decimal.Decimal", "pathlib.PosixPath"):
        return name.partition(".")[0], "%s(%r)" % (name, str(value))
    if name == "fractions.Fraction":
        return "fractions", "fractions.Fraction(%d, %d)" % (value.numerator, value.denominator)
    return None


def named_tuple(value):
    """Return the expression for a class that collections.namedtuple has made, or
    None."""
    fields = getattr(value, "_fields", None)
    if value.__bases__ != (tuple,) or not isinstance(fields, tuple) or getattr(value, "__annotations__", None):
        return None
    defaults = [value._field_defaults[f] for f in fields if f in value._field_defaults]
    try:
        more = ", defaults=" + text(defaults) if defaults else ""
    except ValueError:
        return None
    return "collections.namedtuple(%r, %r%s)" % (value.__name__, list(fields), more)
