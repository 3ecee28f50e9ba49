"""The covariance and the matrix of a small mechanism, written out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import block_diag, qr, solve_triangular

from fitplug.errors import WorkloadError
from fitplug.families.base.block_set import BlockSet
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.numeric import AnyArray, FloatArray, IntArray

_MAX_ENTRIES = 50_000_000

BlockCovariance: TypeAlias = tuple[int, IntArray, FloatArray]
"""A block, an integer basis (n, cells) over the cells of the attributes that blocks are over, and
the covariance (n, n) of the noise on it."""


class MeasuredCells(NamedTuple):
    """What blocks measure of the cells that they are over, besides the attributes they split.

    Attributes:
        names: The attributes over whose cells the blocks are.
        blocks: Each block in the order of its answers, and the matrix of what it measures of these
            cells, shape (n, cells).
    """

    names: tuple[str, ...]
    blocks: Iterable[tuple[int, FloatArray]]


def write_out_covariance(
    strategy: IntegerStrategy, names: Sequence[str], parts: Iterable[BlockCovariance]
) -> tuple[FloatArray, IntArray]:
    """Write out the covariance; see `fitplug.families.base.strategies.build_dense_covariance`.

    For each block, B has linearly independent rows of its attributes' matrices times its basis.

    Args:
        strategy: The strategy.
        names: The attributes over whose cells the bases are.
        parts: Each block's basis, and the covariance of the noise on it.
    """
    structure = strategy.structure
    workload = structure.workload
    if workload.cell_count * strategy.size > _MAX_ENTRIES:
        raise WorkloadError(
            f"the covariance of {strategy.size} answers over {workload.cell_count} cells is too "
            "large to write out; Release.combine gives the std of any combination without it"
        )
    covariances, bases = [], []
    for block, own_basis, own_covariance in parts:
        (own,) = structure.subsets.list_attributes([block])
        covariance: AnyArray = np.ones((1, 1))
        basis: IntArray = np.ones((1, 1), dtype=np.int64)
        for a, n in enumerate(structure.sizes):
            if a not in own:
                basis = np.kron(basis, np.ones((1, n), dtype=np.int64))
                continue
            matrix = strategy.find_matrix(a, block)
            A = matrix.apply(np.eye(n, dtype=np.int64), 0)
            # Where A has more rows than it needs, those that are left are combinations.
            rank = n - 1 if matrix.compute_reference().any() else n
            kept = np.sort(qr(A.T, mode="r", pivoting=True)[1][:rank])
            basis = np.kron(basis, A[kept])
            estimate = A[kept] @ matrix.invert(np.eye(len(A)), 0)
            covariance = np.kron(covariance, estimate @ estimate.T)
        bases.append(_order_cells(strategy, names, np.kron(basis, own_basis)))
        covariances.append(np.kron(covariance, own_covariance))
    return np.asarray(block_diag(*covariances)), np.concatenate(bases)


def write_out_matrix(strategy: IntegerStrategy, measured: MeasuredCells) -> FloatArray:
    """Write out A; see `fitplug.families.base.strategies.build_dense_strategy`."""
    structure, found = strategy.structure, []
    for block, of_cells in measured.blocks:
        (own,) = structure.subsets.list_attributes([block])
        rows: FloatArray = np.ones((1, 1))
        for a, n in enumerate(structure.sizes):
            mine = np.ones((1, n))
            if a in own:
                mine = strategy.find_matrix(a, block).apply(np.eye(n, dtype=np.int64), 0)
            rows = np.asarray(np.kron(rows, mine), dtype=np.float64)
        found.append(_order_cells(strategy, measured.names, np.kron(rows, of_cells)))
    return np.concatenate(found)


def build_block_covariance(
    strategy: IntegerStrategy, noise_std: float
) -> tuple[FloatArray, IntArray]:
    """Write out the covariance of block sets; see `write_out_covariance`."""
    parts: list[BlockCovariance] = []
    for block_set in strategy.block_sets:
        for i, block in enumerate(block_set.blocks.tolist()):
            inverse = solve_triangular(
                block_set.M[i].astype(np.float64), np.eye(block_set.basis.size)
            )
            covariance = noise_std**2 * (inverse @ inverse.T)
            parts.append((block, _build_basis(strategy, block_set, i), covariance))
    return write_out_covariance(strategy, strategy.structure.dense, parts)


def list_measured_cells(strategy: IntegerStrategy) -> MeasuredCells:
    """List what the blocks of block sets measure of the dense cells."""
    blocks = (
        (block, block_set.M[i].astype(np.float64) @ _build_basis(strategy, block_set, i))
        for block_set in strategy.block_sets
        for i, block in enumerate(block_set.blocks.tolist())
    )
    return MeasuredCells(strategy.structure.dense, blocks)


def _build_basis(strategy: IntegerStrategy, block_set: BlockSet, i: int) -> IntArray:
    """Build the basis of a block over the dense cells, (n, D)."""
    matrix = strategy.structure.build_block_matrix(int(block_set.blocks[i]))
    return block_set.basis.build_matrix(matrix)


def _order_cells(strategy: IntegerStrategy, given: Sequence[str], rows: AnyArray) -> AnyArray:
    """Bring rows over the blocks' attributes and then given ones into the workload's order."""
    structure = strategy.structure
    workload, names = structure.workload, (*structure.block_attributes, *given)
    shaped = rows.reshape(len(rows), *workload.domain.shape_of(names))
    sorted_cells = shaped.transpose(0, *(1 + names.index(name) for name in workload.attributes))
    return sorted_cells.reshape(len(rows), math.prod(workload.shape))
