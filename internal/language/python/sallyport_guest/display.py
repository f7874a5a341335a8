"""What values show besides their repr: pictures, HTML and Markdown, as in a notebook.

Pictures and HTML become files in the workspace, which the result contains. The
methods that values have for that are IPython's: _repr_png_, _repr_mimebundle_ and so
on. https://ipython.readthedocs.io/en/stable/config/integrating.html
"""

from . import BUILTINS as __builtins__

import os
import sys

from . import execute

PICTURES = (("image/png", "_repr_png_", "png"), ("image/jpeg", "_repr_jpeg_", "jpg"), ("image/svg+xml", "_repr_svg_", "svg"))
MARK = "_sallyport_shown"  # of a figure that was written to a file


def display(*values, **options):
    """Show values, as the last expression of a cell is shown."""
    for value in values:
        if value is not None:
            execute.displayhook(value, keep=False)


def show(value, place):
    """Show what a value has besides its repr, as files in place, the workspace. Return
    the text to print instead of the repr, or None."""
    if "sallyport_guest.content" in sys.modules:
        from . import pictures

        try:
            pictures.show(value, place, told)
        except Exception as e:  # a container that changes meanwhile
            told("images in a value of type %s could not be shown" % type(value).__name__, e)
    figure = figure_of(value)
    if figure is not None:
        if not seen(figure):
            save_figure(figure, place)
        close(figure)
        return None
    if isinstance(value, (list, tuple, type)) or type(value) is dict:
        return None
    try:
        bundle = bundle_of(value)
        for kind, method, suffix in PICTURES:
            data = bundle.get(kind) or call(value, method)
            if data:
                save(place, suffix, content(data, suffix))
                return brief(value)
        if has_html(value):
            data = page(value) or bundle.get("text/html") or call(value, "_repr_html_")
            if data:
                save(place, "html", content(data, "html"))
                return brief(value)
        text = bundle.get("text/markdown") or call(value, "_repr_markdown_")
        return text if isinstance(text, str) else None
    except Exception as e:
        told("%s could not be shown" % type(value).__name__, e)
        return None


def told(what, why):
    """Say that something is not shown, and why."""
    sys.stderr.write("sallyport: %s: %s\n" % (what, why if isinstance(why, str) else "%s: %s" % execute.described(why)))


def call(value, method):
    """The result of a method for display, without its metadata, or None."""
    function = getattr(type(value), method, None)
    data = None if function is None else function(value)
    return data[0] if isinstance(data, tuple) and data else data


def bundle_of(value):
    data = getattr(type(value), "_repr_mimebundle_", None) and value._repr_mimebundle_(include=None, exclude=None)
    if isinstance(data, tuple) and data:
        data = data[0]
    return data if isinstance(data, dict) else {}


def has_html(value):
    """Whether HTML says more than the repr: not for tables and estimators, whose repr a
    model reads more easily."""
    kind = type(value)
    if hasattr(kind, "shape") or hasattr(kind, "__array__"):
        return False
    return hasattr(kind, "to_html") or kind.__repr__ is object.__repr__


def page(value):
    """A whole page of what plots itself in a browser, without a copy of the library."""
    if type(value).__module__.partition(".")[0] == "plotly":
        return value.to_html(include_plotlyjs="cdn")
    if hasattr(type(value), "_repr_mimebundle_") and hasattr(type(value), "to_html"):
        return value.to_html()
    return None


def content(data, suffix):
    if isinstance(data, str):
        if suffix in ("png", "jpg"):
            from binascii import a2b_base64

            return a2b_base64(data)
        return data.encode("utf-8", "replace")
    return bytes(data)


def brief(value):
    """What stands for a value that is a file now, where its repr is long."""
    kind = type(value)
    if kind.__repr__ is object.__repr__ or len(repr(value)) > execute.LONG:
        return "<%s.%s>" % (kind.__module__, kind.__qualname__)
    return None


def save(place, suffix, data):
    """Write a file of the next free name."""
    place.note(place.write("figure", suffix, data), "")


# Figures of matplotlib. They have no method for display of their own.


def figure_of(value):
    """The figure of a value: itself, that of what is drawn in it, or that of a list of
    such, which plt.plot() returns."""
    figures = sys.modules.get("matplotlib.figure")
    if figures is None:
        return None
    if isinstance(value, (list, tuple)) and value:
        value = value[0]
    if type(value).__module__ == "numpy" and getattr(value, "dtype", None) == object and value.size:
        value = value.flat[0]  # plt.subplots(2, 2)
    if isinstance(value, figures.Figure):
        return value
    try:
        figure = getattr(value, "figure", None)
    except Exception:  # a property of another's
        return None
    return figure if isinstance(figure, figures.Figure) else None


def seen(figure):
    """Whether a file shows a figure as it is. What changes it makes it stale."""
    return getattr(figure, MARK, False) and not figure.stale


def save_figure(figure, place):
    figure.savefig(place.free("figure", "png"))


def note_figure(figure, path, place):
    """Keep the title of a figure that was saved, if that is in the workspace."""
    path, begin = os.path.abspath(os.fsdecode(path)), place.path + "/"
    if path.startswith(begin):
        try:
            titles = [figure._suptitle] if getattr(figure, "_suptitle", None) else [axes.title for axes in figure.axes]
            title = "; ".join(filter(None, (t.get_text() for t in titles)))
        except Exception:  # axes of another's
            title = ""
        place.note(path[len(begin) :], title)


def figures_imported(place):
    """Show figures as files in place, the workspace, after matplotlib.figure has been
    imported."""
    kind = sys.modules["matplotlib.figure"].Figure
    whole = kind.savefig

    def savefig(self, fname, *args, **kwargs):
        result = whole(self, fname, *args, **kwargs)
        if isinstance(fname, (str, os.PathLike)):
            setattr(self, MARK, True)
            self.stale = False
            note_figure(self, fname, place)
        return result

    # pyplot looks at all of these.
    savefig.__name__, savefig.__qualname__, savefig.__module__ = whole.__name__, whole.__qualname__, whole.__module__
    savefig.__doc__, savefig.__wrapped__ = whole.__doc__, whole
    kind.savefig = savefig
    kind.show = lambda self, warn=True: save_figure(self, place)


def pyplot_imported(place):
    """Do the same for pyplot.show."""
    pyplot = sys.modules["matplotlib.pyplot"]

    def show_all(*args, **kwargs):
        """Show all open figures, and close them."""
        for number in pyplot.get_fignums():
            save_figure(pyplot.figure(number), place)
        pyplot.close("all")

    pyplot.show = show_all


def images_imported(place):
    """Show images as files, after PIL.Image has been imported."""
    image = sys.modules["PIL.Image"].Image
    image.show = lambda self, *args, **kwargs: save(place, "png", self._repr_png_())


def close(figure):
    """Close a figure, so that it is not shown again."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)


MAX_OPEN = 50


def finish(place):
    """Show the figures that are open at the end of an execution, except those that are
    empty or that a file shows as they are, and close them."""
    pyplot = sys.modules["matplotlib.pyplot"]
    try:
        numbers = pyplot.get_fignums()
        for number in numbers[:MAX_OPEN]:
            figure = pyplot.figure(number)
            if (figure.axes or figure.lines) and not seen(figure):
                save_figure(figure, place)
        if len(numbers) > MAX_OPEN:
            sys.stderr.write("sallyport: %d of %d open figures are shown: call savefig for more\n" % (MAX_OPEN, len(numbers)))
    except Exception as e:
        told("a figure could not be shown", e)
    finally:
        pyplot.close("all")
