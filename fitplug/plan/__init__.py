"""Plans: designed mechanisms, their files, prices and relaxations."""

from fitplug.plan.designer import design
from fitplug.plan.plan import Plan
from fitplug.plan.plan_file import describe
from fitplug.plan.prices import NEAR, most_saved, price_groups
from fitplug.plan.relaxation import LARGEST_FACTOR, Relaxation, relax
from fitplug.plan.summary import GroupRow

__all__ = [
    "LARGEST_FACTOR",
    "NEAR",
    "GroupRow",
    "Plan",
    "Relaxation",
    "describe",
    "design",
    "most_saved",
    "price_groups",
    "relax",
]
