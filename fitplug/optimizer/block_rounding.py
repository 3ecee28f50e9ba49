"""Rounding a real strategy to integers, with as many bits as its tolerance needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.linalg import qr

from fitplug.errors import DesignError
from fitplug.mechanism import (
    FEWEST_RECORDS,
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
from fitplug.numeric import FloatArray, IndexArray, IntArray, gamma
from fitplug.structure import Objective, Structure

_BITS = (20, 24, 28, 32, 36, 40, 44)
"""log2 of the largest column norm of A, tried in turn until rounding costs little enough."""

LEAST_RECORDS = 2 * FEWEST_RECORDS
"""No more bits than leave room for so many people; rounding may take half of it."""

_IDLE_PRECISION = 2.0**-10
_BLIND = 1e-12
"""Precision, over that of cells, of directions that no query needs: costs 1e-6 of alpha."""

CLAIM_MARGIN = 1e-12
"""What claimed variances are above, and claimed lower bounds below, the proven ones, relatively."""


def integer_strategy(
    structure: Structure,
    reals: Sequence[FloatArray],
    independent: Sequence[IndexArray],
    *,
    objective: Objective,
    upper: float,
    loss: float,
) -> Strategy:
    """Round real strategies, real' real = B' Sigma_A^-1 B for each block (see `Optimum`).

    upper: the objective of the real ones at their targets. Precision is raised until that of the
    integers is at most upper * (1 + loss), or no more bits can be had.
    Raises DesignError if variances cannot be bounded.
    """
    targets = structure.targets
    drafts = _drafts(structure, reals, independent)
    best: Strategy | None = None
    for bits in _BITS:
        block_sets = _rounded(drafts, 2.0**bits)
        if block_sets is None:
            break
        strategy = build_strategy(structure, block_sets, make_contrasts(structure))
        if best is not None and strategy.max_records < LEAST_RECORDS:
            break
        best = strategy
        # At the noise variance 1 / worst every target is met.
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
    return claimed(best)


def claimed(strategy: Strategy) -> Strategy:
    """The strategy with what a plan claims of it: another machine may round the proven bounds a
    little higher, and claims stay above. Raises DesignError if it holds too few records.
    """
    if strategy.max_records < FEWEST_RECORDS:
        raise DesignError(
            "the workload's coefficients and the sizes of its tables leave 64-bit integers no room "
            f"for {FEWEST_RECORDS:,} records; scale the queries to similar size, or ask tables of "
            "fewer cells"
        )
    height = sum(block_set.basis.size for block_set in strategy.block_sets)
    return replace(
        strategy,
        column_squares=strategy.column_squares * (1 + 3 * gamma(height + 4)),
        unit_variances=strategy.unit_variances * (1 + CLAIM_MARGIN),
    )


def _drafts(
    structure: Structure, reals: Sequence[FloatArray], independent: Sequence[IndexArray]
) -> list[tuple[IntArray, Basis, FloatArray]]:
    """Blocks, basis and real G (b, n, n) of each block_set, with columns of A of norm 1 at most."""
    every = np.arange(len(structure.blocks))
    precision = products(structure, make_contrasts(structure), every, "precision").astype(
        np.float64
    )
    weights = structure.weights
    if structure.scalar:
        (real,) = reals
        unit = math.sqrt(float((weights * real**2).sum()))
        G = (real / np.sqrt(precision) / unit)[:, None, None]
        return [(every, Basis("cells", np.zeros(1, dtype=np.int64), np.ones(1)), G)]
    profile = np.sum([w * (r**2).sum(axis=0) for w, r in zip(weights, reals, strict=True)], axis=0)
    unit = math.sqrt(float(profile.max()))
    drafts = []
    for block, (real, rows) in enumerate(zip(reals, independent, strict=True)):
        matrix = structure.piece(block).matrix
        basis = choose_basis(matrix, rows)
        G = _triangular(basis, matrix, real) / (math.sqrt(precision[block]) * unit)
        drafts.append((every[block : block + 1], basis, G[None]))
    return drafts


def _rounded(
    drafts: list[tuple[IntArray, Basis, FloatArray]], norm: float
) -> tuple[BlockSet, ...] | None:
    """The block_sets with columns of about this norm; None if an entry is too large for floats."""
    block_sets = []
    for blocks, basis, G in drafts:
        rounded = np.triu(np.rint(G * norm))
        if not np.abs(rounded).max() < MAX_ENTRY:
            return None
        M = rounded.astype(np.int64)
        # A direction too weak for this precision still has to stay in the row space.
        at = np.arange(M.shape[1])
        M[:, at, at] = np.maximum(M[:, at, at], 1)
        block_sets.append(BlockSet(blocks, basis, M))
    return tuple(block_sets)


def _triangular(basis: Basis, W: FloatArray, real: FloatArray) -> FloatArray:
    """G (n, n), upper triangular with positive diagonal, of the real strategy G B."""
    if basis.kind == "rows":
        G = right_solve(real, basis.matrix(W).astype(np.float64))
    else:
        _, first = np.unique(basis.index, return_index=True)
        G = real[:, first[-basis.size :]]
    k, n = G.shape
    if k < n:
        complement = qr(G.T)[0][:, k:].T
        # Next to none even beside the cells of least precision that it touches.
        precision = np.sqrt((G * G).sum(axis=0))
        touched = np.abs(complement) > _BLIND * np.abs(complement).max(axis=1, keepdims=True)
        weakest = np.where(touched, precision, np.inf).min(axis=1, keepdims=True)
        G = np.vstack([G, _IDLE_PRECISION * weakest * complement])
    R = qr(G, mode="r")[0][:n]
    return np.asarray(R * np.where(np.diag(R) < 0, -1.0, 1.0)[:, None])
