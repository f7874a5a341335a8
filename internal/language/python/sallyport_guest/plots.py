"""Pictures: what plt.show() shows, and figures and images as last expressions.

They become files in the workspace, which the result contains.
"""

from . import BUILTINS as __builtins__

import os
import sys


def figures_imported(place):
    """Show figures as files in the directory place, after matplotlib.figure has been
    imported."""
    figure = sys.modules["matplotlib.figure"].Figure
    figure.show = lambda self, warn=True: save(place, self.savefig)
    echo_pictures(place)


def pyplot_imported(place):
    """Do the same for pyplot.show."""
    pyplot = sys.modules["matplotlib.pyplot"]

    def show(*args, **kwargs):
        """Show all open figures, and close them."""
        for number in pyplot.get_fignums():
            save(place, pyplot.figure(number).savefig)
        pyplot.close("all")

    pyplot.show = show


def images_imported(place):
    """Show images as files, after PIL.Image has been imported."""
    image = sys.modules["PIL.Image"].Image
    image.show = lambda self, *args, **kwargs: save(place, png(self))
    echo_pictures(place)


def png(image):
    """Return a function that writes an image to a path."""

    def write(path):
        data = image._repr_png_()
        with open(path, "wb") as f:
            f.write(data)

    return write


def save(place, write):
    """Write a picture to the next free name."""
    number = 1
    while os.path.exists("%s/figure-%d.png" % (place, number)):
        number += 1
    write("%s/figure-%d.png" % (place, number))


def echo_pictures(place):
    """Also show the picture of a value that is echoed, if it has one."""
    from . import execute

    def displayhook(value):
        execute.displayhook(value)
        write = picture(value)
        if write is not None:
            save(place, write)

    if sys.displayhook is execute.displayhook:
        sys.displayhook = displayhook


def picture(value):
    """Return a function that writes the picture of a value to a path, or None."""
    if isinstance(value, (list, tuple)) and value:  # plt.plot() returns what it drew
        value = value[0]
    figures = sys.modules.get("matplotlib.figure")
    if figures is not None:
        figure = value if isinstance(value, figures.Figure) else getattr(value, "figure", None)
        if isinstance(figure, figures.Figure):
            close(figure)
            return figure.savefig
    images = sys.modules.get("PIL.Image")
    if images is not None and isinstance(value, images.Image):
        return png(value)
    return None


def close(figure):
    """Close a figure, so that plt.show() does not show it again."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(figure)
