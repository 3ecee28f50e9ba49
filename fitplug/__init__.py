"""fitplug finds the noise of least privacy cost that meets the accuracy targets of every query.

Domain -> Workload (query groups + targets) -> design -> Plan -> count -> measure -> Release
"""

from fitplug import baselines
from fitplug.adapters import Series, begin_series, count, open_series, preview, release
from fitplug.counts import DatabaseTable, DeltaTable, IcebergTable, Preview, Source, Tables
from fitplug.domain import Bins, Categories, CodePrefix, Dates, Domain, Hierarchy, Integers, Measure
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
    SamplerError,
    TablesError,
    WorkloadError,
)
from fitplug.evaluation import Evaluation, Strategy, evaluate
from fitplug.families import Mechanism
from fitplug.ledger import Ledger
from fitplug.plan import Plan, design
from fitplug.privacy import DiscreteNoise
from fitplug.releases import (
    About,
    Approximation,
    CoverageRow,
    DisplayTables,
    Estimate,
    Estimates,
    Quantile,
    Ratio,
    Release,
    TruncationLoss,
    estimate_truncation,
    review,
)
from fitplug.workload import (
    AddRemove,
    ReplaceOne,
    Workload,
    marginal,
    marginals,
    queries,
    ranges,
    subsets,
    total,
)

__version__ = "0.1.0"

__all__ = [
    "About",
    "AddRemove",
    "AlreadyReleased",
    "Approximation",
    "Bins",
    "BudgetError",
    "Categories",
    "CodePrefix",
    "CoverageRow",
    "DataError",
    "DatabaseTable",
    "Dates",
    "DeltaTable",
    "DesignError",
    "DiscreteNoise",
    "DisplayTables",
    "Domain",
    "DomainError",
    "Estimate",
    "Estimates",
    "Evaluation",
    "FitplugError",
    "Hierarchy",
    "IcebergTable",
    "InputError",
    "Integers",
    "KeyTaken",
    "Ledger",
    "LedgerError",
    "Measure",
    "Mechanism",
    "OverBudget",
    "Plan",
    "PlanError",
    "Preview",
    "Quantile",
    "Ratio",
    "Release",
    "ReplaceOne",
    "SamplerError",
    "Series",
    "Source",
    "Strategy",
    "Tables",
    "TablesError",
    "TruncationLoss",
    "Workload",
    "WorkloadError",
    "baselines",
    "begin_series",
    "count",
    "design",
    "estimate_truncation",
    "evaluate",
    "marginal",
    "marginals",
    "open_series",
    "preview",
    "queries",
    "ranges",
    "release",
    "review",
    "subsets",
    "total",
]


def __dir__() -> list[str]:
    """List the public names only, so that completion shows no modules that are not for users."""
    return ["__doc__", "__file__", "__name__", "__path__", "__version__", *__all__]
