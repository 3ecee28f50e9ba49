"""The covariance of a small mechanism, written out."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import block_diag, qr, solve_triangular

from fitplug.errors import WorkloadError
from fitplug.mechanism.block_set import BlockSet
from fitplug.mechanism.strategy import Strategy
from fitplug.numeric import AnyArray, FloatArray, IntArray

_MAX_ENTRIES = 50_000_000


def build_block_covariance(strategy: Strategy, noise_std: float) -> tuple[FloatArray, IntArray]:
    """Write out the covariance; see `fitplug.mechanism.dispatch.build_dense_covariance`.

    For each block, B has linearly independent rows of its attributes' matrices times its basis over
    the dense cells.
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
        for i, own in enumerate(structure.subsets.list_attributes(block_set.blocks)):
            inverse = solve_triangular(
                block_set.M[i].astype(np.float64), np.eye(block_set.basis.size)
            )
            covariance: AnyArray = np.ones((1, 1))
            basis: IntArray = np.ones((1, 1), dtype=np.int64)
            for a, (n, matrix) in enumerate(
                zip(structure.sizes, strategy.attribute_matrices, strict=True)
            ):
                if a not in own:
                    basis = np.kron(basis, np.ones((1, n), dtype=np.int64))
                    continue
                A = matrix.apply(np.eye(n, dtype=np.int64), 0)
                # Where A has more rows than it needs, those that are left are combinations.
                rank = n - 1 if matrix.compute_reference().any() else n
                kept = np.sort(qr(A.T, mode="r", pivoting=True)[1][:rank])
                basis = np.kron(basis, A[kept])
                estimate = A[kept] @ matrix.invert(np.eye(len(A)), 0)
                covariance = np.kron(covariance, estimate @ estimate.T)
            basis = np.kron(basis, _build_basis(strategy, block_set, i))
            bases.append(_order_cells(strategy, basis))
            covariances.append(np.kron(covariance, noise_std**2 * (inverse @ inverse.T)))
    return np.asarray(block_diag(*covariances)), np.concatenate(bases)


def build_block_strategy(strategy: Strategy) -> FloatArray:
    """Write out A; see `fitplug.mechanism.dispatch.build_dense_strategy`."""
    structure, parts = strategy.structure, []
    for block_set in strategy.block_sets:
        for i, own in enumerate(structure.subsets.list_attributes(block_set.blocks)):
            rows: FloatArray = np.ones((1, 1))
            for a, (n, matrix) in enumerate(
                zip(structure.sizes, strategy.attribute_matrices, strict=True)
            ):
                mine = matrix.apply(np.eye(n, dtype=np.int64), 0) if a in own else np.ones((1, n))
                rows = np.asarray(np.kron(rows, mine), dtype=np.float64)
            M = block_set.M[i].astype(np.float64)
            measured = np.kron(rows, M @ _build_basis(strategy, block_set, i))
            parts.append(_order_cells(strategy, measured))
    return np.concatenate(parts)


def _build_basis(strategy: Strategy, block_set: BlockSet, i: int) -> IntArray:
    """Build the basis of a block over the dense cells, (n, D)."""
    matrix = strategy.structure.build_block_matrix(int(block_set.blocks[i]))
    return block_set.basis.build_matrix(matrix)


def _order_cells(strategy: Strategy, rows: AnyArray) -> AnyArray:
    """Bring rows over the blocks' attributes and then the dense ones into the workload's order."""
    structure = strategy.structure
    workload, names = structure.workload, (*structure.block_attributes, *structure.dense)
    shaped = rows.reshape(len(rows), *workload.domain.shape_of(names))
    sorted_cells = shaped.transpose(0, *(1 + names.index(name) for name in workload.attributes))
    return sorted_cells.reshape(len(rows), math.prod(workload.shape))
