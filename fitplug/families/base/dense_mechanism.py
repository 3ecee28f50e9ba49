"""The mechanism written out: its covariance, its matrix, and each block's measured table.

A block's answers are a Kronecker product times the table of its attributes, and all answers have
independent noise (docs/theory/integer-mechanism.md, (M1) and (M4)). So each block is a noisy linear
measurement of a marginal, a form that other libraries accept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag, qr

from fitplug.domain import get_shape
from fitplug.errors import WorkloadError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.mechanism import divide_bounds
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.numeric import AnyArray, FloatArray, IntArray

_MAX_ENTRIES = 50_000_000


def build_dense_covariance(
    strategy: IntegerStrategy[Structure], noise_std: float
) -> tuple[FloatArray, IntArray]:
    """Write out the covariance of the noise on a basis of a small strategy.

    For each block, B has linearly independent rows of the product of its attributes' matrices and
    its basis.

    Returns:
        The covariance of the noise on B x, shape (k, k), and the integer basis B, shape (k, d),
        over the cells of the workload's attributes in C order.

    Raises:
        WorkloadError: If d times the number of answers exceeds 5e7.
    """
    structure = strategy.structure
    workload = structure.workload
    if workload.cell_count * strategy.size > _MAX_ENTRIES:
        raise WorkloadError(
            f"a covariance matrix of {strategy.size:,} answers over {workload.cell_count:,} cells "
            "is too large. Use Release.estimate."
        )
    covariances, bases = [], []
    for block, dense_basis, dense_covariance in strategy.list_covariances(noise_std):
        (subset,) = structure.subsets.list_attributes([block])
        estimates: AnyArray = np.ones((1, 1))
        basis: IntArray = np.ones((1, 1), dtype=np.int64)
        for a, n in enumerate(structure.sizes):
            if a not in subset:
                basis = np.kron(basis, np.ones((1, n), dtype=np.int64))
                continue
            matrix = strategy.find_matrix(a, block)
            A = matrix.apply(np.eye(n, dtype=np.int64), 0)
            # Any rows of A beyond its rank are combinations of the others.
            rank = n - 1 if matrix.compute_reference().any() else n
            independent = np.sort(qr(A.T, mode="r", pivoting=True)[1][:rank])
            basis = np.kron(basis, A[independent])
            estimates = np.kron(estimates, A[independent] @ matrix.invert(np.eye(len(A)), 0))
        multiples = strategy.spread_multiples(block)
        if multiples is not None:
            estimates = estimates / multiples.reshape(-1)
        covariance = estimates @ estimates.T
        bases.append(_order_cells(strategy, np.kron(basis, dense_basis)))
        covariances.append(np.kron(covariance, dense_covariance))
    covariance = np.asarray(block_diag(*covariances))
    return divide_bounds(covariance, structure.shares**2), np.concatenate(bases)


def build_dense_strategy(strategy: IntegerStrategy[Structure]) -> FloatArray:
    """Write out A, shape (n, d), over the cells of the workload's attributes in C order.

    A column has the exact answers for one record, counted in shares. Entries above 2^53 are rounded
    to floats.
    """
    structure, matrices = strategy.structure, []
    for block, of_cells in strategy.list_measured():
        (subset,) = structure.subsets.list_attributes([block])
        rows: FloatArray = np.ones((1, 1))
        for a, n in enumerate(structure.sizes):
            factor = np.ones((1, n))
            if a in subset:
                factor = strategy.find_matrix(a, block).apply(np.eye(n, dtype=np.int64), 0)
            rows = np.asarray(np.kron(rows, factor), dtype=np.float64)
        multiples = strategy.spread_multiples(block)
        if multiples is not None:
            rows = rows * multiples.reshape(-1, 1)
        matrices.append(_order_cells(strategy, np.kron(rows, of_cells)))
    return np.concatenate(matrices) * float(structure.shares)


def _order_cells(strategy: IntegerStrategy[Structure], rows: AnyArray) -> AnyArray:
    """Bring rows over the blocks' split and cell attributes into the workload's order."""
    structure = strategy.structure
    workload, names = structure.workload, (*structure.block_attributes, *strategy.cell_attributes)
    shaped = rows.reshape(len(rows), *get_shape(workload.domain, names))
    sorted_cells = shaped.transpose(0, *(1 + names.index(name) for name in workload.attributes))
    return sorted_cells.reshape(len(rows), math.prod(workload.shape))


MOST_ENTRIES = 2**24
"""The most entries of a matrix that is written out: 128 MB of floats."""


@dataclass(frozen=True, eq=False)
class MeasuredTable:
    """The measurement (A_1 (x) ... (x) A_k) x of a block, where x are the counts of a table.

    Attributes:
        attributes: The attributes of the table, whose cells are in C order.
        matrices: A_1 to A_k. All but the last are over one attribute each, in this order, and the
            last, shape (n, cells), is over all other attributes together, or over one cell if there
            are no others.
        answers: The positions of the answers among the strategy's.
        multiples: Factors of the rows of the product, shape (rows,); None for 1. They are None if
            the last matrix has several rows.
    """

    attributes: tuple[str, ...]
    matrices: tuple[FloatArray, ...]
    answers: slice
    multiples: FloatArray | None = None


def list_measured_tables(strategy: IntegerStrategy[Structure]) -> Iterator[MeasuredTable]:
    """List the table that each block measures and how, in the order of the answers.

    Raises:
        WorkloadError: If a matrix has more than 2^24 entries.
    """
    structure, cells = strategy.structure, strategy.cell_attributes
    shape = get_shape(structure.workload.domain, cells)
    _check_size(strategy, math.prod(shape))
    matrices: dict[int, FloatArray] = {}
    start = 0
    for block, of_cells in strategy.list_measured():
        (subset,) = structure.subsets.list_attributes([block])
        written = [_write_out(strategy.find_matrix(a, block), matrices) for a in subset]
        names, last = _drop_constant(cells, shape, of_cells)
        stop = start + math.prod(len(matrix) for matrix in written) * len(last)
        multiples = strategy.spread_multiples(block)
        yield MeasuredTable(
            attributes=structure.name_attributes(block) + names,
            matrices=(*written, last * float(structure.shares)),
            answers=slice(start, stop),
            multiples=None if multiples is None else multiples.astype(np.float64).ravel(),
        )
        start = stop


def _check_size(strategy: IntegerStrategy[Structure], cells: int) -> None:
    """Raise WorkloadError if a matrix, over `cells` cells or one attribute, is too large."""
    squares = [matrix.rows * matrix.n for matrix in strategy.attribute_matrices]
    entries = max([*(width * cells for _, width in strategy.widths), *squares])
    if entries > MOST_ENTRIES:
        raise WorkloadError(
            f"the largest matrix has {entries:,} entries; the limit is {MOST_ENTRIES:,}. Use fewer "
            "attributes per table."
        )


def _write_out(matrix: AttributeMatrix, written: dict[int, FloatArray]) -> FloatArray:
    """Write out the matrix of an attribute that blocks split; identical ones once."""
    if id(matrix) not in written:
        identity: IntArray = np.eye(matrix.n, dtype=np.int64)
        written[id(matrix)] = np.asarray(matrix.apply(identity, 0), dtype=np.float64)
    return written[id(matrix)]


def _drop_constant(
    names: tuple[str, ...], shape: tuple[int, ...], matrix: FloatArray
) -> tuple[tuple[str, ...], FloatArray]:
    """Sum out the attributes along which no row of a matrix (n, cells) varies."""
    rows = matrix.reshape(len(matrix), *shape)
    varies = [(rows != rows.take([0], axis + 1)).any() for axis in range(len(shape))]
    first = tuple(slice(None) if one else 0 for one in varies)
    varying = tuple(name for name, one in zip(names, varies, strict=True) if one)
    return varying, np.ascontiguousarray(rows[(slice(None), *first)]).reshape(len(matrix), -1)
