"""The problem for the solvers: W = L B, reduced to blocks, with targets of 1.

Each block belongs to one diagonal block of Sigma (see docs/theory/symmetry.md). All blocks share
the weights p and q, and have their own basis and rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import qr
from scipy.linalg.lapack import dorgqr

from fitplug.errors import WorkloadError
from fitplug.numeric import FloatArray, IndexArray, to_positions
from fitplug.workload import classify_cells


@dataclass(frozen=True, eq=False)
class Block:
    """One diagonal block of Sigma, of size k.

    Attributes:
        basis: B, shape (k, d), times the square root of the block's weight in the profile.
        rows: The queries to whose variance the block contributes, shape (r,).
        representation: L divided by the square roots of the targets, shape (r, k), so that v Sigma
            v' of a row v is a variance over its target.
    """

    basis: FloatArray
    rows: IndexArray
    representation: FloatArray


@dataclass(frozen=True, eq=False)
class Problem:
    """The problem of minimising max_i profile_i * max_j (variance_j / target_j) in Sigma.

    Attributes:
        cells: d, the number of cells.
        queries: m, the number of queries.
        blocks: The blocks of Sigma.
        fixed_weights: Weights (m,) that are added to q at every evaluation. With lambda * target,
            the second factor is max_j (variance_j / target_j) + lambda * sum_j variance_j.
    """

    cells: int
    queries: int
    blocks: tuple[Block, ...]
    fixed_weights: FloatArray | float = 0.0

    def divide_profile(self, budgets: FloatArray) -> Problem:
        """Return the problem with max_i profile_i / budget_i, budgets (d,), as its first factor."""
        blocks = tuple(replace(b, basis=b.basis / np.sqrt(budgets)) for b in self.blocks)
        return replace(self, blocks=blocks)


def reduce_matrix(W: FloatArray, targets: FloatArray) -> tuple[Problem, IndexArray]:
    """Reduce a dense W (m, d) to a problem of one block; see `reduce_block`."""
    block, independent = reduce_block(W, targets)
    return Problem(W.shape[1], len(W), (block,)), independent


def reduce_block(W: FloatArray, targets: FloatArray) -> tuple[Block, IndexArray]:
    """Factor a dense W (m, d) with targets c (m,) into a basis and a representation.

    If the rank is the number of different columns, these cells are the basis. If it is the number
    of queries, the queries are the basis. Either saves the solver much work (see `compute_mean`).
    Otherwise the basis is orthonormal.

    Returns:
        The block, and k linearly independent rows of W.

    Raises:
        WorkloadError: If the rank cannot be decided in floating point.
    """
    m = len(W)
    classes = classify_cells(W)
    queried = np.flatnonzero(classes >= 0)
    _, first, sizes = np.unique(classes[queried], return_index=True, return_counts=True)
    # One column for identical cells, times the square root of their number, leaves W W' unchanged.
    multiple = np.sqrt(sizes)
    merged = W.take(queried[first], axis=1) * multiple
    std = np.sqrt(targets)[:, None]
    pivots = _find_single_cells(merged)
    if len(pivots) < len(first):
        norms = np.sqrt((merged * merged).sum(axis=1))
        unit = merged / np.where(norms > 0, norms, 1.0)[:, None]
        (reflectors, tau), R, pivots = qr(unit.T, mode="raw", pivoting=True, overwrite_a=True)
        rank = _decide_rank(np.abs(np.diag(R)), max(W.shape))
    else:
        rank = len(first)
    if rank == len(first):
        B, L = np.diag(multiple), merged / multiple / std
    elif rank == m:
        B, L = merged / std, np.eye(m)
    else:
        Q, _, _ = dorgqr(reflectors[:, :rank], tau[:rank], lwork=64 * rank)
        # A second factorisation, of the rows divided by the square roots of their targets, orders
        # the basis by the size of the targets. Then rows of very different sizes do not mix in
        # products, and small rows keep their accuracy (graded matrices).
        scaled = merged @ Q / std
        Q2, _, _ = qr(scaled.T, mode="economic", pivoting=True)
        B, L = Q2.T @ Q.T, scaled @ Q2
    basis = (B / multiple).take(to_positions(classes), axis=1)
    basis[:, classes < 0] = 0.0
    block = Block(
        basis=basis,
        rows=np.arange(m),
        representation=np.ascontiguousarray(L),
    )
    return block, np.asarray(pivots[:rank])


def _find_single_cells(W: FloatArray) -> IndexArray:
    """Find a row of W (m, d) for each cell that some row asks for alone, shape (cells,)."""
    rows = np.flatnonzero(np.count_nonzero(W, axis=1) == 1)
    _, first = np.unique(np.abs(W[rows]).argmax(axis=1), return_index=True)
    return np.asarray(rows[first])


def _decide_rank(diagonal: FloatArray, size: int) -> int:
    """Return the rank from the diagonal (k,) of a pivoted R, unless rounding may decide it."""
    largest = float(diagonal[0])
    noise = 16 * size * np.finfo(np.float64).eps * largest
    doubtful = (diagonal > noise) & (diagonal < max(1e-9 * largest, 100 * noise))
    if doubtful.any():
        raise WorkloadError(
            "some queries are almost, but not exactly, linear combinations of other queries. Round "
            "the coefficients of these queries."
        )
    return int((diagonal > noise).sum())
