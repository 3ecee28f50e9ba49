"""Nested triangles near the optimum of a chain, from its dual weights.

**Dual weights.** They come from `fitplug.solve.dual`, with gradients from the certificate's sweeps.

**Optimal covariance.** For dual weights p and q the optimum is Sigma = D^1/2 N^-1/2 D^1/2, and by
the quadrature of the certificate it is a weighted sum over poles t of the posterior covariances
D^1/2 (N + t)^-1 D^1/2. Each is the covariance of a walk: with y_j the variance of the prefix s_j
and r_j the regression coefficient of s_(j+1) on s_j, cov(s_i, s_j) = y_i r_i ... r_(j-1) for i <= j
(docs/theory/chains.md).

**Nested triangles.** Each row of the strategy measures the innovation of a cell: its optimal noise
minus the prediction of this noise from earlier rows. Predictors are the earlier cells of the same
leaf and, from farther back, K weighted sums of each left half: the count, and the combinations of
bins of cells that predict the right half best. Bins grow with the distance from the right half,
measured in the weights of the prefixes in between, and weights are interpolated between bins
(docs/theory/chains.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular, svd

from fitplug.certify import place_poles
from fitplug.families.chain.certificate.chains import compute_chain_trace, sweep_chain
from fitplug.families.chain.shape.chains import ChainStructure
from fitplug.families.chain.strategy.nested_triangles import NestedTriangles
from fitplug.numeric import FloatArray, IntArray, to_positions
from fitplug.solve import DualValue, Problem, Solution, solve_dual

_STEP, _TAIL = 1, 1e-4
"""The spacing and tail of poles for the gradients, which need fewer than the certificate."""

_MOST_STEPS = 60


def ascend_chain_dual(structure: ChainStructure, most_steps: int, gap: float) -> Solution:
    """Find dual weights whose bound is nearly the largest.

    Args:
        structure: The structure of the workload.
        most_steps: The most steps.
        gap: The ascent ends when no covariance can cost less than the best one seen by more than
            this, relatively.
    """

    def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        g, h = _compute_gradients(structure, p, q)
        return DualValue(float(p @ g), g, h, ())

    return solve_dual(
        Problem(structure.n, structure.rows, ()),
        tolerance=gap,
        max_iterations=min(most_steps, _MOST_STEPS),
        evaluate=evaluate,
    )


def _compute_gradients(
    structure: ChainStructure, p: FloatArray, q: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Compute twice the derivatives of T along p (n,) and q (rows,)."""
    row_weights = q / structure.targets
    g, h = np.zeros(structure.n), np.zeros(structure.rows)
    starts = structure.row_starts
    for block, multiple in enumerate(structure.multiples_of_blocks.tolist()):
        prefixes, cells = structure.gather_weights(block, row_weights)
        trace = compute_chain_trace(p, prefixes, cells)
        if not trace > 0:
            continue
        # The poles are placed for weights scaled so that N has trace 1.
        quadrature = place_poles(1.0, structure.n, step=_STEP, tail=_TAIL)
        sums = sweep_chain(p, prefixes / trace, cells / trace, quadrature)
        scale = math.sqrt(multiple)
        g += scale * math.sqrt(trace) * sums.slopes
        groups, multiples = structure.subsets.find_groups(block)
        for group, group_multiple in zip(groups.tolist(), multiples.tolist(), strict=True):
            asked = structure.chain_rows[group]
            y = np.where(asked.is_prefix, sums.prefixes[asked.cells], sums.cells[asked.cells])
            h[starts[group] : starts[group + 1]] += scale * group_multiple / math.sqrt(trace) * y
    return g, h / structure.targets


_WALK_TAIL = 1e-8
"""The share of the trace of N^1/2 that omitted poles may have. The inverse needs more poles."""


class Walks(NamedTuple):
    """The walks of a chain: of the prefixes before each cell, and of the total.

    Attributes:
        variances: y times the weight of the pole, shape (n + 1, poles); 0 before the first cell.
        decays: log (r_0 ... r_(j-1)), shape (n + 1, poles).
    """

    variances: FloatArray
    decays: FloatArray

    def compute_increments(self, edges: IntArray) -> FloatArray:
        """Compute the covariance of the counts between ascending edges, (edges - 1, edges - 1)."""
        y, log = self.variances[edges], self.decays[edges]
        i, j = np.triu_indices(len(edges))
        S = np.zeros((len(edges), len(edges)))
        S[i, j] = (np.exp(log[j] - log[i]) * y[i]).sum(axis=1)
        S = np.triu(S) + np.triu(S, 1).T
        return np.diff(np.diff(S, axis=0), axis=1)


def find_walks(
    p: FloatArray, prefix_weights: FloatArray, cell_weights: FloatArray, total: float = 0.0
) -> Walks:
    """Find the walks of the optimum for dual weights.

    Args:
        p: Weights of the cells, shape (n,), positive.
        prefix_weights: Weights of the prefixes, shape (n,).
        cell_weights: Weights of the single cells, shape (n,).
        total: As in `sweep_chain`, at least 0.
    """
    n = len(p)
    trace = compute_chain_trace(p, prefix_weights, cell_weights)
    t, weights = place_poles(1.0, n, tail=_WALK_TAIL)
    w, c = prefix_weights / trace, cell_weights / trace
    steps = p[:, None] / (t + np.outer(c * p, np.ones_like(t)))
    F, J = np.zeros((n + 1, len(t))), np.empty((n, len(t)))
    for j in range(n):
        before = F[j] + steps[j]
        F[j + 1] = before / (1 + w[j] * before)
    after = total * t
    for j in range(n - 1, -1, -1):
        # F is the variance given earlier observations, and `after` the information of later ones.
        F[j + 1] /= 1 + F[j + 1] * after
        J[j] = after + w[j]
        after = J[j] / (1 + steps[j] * J[j])
    decays = np.zeros((n + 1, len(t)))
    np.cumsum(-np.log1p(steps[1:] * J[1:]), axis=0, out=decays[2:])
    return Walks(F * (weights / np.sqrt(trace)), decays)


SUMS = 8
"""K, the number of sums of a left half on which the right half's rows depend."""

_LEAF = 24
"""The approximate number of cells of a leaf."""

_SPREAD = 0.15
"""The weight of the prefixes within a bin, relative to that between the bin and the right half."""

_LARGEST_SUM = 2**12
"""The largest weight of a cell in a sum."""

_NEGLIGIBLE = 1e-10
"""Directions of the bins with less than this share of the variance are left out."""


def approximate_optimum(structure: ChainStructure, duals: Solution) -> list[NestedTriangles]:
    """Find nested triangles for each block, near the optimum for dual weights."""
    triangles = []
    for block, multiple in enumerate(structure.multiples_of_blocks.tolist()):
        prefixes, cells = structure.gather_weights(block, duals.q / structure.targets)
        walks = find_walks(duals.p * multiple, prefixes, cells)
        triangles.append(build_nested(walks, prefixes, structure.n))
    return triangles


def add_common_noise(walks: Walks, cells: FloatArray) -> Walks:
    """Add the same noise to all cells, with positive factors (n,), as one more walk."""
    prefixes = np.cumsum(cells)
    logs = np.log(np.append(prefixes[0], prefixes))
    return Walks(
        np.column_stack([walks.variances, np.append(0.0, prefixes**2)]),
        np.column_stack([walks.decays, logs]),
    )


class _Sums(NamedTuple):
    """The K weighted sums of each left half in a level of nodes.

    Attributes:
        weights: V, integers, shape (nodes, half, K).
        starts: For each pole, the covariance of the sums with an earlier prefix, divided by that of
            the prefix before the half's first cell with it, shape (nodes, poles, K).
        ends: The sums' covariances with the prefix at the end of the half, shape (nodes, poles, K).
        covariance: The sums' covariance, shape (nodes, K, K).
    """

    weights: FloatArray
    starts: FloatArray
    ends: FloatArray
    covariance: FloatArray


def build_nested(walks: Walks, prefix_weights: FloatArray, cells: int) -> NestedTriangles:
    """Build nested triangles for which noise of variance 1 has nearly the walks' covariance.

    Args:
        walks: The walks, of n cells.
        prefix_weights: Weights of the prefixes, shape (n,).
        cells: The number of cells for which to make room, at least n.

    Returns:
        The nested triangles, real except for the integer sums, with 2^D leaves.
    """
    n = len(prefix_weights)
    levels = max(0, round(math.log2(cells / _LEAF)))
    b = -(-cells // 2**levels)
    masses = np.append(0.0, np.cumsum(prefix_weights))
    triangles = np.tile(np.eye(b), (2**levels, 1, 1))
    sums, weights = np.zeros((2, levels, 2**levels * b // 2, SUMS))
    of_levels = []
    for level in range(levels):
        level_sums = _find_sums(walks, masses, b << level)
        of_levels.append(level_sums)
        sums[level, : level_sums.weights.size // SUMS] = level_sums.weights.reshape(-1, SUMS)
    for leaf in range(-(-n // b)):
        start, stop = leaf * b, min((leaf + 1) * b, n)
        seen = [level for level in range(levels - 1, -1, -1) if leaf >> level & 1]
        rows, triangle = _predict(walks, of_levels, seen, start, stop)
        triangles[leaf, : stop - start, : stop - start] = triangle
        for i, level in enumerate(seen):
            at = (leaf >> (level + 1)) * (b << level) + start % (b << level)
            weights[level, at : at + stop - start] = rows[:, i * SUMS : (i + 1) * SUMS]
    return NestedTriangles(triangles, sums, weights)


def _find_sums(walks: Walks, masses: FloatArray, half: int) -> _Sums:
    """Find the sums of all left halves of a given length that have a cell after them."""
    n = len(masses) - 1
    nodes = -(-(n - half) // (2 * half))
    first = 2 * half * np.arange(nodes)
    V = np.zeros((nodes, half, SUMS))
    for node, at in enumerate(first.tolist()):
        V[node] = _choose_sums(walks, masses, at, half)
    # The sums in terms of the prefixes before each cell of the half and at its end.
    edge = np.zeros((nodes, 1, SUMS))
    in_prefixes = np.concatenate([edge, V], axis=1) - np.concatenate([V, edge], axis=1)
    points = first[:, None] + np.arange(half + 1)
    log = walks.decays[first]
    said = np.zeros((half + 1, nodes, SUMS))
    starts, ends = np.zeros((2, nodes, walks.decays.shape[1], SUMS))
    for i in range(half + 1):
        y, now = walks.variances[points[:, i]], walks.decays[points[:, i]]
        coefficients = in_prefixes[:, i, None]
        ends *= np.exp(now - log)[:, :, None]
        mine = y[:, :, None] * coefficients
        said[i] = (ends + mine / 2).sum(axis=1)
        ends += mine
        starts += np.exp(now - walks.decays[first])[:, :, None] * coefficients
        log = now
    covariance = np.einsum("ink,nij->nkj", said, in_prefixes)
    return _Sums(V, starts, ends, covariance + covariance.swapaxes(1, 2))


def _choose_sums(walks: Walks, masses: FloatArray, first: int, half: int) -> FloatArray:
    """Choose the sums of a left half's cells that predict the right half, (half, K)."""
    middle, last = first + half, min(first + 2 * half, len(masses) - 1)
    left = _place_bins(masses, first, middle)
    right = _mirror_bins(masses, middle, last)
    C = walks.compute_increments(np.concatenate([left, right[1:]]))
    k = len(left) - 1
    weights = np.ones((half, SUMS))
    weights[:, 1:] = 0
    if k == 1:
        return weights
    total = C[:, :k].sum(axis=1)
    mass = float(total[:k].sum())
    rest = C - np.outer(total, total) / mass
    sizes = np.sqrt(np.diag(C))
    rest /= np.outer(sizes, sizes)
    values, vectors = np.linalg.eigh(rest[:k, :k])
    used = values > _NEGLIGIBLE * values[-1]
    whitened = vectors[:, used] / np.sqrt(values[used])
    R = cholesky(rest[k:, k:] + _NEGLIGIBLE * np.eye(len(rest) - k), lower=True)
    said = solve_triangular(R, rest[k:, :k] @ whitened, lower=True)
    directions = whitened @ svd(said, full_matrices=False)[2][: SUMS - 1].T
    directions /= sizes[:k, None]
    # Make each sum nearly independent of the count, so that few digits are lost.
    directions -= (total[:k] @ directions) / mass
    directions *= _LARGEST_SUM / np.maximum(np.abs(directions).max(axis=0), 1e-300)
    before = masses[first:middle]
    centres = np.add.reduceat(before, to_positions(left[:-1] - first)) / np.diff(left)
    for i, of_bins in enumerate(directions.T, start=1):
        weights[:, i] = np.rint(np.interp(before, centres, of_bins))
    return weights


def _place_bins(masses: FloatArray, first: int, last: int) -> IntArray:
    """Divide the cells from `first` to `last` into bins that get finer towards `last`.

    Args:
        masses: The sums of the weights of all prefixes before each cell, shape (n + 1,).
        first: The first cell.
        last: The cell after the last one.

    Returns:
        The first cell of each bin, and `last`, ascending.
    """
    edges, end = [last], last - 1
    while True:
        # The bin whose last cell is `end` may hold prefixes of this much weight before its end.
        allowed = masses[end] - _SPREAD * (masses[last] - masses[end])
        start = int(np.searchsorted(masses[: end + 1], allowed, side="left"))
        start = min(max(start, first), end)
        edges.append(start)
        if start == first:
            return np.array(edges[::-1], dtype=np.int64)
        end = start - 1


def _mirror_bins(masses: FloatArray, first: int, last: int) -> IntArray:
    """Divide the cells from `first` to `last` into bins that get finer towards `first`."""
    edges, start = [first], first
    while True:
        allowed = masses[start] + _SPREAD * (masses[start] - masses[first - 1])
        end = int(np.searchsorted(masses, allowed, side="right")) - 1
        end = min(max(end, start + 1), last)
        edges.append(end)
        if end == last:
            return np.array(edges, dtype=np.int64)
        start = end


def _predict(
    walks: Walks, of_levels: list[_Sums], seen: list[int], start: int, stop: int
) -> tuple[FloatArray, FloatArray]:
    """Find the rows of a leaf: each cell's noise minus its prediction, over the residual's std.

    Args:
        walks: The walks.
        of_levels: The sums of each level.
        seen: The levels whose sums the leaf's rows depend on, those farthest back first.
        start: The first cell of the leaf.
        stop: The cell after the last one.

    Returns:
        The coefficients of the sums, shape (cells, sums), and of the cells, shape (cells, cells).
    """
    leaf_cells = stop - start
    k = SUMS * len(seen)
    C = np.zeros((k + leaf_cells, k + leaf_cells))
    C[k:, k:] = walks.compute_increments(np.arange(start, stop + 1))
    log = walks.decays[start : stop + 1]
    mine, firsts, ends = [], [], []
    for level in seen:
        half = of_levels[level].weights.shape[1]
        node = start // (2 * half)
        mine.append((of_levels[level], node))
        firsts.append(2 * half * node)
        ends.append(2 * half * node + half)
    for i, (earlier, node) in enumerate(mine):
        at = slice(i * SUMS, (i + 1) * SUMS)
        C[at, at] = earlier.covariance[node]
        end = walks.decays[ends[i]]
        for j in range(i + 1, len(mine)):
            later, other = mine[j]
            reached = earlier.ends[node] * np.exp(walks.decays[firsts[j]] - end)[:, None]
            C[at, j * SUMS : (j + 1) * SUMS] = reached.T @ later.starts[other]
        C[at, k:] = np.diff(earlier.ends[node].T @ np.exp(log - end).T, axis=1)
    C = np.triu(C) + np.triu(C, 1).T
    scale = np.sqrt(np.diag(C))
    used = np.flatnonzero(scale > 0)
    scale = scale[used]
    R = cholesky(C[np.ix_(used, used)] / np.outer(scale, scale), lower=True)
    new = solve_triangular(R, np.eye(len(used)), lower=True)[-leaf_cells:] / scale
    rows = np.zeros((leaf_cells, len(C)))
    rows[:, used] = new
    return rows[:, :k], rows[:, k:]
