"""Finding servers that an execution does not have, and requesting more."""

from . import BUILTINS as __builtins__

from . import codec
from .errors import MCPError


class Found(list):
    """A list that may also be awaited, because it is hard to remember which helpers
    wait."""

    __slots__ = ()

    def __await__(self):
        return list(self)
        yield


def find(session, query):
    """Return every server that the host knows and that matches the query."""
    params = codec.encode({"query": str(query)})
    return Found(session.channel.request_sync("find_servers", params))


def request_params(name, definition):
    """Return what the host gets. The host checks it again; this check gives a better
    error."""
    if not isinstance(name, str) or not name.strip():
        raise MCPError("request_server(name, definition): name must be a string", kind="invalid")
    if not isinstance(definition, dict):
        raise MCPError(
            'request_server(name, definition): definition must be a dict like {"command": "npx", "args": ["-y", "some-server"]}'
            ' or {"url": "https://..."}',
            kind="invalid",
            server=name,
        )
    return codec.encode({"name": name, "definition": definition})
