"""Pictures in what servers answer: found in a value that is shown, and written to files
as figures are. What they are is read from their bytes: a server may say anything."""

from . import BUILTINS as __builtins__

import os
from itertools import islice

from .content import Content, short
from .errors import MCPError
from .formats import look
from .said import Said

SEARCHED = 1000  # values that are searched for pictures
DEEP = 6  # containers in one another
MOST = 50  # pictures of one value that become files
REFUSED = 3  # pictures of one value of which a message says why they are not shown
STEM = 60
VIEWS = (type({}.values()), type({}.items()))

SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg"}


def show(value, place, told):
    """Write the pictures in a value to files in place, the workspace. told(what, why) says
    what is not shown."""
    shown = refused = more = 0
    for content in found(value):
        if shown == MOST or refused == REFUSED:
            more += 1
        elif write(content, place, told):
            shown += 1
        else:
            refused += 1
    if more:
        told("%d more images are not shown" % more, "display them one by one")


def found(value):
    """Yield the pictures in a value, in their order, as far as it is searched."""
    pending, left, seen = [(value, 0)], SEARCHED, set()
    while pending and left:
        value, depth = pending.pop()
        left -= 1
        if isinstance(value, Content):
            if pictured(value) and id(value) not in seen:
                seen.add(id(value))
                yield value
        elif depth < DEEP:
            parts = [] if value is None else list(islice(members(value), left))
            pending += [(part, depth + 1) for part in reversed(parts)]


def members(value):
    """Yield the members of a container, and what a tool said besides a value."""
    if isinstance(value, dict):
        yield from dict.values(value)
    elif isinstance(value, (list, tuple)):
        yield from (list if isinstance(value, list) else tuple).__iter__(value)
    elif isinstance(value, VIEWS):
        yield from value
    elif hasattr(type(value), "__dataclass_fields__"):
        yield from (getattr(value, name, None) for name in value.__dataclass_fields__)
    if isinstance(value, Said):
        yield value._content if isinstance(value, dict) else value.content


def pictured(content):
    """Whether a server calls something a picture."""
    return content._encoded is not None and (content.get("type") == "image" or (content.mime_type or "").startswith("image/"))


def write(content, place, told):
    """Write a picture to a file, or touch the one that it has: what is new is shown.
    Report whether there is one."""
    try:
        data = content.data
        kind, size = look(data)
        if kind is None:
            raise ValueError("its data is no PNG, JPEG, GIF, WebP or SVG: .save(path) writes it")
        if not same(place, content._file, data):
            content._file = place.write(stem(content), SUFFIXES[kind], data)
        elif content._file in place.shown:
            return True  # in this execution
        else:
            os.utime(place.path + "/" + content._file)
    except (MCPError, ValueError, OSError) as e:
        origin = content._called or (short(content.name) if content.name else "a server")
        told("the image of %s is not shown" % origin[:200], str(e)[:500])
        return False
    place.note(content._file, ", ".join(filter(None, [content._called, kind + size])))
    return True


def same(place, file, data):
    """Whether a picture is in its file as it was written."""
    if file is None:
        return False
    try:
        with open(place.path + "/" + file, "rb") as f:
            return f.read(len(data) + 1) == data
    except OSError:
        return False


def stem(content):
    """The beginning of the file's name: that of the tool, or of the resource."""
    name = content._called.rpartition(".")[2] if content._called else (content.name or "").partition(".")[0]
    return "".join(c if c.isalnum() or c in "-_" else " " for c in name[:STEM]).strip(" _-").replace(" ", "_") or "image"
