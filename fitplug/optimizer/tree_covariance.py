"""A tree's split in the residual family: a dense covariance on top, one number per node below.

With S the sums of the P top nodes, and R_v those of the k_v children of a node v that branches,
E_v their even spread over the leaves (`tree_shape`), and u_T, C_T, Y_T those of an ordered split
on the top sums,

    u = E u_T      C = E C_T E' + sum_v c_v E_v (I - J/k_v) E_v'
                   Y = S'Y_T S  + sum_v c_v^-1 R_v'(I - J/k_v) R_v      Y C = I - 1 u',  Y u = 0

    eta(leaf) = eta_T(g) + sum over ancestors v of (1 - 1/k_v) / c_v
    child of v:  mu = mu_v / k_v,  gamma = gamma_v / k_v^2 + c_v (1 - 1/k_v)

Down from the top these are sums along paths, and the weights of a Lagrangian are pooled upwards the
same way: a step of any part takes time linear in the nodes, and cubic in P.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cholesky, helmert, solve_triangular
from scipy.sparse import csr_array, diags_array, vstack

from fitplug.errors import DesignError
from fitplug.mechanism import DenseMatrix, TreeMatrix, contrast
from fitplug.numeric import FloatArray, IntArray
from fitplug.optimizer import dual
from fitplug.optimizer.covariance_descent import descended as descended_top
from fitplug.optimizer.geometric_mean import mean
from fitplug.optimizer.problem import Block, Problem
from fitplug.optimizer.residual_family import Ordered
from fitplug.structure import DistinctFactor, TreeShape


@dataclass(frozen=True, eq=False)
class Tree:
    """The real split of a tree.

    top: on the P top sums, in all their P - 1 contrasts. scales: c (V,) of the nodes that branch,
    infinite where nothing below is asked for.
    """

    shape: TreeShape
    top: Ordered
    scales: FloatArray

    def eta(self) -> FloatArray:
        """Y_ii, shape (n,)."""
        total = self.top.eta()
        for c, k, parents in zip(
            self._by_step(), self.shape.children, self.shape.parents, strict=True
        ):
            total = (total + (1 - 1 / k) / c)[parents]
        return total

    def moments(self, asked: DistinctFactor) -> FloatArray:
        """mu^2 and gamma of a level's nodes, or of "total", shape (nodes, 2)."""
        shape, level = self.shape, asked.factor.kind
        if level in shape.above:
            return self.top.of_rows(shape.over_top(level))
        found = self.top.of_rows(np.eye(shape.top))
        depth = shape.depths[level]
        for c, k, parents in zip(
            self._by_step()[:depth], shape.children, shape.parents, strict=False
        ):
            found = found / k[:, None] ** 2.0
            found[:, 1] += np.where(k > 1, c, 0.0) * (1 - 1 / k)
            found = found[parents]
        return found

    def _by_step(self) -> list[FloatArray]:
        return self.shape.by_step(self.scales, np.inf)


def whole(tree: Tree, bits: int) -> TreeMatrix:
    """The integer split next to a real one, its largest column norm about 2^bits.

    Contrasts that no query asks for are measured too, as coarsely as integers can. A multiplier is
    about 2^bits / k_v at most where the contrasts are centred: large k_v need more bits. Raises
    DesignError if the rounded top has lost a contrast, which more bits keep.
    """
    shape, N = tree.shape, tree.top.contrasts
    unit = 2.0**bits / (math.sqrt(float(tree.eta().max())) or 1.0)
    L = cholesky(tree.top.covariance, lower=True) if shape.top > 1 else np.zeros((0, 0))
    real = solve_triangular(L, (N - tree.top.reference).T, lower=True) if shape.top > 1 else N.T
    matrix = np.rint(real * unit).astype(np.int64)
    if np.linalg.matrix_rank(np.vstack([matrix, np.full(shape.top, unit)])) < shape.top:
        raise DesignError("the integer strategy of a hierarchy lost a contrast; raise its bits")
    precision = np.ones(shape.branching)
    for group in shape.siblings:
        precision[group.places] = contrast(group.k).precision
    m = np.rint(unit / np.sqrt(tree.scales * precision))
    return TreeMatrix(shape, DenseMatrix(matrix), np.maximum(m, 1.0).astype(np.int64))


def descended(
    tree: Tree, p: FloatArray, price: float, asked: Sequence[tuple[str, FloatArray]]
) -> Tree:
    """The split at the least Lagrangian

        price p'eta + sum over levels and nodes w of weight_w0 mu_w^2 + weight_w1 gamma_w,

    C first, then u, as `ordered.descended`. p: (n,), positive, summing to 1. asked: levels, and
    the weights of their nodes, (nodes, 2). Of node v, c_v = (price P_v / a_v)^1/2, with P_v the p
    of its leaves and a_v = the sum over its children w of weight_w1 + a_w / k_w^2.
    """
    shape = tree.shape
    pull = [np.zeros((len(first), 2)) for first in shape.first]
    rows = []
    for level, weight in asked:
        if level in shape.above:
            rows.append((shape.over_top(level), weight))
        else:
            pull[shape.depths[level]] += weight
    scales = []
    for step in reversed(range(shape.steps)):
        k = shape.children[step]
        below = np.add.reduceat(pull[step + 1], shape.eldest[step], axis=0)
        pull[step] += below / k[:, None] ** 2.0
        mass = price * shape.sums(p, step)
        if step < shape.deepest:  # what is asked of it may be times queries of nothing
            c = np.sqrt(mass / np.maximum(below[:, 1], np.finfo(float).tiny))
        else:
            c = np.full(len(k), np.inf)
        scales.append(c[k > 1])
    top = tree.top
    if shape.top > 1:
        top = descended_top(top, shape.sums(p, 0), price, [(np.eye(shape.top), pull[0]), *rows])
    return Tree(shape, top, np.concatenate([*scales[::-1], np.zeros(0)]))


@dataclass(frozen=True, eq=False)
class Alone:
    """The best split for one attribute's own queries.

    cells: p (n,), summing to 1. queries: q per level, (nodes,), all together summing to 1.
    upper: its privacy cost at the targets. lower: no other of these splits costs less; with no more
    than one level asked for below the top, no mechanism does.
    """

    tree: Tree
    cells: FloatArray
    queries: dict[str, FloatArray]
    upper: float
    lower: float


def alone(
    shape: TreeShape,
    targets: Mapping[str, float],
    summed: bool,
    *,
    tolerance: float = 1e-5,
    max_iterations: int = 1000,
) -> Alone:
    """The least privacy cost of one attribute's queries.

    targets: the target variance of every level asked for; the total's is 1 if `summed`. Raises
    DesignError as the dual solver does.
    """
    if summed:
        targets = dict(targets) | {"total": min(1.0, targets.get("total", 1.0))}
    problem, ends = _classes(shape, targets)
    found = dual.solve(
        Problem(len(problem.cell), len(problem.row), ()),
        tolerance=tolerance,
        max_iterations=max_iterations,
        at=problem.evaluate,
    )
    root, own = found.whiteners
    scales = np.full(shape.branching, np.inf)
    scales[: len(own)] = own**-2.0
    cells = found.p
    for step in range(max(shape.deepest - 1, 0), shape.steps):
        cells = (cells / shape.children[step])[shape.parents[step]]
    queries = {}
    for level, q in zip(targets, np.split(found.q, ends[:-1]), strict=True):
        if depth := shape.depths.get(level, 0):
            q = (q / shape.children[depth - 1])[shape.parents[depth - 1]]
        queries[level] = q
    tree = Tree(shape, _ordered(root), scales)
    return Alone(tree, cells, queries, found.upper, found.lower)


@dataclass(frozen=True, eq=False)
class _Classes:
    """The problem of one tree: M, the covariance of the top sums, and c_v of the b nodes that
    branch above the finest level asked for. Nodes with one parent are alike: a class each.

    top: M's block, over the top sums; its queries are these and the levels above.
    cell: the top node of every class of cells. row, share: every class of queries takes a multiple
    of one of M's. profiles, variances: of every c_v^-1 and c_v, (cells, b) and (queries, b).
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

    def evaluate(self, _: Problem, p: FloatArray, q: FloatArray) -> dual.Point:
        """The dual at p and q; whiteners: M's, and c^-1/2 (b,)."""
        on_cells = np.bincount(self.cell, p, self.top.basis.shape[1]).astype(np.float64)
        on_rows = np.bincount(self.row, self.share * q, len(self.top.rows)).astype(np.float64)
        found = mean(self.top, on_cells, on_rows)
        P, Q = self._transposed[0] @ p, self._transposed[1] @ q
        if not (P > 0).all() or not (Q > 0).all():
            raise np.linalg.LinAlgError("a weight is zero")
        c = np.sqrt(P / Q)
        g = found.profile[self.cell] + self.profiles @ (1 / c)
        h = self.share * found.ratios[self.row] + self.variances @ c
        value = found.value + float(np.sqrt(P * Q).sum())
        return dual.Point(value, g, h, (found.whitener(), 1 / np.sqrt(c)))


def _classes(shape: TreeShape, targets: Mapping[str, float]) -> tuple[_Classes, IntArray]:
    """The problem, and where the queries of each level end."""
    P = shape.top
    steps = [np.flatnonzero(k > 1) for k in shape.children[: shape.deepest]]
    b = sum(map(len, steps))
    # Per depth, of each class: its top node, mu^2 over the top's, and gamma by c.
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
    rows, parts, directions = [], [], [np.eye(P)]
    at = P
    for level, target in targets.items():
        if level in shape.above:
            directions.append(shape.over_top(level))
            r = len(directions[-1])
            rows.append(at + np.arange(r))
            parts.append((np.full(r, 1 / target), csr_array((r, b))))
            at += r
        else:
            row, share, gamma = depths[shape.depths[level]]
            rows.append(row)
            parts.append((share / target, gamma / target))
    found = _Classes(
        top=Block(np.eye(P), np.arange(at), np.concatenate(directions)),
        cell=top,
        row=np.concatenate(rows),
        share=np.concatenate([share for share, _ in parts]),
        profiles=csr_array(profile),
        variances=csr_array(vstack([gamma for _, gamma in parts])),
    )
    return found, np.cumsum([len(row) for row in rows])


def _ordered(root: FloatArray) -> Ordered:
    """The split that M with root' root = M^-1 makes of the top sums: u = M 1 / 1'M 1, C = M less
    the part of u.
    """
    P = len(root)
    N = np.asarray(helmert(P).T)
    T = np.linalg.solve(root.T, np.column_stack([np.ones(P), N])).T
    v = T[1:] @ T[0] / (T[0] @ T[0])
    rest = T[1:] - np.outer(v, T[0])
    return Ordered(N, v, rest @ rest.T)
