"""What the bytes of a picture say: its type and its size."""

from . import BUILTINS as __builtins__

HEAD = 1 << 17  # characters of base64 in which a JPEG's size is looked for


def look(data):
    """Return the type that the first bytes of a picture show, None for anything else,
    and its size for people."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png", times(data[16:20], data[20:24], "big")
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg", jpeg(data)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif", times(data[6:8], data[8:10], "little")
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp", webp(data)
    begin = data[:1000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if begin.startswith(b"<svg") or begin.startswith((b"<?xml", b"<!--", b"<!DOCTYPE svg")) and b"<svg" in data[:10000]:
        return "image/svg+xml", ""
    return None, ""


def times(width, height, order, mask=-1, add=0):
    if not width or not height:
        return ""
    return " %d×%d" % tuple((int.from_bytes(n, order) & mask) + add for n in (width, height))


def jpeg(data):
    """The size that the first frame of a JPEG states."""
    i = 2
    while i + 9 <= len(data) and data[i] == 0xFF:
        mark = data[i + 1]
        if 0xC0 <= mark <= 0xCF and mark not in (0xC4, 0xC8, 0xCC):
            return times(data[i + 7 : i + 9], data[i + 5 : i + 7], "big")
        i += 2 + int.from_bytes(data[i + 2 : i + 4], "big")
    return ""


def webp(data):
    form = data[12:16]
    if form == b"VP8X":
        return times(data[24:27], data[27:30], "little", add=1)
    if form == b"VP8 ":
        return times(data[26:28], data[28:30], "little", mask=0x3FFF)
    if form == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return " %d×%d" % ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    return ""


def size_of(encoded):
    """The size of a picture in base64, for people."""
    from binascii import a2b_base64

    begin = encoded[: HEAD if encoded.startswith("/9j/") else 100]
    try:
        return look(a2b_base64(begin[: len(begin) & ~3]))[1]
    except ValueError:
        return ""
