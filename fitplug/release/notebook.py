"""What notebooks show of a release: noisy answers alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fitplug.display import (
    DELTA,
    MOST_GROUPS,
    MOST_ROWS,
    above,
    make_block,
    make_table,
    say_more,
    show_std,
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
        f"rho = {above(release.rho)} (zCDP, {whose})",
        f"epsilon {above(release.epsilon(DELTA, 'zcdp'), 4)} at delta = {DELTA:g}",
        f"plan {release.plan_digest[:12]}",
        release.population,
    ]
    groups = release.plan.workload.groups
    rows = []
    for group in groups[:MOST_GROUPS]:
        std = np.sqrt(release.variances[group.name])
        rows.append((group.name, f"{group.size:,}", show_std(float(std.min()), float(std.max()))))
    listed = make_table("groups of answers", ("group", "answers", "std"), rows, len(groups))
    if len(groups) > MOST_GROUPS:
        listed += say_more(len(groups) - MOST_GROUPS, "groups")
    tables = [
        _answers(f"{name}, {said}", release.plan.workload[name].size, table)
        for name, (said, table) in heads.items()
    ]
    return make_block("Release", facts, listed, *tables)


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
