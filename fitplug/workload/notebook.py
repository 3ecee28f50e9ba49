"""Notebooks: a workload as HTML."""

from __future__ import annotations

from fitplug.display import MOST_GROUPS, make_section, make_table
from fitplug.workload.query_groups import QueryGroups


def show_workload(groups: QueryGroups) -> str:
    """Make a table of query groups, their factors and their targets."""
    rows = [
        (g.name, " x ".join(f"{f.attribute} {f.kind}" for f in g.factors) or "total",
         f"{g.size:,}", g.target.describe())
        for g in groups[: MOST_GROUPS + 1]
    ]  # fmt: skip
    headings = ("group", "asks", "queries", "target")
    listed = make_table("groups of queries", headings, rows, MOST_GROUPS, len(groups))
    return make_section("Workload", [f"{sum(groups.sizes.tolist()):,} queries"], listed)
