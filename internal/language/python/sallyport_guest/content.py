"""What a result carries besides text: images, audio, resources and links."""

from . import BUILTINS as __builtins__

from .errors import MCPError
from .objects import Object

DEEP = 6  # containers in one another in which parts are looked for

EXTENSIONS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/mpeg": ".mp3",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "text/plain": ".txt",
    "text/markdown": ".md",
    "text/html": ".html",
    "text/csv": ".csv",
}


class Content(Object):
    """An image, a piece of audio, a resource or a link to one.

    .data are its bytes, .text is its text if it is text. .mime_type, .uri and .name are
    what the server calls it (None if it does not say), .save(path) writes it to a file.
    It is also the dict that the server sent, base64 included. Where it is shown, an
    image is a picture of the answer: display(image), or as the last expression.
    """

    __slots__ = ("_server", "_called", "_file")

    def __init__(self, item, server, called=None):
        super().__init__(item)
        self._server = server
        self._called = called  # how code writes the tool that answered it
        self._file = None  # in the workspace, once it was shown

    @property
    def _body(self):
        resource = self.get("resource")
        return resource if self.get("type") == "resource" and isinstance(resource, dict) else self

    def _said(self, key):
        value = self._body.get(key)
        return value if isinstance(value, str) and value else None

    @property
    def mime_type(self):
        return self._said("mimeType")

    @property
    def uri(self):
        return self._said("uri")

    @property
    def name(self):
        name = self._said("name")
        if name is None and self.uri is not None:
            name = self.uri.partition("#")[0].partition("?")[0].rstrip("/").rpartition("/")[2] or None
        return name

    @property
    def _encoded(self):
        """Return its base64 data, or None."""
        body = self._body
        for key in ("blob", "data"):
            if isinstance(body.get(key), str):
                return body[key]
        return None

    @property
    def text(self):
        text = self._body.get("text")
        if isinstance(text, str):
            return text
        kind = self.mime_type or ""
        if self._encoded is not None and (kind.startswith("text/") or kind == "application/json"):
            return self.data.decode("utf-8", "replace")
        return None

    @property
    def data(self):
        encoded = self._encoded
        if encoded is not None:
            from binascii import a2b_base64

            try:
                return a2b_base64(standard(encoded))
            except ValueError as e:  # also of characters that are not ASCII
                raise MCPError("the server's base64 is broken: %s" % e, kind="server", server=self._server) from None
        text = self._body.get("text")
        if isinstance(text, str):
            return text.encode("utf-8", "surrogatepass")
        if self.uri is not None:
            raise MCPError(
                "this is a link: read it with (await runtime.read_resource(%r, %r))[0]" % (self._server, self.uri),
                kind="invalid",
                server=self._server,
            )
        raise MCPError("it contains no data", kind="server", server=self._server)

    def save(self, path):
        """Write it to a file, or into a directory under its own name. Return the file's
        path."""
        from os import fspath, makedirs
        from os.path import dirname, isdir, join

        data = self.data
        path = fspath(path)
        if isdir(path):
            path = join(path, self._file_name())
        elif dirname(path):
            makedirs(dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def _file_name(self):
        name = "".join(c if c.isalnum() or c in "-_. " else "_" for c in self.name or "").strip(". ")[:100]
        name = name or str(self.get("type", "resource"))
        return name if "." in name else name + EXTENSIONS.get(self.mime_type, ".bin" if self.text is None else ".txt")

    def __repr__(self):
        what = [plain(self.get("type", "resource"))]
        if self.mime_type is not None:
            what.append(plain(self.mime_type) + self._size())
        if self.uri is not None:
            what.append(short(self.uri))
        elif self.name is not None:
            what.append(short(self.name))
        body = self._body
        if self._encoded is not None:
            size, ways = "%d bytes" % decoded_size(standard(self._encoded)), ".save(path), .data"
        elif isinstance(body.get("text"), str):
            size, ways = "%d characters" % len(body["text"]), ".text, .save(path)"
        elif self.uri is not None:
            size, ways = "not read", "await runtime.read_resource(%r, %s)" % (self._server, short(self.uri))
        else:
            size, ways = "empty", ".keys()"
        return "<%s, %s: %s>" % (" ".join(what), size, ways)

    def _size(self):
        """The size of a picture, for people."""
        if self._encoded is None or not self.mime_type.startswith("image/"):
            return ""
        from .formats import HEAD, size_of

        return size_of(standard(self._encoded[: HEAD + 100]))

    def __dir__(self):
        return [*super().__dir__(), "data", "text", "mime_type", "uri", "name", "save"]

    def copy(self):
        return Content(self, self._server, self._called)

    __copy__ = copy

    def __deepcopy__(self, memo):
        from copy import deepcopy

        return Content(deepcopy(dict(self), memo), self._server, self._called)


Content.__module__ = "mcp.runtime"


def standard(encoded):
    """Return base64 without what some servers add or leave out: the beginning of a data
    address, the alphabet of addresses, no padding."""
    if encoded[:5].lower() == "data:":
        encoded = encoded.partition(",")[2]
    if "-" in encoded or "_" in encoded:
        encoded = encoded.replace("-", "+").replace("_", "/")
    return encoded + "=" * (-len(encoded) % 4) if len(encoded) % 4 else encoded


def plain(value):
    """Return what a server calls something, on one line."""
    text = str(value)[:100]
    return text if text.isprintable() else repr(text)


def decoded_size(text):
    return max(0, len(text) * 3 // 4 - text[-2:].count("="))


def short(text):
    return repr(text if len(text) <= 100 else text[:97] + "...")


def placed(value, content):
    """Replace the parts that a structured value repeats from content by those of content.
    Return the value, and the parts that it has."""
    data = {part._encoded: part for part in content if isinstance(part, Content) and part._encoded}
    have = []

    def place(item, depth):
        if isinstance(item, dict):
            part = data.get(Content(item, None)._encoded)
            if part is not None and part.get("type") == item.get("type"):
                have.append(part)
                part.update({**item, **part})  # it may have null members
                return part
        if isinstance(item, (dict, list)) and depth < DEEP:
            for key in list(item) if isinstance(item, dict) else range(len(item)):
                item[key] = place(item[key], depth + 1)
        return item

    return (place(value, 0) if data else value), have


def contents(items, server, called):
    """Return the content of a result, with everything but text as Content."""
    return [Content(item, server, called) if isinstance(item, dict) and item.get("type") != "text" else item for item in items]
