"""Ten notebooks of ordinary cells, in a real IPython kernel and through run_python, with the
same packages: an answer shows what Jupyter shows. The notebooks are in cells/.

What Jupyter shows                    What the answer has
stdout, text/plain                    the text, in the same order
stderr                                the text after `stderr:`
an error                              is_error, and the line `Type: message`
image/png                             a picture of its own, in the same order, after the text
text/html, a chart's JSON             a page: a file .html that the answer names

What is different on purpose is a rule below, with its reason; a rule that no cell needs fails.
"""

import asyncio
import base64
import io
import os
import re
import sys

import numpy
import pytest
from kernel import HERE, cells, kernel, run
from mcp import ClientSession, StdioServerParameters, stdio_client
from PIL import Image

NOTEBOOKS = sorted(p.stem for p in (HERE / "cells").glob("*.py"))
UI = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
CHART = "application/vnd.plotly.v1+json"
# Rule: why. A rule that was needed is in USED.
RULES = {
    "figure": "a picture stands for `<Figure …>`; Jupyter has that text, too, and shows the picture in its place",
    "once": "a figure that is the last expression of the cell that made it is shown once; Jupyter shows it as result and as open figure",
    "saved": "a picture that the code saves is shown; Jupyter shows none",
    "latex": "LaTeX is text, which a model reads; Jupyter makes a picture of it after init_printing()",
    "chart": "a chart's text has its title, for models; Jupyter has none",
    "wrapped": "a collection is in one line, as repr() has it; IPython breaks lines at 79 columns",
    "address": "an object's repr has `object at` and an address; IPython leaves out the words, Pillow the address",
    "blocks": "a table is as wide as it is; pandas breaks it into blocks of 80 columns",
    "styled": "the text of a styled table is the table; Jupyter has the object's address",
    "table": "a large table has as many columns as a model reads well; pandas as many as a terminal is wide",
    "place": "a warning names the cell by its number; IPython by a file",
}
USED = set()


def rule(name):
    assert name in RULES, name
    USED.add(name)


class Wanted:
    """What an answer has to have, by what the kernel has shown."""

    def __init__(self, cell):
        self.texts, self.stderr, self.error, self.pictures, self.pages = [], "", None, [], 0
        for kind, content in cell.outputs:
            if kind == "stdout":
                self.texts.append(content.rstrip("\n"))
            elif kind == "stderr":
                self.stderr += content
            elif kind == "error":
                self.error = "%s: %s" % content
            else:
                self.data(cell, content)

    def data(self, cell, bundle):
        known = {"text/plain", "text/html", "text/latex", "image/png", "image/jpeg", CHART}
        assert set(bundle) <= known, "%s: no rule for %s" % (cell.title, set(bundle) - known)
        text = bundle.get("text/plain", "")
        if "text/latex" in bundle and "image/png" in bundle:
            rule("latex")
        elif "image/png" in bundle:
            picture = base64.b64decode(bundle["image/png"])
            if picture in self.pictures:
                rule("once")
            else:
                self.pictures.append(picture)
        if text.startswith("<Figure size"):
            rule("figure")
            text = ""
        if CHART in bundle:
            rule("chart")
            title = bundle[CHART]["layout"].get("title", {}).get("text")
            text = "<Figure: %s>" % title if title else "<Figure>"
        self.pages += "text/html" in bundle or CHART in bundle
        if text:
            self.texts.append(text)


class Got:
    """What an answer has."""

    def __init__(self, result):
        first, *rest = result.content
        lines = first.text.split("\n")
        self.error = result.is_error
        if self.error:
            assert lines[:2] == ["status: error", "exit: 1"], lines
            del lines[:2]
        self.files = []
        at = next((n for n, line in enumerate(lines) if line.startswith("files: ")), None)
        if at is not None:
            assert at == len(lines) - 1, "text after the files: %s" % lines
            self.files = re.findall(r"(\S+) \(\d+ bytes\)", lines.pop())
        at = lines.index("stderr:") if "stderr:" in lines else len(lines)
        self.text, self.stderr = "\n".join(lines[:at]), "\n".join(lines[at + 1 :])
        if self.text == "Success (no output)":
            self.text = ""
        self.pages = [f for f in self.files if f.endswith(".html")]
        self.pictures, self.names = [], []
        for block, after in zip(rest, rest[1:] + [None]):
            if block.type == "image":
                assert block.mime_type == "image/png", block.mime_type
                self.pictures.append(base64.b64decode(block.data))
            elif block.type == "text":
                assert after is not None and after.type == "image", "text that names no picture: " + block.text
                self.names.append(re.match(r"[\w.-]+", block.text)[0])
            else:
                assert block.type == "resource_link", block.type


def judge(cell, got):
    """What is wrong about an answer."""
    want = Wanted(cell)
    if bool(want.error) != got.error:
        yield "error: got %s, want %s\n%s" % (got.error, want.error, got.stderr)
    elif want.error and want.error not in got.stderr:
        yield "error: got\n%s\nwant %s" % (got.stderr, want.error)
    if not want.error and not same_warnings(got.stderr, want.stderr):
        yield "stderr: got\n%s\nwant\n%s" % (got.stderr, want.stderr)
    text = got.text
    if want.pictures:
        text = re.sub(r"^<Figure size .*>\n?", "", text, flags=re.M).rstrip("\n")
    if not same_text(text, want.texts):
        yield "text: got\n%s\nwant\n%s" % (text, "\n".join(want.texts))
    pictures = got.pictures
    if saved := [n for n in got.names if not n.startswith("figure-") and n in cell.code]:
        # Those of the code's own are after those that are shown, unless they are the same.
        if len(pictures) > len(want.pictures):
            rule("saved")
            pictures = [p for n, p in zip(got.names, pictures) if n not in saved]
    if len(pictures) != len(want.pictures):
        yield "pictures: got %s, want %d" % (got.names, len(want.pictures))
    for n, picture in enumerate(pictures):
        if not pixels(picture).std() > 0.005:
            yield "picture %d is blank" % n
        alike = [likeness(picture, p) for p in want.pictures]
        if alike and (alike[n] < max(alike) or alike[n] < 0.6):
            yield "picture %d: likeness to Jupyter's %s" % (n, alike)
    if len(got.pages) != want.pages:
        yield "pages: got %s, want %d" % (got.pages, want.pages)


def same_warnings(got, want):
    if got.strip() == want.strip():
        return True
    rule("place")
    place = r"^(<cell \d+>|/\S+/\d+\.py):(?=\d+: \w+Warning)"
    return re.sub(place, "CELL:", got.strip(), flags=re.M) == re.sub(place, "CELL:", want.strip(), flags=re.M)


def same_text(got, texts):
    """Whether a text is the texts that the kernel has shown, but for the rules."""
    *before, last = [re.sub(r"(?<=Time:)( +)\d\d:\d\d:\d\d", r"\1now", t).rstrip("\n") for t in texts or [""]]
    got = re.sub(r"(?<=Time:)( +)\d\d:\d\d:\d\d", r"\1now", got).rstrip("\n")
    want = "\n".join([*before, last])
    if got == want:
        return True
    plain = re.sub(r"( object)? at 0x[0-9A-Fa-f]+>", ">", got)
    if plain != got:
        rule("address")
    if plain == re.sub(r" at 0x[0-9A-Fa-f]+>", ">", want):
        return True
    begin = "".join(t + "\n" for t in before)
    if not got.startswith(begin):
        return False
    got = got[len(begin) :]
    if last[:1] in "[({" and "".join(got.split()) == "".join(last.split()):
        rule("wrapped")
        return True
    if last.startswith("<pandas.io.formats.style.Styler at 0x"):
        rule("styled")
        return len(got.split("\n")) > 1
    if "\\\n" in last and not SHAPE.search(last):
        rule("blocks")
        return rows(last) == rows(got)
    if SHAPE.search(last) and SHAPE.search(got):
        rule("table")
        # The same shape, and of the first and last rows what both show of them.
        shapes = [SHAPE.search(text)[0] for text in (last, got)]
        (head, first, *_, end), (head2, first2, *_, end2) = rows(SHAPE.sub("", last)), rows(SHAPE.sub("", got))
        return shapes[0] == shapes[1] and all(len(a & b) >= 0.8 * min(len(a), len(b)) for a, b in ((head, head2), (first, first2), (end, end2)))
    return False


SHAPE = re.compile(r"\n\n\[\d+ rows x \d+ columns\]$")


def rows(table):
    """The words of each row of a table, which may be in blocks of columns."""
    blocks = [block.split("\n") for block in table.replace("\\\n", "\n").split("\n\n")]
    return [set(" ".join(row).split()) for row in zip(*blocks)]


def pixels(data):
    """A picture in grey, 48×48, without its margins: they differ by how it was saved."""
    image = Image.open(io.BytesIO(data)).convert("RGBA")
    image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("L")
    inked = Image.eval(image, lambda v: 255 if v < 250 else 0).getbbox()
    return numpy.asarray(image.crop(inked).resize((48, 48), Image.Resampling.BOX), float) / 255


def likeness(a, b):
    """How alike two pictures are: 1 are those of the same pixels."""
    if a == b:
        return 1.0
    return float(numpy.corrcoef(pixels(a).ravel(), pixels(b).ravel())[0, 1])


def answers(sallyport, environment, notebook):
    parameters = StdioServerParameters(
        command=sallyport,
        args=["serve", "--set", "python=" + sys.executable, "--set", "timeouts.default=2m", "--set", "limits.memory=2g"],
        env=environment,
    )

    async def main():
        async with stdio_client(parameters) as (read, write), ClientSession(read, write, extensions=UI) as session:
            await session.initialize()
            return [Got(await session.call_tool("run_python", {"code": cell.code})) for cell in notebook]

    return asyncio.run(asyncio.wait_for(main(), 600))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook(name, sallyport, environment, tmp_path):
    notebook = cells(name)
    assert len(notebook) >= 10
    with kernel(tmp_path, os.environ | environment | {"IPYTHONDIR": str(tmp_path / "ipython")}) as client:
        for cell in notebook:
            run(client, cell)
    wrong = []
    for cell, got in zip(notebook, answers(sallyport, environment, notebook)):
        if problems := list(judge(cell, got)):
            wrong.append("%s\n    %s\n  %s" % (cell.title, cell.code.replace("\n", "\n    "), "\n  ".join(problems)))
    assert not wrong, "%d of %d cells\n" % (len(wrong), len(notebook)) + "\n".join(wrong)


def test_rules(request):
    """Every difference that is on purpose is one that a cell has."""
    ran = {item.callspec.params["name"] for item in request.session.items if item.name.startswith("test_notebook")}
    if ran == set(NOTEBOOKS):
        assert USED == set(RULES), "not needed: %s" % (set(RULES) - USED)
