"""Certificates of trees: the nuclear norm of each block, from below, by sweeps over its nodes.

The norm of a block is tr N^1/2. The determinants of N + t I cost one sweep over the tree
(docs/theory/trees.md, (T6)), of numbers where the block has one class of dense cells, and of
matrices where it has more (`fitplug.families.tree.certificate.scalar_trees`,
`fitplug.families.tree.certificate.dense_trees`). A quadrature takes the trace of the square root
from them (`fitplug.certify.trace_quadrature`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from fitplug.certify import COARSE_STEP, STEP, lower_trace
from fitplug.families.blocks.certificate.blocks import BlockCertifier
from fitplug.families.tree.certificate.block_determinants import BlockWeights
from fitplug.families.tree.certificate.dense_trees import RootCovariance
from fitplug.families.tree.certificate.public_root import (
    RegionMasses,
    lower_dense_public,
    lower_scalar_public,
    measure_dense_trace,
    measure_scalar_trace,
)
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.numeric import FloatArray, gamma

TOLERANCE, COARSE_TOLERANCE = 5e-10, 3e-6
"""The largest part of a norm that is lost by leaving out poles, and that where poles are costly."""

LARGE_WORK = 5e7
"""Poles are costly where the nodes times the cubes of their matrices' sizes are more than this."""

MOST_WORK = 5e10
"""Most nodes times the cubes of their matrices' sizes: about ten minutes for each block."""

RootChange: TypeAlias = Callable[[FloatArray, FloatArray, Sequence[RootCovariance]], FloatArray]
"""See `lower_weighted_norm`."""

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
    structure: TreeStructure,
    weights: FloatArray,
    row_weights: FloatArray,
    factors: FloatArray | None = None,
    thetas: FloatArray | None = None,
) -> float:
    """Sum lower bounds on the norms of the blocks that are measured.

    Args:
        structure: The structure.
        weights: p of leaves and dense cells over the budgets, shape (leaves * D,).
        row_weights: q over the targets, shape (rows,).
        factors: What p of each block is multiplied by, shape (b,); None for 1.
        thetas: For each block the part of what the leaves share that is taken off, at most 1, if
            records are replaced; see `fitplug.families.tree.certificate.public_root`.
    """
    power, p = scale_by_power(weights.reshape(-1, structure.cells))
    more, rows = scale_by_power(row_weights)
    multiples = structure.subsets.profile_multiples
    if factors is not None:
        multiples = multiples * factors
    norms = [
        math.sqrt(multiples[block])
        * lower_block_norm(
            structure, block, p, rows, None if thetas is None else float(thetas[block])
        )
        for block in structure.noisy_blocks.tolist()
        if multiples[block] > 0
    ]
    # What is left out until here are roundings of p over the budgets, of q / c with the weight on
    # the total squared error, and of the multiples.
    return math.ldexp(math.fsum(norms), power + more) * (1 - gamma(64))


def lower_block_norm(
    structure: TreeStructure,
    block: int,
    p: FloatArray,
    row_weights: FloatArray,
    theta: float | None = None,
) -> float:
    """Bound || diag(multiple q / c)^1/2 W diag(p)^1/2 ||_* of a block from below.

    Args:
        structure: The structure.
        block: The block.
        p: Weights of leaves and dense cells, near 1 or less, shape (leaves, D).
        row_weights: q / c, near 1 or less, shape (rows,).
        theta: See `sum_block_norms`.

    Returns:
        The bound.
    """
    most = max(part.multiple * row_weights[part.rows].max() for part in structure.parts[block])
    power = math.frexp(float(most))[1] // 2
    rows = np.ldexp(row_weights, -2 * power)
    regions_of_cells = None
    if theta is not None and isinstance(structure, TreePairStructure):
        regions_of_cells = structure.regions
    weights = BlockWeights(structure, block, p, rows, regions_of_cells)
    if weights.last < 0:
        return 0.0
    regions, more_eigenvalue = None, 1.0
    if theta is not None and regions_of_cells is not None:
        more_eigenvalue = 1 + max(-theta, 0.0)
        regions = weights.find_regions(regions_of_cells, theta)
        if regions is None:
            return 0.0
    return math.ldexp(lower_weighted_norm(weights, regions, more_eigenvalue), power)


def lower_weighted_norm(
    weights: BlockWeights,
    regions: RegionMasses | None = None,
    more_eigenvalue: float = 1.0,
    change_root: RootChange | None = None,
) -> float:
    """Bound the norm of a block from below, for the weights that are given to it.

    Args:
        weights: The weights of the block, which asks for something.
        regions: The regions of dense cells whose totals cost less; see `public_root`.
        more_eigenvalue: No less than the factor by which these raise the largest eigenvalue.
        change_root: Adds to lower bounds of log determinants, (P,), what another moment of the
            root makes of them, from poles, (P,), and what `DenseTree.sweep` says of the root.
    """
    # Everything grows at most in proportion to the masses and to the precisions.
    error = 8 * weights.rounding
    if weights.classes[0].size == 1:
        tree = weights.build_scalar()

        def evaluate_scalar(poles: FloatArray) -> FloatArray:
            if regions is not None:
                return lower_scalar_public(tree, regions, poles)
            found, V = tree.sweep(poles)
            if change_root is None:
                return found
            error = tree.error + gamma(16)
            roots = np.sqrt(V[0]).reshape(-1, 1, 1)
            known = [RootCovariance(1 - error, 1 + 2 * error, own) for own in roots]
            return change_root(found, poles, known)

        bound, _ = lower_trace(
            evaluate_scalar,
            rank=tree.count_ranks()[0],
            trace=tree.trace if regions is None else measure_scalar_trace(tree, regions),
            largest=tree.upper_eigenvalues(np.zeros(1)) * more_eigenvalue,
            tolerance=TOLERANCE,
            batch=min(max(MOST_NUMBERS // len(tree.masses), 6), 24),
        )
        return bound * (1 - error)
    totals = weights.find_totals()
    dense = weights.build_dense(totals)
    work = len(dense.masses) * float(dense.masses.shape[1]) ** 3
    if work > MOST_WORK:
        if regions is not None and len(regions.together) > 1:
            return 0.0
        raise ValueError("dual weights p tell cells apart at too many nodes: average them there")
    is_costly = work > LARGE_WORK
    sums = None if regions is None else weights.build_totals()

    def evaluate_dense(poles: FloatArray) -> FloatArray:
        if regions is not None and sums is not None:
            return lower_dense_public(dense, sums, regions, poles)
        found, roots = dense.sweep(poles)
        return found if change_root is None else change_root(found, poles, roots)

    bound, _ = lower_trace(
        evaluate_dense,
        rank=dense.rank,
        trace=dense.trace if regions is None else measure_dense_trace(dense, regions),
        largest=dense.upper_eigenvalue() * more_eigenvalue,
        tolerance=COARSE_TOLERANCE if is_costly else TOLERANCE,
        step=COARSE_STEP if is_costly else STEP,
        batch=4 if is_costly else 8,
    )
    return bound * math.sqrt(totals.share) * (1 - error)


def scale_by_power(values: FloatArray) -> tuple[int, FloatArray]:
    """Divide numbers by a power of 4 so that the largest comes near 1.

    Returns:
        k, and the numbers divided by 4^k, without rounding unless they are next to nothing.
    """
    k = math.frexp(float(values.max()))[1] // 2
    return k, np.ldexp(values, -2 * k)
