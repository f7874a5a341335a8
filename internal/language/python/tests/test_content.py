"""Images, resources and links as user code has them."""

import base64
import json
import pickle

import pytest

from sallyport_guest import features, values
from sallyport_guest.content import Content
from sallyport_guest.errors import MCPError

PIXELS = bytes(range(256)) * 40
PNG = {"type": "image", "data": base64.b64encode(PIXELS).decode(), "mimeType": "image/png"}
TEXT = {"type": "resource", "resource": {"uri": "file:///a/notes.md?x#y", "mimeType": "text/markdown", "text": "# ä"}}
BLOB = {"type": "resource", "resource": {"uri": "db://x/", "blob": base64.b64encode(b"{}").decode(), "mimeType": "application/json"}}
LINK = {"type": "resource_link", "uri": "file:///b.txt", "name": "b", "mimeType": "text/plain"}


def of(item):
    (found,) = values.unwrap({"content": [item]}, "srv", "tool")
    return found


def test_image():
    image = of(PNG)
    assert image.data == PIXELS and image["data"] == PNG["data"]
    assert (image.mime_type, image.mimeType, image.type) == ("image/png", "image/png", "image")
    assert (image.text, image.uri, image.name) == (None, None, None)
    assert repr(image) == "<image image/png, 10240 bytes: .save(path), .data>"
    assert repr([image]) == "[%r]" % image and PNG["data"][:20] not in str(image)
    assert json.loads(json.dumps(image)) == PNG == image
    assert pickle.loads(pickle.dumps(image)) == PNG
    assert isinstance(image.copy(), Content)


def test_save(tmp_path):
    image = of(PNG)
    assert image.save(str(tmp_path / "deep/er/x.png")) == str(tmp_path / "deep/er/x.png")
    assert (tmp_path / "deep/er/x.png").read_bytes() == PIXELS
    assert image.save(tmp_path) == str(tmp_path / "image.png")
    assert of(TEXT).save(tmp_path) == str(tmp_path / "notes.md")
    assert (tmp_path / "notes.md").read_text("utf-8") == "# ä"
    evil = of({"type": "resource", "resource": {"uri": "file:///x", "name": "../../etc/x", "text": "t"}})
    assert evil.save(tmp_path).startswith(str(tmp_path)) and "/" not in evil.save(tmp_path)[len(str(tmp_path)) + 1 :]
    for name in ("..", ".", "", "\x00"):
        saved = of({"type": "resource", "resource": {"name": name, "blob": "AA=="}}).save(tmp_path)
        assert saved.startswith(str(tmp_path) + "/")


def test_resources():
    text, blob = of(TEXT), of(BLOB)
    assert (text.text, text.data, text.uri, text.name, text.mime_type) == (
        "# ä", "# ä".encode(), "file:///a/notes.md?x#y", "notes.md", "text/markdown",
    )  # fmt: skip
    assert text.resource["text"] == "# ä"
    assert repr(text) == "<resource text/markdown 'file:///a/notes.md?x#y', 3 characters: .text, .save(path)>"
    assert (blob.text, blob.data, blob.name) == ("{}", b"{}", "x")


def test_link():
    link = of(LINK)
    assert (link.uri, link.name, link.text) == ("file:///b.txt", "b", None)
    assert "await runtime.read_resource('srv', 'file:///b.txt')" in repr(link)
    with pytest.raises(MCPError, match=r"await runtime.read_resource\('srv', 'file:///b.txt'\)"):
        link.save("x")


@pytest.mark.parametrize(
    "item",
    [
        {"type": "image"}, {"type": "image", "data": 3}, {"type": "image", "data": "A"}, {"type": "image", "data": "ä"},
        {"type": "resource", "resource": "x"}, {"type": "resource"}, {}, {"type": 7, "mimeType": 7, "uri": 7},
    ],
)  # fmt: skip
def test_hostile(item):
    content = of(item)
    assert len(repr(content)) < 300
    assert content == item and content.uri is None
    with pytest.raises(MCPError):
        content.data


def test_long_names_are_cut():
    assert len(repr(of({"type": "x" * 5, "mimeType": "y" * 10_000, "uri": "z" * 10_000}))) < 500


def test_attributes():
    image = of(PNG)
    assert {"save", "data", "mimeType", "mime_type"} <= set(dir(image))
    with pytest.raises(AttributeError, match="there is no 'datta'; there are: type, data, mimeType"):
        image.datta


def test_text_beside_an_image():
    found = values.unwrap({"content": [{"type": "text", "text": "see"}, PNG]}, "s", "t")
    assert found[0] == {"type": "text", "text": "see"} and found[1].data == PIXELS


def test_raw():
    result = values.raw({"content": [dict(PNG)], "isError": False}, "s")
    assert result == {"content": [PNG], "isError": False} and result["content"][0].data == PIXELS
    assert values.raw({"content": 3}, "s") == {"content": 3}
    assert values.raw([1], "s") == [1]


@pytest.mark.parametrize(
    "contents, texts",
    [
        ("T", ["T"]),
        ({"uri": "u://1", "text": "T"}, ["T"]),
        (["T", {"uri": "u://1", "text": "U"}, 7], ["T", "U"]),
        (None, []),
    ],
    ids=repr,
)
def test_resources_without_a_list(contents, texts):
    found = features.Reading("srv", "u://1").value({"contents": contents})
    assert [(item.text, item.uri) for item in found] == [(text, "u://1") for text in texts]


@pytest.mark.parametrize("content", ["T", {"type": "text", "text": "T"}], ids=repr)
def test_prompts_without_a_list(content):
    result = values.decode(json.dumps({"messages": {"role": "user", "content": content}}))
    messages = features.Prompting("srv", "p", None).value(result)["messages"]
    assert [message["content"]["text"] for message in messages] == ["T"]
    assert messages[0].content.text == "T"
