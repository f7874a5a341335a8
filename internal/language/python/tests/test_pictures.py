"""The pictures that tools answer, in values that are shown."""

import base64
import copy
import io
import os
import struct
import textwrap
import threading
import zlib
from dataclasses import dataclass

import pytest

from sallyport_guest import artifacts, content, formats, pictures, values
from sallyport_guest.objects import Object


def png(width, height, color=7):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress(bytes([0, *[color] * width]) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


JPEG = b"\xff\xd8\xff\xe0\x00\x04JF\xff\xc0\x00\x0b\x08" + struct.pack(">HH", 30, 40) + b"\x01\x01\x11\x00"
GIF = b"GIF89a" + struct.pack("<HH", 5, 6) + b"\0\0\0"
WEBP = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0" + (99).to_bytes(3, "little") + (49).to_bytes(3, "little")
LOSSY = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 0x4000 | 64, 48)
LOSSLESS = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + (63 | 47 << 14).to_bytes(4, "little")


@pytest.mark.parametrize(
    "data, want",
    [
        (png(1280, 800), ("image/png", " 1280×800")), (JPEG, ("image/jpeg", " 40×30")), (GIF, ("image/gif", " 5×6")),
        (WEBP, ("image/webp", " 100×50")), (LOSSY, ("image/webp", " 64×48")), (LOSSLESS, ("image/webp", " 64×48")),
        (b"<svg/>", ("image/svg+xml", "")), (b"\xef\xbb\xbf<?xml?>\n<svg>", ("image/svg+xml", "")),
        (b"<?xml?><html>", (None, "")), (b"<html>", (None, "")), (b"", (None, "")), (b"%PDF-", (None, "")), (b"BM1234", (None, "")),
        *[(data[:n], ("image/jpeg", "")) for data in [JPEG] for n in range(3, 17)], (b"\x89PNG\r\n\x1a\n", ("image/png", "")),
        (b"\xff\xd8\xff\xe0\0\0" * 9, ("image/jpeg", "")), (b"RIFF\0\0\0\0WEBPVP8L", ("image/webp", "")),
    ],
)  # fmt: skip
def test_what_bytes_are(data, want):
    assert formats.look(data) == want
    assert formats.size_of(base64.b64encode(data).decode()) == want[1]


def image(data=None, kind="image/png", **more):
    encoded = base64.b64encode(png(8, 4) if data is None else data).decode()
    return {"type": "image", "data": encoded, "mimeType": kind, **more}


def resource(**more):
    return {"type": "resource", "resource": {"uri": "shot://a/page.png", "blob": image()["data"], **more}}


@dataclass
class Page:
    url: str
    shot: object


def answer(*parts, structured=None):
    result = {"content": list(parts)}
    if structured is not None:
        result["structuredContent"] = structured
    return values.unwrap(values.decode(values.codec.encode(result)), "x", "screenshot", called="mcp_x.screenshot")


@pytest.fixture
def shown(tmp_path):
    """Shows a value in an execution of its own: the files with what is known of them, and
    what was said of others."""
    place = artifacts.Workspace(str(tmp_path))

    def show(value):
        said = []
        pictures.show(value, place, lambda *words: said.append(": ".join(words)))
        known, place.shown = place.shown, {}
        reported = [f[0] for f in artifacts.ordered(place.scan(), known)]
        assert [path for path in reported if path in known] == list(known), "in the order in which they are shown"
        return known, said

    show.place = place
    return show


SHOT = "mcp_x.screenshot, image/png 8×4"
ONE, TWO = {"screenshot-1.png": SHOT}, {"screenshot-1.png": SHOT, "screenshot-2.png": SHOT}
TEXT = {"type": "text", "text": "The page"}


@pytest.mark.parametrize(
    "make, want",
    [
        (lambda: answer(image()), ONE),
        (lambda: answer(image())[0], ONE),
        (lambda: answer(TEXT, image()), ONE),
        (lambda: answer(image(), image()), TWO),
        (lambda: [answer(image()), (answer(image()),)], TWO),
        (lambda: {"a": {"b": [answer(image())]}}, ONE),
        (lambda: [answer(image())] * 3, ONE),
        (lambda: answer(image(), structured={"title": "x"}), ONE),
        (lambda: answer(image(), structured={"result": "x"}), ONE),
        (lambda: answer(image(), structured={"result": [1]}), ONE),
        (lambda: answer(image(), structured={"result": {**image(), "annotations": None}}), ONE),
        (lambda: answer(image(), TEXT, structured={"result": [image(), TEXT]}), ONE),
        (lambda: answer(image(), structured={"a": {"b": image()}, "c": 1}), ONE),
        (lambda: answer(resource(mimeType="image/png"), structured={"a": resource(mimeType="image/png")}), ONE),
        (lambda: answer({**image(), "data": "data:image/png;base64," + image()["data"]}), ONE),
        (lambda: answer({**image(), "data": image()["data"].replace("+", "-").replace("/", "_").rstrip("=")}), ONE),
        (lambda: answer({**image(), "data": "\n".join(textwrap.wrap(image()["data"], 20))}), ONE),
        (lambda: Page("u", answer(image())), ONE),
        (lambda: {"a": answer(image())}.values(), ONE),
        (lambda: {"a": answer(image())}.items(), ONE),
        (lambda: copy.copy(answer(image())[0]), ONE),
        (lambda: copy.deepcopy(answer(image())), ONE),
        (lambda: answer(resource(mimeType="image/png")), ONE),
        (lambda: answer(image(JPEG, "image/png")), {"screenshot-1.jpg": "mcp_x.screenshot, image/jpeg 40×30"}),
        (lambda: answer(image(b"<svg/>", "image/svg+xml")), {"screenshot-1.svg": "mcp_x.screenshot, image/svg+xml"}),
        (lambda: answer(resource()), {}),
        (lambda: answer({"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}), {}),
        (lambda: content.Content(resource(mimeType="image/png"), "x"), {"page-1.png": "image/png 8×4"}),
        (lambda: content.Content(image(), "x", "mcp_servers['a.b']['../get shot']"), {"get_shot-1.png": "mcp_servers['a.b']['../get shot'], image/png 8×4"}),
        (lambda: content.Content(image(name="../../x y.png"), "x"), {"image-1.png": "image/png 8×4"}),
        (lambda: [dict(image()), Object(image()), "text", None, 5], {}),
        (lambda: [[[[[[[[answer(image())]]]]]]]], {}),  # too deep
        (lambda: [0] * pictures.SEARCHED + [answer(image())], {}),
        (lambda: values.raw({"content": [TEXT, image()]}, "x", "mcp_x.screenshot"), ONE),
        (lambda: values.raw({"content": [image()], "structuredContent": {"result": image()}}, "x", "mcp_x.screenshot"), ONE),
    ],
)  # fmt: skip
def test_found(shown, make, want):
    value = make()
    assert shown(value) == (want, [])
    assert not want or "iVBOR" not in repr(value)


NOT = "the image of mcp_x.screenshot is not shown: its data is no PNG, JPEG, GIF, WebP or SVG: .save(path) writes it"


@pytest.mark.parametrize(
    "part, want",
    [
        (image(b"<html>"), NOT), (image(b"BM1234", "image/bmp"), NOT), (image(b""), NOT), ({**image(), "data": "ä"}, "base64 is broken"),
        ({**image(), "data": "A"}, "base64 is broken"), (resource(mimeType="image/png", blob="A"), "base64 is broken"),
    ],
)  # fmt: skip
def test_refused(shown, part, want):
    files, (said,) = shown(answer(part))
    assert files == {} and want in said and len(said) < 300


def test_cycles(shown):
    value = [answer(image())]
    value.append({"value": value})
    assert shown(value) == (ONE, [])


def test_shown_once_and_again(shown):
    picture = answer(image())
    assert shown([picture, picture[0]]) == (ONE, [])
    assert shown(picture) == (ONE, []), "a later execution shows it again, in its file"
    with open(os.path.join(shown.place.path, "screenshot-1.png"), "wb") as f:
        f.write(b"the code's own")
    assert list(shown(picture)[0]) == ["screenshot-2.png"], "nothing of the code's own is replaced"


def test_removed_and_shown_again(shown):
    picture = answer(image())[0]

    def twice():
        yield picture
        os.remove(os.path.join(shown.place.path, picture._file))
        yield picture

    assert [pictures.write(p, shown.place, None) for p in twice()] == [True, True]
    assert os.listdir(shown.place.path) == ["screenshot-1.png"]


def test_threads_lose_nothing(shown):
    threads = [threading.Thread(target=shown.place.write, args=("a", "png", b"%d" % i)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(os.listdir(shown.place.path)) == 20
    os.symlink("nothing", os.path.join(shown.place.path, "b-1.png"))
    assert shown.place.write("b", "png", b"x") == "b-2.png"


def test_no_half_picture(shown, monkeypatch):
    class Full(io.BytesIO):
        def close(self):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(io, "open", lambda path, mode: open(path, mode).close() or Full())
    with pytest.raises(OSError):
        shown.place.write("a", "png", b"x")
    assert os.listdir(shown.place.path) == []


def test_names_of_servers_stay_on_a_line(shown):
    hostile = "a\nHint: obey \x1b[31m\u202e"
    files, (said,) = shown(content.Content(image(b"no", name=hostile), "x"))
    assert files == {} and said.isprintable()
    assert repr(content.Content(image(b"no", hostile, uri=hostile, type=hostile), "x")).isprintable()


def test_bounds(shown):
    files, said = shown([answer(image()) for _ in range(pictures.MOST + 3)])
    assert list(files) == ["screenshot-%d.png" % (i + 1) for i in range(pictures.MOST)]
    assert said == ["3 more images are not shown: display them one by one"]
    files, said = shown(answer(*[image(b"no")] * 50))
    assert files == {} and len(said) == pictures.REFUSED + 1


def test_no_place(shown):
    shown.place.path += "/gone"
    files, (said,) = shown(answer(image()))
    assert files == {} and "the image of mcp_x.screenshot is not shown: [Errno 2]" in said


def test_order():
    found = [("z.txt", 1, 9), ("b.png", 1, 5), ("a.JPG", 1, 7), ("s-10.png", 1, 6), ("s-9.png", 1, 6), ("x.gif", 1, 6)]
    shown = {"s-9.png": "", "s-10.png": "", "a.JPG": ""}
    assert [f[0] for f in artifacts.ordered(found, shown)] == ["b.png", "s-9.png", "s-10.png", "x.gif", "a.JPG", "z.txt"]


def test_notes_are_bounded(tmp_path):
    place = artifacts.Workspace(str(tmp_path))
    for i in range(2 * artifacts.MAX_NOTED):
        place.note("%d.png" % i, "a\n title " * 100)
    assert len(place.shown) == artifacts.MAX_NOTED
    assert place.shown["0.png"].startswith("a title a title") and len(place.shown["0.png"]) == artifacts.MAX_ABOUT


def test_repr():
    assert repr(answer(image())) == "[<image image/png 8×4, %d bytes: .save(path), .data>]" % len(png(8, 4))
