"""The certificate where neighbours replace a record: dual weights on classes of pairs of cells.

For weights p on the classes, T is the sum over the blocks A of || X P_A^1/2 ||_* with
X = diag(multiple q / c)^1/2 N and P_A = w_A (diag(r) - K_A) over the nodes. Here r has the row sums
of the weights S_D of all sets D, and |K_A| <= sum_D S_D entry by entry, so that K_A' with entries
that are off by a relative e of these sums lies between K_A - e diag(r) and K_A + e diag(r).
If R R' <= P_A in the order of positive semidefinite matrices, then || X R ||_* is at most
|| X P_A^1/2 ||_*, because the square root of matrices keeps this order. Nodes whose column of X is
zero, such as those of the reference cells of regions, are left out of P_A.

R is a Cholesky factor of the computed P with its diagonal lowered by e r. With n rows, and whatever
order the sums are taken in, |R R' - P| <= gamma_(n+1) |R||R'| entry by entry (Higham, Accuracy and
Stability of Numerical Algorithms, theorem 10.3), and row i of R has a norm of at most
(P_ii / (1 - gamma_(n+1)))^1/2 with P_ii <= 2 r_i. So R R' <= P + e r wherever e is at least
2 n gamma_(n+1) / (1 - gamma_(n+1)). To this the rounding of P itself is added, which is a sum of up
to `terms` numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from scipy.linalg import cholesky

from fitplug.certify import LowerBoundAt, Tier, TierClaims, sum_nuclear_norms
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.certificate.blocks import BlockCertifier
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.shape.symmetric_pairs import SymmetricPairStructure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma, upper_norm

S = TypeVar("S", bound=Structure)

_LEAST_WEIGHT = 1e-30
"""Smaller weights, where the largest is 1, are taken for 0, so that nothing underflows."""

_MIXED = 1e-6
"""The mass of uniform weights that is mixed into weights whose Laplacian is too near singular."""


class OneTierCertifier(BlockCertifier[S]):
    """What certificates of pairs of cells have in common."""

    def certify_tiers(self, claims: TierClaims, lower_bound_at: LowerBoundAt) -> Iterator[Tier]:
        """Certify one tier: the profile of pairs is not refined."""
        cells = int((claims.tiers.of_cell == 0).sum())
        bound = claims.lower_bound**2 * (1 - 4 * UNIT_ROUNDOFF)
        yield Tier(cells, float(claims.profile.max()), bound)


class SymmetricPairCertifier(OneTierCertifier[SymmetricPairStructure]):
    """The certificate of `SymmetricPairStructure`: p is over sets of attributes."""

    def lower_norm(
        self, structure: SymmetricPairStructure, weights: FloatArray, row_weights: FloatArray
    ) -> float:
        # The sum over the blocks of (P Q)^1/2, with P = sum_D p_D c_A(D); all terms are positive.
        P = structure.multiples @ weights
        Q = (structure.incidence.T @ row_weights)[structure.noisy_blocks]
        roundings = len(weights) + structure.rows + len(Q) + 4 * structure.blocks.shape[1] + 64
        return float(np.sqrt(P * Q).sum()) * (1 - gamma(roundings))


class PairCertifier(OneTierCertifier[PairStructure]):
    """The certificate of `PairStructure`."""

    def lower_norm(
        self, structure: PairStructure, weights: FloatArray, row_weights: FloatArray
    ) -> float:
        p = np.where(weights >= _LEAST_WEIGHT, weights, 0.0)
        try:
            return _lower_norm(structure, p, row_weights)
        except np.linalg.LinAlgError:
            pass
        # The bound at mixed weights holds too, and their sum is 1 + _MIXED times that of p.
        mixed = p + _MIXED * (float(p.sum()) / len(p)) * (1 - gamma(len(p) + 4))
        try:
            return (
                _lower_norm(structure, mixed, row_weights) / math.sqrt(1 + _MIXED) * (1 - gamma(4))
            )
        except np.linalg.LinAlgError:
            return 0.0


def _lower_norm(structure: PairStructure, p: FloatArray, row_weights: FloatArray) -> float:
    """Bound the sum over the blocks of || X V diag(p)^1/2 ||_* from below, for weights p (pairs,).

    Raises:
        LinAlgError: If a moment is too near a singular one.
    """
    total = 0.0
    moments, degrees = structure.sum_moments(p)
    terms = structure.pairs.sets * (structure.pairs.nodes + 4 * len(structure.free) + 4)
    for block, moment in zip(structure.noisy_blocks.tolist(), moments, strict=True):
        queries = structure.gather_queries(block)
        weights = queries.variance_multiples * row_weights[queries.rows] * queries.profile_multiple
        matrix = queries.matrix[:, structure.pairs.cells]
        rows = np.flatnonzero((weights > 0) & matrix.any(axis=1))
        kept = np.flatnonzero(matrix[rows].any(axis=0) & (degrees > 0))
        if not len(kept):
            continue
        X = matrix[np.ix_(rows, kept)] * np.sqrt(weights[rows])[:, None]
        A = moment[np.ix_(kept, kept)]
        total += _lower_block(X, A, degrees[kept], terms)
    return total * (1 - gamma(len(moments)))


def _lower_block(X: FloatArray, moment: FloatArray, degrees: FloatArray, terms: int) -> float:
    """Bound || X P^1/2 ||_* from below, for X (r, n) and P = diag(degrees) - K, |K| <= degrees.

    Args:
        X: The queries.
        moment: P as it was computed, shape (n, n).
        degrees: The sums of the weights whose entries K has, shape (n,).
        terms: The most numbers that an entry of P is a sum of.

    Raises:
        LinAlgError: If P is too near a singular matrix.
    """
    n = len(moment)
    shift = 2.2 * n * gamma(n + 4) + 4 * gamma(terms)
    A = moment.copy()
    A[np.diag_indices(n)] -= degrees * shift
    R = cholesky(A, lower=True)
    product = X @ R
    # An entry of X carries the roundings of the difference W', and of the weights of up to 14
    # attributes, each a product of three numbers that are rounded.
    error = float(upper_norm(np.abs(X) @ np.abs(R))) * gamma(n + 128)
    norm = sum_nuclear_norms([(product, np.ones(len(X)), np.ones(n))])
    lost = math.sqrt(min(product.shape)) * error * (1 + gamma(8))
    return max(0.0, (norm - lost) * (1 - gamma(4)))
