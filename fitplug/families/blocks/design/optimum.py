"""The optimum of a workload: of all blocks and components of its structure together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fitplug.certify import Ended, Tiers, make_one_tier
from fitplug.families.base.objective import Objective
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.design.reduction import reduce_matrices, reduce_scalars
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.shape.scalars import ScalarStructure
from fitplug.numeric import FloatArray, IndexArray
from fitplug.solve import (
    SOLVERS,
    Component,
    Options,
    Problem,
    ScalarBlocks,
    Solution,
    explain_end,
    find_components,
    merge_tiers,
    reduce_block,
    refine,
    scatter,
)

_REFINING = 1e12
"""Floating-point operations, about a minute of work, after which no component is refined."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """An optimum for the D cells and m rows of a structure, with the weights that certify it.

    Attributes:
        reals: For each block a real strategy (k, D) with real' real = B' Sigma_A^-1 B, or one array
            (b,) for all scalar blocks.
        independent: For each block k independent rows of its matrix; none for scalar blocks.
        p: Dual weights of the cells, shape (D,).
        q: Dual weights of the rows, shape (m,).
        upper: The objective at the targets.
        tiers: The tiers of the cells.
        iterations: The iterations of all solves together.
        ended: Why the solves ended.
    """

    reals: tuple[FloatArray, ...]
    independent: tuple[IndexArray, ...]
    p: FloatArray
    q: FloatArray
    upper: float
    tiers: Tiers
    iterations: int
    ended: Ended


def find_matrix_optimum(
    structure: MatrixStructure, objective: Objective, options: Options
) -> Optimum:
    """Minimise the objective at the targets, for blocks that are matrices.

    Raises:
        WorkloadError: If the rank of a block cannot be decided.
        DesignError: If floating point cannot evaluate the dual.
    """
    if len(structure.blocks) == 1 and not objective.weight and options.solver != "sm2":
        return _solve_components(structure, objective, options)
    # A total error couples all queries, and so do the soft maxima of the paper's own solver.
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
    return _make_optimum(solution, tiers, reals, independent, options)


def find_scalar_optimum(
    structure: ScalarStructure, objective: Objective, options: Options
) -> Optimum:
    """Minimise the objective at the targets, for blocks that are numbers.

    Raises:
        DesignError: If floating point cannot evaluate the dual.
    """
    problem = reduce_scalars(structure, objective.budgets)
    solution, tiers = _solve_coupled(problem, structure, objective, options)
    return _make_optimum(solution, tiers, solution.whiteners, (), options)


def _solve_components(
    structure: MatrixStructure, objective: Objective, options: Options
) -> Optimum:
    """Solve sets of queries that share no cells one by one."""
    budgets, (queries,) = objective.budgets, structure.gather_all_queries()
    targets, matrix = structure.targets, queries.matrix
    scaled = matrix if budgets is None else matrix / np.sqrt(budgets)
    components: list[Component] = []
    left = _REFINING
    for rows, cells in find_components(matrix):
        done = sum(component.solution.iterations for component in components)
        block, independent = reduce_block(scaled[np.ix_(rows, cells)], targets[rows])
        problem = Problem(len(cells), len(rows), (block,))
        solution, tiers, work = _solve(problem, left, _offset_progress(options, done))
        left -= work
        real = solution.whiteners[0] @ block.basis
        components.append(Component(rows, cells, real, rows[independent], solution, tiers))
        if solution.stopped:
            options = replace(options, max_iterations=1, refine=False, progress=None)
    optimum = _join_components(scaled.shape, components, options)
    if budgets is None:
        return optimum
    return replace(optimum, reals=tuple(real * np.sqrt(budgets) for real in optimum.reals))


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


def _make_optimum(
    solution: Solution,
    tiers: Tiers,
    reals: Sequence[FloatArray],
    independent: Sequence[IndexArray],
    options: Options,
) -> Optimum:
    """Make the optimum of a solution of all blocks together."""
    return Optimum(
        reals=tuple(reals),
        independent=tuple(independent),
        p=solution.p,
        q=solution.q,
        upper=solution.upper,
        tiers=tiers,
        iterations=solution.iterations,
        ended=explain_end([solution], solution.lower, options),
    )


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


def _join_components(
    shape: tuple[int, ...], components: Sequence[Component], options: Options
) -> Optimum:
    """Join the optima of all components of a W of this shape (m, d)."""
    m, d = shape
    real = np.zeros((sum(len(component.real) for component in components), d))
    start = 0
    for component in components:
        real[start : start + len(component.real), component.cells] = component.real
        start += len(component.real)
    costliest = max(components, key=lambda component: component.solution.lower)
    solutions = [component.solution for component in components]
    return Optimum(
        reals=(real,),
        independent=(np.concatenate([component.independent for component in components]),),
        p=scatter(costliest.solution.p, costliest.cells, d),
        q=scatter(costliest.solution.q, costliest.rows, m),
        upper=max(solution.upper for solution in solutions),
        tiers=merge_tiers(shape, components, options.tolerance),
        iterations=sum(solution.iterations for solution in solutions),
        ended=explain_end(solutions, costliest.solution.lower, options),
    )
