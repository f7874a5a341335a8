"""Finding servers that an execution does not have, and asking for more."""

from . import BUILTINS as __builtins__

from . import codec
from .errors import MCPError


class Found(list):
    """A list that may also be awaited: whether a helper waits is not what one
    remembers of it."""

    __slots__ = ()

    def __await__(self):
        return list(self)
        yield


def find(session, query):
    """Every server that the host knows of and that fits the query."""
    params = codec.encode({"query": str(query)})
    return Found(session.channel.request_sync("find_servers", params))


def request_params(name, definition):
    """What the host gets. It checks again: this is for a better error."""
    if not isinstance(name, str) or not name.strip():
        raise MCPError("request_server(name, definition): name must be a text", kind="invalid")
    if not isinstance(definition, dict):
        raise MCPError(
            'request_server(name, definition): definition must be a dict like {"command": "npx", "args": ["-y", "some-server"]}'
            ' or {"url": "https://..."}',
            kind="invalid",
            server=name,
        )
    return codec.encode({"name": name, "definition": definition})
