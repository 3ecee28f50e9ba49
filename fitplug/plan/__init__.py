"""Plans: designed mechanisms, their files, prices and relaxations."""

from fitplug.plan.designer import design as design
from fitplug.plan.plan import Plan as Plan
from fitplug.plan.plan_file import describe_workload as describe_workload
from fitplug.plan.relaxation import LARGEST_FACTOR as LARGEST_FACTOR
from fitplug.plan.relaxation import Relaxation as Relaxation
from fitplug.plan.relaxation import relax as relax
from fitplug.plan.summary import NEGLIGIBLE_GAP as NEGLIGIBLE_GAP
from fitplug.plan.summary import GroupRow as GroupRow
from fitplug.plan.summary import describe_cost as describe_cost
from fitplug.plan.summary import describe_gap as describe_gap
from fitplug.plan.summary import describe_overstatement as describe_overstatement
from fitplug.plan.summary import describe_public_totals as describe_public_totals
from fitplug.plan.summary import estimate_saving as estimate_saving
from fitplug.plan.summary import has_sums as has_sums
from fitplug.plan.summary import price_groups as price_groups
