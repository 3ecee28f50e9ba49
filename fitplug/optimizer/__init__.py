"""Optimizers: from a structure and its targets to a strategy and dual weights."""

from fitplug.optimizer.drafts import draft_plan
from fitplug.optimizer.fixed_point import GapProgress
from fitplug.optimizer.optimum import SOLVERS, Options, Solver
from fitplug.optimizer.total_error import TotalErrorOptimum, minimise_total_error

__all__ = [
    "SOLVERS",
    "GapProgress",
    "Options",
    "Solver",
    "TotalErrorOptimum",
    "draft_plan",
    "minimise_total_error",
]
