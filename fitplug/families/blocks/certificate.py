"""Certificates of blocks: the nuclear norm is a sum over blocks for any set of differences.

Where attributes are symmetric, p and q are equal for all cells and queries that symmetry makes
identical. The norm is the sum over the blocks A of || diag(multiple q / c)^1/2 N P_A^1/2 ||_*,
where P_A sums the moments of the differences between neighbours, times their weights p
(docs/theory/symmetry.md). For single records P_A = diag(w_A p).

With budgets s and a weight on the total squared error, p becomes p / s, q / c becomes
q / c + weight sum q (times the queries that a row stands for), and the same norm bounds the square
root of the objective (docs/theory/dual.md)

    max_i (profile_i / s_i) * (max_j (variance_j / c_j) + weight * sum_j variance_j).

**Pairs of cells.** With X = diag(multiple q / c)^1/2 N, P_A = w_A (diag(r) - K_A) over the nodes.
Here r has the row sums of the weights S_D of all sets D, and |K_A| <= sum_D S_D entrywise. So a
K_A' whose entries are off by at most e times these sums lies between K_A - e diag(r) and K_A + e
diag(r). If R R' <= P_A in the order of positive semidefinite matrices, then || X R ||_* is at most
|| X P_A^1/2 ||_*, because the square root of matrices keeps this order. Nodes whose column of X is
zero, such as those of the reference cells of regions, are left out of P_A. If the ends of pairs are
independent, r is 2 p, and K_A is 2 p p' / 1'p in each region, or 0 (docs/theory/units.md).

R is a Cholesky factor of the computed P with its diagonal lowered by e r. With n rows, and for any
order of summation, |R R' - P| <= gamma_(n+1) |R||R'| entry by entry (Higham, Accuracy and Stability
of Numerical Algorithms, theorem 10.3), and row i of R has a norm of at most (P_ii / (1 -
gamma_(n+1)))^1/2 with P_ii <= 2 r_i. So R R' <= P + e r whenever e is at least 2 n gamma_(n+1) / (1
- gamma_(n+1)). The rounding of P itself, a sum of up to `terms` numbers, is added to e.

If pairs are named, P_A / w_A is the sum of p_v F_v F_v', where F_v has the columns e_d - kappa e_d'
and (1 - kappa^2)^1/2 e_d', and the norm is that of the columns X F_v p_v^1/2.

**Persons.** P_A = sum_v p_v M_A(v) (`fitplug.neighbours.persons`) over the named differences. Any
others can only raise Delta, so their number does not matter (docs/theory/persons.md). A computed
F_A is a factor of P_A except for rounding. Single records are differences too: a weight e on each
dense cell adds e w_A I to P_A, which covers the rounding if e is large enough. The bound belongs to
these larger weights, and grows with P_A.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from scipy.linalg import cholesky

from fitplug.certify import (
    divide_by_mass,
    scale_weights,
    sum_nuclear_norms,
)
from fitplug.families.base.family import Certifier, Duals
from fitplug.families.base.objective import Objective
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.shape.matrices import MatrixStructure, PersonStructure
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.neighbours import RecordSets
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma, to_positions, upper_norm

S = TypeVar("S", bound=Structure)

_LEAST_WEIGHT = 1e-30
"""Weights below this, relative to the largest, count as 0, so that nothing underflows."""

_MIXED = 1e-6, 1e-4
"""The masses of uniform weights mixed into weights whose Laplacian is nearly singular."""


class BlockCertifier(Certifier[S]):
    """The common part of certificates that sum over blocks."""

    @abstractmethod
    def lower_norm(self, structure: S, weights: FloatArray, row_weights: FloatArray) -> float:
        """Bound the sum of all blocks' nuclear norms from below.

        Args:
            structure: The structure.
            weights: p divided by the budgets, shape (|V|,).
            row_weights: q divided by the targets, shape (rows,).

        Returns:
            The lower bound.
        """

    def count_duals(self, structure: S) -> tuple[int, int]:
        return structure.differences, structure.rows

    def lower_cost(self, structure: S, objective: Objective, scale: float, duals: Duals) -> float:
        p = scale_weights(duals.p, structure.differences)
        q = scale_weights(duals.q, structure.rows)
        row_weights = q / (scale * structure.targets)
        if objective.weight:
            row_weights = row_weights + objective.weight * structure.repeats * q.sum()
        weights = p if objective.budgets is None else p / objective.budgets
        return divide_by_mass(self.lower_norm(structure, weights, row_weights), p, q)


class MatrixCertifier(BlockCertifier[MatrixStructure]):
    """The certificate of `MatrixStructure`."""

    takes_objectives = True

    def lower_norm(
        self, structure: MatrixStructure, weights: FloatArray, row_weights: FloatArray
    ) -> float:
        if not structure.dense:
            # The sum over the blocks of (w_A p sum_t multiple_t q_t / c_t)^1/2.
            Q = structure.incidence.T @ row_weights
            norms = np.sqrt(structure.subsets.profile_multiples * weights[0] * Q)
            return float(norms.sum()) * (1 - gamma(structure.rows + len(Q) + 64))
        return sum_nuclear_norms(
            (
                queries.matrix,
                queries.variance_multiples * row_weights[queries.rows],
                queries.profile_multiple * weights,
            )
            for queries in structure.gather_all_queries()
        )


class OneTierCertifier(BlockCertifier[S]):
    """The common part of certificates for differences of several records."""

    is_refined = False


class MoveCertifier(OneTierCertifier[MoveStructure]):
    """The certificate of `MoveStructure`: p is over moves."""

    def lower_norm(
        self, structure: MoveStructure, weights: FloatArray, row_weights: FloatArray
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
        if structure.named is not None:
            return _lower_named_norm(structure, structure.named, p, row_weights)
        # The bound at mixed weights holds too, and their sum is 1 + share times that of p.
        for share in (0.0, *_MIXED):
            mixed = p + share * (float(p.sum()) / len(p)) * (1 - gamma(len(p) + 4))
            try:
                norm = _lower_pair_norm(structure, mixed, row_weights)
            except np.linalg.LinAlgError:
                continue
            return norm / math.sqrt(1 + share) * (1 - gamma(4))
        return 0.0


class PersonCertifier(OneTierCertifier[PersonStructure]):
    """The certificate of `PersonStructure`, for any weights on its named differences."""

    def lower_norm(
        self, structure: PersonStructure, weights: FloatArray, row_weights: FloatArray
    ) -> float:
        # The norm is computed for the larger weights, and rescaled to the given weights' mass.
        sets, d = structure.sets, structure.cells
        sets.check_form(structure.person)
        norm, cover = 0.0, 0.0
        blocks = structure.subsets.list_attributes(np.arange(len(structure.blocks)))
        for attributes, queries in zip(blocks, structure.gather_all_queries(), strict=True):
            moment, error = sum_moments(sets, attributes, structure.person.sizes, weights, d)
            factor = factor_moment(moment)
            residual = upper_residual(moment, factor)
            # c_A of a record with itself is w_A.
            cover = max(cover, (error + residual) / queries.profile_multiple)
            rows = np.sqrt(queries.variance_multiples * row_weights[queries.rows])
            norm += _lower_product_norm(queries.matrix * rows[:, None], factor)
        mass = float(weights.sum())
        part = mass / (mass + d * cover) * (1 - 2 * gamma(len(weights) + d + 8))
        return max(0.0, norm * math.sqrt(part) * (1 - gamma(len(blocks) + 4)))


def _lower_pair_norm(structure: PairStructure, p: FloatArray, row_weights: FloatArray) -> float:
    """Bound the sum over the blocks of || X V diag(p)^1/2 ||_* from below, for weights p (pairs,).

    Raises:
        LinAlgError: If a moment is nearly singular.
    """
    total = 0.0
    moments, degrees = structure.sum_moments(p)
    terms = structure.pairs.sets * (structure.pairs.nodes + 4 * len(structure.movable) + 4)
    for block, place in zip(structure.noisy_blocks.tolist(), structure.places, strict=True):
        queries = structure.gather_queries(block)
        weights = queries.variance_multiples * row_weights[queries.rows] * queries.profile_multiple
        matrix = queries.matrix[:, structure.pairs.cells]
        rows = np.flatnonzero((weights > 0) & matrix.any(axis=1))
        nodes = np.flatnonzero(matrix[rows].any(axis=0) & (degrees > 0))
        if not len(nodes):
            continue
        X = matrix[np.ix_(rows, nodes)] * np.sqrt(weights[rows])[:, None]
        parts = [
            (here, moments[region][place][np.ix_(at, at)])
            for region, at, here in structure.pairs.split_nodes(nodes)
        ]
        total += _lower_pair_block(X, parts, degrees[nodes], terms)
    return total * (1 - gamma(len(structure.noisy_blocks)))


def _lower_named_norm(
    structure: PairStructure, named: RecordSets, p: FloatArray, row_weights: FloatArray
) -> float:
    """Bound the sum over the blocks of || X P_A^1/2 ||_* from below, for named pairs."""
    named, scale = named.take(p > 0), np.sqrt(p[p > 0])
    ends, total = structure.pairs.find_ends(named), 0.0
    blocks, of_blocks = structure.noisy_blocks.tolist(), structure.multiply_ratios(ends.moves)
    for block, ratios in zip(blocks, of_blocks, strict=True):
        queries = structure.gather_queries(block)
        weights = queries.variance_multiples * row_weights[queries.rows] * queries.profile_multiple
        rows = np.flatnonzero((weights > 0) & queries.matrix.any(axis=1))
        if not len(rows):
            continue
        X = queries.matrix[np.ix_(rows, structure.pairs.cells)] * np.sqrt(weights[rows])[:, None]
        product = X[:, ends.first] * scale
        error = product * product
        second = X[:, ends.second] * scale
        product -= second * ratios
        error += second * second
        left = np.sqrt(1 - ratios * ratios)
        product = np.concatenate([product, (second * left)[:, left > 0]], axis=1)
        # An entry of X carries the roundings of the difference W', and of the weights of up to 14
        # attributes. The product's roundings are at most twice the sizes of both ends.
        size = math.sqrt(float(error.sum())) * (1 + gamma(error.size + 8))
        ones = np.ones(product.shape[0]), np.ones(product.shape[1])
        norm = sum_nuclear_norms([(product, *ones)])
        lost = math.sqrt(min(product.shape)) * 4 * size * gamma(256)
        total += max(0.0, (norm - lost) * (1 - gamma(4)))
    return total * (1 - gamma(len(blocks)))


def _lower_pair_block(
    X: FloatArray, moments: Sequence[tuple[slice, FloatArray]], degrees: FloatArray, terms: int
) -> float:
    """Bound || X P^1/2 ||_* from below, for X (r, n) and P = diag(degrees) - K, |K| <= degrees.

    Args:
        X: The queries.
        moments: The blocks of P as computed, one for each region, with their places in 0..n.
        degrees: The row sums of the weights in K, shape (n,).
        terms: The most terms of the sum that gives an entry of P.

    Raises:
        LinAlgError: If P is nearly singular.
    """
    n = X.shape[1]
    shift = 2.2 * n * gamma(n + 4) + 4 * gamma(terms)
    product, sizes = np.empty_like(X), np.empty_like(X)
    for here, moment in moments:
        A = moment.copy()
        A[np.diag_indices(len(A))] -= degrees[here] * shift
        R = cholesky(A, lower=True)
        product[:, here] = X[:, here] @ R
        sizes[:, here] = np.abs(X[:, here]) @ np.abs(R)
    # An entry of X carries the roundings of the difference W', and of the weights of up to 14
    # attributes, each a product of three rounded numbers.
    error = float(upper_norm(sizes)) * gamma(n + 128)
    norm = sum_nuclear_norms([(product, np.ones(len(X)), np.ones(n))])
    lost = math.sqrt(min(product.shape)) * error * (1 + gamma(8))
    return max(0.0, (norm - lost) * (1 - gamma(4)))


def sum_moments(
    sets: RecordSets,
    attributes: tuple[int, ...],
    sizes: Sequence[float],
    p: FloatArray,
    d: int,
) -> tuple[FloatArray, float]:
    """Sum p_v M_A(v), and bound the 2-norm of the sum's rounding error.

    Args:
        sets: Differences v.
        attributes: A.
        sizes: n_a of all symmetric attributes, as `RecordSets.multiply_labels` takes them.
        p: The weight of each difference, shape (v,).
        d: The number of dense cells.

    Returns:
        The sum, shape (d, d), and the bound.
    """
    v = len(sets)
    weighted = sets.multiply_labels(attributes, sizes) * p[:, None, None]
    at = np.broadcast_to(sets.cells[:, :, None], weighted.shape)
    flat = (at * d + at.transpose(0, 2, 1)).ravel()
    is_given = weighted.ravel() != 0  # padding, whose cell is -1, has a weight of zero
    pairs = to_positions(flat[is_given])
    moment = np.bincount(pairs, weighted.ravel()[is_given], minlength=d * d).reshape(d, d)
    total = np.abs(weighted).sum(axis=(1, 2)).sum()
    terms = v * sets.cells.shape[1] ** 2 + 4 * len(attributes) + 8
    return (moment + moment.T) / 2, float(total) * gamma(terms) * 2


def factor_moment(moment: FloatArray) -> FloatArray:
    """Factor a matrix P (D, D) as F F' except for a residual, and return F."""
    squares, vectors = np.linalg.eigh(moment)
    is_positive = squares > 0
    return np.asarray(vectors[:, is_positive] * np.sqrt(squares[is_positive]))


def upper_residual(moment: FloatArray, F: FloatArray) -> float:
    """Bound the 2-norm of P - F F' from above, for a matrix P (D, D) and any F (D, k)."""
    product, size = F @ F.T, np.abs(F) @ np.abs(F.T)
    error = np.abs(moment - product) + (gamma(F.shape[1] + 2) * size + UNIT_ROUNDOFF * abs(moment))
    return math.sqrt(float((error * error).sum())) * (1 + gamma(error.size + 4))


def _lower_product_norm(N: FloatArray, F: FloatArray) -> float:
    """Bound the nuclear norm of N F from below."""
    if not F.size or not N.any():
        return 0.0
    X = N @ F
    # The rows of N carry two roundings each.
    error = (np.abs(N) @ np.abs(F)) * gamma(F.shape[0] + 6)
    r, n = min(X.shape), max(X.shape)
    singular = np.linalg.svd(X, compute_uv=False)
    # See `sum_nuclear_norms` for the rounding of singular values. |E|_* <= sqrt(r) |E|_F.
    lost = r * (10 * (r + n) + 64) * UNIT_ROUNDOFF * math.sqrt(float((X * X).sum()))
    lost += math.sqrt(r * float((error * error).sum())) * (1 + gamma(error.size + 4))
    return max(0.0, float(singular.sum()) * (1 - gamma(r)) - lost)
