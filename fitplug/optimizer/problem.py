"""The problem the solvers see: W = L B reduced to blocks, each row already over its target.

A block is one piece of a block-diagonal Sigma (see `structure`). All share the same p and q
and differ in basis and rows alone; those of size 1 over one cell are kept together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import qr
from scipy.linalg.lapack import dorgqr
from scipy.sparse import csr_array

from fitplug.errors import WorkloadError
from fitplug.mechanism import cell_classes
from fitplug.numeric import FloatArray, IndexArray
from fitplug.structure import Structure


@dataclass(frozen=True, eq=False)
class Block:
    """One diagonal block of Sigma, of size k.

    basis: B, shape (k, d), times the root of what the block's profile counts in that of a cell.
    rows: the queries the block answers a part of, shape (r,).
    representation: L over the square roots of the targets, shape (r, k), so that the row norms
        squared under Sigma are variances over targets.
    """

    basis: FloatArray
    rows: IndexArray
    representation: FloatArray


@dataclass(frozen=True, eq=False)
class Scalars:
    """Blocks of size 1 over one cell, all at once: each covariance is a number s.

    weight: what each counts in the profile, weight / s, shape (b,).
    incidence: what s takes of the queries' variances over targets, shape (m, b), sparse;
    transposed: its transpose.
    """

    weight: FloatArray
    incidence: csr_array
    transposed: csr_array


@dataclass(frozen=True, eq=False)
class Problem:
    """min over Sigma of max_i profile_i * max_j (variance_j / target_j); scale free.

    held: weights (m,) that the queries keep whatever q is. With lambda * target it is
        max_j (variance_j / target_j) + lambda * sum_j variance_j that is made least instead.
    """

    cells: int
    queries: int
    blocks: tuple[Block | Scalars, ...]
    held: FloatArray | float = 0.0

    def within(self, budgets: FloatArray) -> Problem:
        """The problem with max_i profile_i / budget_i in place of max_i profile_i."""
        blocks = tuple(
            replace(b, basis=b.basis / np.sqrt(budgets))
            if isinstance(b, Block)
            else replace(b, weight=b.weight / budgets[0])
            for b in self.blocks
        )
        return replace(self, blocks=blocks)


def reduce_all(
    structure: Structure, budgets: FloatArray | None
) -> tuple[Problem, list[IndexArray]]:
    """The problem of a workload, and for each block that is no scalar k independent rows of its
    piece. Raises WorkloadError.
    """
    c = structure.targets
    if structure.scalar:
        incidence = csr_array(structure.incidence / c[:, None])
        scalars = Scalars(structure.weights, incidence, csr_array(incidence.T))
        problem = Problem(1, structure.rows, (scalars,))
        return (problem if budgets is None else problem.within(budgets)), []
    blocks, independent = [], []
    for piece in structure.pieces():
        matrix = piece.matrix if budgets is None else piece.matrix / np.sqrt(budgets)
        block, rows = reduce_block(matrix, c[piece.rows] / piece.shares)
        basis = block.basis * np.sqrt(piece.weight)
        blocks.append(replace(block, basis=basis, rows=piece.rows))
        independent.append(rows)
    return Problem(structure.cells, structure.rows, tuple(blocks)), independent


def reduce(W: FloatArray, targets: FloatArray) -> tuple[Problem, IndexArray]:
    """The problem of a dense W (m, d) alone, and k independent rows; see `reduce_block`."""
    block, independent = reduce_block(W, targets)
    return Problem(W.shape[1], len(W), (block,)), independent


def reduce_block(W: FloatArray, targets: FloatArray) -> tuple[Block, IndexArray]:
    """The block of a dense W (m, d) with targets c (m,), and k linearly independent rows.

    Where the rank is that of the cells that queries tell apart, they are the basis; where it is
    that of the queries, these are; either makes the solver's work far less. Else the basis is
    orthonormal.
    Raises WorkloadError if the rank cannot be decided in floating point.
    """
    m = len(W)
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
        basis=basis,
        rows=np.arange(m),
        representation=np.ascontiguousarray(L),
    )
    return block, np.asarray(pivots[:rank])


def _decided_rank(diagonal: FloatArray, size: int) -> int:
    largest = float(diagonal[0])
    noise = 16 * size * np.finfo(np.float64).eps * largest
    doubtful = (diagonal > noise) & (diagonal < max(1e-9 * largest, 100 * noise))
    if doubtful.any():
        raise WorkloadError(
            "the rank of the workload cannot be decided: some queries are almost, but not "
            "exactly, combinations of others; round their coefficients or leave one out"
        )
    return int((diagonal > noise).sum())
