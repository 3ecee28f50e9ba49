"""Certificates of chains: the trace of a square root by quadrature, block by block.

T(p, q) is the sum over the blocks A of w_A^1/2 tr N_A^1/2, where N_A is made of the weights p of
the chain's cells and of the block's share of q / c (docs/theory/chains.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fitplug.certify import (
    LowerBoundAt,
    Tier,
    TierClaims,
    divide_by_mass,
    place_poles,
    scale_weights,
)
from fitplug.families.base.certifier import Certifier, Duals
from fitplug.families.base.objective import Objective
from fitplug.families.chain.certificate.sweep import sweep_chain, upper_sweep_error
from fitplug.families.chain.shape import ChainStructure
from fitplug.numeric import FloatArray, gamma

_NEGLIGIBLE = 1e-100
"""Weights below this part of the largest are taken for zero, which only lowers a bound. Then no
number of a sweep leaves the range of floats."""


class ChainCertifier(Certifier[ChainStructure]):
    """The certificate of `ChainStructure`, for the plain objective."""

    def count_duals(self, structure: ChainStructure) -> tuple[int, int]:
        return structure.n, structure.rows

    def lower_cost(
        self, structure: ChainStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        p = scale_weights("p", duals.p, structure.n)
        q = scale_weights("q", duals.q, structure.rows)
        row_weights = q / (scale * structure.targets)
        total = 0.0
        for block, multiple in enumerate(structure.multiples_of_blocks.tolist()):
            prefixes, cells = structure.gather_weights(block, row_weights)
            total += math.sqrt(multiple) * lower_chain_trace(p, prefixes, cells)
        total *= 1 - gamma(len(structure.blocks) + structure.rows + 16)
        return divide_by_mass(total, p, q)

    def share_weight(self, structure: ChainStructure, duals: Duals) -> FloatArray:
        sums = np.add.reduceat(duals.q, structure.row_starts[:-1])
        return np.asarray(sums / sums.sum())

    def certify_tiers(self, claims: TierClaims, lower_bound_at: LowerBoundAt) -> Iterator[Tier]:
        """Certify one tier: the profile of a chain is taken for the same at all cells."""
        yield Tier(1, float(claims.profile[0]), claims.lower_bound**2 * (1 - gamma(8)))


def lower_chain_trace(p: FloatArray, prefix_weights: FloatArray, cell_weights: FloatArray) -> float:
    """Bound tr N^1/2 of a chain from below, rounding included.

    Args:
        p: Weights of the cells, shape (n,), at most 1.
        prefix_weights: Weights of the prefixes, shape (n,).
        cell_weights: Weights of the single cells, shape (n,).

    Returns:
        The bound; 0 if all weights are zero.
    """
    largest = float(max(prefix_weights.max(), cell_weights.max()))
    if not largest > 0:
        return 0.0
    w, c = prefix_weights / largest, cell_weights / largest
    p, w, c = (np.where(x < _NEGLIGIBLE, 0.0, x) for x in (p, w, c))
    trace = compute_chain_trace(p, w, c)
    if not trace > 0:
        return 0.0
    sums = sweep_chain(p, w, c, place_poles(trace, len(p)))
    total = float((w * sums.prefixes + c * sums.cells).sum())
    # The sums over poles and cells, and what the division by the largest weight rounds.
    error = upper_sweep_error(len(p)) + gamma(len(p) + 256)
    return total * math.sqrt(largest) * (1 - error)


def compute_chain_trace(
    p: FloatArray, prefix_weights: FloatArray, cell_weights: FloatArray
) -> float:
    """Compute tr N of a chain; the arguments are those of `lower_chain_trace`."""
    return float(prefix_weights @ np.cumsum(p) + cell_weights @ p)
