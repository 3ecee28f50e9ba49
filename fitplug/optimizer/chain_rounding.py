"""Rounding the strategies of a chain to integers.

The coefficient of an answer is a product r_j t_(j - i) m_i M_A of integers, times an entry of the
contrasts of A, and an answer has 64 bits: these share what a product may have. What rounding costs
is part of the plan's gap.
"""

from __future__ import annotations

import math

import numpy as np

from fitplug.errors import DesignError
from fitplug.mechanism import (
    SATURATION,
    Basis,
    BlockSet,
    ChainMatrix,
    Strategy,
    build_contrasts,
    build_strategy,
    place_chain,
)
from fitplug.numeric import FloatArray, IntArray
from fitplug.optimizer.chain_levels import LevelWeights, choose_columns, find_resolution
from fitplug.optimizer.chain_member import build_toeplitz
from fitplug.optimizer.claims import LEAST_RECORDS, add_claim_margins
from fitplug.structure import ChainStructure

CHAIN_MARGIN = 1e-9
"""The relative margin of claimed variances above the proven ones, and of bounds below them: another
machine rounds transforms and sweeps otherwise."""

_ROW_SCALE = 512
"""The largest row weight."""

_MOST_MULTIPLE = 32
"""The largest multiple of a block, where there are several."""

_LEAST_SEQUENCE = 64
"""The least t_0: with less, T is not what it should be."""

_TRIED = 512
"""The multiples of the blocks that are tried."""


def round_chain(
    structure: ChainStructure, weights: LevelWeights, x: float, scales: FloatArray
) -> Strategy:
    """Round a strategy of a chain to integers.

    Args:
        structure: The structure of the workload.
        weights: The weights of rows and columns.
        x: The parameter of T; see `fitplug.optimizer.chain_member`.
        scales: The variance of each block, shape (b,), up to a common factor.

    Returns:
        A strategy with room for `LEAST_RECORDS` records.

    Raises:
        DesignError: If there is none.
    """
    multiples = _round_scales(structure, scales)
    entries = [float(build_contrasts(n).largest_entry) for n in structure.sizes]
    entries[structure.chain_position] = 1.0
    factors = np.append(entries, 1.0)[structure.blocks].prod(axis=1)
    room = SATURATION / LEAST_RECORDS / float((factors * multiples).max())
    pair = build_toeplitz(structure.n, x)
    row_scale = _ROW_SCALE if len(multiples) == 1 else _ROW_SCALE // 4
    while True:
        rows = np.maximum(np.rint(weights.rows / weights.rows.max() * row_scale), 1.0)
        columns = choose_columns(rows, pair.t, find_resolution(structure.n))
        later = np.maximum.accumulate(rows[::-1])[::-1]
        # The weights of rows grow by the row scale and those of T by t_0, so the total's by both.
        total = weights.total * row_scale
        most = math.floor(room / max(float((later * columns).max()), total))
        if most >= _LEAST_SEQUENCE:
            break
        if row_scale < _LEAST_SEQUENCE:
            raise DesignError(
                "an integer strategy has no room for tables of so many cells; ask tables of fewer"
            )
        row_scale //= 2
    sequence = np.rint(pair.t * most).astype(np.int64)
    own = np.array([round(total * most)])
    matrix = ChainMatrix(rows.astype(np.int64), sequence, columns, own)
    basis = Basis("cells", np.zeros(1, dtype=np.int64), np.ones(1))
    blocks = BlockSet(np.arange(len(multiples)), basis, multiples[:, None, None])
    strategy = build_strategy(structure, (blocks,), place_chain(structure, matrix))
    return add_claim_margins(strategy, CHAIN_MARGIN)


def _round_scales(structure: ChainStructure, scales: FloatArray) -> IntArray:
    """Round 1 / (scale of the block * precision of its contrasts)^1/2 to integers, shape (b,)."""
    precisions = [float(build_contrasts(n).precision) for n in structure.sizes]
    precisions[structure.chain_position] = 1.0
    real = (np.append(precisions, 1.0)[structure.blocks].prod(axis=1) * scales) ** -0.5
    real = real / real.max()
    if len(real) == 1:
        return np.ones(1, dtype=np.int64)
    factors = np.linspace(_MOST_MULTIPLE / 2, _MOST_MULTIPLE, _TRIED)
    # Each block's share of the cost and of the variances changes by the square of its factor.
    wanted = factors[:, None] * real
    off = np.abs(np.log(np.maximum(np.rint(wanted), 1.0) / wanted)).max(axis=1)
    best = wanted[int(off.argmin())]
    return np.maximum(np.rint(best), 1.0).astype(np.int64)
