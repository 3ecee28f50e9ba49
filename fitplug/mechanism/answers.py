"""From exact counts to the strategy's exact answers, and from noisy answers to estimates.

Block by block: nothing of the size of the domain is ever formed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.mechanism.basis import Counted
from fitplug.mechanism.strategy import SATURATION, BlockSet, Strategy
from fitplug.numeric import AnyArray, FloatArray, IntArray, find_largest_entry, multiply_exactly


def exact_answers(strategy: Strategy, counted: Counted) -> IntArray:
    """A x, shape (strategy.size,): exact for every integer input, clamped at +-2^62.

    The clamp is 1-Lipschitz in each answer, so it never adds to the sensitivity. counted: gives
    the exact counts over some attributes, in the order named. Confidential.
    """
    answers = np.zeros(strategy.size, dtype=np.int64)
    for block_set, i, _, start in list_blocks(strategy):
        y = block_set.basis.counts(strategy.structure, int(block_set.blocks[i]), counted)
        (own,) = strategy.structure.members(block_set.blocks[i : i + 1])
        for axis, split in enumerate(strategy.attribute_matrices[a] for a in own):
            if y.size and y.dtype != object and find_largest_entry(y) * split.growth >= 2**63:
                y = y.astype(object)
            y = split.apply(y, axis)
        if y.size:
            y = multiply_exactly(y.reshape(-1, y.shape[-1]), block_set.M[i].T)
        answers[start : start + y.size] = np.clip(y, -SATURATION, SATURATION).ravel()
    return answers


def may_be_clamped(noisy: IntArray, noise_std: float) -> bool:
    """Whether noisy answers tell that an exact one may have been clamped, so that estimates are
    biased: one is within 64 standard deviations of the clamp, or beyond. Of noisy answers alone, so
    that it may be told to anybody. With half of `max_records` none is, but by a chance of 10^-880.
    """
    return bool(noisy.size) and find_largest_entry(noisy) >= SATURATION - 64 * noise_std


def list_blocks(strategy: Strategy) -> Iterator[tuple[BlockSet, int, tuple[int, ...], int]]:
    """The block_set, the place in it, the shape and the start of each block's answers, in order."""
    start = 0
    attribute_matrices = strategy.attribute_matrices
    for block_set in strategy.block_sets:
        for i, own in enumerate(strategy.structure.members(block_set.blocks)):
            shape = (*(attribute_matrices[a].rows for a in own), block_set.basis.size)
            yield block_set, i, shape, start
            start += math.prod(shape)


def residuals(strategy: Strategy, block_set: BlockSet, i: int, answers: AnyArray) -> FloatArray:
    """The estimates of B x of a block, less what its margins say: from its answers, an axis for
    each symmetric attribute (n_a,) and a last one (n,).
    """
    (own,) = strategy.structure.members(block_set.blocks[i : i + 1])
    n = block_set.basis.size
    M = block_set.M[i].astype(np.float64)
    flat = solve_triangular(M, answers.reshape(-1, n).astype(np.float64).T).T
    found = np.asarray(flat.reshape(answers.shape))
    for axis, a in enumerate(own):
        found = strategy.attribute_matrices[a].invert(found, axis)
    return found
