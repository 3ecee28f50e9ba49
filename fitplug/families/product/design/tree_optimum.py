"""The optimal covariance of a tree (see `TreeCovariance`) for the levels of one attribute alone.

The unknowns are M, the covariance of the top sums, and c_v of the b nodes that branch above the
finest level asked for. Nodes with the same parent are identical, so the dual needs one weight
for each set of siblings (a class). M is a geometric mean, and each c_v is a square root.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import helmert
from scipy.sparse import csr_array, diags_array, vstack

from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.design.dense_covariance import DenseCovariance
from fitplug.numeric import FloatArray, IntArray
from fitplug.solve import Block, DualValue, Problem, compute_mean, solve_dual


@dataclass(frozen=True, eq=False)
class TreeOptimum:
    """The best covariance of a tree for the queries of one attribute.

    Attributes:
        top: The covariance of the top sums.
        scales: c of the nodes that branch, shape (V,).
        cells: Weights p of the leaves, shape (n,), summing to 1.
        queries: For each level the weights q of its nodes, shape (nodes,). All together sum to 1.
        upper: The privacy cost at the targets.
        lower: No other covariance of this form costs less. If at most one level below the top is
            asked for, no mechanism does.
    """

    top: DenseCovariance
    scales: FloatArray
    cells: FloatArray
    queries: dict[str, FloatArray]
    upper: float
    lower: float


def optimise_tree(
    shape: TreeShape,
    targets: Mapping[str, float],
    summed: bool,
    *,
    tolerance: float = 1e-5,
    max_iterations: int = 1000,
) -> TreeOptimum:
    """Minimise the privacy cost of the levels of one attribute.

    Args:
        shape: The nodes of the tree.
        targets: The target variance of the nodes of each level asked for.
        summed: Whether the total is asked for too, with a target of 1.
        tolerance: The relative gap of the dual solver.
        max_iterations: The largest number of its iterations.

    Raises:
        DesignError: As the dual solver does.
    """
    if summed:
        targets = dict(targets) | {"total": min(1.0, targets.get("total", 1.0))}
    classes, ends = _build_classes(shape, targets)
    found = solve_dual(
        Problem(len(classes.cell), len(classes.row), ()),
        tolerance=tolerance,
        max_iterations=max_iterations,
        evaluate=classes.evaluate_dual,
    )
    whitener, below = found.whiteners
    scales = np.full(shape.branching, np.inf)
    scales[: len(below)] = below**-2.0
    cells = found.p
    for step in range(max(shape.deepest - 1, 0), shape.steps):
        cells = (cells / shape.children[step])[shape.parents[step]]
    queries = {}
    for level, q in zip(targets, np.split(found.q, ends[:-1]), strict=True):
        if depth := shape.depths.get(level, 0):
            q = (q / shape.children[depth - 1])[shape.parents[depth - 1]]
        queries[level] = q
    return TreeOptimum(_split_total(whitener), scales, cells, queries, found.upper, found.lower)


@dataclass(frozen=True, eq=False)
class _Classes:
    """The dual of one tree, with one weight for each class of cells and each class of queries.

    Attributes:
        top: The block of M, over the top sums. Its queries are these and the levels above.
        cell: The top node of each class of cells, shape (cells,).
        row: The query of `top` of which each class of queries takes a multiple, shape (queries,).
        share: This multiple, shape (queries,).
        profiles: What each c_v^-1 adds to the profile, sparse, shape (cells, b).
        variances: What each c_v adds to the variances over targets, sparse, shape (queries, b).
    """

    top: Block
    cell: IntArray
    row: IntArray
    share: FloatArray
    profiles: csr_array
    variances: csr_array

    @cached_property
    def _transposed(self) -> tuple[csr_array, csr_array]:
        return csr_array(self.profiles.T), csr_array(self.variances.T)

    def evaluate_dual(self, _: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        """Evaluate the dual at p (cells,) and q (queries,).

        The whiteners are that of M (P, P), and c^-1/2 (b,).
        """
        on_cells = np.bincount(self.cell, p, self.top.basis.shape[1]).astype(np.float64)
        on_rows = np.bincount(self.row, self.share * q, len(self.top.rows)).astype(np.float64)
        mean = compute_mean(self.top, on_cells, on_rows)
        P, Q = self._transposed[0] @ p, self._transposed[1] @ q
        if not (P > 0).all() or not (Q > 0).all():
            raise np.linalg.LinAlgError("a weight is zero")
        c = np.sqrt(P / Q)
        g = mean.profile[self.cell] + self.profiles @ (1 / c)
        h = self.share * mean.ratios[self.row] + self.variances @ c
        value = mean.value + float(np.sqrt(P * Q).sum())
        return DualValue(value, g, h, (mean.compute_whitener(), 1 / np.sqrt(c)))


def _build_classes(shape: TreeShape, targets: Mapping[str, float]) -> tuple[_Classes, IntArray]:
    """Build the classes of a tree; the second result says where the queries of each level end."""
    P = shape.top
    steps = [np.flatnonzero(k > 1) for k in shape.children[: shape.deepest]]
    b = sum(map(len, steps))
    # For the classes of each depth: the top node, mu^2 divided by the top node's, gamma in terms
    # of c, and the profile in terms of 1 / c.
    top, share, start = np.arange(P), np.ones(P), 0
    gamma, profile = csr_array((P, b)), csr_array((P, b))
    depths = [(top, share, gamma)]
    for step, branching in enumerate(steps):
        if step:
            up = shape.parents[step - 1]
            top, share, gamma, profile = top[up], share[up], gamma[up], profile[up]
        k = shape.children[step].astype(np.float64)
        place = start + np.arange(len(branching))
        start += len(branching)
        own = csr_array((1 - 1 / k[branching], (branching, place)), shape=(len(k), b))
        share, gamma, profile = share / k**2, diags_array(k**-2) @ gamma + own, profile + own
        depths.append((top, share, gamma))
    rows, terms, directions = [], [], [np.eye(P)]
    at = P
    for level, target in targets.items():
        if level in shape.above:
            directions.append(shape.build_top_rows(level))
            r = len(directions[-1])
            rows.append(at + np.arange(r))
            terms.append((np.full(r, 1 / target), csr_array((r, b))))
            at += r
        else:
            row, share, gamma = depths[shape.depths[level]]
            rows.append(row)
            terms.append((share / target, gamma / target))
    classes = _Classes(
        top=Block(np.eye(P), np.arange(at), np.concatenate(directions)),
        cell=top,
        row=np.concatenate(rows),
        share=np.concatenate([share for share, _ in terms]),
        profiles=csr_array(profile),
        variances=csr_array(vstack([gamma for _, gamma in terms])),
    )
    return classes, np.cumsum([len(row) for row in rows])


def _split_total(whitener: FloatArray) -> DenseCovariance:
    """Return u = M 1 / 1'M 1 and C = M - u u' 1'M 1, for the whitener (P, P) of M."""
    P = len(whitener)
    N = np.asarray(helmert(P).T)
    T = np.linalg.solve(whitener.T, np.column_stack([np.ones(P), N])).T
    v = T[1:] @ T[0] / (T[0] @ T[0])
    rest = T[1:] - np.outer(v, T[0])
    return DenseCovariance.of_contrasts(N, v, rest @ rest.T)
