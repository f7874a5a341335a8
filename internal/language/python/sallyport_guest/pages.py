"""Values that draw themselves in a browser: plotly, altair and bokeh. Each becomes a page
that needs no network, and a picture where the library can make one by itself."""

from . import BUILTINS as __builtins__

import os
import re
import sys

PACKED = 200_000  # characters of a page that is packed
PIECE = 100_000  # characters of a script that other pages may have too
KEPT = 4  # such scripts
MOST = 16 << 20  # bytes of a page or picture
ROOM = 2000  # characters of the text of a page
ADDRESSES = 80 << 30  # bytes that the engine for JavaScript in vl_convert reserves, or ends the process
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

HEAD = '<!doctype html>\n<html><head><meta charset="utf-8"><title>%s</title>'
STYLE = """
<style>
body { font: 13px system-ui, sans-serif; margin: 12px; color: #111; background: #fff }
table { border-collapse: collapse }
th, td { padding: 3px 8px; border-bottom: 1px solid #ddd; text-align: right }
thead th { position: sticky; top: 0; background: #fff }
</style></head><body>
"""

# The page that is written replaces this one, and is under the same policy.
UNPACK = """</head><body><noscript>This page needs JavaScript.</noscript><script>
(async () => {
  const bytes = Uint8Array.from(atob("%s"), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const page = await new Response(stream).text();
  document.open(); document.write(page); document.close();
})().catch(e => { document.body.textContent = "This page cannot be unpacked: " + e; });
</script></body></html>
"""


def plotter(value):
    """The function that returns how each form of a plot is made, or None."""
    for module, name, function in PLOTS:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(value, kind):
            return function
    return None


def plotly(value):
    forms = {"html": lambda: value.to_html(include_plotlyjs=True)}
    if has_kaleido():
        forms["png"] = lambda: value.to_image(format="png")
    return forms


def altair(value):
    if installed("vl_convert") is None or addresses() < ADDRESSES:
        return {"html": value.to_html}  # which loads its library

    def picture():
        from io import BytesIO

        file = BytesIO()
        value.save(file, format="png")
        return file.getvalue()

    # With ast, expressions are interpreted: a page without a network may not compile code.
    return {"html": lambda: value.to_html(inline=True, embed_options={"ast": True}), "png": picture}


def bokeh(value):
    from bokeh.embed import file_html
    from bokeh.resources import INLINE

    return {"html": lambda: file_html(value, INLINE, title="bokeh")}


# The class of what a library plots, once code has imported it.
PLOTS = (("plotly.basedatatypes", "BaseFigure", plotly), ("altair", "TopLevelMixin", altair), ("bokeh.models.layouts", "LayoutDOM", bokeh))


def installed(module):
    """The folder of an installed package, or None."""
    from importlib.util import find_spec

    spec = find_spec(module)
    return None if spec is None else os.path.dirname(spec.origin or "")


def addresses():
    """How many bytes of addresses this process can get."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit
    except ImportError:
        return 0
    most = getrlimit(RLIMIT_AS)[1]
    return ADDRESSES if most == RLIM_INFINITY else most


def has_kaleido():
    """Whether kaleido is here with a browser, which older versions contain."""
    folder = installed("kaleido")
    if folder is None:
        return False
    if os.path.isdir(folder + "/executable") or os.environ.get("BROWSER_PATH"):
        return True
    from shutil import which

    return any(map(which, BROWSERS))


def page(html, title):
    """The bytes of a page: of a fragment too, and packed if it is large."""
    from html import escape

    head = HEAD % escape(title)
    if not re.match(r"\s*(<!doctype|<html)", html, re.IGNORECASE):
        html = head + STYLE + html + "\n</body></html>\n"
    if len(html) > PACKED:
        from binascii import b2a_base64

        html = head + UNPACK % b2a_base64(deflated(html), newline=False).decode()
    return html.encode("utf-8", "replace")


kept = {}  # hash and length of a script -> what it is packed


def deflated(html):
    """A raw deflate stream. The libraries' scripts in it are packed once, because that takes
    longer than all the rest."""
    from zlib import DEFLATED, MAX_WBITS, Z_FULL_FLUSH, compressobj

    def pack(text):
        packer = compressobj(6, DEFLATED, -MAX_WBITS)
        return packer.compress(text.encode("utf-8", "replace")) + packer.flush(Z_FULL_FLUSH)

    stream, rest = [], ""
    for part in re.split("(?<=</script>)", html):
        if len(part) < PIECE:
            rest += part
            continue
        key = hash(part), len(part)
        if key not in kept:
            if len(kept) == KEPT:
                kept.clear()
            kept[key] = pack(part)
        stream += pack(rest), kept[key]
        rest = ""
    stream += pack(rest), compressobj(6, DEFLATED, -MAX_WBITS).flush()
    return b"".join(stream)


def text_of(html):
    """The text of HTML, a line for each block and row; None if there is none, or what
    matters is drawn by a script or is another page."""
    from html import unescape

    if re.search(r"(?i)<(script|iframe)\b", html):
        return None

    html = re.sub(r"(?is)<(style|head)\b.*?</\1\s*>|<!--.*?-->", " ", html[: 20 * ROOM])
    html = re.sub(r"\s+", " ", html)
    html = re.sub(r"(?i)</(td|th)\s*>", "  ", html)
    html = re.sub(r"(?i)<(br|hr)\b[^>]*>|</?(p|div|tr|li|ul|ol|h\d|table|pre|section|caption)\b[^>]*>", "\n", html)
    text = unescape(re.sub(r"<[^>]*>", "", html))
    lines = [line.strip() for line in text.split("\n")]
    text = "\n".join(line for line in lines if line)
    if len(text) > ROOM:
        return text[:ROOM] + "…"
    return text or None
