"""The covariance of a hierarchy: a dense covariance on top, one number per node below.

Let S be the sums of the P top nodes, R_v the sums of the k_v children of a branching node v, E and
E_v their even spreads over the leaves (see `TreeShape`), and u_T, C_T and Y_T the reference,
covariance and precision of the top sums. Then (F23) and (F24) are

    u = E u_T      C = E C_T E' + sum_v c_v E_v (I - J/k_v) E_v'
                   Y = S'Y_T S  + sum_v c_v^-1 R_v'(I - J/k_v) R_v      Y C = I - 1 u',  Y u = 0

    eta(leaf) = eta_T(g) + sum over ancestors v of (1 - 1/k_v) / c_v
    child of v:  mu = mu_v / k_v,  gamma = gamma_v / k_v^2 + c_v (1 - 1/k_v)

From the top down these are sums along paths; a Lagrangian's prices are summed upwards in the same
way. Both take time linear in the nodes, and cubic in P. See docs/theory/product-family.md, "Trees".

For the levels of one attribute alone, the unknowns of the optimum are M, the covariance of the top
sums, and c_v of the b branching nodes above the finest level that queries use. Nodes with the same
parent are identical, so the dual needs one weight for each set of siblings (a class). M is a
geometric mean, and each c_v is a square root.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import helmert
from scipy.sparse import csr_array, diags_array, vstack

from fitplug.errors import BAD_PROOF, DesignError
from fitplug.families.base.attribute_matrices import DenseMatrix
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.tree_shape import TreeShape
from fitplug.families.product.design.attribute_covariance import AttributeOptimum, AttributeQueries
from fitplug.families.product.design.dense_covariance import (
    NEGLIGIBLE,
    NO_ROUNDING,
    DenseCovariance,
)
from fitplug.families.product.shape.batches import DistinctFactor
from fitplug.families.product.strategy.trees import TreeMatrix
from fitplug.numeric import FloatArray, IntArray
from fitplug.solve import Block, DualValue, Problem, compute_mean, solve_dual


@dataclass(frozen=True, eq=False)
class TreeCovariance:
    """The covariance of the leaves of a tree.

    Attributes:
        shape: The nodes of the tree.
        top: The covariance of the P top sums, in all their P - 1 contrasts.
        scales: c of the nodes that branch, shape (V,); infinite where no query is below.
    """

    shape: TreeShape
    top: DenseCovariance
    scales: FloatArray

    @classmethod
    def fits(cls, queries: AttributeQueries) -> bool:
        """Tell whether the queries are levels of a hierarchy."""
        return queries.tree is not None and queries.grades.tree is None

    @classmethod
    def optimise(cls, queries: AttributeQueries) -> AttributeOptimum:
        """Find the optimum for all levels that queries use, and for the sum if a group uses it."""
        shape = queries.tree
        assert shape is not None
        levels = {
            factor.factor.kind: float(c.min())
            for factor, c in zip(queries.factors, queries.targets, strict=True)
        }
        optimum = optimise_tree(shape, levels, queries.summed)
        shares = [optimum.queries[factor.factor.kind] + NEGLIGIBLE for factor in queries.factors]
        covariance = cls(shape, optimum.top, optimum.scales)
        return AttributeOptimum(covariance, optimum.cells, tuple(q / q.sum() for q in shares))

    @property
    def key(self) -> Hashable:
        """Equal for identical covariances."""
        return type(self), self.shape, self.top.key, self.scales.tobytes()

    def compute_eta(self) -> FloatArray:
        """Return Y_ii of each leaf, shape (n, 1)."""
        total = self.top.compute_eta()
        for c, k, parents in zip(
            self._scales_by_step(), self.shape.children, self.shape.parents, strict=True
        ):
            total = (total + ((1 - 1 / k) / c)[:, None])[parents]
        return total

    def compute_variance_parts(self, factor: DistinctFactor) -> FloatArray:
        """Return mu^2 and gamma of the nodes of a level, or of "total", shape (nodes, 2)."""
        shape, level = self.shape, factor.factor.kind
        if level in shape.above:
            return self.top.compute_row_parts(shape.build_top_rows(level))
        parts = self.top.compute_row_parts(np.eye(shape.top))
        depth = shape.depths[level]
        for c, k, parents in zip(
            self._scales_by_step()[:depth], shape.children, shape.parents, strict=False
        ):
            parts = parts / k[:, None] ** 2.0
            parts[:, 1] += np.where(k > 1, c, 0.0) * (1 - 1 / k)
            parts = parts[parents]
        return parts

    def _scales_by_step(self) -> list[FloatArray]:
        return self.shape.arrange_by_step(self.scales, np.inf)

    def descend(
        self,
        moments: Sequence[FloatArray],
        pulls: Sequence[tuple[DistinctFactor, FloatArray]],
    ) -> TreeCovariance:
        """Return the covariance that minimises the Lagrangian, first in C, then in u."""
        (moments_of_leaves,) = moments
        levels = [(factor.factor.kind, pull) for factor, pull in pulls]
        return self.descend_levels(moments_of_leaves, levels)

    def descend_levels(
        self, moments: FloatArray, pulls: Sequence[tuple[str, FloatArray]]
    ) -> TreeCovariance:
        """Descend with pulls (nodes, 2) on the nodes of levels; see `AttributeCovariance.descend`.

        For node v, c_v = (P_v / a_v)^1/2 (F25), where P_v is the sum of the moments of its leaves,
        and a_v is the sum of pull_w1 + a_w / k_w^2 over its children w.
        """
        shape = self.shape
        pooled = [np.zeros((len(first), 2)) for first in shape.first]
        rows = []
        for level, pull in pulls:
            if level in shape.above:
                rows.append((shape.build_top_rows(level), pull))
            else:
                pooled[shape.depths[level]] += pull
        scales = []
        for step in reversed(range(shape.steps)):
            k = shape.children[step]
            below = np.add.reduceat(pooled[step + 1], shape.first_children[step], axis=0)
            pooled[step] += below / k[:, None] ** 2.0
            mass = shape.sum_leaves(moments, step)
            if step < shape.deepest:
                # The pull is zero if all groups that use these nodes have zero coefficients.
                c = np.sqrt(mass / np.maximum(below[:, 1], np.finfo(float).tiny))
            else:
                c = np.full(len(k), np.inf)
            scales.append(c[k > 1])
        top = self.top
        if shape.top > 1:
            rows = [(np.eye(shape.top), pooled[0]), *rows]
            top = top.descend_rows([shape.sum_leaves(moments, 0)], rows)
        return TreeCovariance(shape, top, np.concatenate([*scales[::-1], np.zeros(0)]))

    def round_to_integers(self, factors: Sequence[DistinctFactor], bits: int) -> TreeMatrix:
        """Return an integer matrix near this covariance; see `AttributeCovariance`.

        If a node's contrasts are centred, its multiplier is at most about 2^bits / k_v, so large
        k_v need more bits.
        """
        shape = self.shape
        unit = 2.0**bits / (math.sqrt(float(self.compute_eta().max())) or 1.0)
        (real,) = self.top.precisions
        matrix = np.rint(real * unit).astype(np.int64)
        if np.linalg.matrix_rank(np.vstack([matrix, np.full(shape.top, unit)])) < shape.top:
            raise DesignError(NO_ROUNDING)
        precision = np.ones(shape.branching)
        for siblings in shape.siblings:
            precision[siblings.positions] = build_contrasts(siblings.k).precision
        m = np.rint(unit / np.sqrt(self.scales * precision))
        return TreeMatrix(shape, DenseMatrix(matrix), np.maximum(m, 1.0).astype(np.int64))


@dataclass(frozen=True, eq=False)
class TreeOptimum:
    """The best covariance of a tree for the queries of one attribute.

    Attributes:
        top: The covariance of the top sums.
        scales: c of the nodes that branch, shape (V,).
        cells: Weights p of the leaves, shape (n,), summing to 1.
        queries: For each level, the weights q of its nodes, shape (nodes,). All levels together sum
            to 1.
        upper: The privacy cost at the targets.
        lower: A lower bound on the cost of any covariance of this form; and, if queries use at most
            one level below the top, of any mechanism.
    """

    top: DenseCovariance
    scales: FloatArray
    cells: FloatArray
    queries: dict[str, FloatArray]
    upper: float
    lower: float


_TOLERANCE, _MAX_ITERATIONS = 1e-5, 1000
"""The relative gap at which the dual solver ends, and its most iterations."""


def optimise_tree(
    shape: TreeShape,
    targets: Mapping[str, float],
    summed: bool,
) -> TreeOptimum:
    """Minimise the privacy cost of the levels of one attribute.

    Args:
        shape: The nodes of the tree.
        targets: The target variance of the nodes of each level that queries use.
        summed: Whether the total is a query too, with a target of 1.

    Raises:
        DesignError: As the dual solver does.
    """
    if summed:
        targets = dict(targets) | {"total": min(1.0, targets.get("total", 1.0))}
    classes, ends = _build_classes(shape, targets)
    solution = solve_dual(
        Problem(len(classes.cell), len(classes.row), ()),
        tolerance=_TOLERANCE,
        max_iterations=_MAX_ITERATIONS,
        evaluate=classes.evaluate_dual,
    )
    whitener, below = solution.whiteners
    scales = np.full(shape.branching, np.inf)
    scales[: len(below)] = below**-2.0
    cells = solution.p
    for step in range(max(shape.deepest - 1, 0), shape.steps):
        cells = (cells / shape.children[step])[shape.parents[step]]
    queries = {}
    for level, q in zip(targets, np.split(solution.q, ends[:-1]), strict=True):
        if depth := shape.depths.get(level, 0):
            q = (q / shape.children[depth - 1])[shape.parents[depth - 1]]
        queries[level] = q
    return TreeOptimum(
        _split_total(whitener), scales, cells, queries, solution.upper, solution.lower
    )


@dataclass(frozen=True, eq=False)
class _Classes:
    """The dual of one tree, with one weight for each class of cells and each class of queries.

    Attributes:
        top: The block of M, over the top sums. Its queries are these sums and the levels above.
        cell: The top node of each class of cells, shape (cells,).
        row: The query of `top` whose variance enters that of each class of queries, shape
            (queries,).
        share: The factor with which it enters, shape (queries,).
        profiles: The coefficients of c_v^-1 in the profile, sparse, shape (cells, b).
        variances: The coefficients of c_v in the variances over targets, sparse, shape (queries,
            b).
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

        The whiteners are the whitener of M (P, P), and c^-1/2 (b,).
        """
        on_cells = np.bincount(self.cell, p, self.top.basis.shape[1]).astype(np.float64)
        on_rows = np.bincount(self.row, self.share * q, len(self.top.rows)).astype(np.float64)
        mean = compute_mean(self.top, on_cells, on_rows)
        P, Q = self._transposed[0] @ p, self._transposed[1] @ q
        if not (P > 0).all() or not (Q > 0).all():
            raise np.linalg.LinAlgError(BAD_PROOF)
        c = np.sqrt(P / Q)
        g = mean.profile[self.cell] + self.profiles @ (1 / c)
        h = self.share * mean.ratios[self.row] + self.variances @ c
        value = mean.value + float(np.sqrt(P * Q).sum())
        return DualValue(value, g, h, (mean.compute_whitener(), 1 / np.sqrt(c)))


def _build_classes(shape: TreeShape, targets: Mapping[str, float]) -> tuple[_Classes, IntArray]:
    """Build the classes of a tree, and the index after each level's last query."""
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
        step_gamma = csr_array((1 - 1 / k[branching], (branching, place)), shape=(len(k), b))
        share, gamma, profile = (
            share / k**2,
            diags_array(k**-2) @ gamma + step_gamma,
            profile + step_gamma,
        )
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
