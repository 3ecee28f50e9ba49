"""The certificate of chains where neighbours replace a record.

The cells i < j of a pair have the weight alpha_i beta_j. With U_i = alpha_0 + ... + alpha_i and
V_i = beta_(i+1) + ... + beta_(n-1), the Laplacian of these weights gives the prefixes i <= j the
covariance U_i V_j. So s_j / V_j is a random walk with steps of variance

    a_j = U_j / V_j - U_(j-1) / V_(j-1) = (alpha_j + beta_j U_(j-1) / V_(j-1)) / V_j

and the bound of chains holds with a for p and w_j V_j^2 for w_j. In a block whose total is not
public, each attribute of a moved record gets any of its values with equal weight. Then the columns
of two cells have products that cancel, and the bound is that of records added or removed, with the
weight of all pairs with a cell for p (docs/theory/chains.md, "One record replaced").
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fitplug.certify import check_weights
from fitplug.families.base.family import Certifier, Duals
from fitplug.families.base.objective import Objective
from fitplug.families.chain.certificate.chains import lower_chain_trace
from fitplug.families.chain.shape.pairs import ChainPairStructure
from fitplug.numeric import FloatArray, gamma

_NEGLIGIBLE = 1e-100
"""Prefixes with V_j below this share of the largest count as not asked for, which only lowers a
bound. Then all numbers stay within the range of floats."""


class PairWeights(NamedTuple):
    """The weights alpha_i beta_j of the pairs of cells i < j, and sums of them.

    Attributes:
        alpha: Shape (n,).
        beta: Shape (n,).
        U: The sum of alpha up to each cell, shape (n,).
        V: The sum of beta after each cell, shape (n,); 0 after the last.
    """

    alpha: FloatArray
    beta: FloatArray
    U: FloatArray
    V: FloatArray

    @classmethod
    def sum_up(cls, p: FloatArray) -> PairWeights:
        """Sum up the dual weights alpha and beta, shape (2 n,)."""
        alpha, beta = p.reshape(2, -1)
        V = np.append(np.cumsum(beta[:0:-1])[::-1], 0.0)
        return cls(alpha, beta, np.cumsum(alpha), V)

    @property
    def mass(self) -> float:
        """The sum of the weights of all pairs."""
        return float(self.alpha @ self.V)

    @property
    def before(self) -> FloatArray:
        """The sum of alpha before each cell, shape (n,)."""
        return np.append(0.0, self.U[:-1])

    @property
    def cells(self) -> FloatArray:
        """The weight of all pairs with a cell, shape (n,)."""
        return self.alpha * self.V + self.beta * self.before

    @property
    def steps(self) -> FloatArray:
        """The variances a_j of the walk's steps, shape (n - 1,); 0 where V_j is negligible."""
        V = self.V[:-1]
        counts = _NEGLIGIBLE * V[0] < V
        V = np.where(counts, V, 1.0)
        odds = np.append(0.0, self.U[:-2] / V[:-1])
        return np.where(counts, (self.alpha[:-1] + self.beta[:-1] * odds) / V, 0.0)


class ChainPairCertifier(Certifier[ChainPairStructure]):
    """The certificate of `ChainPairStructure`, for the plain objective."""

    is_refined = False

    def count_duals(self, structure: ChainPairStructure) -> tuple[int, int]:
        return 2 * structure.n, structure.rows

    def lower_cost(
        self, structure: ChainPairStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        n = structure.n
        check_weights("p", duals.p, 2 * n)
        check_weights("q", duals.q, structure.rows)
        p = duals.p.reshape(2, n)
        largest = p.max(axis=1, keepdims=True)
        q = duals.q / duals.q.max()
        weights = PairWeights.sum_up((p / np.where(largest > 0, largest, 1.0)).ravel())
        mass = weights.mass
        if not mass > 0:
            raise ValueError("dual weights p are zero for all pairs of cells")
        row_weights = q / (scale * structure.targets)
        total = 0.0
        for block, is_grounded in structure.chains:
            prefixes, cells = structure.gather_weights(block, row_weights)
            if is_grounded:
                trace = lower_grounded_trace(weights, prefixes)
            else:
                of_cells = weights.cells
                trace = lower_chain_trace(of_cells / of_cells.max(), prefixes, cells)
                trace *= math.sqrt(float(of_cells.max()))
            total += math.sqrt(float(structure.multiples_of_blocks[block])) * trace
        # Sums of up to n positive numbers in U, V, a, w and the mass, each to a power of at most 2.
        total *= 1 - gamma(len(structure.blocks) + structure.rows + 16 * n + 64)
        return max(0.0, total / math.sqrt(mass * float(q.sum())))


def lower_grounded_trace(weights: PairWeights, prefix_weights: FloatArray) -> float:
    """Bound tr N^1/2 of a chain with a public total from below, but for roundings of `weights`.

    Args:
        weights: The weights of pairs.
        prefix_weights: Weights of the prefixes, shape (n,); the total's does not matter.
    """
    steps = weights.steps
    largest = float(steps.max(initial=0.0))
    V = weights.V[:-1]
    w = np.where(_NEGLIGIBLE * V[0] < V, prefix_weights[:-1] * V * V, 0.0)
    if not (largest > 0 and w.any()):
        return 0.0
    return lower_chain_trace(steps / largest, w, np.zeros_like(w)) * math.sqrt(largest)
