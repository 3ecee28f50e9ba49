"""The certificate for a person with several records: any weights on differences that are named.

For weights p of differences v that a person's records can make, and q of the rows, every mechanism
that meets the targets has by weak duality

    Delta >= sum over blocks A of || diag(multiple q / c)^1/2 N_A F_A ||_*  / sqrt(sum p sum q)

where F_A F_A' = P_A = sum_v p_v M_A(v) (`fitplug.neighbours.persons`). Other differences can
only raise Delta, so it does not matter how many of them there are (docs/theory/persons.md).

A computed F_A is a factor of P_A but for rounding. Single records are differences too: a weight e
on each dense cell adds e w_A I to P_A, which covers the rounding if e is large enough. The bound
is that of these larger weights, and grows with P_A.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fitplug.certify import scale_weights
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.neighbours import PersonRecords, RecordSets
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, gamma, to_positions


def lower_person_cost(
    structure: MatrixStructure,
    person: PersonRecords,
    sets: RecordSets,
    p: FloatArray,
    row_weights: FloatArray,
    row_mass: float,
) -> float:
    """Bound the privacy cost of every mechanism that meets the targets from below.

    Args:
        structure: The structure.
        person: Which records a person may have.
        sets: Differences, any number of them.
        p: A weight >= 0 for each of them, shape (v,).
        row_weights: q over the targets, shape (rows,).
        row_mass: The sum of q, rounded up.

    Returns:
        The bound, rounding included.

    Raises:
        ValueError: If the differences are not those of a person, or their weights are negative, not
            finite or all zero.
    """
    sets.check_form(person)
    p = scale_weights("p", p, len(sets))
    norm, cover = 0.0, 0.0
    attributes = structure.subsets.list_attributes(np.arange(len(structure.blocks)))
    for own, queries in zip(attributes, structure.gather_all_queries(), strict=True):
        moment, error = sum_moments(sets, own, person.sizes, p, len(person.periods))
        factor = factor_moment(moment)
        residual = upper_residual(moment, factor)
        # c_A of a record with itself is w_A.
        cover = max(cover, (error + residual) / queries.profile_multiple)
        rows = np.sqrt(queries.variance_multiples * row_weights[queries.rows])
        norm += _lower_product_norm(queries.matrix * rows[:, None], factor)
    blocks, d = len(attributes), len(person.periods)
    mass = (float(p.sum()) + d * cover) * (1 + 2 * gamma(len(p) + d))
    return max(0.0, norm * (1 - gamma(blocks + 4)) / math.sqrt(mass * row_mass))


def sum_moments(
    sets: RecordSets,
    attributes: tuple[int, ...],
    sizes: Sequence[float],
    p: FloatArray,
    d: int,
) -> tuple[FloatArray, float]:
    """Sum p_v M_A(v) over d dense cells, and bound the rounding error of the sum in the 2-norm.

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
    kept = weighted.ravel() != 0  # padding, whose cell is -1, has a weight of zero
    pairs = to_positions(flat[kept])
    moment = np.bincount(pairs, weighted.ravel()[kept], minlength=d * d).reshape(d, d)
    total = np.abs(weighted).sum(axis=(1, 2)).sum()
    terms = v * sets.cells.shape[1] ** 2 + 4 * len(attributes) + 8
    return (moment + moment.T) / 2, float(total) * gamma(terms) * 2


def factor_moment(moment: FloatArray) -> FloatArray:
    """Factor a matrix P (D, D) as F F' but for a residual, and return F."""
    squares, vectors = np.linalg.eigh(moment)
    kept = squares > 0
    return np.asarray(vectors[:, kept] * np.sqrt(squares[kept]))


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
