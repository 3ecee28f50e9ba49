"""Rounding rows to integers that are orthogonal to a vector of integers.

The integer matrices of an attribute's variants share their null vector u. A row k (n,) with k'u = 0
is rounded, and then changed by 1 in as few entries as make its product with the integers of u zero.
These entries are found for all products at once, by a breadth-first search that adds or subtracts
one integer at a time.
"""

from __future__ import annotations

import math

import numpy as np

from fitplug.numeric import FloatArray, IntArray

_LARGEST = 2**10
"""The largest integer of a reference."""


def round_reference(u: FloatArray) -> IntArray:
    """Round u (n,) to integers in nearly its proportions, without a common divisor.

    Integer rows orthogonal to n integers of size s lie about s^(1 / (n - 1)) apart, so with few
    cells the integers must be small.
    """
    size = min(_LARGEST, 4 ** len(u))
    reference = np.rint(u * (size / np.abs(u).max())).astype(np.int64)
    return np.asarray(reference // math.gcd(*reference.tolist()), dtype=np.int64)


class OrthogonalRounding:
    """Rounds rows to integers that are orthogonal to a reference.

    Args:
        reference: Integers without a common divisor, shape (n,).
    """

    def __init__(self, reference: IntArray) -> None:
        self._reference = reference
        self._most = int(np.abs(reference).max())
        self._changes = self._search()

    def _search(self) -> IntArray:
        """Find the smallest change of a row that gives each product, shape (products, n).

        Products range over [-most, most], and each is reached by steps within this range.
        """
        most, size = self._most, 2 * self._most + 1
        changes = np.zeros((size, len(self._reference)), dtype=np.int64)
        # Equal integers lead to equal products.
        integers, places = np.unique(self._reference, return_index=True)
        places, integers = places[integers != 0], integers[integers != 0]
        reached = np.zeros(size, dtype=np.bool_)
        reached[most] = True
        front = np.zeros(1, dtype=np.int64)
        while front.size:
            fresh = []
            for sign in (1, -1):
                to = front[:, None] + sign * integers
                is_new = (np.abs(to) <= most) & ~reached[np.clip(to, -most, most) + most]
                row, column = np.nonzero(is_new)
                product, first = np.unique(to[row, column], return_index=True)
                changes[product + most] = changes[front[row[first]] + most]
                changes[product + most, places[column[first]]] += sign
                reached[product + most] = True
                fresh.append(product)
            front = np.concatenate(fresh)
        return changes

    def round(self, rows: FloatArray) -> IntArray:
        """Round rows (r, n) that are orthogonal to the reference."""
        rounded: IntArray = np.rint(rows).astype(np.int64)
        for integers, row in zip(rounded, rows, strict=True):
            self._correct(integers, row)
        return rounded

    def _correct(self, rounded: IntArray, row: FloatArray) -> None:
        """Make a rounded row orthogonal to the reference, in place."""
        product = int(rounded @ self._reference)
        # Try rounding entries the other way, the ones closest to a half first.
        other = np.where(row > rounded, 1, -1)
        change = other * self._reference
        for i in np.argsort(-np.abs(row - rounded)).tolist():
            if abs(product) <= self._most:
                break
            if abs(product + int(change[i])) < abs(product):
                rounded[i] += other[i]
                product += int(change[i])
        while product:
            nearest = min(max(product, -self._most), self._most)
            rounded -= self._changes[nearest + self._most]
            product -= nearest
