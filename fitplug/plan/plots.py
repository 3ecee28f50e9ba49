"""Plots of a plan."""

from __future__ import annotations

import numpy as np

from fitplug.display import (
    BLUE,
    MOST_BARS,
    ORANGE,
    Figure,
    label_powers,
    open_figure,
    separate_thousands,
    shorten,
)
from fitplug.errors import DesignError
from fitplug.plan.plan_record import PlanRecord
from fitplug.plan.prices import price_groups
from fitplug.plan.summary import describe_groups, has_sums


def plot_plan(plan: PlanRecord) -> Figure:
    """Draw for each group its targets, the accuracy of its answers and, if defined, its price.

    See `Plan.plot`.
    """
    rows = describe_groups(plan)
    try:
        priced = price_groups(plan)
    except DesignError:
        priced = {}
    if len(rows) > MOST_BARS:  # only those with the highest prices are drawn
        kept = sorted(rows, key=lambda row: -priced.get(row.name, 0.0))[:MOST_BARS]
        rows = [row for row in rows if row in kept]
    targets = [np.sqrt(plan.scale * plan.targets[row.name]) for row in rows]
    heights = np.arange(len(rows))[::-1]
    size = 9.0 if priced else 6.0, 1.2 + 0.32 * len(rows)
    with open_figure(*size, panels=2 if priced else 1) as (figure, axes):
        left, right = axes if priced else (axes, None)
        for height, row, target in zip(heights, rows, targets, strict=True):
            first = {"label": "asked, at most"} if height == heights[0] else {}
            ends = float(target.min()), float(target.max())
            left.plot(ends, [height + 0.14] * 2, "|-", color=ORANGE, ms=11, mew=2.5, **first)
            first = {"label": "of the answers"} if first else {}
            ends = row.smallest_std, row.largest_std
            left.plot(ends, [height - 0.14] * 2, "o-", color=BLUE, ms=5, **first)
        left.set_yticks(heights, [shorten(row.name) for row in rows])
        of = "the quantity's own units" if has_sums(rows) else "records"
        left.set(xscale="log", xlabel=f"standard deviation ({of})")
        separate_thousands(left.xaxis)
        label_powers(left)
        left.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        if right is not None:
            shares = [100 * priced[row.name] for row in rows]
            right.barh(heights, shares, color=BLUE, height=0.62)
            for height, share in zip(heights, shares, strict=True):
                text = f"{share:.1f} %"
                right.annotate(
                    text, (share, height), (4, 0), textcoords="offset points", va="center"
                )
            right.set_yticks([])
            right.set(xlim=(0, 1.2 * max(shares)), xlabel="part of the privacy cost (%)")
            right.set_ylim(left.get_ylim())
    return figure
