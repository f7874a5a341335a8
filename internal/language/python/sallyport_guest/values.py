"""The value of a tool call: the tool's result, unwrapped."""

from . import BUILTINS as __builtins__

from . import codec
from .errors import ArgumentError, MCPError
from .objects import Object

decode = codec.decoder(Object)


def text_of(content):
    """Return the text of a result, or None if it contains anything else."""
    parts = []
    for item in content:
        if not isinstance(item, dict) or item.get("type") != "text":
            return None
        parts.append(str(item.get("text", "")))
    return "\n".join(parts) if parts else None


def blocks(content):
    """Return the content of a result as a list of dicts, as far as it can mean only that."""
    if isinstance(content, (str, dict)):
        content = [content]
    elif not isinstance(content, list):
        return []
    for item in content:
        if not isinstance(item, dict) or "type" not in item:
            return [block(item) for item in content]
    return content


def block(item):
    """Return one part of a content, with the type of text if it has only text."""
    if isinstance(item, str):
        return Object({"type": "text", "text": item})
    if isinstance(item, dict) and item.get("type") is None and isinstance(item.get("text"), str):
        return Object({**item, "type": "text"})
    return item


def unwrap(result, server, tool, declared=None, session=None, called=None):
    """Return the value of a raw result. Raise MCPError if it reports a failure.

    declared is the property that the tool's output schema makes the value, "" if
    the schema makes it the object itself. It is None without a schema: then the
    result itself decides. The host writes signatures by the same rule.

    What the tool says besides its structured content stays with the value: see said.
    The session gets a hint, if there is one. called is how code writes the tool.
    """
    if not isinstance(result, dict):
        return result
    content = result.get("content")
    text = text_of(content) if type(content) is list else None
    if text is None:
        content = blocks(content)
        text = text_of(content)
    structured = result.get("structuredContent")
    if result.get("isError") and result["isError"] != "false":
        raise MCPError(failure(content, structured, server, tool), kind="tool", server=server, tool=tool, result=result)
    if structured is not None:
        value = structured
        if isinstance(structured, dict) and len(structured) == 1:
            ((key, only),) = structured.items()
            if key == declared if declared is not None else key == "result" or isinstance(only, str) and only == text:
                value = only
        if content:
            from . import said

            content = objects(content, server, called)
            value, have = repeated(value, content)
            left = said.extra([None if any(part is p for p in have) else part for part in content], structured, value)
            if left:
                value = said.keep(value, content, left, server, tool, session)
        return value
    if text is None:
        return objects(content, server, called)
    if text.lstrip()[:1] in ("{", "["):
        try:
            return decode(text.strip())
        except ValueError:
            pass
    return text


def objects(content, server, called=None):
    """Return content, with objects for images and the like."""
    for item in content:
        if isinstance(item, dict) and item.get("type") != "text":
            from .content import contents

            return contents(content, server, called)
    return content


def repeated(value, content):
    """Return a structured value with the images and the like that content has, too, and
    those that it has."""
    if text_of(content) is not None:
        return value, ()
    from .content import placed

    return placed(value, content)


def raw(result, server, called=None):
    """Return a raw result: the dict that the server sent, with objects in its content,
    which are dicts too."""
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        content = result["content"] = objects(result["content"], server, called)
        if "structuredContent" in result:
            result["structuredContent"] = repeated(result["structuredContent"], content)[0]
    return result


def failure(content, structured, server, tool):
    parts = [str(c.get("text", "")) for c in content if isinstance(c, dict) and c.get("type") == "text"]
    message = "\n".join(t for t in parts if t)
    if not message and structured is not None:
        message = codec.encode(structured)
    return message or "%s.%s failed and gave no reason" % (server, tool)


def encode(label, arguments):
    """Return a call's arguments as JSON. label is the call's name for people."""
    try:
        return codec.encode(arguments, sendable)
    except (TypeError, ValueError, RecursionError) as e:
        raise ArgumentError("%s: the arguments cannot be sent: %s" % (label, e), kind="invalid") from None


def sendable(value):
    """Return the nearest JSON value for one that JSON cannot represent."""
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
