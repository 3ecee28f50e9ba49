"""The problem the solvers see: W = L B reduced to blocks, each row already over its target.

A block is one piece of a block-diagonal Sigma. Today every workload is one dense block; blocks
that symmetry makes (one per subset of the symmetric attributes) share the same p and q and differ
in `weight`, `basis` and `rows` alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr
from scipy.linalg.lapack import dorgqr

from fitplug.basis import cell_classes
from fitplug.errors import WorkloadError
from fitplug.workload import Workload

Array: TypeAlias = npt.NDArray[np.float64]

MAX_ENTRIES = 150_000_000
"""Largest m x d of a dense workload (1.2 GB as float64; the design takes a few times that)."""


@dataclass(frozen=True, eq=False)
class Block:
    """One diagonal block of Sigma, of size k.

    weight: what the block's profile counts in that of a cell.
    basis: B, shape (k, d).
    rows: the queries the block answers a part of, shape (r,).
    representation: L over the square roots of the targets, shape (r, k), so that the row norms
        squared under Sigma are variances over targets.
    """

    weight: float
    basis: Array
    rows: npt.NDArray[np.intp]
    representation: Array


@dataclass(frozen=True, eq=False)
class Problem:
    """min over Sigma of max_i profile_i * max_j (variance_j / target_j); scale free.

    held: weights (m,) that the queries keep whatever q is. With lambda * target it is
        max_j (variance_j / target_j) + lambda * sum_j variance_j that is made least instead.
    """

    cells: int
    queries: int
    blocks: tuple[Block, ...]
    held: Array | float = 0.0

    @property
    def rank(self) -> int:
        return sum(len(block.basis) for block in self.blocks)

    def within(self, budgets: Array) -> Problem:
        """The problem with max_i profile_i / budget_i in place of max_i profile_i."""
        blocks = [replace(b, basis=b.basis / np.sqrt(budgets)) for b in self.blocks]
        return replace(self, blocks=tuple(blocks))


def dense_matrix(workload: Workload) -> Array:
    """W, shape (m, d). Raises WorkloadError if it is too large to hold or asks nothing."""
    entries = workload.query_count * workload.cell_count
    if entries > MAX_ENTRIES:
        raise WorkloadError(
            f"the workload has {workload.query_count} queries over {workload.cell_count} cells of "
            f"{', '.join(workload.attributes)}; a dense design holds up to {MAX_ENTRIES} entries: "
            "use fewer attributes together, or coarser bins"
        )
    W = workload.matrix()
    if not W.any():
        raise WorkloadError("every query is zero; ask at least one with a non-zero coefficient")
    sizes = np.abs(W[W != 0])
    if not 1e-30 <= sizes.min() <= sizes.max() <= 1e30:
        raise WorkloadError("coefficients other than zero must lie between 1e-30 and 1e30 in size")
    return W


def reduce(W: Array, targets: Array) -> tuple[Problem, npt.NDArray[np.intp]]:
    """The problem of a dense W (m, d) with targets c (m,), and k linearly independent rows.

    Where the rank is that of the cells that queries tell apart, they are the basis; where it is
    that of the queries, these are; either makes the solver's work far less. Else the basis is
    orthonormal.
    Raises WorkloadError if the rank cannot be decided in floating point.
    """
    m, d = W.shape
    classes = cell_classes(W)
    queried = np.flatnonzero(classes >= 0)
    _, first, sizes = np.unique(classes[queried], return_index=True, return_counts=True)
    # One column for all cells alike, times the root of their number, leaves W W' what it is.
    multiple = np.sqrt(sizes)
    merged = W.take(queried[first], axis=1) * multiple
    norms = np.sqrt((merged * merged).sum(axis=1))
    unit = merged / np.where(norms > 0, norms, 1.0)[:, None]
    (reflectors, tau), R, pivots = qr(unit.T, mode="raw", pivoting=True, overwrite_a=True)
    rank = _decided_rank(np.abs(np.diag(R)), max(W.shape))
    over = np.sqrt(targets)[:, None]
    if rank == len(first):
        B, L = np.diag(multiple), merged / multiple / over
    elif rank == m:
        B, L = merged / over, np.eye(m)
    else:
        Q, _, _ = dorgqr(reflectors[:, :rank], tau[:rank], lwork=64 * rank)
        # A second factorisation, of the rows over their targets, lines the basis up with targets
        # of very different size: small and large ones then stay apart in every product (graded
        # matrices).
        scaled = merged @ Q / over
        Q2, _, _ = qr(scaled.T, mode="economic", pivoting=True)
        B, L = Q2.T @ Q.T, scaled @ Q2
    basis = (B / multiple).take(classes, axis=1)
    basis[:, classes < 0] = 0.0
    block = Block(
        weight=1.0,
        basis=basis,
        rows=np.arange(m),
        representation=np.ascontiguousarray(L),
    )
    return Problem(d, m, (block,)), np.asarray(pivots[:rank])


def _decided_rank(diagonal: Array, size: int) -> int:
    largest = float(diagonal[0])
    noise = 16 * size * np.finfo(np.float64).eps * largest
    doubtful = (diagonal > noise) & (diagonal < max(1e-9 * largest, 100 * noise))
    if doubtful.any():
        raise WorkloadError(
            "the rank of the workload cannot be decided: some queries are almost, but not "
            "exactly, combinations of others; round their coefficients or leave one out"
        )
    return int((diagonal > noise).sum())
