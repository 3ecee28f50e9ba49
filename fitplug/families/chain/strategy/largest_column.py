"""The largest square of a cell's columns in all blocks of a chain, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fitplug.numeric import FloatArray, gamma


class Columns(Protocol):
    """A matrix whose columns have the squares that `find_largest_column` compares."""

    @property
    def n(self) -> int:
        """The number of columns."""

    @property
    def column_squares(self) -> tuple[FloatArray, FloatArray]:
        """The squared norms of all columns, and bounds on their errors, shape (n,) each."""

    def square_column(self, i: int) -> int:
        """Compute the exact squared norm of a cell's column."""


def find_largest_column(chains: Sequence[Columns], multiples: Sequence[int]) -> int:
    """Find the largest sum over matrices of the squared norms of a cell's columns, exactly.

    Floats pick the columns that may attain the largest square, and integers decide.

    Args:
        chains: The matrices.
        multiples: The factor of each matrix's squares.
    """
    near, errors = sum_squares(chains, multiples)
    candidates = np.flatnonzero(near + errors >= (near - errors).max()).tolist()
    return max(sum_square(chains, multiples, i) for i in candidates)


def sum_squares(
    chains: Sequence[Columns], multiples: Sequence[int]
) -> tuple[FloatArray, FloatArray]:
    """Sum the squared norms of all columns over matrices, with bounds on the errors, (n,) each."""
    near, errors = np.zeros(chains[0].n), np.zeros(chains[0].n)
    for chain, multiple in zip(chains, multiples, strict=True):
        squares, of_squares = chain.column_squares
        near += float(multiple) * squares
        errors += float(multiple) * of_squares
    errors += gamma(len(chains) + 8) * (near + errors)
    return near, errors


def sum_square(chains: Sequence[Columns], multiples: Sequence[int], i: int) -> int:
    """Sum the squared norms of a cell's columns over matrices, exactly."""
    return sum(
        multiple * chain.square_column(i)
        for chain, multiple in zip(chains, multiples, strict=True)
        if multiple
    )
