"""Plots of a release: one group's estimates with their intervals. All of it is noisy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from fitplug.display import (
    BLUE,
    GREY,
    LETTER_WIDTH,
    LINE_COLOURS,
    ORANGE,
    Figure,
    open_figure,
    scale_colours,
    separate_thousands,
    shorten,
)
from fitplug.domain import get_codec, label_values
from fitplug.errors import WorkloadError
from fitplug.numeric import FloatArray, IntArray
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.releases.regions import Regions, draw_outlines, read_regions
from fitplug.releases.tables import choose_intervals
from fitplug.workload import Factor, QueryGroup

Kind: TypeAlias = Literal["lines", "bars", "pyramid", "grid", "map"]

_MOST_TICKS = 16

_MOST_POINTS = 40
"""The largest number of points of a line with error bars; more become a band."""

_MOST_BARS = 60
"""The largest number of bars that all have labels."""

_SKEWED = 10.0
"""Colours are logarithmic if the largest estimate is more than this many times the median."""


@dataclass(frozen=True, eq=False)
class _Estimates:
    """What a plot shows: the estimates of a group, over the attributes with several rows.

    Attributes:
        group: The group.
        factors: Its attributes with several rows, up to two.
        codes: The values of their rows in tables.
        labels: The labels of their rows, or the codes where the domain has no labels.
        ordered: For each, whether its rows have the order of the attribute's values.
        values: The estimates, of shape (rows, ...).
        moe: Their margins of error, of the same shape.
        note: The confidence of the margins.
    """

    group: QueryGroup
    factors: list[Factor]
    codes: list[list[str]]
    labels: list[list[str]]
    ordered: list[bool]
    values: FloatArray
    moe: FloatArray
    note: str

    def swap(self) -> _Estimates:
        """Return the same estimates of two attributes in the other order."""
        return replace(
            self,
            factors=self.factors[::-1],
            codes=self.codes[::-1],
            labels=self.labels[::-1],
            ordered=self.ordered[::-1],
            values=self.values.T,
            moe=self.moe.T,
        )

    @property
    def quantity(self) -> str:
        return f"estimate ({self.group.quantity})"


def plot_release(
    release: NoisyAnswers,
    name: str,
    *,
    kind: Kind | None,
    regions: Regions | None,
    confidence: float | None,
    simultaneous: bool | None,
    ax: Any,
) -> Figure:
    """Plot the estimates of a group of up to two attributes: see `Release.plot`."""
    shown = _read_estimates(release, name, confidence, simultaneous)
    if kind is None:
        kind = "map" if regions is not None else _choose_kind(shown)
    if kind == "map":
        if regions is None:
            raise WorkloadError("a map needs regions=, a GeoJSON file with the outlines")
        return _plot_map(_check(shown, kind, 1), regions, ax)
    if regions is not None:
        raise WorkloadError(f"regions= is for maps, not for {kind!r}. Remove regions=.")
    if kind == "bars":
        return _plot_bars(_check(shown, kind, 1), ax)
    if kind == "pyramid":
        return _plot_pyramid(_check(shown, kind, 2), ax)
    if kind == "grid":
        return _plot_grid(_check(shown, kind, 2), ax)
    if kind == "lines":
        return _plot_lines(shown, ax)
    raise WorkloadError(
        f"unknown kind {kind!r}. The kinds are 'lines', 'bars', 'pyramid', 'grid' and 'map'."
    )


def _read_estimates(
    release: NoisyAnswers, name: str, confidence: float | None, simultaneous: bool | None
) -> _Estimates:
    group = release.plan.workload[name]
    # An attribute with one row, such as the sum of a measure, needs no axis.
    factors = [factor for factor in group.factors if factor.rows > 1]
    if len(factors) > 2:
        raise WorkloadError(
            f"a plot shows at most 2 attributes, but {name!r} has {len(factors)}. Plot the data "
            "frame of release.to_pandas instead."
        )
    intervals = choose_intervals(group, confidence, simultaneous)
    shape = tuple(factor.rows for factor in factors)
    domain = release.plan.domain
    codes = [list(map(str, f.labels(domain[f.attribute]))) for f in factors]
    return _Estimates(
        group,
        factors,
        codes,
        [
            label_values(domain, f.attribute, f.kind, values) or values
            for f, values in zip(factors, codes, strict=True)
        ],
        [get_codec(domain[f.attribute]).is_ordered and f.array is None for f in factors],
        np.asarray(release.estimates[name], dtype=np.float64).reshape(shape),
        intervals.compute_moe(group, np.sqrt(release.variances[name])).reshape(shape),
        f"{intervals}, for the noise alone",
    )


def _choose_kind(shown: _Estimates) -> Kind:
    if shown.values.ndim == 2 and min(shown.values.shape) > len(LINE_COLOURS):
        return "grid"
    return "bars" if shown.values.ndim == 1 and not shown.ordered[0] else "lines"


def _check(shown: _Estimates, kind: Kind, attributes: int) -> _Estimates:
    """Return the estimates if this kind of plot fits their number of attributes.

    Raises:
        WorkloadError: It does not.
    """
    if shown.values.ndim != attributes:
        needed = "one attribute" if attributes == 1 else "two attributes"
        raise WorkloadError(
            f"a plot of kind {kind!r} is for {needed}, but {shown.group.name!r} has "
            f"{shown.values.ndim}. Remove kind=."
        )
    return shown


def _plot_lines(shown: _Estimates, ax: Any) -> Figure:
    """Plot points or bands along the attribute with more rows, in one colour per row of the other.

    Raises:
        WorkloadError: There are more lines than colours that a reader can distinguish.
    """
    if shown.values.ndim == 2 and shown.values.shape[0] <= shown.values.shape[1]:
        shown = shown.swap()
    along = shown.labels[0] if shown.labels else [shown.group.name]
    kinds = shown.labels[1] if len(shown.labels) == 2 else [""]
    if len(kinds) > len(LINE_COLOURS):
        raise WorkloadError(
            f"a plot of 'lines' can have at most {len(LINE_COLOURS)} lines, not {len(kinds)}. "
            "Choose 'grid'."
        )
    lines, spans = (part.reshape(len(along), -1) for part in (shown.values, shown.moe))
    width = min(10.0, 4.5 + 0.12 * len(along))
    title, room = "", width - 1.0
    if len(kinds) > 1:  # the legend goes next to the axes, whose width stays the same
        title = shorten(shown.factors[1].attribute)
        width += 0.8 + LETTER_WIDTH * max(map(len, [title, *map(shorten, kinds)]))
    with open_figure(width, 4.0, ax=ax) as (figure, axes):
        band = len(along) > _MOST_POINTS
        for i, kind in enumerate(kinds):
            shift = 0.0 if band or len(kinds) == 1 else 0.6 * ((i + 0.5) / len(kinds) - 0.5)
            at = np.arange(len(along)) + shift
            y, moe, colour = lines[:, i], spans[:, i], LINE_COLOURS[i]
            label = shorten(kind) if len(kinds) > 1 else None
            if band:
                axes.plot(at, y, color=colour, lw=1.2, label=label)
                axes.fill_between(at, y - moe, y + moe, color=colour, alpha=0.25, linewidth=0)
            else:
                axes.errorbar(at, y, moe, fmt="o", ms=4, color=colour, capsize=2, label=label)
        if shown.factors:
            _set_ticks(axes.xaxis, along, shown.factors[0].attribute, width=room)
        else:
            axes.xaxis.set_ticks([])
        axes.set(ylabel=shown.quantity)
        _set_title(axes, shown, width)
        separate_thousands(axes.yaxis)
        if len(kinds) > 1:
            axes.legend(
                title=title,
                alignment="left",
                frameon=False,
                loc="upper left",
                bbox_to_anchor=(1.0, 1.0),
            )
    return figure


def _plot_bars(shown: _Estimates, ax: Any) -> Figure:
    """Plot horizontal bars with their intervals, the largest first if the values have no order."""
    order = np.arange(len(shown.values))
    if not shown.ordered[0]:
        order = np.argsort(-shown.values, kind="stable")
    labels = [shown.labels[0][i] for i in order]
    height = min(12.0, 1.3 + 0.26 * len(order))
    with open_figure(6.5, height, ax=ax) as (figure, axes):
        at = np.arange(len(order))
        axes.barh(at, shown.values[order], color=BLUE, height=0.7)
        _draw_intervals(axes, shown.values[order], shown.moe[order], at)
        _set_ticks(axes.yaxis, labels, shown.factors[0].attribute, most=_MOST_BARS)
        axes.invert_yaxis()
        axes.set(xlabel=shown.quantity)
        _set_title(axes, shown, 6.5)
        separate_thousands(axes.xaxis)
    return figure


def _draw_intervals(axes: Any, values: FloatArray, moe: FloatArray, at: IntArray) -> None:
    """Draw horizontal intervals that are visible both on a bar and next to it."""
    ink = axes.xaxis.label.get_color()
    axes.errorbar(values, at, xerr=moe, fmt="none", ecolor=ink, elinewidth=1.0, capsize=2)


def _plot_pyramid(shown: _Estimates, ax: Any) -> Figure:
    """Plot two rows of bars back to back, like a population pyramid by age and sex.

    Raises:
        WorkloadError: No attribute of the group has exactly two rows.
    """
    if shown.values.shape[0] == 2:
        shown = shown.swap()
    if shown.values.shape[1] != 2:
        raise WorkloadError(
            f"a pyramid needs an attribute with two rows, but {shown.group.name!r} has none. "
            "Choose 'lines' or 'grid'."
        )
    count = len(shown.labels[0])
    with open_figure(6.5, min(9.0, 2.0 + 0.2 * count), ax=ax) as (figure, axes):
        at = np.arange(count)
        thickness = 0.86 if count <= _MOST_POINTS else 1.0
        most = float(np.abs(shown.values).max() + shown.moe.max()) * 1.05
        for side, colour in enumerate((BLUE, ORANGE)):
            sign = 2 * side - 1
            values = sign * shown.values[:, side]
            axes.barh(at, values, color=colour, height=thickness)
            _draw_intervals(axes, values, shown.moe[:, side], at)
            axes.annotate(
                shorten(shown.labels[1][side]),
                (0.5 + 0.25 * sign, 1),
                (0, 4),
                xycoords="axes fraction",
                textcoords="offset points",
                ha="center",
                color=axes.xaxis.label.get_color(),  # orange on white is hard to read
                weight="bold",
            )
        axes.axvline(0, color=axes.get_facecolor(), lw=1.2)
        axes.set(xlim=(-most, most), ylim=(-0.6, count - 0.4), xlabel=shown.quantity)
        axes.xaxis.set_major_formatter(lambda value, _: f"{abs(value):,.10g}")
        _set_ticks(axes.yaxis, shown.labels[0], shown.factors[0].attribute, most=25)
        _set_title(axes, shown, 6.5, above=18)
    return figure


def _plot_grid(shown: _Estimates, ax: Any) -> Figure:
    """Plot the estimates (rows, columns) of two attributes of many values as coloured cells."""
    rows, columns = shown.values.shape
    width = min(10.0, 3.5 + 0.2 * columns)
    with open_figure(width, min(8.0, 2.5 + 0.1 * rows), ax=ax) as (figure, axes):
        drawn = axes.imshow(
            shown.values, aspect="auto", interpolation="nearest", **_choose_colours(shown)
        )
        for axis, labels, factor in zip(
            (axes.yaxis, axes.xaxis), shown.labels, shown.factors, strict=True
        ):
            _set_ticks(axis, labels, factor.attribute, width=width - 2.5)
        _draw_colour_bar(figure, axes, drawn, shown)
        _set_title(axes, shown, width, note=False)
    return figure


def _plot_map(shown: _Estimates, regions: Regions, ax: Any) -> Figure:
    """Plot the estimates of regions on their outlines."""
    outlines = read_regions(regions, shown.codes[0])
    with open_figure(7.0, 5.5, ax=ax) as (figure, axes):
        values = np.array([shown.values[i] for i in outlines.rows])
        drawn = draw_outlines(axes, outlines, values, other=GREY, **_choose_colours(shown))
        axes.set_axis_off()
        _draw_colour_bar(figure, axes, drawn, shown)
        _set_title(axes, shown, 7.0, note=False)
    return figure


def _choose_colours(shown: _Estimates) -> dict[str, Any]:
    """Choose colours: diverging where sums may be negative, logarithmic for skewed counts."""
    low, high = float(shown.values.min()), float(shown.values.max())
    noise = float(shown.moe.max())
    if low < -2 * noise:  # too negative to be a count with noise
        most = max(-low, high)
        return {"cmap": "PuOr", "norm": scale_colours(-most, most)}
    low = min(low, 0.0)
    if high > _SKEWED * max(float(np.median(shown.values)), noise):
        return {"cmap": "viridis", "norm": scale_colours(low, high, linear_below=max(noise, 1e-12))}
    return {"cmap": "viridis", "norm": scale_colours(low, high)}


def _draw_colour_bar(figure: Figure, axes: Any, drawn: Any, shown: _Estimates) -> None:
    bar = figure.colorbar(drawn, ax=axes, label=shown.quantity)
    separate_thousands(bar.ax.yaxis)


def _set_title(
    axes: Any, shown: _Estimates, width: float, *, note: bool = True, above: int = 0
) -> None:
    """Set a title of one line that fits a figure of this width in inches.

    The note on confidence stands on another line, between the title and the axes, `above` points
    above them.
    """
    most = int((width - 1.2) / LETTER_WIDTH)
    pad = 20 + above if note else None
    axes.set_title(shorten(shown.group.name, most), loc="left", fontsize=11, pad=pad)
    if note:
        axes.annotate(
            shown.note,
            (0, 1),
            (0, 6 + above),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=8,
        )


def _set_ticks(
    axis: Any, labels: Sequence[str], attribute: str, *, most: int = _MOST_TICKS, width: float = 0.0
) -> None:
    """Set at most about `most` ticks at even steps.

    Labels of an x axis are rotated if they would overlap at this width in inches.
    """
    at = range(0, len(labels), -(-len(labels) // most))
    chosen = [shorten(labels[i], 18) for i in at]
    axis.set_ticks(at, chosen)
    axis.set_label_text(shorten(attribute))
    if axis.axis_name == "x" and max(map(len, chosen)) * len(chosen) * LETTER_WIDTH > width:
        for tick in axis.get_ticklabels():
            tick.set(rotation=30, ha="right", rotation_mode="anchor")
