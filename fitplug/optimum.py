"""The optimum of a dense workload: its independent components solved one by one, and put together.

Queries that share no cell, directly or through others, do not constrain each other: Sigma is block
diagonal over such components, each at its own refined optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fitplug.objective import Objective
from fitplug.problem import Problem, reduce
from fitplug.solvers import dual, sm2
from fitplug.solvers.dual import Progress, Solution
from fitplug.solvers.refine import MAX_TIERS, refine
from fitplug.tiers import Tiers, one_tier

Array: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.intp]
Solver: TypeAlias = Literal["dual", "sm2"]
Ended: TypeAlias = Literal["reached", "exhausted", "stopped"]

SOLVERS: dict[str, Callable[..., Solution]] = {"dual": dual.solve, "sm2": sm2.solve}

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
    """A certified optimum of W (m, d).

    real: a strategy (k, d) with real' real = B' Sigma^-1 B. independent: k independent rows of W.
    p, q: dual weights, shapes (d,) and (m,). upper: its privacy cost at the targets.
    iterations: of all solves together. ended: why they ended.
    """

    real: Array
    independent: Indices
    p: Array
    q: Array
    upper: float
    tiers: Tiers
    iterations: int
    ended: Ended


def optimum(W: Array, targets: Array, objective: Objective, options: Options) -> Optimum:
    """Make the objective at the targets least. Raises WorkloadError and DesignError."""
    budgets, weight = objective.budgets, objective.weight
    scaled = W if budgets is None else W / np.sqrt(budgets)
    # A total couples all queries, whose profile is then not refined; so do the soft maxima of the
    # paper's own solver.
    coupled = weight > 0 or options.solver != "dual"
    parts: list[_Part] = []
    left = _REFINING if options.refine and not coupled else 0.0
    for rows, cells in [_everything(W)] if coupled else _components(W):
        done = sum(part.solution.iterations for part in parts)
        own = scaled if coupled else scaled[np.ix_(rows, cells)]
        part = _solved(own, rows, cells, targets[rows], weight, left, _reporting(options, done))
        left -= part.work
        parts.append(part)
        if part.solution.stopped:
            options = replace(options, max_iterations=1, refine=False, progress=None)
    whole = _together(W.shape, parts, options)
    return whole if budgets is None else replace(whole, real=whole.real * np.sqrt(budgets))


@dataclass(frozen=True, eq=False)
class _Part:
    """A component, solved: its rows (r,) and cells (c,) of W, in the order of the solution.

    work: operations that went into refining it.
    """

    rows: Indices
    cells: Indices
    real: Array
    independent: Indices
    solution: Solution
    tiers: Tiers
    work: float


def _everything(W: Array) -> tuple[Indices, Indices]:
    return np.arange(W.shape[0]), np.arange(W.shape[1])


def _components(W: Array) -> list[tuple[Indices, Indices]]:
    """Rows and cells of each set of queries that share cells, in the order of their first cell."""
    m, d = W.shape
    rows, cells = np.nonzero(W)
    graph = csr_array((np.ones(len(rows), dtype=np.int8), (rows + d, cells)), shape=(m + d, m + d))
    count, label = connected_components(graph, directed=False)
    if count == 1:
        return [_everything(W)]
    order = np.argsort(label, kind="stable")
    ends = np.cumsum(np.bincount(label, minlength=count))
    members = np.split(order, ends[:-1])
    # One row or cell alone is a query of nothing, or a cell that no query asks for.
    return [(own[own >= d] - d, own[own < d]) for own in members if len(own) > 1]


def _solved(
    W: Array,
    rows: Indices,
    cells: Indices,
    targets: Array,
    weight: float,
    refining: float,
    options: Options,
) -> _Part:
    problem, independent = reduce(W, targets)
    problem = replace(problem, held=weight * targets)
    found = SOLVERS[options.solver](
        problem,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )
    tiers, first, work = one_tier(found.profile, problem.queries), found.iterations, _work(problem)
    if refining > work and found.gap <= options.tolerance:
        found, tiers = refine(
            problem,
            found,
            tolerance=options.tolerance,
            max_iterations=min(options.max_iterations, int(refining / work)),
            progress=options.progress,
        )
    (block,) = problem.blocks
    real = found.whiteners[0] @ block.basis
    refined = work * (found.iterations - first)
    return _Part(rows, cells, real, rows[independent], found, tiers, refined)


def _work(problem: Problem) -> float:
    """Operations of an iteration, about."""
    return sum(
        15.0 * len(b.basis) ** 2 * (len(b.basis) + len(b.rows) + problem.cells)
        for b in problem.blocks
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
    upper = max(part.solution.upper for part in parts)
    ended: Ended = "exhausted"
    if upper <= costliest.solution.lower * (1 + options.tolerance):
        ended = "reached"
    elif any(part.solution.stopped for part in parts):
        ended = "stopped"
    return Optimum(
        real=real,
        independent=np.concatenate([part.independent for part in parts]),
        p=_spread(costliest.solution.p, costliest.cells, d),
        q=_spread(costliest.solution.q, costliest.rows, m),
        upper=upper,
        tiers=_merged(shape, parts, options.tolerance),
        iterations=sum(part.solution.iterations for part in parts),
        ended=ended,
    )


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
    rows: list[tuple[Array, Array]] = []
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


def _spread(values: Array, indices: Indices, size: int) -> Array:
    whole = np.zeros(size)
    whole[indices] = values
    return whole
