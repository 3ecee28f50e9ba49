"""Strategies of chains with bins: a matrix over each block's classes of cells.

Each block counts its classes, and measures them with nested triangles of its own. A block of few
classes has one triangle. E estimates the count of a class, and is read at its first cell: queries
of the block do not look inside of classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fitplug.errors import BAD_INTEGERS, PlanError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.structure import Structure
from fitplug.families.chain.shape.bins import BinnedChainStructure
from fitplug.families.chain.strategy.chains import (
    ChainStrategy,
    NestedChain,
    place_chain,
)
from fitplug.numeric import AnyArray, FloatArray, IntArray, frozen_property, gamma, upper_norm
from fitplug.workload import Factor

_CHUNK = 2**22
"""The most coefficients of ranges whose variances are proven at once."""


@dataclass(frozen=True, eq=False)
class BinnedChain(AttributeMatrix):
    """The integer matrices of a chain over classes of cells; the methods use those of `block`.

    Attributes:
        cells: n, shape (1,), int64.
        starts_of_blocks: The first cell of each class of each block, shapes (m,), int64.
        nested: The nested triangles of each block over its classes.
        block: The block that the methods use.
    """

    cells: IntArray
    starts_of_blocks: tuple[IntArray, ...]
    nested: tuple[NestedChain, ...]
    block: int = 0

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> BinnedChain:
        """Read the matrices from the arrays of a plan file.

        Raises:
            KeyError: If one is missing.
        """
        names = "cells", "triangles", "sums", "weights", "grounded"
        blocks = range(sum(name.startswith("starts") for name in arrays))
        starts = tuple(arrays[f"starts{i}"] for i in blocks)
        nested = []
        for i in blocks:
            of_cells, triangles, sums, weights, grounded = (arrays[f"{name}{i}"] for name in names)
            nested.append(NestedChain(of_cells, triangles, sums, weights, grounded))
        return cls(arrays["cells"], starts, tuple(nested))

    @property
    def arrays_in_file(self) -> Mapping[str, IntArray]:
        arrays = {"cells": self.cells}
        for i, (starts, A) in enumerate(zip(self.starts_of_blocks, self.nested, strict=True)):
            arrays[f"starts{i}"] = starts
            arrays.update({f"{name}{i}": array for name, array in A.arrays_in_file.items()})
        return arrays

    @cached_property
    def _views(self) -> tuple[BinnedChain, ...]:
        """This object for each block."""
        return tuple(replace(self, block=block) for block in range(len(self.nested)))

    def of_block(self, block: int) -> BinnedChain:
        return self._views[block]

    @property
    def starts(self) -> IntArray:
        """The first cell of each class of the block, shape (m,)."""
        return self.starts_of_blocks[self.block]

    @property
    def inner(self) -> NestedChain:
        """The nested triangles of the block over its classes."""
        return self.nested[self.block]

    def has_form(self, n: int) -> bool:
        fits = self.cells.dtype == np.int64 and self.cells.shape == (1,) and self.n == n
        return fits and all(
            starts.dtype == np.int64
            and starts.ndim == 1
            and A.has_form(len(starts))
            and len(A.triangles) == 1
            and not A.grounded.any()
            for starts, A in zip(self.starts_of_blocks, self.nested, strict=True)
        )

    @property
    def n(self) -> int:
        return int(self.cells[0])

    @property
    def rows(self) -> int:
        return self.inner.n

    @frozen_property
    def _sizes(self) -> IntArray:
        """The number of cells of each class."""
        return np.diff(self.starts, append=self.n)

    @property
    def column_square(self) -> int:
        return self.inner.column_square

    @frozen_property
    def column_squares(self) -> tuple[FloatArray, FloatArray]:
        """The squared norms of all columns, and bounds on their errors, shape (n,) each."""
        squares, errors = self.inner.column_squares
        return np.repeat(squares, self._sizes), np.repeat(errors, self._sizes)

    def square_column(self, i: int) -> int:
        """Compute the exact squared norm of a cell's column."""
        at = int(self._find_classes(np.array([i]))[0])
        if at not in self._squares:
            self._squares[at] = self.inner.square_column(at)
        return self._squares[at]

    @cached_property
    def _squares(self) -> dict[int, int]:
        """The squares of columns of classes that were computed."""
        return {}

    @property
    def largest_entry(self) -> int:
        return self.inner.largest_entry

    @cached_property
    def growth(self) -> int:
        return self.inner.growth * int(self._sizes.max())

    def apply(self, values: AnyArray, axis: int) -> AnyArray:
        return self.inner.apply(np.add.reduceat(values, self.starts, axis=axis), axis)

    def invert(self, values: AnyArray, axis: int) -> FloatArray:
        estimates = np.moveaxis(self.inner.invert(values, axis), axis, 0)
        cells = np.zeros((self.n, *estimates.shape[1:]))
        cells[self.starts] = estimates
        return np.moveaxis(cells, 0, axis)

    def adjoint(self, values: FloatArray, axis: int) -> FloatArray:
        return self.inner.adjoint(np.take(values, self.starts, axis), axis)

    def upper_adjoint_error(self, values: FloatArray, axis: int) -> float:
        return self.inner.upper_adjoint_error(np.take(values, self.starts, axis), axis)

    def compute_reference(self) -> FloatArray:
        return np.zeros(self.n)

    def upper_variance_parts(self, factor: Factor) -> FloatArray:
        """Bound mu^2 = 0 and gamma of ranges of classes from above, (rows, 2)."""
        first, last = (self._find_classes(cells) for cells in factor.intervals().T)
        gammas = self.upper_class_variances(first, last)
        return np.stack([np.zeros(len(gammas)), gammas], axis=1)

    def upper_class_variances(self, first: IntArray, last: IntArray) -> FloatArray:
        """Bound |w E|^2 from above for ranges w of classes, shape (r,)."""
        # A prefix or a class has its bound from the recursion; a range, from its weights.
        asked = Factor("", "ranges", self.rows, np.stack([first, last], axis=1))
        variances = self.inner.upper_variance_parts(asked)[:, 1]
        ranges = np.flatnonzero((first > 0) & (first < last))
        step, one = max(1, _CHUNK // self.rows), np.arange(self.rows)[:, None]
        for at in range(0, len(ranges), step):
            mine = ranges[at : at + step]
            w = ((first[mine] <= one) & (one <= last[mine])).astype(np.float64)
            stds = upper_norm(self.inner.adjoint(w, 0), axis=0)
            stds = stds + self.inner.upper_adjoint_error(w, 0)
            variances[mine] = stds * stds * (1 + gamma(8))
        return np.asarray(variances)

    def _find_classes(self, cells: IntArray) -> IntArray:
        """Find the classes of cells."""
        return np.searchsorted(self.starts, cells, side="right") - 1


class BinnedChainStrategy(ChainStrategy):
    """The strategies of `BinnedChainStructure`."""

    structure: BinnedChainStructure

    @classmethod
    def read_attribute_matrices(
        cls, structure: Structure, arrays: Sequence[Mapping[str, AnyArray]]
    ) -> tuple[AttributeMatrix, ...]:
        assert isinstance(structure, BinnedChainStructure)
        return place_chain(structure, BinnedChain.from_arrays(arrays[structure.chain_position]))

    def check_form(self) -> None:
        super().check_form()
        asked = [one.starts.tolist() for one in self.structure.class_queries]
        matrix = self.chain_matrix
        assert isinstance(matrix, BinnedChain)
        if [starts.tolist() for starts in matrix.starts_of_blocks] != asked:
            raise PlanError(BAD_INTEGERS)

    @cached_property
    def size(self) -> int:
        return sum(math.prod(shape) for _, _, shape, _ in self.list_blocks())
