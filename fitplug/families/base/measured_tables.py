"""Measured tables: what each block of a strategy measures of one table of counts.

The answers of a block are a Kronecker product times the table of its attributes, and the noise of
all answers is independent (docs/theory/integer-mechanism.md, (M1) and (M4)). So a block's answers
are a linear measurement of a marginal, as other libraries understand it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.covariance import MeasuredCells
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.numeric import FloatArray, IntArray

MOST_ENTRIES = 2**24
"""The most entries of a matrix that is written out: 128 MB of floats."""


@dataclass(frozen=True, eq=False)
class MeasuredTable:
    """What a block measures: (A_1 (x) ... (x) A_k) x of the counts x of a table.

    Attributes:
        attributes: The attributes of the table, whose cells are in C order.
        matrices: A_1 to A_k. All but the last are over one attribute each, in this order, and the
            last, shape (n, cells), is over all other attributes together, or over one cell if there
            are no others.
        answers: Where the answers are among those of the strategy.
    """

    attributes: tuple[str, ...]
    matrices: tuple[FloatArray, ...]
    answers: slice


def write_out_tables(strategy: IntegerStrategy, measured: MeasuredCells) -> Iterator[MeasuredTable]:
    """Write out what each block measures; see `list_measured_tables`."""
    structure = strategy.structure
    domain = structure.workload.domain
    _check_size(strategy, math.prod(domain.shape_of(measured.names)))
    matrices: dict[int, FloatArray] = {}
    start = 0
    for block, of_cells in measured.blocks:
        (own,) = structure.subsets.list_attributes([block])
        written = [_write_out(strategy.find_matrix(a, block), matrices) for a in own]
        names, last = _drop_constant(measured.names, domain.shape_of(measured.names), of_cells)
        stop = start + math.prod(len(matrix) for matrix in written) * len(last)
        yield MeasuredTable(
            attributes=structure.name_attributes(block) + names,
            matrices=(*written, last * float(structure.shares)),
            answers=slice(start, stop),
        )
        start = stop


def _check_size(strategy: IntegerStrategy, cells: int) -> None:
    """Raise WorkloadError if a matrix has too many entries; `cells` are those of the blocks."""
    structure = strategy.structure
    rows = [own.basis.size for own in strategy.block_sets]
    rows += [own.count_answers(structure) for own in strategy.tree_blocks]
    squares = [matrix.rows * matrix.n for matrix in strategy.attribute_matrices]
    entries = max([*(n * cells for n in rows), *squares])
    if entries > MOST_ENTRIES:
        raise WorkloadError(
            f"the strategy's largest matrix has {entries:,} entries, and up to {MOST_ENTRIES:,} "
            "are written out; release fewer cells of an attribute, or of several together"
        )


def _write_out(matrix: AttributeMatrix, found: dict[int, FloatArray]) -> FloatArray:
    """Write out the matrix of an attribute that blocks split; identical ones once."""
    if id(matrix) not in found:
        identity: IntArray = np.eye(matrix.n, dtype=np.int64)
        found[id(matrix)] = np.asarray(matrix.apply(identity, 0), dtype=np.float64)
    return found[id(matrix)]


def _drop_constant(
    names: tuple[str, ...], shape: tuple[int, ...], matrix: FloatArray
) -> tuple[tuple[str, ...], FloatArray]:
    """Sum out the attributes along which no row of a matrix (n, cells) varies."""
    rows = matrix.reshape(len(matrix), *shape)
    kept = [(rows != rows.take([0], axis + 1)).any() for axis in range(len(shape))]
    first = tuple(slice(None) if one else 0 for one in kept)
    left = tuple(name for name, one in zip(names, kept, strict=True) if one)
    return left, np.ascontiguousarray(rows[(slice(None), *first)]).reshape(len(matrix), -1)
