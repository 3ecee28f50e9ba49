"""Notebook displays of a release: plots and the first rows of its tables. All of it is noisy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fitplug.display import (
    MOST_GROUPS,
    MOST_ROWS,
    MOST_TABLES,
    SHOWN_DELTA,
    format_rho,
    format_std_range,
    make_section,
    make_table,
    say_more,
)
from fitplug.numeric import AnyArray
from fitplug.plan import describe_public_totals
from fitplug.releases.noisy_answers import NoisyAnswers
from fitplug.releases.tables import choose_intervals, fits_table, make_columns
from fitplug.workload import QueryGroup

MOST_ANSWERS = 10**6
"""The largest number of answers of a group whose first answers are shown."""


def make_release_html(release: NoisyAnswers) -> str:
    """Make the HTML of a release: the cost, the groups, and the first rows of some tables."""
    cost = format_rho(release.rho, release.epsilon(SHOWN_DELTA), SHOWN_DELTA)
    facts = [
        f"{cost}, for {release.plan.unit}",
        f"plan {release.plan.digest[:12]}",
        release.population,
    ]
    if public := describe_public_totals(release.plan):
        facts.append(f"{public} They are in release.public_totals.")
    groups = release.plan.workload.groups
    rows: list[tuple[str, ...]] = []
    for group in groups[:MOST_GROUPS]:
        std = np.sqrt(release.variances[group.name])
        spread = format_std_range(float(std.min()), float(std.max()))
        rows.append((group.name, f"{group.size:,}", group.quantity, spread))
    headings: tuple[str, ...] = ("group", "answers", "quantity", "std")
    if all(row[2] == "rows" for row in rows):
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
