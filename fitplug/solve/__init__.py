"""Solvers: the dual, its fixed point and the methods around it. They know no family."""

from fitplug.solve.dual import DualValue, Simplex, Solution, solve_dual
from fitplug.solve.fixed_point import (
    MIXING,
    FixedPoint,
    GapProgress,
    Iterate,
    find_fixed_point,
    mix_with_uniform,
    normalise_logarithms,
    normalise_pair,
)
from fitplug.solve.geometric_mean import Poles, compute_mean, compute_mean_of_product, place_poles
from fitplug.solve.options import SOLVERS, Options, Solver, explain_end, explain_end_of_bounds
from fitplug.solve.problem import Block, Problem, ScalarBlocks, reduce_block, reduce_matrix
from fitplug.solve.refinement import Component, find_components, join_solutions, merge_tiers, refine
from fitplug.solve.sm2 import TotalErrorOptimum, minimise_total_error

__all__ = [
    "MIXING",
    "SOLVERS",
    "Block",
    "Component",
    "DualValue",
    "FixedPoint",
    "GapProgress",
    "Iterate",
    "Options",
    "Poles",
    "Problem",
    "ScalarBlocks",
    "Simplex",
    "Solution",
    "Solver",
    "TotalErrorOptimum",
    "compute_mean",
    "compute_mean_of_product",
    "explain_end",
    "explain_end_of_bounds",
    "find_components",
    "find_fixed_point",
    "join_solutions",
    "merge_tiers",
    "minimise_total_error",
    "mix_with_uniform",
    "normalise_logarithms",
    "normalise_pair",
    "place_poles",
    "reduce_block",
    "reduce_matrix",
    "refine",
    "solve_dual",
]
