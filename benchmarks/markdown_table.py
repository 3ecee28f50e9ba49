"""Rows of Markdown tables, which the benchmarks print."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import fitplug as fp  # the interpreters of peers need not have it


def compute_delta_gap(plan: fp.Plan) -> float:
    """Compute how far the paper's Delta is above its certified bound, as older tables have it."""
    return plan.privacy_cost / plan.lower_bound - 1


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def heading(columns: list[str]) -> str:
    return line(columns) + "\n" + line(["---"] * len(columns))
