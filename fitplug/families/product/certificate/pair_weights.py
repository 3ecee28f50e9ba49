"""Weights of pairs of cells, where neighbours replace a record, for the product bound.

A record moves along the attributes of a move t, of the weight r_t. Its two cells have the values i
and j of each of these attributes with the weight p_i p_j - tau v_i v_j p_i^1/2 p_j^1/2, for a unit
vector v that is orthogonal to e = p^1/2, or with equal weights for all i != j of an attribute that
is symmetric, and one value of each other attribute with the weight p_i. So the pairs' Laplacian is

    P = diag(p)^1/2 (I - sum_t r_t (x)_{a in t} K_a) diag(p)^1/2

where K_a is 1 on e_a, -tau on v_a and 0 on all other columns of a frame and its rests, or
-1 / (n - 1) on the contrasts of a symmetric attribute. Thus the bound is that of
`fitplug.families.product.certificate.product_bound` where a column of all Y_b with the states s_a
is multiplied by (1 - sum_t r_t prod K_a(s_a))^1/2. All other pairs than those of a cell with itself
count (docs/theory/units.md, (U14)).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.families.product.certificate.factor_pinching import Pinch, upper_departure
from fitplug.families.product.certificate.gram_matrices import StateColumns
from fitplug.families.product.certificate.product_duals import PairWeights
from fitplug.numeric import UNIT_ROUNDOFF, BoolArray, FloatArray, gamma


@dataclass(frozen=True, eq=False)
class PairSpectrum:
    """How the pairs' Laplacian multiplies columns.

    Attributes:
        moves: Along which attributes a record moves, shape (t, attributes).
        shares: The weights of the moves, of the sum 1 but for rounding.
        values: K_a of the state 1 of each attribute, shape (attributes,).
        same: No more than the weight of the pairs of a cell with itself.
    """

    moves: BoolArray
    shares: FloatArray
    values: FloatArray
    same: float

    @property
    def factor(self) -> float:
        """No more than what the bound is multiplied by: unordered pairs have half the weight."""
        return math.sqrt(2 / (1 - self.same)) * (1 - 4 * UNIT_ROUNDOFF)

    def list_products(self, columns: StateColumns) -> FloatArray:
        """List prod_{a in t} K_a of each move t and column, shape (t, columns)."""
        numbers = np.zeros((len(self.moves), columns.base))
        numbers[:, 0] = 1.0
        ends = [*columns.before[1:].tolist(), columns.base - 1]
        for move, of_states in zip(self.moves, numbers, strict=True):
            for a, (first, end) in enumerate(zip(columns.before.tolist(), ends, strict=True)):
                of_states[first + 1 : end + 1] = 0.0 if move[a] else 1.0
                of_states[first + 1 : min(first + 2, end + 1)] = self.values[a] if move[a] else 1.0
        return np.array([columns.multiply(of_states) for of_states in numbers])

    def lower_lengths(self, columns: StateColumns) -> FloatArray:
        """Bound what each column is multiplied by from below, shape (columns,)."""
        products = self.list_products(columns)
        rounding = gamma(len(self.moves) + 2 * self.moves.shape[1] + 8)
        squares = 1 - self.shares @ products - rounding
        # Where all attributes have the state 0, no pair of cells tells the column.
        separated = (products < 1).any(axis=0)
        return np.asarray(np.sqrt(np.where(separated, np.maximum(squares, 0.0), 0.0)) * (1 - 1e-15))


def find_spectrum(
    pairs: PairWeights,
    sizes: Sequence[int],
    symmetric: Sequence[bool],
    pinches: Mapping[int, Pinch],
) -> PairSpectrum:
    """Find how the pairs' Laplacian multiplies columns.

    Args:
        pairs: The weights.
        sizes: n_a of the attributes.
        symmetric: Whether each attribute may be permuted freely.
        pinches: A pinch of each attribute that some group of positive weight asks for.
    """
    values, traces = np.zeros(len(sizes)), np.zeros(len(sizes))
    for a, n in enumerate(sizes):
        if symmetric[a]:
            values[a] = -1 / (n - 1) if n > 1 else 0.0
        elif a in pinches and pinches[a].frame.shape[1] > 1:
            values[a], traces[a] = _find_reflection(pinches[a].frame[:, :2])
    shares = pairs.shares / pairs.shares.max()  # whose sum does not overflow
    shares = shares / math.fsum(shares)
    same = [float(np.prod(traces[move])) for move in pairs.moves]
    total = math.fsum(w * s for w, s in zip(shares.tolist(), same, strict=True))
    return PairSpectrum(pairs.moves, shares, values, max(0.0, total * (1 - 1e-12)))


def _find_reflection(frame: FloatArray) -> tuple[float, float]:
    """Find -tau, and no more than the trace of the pairs' weights, for e and v (n, 2).

    The exact v differs from the computed one by at most the departure from orthonormal columns, and
    e by its length. The weight of a pair is >= 0 if tau v_i^2 <= e_i^2 for all cells.
    """
    off = upper_departure(frame) + 4 * UNIT_ROUNDOFF
    e, v = np.abs(frame).T
    tau = float(((e * (1 - off)) / (v + off)).min()) ** 2 * (1 - 8 * UNIT_ROUNDOFF)
    trace = math.fsum(e**4) * (1 - 8 * off) - tau * math.fsum(e**2 * v**2) * (1 + 8 * off)
    return -tau, max(0.0, trace - 4 * off)
