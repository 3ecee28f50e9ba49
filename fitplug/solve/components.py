"""Components: sets of queries that share no cell with other queries, directly or through others.

They do not constrain each other. Sigma has a diagonal block for each of them, at the refined
optimum of the component (docs/theory/refinement.md, section "Components").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fitplug.certify import Tiers
from fitplug.numeric import FloatArray, IndexArray
from fitplug.solve.dual import Solution
from fitplug.solve.refinement import MAX_TIERS


@dataclass(frozen=True, eq=False)
class Component:
    """A component of a workload matrix W (m, d), and its optimum.

    Attributes:
        rows: Its rows of W in the order of the solution, shape (r,).
        cells: Its cells in the order of the solution, shape (c,).
        solution: The optimum for these rows and cells.
        tiers: The tiers of these cells.
    """

    rows: IndexArray
    cells: IndexArray
    solution: Solution
    tiers: Tiers


def find_components(W: FloatArray) -> list[tuple[IndexArray, IndexArray]]:
    """Find the rows and cells of each component of W (m, d), in the order of their first cell."""
    m, d = W.shape
    rows, cells = np.nonzero(W)
    graph = csr_array((np.ones(len(rows), dtype=np.int8), (rows + d, cells)), shape=(m + d, m + d))
    count, label = connected_components(graph, directed=False)
    if count == 1:
        return [(np.arange(m), np.arange(d))]
    order = np.argsort(label, kind="stable")
    ends = np.cumsum(np.bincount(label, minlength=count))
    members = np.split(order, ends[:-1])
    # A single row is a query without coefficients; a single cell is one that no query counts.
    return [(own[own >= d] - d, own[own < d]) for own in members if len(own) > 1]


def merge_tiers(shape: tuple[int, ...], components: Sequence[Component], tolerance: float) -> Tiers:
    """Merge the tiers of all components of a W of this shape (m, d) in the order of their levels.

    Levels that differ by less than the square root of the tolerance become one tier, with the
    certificate of its highest level.
    """
    m, d = shape
    levels = []
    for component in components:
        profile, of_cell = component.solution.profile, component.tiers.of_cell
        for tier in range(int(of_cell.max()) + 1):
            levels.append((float(profile[of_cell == tier].max()), component, tier))
    levels.sort(key=lambda entry: -entry[0])
    of_cell = np.full(d, -1, dtype=np.int64)
    top = levels[0][0]
    certificates: list[tuple[FloatArray, FloatArray]] = []
    for level, component, tier in levels:
        solution, tiers = component.solution, component.tiers
        cells = component.cells[tiers.of_cell == tier]
        if tier > len(tiers.p) or len(certificates) == MAX_TIERS:
            of_cell[cells] = MAX_TIERS + 1
            continue
        if level < (1 - tolerance**0.5) * top:
            top = level
            p, q = (tiers.p[tier - 1], tiers.q[tier - 1]) if tier else (solution.p, solution.q)
            certificates.append((scatter(p, component.cells, d), scatter(q, component.rows, m)))
        of_cell[cells] = len(certificates)
    of_cell[of_cell > len(certificates)] = len(certificates) + 1
    p, q = (
        np.array([pair[i] for pair in certificates]).reshape(len(certificates), shape[1 - i])
        for i in (0, 1)
    )
    return Tiers(of_cell, p, q)


def join_solutions(shape: tuple[int, ...], components: Sequence[Component]) -> Solution:
    """Join the solutions of all components of a W of this shape (m, d).

    Its weights are those of the costliest component, and its whiteners those of all components.
    """
    m, d = shape
    solutions = [component.solution for component in components]
    costliest = max(components, key=lambda component: component.solution.lower)
    return Solution(
        p=scatter(costliest.solution.p, costliest.cells, d),
        q=scatter(costliest.solution.q, costliest.rows, m),
        whiteners=tuple(own for solution in solutions for own in solution.whiteners),
        profile=np.sum([scatter(own.solution.profile, own.cells, d) for own in components], axis=0),
        lower=costliest.solution.lower,
        upper=max(solution.upper for solution in solutions),
        iterations=sum(solution.iterations for solution in solutions),
        stopped=any(solution.stopped for solution in solutions),
    )


def scatter(values: FloatArray, indices: IndexArray, size: int) -> FloatArray:
    """Return an array (size,) that has the values (n,) at the indices (n,), and zeros elsewhere."""
    spread = np.zeros(size)
    spread[indices] = values
    return spread
