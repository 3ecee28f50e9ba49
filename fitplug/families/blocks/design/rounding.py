"""Rounding: each block's real strategy to integers, with as many bits as the tolerance needs.

See docs/theory/integer-mechanism.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from fitplug.errors import DesignError
from fitplug.families.base.basis import Basis, choose_basis, solve_from_right
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.contrasts import compute_precisions, make_contrasts
from fitplug.families.base.family import (
    LEAST_RECORDS,
    add_claim_margins,
    build_strategy,
    choose_bits,
    evaluate_at_targets,
)
from fitplug.families.base.mechanism import MAX_ENTRY
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.strategy.causality import choose_causal_basis
from fitplug.numeric import FloatArray, IndexArray, IntArray

_BITS = (20, 24, 28, 32, 36, 40, 44)
"""Binary logarithms of A's largest column norm, tried until rounding costs little enough."""

_FACTORS, _MOST_TRIED = tuple((1 + np.arange(16) / 16).tolist()), 100_000
"""If the last precision is not enough, its norm times each of these factors is tried, for at most
this many integers. Integers as small as 1 and 2 fit some norms far better than others."""

_UNASKED_PRECISION = 2.0**-10
"""The size of directions that no query needs, relative to the weakest cell that they touch.
Measuring them adds 1e-6 to alpha, relatively. Integers of few bits need more; see `triangulate`."""

_UNTOUCHED = 1e-12
"""A direction touches no cell where its entry is below this share of its largest entry."""


@dataclass(frozen=True, eq=False)
class RealBlocks:
    """Blocks that share a basis, before rounding.

    Attributes:
        blocks: The blocks' indices, shape (b,).
        basis: The integer basis.
        real: G of each block, upper triangular, shape (b, n, n), scaled so that the columns of A
            have norms of at most 1.
    """

    blocks: IntArray
    basis: Basis
    real: FloatArray


def round_blocks(
    structure: Structure,
    real_blocks: Sequence[RealBlocks],
    *,
    objective: Objective,
    upper: float,
    loss: float,
) -> IntegerStrategy[Structure]:
    """Round the real strategies of all blocks.

    Args:
        structure: The structure of the workload.
        real_blocks: The blocks, with their bases.
        objective: The objective of the design.
        upper: An upper bound on the objective of the real strategies at their targets.
        loss: Bits are added until the objective of the integers is at most upper * (1 + loss), or
            there is no room for more bits.

    Raises:
        DesignError: If variances cannot be bounded, or integers have no room for the strategy.
    """
    best: IntegerStrategy[Structure] | None = None
    reached = norm = math.inf
    for bits in choose_bits(_BITS, structure.shares):
        block_sets = _round(real_blocks, 2.0**bits)
        if block_sets is None:
            break
        strategy = build_strategy(structure, make_contrasts(structure), block_sets)
        if best is not None and strategy.max_records < LEAST_RECORDS:
            break
        best, norm, reached = strategy, 2.0**bits, evaluate_at_targets(strategy, objective)
        if reached <= upper * (1 + loss):
            break
    has_numbers = any(same.real.shape[-1] == 1 for same in real_blocks)
    is_small = sum(same.real.size for same in real_blocks) <= _MOST_TRIED
    if best is not None and reached > upper * (1 + loss):
        directions = (False, True) if has_numbers else (False,)
        for factor, upward in itertools.product(_FACTORS if is_small else (1.0,), directions):
            rounded = _round(real_blocks, norm * factor, upward=upward)
            if rounded is None:
                continue
            strategy = build_strategy(structure, make_contrasts(structure), rounded)
            cost = evaluate_at_targets(strategy, objective)
            if strategy.max_records >= LEAST_RECORDS and cost < reached:
                best, reached = strategy, cost
    if best is None:
        raise DesignError(
            "the coefficients of the queries differ too much in size. Scale the queries to "
            "coefficients of similar size."
        )
    return add_claim_margins(best)


def share_basis(structure: MatrixStructure, real: FloatArray) -> RealBlocks:
    """Give all noisy blocks that are numbers one basis: the single dense cell.

    Args:
        structure: The structure of the workload.
        real: The square root of Sigma_A^-1 for each noisy block, shape (b,).

    Returns:
        The blocks. With public totals, they are not scaled to a cost of 1.
    """
    blocks = structure.noisy_blocks
    unit = math.sqrt(float((structure.subsets.profile_multiples[blocks] * real**2).sum()))
    G = real / np.sqrt(compute_precisions(structure, blocks)) / unit
    basis = Basis("cells", np.zeros(1, dtype=np.int64), np.ones(1))
    return RealBlocks(blocks, basis, G[:, None, None])


def choose_bases(
    structure: MatrixStructure,
    reals: Sequence[FloatArray],
    independent: Sequence[IndexArray],
    periods: str | None = None,
) -> list[RealBlocks]:
    """Choose an integer basis for each noisy block that is a matrix.

    Args:
        structure: The structure of the workload.
        reals: For each block, a real strategy (k, D) with real' real = B' Sigma_A^-1 B.
        independent: For each block, the indices of k independent rows of its matrix, shape (k,).
        periods: The attribute along which the strategy must be causal, or None.

    Returns:
        The blocks, one by one.
    """
    blocks = structure.noisy_blocks
    precision = compute_precisions(structure, blocks)
    multiples = structure.subsets.profile_multiples[blocks]
    profile = np.sum(
        [w * (r**2).sum(axis=0) for w, r in zip(multiples, reals, strict=True)], axis=0
    )
    unit = math.sqrt(float(profile.max()))
    based = []
    for i, (real, rows) in enumerate(zip(reals, independent, strict=True)):
        matrix = structure.build_block_matrix(int(blocks[i]))
        if periods is not None:
            basis = choose_causal_basis(structure, matrix, periods)
        else:
            basis = choose_basis(matrix, rows, narrow=structure.shares > 1)
        G = triangulate(basis, matrix, real, structure.shares) / (math.sqrt(precision[i]) * unit)
        based.append(RealBlocks(blocks[i : i + 1], basis, G[None]))
    return based


def _round(
    real_blocks: Sequence[RealBlocks], norm: float, *, upward: bool = False
) -> tuple[BlockSet, ...] | None:
    """Round to integers with columns of about the given norm.

    Args:
        real_blocks: The real strategies.
        norm: The norm.
        upward: Whether to round blocks that are numbers up. If targets differ by many orders of
            magnitude, some blocks get integers as small as 1 and 2. Rounding these up raises no
            variance, and hardly raises the privacy cost.

    Returns:
        The integers; None if an entry is too large for floats.
    """
    block_sets = []
    for same in real_blocks:
        is_number = same.real.shape[-1] == 1
        scaled = same.real * norm
        rounded = np.triu(np.ceil(scaled) if upward and is_number else np.rint(scaled))
        if not np.abs(rounded).max() < MAX_ENTRY:
            return None
        M = rounded.astype(np.int64)
        # A direction too weak for this precision still has to stay in the row space.
        at = np.arange(M.shape[1])
        M[:, at, at] = np.maximum(M[:, at, at], 1)
        block_sets.append(BlockSet(same.blocks, same.basis, M))
    return tuple(block_sets)


def triangulate(basis: Basis, W: FloatArray, real: FloatArray, shares: int) -> FloatArray:
    """Return the upper triangular G (n, n) of the real strategy G B, its diagonal positive.

    Args:
        basis: The basis B.
        W: Shape (m, d).
        real: The real strategy, shape (k, d).
        shares: The number of shares of a record: more shares leave the integers fewer bits.
    """
    if basis.kind == "cells":
        # The first cell of each class shows its column.
        _, first = np.unique(basis.index, return_index=True)
        G = real[:, first[-basis.size :]]
    else:
        G = solve_from_right(real, basis.build_matrix(W).astype(np.float64))
    k, n = G.shape
    if k < n:
        complement = qr(G.T)[0][:, k:].T
        # A direction that no query needs must cost little even for the weakest cell it touches.
        precision = np.sqrt((G * G).sum(axis=0))
        touched = np.abs(complement) > _UNTOUCHED * np.abs(complement).max(axis=1, keepdims=True)
        weakest = np.where(touched, precision, np.inf).min(axis=1, keepdims=True)
        # With few bits, rounding would lose weaker directions, which estimates need.
        unasked = max(_UNASKED_PRECISION, 2.0 ** (-choose_bits(_BITS, shares)[-1] / 3))
        G = np.vstack([G, unasked * weakest * complement])
    R = qr(G, mode="r")[0][:n]
    return np.asarray(R * np.where(np.diag(R) < 0, -1.0, 1.0)[:, None])
