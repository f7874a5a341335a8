"""What a tool says besides its structured content: kept with the value."""

from . import BUILTINS as __builtins__

from . import codec
from .objects import Object

WHOLE = 16 << 10  # characters of a part that is compared as JSON; a longer one only looks alike
SHORT = 256  # the same, for a tool whose last answers were
SURE = 3  # how many those are
KEYS = 10  # members that are looked for in a long part
DEEP, MANY = 4, 1000  # where a value is searched for the text
TOLD = 10  # tools in one session


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


class SaidList(Said, list):
    __slots__ = ("text", "content")

    def __reduce__(self):
        return list, (list(self),)


class SaidText(Said, str):
    __slots__ = ("text", "content")

    def __reduce__(self):
        return str, (str(self),)


SaidObject.__module__ = SaidList.__module__ = SaidText.__module__ = "mcp.runtime"


def extra(content, structured, value, alike, tool):
    """Return the parts of content that say what structured content does not: None if
    there are none. value is what the code gets of it. alike counts for each tool the
    answers in a row of which nothing was left."""
    known = alike.get(tool, 0)
    whole = WHOLE if known < SURE else SHORT
    left = parts_left(content, structured, value, whole)
    alike[tool] = 0 if left else known + 1
    return left


def parts_left(content, structured, value, whole):
    left, items = [], value if isinstance(value, list) else ()
    for i, part in enumerate(content):
        if not isinstance(part, dict):
            continue
        if part.get("type") != "text":
            left.append(part)
            continue
        text = part.get("text", "")
        if not isinstance(text, str) or not text or text.isspace():
            continue
        item = items[i] if i < len(items) else value  # FastMCP writes a part for each item
        if not (says(text, value, whole) or says(text, item, whole) or says(text, structured, whole) or inside(text, structured)):
            left.append(part)
    return left or None


def says(text, value, whole):
    """Whether text is a value, as JSON or as Python writes it. If it is longer than
    whole, it needs only look like it."""
    if isinstance(value, str) and text.strip() == value.strip():
        return True
    if len(text) > whole:
        first = text.lstrip()[:1]
        if isinstance(value, dict):
            return first == "{" and all(key in text or codec.quote(key)[1:-1] in text for key in list(value)[:KEYS])
        return first == "[" and isinstance(value, list)
    try:
        if codec.decode(text.strip()) == value:
            return True
    except (ValueError, RecursionError):
        pass
    try:
        return text.strip() == str(value)
    except (ValueError, RecursionError):
        return False


def inside(text, value):
    """Whether text is a string somewhere in a value, as far as it is searched."""
    level, seen = [value], 0
    for _ in range(DEEP):
        below = []
        for v in level:
            seen += 1
            if seen > MANY:
                return False
            if isinstance(v, str):
                if v.strip() == text.strip():
                    return True
            elif isinstance(v, dict):
                below += v.values()
            elif isinstance(v, list):
                below += v[:MANY]
        level = below
    return False


def keep(value, content, left, server, tool, session):
    """Return the value with content, all parts of the answer, of which left are not in
    it. Say so once for each tool."""
    text = "\n".join(str(part.get("text", "")) for part in left if part.get("type") == "text") or None
    made = next((made for kind, made in ((dict, SaidObject), (list, SaidList), (str, SaidText)) if isinstance(value, kind)), None)
    if made is SaidObject:
        value = made(value)
        value._text, value._content = text, content
    elif made is not None:
        value = made(value)
        value.text, value.content = text, content
    if session is not None and (server, tool) not in session.extra and len(session.extra) < TOLD:
        session.extra.add((server, tool))
        where = ".text" if text is not None else ".content"
        if made is None or made is SaidObject and where[1:] in value:
            how = "runtime.call_tool(%r, %r, ...) returns all of it" % (server, tool)
        else:
            how = "%s of the value has it" % where
        from .advice import line

        what = "text" if text is not None else ", ".join(sorted({str(part.get("type"))[:50] for part in left}))
        session.streams.say(line("%s of server %r also answered %s that is not in its structured content: %s" % (tool, server, what, how)))
    return value
