"""The covariance of a small mechanism, written out."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag, qr, solve_triangular

from fitplug.errors import WorkloadError
from fitplug.strategy import Strategy

Array: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]

_MAX_ENTRIES = 50_000_000


def dense_covariance(strategy: Strategy, noise_std: float) -> tuple[Array, Integers]:
    """The covariance (k, k) of the noise on B x, and the integer basis B (k, d), over the cells of
    the workload's attributes in C order.

    B has, for each block, linearly independent contrasts of its symmetric attributes times the
    basis of its dense ones. Raises WorkloadError if d times the answers measured exceeds 5e7.
    """
    structure = strategy.structure
    domain, workload = structure.workload.domain, structure.workload
    if workload.cell_count * strategy.size > _MAX_ENTRIES:
        raise WorkloadError(
            f"the covariance of {strategy.size} answers over {workload.cell_count} cells is too "
            "large to write out; Release.combine gives the std of any combination without it"
        )
    names = (*structure.split, *structure.dense)
    order = [names.index(name) for name in workload.attributes]
    covariances, bases = [], []
    for family in strategy.families:
        for i, own in enumerate(structure.members(family.blocks)):
            inverse = solve_triangular(family.M[i].astype(np.float64), np.eye(family.basis.size))
            covariance: npt.NDArray[Any] = np.ones((1, 1))
            basis: Integers = np.ones((1, 1), dtype=np.int64)
            for a, (n, split) in enumerate(zip(structure.sizes, strategy.splits, strict=True)):
                if a not in own:
                    basis = np.kron(basis, np.ones((1, n), dtype=np.int64))
                    continue
                A = split.apply(np.eye(n, dtype=np.int64), 0)
                # Where A has more rows than it needs, those that are left are combinations.
                kept = np.sort(qr(A.T, mode="r", pivoting=True)[1][: n - 1])
                basis = np.kron(basis, A[kept])
                estimate = A[kept] @ split.invert(np.eye(len(A)), 0)
                covariance = np.kron(covariance, estimate @ estimate.T)
            dense = (
                np.ones((1, 1), dtype=np.int64)
                if structure.scalar
                else family.basis.matrix(structure.piece(int(family.blocks[i])).matrix)
            )
            basis = np.kron(basis, dense)
            shaped = basis.reshape(len(basis), *domain.shape_of(names))
            ordered = shaped.transpose(0, *(axis + 1 for axis in order))
            bases.append(ordered.reshape(len(basis), math.prod(workload.shape)))
            covariances.append(np.kron(covariance, noise_std**2 * (inverse @ inverse.T)))
    return np.asarray(block_diag(*covariances)), np.concatenate(bases)
