"""What values show besides their repr: pictures, HTML and Markdown, as in a notebook.

Pictures and HTML become files in the workspace, which the result contains. The
methods that values have for that are IPython's: _repr_png_, _repr_mimebundle_ and so
on. https://ipython.readthedocs.io/en/stable/config/integrating.html
"""

from . import BUILTINS as __builtins__

import os
import sys

from . import execute

PICTURES = (("image/png", "_repr_png_", "png"), ("image/jpeg", "_repr_jpeg_", "jpg"), ("image/svg+xml", "_repr_svg_", "svg"), ("image/gif", "_repr_gif_", "gif"))
TEXTS = (("text/latex", "_repr_latex_"), ("application/json", "_repr_json_"))
MARK = "_sallyport_shown"  # the picture that a figure was written to last
SEEN = (".png", ".jpg", ".jpeg", ".webp")  # which the host shows


def display(*values, raw=False, **options):
    """Show values, as the last expression of a cell is shown. With raw, each is what another
    library made of a value: its forms by their types."""
    for value in values:
        if raw and isinstance(value, dict):
            value = Bundle(value)
        if value is None:
            print(None)
        else:
            execute.displayhook(value, keep=False)


class Bundle:
    """A value of which only the forms are known."""

    def __init__(self, forms):
        self.forms = forms

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.forms

    def __repr__(self):
        text = self.forms.get("text/plain")
        return text if isinstance(text, str) else "<%s>" % ", ".join(map(str, self.forms))


def show(value, place):
    """Show what a value has besides its repr, as files in place, the workspace. Return
    the text to print instead of the repr, or None. Nothing that a value does here is an
    error of the code."""
    if "sallyport_guest.content" in sys.modules:
        from . import pictures

        try:
            pictures.show(value, place, told)
        except Exception as e:  # a container that changes meanwhile
            told("images in a value of type %s could not be shown" % kind_of(value), e)
    try:
        figure = figure_of(value)
        if figure is not None:
            save_figure(figure, place)
            close(figure)
            return None
        if isinstance(value, type) or type(value) in execute.HOLDERS:
            return None
        return form(value, place)
    except Exception as e:
        told("%s could not be shown" % kind_of(value), e)
        return None


def form(value, place):
    """Write the best form of a value to a file, or return it if it is text."""
    from . import pages, tables

    try:
        table = tables.text(value)
    except Exception:  # the code has changed pandas
        table = None
    if table is not None:
        if place.html and hasattr(type(value), "_repr_html_"):
            attempt(value, lambda: save_page(place, "table", tables.html(value), value))
        return table
    plot = pages.plotter(value)
    if plot is not None:
        save_plot(value, plot, place)
        return titled(value)
    bundle = bundle_of(value)
    for kind, method, suffix in PICTURES:
        data = bundle.get(kind) or call(value, method)
        if data:
            save(place, "figure", suffix, content(data, suffix))
            return brief(value)
    html = bundle.get("text/html") or call(value, "_repr_html_") if place.html or has_html(value) else None
    if isinstance(html, str) and html:
        save_page(place, "table" if hasattr(type(value), "shape") else "figure", html, value)
    else:
        html = ""
    text = bundle.get("text/markdown") or call(value, "_repr_markdown_")
    if isinstance(text, str):
        return text
    text = styled(value) or pages.text_of(html) if has_html(value) else None
    for kind, method in TEXTS if dull(value) else ():
        text = text or bundle.get(kind) or call(value, method)
    if text:
        return text if isinstance(text, str) else json_of(text)
    return brief(value) if has_html(value) else None


def told(what, why):
    """Say that something is not shown, and why."""
    try:
        sys.stderr.write("sallyport: %s: %s\n" % (what, why if isinstance(why, str) else "%s: %s" % execute.described(why)))
    except Exception:  # a stream of the code's own
        pass


def attempt(value, function):
    """Do something of which the value's text is independent."""
    try:
        return function()
    except Exception as e:
        told("%s could not be shown" % kind_of(value), e)


def kind_of(value):
    return execute.CLASS_NAME(type(value))[:100]


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


def dull(value):
    """Whether a repr says nothing."""
    kind = type(value)
    return kind.__repr__ is object.__repr__ or kind is Bundle or str(kind.__module__).startswith("IPython.")


def has_html(value):
    """Whether HTML says more than the repr: not for tables and estimators, whose repr a
    model reads more easily."""
    kind = type(value)
    if hasattr(kind, "shape") or hasattr(kind, "__array__"):
        return False
    return hasattr(kind, "to_html") or dull(value)


def styled(value):
    """The table that pandas has styled, or None."""
    if not type(value).__module__.startswith("pandas."):
        return None
    from . import tables

    return tables.text(getattr(value, "data", None))


def json_of(value):
    from json import dumps

    from .shorten import middle

    return middle(dumps(value, ensure_ascii=False, default=str), "JSON")


def content(data, suffix):
    if isinstance(data, str):
        if suffix != "svg":
            from binascii import a2b_base64

            return a2b_base64(data)
        return data.encode("utf-8", "replace")
    return bytes(data)


def brief(value):
    """What stands for a value that is a file now, where its repr is long."""
    kind = type(value)
    if kind.__repr__ is object.__repr__ or len(execute.call(repr, value)) > execute.LONG:
        return "<%s.%s>" % (kind.__module__, kind.__qualname__)
    return None


def titled(plot):
    """What stands for a plot: of the repr of some, all of the data is a part."""
    title = getattr(plot, "title", None) or getattr(getattr(plot, "layout", None), "title", None)
    text = title if isinstance(title, str) else getattr(title, "text", None)
    return "<%s%s>" % (kind_of(plot), ": " + " ".join(text.split())[:200] if isinstance(text, str) else "")


def save(place, stem, suffix, data, name=None):
    """Write a file of the next free name, or of this one if that is free. Return its path."""
    from .pages import MOST

    if len(data) > MOST:
        raise ValueError("its %s file would have %d MB, more than %d: save it in another form" % (suffix, len(data) >> 20, MOST >> 20))
    path = place.write(stem, suffix, data, name)
    place.note(path, "")
    return path


def save_page(place, stem, html, value):
    from .pages import page

    return save(place, stem, "html", page(html, kind_of(value)))


def save_plot(value, plot, place):
    """Write the page of a plot, and its picture with the same name."""
    forms = plot(value)
    page = attempt(value, lambda: save_page(place, "figure", forms["html"](), value))
    if "png" in forms:
        attempt(value, lambda: save(place, "figure", "png", forms["png"](), page and page[: -len("html")] + "png"))


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


def save_figure(figure, place):
    """Show a figure, unless a file of this execution shows it as it is: what changes it
    makes it stale."""
    if figure.stale or getattr(figure, MARK, None) not in place.shown:
        figure.savefig(place.free("figure", "png"))


def note_figure(figure, path, place):
    """Keep that a picture in the workspace shows a figure, and its title."""
    path, begin = os.path.abspath(os.fsdecode(path)), place.path + "/"
    if path.startswith(begin) and path.lower().endswith(SEEN):
        setattr(figure, MARK, path[len(begin) :])
        figure.stale = False
        try:
            titles = [figure._suptitle] if getattr(figure, "_suptitle", None) else [axes.title for axes in figure.axes]
            title = "; ".join(filter(None, (t.get_text() for t in titles)))
        except Exception:  # axes of another's
            title = ""
        place.note(path[len(begin) :], title)


# What is done after the import of a module: what it shows becomes files in place, the
# workspace.


def figures_imported(module, place):
    kind = module.Figure
    whole = kind.savefig

    def savefig(self, fname, *args, **kwargs):
        result = whole(self, fname, *args, **kwargs)
        if isinstance(fname, (str, os.PathLike)):
            note_figure(self, fname, place)
        return result

    # pyplot looks at all of these.
    savefig.__name__, savefig.__qualname__, savefig.__module__ = whole.__name__, whole.__qualname__, whole.__module__
    savefig.__doc__, savefig.__wrapped__ = whole.__doc__, whole
    kind.savefig = savefig
    kind.show = lambda self, warn=True: save_figure(self, place)


def pyplot_imported(pyplot, place):
    def show_all(*args, **kwargs):
        """Show all open figures, and close them."""
        for number in pyplot.get_fignums():
            save_figure(pyplot.figure(number), place)
        pyplot.close("all")

    pyplot.show = show_all


def images_imported(module, place):
    module.Image.show = lambda self, *args, **kwargs: save(place, "figure", "png", self._repr_png_())


def show_first(value, *args, **options):
    """Show a value, where its library would open a browser."""
    display(value)


def plots_imported(module, place):
    module.show = show_first


def altair_imported(module, place):
    module.TopLevelMixin.show = module.TopLevelMixin.display = show_first


def bokeh_imported(module, place):
    module.output_notebook = lambda *args, **options: None


def ipython_imported(module, place):
    """Without its shell, these show nothing."""
    module.display = display
    module.publish_display_data = lambda data, *args, **options: display(data, raw=True)
    module.clear_output = lambda *args, **options: None


IMPORTED = {
    "matplotlib.figure": figures_imported, "matplotlib.pyplot": pyplot_imported, "PIL.Image": images_imported,
    "plotly.io._renderers": plots_imported, "bokeh.io.showing": plots_imported, "bokeh.io.output": bokeh_imported,
    "altair": altair_imported, "IPython.core.display_functions": ipython_imported,
}  # fmt: skip


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
            if figure.axes or figure.lines:
                save_figure(figure, place)
        if len(numbers) > MAX_OPEN:
            sys.stderr.write("sallyport: %d of %d open figures are shown: call savefig for more\n" % (MAX_OPEN, len(numbers)))
    except Exception as e:
        told("a figure could not be shown", e)
    finally:
        pyplot.close("all")
