"""The certificate of chains where neighbours replace a record.

The cells before some cell have weights a, and those from it on weights b, each with the sum 1. A
pair of cells on the same side has the weight s times the product of theirs, and one of cells on
different sides (1 - s) times. With c = a + b and d = a - b, the weights of the pairs give a block
the matrix

    P = diag(c) - r cc' / 2 + r (1 - 2 s) dd' / 2

where r is the factor of the products of two columns, the block's `ratio`: 1 if the total is public.
Then the prefixes i <= j have the covariance U_i V_j, so s_j / V_j is a random walk with steps of
variance

    a_j = U_j / V_j - U_(j-1) / V_(j-1)

and the bound of chains holds with a for p and w_j V_j^2 for w_j. If r <= 0, the same holds for the
first two terms. The third is that the difference of the two sides' totals is observed, which lowers
each resolvent (docs/theory/chains.md, "One record replaced").
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.certify import check_weights, place_poles
from fitplug.errors import BAD_PROOF
from fitplug.families.base.family import Certifier, Duals
from fitplug.families.base.objective import Objective
from fitplug.families.chain.certificate.chains import (
    compute_chain_trace,
    fold_chain,
    lower_chain_trace,
    upper_sweep_error,
)
from fitplug.families.chain.shape.pairs import ChainPairStructure
from fitplug.numeric import FloatArray, gamma

_NEGLIGIBLE = 1e-100
"""Weights below this share of the largest, and prefixes with such V_j, count as zero, which only
lowers a bound. Then all numbers stay within the range of floats."""

_STEP = 2.0**-7
"""The share by which the weights of prefixes are lowered, to bound a derivative by a difference."""


class PairWeights(NamedTuple):
    """The weights alpha_i beta_j of the pairs of cells i < j, and sums of them.

    Attributes:
        alpha: Shape (n,).
        beta: Shape (n,).
        U: The sum of alpha up to each cell, shape (n,).
        V: The sum of beta after each cell, shape (n,); 0 after the last.
        cells: The weight of all pairs with a cell, c, shape (n,), where a record may also change
            other attributes alone.
    """

    alpha: FloatArray
    beta: FloatArray
    U: FloatArray
    V: FloatArray
    cells: FloatArray

    @classmethod
    def sum_up(cls, alpha: FloatArray, beta: FloatArray) -> PairWeights:
        """Sum up weights alpha and beta, shape (n,) each."""
        U, V = np.cumsum(alpha), np.append(np.cumsum(beta[:0:-1])[::-1], 0.0)
        return cls(alpha, beta, U, V, alpha * V + beta * np.append(0.0, U[:-1]))

    @classmethod
    def split(cls, a: FloatArray, b: FloatArray, same: float = 0.0) -> PairWeights:
        """Find the weights for a before the split, b after it, and s; see the module's docstring.

        Args:
            a: Weights with the sum 1, shape (n,).
            b: Weights with the sum 1 of later cells, shape (n,).
            same: s, at least 0 and less than 1.
        """
        apart = 1 - same
        weights = cls.sum_up(a + same / apart * b, same * a + apart * b)
        return weights._replace(cells=a + b)

    def find_walk(self, ratio: float) -> tuple[FloatArray, FloatArray]:
        """Find the walk s_j / V_j of a block, without the third term of P if the ratio is below 1.

        Returns:
            The variances of its steps, shape (n,), and V, likewise. They are without the last
            prefix if the ratio is 1.
        """
        if ratio < 1:
            V = 1 - ratio / 2 * np.cumsum(self.cells)
            return self.cells / (V * np.append(1.0, V[:-1])), V
        counts = _NEGLIGIBLE * self.V[0] < self.V[:-1]
        V = np.where(counts, self.V[:-1], 1.0)
        odds = np.append(0.0, self.U[:-2] / V[:-1])
        steps = np.where(counts, (self.alpha[:-1] + self.beta[:-1] * odds) / V, 0.0)
        return steps, np.where(counts, V, 0.0)


def unpack_sides(p: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Unpack the dual weights: a, b, and the weights s and 1 - s, shape (2 n + 2,).

    Raises:
        ValueError: If they are no weights of this form.
    """
    a, b = p[:-2].reshape(2, -1)
    same, across = (p[-2:] / max(p[-2:].max(), 1e-300)).tolist()
    fits = a.any() and b.any() and across > 0
    if not fits or np.flatnonzero(a)[-1] >= np.flatnonzero(b)[0]:
        raise ValueError(BAD_PROOF)
    a, b = (np.where(x < _NEGLIGIBLE * x.max(), 0.0, x / x.max()) for x in (a, b))
    return a / a.sum(), b / b.sum(), same / (same + across)


class ChainPairCertifier(Certifier[ChainPairStructure]):
    """The certificate of `ChainPairStructure`, for the plain objective."""

    is_refined = False

    def count_duals(self, structure: ChainPairStructure) -> tuple[int, int]:
        return structure.differences, structure.rows

    def lower_cost(
        self, structure: ChainPairStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        check_weights(duals.p, structure.differences)
        check_weights(duals.q, structure.rows)
        a, b, same = unpack_sides(duals.p)
        weights, split = PairWeights.split(a, b, same), int(np.flatnonzero(b)[0])
        q = duals.q / duals.q.max()
        row_weights = q / (scale * structure.targets)
        total = 0.0
        for block, ratio in structure.chains:
            prefixes, _ = structure.gather_weights(block, row_weights)
            multiple = math.sqrt(float(structure.multiples_of_blocks[block]))
            removed = 0.0 if ratio == 1 else -ratio * (1 - 2 * same) / 2
            total += multiple * _lower_trace(weights, ratio, prefixes, split, removed)
        # Sums of up to n positive numbers in U, V, a and w, each to a power of at most 2.
        total *= 1 - gamma(len(structure.blocks) + structure.rows + 16 * structure.n + 64)
        return max(0.0, total / math.sqrt(float(q.sum())))


def _lower_trace(
    weights: PairWeights, ratio: float, prefix_weights: FloatArray, split: int, removed: float
) -> float:
    """Bound tr N^1/2 of a block from below, but for roundings of the walk.

    Args:
        weights: The weights of pairs.
        ratio: The block's ratio.
        prefix_weights: Weights of the prefixes, shape (n,).
        split: The first cell of the second side.
        removed: The factor of dd' that is taken from the walk's P, at least 0.
    """
    steps, V = weights.find_walk(ratio)
    w = prefix_weights[: len(V)] * V * V
    largest, largest_w = float(steps.max()), float(w.max(initial=0.0))
    if not (largest > 0 and largest_w > 0):
        return 0.0
    steps, w = (np.where(x < _NEGLIGIBLE, 0.0, x) for x in (steps / largest, w / largest_w))
    trace = lower_chain_trace(steps, w, np.zeros_like(w))
    if removed > 0:
        before, after = weights.cells[:split], weights.cells[split:]
        sums = np.concatenate([np.cumsum(before), np.append(np.cumsum(after[:0:-1])[::-1], 0.0)])
        trace -= _upper_loss(steps, w, V, split, sums / largest, removed * largest)
    return trace * math.sqrt(largest) * math.sqrt(largest_w)


def _upper_loss(
    steps: FloatArray,
    w: FloatArray,
    V: FloatArray,
    split: int,
    sums: FloatArray,
    removed: float,
) -> float:
    """Bound from above what tr N^1/2 loses where P is lower by a multiple of dd'.

    Args:
        steps: The variances of the walk's steps, shape (n,).
        w: The weights of its states, likewise.
        V: The prefixes are V times the walk, likewise.
        split: The first cell of the second side.
        sums: The sums of d up to each cell, shape (n,).
        removed: The multiple.
    """
    error = 8 * upper_sweep_error(len(steps))
    poles, shares = place_poles(compute_chain_trace(steps, w, np.zeros_like(w)), len(steps))

    def find_variance(w: FloatArray) -> FloatArray:
        """Find the posterior variance of the difference of the sides' totals, shape (poles,)."""
        before, _, _ = fold_chain(steps[:split], w[:split], poles)
        after, slope, information = fold_chain(steps[split:], w[split:], poles)
        # Given the state z at the split, the last one has the mean slope^1/2 z.
        of_state = (2 * V[split - 1] - V[-1] * np.sqrt(slope)) ** 2
        return np.asarray(of_state * before / (1 + before * information) + V[-1] ** 2 * after)

    variance = find_variance(w)
    # The variance is convex in the weights, so its derivative is at most this difference.
    lowered = find_variance(w * (1 - _STEP)) * (1 + error) - variance * (1 - error)
    slopes = np.minimum(lowered / _STEP, float(w @ (sums / V) ** 2) / poles**2)
    # Without observations the difference has twice the variance of a side's total.
    rest = max(0.0, 1 / removed - 2 * float(sums[split - 1]) * (1 + gamma(len(sums) + 16)))
    losses = slopes / (rest / poles + variance * (1 - error))
    return float(shares @ losses) * (1 + gamma(16 * len(sums) + 64))
