"""Optimizers: from a structure and its targets to a strategy and dual weights."""

from fitplug.optimizer.block_rounding import CLAIM_MARGIN, integer_strategy
from fitplug.optimizer.bound_ascent import ascend_bound
from fitplug.optimizer.dual import Progress
from fitplug.optimizer.optimum import SOLVERS, Options, Solver, find_optimum
from fitplug.optimizer.residual_descent import solve_residual
from fitplug.optimizer.residual_rounding import SPLIT_MARGIN, split_strategy
from fitplug.optimizer.total_error import TotalErrorOptimum, minimise

__all__ = [
    "CLAIM_MARGIN",
    "SOLVERS",
    "SPLIT_MARGIN",
    "Options",
    "Progress",
    "Solver",
    "TotalErrorOptimum",
    "ascend_bound",
    "find_optimum",
    "integer_strategy",
    "minimise",
    "solve_residual",
    "split_strategy",
]
