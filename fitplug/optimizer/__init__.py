"""Optimizers: from a structure and its targets to a strategy and dual weights."""

from fitplug.optimizer.block_rounding import round_blocks
from fitplug.optimizer.claims import CLAIM_MARGIN, PRODUCT_BOUND_MARGIN
from fitplug.optimizer.fixed_point import Progress
from fitplug.optimizer.member_descent import descend_residual_family
from fitplug.optimizer.member_rounding import round_member
from fitplug.optimizer.optimum import SOLVERS, Options, Solver, find_optimum
from fitplug.optimizer.product_bound_ascent import ascend_product_bound
from fitplug.optimizer.total_error import TotalErrorOptimum, minimise_total_error

__all__ = [
    "CLAIM_MARGIN",
    "PRODUCT_BOUND_MARGIN",
    "SOLVERS",
    "Options",
    "Progress",
    "Solver",
    "TotalErrorOptimum",
    "ascend_product_bound",
    "descend_residual_family",
    "find_optimum",
    "minimise_total_error",
    "round_blocks",
    "round_member",
]
