"""Plans: designed mechanisms, their files, prices and relaxations."""

from fitplug.plan.designer import design
from fitplug.plan.plan import Plan
from fitplug.plan.plan_file import describe_workload
from fitplug.plan.relaxation import LARGEST_FACTOR, Relaxation, relax
from fitplug.plan.summary import (
    NEGLIGIBLE_GAP,
    GroupRow,
    describe_cost,
    describe_gap,
    describe_overstatement,
    describe_public_totals,
    estimate_saving,
    has_sums,
    price_groups,
)

__all__ = [
    "LARGEST_FACTOR",
    "NEGLIGIBLE_GAP",
    "GroupRow",
    "Plan",
    "Relaxation",
    "describe_cost",
    "describe_gap",
    "describe_overstatement",
    "describe_public_totals",
    "describe_workload",
    "design",
    "estimate_saving",
    "has_sums",
    "price_groups",
    "relax",
]
