"""The exceptions that the sandbox's own functions raise."""

from . import BUILTINS as __builtins__


class MCPError(RuntimeError):
    """A tool failed, or could not be called.

    kind says where it failed: "tool" (the tool itself), "denied", "not_found",
    "invalid", "unavailable", "timeout", "limit_exceeded", "cancelled",
    "server", "internal". result is a failed tool's raw result.
    """

    def __init__(self, message="", *, kind=None, server=None, tool=None, result=None):
        super().__init__(message)
        self.kind = kind
        self.server = server
        self.tool = tool
        self.result = result


class NotLoaded(MCPError, KeyError):
    """Raised by mcp_servers["x"] if x is not there."""

    __str__ = BaseException.__str__  # a KeyError's would quote the message


class ArgumentError(MCPError, TypeError):
    """Arguments that do not fit a tool's schema; nothing was sent."""


for _class in (MCPError, NotLoaded, ArgumentError):
    _class.__module__ = "mcp.runtime"


def from_host(error):
    """Return the exception for a failed call, from the reply's error."""
    return MCPError(str(error.get("message", "the call failed")), kind=error.get("kind"))


MAX_NAME, MAX_NAMES = 200, 5000  # characters of a name, and names, that are compared


def similar(name, names):
    """Return what a message adds about a name that is not among names."""
    from difflib import get_close_matches
    from itertools import islice

    if len(name) > MAX_NAME:
        return ""
    names = [n for n in islice(names, MAX_NAMES) if len(n) <= MAX_NAME]
    found = get_close_matches(name, names, 1)
    if not found and len(name) > 3:  # a part of a name that only one has
        found = [n for n in names if name in n]
        found = found if len(found) == 1 else []
    return "; did you mean %r?" % found[0] if found else ""
