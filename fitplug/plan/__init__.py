"""Plans: designed mechanisms, their files, prices and relaxations."""

from fitplug.plan.designer import design as design
from fitplug.plan.plan import Plan as Plan
from fitplug.plan.plan_file import describe_workload as describe_workload
from fitplug.plan.relaxation import (
    LARGEST_FACTOR as LARGEST_FACTOR,
    Relaxation as Relaxation,
    relax as relax,
)
from fitplug.plan.summary import (
    NEGLIGIBLE_GAP as NEGLIGIBLE_GAP,
    GroupRow as GroupRow,
    describe_cost as describe_cost,
    describe_gap as describe_gap,
    describe_overstatement as describe_overstatement,
    describe_public_totals as describe_public_totals,
    describe_weakness as describe_weakness,
    estimate_saving as estimate_saving,
    has_sums as has_sums,
    price_groups as price_groups,
)
