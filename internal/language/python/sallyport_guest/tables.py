"""Compact tables of pandas: with few rows, columns and characters, and their shape."""

from . import BUILTINS as __builtins__

import sys

from .interrupt import call

CELLS = 160  # of a table that are shown, about
ROWS = (8, 20)  # of a table that is cut: as few with many columns, as many with few
WHOLE = 60  # rows of a small table that is not cut
COLUMNS = (20, 10, 5, 2)  # the first that fits
ROOM = 6000  # characters

# What pandas has if the code has set nothing. 0 columns are as many as a terminal shows.
USUAL = {"max_rows": (60,), "min_rows": (10,), "max_columns": (0, 20), "width": (80,), "expand_frame_repr": (True,)}
PAGE = {"max_rows": 100, "min_rows": 100, "max_columns": 50}  # of HTML


def shape(value):
    """The rows and columns of a DataFrame or Series of pandas, or None."""
    pandas = sys.modules.get("pandas")
    if pandas is None:
        return None
    if isinstance(value, pandas.DataFrame):
        return len(value.index), len(value.columns)
    return (len(value.index), 1) if isinstance(value, pandas.Series) else None


def text(value):
    """The table of a value of pandas, or None if it is not a table, or too large even so. What the
    code has set with pandas.set_option is done, whatever its size."""
    size = shape(value)
    if size is None:
        return None
    unset = usual()
    for columns in COLUMNS:
        wanted = limits(*size, columns) if "max_rows" in unset and "min_rows" in unset else {}
        wanted["max_columns"] = columns
        if "width" in unset:
            wanted["expand_frame_repr"] = False  # no blocks of columns
        shown = with_options(wanted, unset, call, repr, value)
        if len(shown) <= ROOM or len(unset) < len(USUAL):
            return shown
    return None


def limits(rows, columns, most):
    """The options for the rows of a table."""
    columns = max(1, min(columns, most))
    if rows <= ROWS[0] or rows <= WHOLE and rows * columns <= CELLS:
        return {"max_rows": WHOLE, "min_rows": WHOLE}
    shown = max(ROWS[0], min(ROWS[1], CELLS // columns))
    return {"max_rows": shown, "min_rows": shown}


def html(value):
    """The HTML of a table, with more than its text has: people scroll."""
    return with_options(PAGE, usual(), value._repr_html_)


def usual():
    """The options that the code has not set."""
    get = sys.modules["pandas"].get_option
    return {name for name, values in USUAL.items() if get("display." + name) in values}


def with_options(wanted, unset, function, *args):
    """Call a function with those of the wanted options that the code has not set."""
    options = [x for name, value in wanted.items() if name in unset for x in ("display." + name, value)]
    if not options:
        return function(*args)
    with sys.modules["pandas"].option_context(*options):
        return function(*args)
