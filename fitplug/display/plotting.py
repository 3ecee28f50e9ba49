"""The style that all plots of fitplug share.

The one module of the core that imports matplotlib, when a plot is asked for. Figures are made
without pyplot: none stays open, and no display is needed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import matplotlib.figure


Figure: TypeAlias = "matplotlib.figure.Figure"

BLUE, ORANGE, GREY, INK = "#0072B2", "#E69F00", "#B8BDC4", "#22262B"
"""The first two of Okabe and Ito's palette, told apart by colour-blind people."""

LINE_COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#D55E00")

MOST_BARS = 15

LETTER_WIDTH = 0.1
"""Inches that a letter of a title or a legend may take."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # texts as texts: small, searchable, in the page's own font
    "svg.hashsalt": "fitplug",  # the same file for the same plan
    "font.family": "sans-serif",
    "font.size": 10,
    "figure.facecolor": "white",  # texts are dark: a page may not be
    "axes.facecolor": "white",
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextmanager
def open_figure(width: float, height: float, panels: int = 1) -> Iterator[tuple[Figure, Any]]:
    """A figure of this size in inches, and its axes, or for more panels the array of them. Raises
    ImportError without matplotlib, which names the extra.
    """
    kind = _figure_kind()
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure = kind(figsize=(width, height), layout="constrained")
        yield figure, figure.subplots(1, panels)


@lru_cache(maxsize=1)
def _figure_kind() -> Any:
    try:
        from matplotlib.figure import Figure as Base
    except ImportError:
        raise ImportError(
            'matplotlib is not installed; it comes with: pip install "fitplug[plot]"'
        ) from None

    class Drawing(Base):
        """A figure that notebooks show, though pyplot does not know it."""

        def _repr_png_(self) -> bytes:
            made = io.BytesIO()
            self.savefig(made, format="png", dpi=110)
            return made.getvalue()

    return Drawing


def shorten(name: str, most: int = 32) -> str:
    """A name as a label: no formulas, and not too long."""
    plain = name.replace("$", r"\$")
    return plain if len(plain) <= most else plain[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def separate_thousands(axis: Any) -> None:
    """12,345 on an axis, as in tables."""
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def label_powers(axes: Any) -> None:
    """Labels between the powers of ten too, where an axis has few of them."""
    from matplotlib.ticker import LogLocator

    low, high = axes.get_xlim()
    few = high / low < 100
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axes.minorticks_off()
