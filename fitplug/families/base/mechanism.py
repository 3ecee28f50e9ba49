"""Mechanisms: the limits and the cost of their integers, and the noise of combinations.

Exact integers may be of any size, and are exchanged packed into arrays of int64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from fitplug.numeric import (
    UNIT_ROUNDOFF,
    AnyArray,
    FloatArray,
    IntArray,
    ceil_float,
    find_largest_entry,
)

MeasuredBlock: TypeAlias = tuple[int, FloatArray]
"""A block, and the matrix (n, cells) with which it measures the cells of `cell_attributes`. Blocks
are in the order of their answers."""

BlockCovariance: TypeAlias = tuple[int, IntArray, FloatArray]
"""A block, an integer basis (n, cells) over the cells of `cell_attributes`, and the covariance
(n, n) of the noise on it."""


@dataclass(frozen=True)
class Mechanism:
    """One part of a plan's mechanism: integer answers whose noise has the same sigma.

        fp.design(workload, unit=fp.AddRemove()).mechanisms()[0].sigma

    Attributes:
        name: The attributes that the answers of this part depend on, or "all answers".
        kind: The distribution of the noise.
        sensitivity: The L2 sensitivity in the plan's unit of privacy, rounded up.
        sigma: The parameter of the noise: each answer gets an independent draw of the discrete
            Gaussian N_Z(0, sigma^2).
        dimension: The number of answers.
    """

    name: str
    kind: Literal["discrete Gaussian"]
    sensitivity: float
    sigma: float
    dimension: int

    @property
    def rho(self) -> float:
        """The rho of zCDP of this part, rounded up."""
        return ceil_float((Fraction(self.sensitivity) / Fraction(self.sigma)) ** 2 / 2)


class StrategyCost(NamedTuple):
    """The privacy cost of a strategy's integers.

    Attributes:
        sensitivity_squared: max_v |A v|^2 over the differences v between neighbours, or an upper
            bound on it; `IntegerStrategy.upper_overstatement` bounds how far above it may be.
        column_squares: Upper bounds on the largest |A v|^2 of each cell, shape (profile_size,).
        max_records: The largest number of records for which no answer is clamped.
    """

    sensitivity_squared: int
    column_squares: FloatArray
    max_records: int

    def multiply(self, times: int) -> StrategyCost:
        """Return the cost of differences multiplied by `times`."""
        if times == 1:
            return self
        squares = self.column_squares * float(times**2) * (1 + 4 * UNIT_ROUNDOFF)
        return StrategyCost(self.sensitivity_squared * times**2, squares, self.max_records)

    def count_in_shares(self, shares: int) -> StrategyCost:
        """Return the cost of integers that count shares of records; see `Structure.shares`.

        A record is the number of shares times a convex combination of records in one cell each. The
        norm is convex, so no record costs more than one at the bounds of its measures.
        """
        return self.multiply(shares)._replace(max_records=self.max_records // shares)


class Product(NamedTuple):
    """Coefficients of a group's answers that are a product along the group's axes.

    Attributes:
        weight: A factor of the whole product.
        factors: Along each axis of the group, the positions of the rows and their coefficients.
    """

    weight: float
    factors: tuple[tuple[IntArray, FloatArray], ...]


Products: TypeAlias = Mapping[str, Sequence[Product]]
"""A combination: by group, products whose sum gives the coefficients."""


class AnswerWeights(NamedTuple):
    """The weights of some answers in k combinations.

    Attributes:
        squares: Upper bounds on the squares of the norms of the exact weights, shape (k,).
        compute: Computes the weights, shape (k, answers).
    """

    squares: FloatArray
    compute: Callable[[], FloatArray]


BlockWeights: TypeAlias = tuple[list[int], Iterable[AnswerWeights]]
"""The indices of the combinations that use a block, and the weights of its answers in parts."""


@dataclass(frozen=True)
class Combined:
    """Linear combinations of estimates, at noise variance 1. All answers have independent noise.

    Attributes:
        count: k, the number of combinations.
        weigh: Yields the weights of each block's answers, computed as they are read.
        shares: The number of shares in which answers count a record.
    """

    count: int
    weigh: Callable[[], Iterable[BlockWeights]]
    shares: int

    def upper_stds(self) -> FloatArray:
        """Bound the standard deviations from above, shape (k,)."""
        squares = np.zeros(self.count)
        for users, parts in self.weigh():
            for part in parts:
                squares[users] += part.squares
        return divide_bounds(_take_roots(squares), self.shares)

    def compute_covariance(self) -> FloatArray:
        """Compute the covariance.

        Returns:
            A positive semidefinite matrix, shape (k, k), with upper bounds on the variances on its
            diagonal.
        """
        covariance, squares = np.zeros((self.count, self.count)), np.zeros(self.count)
        for users, parts in self.weigh():
            for part in parts:
                weights = part.compute()
                covariance[np.ix_(users, users)] += weights @ weights.T
                squares[users] += part.squares
        at = np.diag_indices_from(covariance)
        covariance[at] = np.maximum(covariance[at], _take_roots(squares) ** 2)
        return divide_bounds(covariance, self.shares**2)


def upper_excess(stated: int, attained: int) -> float:
    """Bound the relative excess of a stated sensitivity over one that is attained.

    Args:
        stated: The square of the stated sensitivity.
        attained: The square of the attained sensitivity, at most as large.
    """
    if attained == stated:
        return 0.0
    if not attained:
        return math.inf
    ratio = ceil_float(Fraction(stated, attained))
    return (math.sqrt(ratio) - 1) * (1 + 4 * UNIT_ROUNDOFF) + 2 * UNIT_ROUNDOFF


def divide_bounds(bounds: FloatArray, number: int) -> FloatArray:
    """Divide upper bounds by an integer, rounded up."""
    return bounds if number == 1 else bounds / float(number) * (1 + 4 * UNIT_ROUNDOFF)


def _take_roots(squares: FloatArray) -> FloatArray:
    """Take the square roots of sums of squares, rounded up."""
    return np.asarray(np.sqrt(squares) * (1 + 1e-12))


MAX_ENTRY = 2**52
"""Bound on the entries of a plan's integer matrices, which floats below it hold exactly."""

LEAST_NOISE, LARGEST_NOISE = 1.0, 2.0**55
"""The least and the largest noise std of a plan. With less, answers are next to exact; with more,
an answer 128 standard deviations away might not fit into 64 bits."""

SATURATION = 2**62
"""Strategies clamp their exact answers here; see `IntegerStrategy.max_records`. The clamp costs no
privacy, and nothing else depends on whether an exact answer reaches it."""

FEWEST_RECORDS = 10**9 // 2
"""A plan is refused if its integers have room for fewer records, whichever cells they are in."""


_BITS = 62
"""The bits of each digit except the highest, which has a sign."""


def pack_integers(arrays: Sequence[AnyArray]) -> IntArray:
    """Pack arrays of int64 or Python integers, one after another.

    Returns:
        int64, shape (1 + digits * numbers,): the number of digits, then the lowest digits of all
        numbers, the next digits of all numbers, and so on. Numbers that fit into 64 bits have one
        digit.
    """
    flat = [array.ravel() for array in arrays]
    if all(array.dtype != object for array in flat):
        return np.concatenate([[1], *flat], dtype=np.int64)
    rest = np.concatenate([array.astype(object) for array in flat])
    digits: list[AnyArray] = []
    while rest.size and not _fits(rest):
        digits.append(rest & (2**_BITS - 1))
        rest = rest >> _BITS
    digits.append(rest)
    return np.concatenate([[len(digits)], *(digit.astype(np.int64) for digit in digits)])


def unpack_integers(packed: IntArray) -> AnyArray:
    """Unpack what `pack_integers` returned: int64 or Python integers, shape (numbers,)."""
    digits = packed[1:].reshape(int(packed[0]), -1)
    if len(digits) == 1:
        return np.asarray(digits[0])
    integers = digits[-1].astype(object)
    for digit in digits[-2::-1]:
        integers = (integers << _BITS) + digit.astype(object)
    return np.asarray(integers)


class ExactTotals:
    """Totals of integers added piece by piece, without overflow.

    Args:
        shapes: The shape of each total.

    Attributes:
        totals: int64 or, if that might overflow, Python integers.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self.totals: list[AnyArray] = [np.zeros(shape, dtype=np.int64) for shape in shapes]
        self._bound, self._is_int64 = 0, True

    def make_room(self, values: AnyArray) -> None:
        """Make room for adding each of some values to at most one entry, once."""
        if not self._is_int64 or not values.size:
            return
        self._bound += find_largest_entry(values)
        if values.dtype == object or self._bound >= 2**63:
            self.totals = [total.astype(object) for total in self.totals]
            self._is_int64 = False


def may_be_clamped(noisy: IntArray, noise_std: float) -> bool:
    """Tell whether an exact answer may have been clamped, so that estimates are biased.

    It may have been if a noisy answer is beyond the clamp or within 64 standard deviations of it.
    The result depends on noisy answers alone, so it may be published. With half of `max_records`
    and a standard deviation of at most 2^54, the result is True with probability at most 10^-880.
    """
    return bool(noisy.size) and find_largest_entry(noisy) >= SATURATION - 64 * noise_std


def _fits(values: AnyArray) -> bool:
    """Tell whether Python integers fit into 64 bits."""
    return int(values.max()) < 2**63 and int(values.min()) >= -(2**63)
