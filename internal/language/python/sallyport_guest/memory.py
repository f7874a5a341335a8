"""save_memory and the like: values that all sessions share, kept by the host."""

from . import BUILTINS as __builtins__

from . import codec, values
from .errors import MCPError

MAX_TRIES = 10000
INFO = ("key", "value", "metadata", "created_at", "updated_at")


def quoted(key):
    """Return a key as JSON."""
    if not isinstance(key, str):
        raise TypeError("a memory's key must be a str, not %s" % type(key).__name__)
    if not key:
        raise ValueError("Memory key cannot be empty")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ValueError("Memory key %a is not valid text: it contains half of a surrogate pair" % key) from None
    return codec.quote(key)


def encoded(key, value, what=""):
    """Return a value as JSON."""
    try:
        return codec.encode(value, values.sendable)
    except TypeError as e:
        reason = str(e).replace("cannot be sent as JSON", "is not JSON")
        raise TypeError("Memory %r: %s%s; turn it into dict, list, str, int, float, bool or None" % (key, what, reason)) from None
    except ValueError as e:  # not a number, circular, an integer of too many digits
        raise ValueError("Memory %r: %s%s" % (key, what, e)) from None
    except RecursionError:
        raise ValueError("Memory %r: %stoo deeply nested" % (key, what)) from None


def ask(session, method, key, params):
    """Return the host's answer."""
    try:
        return session.channel.request_sync(method, params)
    except MCPError as e:
        e.args = ("Memory %r: %s" % (key, e) if key is not None else "Memory: %s" % e,)
        raise


def save(session, key, value, metadata):
    if metadata is not None and not isinstance(metadata, dict):
        raise TypeError("Memory %r: metadata must be a dict, not %s" % (key, type(metadata).__name__))
    params = '{"key":%s,"value":%s' % (quoted(key), encoded(key, value))
    if metadata is not None:
        params += ',"metadata":' + encoded(key, metadata, "metadata: ")
    ask(session, "memory_put", key, params + "}")
    return "Memory '%s' saved." % key


def load(session, key, default):
    found = ask(session, "memory_get", key, '{"key":%s}' % quoted(key))
    return default if found is None else found["value"]


def info(session, key):
    found = ask(session, "memory_get", key, '{"key":%s}' % quoted(key))
    return None if found is None else {name: found[name] for name in INFO}


def exists(session, key):
    return ask(session, "memory_get", key, '{"key":%s,"info":true}' % quoted(key)) is not None


def delete(session, key):
    was = ask(session, "memory_delete", key, '{"key":%s}' % quoted(key))
    return "Memory '%s' %s" % (key, "deleted." if was else "not found.")


def listed(session):
    return ask(session, "memory_list", None, "{}")


def update(session, key, updater):
    """Replace exactly the value that updater was given: if it changed meanwhile, call
    updater again."""
    name = quoted(key)
    if not callable(updater):
        raise TypeError("Memory %r: updater must be a function, not %s" % (key, type(updater).__name__))
    for _ in range(MAX_TRIES):
        found = ask(session, "memory_get", key, '{"key":%s}' % name)
        value = updater(None if found is None else found["value"])
        if hasattr(value, "__await__"):
            if hasattr(value, "close"):
                value.close()
            raise TypeError("Memory %r: updater must be a plain function, not an async one" % key)
        version = "" if found is None else found["version"]
        params = '{"key":%s,"version":"%s","value":%s}' % (name, version, encoded(key, value))
        if ask(session, "memory_put", key, params):
            return value
    raise MCPError("Memory %r: other code changed it %d times meanwhile" % (key, MAX_TRIES), kind="limit_exceeded")
