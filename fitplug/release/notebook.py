"""What notebooks show of a release: plots, and its first rows. All of it is noisy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fitplug.display import (
    LETTER_WIDTH,
    LINE_COLOURS,
    MOST_GROUPS,
    MOST_ROWS,
    MOST_TABLES,
    SHOWN_DELTA,
    Figure,
    format_rho,
    format_std_range,
    make_section,
    make_table,
    open_figure,
    say_more,
    separate_thousands,
    shorten,
)
from fitplug.errors import WorkloadError
from fitplug.numeric import AnyArray, FloatArray
from fitplug.plan import describe_public_totals
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.tables import choose_intervals, fits_table, make_columns
from fitplug.workload import ONE_RECORD, AddRemove, Factor, QueryGroup

_MOST_TICKS = 16

_MOST_POINTS = 40
"""The largest number of points of a line with error bars; more become a band."""


def plot_release(
    release: NoisyAnswers, name: str, *, confidence: float | None, simultaneous: bool | None
) -> Figure:
    """Plot the estimates of a group of up to two attributes: see `Release.plot`."""
    group = release.plan.workload[name]
    # An attribute with one row, such as the sum of a measure, needs no axis.
    factors = [factor for factor in group.factors if factor.rows > 1]
    if len(factors) > 2:
        raise WorkloadError(
            f"group {name!r} has {len(factors)} attributes with several rows, and up to 2 can be "
            "plotted; plot its table, release.to_pandas(...), or a combination of its rows"
        )
    intervals = choose_intervals(group, confidence, simultaneous)
    shape = tuple(factor.rows for factor in factors)
    estimates = np.asarray(release.estimates[name], dtype=np.float64).reshape(shape)
    margins = intervals.compute_moe(group, np.sqrt(release.variances[name])).reshape(shape)
    domain = release.plan.domain
    labels = [[str(v) for v in f.labels(domain[f.attribute])] for f in factors]
    if estimates.ndim == 2 and min(estimates.shape) > len(LINE_COLOURS):
        return _plot_map(group, factors, estimates, labels)
    order = tuple(range(estimates.ndim))
    if estimates.ndim == 2 and estimates.shape[0] <= estimates.shape[1]:
        order = (1, 0)
    lines = estimates.transpose(order).reshape(len(labels[order[0]]) if order else 1, -1)
    spans = margins.transpose(order).reshape(lines.shape)
    along = labels[order[0]] if order else [name]
    kinds = labels[order[1]] if len(order) == 2 else [""]
    width = min(10.0, 4.5 + 0.12 * len(along))
    if len(kinds) > 1:  # the legend goes next to the axes, whose width stays the same
        legend_title = shorten(factors[order[1]].attribute)
        width += 0.8 + LETTER_WIDTH * max(map(len, [legend_title, *map(shorten, kinds)]))
    with open_figure(width, 4.0) as (figure, axes):
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
        _label_ticks(axes.xaxis, along, release, factors[order[0]] if order else None)
        axes.set(ylabel=f"estimate ({group.quantity})")
        _set_title(axes, name, width, f"{intervals}, of the noise alone")
        separate_thousands(axes.yaxis)
        if len(kinds) > 1:
            axes.legend(
                title=legend_title,
                alignment="left",
                frameon=False,
                loc="upper left",
                bbox_to_anchor=(1.0, 1.0),
            )
    return figure


def _set_title(axes: Any, name: str, width: float, note: str = "") -> None:
    """Set a title of one line that fits a figure of this width in inches.

    A note stands on another line, between the title and the axes.
    """
    most = int((width - 1.2) / LETTER_WIDTH)
    axes.set_title(shorten(name, most), loc="left", fontsize=11, pad=20 if note else None)
    if note:
        axes.annotate(
            note, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", fontsize=8
        )


def _plot_map(
    group: QueryGroup, factors: list[Factor], estimates: FloatArray, labels: list[list[str]]
) -> Figure:
    """Plot the estimates (rows, columns) of two attributes of many values as a map."""
    rows, columns = estimates.shape
    width = min(10.0, 3.5 + 0.1 * columns)
    with open_figure(width, min(8.0, 2.5 + 0.1 * rows)) as (figure, axes):
        drawn = axes.imshow(estimates, aspect="auto", cmap="viridis", interpolation="nearest")
        for axis, texts, factor in zip((axes.yaxis, axes.xaxis), labels, factors, strict=True):
            _set_ticks(axis, texts)
            axis.set_label_text(shorten(factor.attribute))
        bar = figure.colorbar(drawn, ax=axes, label=f"estimate ({group.quantity})")
        separate_thousands(bar.ax.yaxis)
        _set_title(axes, group.name, width)
    return figure


def _label_ticks(
    axis: Any, labels: Sequence[str], release: NoisyAnswers, factor: Factor | None
) -> None:
    """Label an axis with the rows of this factor; None for no attribute."""
    if factor is None:
        axis.set_ticks([])
        return
    attribute = release.plan.domain[factor.attribute]
    ordered = attribute.is_ordered and factor.array is None
    _set_ticks(axis, labels)
    if not ordered and max(map(len, labels)) * len(axis.get_ticklocs()) > 60:
        for tick in axis.get_ticklabels():
            tick.set(rotation=30, ha="right", rotation_mode="anchor")
    axis.set_label_text(shorten(factor.attribute))


def _set_ticks(axis: Any, labels: Sequence[str]) -> None:
    """Set ticks at even steps, with some of many labels."""
    at = range(0, len(labels), -(-len(labels) // _MOST_TICKS))
    axis.set_ticks(at, [shorten(labels[i], 18) for i in at])


MOST_ANSWERS = 10**6
"""The largest number of answers of a group whose first answers are shown."""


def make_release_html(release: NoisyAnswers) -> str:
    """Make the HTML of a release: the cost, the groups, and the first rows of some tables."""
    k = release.contributions
    whose = "one record" if k is None else f"a person of at most {k:,} record{'s'[: k != 1]}"
    if isinstance(release.plan.unit, AddRemove) and not release.plan.unit.is_of_records:
        whose = "one person in this unit"
    facts = [
        f"{format_rho(release.rho, release.epsilon(SHOWN_DELTA), SHOWN_DELTA)}, for {whose}",
        f"plan {release.plan_digest[:12]}",
        release.population,
    ]
    if release.plan.unit != ONE_RECORD:
        facts.insert(0, f"unit of privacy: {release.plan.unit}")
    if public := describe_public_totals(release.plan):
        facts.append(f"{public} They are in release.public_totals.")
    groups = release.plan.workload.groups
    rows: list[tuple[str, ...]] = []
    for group in groups[:MOST_GROUPS]:
        std = np.sqrt(release.variances[group.name])
        spread = format_std_range(float(std.min()), float(std.max()))
        rows.append((group.name, f"{group.size:,}", group.quantity, spread))
    headings: tuple[str, ...] = ("group", "answers", "quantity", "std")
    if all(row[2] == "records" for row in rows):
        rows = [(*row[:2], *row[3:]) for row in rows]
        headings = (*headings[:2], *headings[3:])
    listed = make_table("groups of answers", headings, rows, len(groups))
    if len(groups) > MOST_GROUPS:
        listed += say_more(len(groups) - MOST_GROUPS, "groups")
    shown = [
        _make_head(release, group)
        for group in groups[:MOST_TABLES]
        if group.size <= MOST_ANSWERS and fits_table(group)
    ]
    return make_section("Release", facts, listed, *shown)


def _make_head(release: NoisyAnswers, group: QueryGroup) -> str:
    """Make the HTML of the first rows of a group's table, with its intervals."""
    intervals = choose_intervals(group, None)
    columns = make_columns(release, group, intervals)
    return _make_first_rows(f"{group.name}, {intervals}", group.size, columns)


def _make_first_rows(caption: str, size: int, columns: Mapping[str, AnyArray]) -> str:
    """Make the HTML of the first rows of some columns."""
    shown = [key for key in columns if key not in ("moe", "confidence")]
    rows = [
        tuple(
            f"{value:,.1f}" if isinstance(value, float) else str(value)
            for value in (columns[key][i].item() for key in shown)
        )
        for i in range(min(MOST_ROWS, size))
    ]
    return make_table(caption, shown, rows, MOST_ROWS, size, what="answers")
