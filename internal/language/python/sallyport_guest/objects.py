"""JSON objects as code sees them."""

from . import BUILTINS as __builtins__


from itertools import islice

SHOWN = 100  # names in an error


class Object(dict):
    """A JSON object whose members are attributes too. A dict's own methods take
    precedence: write x["items"] for a member of such a name."""

    __slots__ = ()

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            pass
        if name.startswith("__"):
            raise AttributeError(name)
        more = ", …" if len(self) > SHOWN else ""
        raise AttributeError("there is no %r; there are: %s%s" % (name, ", ".join(map(str, islice(self, SHOWN))) or "no members", more))

    def __dir__(self):
        return [*super().__dir__(), *(key for key in self if isinstance(key, str) and key.isidentifier())]

    def copy(self):
        return Object(self)

    def __reduce__(self):
        return dict, (dict(self),)


Object.__module__ = "mcp.runtime"
