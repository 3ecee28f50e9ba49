"""Plots: the style that all figures of fitplug share.

This is the only module of the core that imports matplotlib, and it does so when a plot is made.
Figures are made without pyplot, so that none stays open and no display is needed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from fitplug.numeric import FloatArray

if TYPE_CHECKING:
    import matplotlib.figure


Figure: TypeAlias = "matplotlib.figure.Figure"

BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "#B8BDC4"
"""Two colours of the palette of Okabe and Ito, which colour-blind people can distinguish, and a
grey. All of them can be seen on white and on black.
"""

INK, PAPER = "#22262B", "#FFFFFF"
"""Texts and background, unless the user's style of matplotlib is dark."""

LINE_COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#D55E00")

MOST_BARS = 15
"""The largest number of bars in a plot."""

LETTER_WIDTH = 0.1
"""The width in inches that is planned for a letter of a title or a legend."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # Texts stay texts: searchable, and in the font of the page.
    "svg.hashsalt": "fitplug",  # Equal plans give equal files.
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@contextmanager
def open_figure(
    width: float, height: float, panels: int = 1, ax: Any = None
) -> Iterator[tuple[Figure, Any]]:
    """Open a figure in the style of fitplug, dark if matplotlib's current style is dark.

    Args:
        width: In inches.
        height: In inches.
        panels: The number of axes side by side.
        ax: Axes to draw into instead of a new figure.

    Yields:
        The figure, and its axes, or an array of axes if there are several panels.

    Raises:
        ImportError: matplotlib is not installed; the message names the extra.
    """
    figure_class = _import_figure_class()
    import matplotlib as mpl

    with mpl.rc_context(_STYLE | _choose_inks(mpl)):
        if ax is not None:
            yield ax.figure, ax
            return
        figure = figure_class(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(1, panels)


def _choose_inks(mpl: Any) -> dict[Any, Any]:
    """Choose the colours of texts and background: those of a dark style, or dark on white."""
    from matplotlib.colors import to_rgb

    paper, ink = PAPER, INK
    if sum(to_rgb(mpl.rcParams["figure.facecolor"])) < 1.0:
        paper, ink = mpl.rcParams["figure.facecolor"], mpl.rcParams["text.color"]
    inks = ("axes.labelcolor", "text.color", "xtick.color", "ytick.color")
    papers = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    return {
        **dict.fromkeys(inks, ink),
        **dict.fromkeys(papers, paper),
        "axes.edgecolor": GREY,
    }


@lru_cache(maxsize=1)
def _import_figure_class() -> Any:
    """Import matplotlib, and make the class of figures that notebooks show."""
    try:
        from matplotlib.figure import Figure as Base
    except ImportError:
        raise ImportError(
            'matplotlib is not installed. Install it with: pip install "fitplug[plot]"'
        ) from None

    class Drawing(Base):
        """A figure that notebooks show although pyplot does not know it."""

        def _repr_png_(self) -> bytes:
            image = io.BytesIO()
            self.savefig(image, format="png", dpi=110)
            return image.getvalue()

    return Drawing


def shorten(name: str, most: int = 32) -> str:
    """Cut a name to a label of at most `most` characters, in which $ starts no formula."""
    plain = name.replace("$", r"\$")
    return plain if len(plain) <= most else plain[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def separate_thousands(axis: Any) -> None:
    """Label an axis with numbers such as 12,345, as tables show them."""
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def label_powers(axes: Any) -> None:
    """Label the powers of ten on a logarithmic x axis, and 2 and 5 times these if they are few."""
    from matplotlib.ticker import LogLocator

    low, high = axes.get_xlim()
    few = high / low < 100
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axes.minorticks_off()


def scale_colours(low: float, high: float, linear_below: float | None = None) -> Any:
    """Make the scale from values to colours.

    It is linear, or logarithmic except for values below `linear_below` in absolute value.
    """
    from matplotlib.colors import AsinhNorm, Normalize

    return Normalize(low, high) if linear_below is None else AsinhNorm(linear_below, low, high)


def add_polygons(axes: Any, polygons: Sequence[Sequence[FloatArray]], **options: Any) -> Any:
    """Draw polygons, each of which is a list of closed rings of shape (points, 2).

    Returns:
        The matplotlib collection.
    """
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    paths = [
        Path.make_compound_path(*(Path(ring, closed=True) for ring in rings)) for rings in polygons
    ]
    return axes.add_collection(PathCollection(paths, **options))
