"""Certificates of trees: the nuclear norm of each block, from below, by sweeps over its nodes.

The norm of a block is tr N^1/2. The determinants of N + t I cost one sweep over the tree
(docs/theory/trees.md, (T6)), of numbers where the block has one class of dense cells, and of
matrices where it has more (`fitplug.families.tree.certificate.scalar_trees`,
`fitplug.families.tree.certificate.dense_trees`). A quadrature takes the trace of the square root
from them (`fitplug.certify.trace_quadrature`).
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from fitplug.certify import COARSE_STEP, STEP, lower_trace
from fitplug.families.blocks.certificate import BlockCertifier
from fitplug.families.tree.certificate.block_determinants import BlockWeights
from fitplug.families.tree.certificate.public_root import (
    RootPrior,
    lower_dense_moves,
    lower_scalar_moves,
)
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import FloatArray, gamma

TOLERANCE, COARSE_TOLERANCE = 5e-10, 3e-6
"""The largest part of a norm that is lost by leaving out poles, and that where poles are costly."""

LARGE_WORK = 5e7
"""Poles are costly where the nodes times the cubes of their matrices' sizes are more than this."""

MOST_WORK = 5e10
"""Most nodes times the cubes of their matrices' sizes: about ten minutes for each block."""

MOST_NUMBERS = 2_000_000
"""Most numbers of all nodes and poles that are in memory at once, unless there are few poles."""


class TreeCertifier(BlockCertifier[TreeStructure]):
    """The certificate of `TreeStructure`."""

    takes_objectives = True

    def lower_norm(
        self, structure: TreeStructure, weights: FloatArray, row_weights: FloatArray
    ) -> float:
        return sum_block_norms(structure, weights, row_weights)


def sum_block_norms(
    structure: TreeStructure, weights: FloatArray, row_weights: FloatArray
) -> float:
    """Sum lower bounds on the norms of the blocks that are measured.

    Args:
        structure: The structure.
        weights: p of leaves and dense cells over the budgets, shape (leaves * D,).
        row_weights: q over the targets, shape (rows,).
    """
    power, p = scale_by_power(weights.reshape(-1, structure.cells))
    more, rows = scale_by_power(row_weights)
    multiples = structure.subsets.profile_multiples
    norms = [
        math.sqrt(multiples[block]) * lower_block_norm(structure, block, p, rows)
        for block in structure.noisy_blocks.tolist()
        if multiples[block] > 0
    ]
    # What is left out until here are roundings of p over the budgets, of q / c with the weight on
    # the total squared error, and of the multiples.
    return math.ldexp(math.fsum(norms), power + more) * (1 - gamma(64))


def lower_block_norm(
    structure: TreeStructure, block: int, p: FloatArray, row_weights: FloatArray
) -> float:
    """Bound || diag(multiple q / c)^1/2 W diag(p)^1/2 ||_* of a block from below.

    Args:
        structure: The structure.
        block: The block.
        p: Weights of leaves and dense cells, near 1 or less, shape (leaves, D).
        row_weights: q / c, near 1 or less, shape (rows,).

    Returns:
        The bound.
    """
    power, rows = scale_rows(structure, block, row_weights)
    weights = BlockWeights(structure, block, p, rows)
    return math.ldexp(lower_weighted_norm(weights, None), power)


def scale_rows(
    structure: TreeStructure, block: int, row_weights: FloatArray
) -> tuple[int, FloatArray]:
    """Divide q / c by a power of 4, so that the largest of a block comes near 1."""
    most = max(part.multiple * row_weights[part.rows].max() for part in structure.parts[block])
    power = math.frexp(float(most))[1] // 2
    return power, np.ldexp(row_weights, -2 * power)


def lower_weighted_norm(weights: BlockWeights, prior: RootPrior | None, most: float = 2.0) -> float:
    """Bound the norm of a block from below.

    Args:
        weights: Its weights.
        prior: The covariance of the root's classes, if it is not that of the weights.
        most: By what factor the prior raises eigenvalues at most: by 2 where records move.
    """
    if weights.last < 0:
        return 0.0
    # Everything grows at most in proportion to the masses and to the precisions.
    error = 8 * weights.rounding
    more = 1.0 if prior is None else most
    if weights.classes[0].size == 1:
        tree = weights.build_scalar()
        bound, _ = lower_trace(
            tree.lower_log_determinants
            if prior is None
            else partial(lower_scalar_moves, tree, prior),
            rank=tree.count_ranks()[0],
            trace=tree.trace * more,
            largest=tree.upper_eigenvalues(np.zeros(1)) * more,
            tolerance=TOLERANCE,
            batch=min(max(MOST_NUMBERS // len(tree.masses), 6), 24),
        )
        return bound * (1 - error)
    totals = weights.find_totals()
    dense = weights.build_dense(totals)
    work = len(dense.masses) * float(dense.masses.shape[1]) ** 3
    if work > MOST_WORK:
        raise ValueError("dual weights p tell cells apart at too many nodes: average them there")
    is_costly = work > LARGE_WORK
    bound, _ = lower_trace(
        dense.lower_log_determinants if prior is None else partial(lower_dense_moves, dense, prior),
        rank=dense.rank,
        trace=dense.trace * more,
        largest=dense.upper_eigenvalue() * more,
        tolerance=COARSE_TOLERANCE if is_costly else TOLERANCE,
        step=COARSE_STEP if is_costly else STEP,
        batch=4 if is_costly else 8,
    )
    # Weights of pairs are products of those of two leaves.
    share = math.sqrt(totals.share) if prior is None else totals.share
    return bound * share * (1 - error)


def scale_by_power(values: FloatArray) -> tuple[int, FloatArray]:
    """Divide numbers by a power of 4 so that the largest comes near 1.

    Returns:
        k, and the numbers divided by 4^k, without rounding unless they are next to nothing.
    """
    k = math.frexp(float(values.max()))[1] // 2
    return k, np.ldexp(values, -2 * k)
