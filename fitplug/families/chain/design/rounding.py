"""Rounding the strategies of a chain to integers.

The coefficient of an answer is a product r_j t_(j - i) m_i M_A of integers, times an entry of the
contrasts of A, and an answer has 64 bits: these share what a product may have. What rounding costs
is part of the plan's gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fitplug.errors import DesignError
from fitplug.families.base.basis import Basis
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.design import LEAST_RECORDS, add_claim_margins
from fitplug.families.base.family import build_strategy
from fitplug.families.base.integers import SATURATION
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.families.chain.design.convolutions import LevelWeights, build_toeplitz, choose_columns
from fitplug.families.chain.shape import ChainStructure
from fitplug.families.chain.strategy.chains import place_chain
from fitplug.families.chain.strategy.convolutions import ChainMatrix
from fitplug.families.chain.strategy.nested_chain import NestedChain
from fitplug.families.chain.strategy.nested_triangles import NestedTriangles, upper_entry
from fitplug.numeric import FloatArray, IntArray

CHAIN_MARGIN = 1e-9
"""The relative margin of claimed variances above the proven ones, and of bounds below them: another
machine rounds transforms and sweeps otherwise."""

_LARGEST = (
    (512, 1024, 32),
    (256, 512, 32),
    (256, 512, 16),
    (128, 256, 16),
    (128, 256, 8),
    (64, 128, 8),
    (64, 128, 4),
    (32, 64, 2),
)
"""The largest weight of a row, the least of a column and the most that the least multiple of a
block may be. Where there is one block, its multiple is 1."""

_ENOUGH = 1000
"""One block takes the first of these that leave t_0 as much."""

_NEEDED = 64
"""The least t_0."""

_NEGLIGIBLE = 0.01
"""Blocks that cost less than this part of the costliest may have any multiple."""

_ROUNDED_ROOM = 0.999
"""The part of the room that is used, since rounding may enlarge entries."""

_NO_ROOM = "an integer strategy has no room for tables of so many cells; ask tables of fewer"

_TRIED = 512
"""The multiples of the blocks that are tried."""


def round_chain(
    structure: ChainStructure, weights: LevelWeights, x: float, scales: FloatArray
) -> IntegerStrategy[Structure]:
    """Round a strategy of a chain to integers.

    Args:
        structure: The structure of the workload.
        weights: The weights of rows and columns.
        x: The parameter of T; see `fitplug.families.chain.design.convolutions`.
        scales: The variance of each block, shape (b,), up to a common factor.

    Returns:
        A strategy with room for `LEAST_RECORDS` records.

    Raises:
        DesignError: If there is none.
    """
    entries = [float(build_contrasts(n).largest_entry) for n in structure.sizes]
    entries[structure.chain_position] = 1.0
    factors = np.append(entries, 1.0)[structure.blocks].prod(axis=1)
    pair = build_toeplitz(structure.n, x)
    best, least_cost = None, math.inf
    for largest_row, least_column, largest_multiple in _LARGEST:
        multiples = _round_scales(structure, scales, largest_multiple)
        room = SATURATION / LEAST_RECORDS / float((factors * multiples).max())
        rows = np.maximum(np.rint(weights.rows / weights.rows.max() * largest_row), 1.0)
        columns = choose_columns(rows, pair.t, least=least_column)
        later = np.maximum.accumulate(rows[::-1])[::-1]
        # The total was weighed for columns of the least weight there, and rows of at most 1.
        total = weights.total * largest_row * least_column / float(weights.columns.min())
        most = math.floor(room / max(float((later * columns).max()), total))
        if most < _NEEDED:
            continue
        matrix = ChainMatrix(
            row_weights=rows.astype(np.int64),
            sequence=np.rint(pair.t * most).astype(np.int64),
            column_weights=columns,
            total_weight=np.array([round(total * most)], dtype=np.int64),
        )
        basis = Basis("cells", np.zeros(1, dtype=np.int64), np.ones(1))
        blocks = BlockSet(
            np.arange(len(multiples), dtype=np.int64), basis, multiples[:, None, None]
        )
        found = build_strategy(structure, place_chain(structure, matrix), (blocks,))
        cost = found.sensitivity**2 * float((found.unit_variances / structure.targets).max())
        if cost < least_cost:
            best, least_cost = found, cost
        if len(multiples) == 1 and most >= _ENOUGH:
            break
    if best is None:
        raise DesignError(_NO_ROOM)
    return add_claim_margins(best, CHAIN_MARGIN)


def round_nested(
    structure: ChainStructure, matrices: Sequence[NestedTriangles]
) -> IntegerStrategy[Structure]:
    """Round nested triangles to integers.

    Args:
        structure: The structure of the workload.
        matrices: Those of each block, for the noise on the block; their sums are integers.

    Returns:
        A strategy with room for `LEAST_RECORDS` records.

    Raises:
        DesignError: If there is none.
    """
    entries = [float(build_contrasts(n).largest_entry) for n in structure.sizes]
    precisions = [float(build_contrasts(n).precision) for n in structure.sizes]
    entries[structure.chain_position] = precisions[structure.chain_position] = 1.0
    blocks = structure.blocks
    factors, divisors = (np.append(x, 1.0)[blocks].prod(axis=1) for x in (entries, precisions))
    divisors = divisors**0.5
    largest = max(
        factor / divisor * upper_entry(A)
        for A, factor, divisor in zip(matrices, factors, divisors, strict=True)
    )
    scale = _ROUNDED_ROOM * SATURATION / LEAST_RECORDS / largest
    if scale * max(float(A.triangles.max()) for A in matrices) < _NEEDED:
        raise DesignError(_NO_ROOM)
    triangles, sums, weights = [], [], []
    for A, divisor in zip(matrices, divisors, strict=True):
        b = A.triangles.shape[1]
        rounded = np.rint(A.triangles * (scale / divisor))
        rows = rounded.reshape(A.cells, b)
        at = np.arange(A.cells)
        rows[at, at % b] = np.where(at < structure.n, np.maximum(rows[at, at % b], 1.0), 1.0)
        triangles.append(rounded)
        sums.append(A.sums)
        weights.append(np.rint(A.weights * (scale / divisor)))
    matrix = NestedChain(
        np.array([structure.n], dtype=np.int64),
        np.stack(triangles).astype(np.int64),
        np.stack(sums).astype(np.int64),
        np.stack(weights).astype(np.int64),
    )
    basis = Basis("cells", np.zeros(1, dtype=np.int64), np.ones(1))
    block_set = BlockSet(
        np.arange(len(blocks), dtype=np.int64), basis, np.ones((len(blocks), 1, 1), dtype=np.int64)
    )
    found = build_strategy(structure, place_chain(structure, matrix), (block_set,))
    return add_claim_margins(found, CHAIN_MARGIN)


def _round_scales(structure: ChainStructure, scales: FloatArray, largest: int) -> IntArray:
    """Round multiples of (scale of a block * precision of its contrasts)^-1/2 to integers, (b,)."""
    precisions = [float(build_contrasts(n).precision) for n in structure.sizes]
    precisions[structure.chain_position] = 1.0
    real = (np.append(precisions, 1.0)[structure.blocks].prod(axis=1) * scales) ** -0.5
    if len(real) == 1:
        return np.ones(1, dtype=np.int64)
    spent = structure.multiples_of_blocks / scales
    counts = spent >= _NEGLIGIBLE * spent.max()
    wanted = np.linspace(largest / 2, largest, _TRIED)[:, None] * (real / real[counts].min())
    # Each block's share of the cost and of the variances changes by the square of its factor.
    off = np.abs(np.log(np.maximum(np.rint(wanted), 1.0) / wanted))[:, counts].max(axis=1)
    best = wanted[int(off.argmin())]
    return np.maximum(np.rint(best), 1.0).astype(np.int64)
