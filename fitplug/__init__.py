"""fitplug: noise that is fit for use, at the least privacy cost.

Domain -> Workload (query groups + targets) -> design -> Plan -> count -> measure -> Release
"""

from fitplug import baselines
from fitplug.adjusted import Adjusted
from fitplug.attributes import Bins, Categories, Integers
from fitplug.combination import Combination, Combinations, Ratio
from fitplug.dates import Dates
from fitplug.design import design
from fitplug.domain import Domain
from fitplug.errors import (
    AlreadyReleased,
    BudgetError,
    DataError,
    DesignError,
    DomainError,
    FitplugError,
    InputError,
    KeyTaken,
    LedgerError,
    OverBudget,
    PlanError,
    TablesError,
    WorkloadError,
)
from fitplug.factors import ranges
from fitplug.hierarchy import Hierarchy
from fitplug.labelled import rows
from fitplug.ledger import Ledger
from fitplug.lost import Lost, estimate_lost
from fitplug.mechanisms import Mechanism
from fitplug.plan import Plan
from fitplug.prefixes import Prefix
from fitplug.release import Release
from fitplug.review import About, review
from fitplug.tables import Tables
from fitplug.workload import Workload, marginal, queries, total

__version__ = "0.1.0"

__all__ = [
    "About",
    "Adjusted",
    "AlreadyReleased",
    "Bins",
    "BudgetError",
    "Categories",
    "Combination",
    "Combinations",
    "DataError",
    "Dates",
    "DesignError",
    "Domain",
    "DomainError",
    "FitplugError",
    "Hierarchy",
    "InputError",
    "Integers",
    "KeyTaken",
    "Ledger",
    "LedgerError",
    "Lost",
    "Mechanism",
    "OverBudget",
    "Plan",
    "PlanError",
    "Prefix",
    "Ratio",
    "Release",
    "Tables",
    "TablesError",
    "Workload",
    "WorkloadError",
    "baselines",
    "design",
    "estimate_lost",
    "marginal",
    "queries",
    "ranges",
    "review",
    "rows",
    "total",
]


def __dir__() -> list[str]:
    """The public names alone: completion shows no modules that are not for users."""
    return ["__doc__", "__file__", "__name__", "__path__", "__version__", *__all__]
