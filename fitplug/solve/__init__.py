"""Solvers: the dual, its fixed point and related methods, independent of any family."""

from fitplug.solve.dual import (
    DualValue as DualValue,
    Simplex as Simplex,
    Solution as Solution,
    evaluate_numbers as evaluate_numbers,
    solve_dual as solve_dual,
)
from fitplug.solve.fixed_point import (
    MIXING as MIXING,
    FixedPoint as FixedPoint,
    GapProgress as GapProgress,
    Iterate as Iterate,
    find_fixed_point as find_fixed_point,
    mix_with_uniform as mix_with_uniform,
    normalise_logarithms as normalise_logarithms,
    normalise_pair as normalise_pair,
)
from fitplug.solve.geometric_mean import (
    compute_mean as compute_mean,
    compute_mean_of_product as compute_mean_of_product,
    place_poles as place_poles,
)
from fitplug.solve.options import (
    SOLVERS as SOLVERS,
    Options as Options,
    Solver as Solver,
    explain_end as explain_end,
    explain_end_of_bounds as explain_end_of_bounds,
)
from fitplug.solve.problem import (
    Block as Block,
    Problem as Problem,
    reduce_block as reduce_block,
    reduce_matrix as reduce_matrix,
)
from fitplug.solve.refinement import (
    Component as Component,
    find_components as find_components,
    join_solutions as join_solutions,
    merge_tiers as merge_tiers,
    refine as refine,
)
from fitplug.solve.sm2 import (
    TotalErrorOptimum as TotalErrorOptimum,
    minimise_total_error as minimise_total_error,
)
