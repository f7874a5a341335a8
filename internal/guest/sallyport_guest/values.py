"""What a tool call returns: the tool's result, unwrapped."""

from . import BUILTINS as __builtins__

from . import codec
from .errors import ArgumentError, MCPError


class Object(dict):
    """A JSON object whose members are attributes too. A dict's own methods
    win: write x["items"] where the member is called like one."""

    __slots__ = ()

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            pass
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError("there is no %r; there are: %s" % (name, ", ".join(map(str, self)) or "no members"))

    def __dir__(self):
        return [*super().__dir__(), *(key for key in self if isinstance(key, str) and key.isidentifier())]

    def copy(self):
        return Object(self)

    def __reduce__(self):
        return dict, (dict(self),)


Object.__module__ = "mcp.runtime"

decode = codec.decoder(Object)


def text_of(content):
    """The text of a result, or None if there is other than text in it."""
    texts = []
    for item in content:
        if not isinstance(item, dict) or item.get("type") != "text":
            return None
        texts.append(str(item.get("text", "")))
    return "\n".join(texts) if texts else None


def unwrap(result, server, tool):
    """The value of a raw result. Raises MCPError if it says that the tool failed."""
    if not isinstance(result, dict):
        return result
    content = result.get("content")
    if not isinstance(content, list):
        content = []
    text = text_of(content)
    structured = result.get("structuredContent")
    if result.get("isError"):
        raise MCPError(failure(content, structured, server, tool), kind="tool", server=server, tool=tool, result=result)
    if structured is not None:
        if isinstance(structured, dict) and len(structured) == 1:
            ((key, value),) = structured.items()
            if key == "result" or isinstance(value, str) and value == text:
                return value
        return structured
    if text is None:
        return objects(content, server)
    if text.lstrip()[:1] in ("{", "["):
        try:
            return decode(text.strip())
        except ValueError:
            pass
    return text


def objects(content, server):
    """content, with objects for images and the like."""
    for item in content:
        if isinstance(item, dict) and item.get("type") != "text":
            from .content import contents

            return contents(content, server)
    return content


def raw(result, server):
    """A raw result: the dict that the server sent, but for the objects in its
    content, which are dicts too."""
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        result["content"] = objects(result["content"], server)
    return result


def failure(content, structured, server, tool):
    texts = [str(c.get("text", "")) for c in content if isinstance(c, dict) and c.get("type") == "text"]
    message = "\n".join(t for t in texts if t)
    if not message and structured is not None:
        message = codec.encode(structured)
    return message or "%s.%s failed and gave no reason" % (server, tool)


def encode(label, arguments):
    """The JSON text of a call's arguments. label is the call's name for people."""
    try:
        return codec.encode(arguments, sendable)
    except (TypeError, ValueError, RecursionError) as e:
        raise ArgumentError("%s: the arguments cannot be sent: %s" % (label, e), kind="invalid") from None


def sendable(value):
    """For values that JSON does not have, the nearest that it has."""
    if hasattr(value, "__fspath__"):
        path = value.__fspath__()
        return path.decode("utf-8", "surrogateescape") if isinstance(path, bytes) else path
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return list(value)
    if hasattr(value, "tolist"):  # numpy's arrays and scalars, pandas' series
        return value.tolist()
    if hasattr(value, "_asdict"):
        return value._asdict()
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    raise TypeError("a value of type %s cannot be sent as JSON" % type(value).__name__)
