"""Rounding the real strategy of each block to integers, with as many bits as the tolerance needs.

See docs/theory/integer-mechanism.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from fitplug.errors import DesignError
from fitplug.mechanism import (
    MAX_ENTRY,
    Basis,
    BlockSet,
    Strategy,
    build_strategy,
    choose_basis,
    make_contrasts,
    products,
    right_solve,
)
from fitplug.numeric import FloatArray, IndexArray, IntArray
from fitplug.optimizer.claims import LEAST_RECORDS, add_claim_margins
from fitplug.structure import Objective, Structure

_BITS = (20, 24, 28, 32, 36, 40, 44)
"""Binary logarithms of the largest column norm of A, tried until rounding costs little enough."""

_UNASKED_PRECISION = 2.0**-10
"""The size of directions that no query needs, as a part of the weakest cell that they touch.
Measuring them costs 1e-6 of alpha."""

_UNTOUCHED = 1e-12
"""A direction does not touch the cells where its entry is below this part of its largest entry."""


@dataclass(frozen=True, eq=False)
class _RealBlocks:
    """Blocks that share a basis, before rounding.

    Attributes:
        blocks: Their indices, shape (b,).
        basis: The integer basis.
        real: G of each block, upper triangular, shape (b, n, n). The columns of A have norms of at
            most 1.
    """

    blocks: IntArray
    basis: Basis
    real: FloatArray


def round_blocks(
    structure: Structure,
    reals: Sequence[FloatArray],
    independent: Sequence[IndexArray],
    *,
    objective: Objective,
    upper: float,
    loss: float,
) -> Strategy:
    """Round the real strategies of all blocks.

    Args:
        structure: The structure of the workload.
        reals: For each block a strategy with real' real = B' Sigma_A^-1 B; see `Optimum`.
        independent: For each block independent rows of its piece; see `Optimum`.
        objective: The objective of the design.
        upper: The objective of the real strategies at their targets.
        loss: Bits are added until the objective of the integers is at most upper * (1 + loss), or
            no more bits can be had.

    Raises:
        DesignError: If variances cannot be bounded, or integers have no room for the strategy.
    """
    targets = structure.targets
    real_blocks = _choose_bases(structure, reals, independent)
    best: Strategy | None = None
    for bits in _BITS:
        block_sets = _round(real_blocks, 2.0**bits)
        if block_sets is None:
            break
        strategy = build_strategy(structure, block_sets, make_contrasts(structure))
        if best is not None and strategy.max_records < LEAST_RECORDS:
            break
        best = strategy
        # With this noise every target is met.
        noise_std = math.sqrt(1 / float((strategy.unit_variances / targets).max()))
        reached = objective.value(
            strategy.sensitivity / noise_std,
            strategy.profile(noise_std),
            strategy.total_variance(noise_std),
        )
        if reached <= upper * (1 + loss):
            break
    if best is None:
        raise DesignError(
            "the workload's coefficients differ by too many orders of magnitude for an integer "
            "strategy; scale the queries to similar size"
        )
    return add_claim_margins(best)


def _choose_bases(
    structure: Structure, reals: Sequence[FloatArray], independent: Sequence[IndexArray]
) -> list[_RealBlocks]:
    """Choose an integer basis for each block; all scalar blocks share one."""
    every = np.arange(len(structure.blocks))
    precision = products(structure, make_contrasts(structure), every, "precision").astype(
        np.float64
    )
    weights = structure.weights
    if structure.scalar:
        (real,) = reals
        unit = math.sqrt(float((weights * real**2).sum()))
        G = (real / np.sqrt(precision) / unit)[:, None, None]
        return [_RealBlocks(every, Basis("cells", np.zeros(1, dtype=np.int64), np.ones(1)), G)]
    profile = np.sum([w * (r**2).sum(axis=0) for w, r in zip(weights, reals, strict=True)], axis=0)
    unit = math.sqrt(float(profile.max()))
    found = []
    for block, (real, rows) in enumerate(zip(reals, independent, strict=True)):
        matrix = structure.piece(block).matrix
        basis = choose_basis(matrix, rows)
        G = _triangulate(basis, matrix, real) / (math.sqrt(precision[block]) * unit)
        found.append(_RealBlocks(every[block : block + 1], basis, G[None]))
    return found


def _round(real_blocks: Sequence[_RealBlocks], norm: float) -> tuple[BlockSet, ...] | None:
    """Round to columns of about this norm; None if an entry is too large for floats."""
    block_sets = []
    for same in real_blocks:
        rounded = np.triu(np.rint(same.real * norm))
        if not np.abs(rounded).max() < MAX_ENTRY:
            return None
        M = rounded.astype(np.int64)
        # A direction too weak for this precision still has to stay in the row space.
        at = np.arange(M.shape[1])
        M[:, at, at] = np.maximum(M[:, at, at], 1)
        block_sets.append(BlockSet(same.blocks, same.basis, M))
    return tuple(block_sets)


def _triangulate(basis: Basis, W: FloatArray, real: FloatArray) -> FloatArray:
    """Return G (n, n), upper triangular with a positive diagonal, of the real strategy G B."""
    if basis.kind == "rows":
        G = right_solve(real, basis.matrix(W).astype(np.float64))
    else:
        _, first = np.unique(basis.index, return_index=True)
        G = real[:, first[-basis.size :]]
    k, n = G.shape
    if k < n:
        complement = qr(G.T)[0][:, k:].T
        # Even beside the least precise cells that it touches, such a direction must cost little.
        precision = np.sqrt((G * G).sum(axis=0))
        touched = np.abs(complement) > _UNTOUCHED * np.abs(complement).max(axis=1, keepdims=True)
        weakest = np.where(touched, precision, np.inf).min(axis=1, keepdims=True)
        G = np.vstack([G, _UNASKED_PRECISION * weakest * complement])
    R = qr(G, mode="r")[0][:n]
    return np.asarray(R * np.where(np.diag(R) < 0, -1.0, 1.0)[:, None])
