"""Plots of plans and releases, and the style that all plots of fitplug share.

The one module of the core that imports matplotlib, when a plot is asked for. Figures are made
without pyplot: none stays open, and no display is needed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.attributes import Bins, Integers
from fitplug.dates import Dates
from fitplug.errors import DesignError, WorkloadError
from fitplug.exports import spread
from fitplug.prices import prices
from fitplug.targets import quantile

if TYPE_CHECKING:
    import matplotlib.figure

    from fitplug.plan import Plan
    from fitplug.release import Release
    from fitplug.workload import QueryGroup

Figure: TypeAlias = "matplotlib.figure.Figure"
Array: TypeAlias = npt.NDArray[np.float64]

BLUE, ORANGE, GREY, INK = "#0072B2", "#E69F00", "#B8BDC4", "#22262B"
"""The first two of Okabe and Ito's palette, told apart by colour-blind people."""

_LINES = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#D55E00")

MOST_BARS = 15
_MOST_TICKS = 16
_LETTER = 0.1
"""Inches that a letter of a title or a legend may take."""

_MOST_POINTS = 40
"""Of a line with error bars; of more, they become a band."""

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
def drawing(width: float, height: float, panels: int = 1) -> Iterator[tuple[Figure, Any]]:
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


def plot_plan(plan: Plan) -> Figure:
    """Per group, the std it asked for and gets; and its part of the cost, where there is one."""
    rows = plan.group_rows()
    try:
        priced = prices(plan)
    except DesignError:
        priced = {}
    if len(rows) > MOST_BARS:  # those that cost the most
        kept = sorted(rows, key=lambda row: -priced.get(row.name, 0.0))[:MOST_BARS]
        rows = [row for row in rows if row in kept]
    asked = [np.sqrt(plan.scale * plan.targets[row.name]) for row in rows]
    places = np.arange(len(rows))[::-1]
    with drawing(9.0 if priced else 6.0, 1.2 + 0.32 * len(rows), 2 if priced else 1) as made:
        figure, axes = made
        left, right = axes if priced else (axes, None)
        for place, row, target in zip(places, rows, asked, strict=True):
            first = {"label": "asked, at most"} if place == places[0] else {}
            ends = float(target.min()), float(target.max())
            left.plot(ends, [place + 0.14] * 2, "|-", color=ORANGE, ms=11, mew=2.5, **first)
            first = {"label": "of the answers"} if first else {}
            ends = row.smallest_std, row.largest_std
            left.plot(ends, [place - 0.14] * 2, "o-", color=BLUE, ms=5, **first)
        left.set_yticks(places, [shorten(row.name) for row in rows])
        left.set(xscale="log", xlabel="standard deviation (records)")
        separate_thousands(left.xaxis)
        _label_powers(left)
        left.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        if right is not None:
            shares = [100 * priced[row.name] for row in rows]
            right.barh(places, shares, color=BLUE, height=0.62)
            for place, share in zip(places, shares, strict=True):
                text = f"{share:.1f} %"
                right.annotate(
                    text, (share, place), (4, 0), textcoords="offset points", va="center"
                )
            right.set_yticks([])
            right.set(xlim=(0, 1.2 * max(shares)), xlabel="part of the privacy cost (%)")
            right.set_ylim(left.get_ylim())
    return figure


def _label_powers(axes: Any) -> None:
    """Labels between the powers of ten too, where an axis has few of them."""
    from matplotlib.ticker import LogLocator

    low, high = axes.get_xlim()
    few = high / low < 100
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axes.minorticks_off()


def plot_release(
    release: Release, name: str, *, confidence: float | None, simultaneous: bool | None
) -> Figure:
    """The estimates of a group of up to two attributes, with their intervals; of two attributes of
    many values each, a map of the estimates alone. Raises WorkloadError for more attributes.
    """
    group = release.plan.workload[name]
    if len(group.shape) > 2:
        raise WorkloadError(
            f"group {name!r} has {len(group.shape)} attributes, and up to 2 can be plotted; plot "
            "its table, release.to_pandas(...), or a combination of its rows"
        )
    of = spread(group, confidence, simultaneous)
    z = quantile(of.confidence, group.size if of.simultaneous else 1)
    estimates = np.asarray(release.estimates[name], dtype=np.float64)
    margins = z * np.sqrt(release.variances[name])
    domain = release.plan.domain
    labels = [[str(v) for v in f.labels(domain[f.attribute])] for f in group.factors]
    if estimates.ndim == 2 and min(estimates.shape) > len(_LINES):
        return _plot_map(group, estimates, labels)
    order = tuple(range(estimates.ndim))
    if estimates.ndim == 2 and estimates.shape[0] <= estimates.shape[1]:
        order = (1, 0)
    lines = estimates.transpose(order).reshape(len(labels[order[0]]) if order else 1, -1)
    spans = margins.transpose(order).reshape(lines.shape)
    along = labels[order[0]] if order else [name]
    kinds = labels[order[1]] if len(order) == 2 else [""]
    width = min(10.0, 4.5 + 0.12 * len(along))
    if len(kinds) > 1:  # the legend stands beside the axes, which keep their width
        of_kinds = shorten(group.factors[order[1]].attribute)
        width += 0.8 + _LETTER * max(map(len, [of_kinds, *map(shorten, kinds)]))
    with drawing(width, 4.0) as (figure, axes):
        band = len(along) > _MOST_POINTS
        for i, kind in enumerate(kinds):
            shift = 0.0 if band or len(kinds) == 1 else 0.6 * ((i + 0.5) / len(kinds) - 0.5)
            at = np.arange(len(along)) + shift
            y, moe, colour = lines[:, i], spans[:, i], _LINES[i]
            label = shorten(kind) if len(kinds) > 1 else None
            if band:
                axes.plot(at, y, color=colour, lw=1.2, label=label)
                axes.fill_between(at, y - moe, y + moe, color=colour, alpha=0.25, linewidth=0)
            else:
                axes.errorbar(at, y, moe, fmt="o", ms=4, color=colour, capsize=2, label=label)
        _label_ticks(axes.xaxis, along, release, group, order[0] if order else None)
        axes.set(ylabel="estimate (records)")
        _set_title(axes, name, width, f"{of}, of the noise alone")
        separate_thousands(axes.yaxis)
        if len(kinds) > 1:
            axes.legend(
                title=of_kinds,
                alignment="left",
                frameon=False,
                loc="upper left",
                bbox_to_anchor=(1.0, 1.0),
            )
    return figure


def _set_title(axes: Any, name: str, width: float, note: str = "") -> None:
    """A title of one line that fits a figure of this width in inches, and a note of another line
    between it and the axes.
    """
    most = int((width - 1.2) / _LETTER)
    axes.set_title(shorten(name, most), loc="left", fontsize=11, pad=20 if note else None)
    if note:
        axes.annotate(
            note, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", fontsize=8
        )


def _plot_map(group: QueryGroup, estimates: Array, labels: list[list[str]]) -> Figure:
    rows, columns = estimates.shape
    width = min(10.0, 3.5 + 0.1 * columns)
    with drawing(width, min(8.0, 2.5 + 0.1 * rows)) as (figure, axes):
        drawn = axes.imshow(estimates, aspect="auto", cmap="viridis", interpolation="nearest")
        for axis, own, factor in zip((axes.yaxis, axes.xaxis), labels, group.factors, strict=True):
            _set_ticks(axis, own)
            axis.set_label_text(shorten(factor.attribute))
        bar = figure.colorbar(drawn, ax=axes, label="estimate (records)")
        separate_thousands(bar.ax.yaxis)
        _set_title(axes, group.name, width)
    return figure


def _label_ticks(
    axis: Any, labels: Sequence[str], release: Release, group: QueryGroup, place: int | None
) -> None:
    if place is None:
        axis.set_ticks([])
        return
    factor = group.factors[place]
    attribute = release.plan.domain[factor.attribute]
    ordered = isinstance(attribute, Integers | Bins | Dates) and factor.kind != "matrix"
    _set_ticks(axis, labels)
    if not ordered and max(map(len, labels)) * len(axis.get_ticklocs()) > 60:
        for tick in axis.get_ticklabels():
            tick.set(rotation=30, ha="right", rotation_mode="anchor")
    axis.set_label_text(shorten(factor.attribute))


def _set_ticks(axis: Any, labels: Sequence[str]) -> None:
    """Some of many labels, at even steps."""
    at = range(0, len(labels), -(-len(labels) // _MOST_TICKS))
    axis.set_ticks(at, [shorten(labels[i], 18) for i in at])
