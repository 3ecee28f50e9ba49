"""The optimum of a workload: of all blocks and components of its structure together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fitplug.certify import Tiers, make_one_tier
from fitplug.families.base.design import CLAIM_MARGIN, Design
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.design.reduction import reduce_matrices, reduce_scalars
from fitplug.families.blocks.design.rounding import (
    RealBlocks,
    choose_bases,
    round_blocks,
    share_basis,
)
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.shape.scalars import ScalarStructure
from fitplug.solve import (
    SOLVERS,
    Component,
    Options,
    Problem,
    ScalarBlocks,
    Solution,
    explain_end,
    find_components,
    join_solutions,
    merge_tiers,
    reduce_block,
    refine,
)

_REFINING = 1e12
"""Floating-point operations, about a minute of work, after which no component is refined."""


def design_matrices(
    structure: MatrixStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the objective at the targets, for blocks that are matrices.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        WorkloadError: If the rank of a block cannot be decided.
        DesignError: If floating point cannot evaluate the dual, or integers have no room.
    """
    # A total error couples all queries, and so do the soft maxima of the paper's own solver.
    is_coupled = len(structure.blocks) > 1 or objective.weight or options.solver == "sm2"
    solve = _solve_matrices if is_coupled else _solve_components
    real_blocks, solution, tiers = solve(structure, objective, options)
    return _round_optimum(structure, objective, real_blocks, solution, tiers, options, loss)


def design_scalars(
    structure: ScalarStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the objective at the targets, for blocks that are numbers.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        DesignError: If floating point cannot evaluate the dual, or integers have no room.
    """
    problem = reduce_scalars(structure, objective.budgets)
    solution, tiers = _solve_coupled(problem, structure, objective, options)
    real_blocks = [share_basis(structure, solution.whiteners[0])]
    return _round_optimum(structure, objective, real_blocks, solution, tiers, options, loss)


def _round_optimum(
    structure: Structure,
    objective: Objective,
    real_blocks: Sequence[RealBlocks],
    solution: Solution,
    tiers: Tiers,
    options: Options,
    loss: float,
) -> Design:
    """Round an optimum to integers."""
    strategy = round_blocks(
        structure, real_blocks, objective=objective, upper=solution.upper, loss=loss
    )
    return Design(
        strategy=strategy,
        duals=Duals(solution.p, solution.q),
        bound_margin=CLAIM_MARGIN,
        tiers=tiers.include_costly(strategy.column_squares > 0),
        iterations=solution.iterations,
        ended=explain_end(solution, options),
    )


def _solve_matrices(
    structure: MatrixStructure, objective: Objective, options: Options
) -> tuple[list[RealBlocks], Solution, Tiers]:
    """Solve all blocks together."""
    problem, independent = reduce_matrices(structure, objective.budgets)
    solution, tiers = _solve_coupled(problem, structure, objective, options)
    unscaled = 1.0 if objective.budgets is None else np.sqrt(objective.budgets)
    multiples = structure.subsets.profile_multiples
    reals = [
        whitener @ block.basis * unscaled / math.sqrt(multiple)
        for block, whitener, multiple in zip(
            problem.matrices, solution.whiteners, multiples, strict=True
        )
    ]
    return choose_bases(structure, reals, independent, options.periods), solution, tiers


def _solve_components(
    structure: MatrixStructure, objective: Objective, options: Options
) -> tuple[list[RealBlocks], Solution, Tiers]:
    """Solve sets of queries of one block that share no cells one by one."""
    budgets, (queries,) = objective.budgets, structure.gather_all_queries()
    targets, matrix = structure.targets, queries.matrix
    scaled = matrix if budgets is None else matrix / np.sqrt(budgets)
    components: list[Component] = []
    reals, independent, left = [], [], _REFINING
    for rows, cells in find_components(matrix):
        done = sum(component.solution.iterations for component in components)
        block, chosen = reduce_block(scaled[np.ix_(rows, cells)], targets[rows])
        problem = Problem(len(cells), len(rows), (block,))
        solution, tiers, work = _solve(problem, left, _offset_progress(options, done))
        left -= work
        reals.append(solution.whiteners[0] @ block.basis)
        independent.append(rows[chosen])
        components.append(Component(rows, cells, solution, tiers))
        if solution.stopped:
            options = replace(options, max_iterations=1, refine=False, progress=None)
    whole, start = np.zeros((sum(map(len, reals)), matrix.shape[1])), 0
    for component, real in zip(components, reals, strict=True):
        whole[start : start + len(real), component.cells] = real
        start += len(real)
    if budgets is not None:
        whole *= np.sqrt(budgets)
    real_blocks = choose_bases(structure, [whole], [np.concatenate(independent)], options.periods)
    joined = join_solutions(matrix.shape, components)
    return real_blocks, joined, merge_tiers(matrix.shape, components, options.tolerance)


def _solve_coupled(
    problem: Problem, structure: Structure, objective: Objective, options: Options
) -> tuple[Solution, Tiers]:
    """Solve all blocks together. The profile is refined unless the total error has a weight."""
    if objective.weight:
        fixed_weights = objective.weight * structure.targets * structure.repeats
        problem = replace(problem, fixed_weights=fixed_weights)
    refining = 0.0 if objective.weight or options.solver != "dual" else _REFINING
    solution, tiers, _ = _solve(problem, refining, options)
    return solution, tiers


def _solve(problem: Problem, refining: float, options: Options) -> tuple[Solution, Tiers, float]:
    """Solve, and refine with at most so many operations; the last result is how many were used."""
    found = SOLVERS[options.solver](
        problem,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )
    tiers, first = make_one_tier(found.profile, problem.queries), found.iterations
    work = _estimate_work(problem)
    if options.refine and refining > work and found.gap <= options.tolerance:
        found, tiers = refine(
            problem,
            found,
            tolerance=options.tolerance,
            max_iterations=min(options.max_iterations, int(refining / work)),
            progress=options.progress,
        )
    return found, tiers, work * (found.iterations - first)


def _estimate_work(problem: Problem) -> float:
    """Estimate the floating-point operations of an iteration."""
    return sum(
        10.0 * block.incidence.nnz
        if isinstance(block, ScalarBlocks)
        else 15.0 * len(block.basis) ** 2 * (len(block.basis) + len(block.rows) + problem.cells)
        for block in problem.blocks
    )


def _offset_progress(options: Options, done: int) -> Options:
    """Return options whose progress counts the iterations that were done before."""
    report = options.progress
    if report is None or not done:
        return options
    return replace(options, progress=lambda iteration, gap: report(done + iteration, gap))
