"""What notebooks show of plans, releases, workloads and domains: small tables of HTML.

Every text is escaped. Colours are the notebook's own, so that light and dark themes both work.
Nothing here ever shows an exact count: releases are of noisy answers, and Tables have no such view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fitplug.rounding import above

if TYPE_CHECKING:
    from fitplug.domain import Domain
    from fitplug.plan import Plan
    from fitplug.release import Release
    from fitplug.workload import Workload

_MOST_GROUPS, MOST_TABLES, _MOST_ROWS = 30, 3, 5
MOST_ANSWERS = 10**6
"""Of a group of which a release shows the first."""

_DELTA = 1e-9
_LEFT, _RIGHT = ' style="text-align: left"', ' style="text-align: right"'


def plan_html(plan: Plan) -> str:
    """The cost, and what each group asks and gets."""
    facts = [
        f"rho = {above(plan.rho)} (zCDP, one record)",
        f"epsilon {above(plan.epsilon(_DELTA, 'zcdp'), 4)} at delta = {_DELTA:g}",
        plan.status,
    ]
    if plan.scale != 1.0:
        facts.append(f"all target variances scaled by {above(plan.scale)}")
    rows = [
        (row.name, f"{row.queries:,}", row.target, _std(row.smallest_std, row.largest_std),
         f"{row.used:.1%}")
        for row in plan.group_rows()
    ]  # fmt: skip
    headings = ("group", "queries", "target", "std it gets", "of the target")
    return _block(
        f"Plan {plan.digest[:12]}", facts, _table("groups of queries", headings, rows, _MOST_GROUPS)
    )


def release_html(
    release: Release, heads: Mapping[str, tuple[str, Mapping[str, npt.NDArray[Any]]]]
) -> str:
    """The cost, the groups, and the first rows of some tables.

    heads: by group, what its intervals are and its columns.
    """
    of = release.contributions
    whose = "one record" if of is None else f"a person of at most {of:,} record{'s'[: of != 1]}"
    facts = [
        f"rho = {above(release.rho)} (zCDP, {whose})",
        f"epsilon {above(release.epsilon(_DELTA, 'zcdp'), 4)} at delta = {_DELTA:g}",
        f"plan {release.plan_digest[:12]}",
        release.population,
    ]
    groups = release.plan.workload.groups
    rows = []
    for group in groups[:_MOST_GROUPS]:
        std = np.sqrt(release.variances[group.name])
        rows.append((group.name, f"{group.size:,}", _std(float(std.min()), float(std.max()))))
    listed = _table("groups of answers", ("group", "answers", "std"), rows, len(groups))
    if len(groups) > _MOST_GROUPS:
        listed += _more(len(groups) - _MOST_GROUPS, "groups")
    tables = [
        _answers(f"{name}, {said}", release.plan.workload[name].size, table)
        for name, (said, table) in heads.items()
    ]
    return _block("Release", facts, listed, *tables)


def workload_html(workload: Workload) -> str:
    """The groups, and what each asks."""
    rows = [
        (g.name, " x ".join(f"{f.attribute} {f.kind}" for f in g.factors) or "total",
         f"{g.size:,}", g.target.describe())
        for g in workload.groups[: _MOST_GROUPS + 1]
    ]  # fmt: skip
    headings = ("group", "asks", "queries", "target")
    listed = _table("groups of queries", headings, rows, _MOST_GROUPS, len(workload.groups))
    return _block("Workload", [f"{workload.query_count:,} queries"], listed)


def domain_html(domain: Domain) -> str:
    """The attributes, and how many cells each has."""
    rows = [
        (name, type(attribute).__name__, f"{attribute.size:,}")
        for name, attribute in domain.attributes[: _MOST_GROUPS + 1]
    ]
    cells = f"{domain.size:,}" if domain.size < 10**15 else f"about 10^{len(str(domain.size)) - 1}"
    headings = ("attribute", "kind", "cells")
    listed = _table("attributes", headings, rows, _MOST_GROUPS, len(domain.names))
    return _block("Domain", [f"{cells} cells"], listed)


def _answers(caption: str, size: int, table: Mapping[str, npt.NDArray[Any]]) -> str:
    """The first rows of a group's table."""
    shown = [key for key in table if key not in ("moe", "confidence")]
    rows = [
        tuple(
            f"{value:,.1f}" if isinstance(value, float) else str(value)
            for value in (table[key][i].item() for key in shown)
        )
        for i in range(min(_MOST_ROWS, size))
    ]
    return _table(caption, shown, rows, _MOST_ROWS, size, what="answers")


def _std(smallest: float, largest: float) -> str:
    low, high = above(smallest, 4), above(largest, 4)
    return high if low == high else f"{low} to {high}"


def _table(
    caption: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    most: int,
    count: int | None = None,
    what: str = "groups",
) -> str:
    """The first rows, whose first cell heads the row; texts to the left, numbers to the right."""
    count = len(rows) if count is None else count
    numeric = [
        all(row[i][:1].isdigit() or row[i][:1] == "-" for row in rows) and i > 0
        for i in range(len(headings))
    ]
    head = "".join(
        f'<th scope="col"{_RIGHT if right else _LEFT}>{escape(text)}</th>'
        for text, right in zip(headings, numeric, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, numeric)}</tr>" for row in rows[:most])
    more = _more(count - most, what) if count > most else ""
    return (
        f'<table><caption style="text-align: left; padding: .4em 0">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
    )


def _cells(row: Sequence[str], numeric: Sequence[bool]) -> str:
    first = f'<th scope="row"{_LEFT}>{escape(_short(row[0]))}</th>' if row else ""
    rest = zip(row[1:], numeric[1:], strict=True)
    return first + "".join(
        f"<td{_RIGHT if right else _LEFT}>{escape(_short(text))}</td>" for text, right in rest
    )


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "\N{HORIZONTAL ELLIPSIS}"


def _more(count: int, what: str) -> str:
    return f'<p style="margin: .2em 0">and {count:,} more {what}</p>'


def _block(title: str, facts: Iterable[str], *parts: str) -> str:
    lines = "<br>".join(escape(fact) for fact in facts)
    return (
        f'<div class="fitplug"><p style="margin: .2em 0"><strong>{escape(title)}</strong><br>'
        f"{lines}</p>{''.join(parts)}</div>"
    )
