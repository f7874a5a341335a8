"""Short forms of the long values that a last expression has: with their types,
their lengths and their nesting, and without what no reader can use."""

from . import BUILTINS as __builtins__

import re
from _collections import OrderedDict, defaultdict, deque

from .interrupt import call

ROOM = 4000  # characters of a short form, about
DEPTH = 6

# How many items of a container, and how many characters of a string, are shown:
# the first pair whose result fits.
SHARES = ((50, 1000), (20, 400), (10, 150), (5, 80), (3, 40), (2, 20), (1, 20))

NAMED = (OrderedDict, defaultdict, deque, type({}.keys()), type({}.values()), type({}.items()))  # which name their type
HUGE = 14000  # bits of an integer that Python refuses to print, or is slow to
SAMPLE = 1 << 16  # characters of a string that are looked at

BLOB = re.compile(r"[A-Za-z0-9+/_-]{200,}={0,2}")
MAGIC = (
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"RIFF", "RIFF"),
)


def shortened(value, text):
    """The text that stands for a value, whose repr is text, or None if that is long for
    certain."""
    try:
        if type(value) is int and value.bit_length() > HUGE:
            return number(value)
        if not plain(value) and type(value) not in (str, bytes, bytearray):
            if text is None:
                text = call(repr, value)
            return middle(text, "%s, %s characters" % (name(value), thousands(len(text))))
        short = whole = form(value, ROOM, ROOM, 0, [0])
        if whole is not None and len(whole) <= ROOM:
            return whole
        for items, characters in SHARES:
            short = form(value, items, characters, 0, [0])
            if short is not None and len(short) <= ROOM:
                break
        if short is None:
            short = text or name(value)
        if len(short) > 2 * ROOM:
            short = middle(short, "")
        return "%s\n(shortened: %s; all of it is in _)" % (short, described(value))
    except Exception:  # an object that defends itself
        if text is None:
            return "<%s>" % name(value)
        return middle(text, "%s characters" % thousands(len(text)))


def plain(value):
    """Whether a value is a container that prints as Python's own do."""
    kind = type(value)
    return kind in NAMED or any(kind.__repr__ is own.__repr__ and isinstance(value, own) for own in (dict, list, tuple, set, frozenset))


def form(value, items, characters, depth, seen):
    """The form of a value, or None if that has more parts than fit into ROOM: a value
    may be huge, or contain itself many times. seen counts the parts."""
    seen[0] += 1
    if seen[0] > ROOM:
        return None
    kind = type(value)
    if kind is str:
        return string(value, characters)
    if kind in (bytes, bytearray):
        return binary(value, characters)
    if kind is int and value.bit_length() > HUGE:
        return number(value)
    if not plain(value):
        text = call(repr, value)
        return middle(text, name(value), characters) if len(text) > max(characters, 40) * 2 else text
    opening, closing = brackets(value)
    if not value:
        return repr(value)
    if depth == DEPTH:
        return "%s… %s items%s" % (opening, thousands(len(value)), closing)
    parts = []
    source = value.items() if isinstance(value, dict) else value
    for i, item in enumerate(source):
        if i == items and len(value) > items + 1:
            parts.append("… %s more" % thousands(len(value) - items))
            break
        if isinstance(value, dict):
            parts.append("%s: %s" % (form(item[0], items, characters, DEPTH, seen), form(item[1], items, characters, depth + 1, seen)))
        else:
            parts.append(form(item, items, characters, depth + 1, seen))
        if seen[0] > ROOM:
            return None
    if isinstance(value, tuple) and len(parts) == 1:
        parts.append("")
        return "(%s,)" % parts[0]
    return opening + ", ".join(parts) + closing


def brackets(value):
    if type(value) in NAMED:
        pair = "{}" if isinstance(value, dict) else "[]"
        first = "…, " if type(value) is defaultdict else ""
        return "%s(%s%s" % (name(value), first, pair[0]), pair[1] + ")"
    for own, pair in ((dict, "{}"), (list, "[]"), (tuple, "()"), (set, "{}")):
        if isinstance(value, own):
            return pair
    return "frozenset({", "})"


def string(value, characters):
    found = blob(value)
    if found:
        return found
    if len(value) <= characters + 20:
        return repr(value)
    return "%r… (%s characters)" % (value[:characters], thousands(len(value)))


def number(value):
    return "<int of about %s digits: hex() shows it>" % thousands(value.bit_length() * 30103 // 100000 + 1)


def binary(value, characters):
    kind = magic(bytes(value[:16]))
    if kind and len(value) > 100:
        return "<%s, %s bytes>" % (kind, thousands(len(value)))
    if len(value) <= characters + 20:
        return repr(value)
    return "%r… (%s bytes)" % (value[:characters], thousands(len(value)))


def blob(value):
    """What to call a string that is base64, perhaps as a data URL; None for others."""
    start = 0
    if value.startswith("data:"):
        start = value.find(",", 0, 200) + 1
    size = len(value) - start
    text = value[start:] if size <= 2 * SAMPLE else value[start : start + SAMPLE] + value[-SAMPLE:].lstrip("=")
    if len(text) < 200 or "\n" in text[:80] and len(text) < 400:
        return None
    packed = text.replace("\n", "") if "\n" in text[:100] else text
    if not BLOB.fullmatch(packed) or packed.isalpha() and packed.islower() or packed.isdigit() or len(set(packed[:200])) < 20:
        return None
    from base64 import b64decode

    try:
        begin = b64decode(packed[:24].replace("-", "+").replace("_", "/"))
    except ValueError:
        return None
    return "<base64%s, %s bytes>" % (", " + magic(begin) if magic(begin) else "", thousands((size - len(text) + len(packed)) * 3 // 4 - packed[-2:].count("=")))


def magic(begin):
    return next((kind for mark, kind in MAGIC if begin.startswith(mark)), "")


def described(value):
    unit = "characters" if isinstance(value, str) else "bytes" if isinstance(value, (bytes, bytearray)) else "items"
    return "%s of %s %s" % (name(value), thousands(len(value)), unit)


def name(value):
    return type(value).__name__[:100]


def middle(text, what, room=ROOM):
    """Text without its middle."""
    if len(text) <= room + 40:
        return text
    head = room * 3 // 5
    tail = room - head
    return "%s\n[… %s characters left out%s …]\n%s" % (text[:head], thousands(len(text) - head - tail), " of a " + what if what else "", text[-tail:])


def thousands(n):
    return format(n, ",")
