"""The optimum of a workload, block by block of its structure.

In a dense workload, queries that share no cell, directly or through others, do not constrain each
other: Sigma is block diagonal over such components too, each at its own refined optimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fitplug.numeric import FloatArray, IndexArray
from fitplug.optimizer import dual, sm2
from fitplug.optimizer.dual import Progress, Solution
from fitplug.optimizer.problem import Problem, Scalars, reduce_all, reduce_block
from fitplug.optimizer.refinement import MAX_TIERS, refine
from fitplug.proof import Tiers, one_tier
from fitplug.structure import Objective, Structure

Solver: TypeAlias = Literal["dual", "sm2"]
Ended: TypeAlias = Literal["reached", "exhausted", "stopped", "apart"]

SOLVERS: dict[str, Callable[..., Solution]] = {"dual": dual.solve, "sm2": sm2.solve}

LEAST_TOLERANCE = 1e-9
"""Of the relative gap: less is lost in rounding."""

_REFINING = 1e12
"""Floating-point operations, about a minute's, after which no component is refined further."""


@dataclass(frozen=True)
class Options:
    """How to solve; see `fitplug.design`."""

    solver: Solver
    tolerance: float
    max_iterations: int
    refine: bool
    progress: Progress | None


@dataclass(frozen=True, eq=False)
class Optimum:
    """A certified optimum over the cells D and the rows m of a structure.

    reals: per block a strategy (k, D) with real' real = B' Sigma_A^-1 B; for scalar blocks one
        array (b,) for all. independent: k independent rows of each block's piece, none for scalars.
    p, q: dual weights, shapes (D,) and (m,). upper: the objective at the targets.
    iterations: of all solves together. ended: why they ended.
    """

    reals: tuple[FloatArray, ...]
    independent: tuple[IndexArray, ...]
    p: FloatArray
    q: FloatArray
    upper: float
    tiers: Tiers
    iterations: int
    ended: Ended


def find_optimum(structure: Structure, objective: Objective, options: Options) -> Optimum:
    """Make the objective at the targets least. Raises WorkloadError and DesignError."""
    if structure.scalar or len(structure.blocks) > 1 or objective.weight or options.solver == "sm2":
        # A total couples all queries; so do the soft maxima of the paper's own solver.
        return _coupled(structure, objective, options)
    budgets, (piece,) = objective.budgets, structure.pieces()
    targets = structure.targets
    scaled = piece.matrix if budgets is None else piece.matrix / np.sqrt(budgets)
    parts: list[_Part] = []
    left = _REFINING
    for rows, cells in _components(piece.matrix):
        done = sum(part.solution.iterations for part in parts)
        block, independent = reduce_block(scaled[np.ix_(rows, cells)], targets[rows])
        problem = Problem(len(cells), len(rows), (block,))
        solution, tiers, work = _solved(problem, left, _reporting(options, done))
        left -= work
        real = solution.whiteners[0] @ block.basis
        parts.append(_Part(rows, cells, real, rows[independent], solution, tiers))
        if solution.stopped:
            options = replace(options, max_iterations=1, refine=False, progress=None)
    whole = _together(scaled.shape, parts, options)
    if budgets is None:
        return whole
    return replace(whole, reals=tuple(real * np.sqrt(budgets) for real in whole.reals))


def _coupled(structure: Structure, objective: Objective, options: Options) -> Optimum:
    """The optimum of all blocks together; the profile is refined unless totals have a weight."""
    budgets = objective.budgets
    problem, independent = reduce_all(structure, budgets)
    if objective.weight:
        held = objective.weight * structure.targets * structure.repeats
        problem = replace(problem, held=held)
    refining = 0.0 if objective.weight or options.solver != "dual" else _REFINING
    solution, tiers, _ = _solved(problem, refining, options)
    unscaled = 1.0 if budgets is None else np.sqrt(budgets)
    reals = [
        whitener
        if isinstance(block, Scalars)
        else whitener @ block.basis * unscaled / math.sqrt(weight)
        for block, whitener, weight in zip(
            problem.blocks, solution.whiteners, structure.weights, strict=False
        )
    ]
    return Optimum(
        reals=tuple(reals),
        independent=tuple(independent),
        p=solution.p,
        q=solution.q,
        upper=solution.upper,
        tiers=tiers,
        iterations=solution.iterations,
        ended=_ended([solution], solution.lower, options),
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """A component, solved: its rows (r,) and cells (c,) of W, in the order of the solution."""

    rows: IndexArray
    cells: IndexArray
    real: FloatArray
    independent: IndexArray
    solution: Solution
    tiers: Tiers


def _components(W: FloatArray) -> list[tuple[IndexArray, IndexArray]]:
    """Rows and cells of each set of queries that share cells, in the order of their first cell."""
    m, d = W.shape
    rows, cells = np.nonzero(W)
    graph = csr_array((np.ones(len(rows), dtype=np.int8), (rows + d, cells)), shape=(m + d, m + d))
    count, label = connected_components(graph, directed=False)
    if count == 1:
        return [(np.arange(m), np.arange(d))]
    order = np.argsort(label, kind="stable")
    ends = np.cumsum(np.bincount(label, minlength=count))
    members = np.split(order, ends[:-1])
    # One row or cell alone is a query of nothing, or a cell that no query asks for.
    return [(own[own >= d] - d, own[own < d]) for own in members if len(own) > 1]


def _solved(problem: Problem, refining: float, options: Options) -> tuple[Solution, Tiers, float]:
    """The optimum, refined as far as so many operations allow; and how many that took."""
    found = SOLVERS[options.solver](
        problem,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )
    tiers, first, work = one_tier(found.profile, problem.queries), found.iterations, _work(problem)
    if options.refine and refining > work and found.gap <= options.tolerance:
        found, tiers = refine(
            problem,
            found,
            tolerance=options.tolerance,
            max_iterations=min(options.max_iterations, int(refining / work)),
            progress=options.progress,
        )
    return found, tiers, work * (found.iterations - first)


def _work(problem: Problem) -> float:
    """Operations of an iteration, about."""
    return sum(
        10.0 * block.incidence.nnz
        if isinstance(block, Scalars)
        else 15.0 * len(block.basis) ** 2 * (len(block.basis) + len(block.rows) + problem.cells)
        for block in problem.blocks
    )


def _reporting(options: Options, done: int) -> Options:
    report = options.progress
    if report is None or not done:
        return options
    return replace(options, progress=lambda iteration, gap: report(done + iteration, gap))


def _together(shape: tuple[int, ...], parts: list[_Part], options: Options) -> Optimum:
    m, d = shape
    real = np.zeros((sum(len(part.real) for part in parts), d))
    start = 0
    for part in parts:
        real[start : start + len(part.real), part.cells] = part.real
        start += len(part.real)
    costliest = max(parts, key=lambda part: part.solution.lower)
    solutions = [part.solution for part in parts]
    return Optimum(
        reals=(real,),
        independent=(np.concatenate([part.independent for part in parts]),),
        p=_spread(costliest.solution.p, costliest.cells, d),
        q=_spread(costliest.solution.q, costliest.rows, m),
        upper=max(solution.upper for solution in solutions),
        tiers=_merged(shape, parts, options.tolerance),
        iterations=sum(solution.iterations for solution in solutions),
        ended=_ended(solutions, costliest.solution.lower, options),
    )


def _ended(solutions: list[Solution], lower: float, options: Options) -> Ended:
    if max(solution.upper for solution in solutions) <= lower * (1 + options.tolerance):
        return "reached"
    return "stopped" if any(solution.stopped for solution in solutions) else "exhausted"


def _merged(shape: tuple[int, ...], parts: list[_Part], tolerance: float) -> Tiers:
    """The tiers of all components in the order of their levels; near ones are one."""
    m, d = shape
    levels = []
    for part in parts:
        profile, of_cell = part.solution.profile, part.tiers.of_cell
        for tier in range(int(of_cell.max()) + 1):
            levels.append((float(profile[of_cell == tier].max()), part, tier))
    levels.sort(key=lambda entry: -entry[0])
    of_cell = np.full(d, -1)
    top = levels[0][0]
    rows: list[tuple[FloatArray, FloatArray]] = []
    for level, part, tier in levels:
        solution, tiers = part.solution, part.tiers
        mine = part.cells[tiers.of_cell == tier]
        if tier > len(tiers.p) or len(rows) == MAX_TIERS:
            of_cell[mine] = MAX_TIERS + 1
            continue
        if level < (1 - tolerance**0.5) * top:
            top = level
            p, q = (tiers.p[tier - 1], tiers.q[tier - 1]) if tier else (solution.p, solution.q)
            rows.append((_spread(p, part.cells, d), _spread(q, part.rows, m)))
        of_cell[mine] = len(rows)
    of_cell[of_cell > len(rows)] = len(rows) + 1
    p, q = (np.array([row[i] for row in rows]).reshape(len(rows), shape[1 - i]) for i in (0, 1))
    return Tiers(of_cell, p, q)


def _spread(values: FloatArray, indices: IndexArray, size: int) -> FloatArray:
    whole = np.zeros(size)
    whole[indices] = values
    return whole
