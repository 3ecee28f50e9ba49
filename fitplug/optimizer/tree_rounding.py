"""Rounding a member of a tree's family to integers (docs/theory/trees.md).

Block A measures at node v the matrix A_v (x) M_v of its children, with A_v'A_v near a multiple of
X_v, and M_v'M_v of Y_v. A_v is upper trapezoidal, and M_v upper triangular. Where one class of dense
cells is asked, M_v is 1, and A_v has all the bits; elsewhere the two share them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fitplug.errors import DesignError
from fitplug.mechanism import (
    MAX_ENTRY,
    StepMatrices,
    Strategy,
    TreeBlock,
    build_contrasts,
    build_tree_strategy,
    compute_precisions,
)
from fitplug.numeric import FloatArray, IntArray
from fitplug.optimizer.claims import LEAST_RECORDS, add_claim_margins
from fitplug.optimizer.sibling_covariance import build_strategies
from fitplug.optimizer.tree_family import StepCovariances, StepWeights, Sweep
from fitplug.structure import IdenticalLeaves, Objective, TreeStep, TreeStructure

_BITS = (20, 23, 26, 29, 32)
"""Binary logarithms of the largest column norm, tried until rounding costs little enough."""

_SHARED_BITS = 15
"""Binary logarithm of the largest entry of A_v, where M_v has the other bits."""


def round_trees(
    structure: TreeStructure,
    sweeps: Sequence[Sweep],
    *,
    objective: Objective,
    upper: float,
    loss: float,
) -> Strategy:
    """Round what the sweeps over all blocks found.

    Args:
        structure: The structure.
        sweeps: What they found.
        objective: The objective of the design.
        upper: The objective of the real strategies at their targets.
        loss: Bits are added until the objective of the integers is at most upper * (1 + loss), or
            no more bits can be had.

    Raises:
        DesignError: If variances cannot be bounded, or integers have no room for the strategy.
    """
    every = np.arange(len(structure.blocks))
    multiples = structure.subsets.profile_multiples
    profile = sum(w * own.profile for w, own in zip(multiples, sweeps, strict=True))
    unit = math.sqrt(float(np.max(profile)))
    scales = 1 / (unit * np.sqrt(compute_precisions(structure, every)))
    best: Strategy | None = None
    for bits in _BITS:
        blocks = [
            _round_block(structure, block, sweep, 2.0**bits * float(scales[block]))
            for block, sweep in enumerate(sweeps)
        ]
        if any(block is None for block in blocks):
            break
        strategy = build_tree_strategy(structure, tuple(own for own in blocks if own is not None))
        if best is not None and strategy.max_records < LEAST_RECORDS:
            break
        best = strategy
        # With this noise every target is met.
        noise_std = math.sqrt(1 / float((strategy.unit_variances / structure.targets).max()))
        reached = objective.evaluate(
            strategy.sensitivity / noise_std,
            strategy.bound_profile(noise_std),
            strategy.bound_total_variance(noise_std),
        )
        if reached <= upper * (1 + loss):
            break
    if best is None:
        raise DesignError(
            "the targets of the tree's nodes differ by too many orders of magnitude for an integer "
            "strategy; bring them closer together"
        )
    return add_claim_margins(best)


def _round_block(
    structure: TreeStructure, block: int, sweep: Sweep, scale: float
) -> TreeBlock | None:
    """Round one block; None if an entry is too large for floats."""
    root = _round_triangle(_triangulate(sweep.root[1][None]) * scale)
    steps = [
        _round_step(step, found, weights, scale)
        for step, found, weights in zip(
            structure.tree.steps, sweep.steps, sweep.weights, strict=False
        )
    ]
    if root is None or any(step is None for step in steps):
        return None
    return TreeBlock(block, root[0], tuple(step for step in steps if step is not None))


def _round_step(
    step: TreeStep, found: StepCovariances, weights: StepWeights | None, scale: float
) -> StepMatrices | None:
    """Round the matrices of the nodes of one step; None if an entry is too large for floats."""
    is_scalar = found.precisions.shape[1] == 1
    G = np.sqrt(found.precisions) if is_scalar else _triangulate(found.precisions)
    if isinstance(step, IdenticalLeaves):
        counts, place = np.unique(step.counts, return_inverse=True)
        precisions = np.array([build_contrasts(k).precision for k in counts.tolist()], np.float64)
        real = scale / np.sqrt(precisions[place.ravel()])
        if is_scalar:
            multipliers = np.maximum(np.rint(real * G[:, 0, 0]), 1.0)
            if not multipliers.max() < MAX_ENTRY:
                return None
            return StepMatrices(multipliers.astype(np.int64), _make_ones(len(real)))
        M = _round_triangle(G * real[:, None, None])
        ones = np.ones(len(real), dtype=np.int64)
        return None if M is None else StepMatrices(ones, M)
    assert weights is not None and found.multipliers is not None
    A = build_strategies(weights.P, weights.K, found.multipliers)
    if is_scalar:
        rounded = _round_trapezoid(A * (scale * G))
        return None if rounded is None else StepMatrices(rounded, _make_ones(len(A)))
    own = 2.0**_SHARED_BITS / np.abs(A).max(axis=(1, 2))
    rounded = _round_trapezoid(A * own[:, None, None])
    M = _round_triangle(G * (scale / own)[:, None, None])
    return None if rounded is None or M is None else StepMatrices(rounded, M)


def _triangulate(precisions: FloatArray) -> FloatArray:
    """Compute upper triangular G with G'G = Y for matrices Y (b, r, r)."""
    return np.asarray(np.linalg.cholesky(precisions).transpose(0, 2, 1))


def _round_triangle(G: FloatArray) -> IntArray | None:
    """Round upper triangular matrices (b, r, r), and keep them invertible."""
    rounded = np.triu(np.rint(G))
    if not np.abs(rounded).max() < MAX_ENTRY:
        return None
    at = np.arange(G.shape[1])
    rounded[:, at, at] = np.maximum(rounded[:, at, at], 1.0)
    return rounded.astype(np.int64)


def _round_trapezoid(A: FloatArray) -> IntArray | None:
    """Round upper trapezoidal matrices (b, k - 1, k), and keep them of full rank."""
    rounded = np.rint(A)
    if not np.abs(rounded).max() < MAX_ENTRY:
        return None
    at = np.arange(A.shape[1])
    rounded[:, at, at] = np.maximum(rounded[:, at, at], 1.0)
    return rounded.astype(np.int64)


def _make_ones(b: int) -> IntArray:
    """Make b matrices of one row and column, which are 1."""
    return np.ones((b, 1, 1), dtype=np.int64)
