"""What notebooks show of a release: noisy answers alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fitplug.display import (
    MOST_GROUPS,
    MOST_ROWS,
    SHOWN_DELTA,
    format_std_range,
    format_up,
    make_section,
    make_table,
    say_more,
)
from fitplug.numeric import AnyArray
from fitplug.release.noisy_answers import NoisyAnswers

MOST_ANSWERS = 10**6
"""Of a group of which a release shows the first."""


def release_html(
    release: NoisyAnswers, heads: Mapping[str, tuple[str, Mapping[str, AnyArray]]]
) -> str:
    """The cost, the groups, and the first rows of some tables.

    heads: by group, what its intervals are and its columns.
    """
    of = release.contributions
    whose = "one record" if of is None else f"a person of at most {of:,} record{'s'[: of != 1]}"
    facts = [
        f"rho = {format_up(release.rho)} (zCDP, {whose})",
        f"epsilon {format_up(release.epsilon(SHOWN_DELTA, 'zcdp'), 4)} at delta = {SHOWN_DELTA:g}",
        f"plan {release.plan_digest[:12]}",
        release.population,
    ]
    groups = release.plan.workload.groups
    rows = []
    for group in groups[:MOST_GROUPS]:
        std = np.sqrt(release.variances[group.name])
        rows.append(
            (group.name, f"{group.size:,}", format_std_range(float(std.min()), float(std.max())))
        )
    listed = make_table("groups of answers", ("group", "answers", "std"), rows, len(groups))
    if len(groups) > MOST_GROUPS:
        listed += say_more(len(groups) - MOST_GROUPS, "groups")
    tables = [
        _answers(f"{name}, {said}", release.plan.workload[name].size, table)
        for name, (said, table) in heads.items()
    ]
    return make_section("Release", facts, listed, *tables)


def _answers(caption: str, size: int, table: Mapping[str, AnyArray]) -> str:
    """The first rows of a group's table."""
    shown = [key for key in table if key not in ("moe", "confidence")]
    rows = [
        tuple(
            f"{value:,.1f}" if isinstance(value, float) else str(value)
            for value in (table[key][i].item() for key in shown)
        )
        for i in range(min(MOST_ROWS, size))
    ]
    return make_table(caption, shown, rows, MOST_ROWS, size, what="answers")
