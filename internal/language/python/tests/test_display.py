"""What values show: tables, pages and pictures. The classes here have the methods of the
libraries' own."""

import base64
import builtins
import os
import re
import sys
import types
import zlib

import pytest

from sallyport_guest import artifacts, display, execute, pages, tables


@pytest.fixture
def shown(tmp_path, capsys, monkeypatch):
    """Shows a value as the last expression of a cell: the files, what was printed, and what
    was said of others."""
    place = artifacts.Workspace(str(tmp_path))
    monkeypatch.setattr(execute, "rich", lambda value: display.show(value, place))
    monkeypatch.setattr(sys, "displayhook", execute.displayhook)

    def show(value, html=False):
        place.html, before = html, set(os.listdir(place.path))
        execute.displayhook(value, keep=False)
        out, err = capsys.readouterr()
        return sorted(set(os.listdir(place.path)) - before), out, err

    show.path, show.place = tmp_path, place
    return show


# Tables.


class Pandas(types.ModuleType):
    """The options of pandas, and tables whose repr says which hold."""

    def __init__(self):
        super().__init__("pandas")
        self.options = {"display." + name: values[0] for name, values in tables.USUAL.items()}
        self.get_option = self.options.get

        class DataFrame:
            def __init__(self, rows, columns, size=10):
                self.index, self.columns, self.shape, self.size = range(rows), range(columns), (rows, columns), size

            def __repr__(self):
                get = lambda name: str(pandas.options["display." + name])
                return " ".join(map(get, ("min_rows", "max_columns", "expand_frame_repr"))) + "x" * self.size * min(len(self.columns), pandas.options["display.max_columns"])

            def _repr_html_(self):
                return "<table>%s" % pandas.options["display.min_rows"]

        pandas, self.DataFrame, self.Series = self, DataFrame, type("Series", (), {})

    def option_context(self, *options):
        import contextlib

        @contextlib.contextmanager
        def context():
            before = dict(self.options)
            self.options.update(zip(options[::2], options[1::2]))
            try:
                yield
            finally:
                self.options.update(before)

        return context()


@pytest.fixture
def pandas(monkeypatch):
    module = Pandas()
    monkeypatch.setitem(sys.modules, "pandas", module)
    return module


@pytest.mark.parametrize(
    "rows, columns, want",
    [(0, 0, 60), (60, 1, 60), (61, 1, 20), (40, 4, 60), (41, 4, 20), (8, 30, 60), (9, 30, 8), (10**6, 8, 20), (10**6, 10, 16), (10**6, 100, 8)],
)
def test_rows_of_tables(rows, columns, want):
    assert tables.limits(rows, columns, 20) == {"max_rows": want, "min_rows": want}


@pytest.mark.parametrize(
    "size, options, want",
    [
        (1, {}, "8 20 False"),
        (500, {}, "16 10 False"),  # wide cells: fewer columns
        (10**5, {}, None),
        (10**5, {"max_rows": None}, "10 20 False"),
        (1, {"min_rows": 4}, "4 20 False"),
        (1, {"max_columns": 50}, "8 50 False"),
        (1, {"width": 200}, "8 20 True"),
    ],
)  # fmt: skip
def test_what_the_code_has_set_is_done(pandas, size, options, want):
    pandas.options.update({"display." + name: value for name, value in options.items()})
    before = dict(pandas.options)
    text = tables.text(pandas.DataFrame(1000, 30, size))
    assert (text and text.rstrip("x")) == want
    assert pandas.options == before


def test_tables_are_pages_where_pages_are_seen(shown, pandas):
    assert shown(pandas.DataFrame(5, 1, 0)) == ([], "60 20 False\n", "")
    assert shown(pandas.DataFrame(5, 1, 0), html=True) == (["table-1.html"], "60 20 False\n", "")
    assert "<title>DataFrame</title>" in shown.path.joinpath("table-1.html").read_text() and "<table>100" in shown.path.joinpath("table-1.html").read_text()


def test_what_code_has_changed_shows_its_repr(shown, pandas, monkeypatch):
    monkeypatch.setattr(pandas, "option_context", None)
    assert shown(pandas.DataFrame(5, 1, 0))[:2] == ([], "10 0 True\n")
    monkeypatch.setitem(sys.modules, "pandas", 5)
    assert shown(Named()) == ([], "named\n", "")


def test_a_page_that_fails_leaves_the_text(shown, pandas):
    pandas.DataFrame._repr_html_ = lambda self: 1 / 0
    assert shown(pandas.DataFrame(5, 1, 0), html=True) == ([], "60 20 False\n", "sallyport: DataFrame could not be shown: ZeroDivisionError: division by zero\n")


# Pages.


class Named:
    def __repr__(self):
        return "named"


class Html:
    def __init__(self, html="<b>a</b>"):
        self.html = html

    def _repr_html_(self):
        return self.html


class Readable(Html):
    __repr__ = Named.__repr__


def test_pages(shown):
    assert shown(Html()) == (["figure-1.html"], "a\n", "")
    assert shown(Html("<script>1</script>")) == (["figure-2.html"], "<test_display.Html>\n", "")
    assert shown(Html("")) == ([], "<test_display.Html>\n", "")
    assert shown(Readable()) == ([], "named\n", "")
    assert shown(Readable(), html=True) == (["figure-3.html"], "named\n", "")
    summary = type("Summary", (Html,), {"__repr__": lambda self: "lines\n" * 300})
    assert shown(summary(), html=True) == (["figure-4.html"], "lines\n" * 300 + "\n", ""), "however long"
    assert shown(type("Palette", (list,), {"_repr_html_": Html._repr_html_, "html": "<svg>"})([1]), html=True) == (["figure-5.html"], "[1]\n", "")
    page = shown.path.joinpath("figure-1.html").read_text()
    assert page.startswith('<!doctype html>\n<html><head><meta charset="utf-8"><title>Html</title>') and "<b>a</b>" in page


@pytest.mark.parametrize(
    "html, want",
    [
        ("<h1>A&amp;B</h1><p>c\n d</p>", "A&B\nc d"),
        ("<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>", "a  b\n1  2"),
        ("<style>x</style><head>y</head><!-- c --><p>d", "d"),
        ("<p>Trust this to see it<script>draw()</script>", None),
        ("<iframe srcdoc='&lt;p&gt;x'></iframe>Trust this", None),
        ("", None),
        ("x" * 5000, "x" * pages.ROOM + "…"),
    ],
)  # fmt: skip
def test_text_of_html(html, want):
    assert pages.text_of(html) == want


def unpacked(page):
    data = re.search(rb'atob\("([^"]*)"\)', page)
    return zlib.decompress(base64.b64decode(data[1]), -15).decode()


def test_large_pages_are_packed_and_their_libraries_once(monkeypatch):
    monkeypatch.setattr(pages, "kept", {})
    library = "<script>%s</script>" % "".join(map(str, range(10**5)))
    for i in range(3):
        html = "<html>%s<p>ä\udc80%d</html>" % (library, i)
        page = pages.page(html, "<T>")
        assert unpacked(page) == html.replace("\udc80", "?") and b"<title>&lt;T&gt;</title>" in page and len(page) < len(html)
    assert len(pages.kept) == 1


def test_packed_libraries_are_bounded(monkeypatch):
    monkeypatch.setattr(pages, "kept", {})
    for i in range(3 * pages.KEPT):
        pages.page("<html><script>%s</script>" % (str(i) * 2 * pages.PACKED), "t")
        assert len(pages.kept) <= pages.KEPT


class BaseFigure:
    """As plotly's: its page has the library."""

    failing = ()

    def to_html(self, include_plotlyjs):
        return self.made("html", "<html>plot %s" % include_plotlyjs)

    def to_image(self, format):
        return self.made(format, b"png")

    def made(self, form, data):
        if form in self.failing:
            raise ValueError("no %s" % form)
        return data


@pytest.fixture
def plotly(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.basedatatypes", types.SimpleNamespace(BaseFigure=BaseFigure))
    monkeypatch.setattr(pages, "has_kaleido", lambda: True)


@pytest.mark.parametrize(
    "failing, files, said",
    [
        ((), ["figure-1.html", "figure-1.png"], ""),
        (("png",), ["figure-1.html"], "sallyport: Own could not be shown: ValueError: no png\n"),
        (("html",), ["figure-1.png"], "sallyport: Own could not be shown: ValueError: no html\n"),
    ],
)  # fmt: skip
def test_plots(shown, plotly, failing, files, said):
    Own = type("Own", (BaseFigure,), {"failing": failing, "__module__": "m"})
    assert shown(Own()) == (files, "<Own>\n", said)


@pytest.mark.parametrize(
    "more, want",
    [
        ({"title": "A\nb"}, "<Chart: A b>"),  # altair's
        ({"title": types.SimpleNamespace(text="A")}, "<Chart: A>"),  # bokeh's
        ({"layout": types.SimpleNamespace(title=types.SimpleNamespace(text="A"))}, "<Chart: A>"),  # plotly's
        ({"title": types.SimpleNamespace(text=None)}, "<Chart>"),
        ({"title": lambda text: None}, "<Chart>"),
        ({"title": "x" * 500}, "<Chart: %s>" % ("x" * 200)),
    ],
)
def test_plots_have_a_title(more, want):
    assert display.titled(type("Chart", (), {})()) == "<Chart>"
    assert display.titled(type("Chart", (), {name: staticmethod(value) if callable(value) else value for name, value in more.items()})()) == want


def test_plots_have_the_name_of_their_picture(shown, plotly):
    shown.path.joinpath("figure-1.svg").touch()
    assert shown(BaseFigure())[0] == ["figure-2.html", "figure-2.png"]


def test_plots_without_a_browser(shown, plotly, monkeypatch, tmp_path_factory):
    monkeypatch.undo()
    monkeypatch.setattr(pages, "installed", lambda module: str(tmp_path_factory.mktemp("kaleido")))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    assert list(pages.plotly(BaseFigure())) == ["html"]
    monkeypatch.setenv("BROWSER_PATH", "/browser")
    assert list(pages.plotly(BaseFigure())) == ["html", "png"]


def test_altair_needs_its_converter(monkeypatch):
    chart = types.SimpleNamespace(to_html=lambda **options: options, save=lambda file, format: file.write(format.encode()))
    monkeypatch.setattr(pages, "installed", lambda module: None)
    assert {form: make() for form, make in pages.altair(chart).items()} == {"html": {}}
    monkeypatch.setattr(pages, "installed", lambda module: "/there")
    monkeypatch.setattr(pages, "addresses", lambda: 4 << 30)
    assert {form: make() for form, make in pages.altair(chart).items()} == {"html": {}}
    monkeypatch.setattr(pages, "addresses", lambda: 128 << 30)
    assert {form: make() for form, make in pages.altair(chart).items()} == {"html": {"inline": True, "embed_options": {"ast": True}}, "png": b"png"}


def test_what_is_too_large_is_not_written(shown, monkeypatch):
    monkeypatch.setattr(pages, "MOST", 1 << 20)
    files, out, err = shown(display.Bundle({"image/svg+xml": "x" * (3 << 20)}))
    assert (files, out) == ([], "<image/svg+xml>\n")
    assert err == "sallyport: Bundle could not be shown: ValueError: its svg file would have 3 MB, more than 1: save it in another form\n"


# Bundles of other libraries, and values that defend themselves.


@pytest.mark.parametrize(
    "forms, files, out",
    [
        ({"text/plain": "t"}, [], "t\n"),
        ({"text/plain": "t", "image/png": "cG5n"}, ["figure-1.png"], "t\n"),
        ({"text/plain": "t", "image/gif": "R0lG"}, ["figure-1.gif"], "t\n"),
        ({"text/plain": "t", "text/html": "<p>h"}, ["figure-1.html"], "h\n"),
        ({"text/plain": "t", "text/markdown": "*m*"}, [], "*m*\n"),
        ({"text/plain": "t", "text/latex": "$x$"}, [], "$x$\n"),
        ({"text/latex": "$x$", "text/html": "<p>h"}, ["figure-1.html"], "h\n"),
        ({"application/json": {"a": [1]}}, [], '{"a": [1]}\n'),
        ({"text/html": 5, "text/plain": 6}, [], "<text/html, text/plain>\n"),
        ({}, [], "<>\n"),
    ],
)  # fmt: skip
def test_bundles(shown, capsys, forms, files, out):
    display.display(forms, raw=True)
    assert (os.listdir(shown.path), capsys.readouterr()) == (files, (out, ""))


def test_display_shows_all_its_values(shown, capsys):
    display.display(1, None, Html(), "a", display_id="x")
    assert capsys.readouterr().out == "1\nNone\na\n'a'\n"


class Lying:
    __repr__ = Named.__repr__

    @property
    def __class__(self):
        raise OSError("no class")


class Exploding:
    __repr__ = Named.__repr__

    def _repr_mimebundle_(self, **options):
        raise ValueError("no bundle")


@pytest.mark.parametrize("kind", [Lying, Exploding])
@pytest.mark.parametrize("broken", [False, True])
def test_no_value_is_lost(shown, monkeypatch, plotly, pandas, kind, broken):
    if broken:  # there is nowhere to say why
        monkeypatch.setattr(sys, "stderr", None)
    assert shown(kind(), html=True)[:2] == ([], "named\n")


def test_display_is_what_ipython_has(shown, capsys):
    module = types.SimpleNamespace()
    display.IMPORTED["IPython.core.display_functions"](module, shown.place)
    module.publish_display_data({"text/plain": "a"}, metadata={})
    module.display(builtins.int, include=["text/plain"])
    module.clear_output(wait=True)
    assert capsys.readouterr().out == "a\n<class 'int'>\n"


def test_a_package_is_hooked_that_is_found_late(tmp_path, monkeypatch):
    """The finder that adds site-packages asks all finders again."""
    from sallyport_guest import hooks

    (tmp_path / "late_charts.py").write_text("x = 1")
    ran = []

    late, adds = hooks.SitePaths(None), iter([True])
    late.add = lambda: next(adds, False) and monkeypatch.syspath_prepend(tmp_path) is None
    imports = hooks.Imports(None)
    imports.after["late_charts"] = lambda: ran.append(sys.modules["late_charts"].x)
    monkeypatch.setattr(sys, "meta_path", [imports, *sys.meta_path, late])
    __import__("late_charts")
    assert ran == [1]


def test_the_list_of_fonts_is_made_by_another_process(tmp_path, monkeypatch):
    from sallyport_guest import fonts

    module = tmp_path / "matplotlib" / "font_manager.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    fonts.prepare()  # there is nothing to do
    module.parent.mkdir()
    module.with_name("__init__.py").touch()
    module.write_text("open('list', 'w').write('fonts'); print('not shown'); 1 / 0")
    fonts.prepare()
    assert (tmp_path / "list").read_text() == "fonts" and "matplotlib.font_manager" not in sys.modules
