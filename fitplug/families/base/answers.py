"""From exact counts to the strategy's exact answers, and from noisy answers to estimates.

Both are made block by block: nothing of the size of the domain is ever formed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.families.base.integers import SATURATION
from fitplug.families.base.strategy import BlockSet, IntegerStrategy
from fitplug.numeric import (
    AnyArray,
    FloatArray,
    IntArray,
    find_largest_entry,
    make_room,
    multiply_exactly,
    multiply_numbers,
)


def measure_block(
    strategy: IntegerStrategy, block_set: BlockSet, i: int, counts: AnyArray
) -> IntArray:
    """Compute the answers of a block from B x, clamped.

    Args:
        strategy: The strategy.
        block_set: The set that the block is in.
        i: The block's index in the set.
        counts: B x: an axis of n_a cells for each attribute of the block, and a last one of n.

    Returns:
        The answers, shape (size,).
    """
    block = int(block_set.blocks[i])
    (own,) = strategy.structure.subsets.list_attributes([block])
    y = counts
    for axis, matrix in enumerate(strategy.find_matrix(a, block) for a in own):
        y = matrix.apply(make_room(y, matrix.growth), axis)
    if y.size:
        y = multiply_exactly(y.reshape(-1, y.shape[-1]), block_set.M[i].T)
        multiples = strategy.spread_multiples(block)
        if multiples is not None:
            y = multiply_numbers(y, multiples.reshape(-1, 1))
    return np.asarray(np.clip(y, -SATURATION, SATURATION).ravel(), dtype=np.int64)


def may_be_clamped(noisy: IntArray, noise_std: float) -> bool:
    """Tell whether an exact answer may have been clamped, so that estimates are biased.

    That is so if a noisy answer is within 64 standard deviations of the clamp, or beyond. The
    result depends on noisy answers alone, so it may be published. With half of `max_records` and
    a standard deviation of at most 2^54 it is True with a probability of 10^-880 at most.
    """
    return bool(noisy.size) and find_largest_entry(noisy) >= SATURATION - 64 * noise_std


def list_blocks(strategy: IntegerStrategy) -> Iterator[tuple[BlockSet, int, tuple[int, ...], int]]:
    """List each block's set, its index in the set, and the shape and start of its answers."""
    start = 0
    attribute_matrices = strategy.attribute_matrices
    for block_set in strategy.block_sets:
        for i, own in enumerate(strategy.structure.subsets.list_attributes(block_set.blocks)):
            shape = (*(attribute_matrices[a].rows for a in own), block_set.basis.size)
            yield block_set, i, shape, start
            start += math.prod(shape)


def estimate_block(
    strategy: IntegerStrategy, block_set: BlockSet, i: int, answers: AnyArray
) -> FloatArray:
    """Estimate B x of a block, less what its margins say.

    Args:
        strategy: The strategy.
        block_set: The set that the block is in.
        i: The block's index in the set.
        answers: The block's noisy answers: an axis of the rows of A_a for each attribute a of the
            block, and a last one of n.

    Returns:
        The estimates, with axes of n_a cells in place of the rows of A_a.
    """
    block = int(block_set.blocks[i])
    (own,) = strategy.structure.subsets.list_attributes([block])
    n = block_set.basis.size
    M, values = block_set.M[i].astype(np.float64), answers.astype(np.float64)
    if n == 1:
        found = values / M[0, 0]  # there may be many such blocks, and this takes less time
    else:
        found = np.asarray(solve_triangular(M, values.reshape(-1, n).T).T.reshape(values.shape))
    multiples = strategy.spread_multiples(block)
    if multiples is not None:
        found = found / multiples[..., None]
    for axis, a in enumerate(own):
        found = strategy.find_matrix(a, block).invert(found, axis)
    return found
