"""What a tool says besides its structured content: kept with the value."""

from . import BUILTINS as __builtins__

from itertools import islice

from . import codec
from .objects import Object

SEARCHED = 1000  # values that are searched for the text
TOLD = 200  # tools in one session


class Said:
    """A value with .text, which the tool said besides it, and .content, all the parts of
    its answer. A member of that name takes precedence."""

    __slots__ = ()

    def __dir__(self):
        return [*super().__dir__(), "text", "content"]


class SaidObject(Said, Object):
    __slots__ = ("_text", "_content")

    def __getattr__(self, name):
        if name in ("text", "content") and name not in self:
            return self._text if name == "text" else self._content
        return super().__getattr__(name)


def kind(base):
    """Return the class of such values of a type. Elsewhere, one is a plain value."""
    reduced = {"__module__": "mcp.runtime", "__reduce__": lambda self: (base, (base(self),))}
    return type("Said" + base.__name__.capitalize(), (Said, base), reduced)


SaidObject.__module__ = "mcp.runtime"
KINDS = {dict: SaidObject, Object: SaidObject, **{base: kind(base) for base in (list, str, int, float)}}


def extra(content, structured, value):
    """Return the parts of content that say what structured content does not. value is
    what the code gets of it."""
    left, items, same = [], value if isinstance(value, list) else (), None
    # Some servers write what the only member has, without its name.
    whole = (value, structured, *(structured.values() if isinstance(structured, dict) and len(structured) == 1 else ()))
    for i, part in enumerate(content):
        if not isinstance(part, dict):
            continue
        if part.get("type") != "text":
            left.append(part)
            continue
        text = part.get("text")
        text = text.strip() if isinstance(text, str) else ""
        if not text:
            continue
        item = items[i : i + 1]  # FastMCP writes a part for each item
        try:
            if codec.decode(text) in (*whole, *item):
                continue
        except (ValueError, RecursionError):
            pass
        if same is None:
            same = {written(value), written(structured), *strings(structured)}
        if text not in same and text not in map(written, item):
            left.append(part)
    return left


def written(value):
    """Return a value as Python writes it."""
    try:
        return str(value).strip()
    except (ValueError, RecursionError):
        return None


def strings(value):
    """Yield the strings in a value, as far as it is searched."""
    found = [value]
    for v in found:
        if isinstance(v, str):
            yield v.strip()
        elif isinstance(v, (dict, list)):
            found += islice(v.values() if isinstance(v, dict) else v, SEARCHED - len(found))


def keep(value, content, left, server, tool, session):
    """Return the value with content, all parts of the answer, of which left are not in
    it. Say so once for each tool."""
    text = "\n".join(str(part.get("text", "")) for part in left if part.get("type") == "text") or None
    made = KINDS.get(type(value))  # not of True, False and None
    if made is SaidObject:
        value = made(value)
        value._text, value._content = text, content
    elif made is not None:
        value = made(value)
        value.text, value.content = text, content
    if session is not None and (server, tool) not in session.extra and len(session.extra) < TOLD:
        session.extra.add((server, tool))
        members = value if made is SaidObject else ()
        where = [name for name in ("text", "content") if made and name not in members and (text or name == "content")]
        how = ".%s of the value has it" % where[0] if where else "runtime.call_tool(%r, %r, ...) returns all of it" % (server, tool)
        from .advice import line

        what = "text" if text is not None else ", ".join(sorted({str(part.get("type"))[:50] for part in left}))
        session.streams.say(line("%s of server %r also answered %s that is not in its structured content: %s" % (tool, server, what, how)))
    return value
