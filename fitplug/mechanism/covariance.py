"""The covariance of a small mechanism, written out."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import block_diag, qr, solve_triangular

from fitplug.errors import WorkloadError
from fitplug.mechanism.strategy import BlockSet, Strategy
from fitplug.numeric import AnyArray, FloatArray, IntArray

_MAX_ENTRIES = 50_000_000


def dense_covariance(strategy: Strategy, noise_std: float) -> tuple[FloatArray, IntArray]:
    """The covariance (k, k) of the noise on B x, and the integer basis B (k, d), over the cells of
    the workload's attributes in C order.

    B has, for each block, linearly independent contrasts of its symmetric attributes times the
    basis of its dense ones. Raises WorkloadError if d times the answers measured exceeds 5e7.
    """
    structure = strategy.structure
    workload = structure.workload
    if workload.cell_count * strategy.size > _MAX_ENTRIES:
        raise WorkloadError(
            f"the covariance of {strategy.size} answers over {workload.cell_count} cells is too "
            "large to write out; Release.combine gives the std of any combination without it"
        )
    covariances, bases = [], []
    for block_set in strategy.block_sets:
        for i, own in enumerate(structure.members(block_set.blocks)):
            inverse = solve_triangular(
                block_set.M[i].astype(np.float64), np.eye(block_set.basis.size)
            )
            covariance: AnyArray = np.ones((1, 1))
            basis: IntArray = np.ones((1, 1), dtype=np.int64)
            for a, (n, split) in enumerate(
                zip(structure.sizes, strategy.attribute_matrices, strict=True)
            ):
                if a not in own:
                    basis = np.kron(basis, np.ones((1, n), dtype=np.int64))
                    continue
                A = split.apply(np.eye(n, dtype=np.int64), 0)
                # Where A has more rows than it needs, those that are left are combinations.
                kept = np.sort(qr(A.T, mode="r", pivoting=True)[1][: n - 1])
                basis = np.kron(basis, A[kept])
                estimate = A[kept] @ split.invert(np.eye(len(A)), 0)
                covariance = np.kron(covariance, estimate @ estimate.T)
            basis = np.kron(basis, _dense_basis(strategy, block_set, i))
            bases.append(_over_cells(strategy, basis))
            covariances.append(np.kron(covariance, noise_std**2 * (inverse @ inverse.T)))
    return np.asarray(block_diag(*covariances)), np.concatenate(bases)


def dense_strategy(strategy: Strategy) -> FloatArray:
    """A (n, d), whose answers A x get the noise, over the cells of the workload's attributes in C
    order; as floats, so that entries above 2^53 are rounded.
    """
    structure, parts = strategy.structure, []
    for block_set in strategy.block_sets:
        for i, own in enumerate(structure.members(block_set.blocks)):
            rows: FloatArray = np.ones((1, 1))
            for a, (n, split) in enumerate(
                zip(structure.sizes, strategy.attribute_matrices, strict=True)
            ):
                mine = split.apply(np.eye(n, dtype=np.int64), 0) if a in own else np.ones((1, n))
                rows = np.asarray(np.kron(rows, mine), dtype=np.float64)
            M = block_set.M[i].astype(np.float64)
            measured = np.kron(rows, M @ _dense_basis(strategy, block_set, i))
            parts.append(_over_cells(strategy, measured))
    return np.concatenate(parts)


def _dense_basis(strategy: Strategy, block_set: BlockSet, i: int) -> IntArray:
    """The basis of a block over the dense cells, (n, D)."""
    structure = strategy.structure
    if structure.scalar:
        return np.ones((1, 1), dtype=np.int64)
    return block_set.basis.matrix(structure.piece(int(block_set.blocks[i])).matrix)


def _over_cells(strategy: Strategy, rows: AnyArray) -> AnyArray:
    """Rows over the split attributes and then the dense ones, over the workload's in its order."""
    structure = strategy.structure
    workload, names = structure.workload, (*structure.split, *structure.dense)
    shaped = rows.reshape(len(rows), *workload.domain.shape_of(names))
    ordered = shaped.transpose(0, *(1 + names.index(name) for name in workload.attributes))
    return ordered.reshape(len(rows), math.prod(workload.shape))
