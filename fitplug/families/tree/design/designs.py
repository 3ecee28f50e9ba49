"""Rounding a member of a tree's family to integers (docs/theory/trees.md).

At node v, block A measures its children with the matrix A_v (x) M_v, where A_v'A_v is near a
multiple of X_v, and M_v'M_v near a multiple of Y_v. A_v is upper trapezoidal, and M_v upper
triangular. With one class of dense cells, M_v is 1 and A_v has all the bits; otherwise the two
share them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fitplug.certify import Ended
from fitplug.errors import DesignError
from fitplug.families.base.contrasts import build_contrasts, compute_precisions, make_contrasts
from fitplug.families.base.family import (
    LEAST_RECORDS,
    TREE_BOUND_MARGIN,
    Design,
    Duals,
    add_claim_margins,
    build_strategy,
    choose_bits,
    evaluate_at_targets,
)
from fitplug.families.base.mechanism import MAX_ENTRY
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.families.tree.design.bound_ascent import ascend_tree_bound
from fitplug.families.tree.design.child_covariances import (
    ChildCovariances,
    IdenticalCovariances,
    KroneckerCovariances,
)
from fitplug.families.tree.design.descent import descend_trees
from fitplug.families.tree.design.dual_optimum import ascend_number_trees
from fitplug.families.tree.design.family import Sweep, sum_profiles, sum_variances
from fitplug.families.tree.design.pair_descent import descend_tree_pairs
from fitplug.families.tree.design.person_descent import descend_person_trees
from fitplug.families.tree.design.sibling_covariance import build_strategies
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.pairs import TreePairStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.families.tree.shape.root_totals import RootTotals
from fitplug.families.tree.strategy.blocks import TreeBlock, TreeIntegers
from fitplug.families.tree.strategy.child_matrices import StepMatrices
from fitplug.numeric import FloatArray, IntArray
from fitplug.solve import Options
from fitplug.workload import ONE_RECORD

_BITS = (20, 23, 26, 29, 32)
"""Binary logarithms of the largest column norm, tried until rounding costs little enough."""

_SHARED_BITS = 15
"""Binary logarithm of the largest entry of A_v if M_v has the other bits."""


def round_trees(
    structure: TreeStructure,
    sweeps: Sequence[Sweep],
    *,
    objective: Objective,
    upper: float,
    loss: float,
) -> IntegerStrategy[Structure]:
    """Round the results of sweeps over all measured blocks.

    Args:
        structure: The structure.
        sweeps: The results of the sweeps.
        objective: The objective of the design.
        upper: The objective of the real strategies at their targets; 0 if unknown.
        loss: Bits are added until the objective of the integers is at most upper * (1 + loss),
            until (for unknown `upper`) they change it by no more than this share, or until there is
            no room for more bits.

    Raises:
        DesignError: If variances cannot be bounded, or integers have no room for the strategy.
    """
    every = structure.noisy_blocks
    unit = math.sqrt(float(sum_profiles(structure, sweeps).max()))
    scales = 1 / (unit * np.sqrt(compute_precisions(structure, every)))
    best: IntegerStrategy[Structure] | None = None
    reached = math.inf
    for bits in choose_bits(_BITS, structure.shares):
        shared = _SHARED_BITS if structure.shares == 1 else min(_SHARED_BITS, bits // 2)
        try:
            blocks = tuple(
                _round_block(structure, block, sweep, 2.0**bits * float(scale), shared)
                for block, sweep, scale in zip(every.tolist(), sweeps, scales, strict=True)
            )
        except OverflowError:
            break
        strategy = build_strategy(structure, make_contrasts(structure), blocks)
        if best is not None and strategy.max_records < LEAST_RECORDS:
            break
        before, reached = reached, evaluate_at_targets(strategy, objective)
        best = strategy if reached < before or best is None else best
        if reached <= upper * (1 + loss) or (
            not upper and math.isclose(reached, before, rel_tol=loss)
        ):
            break
    if best is None:
        raise DesignError(
            "the targets at the nodes of a hierarchy differ too much in size. Use targets of more "
            "similar size."
        )
    return add_claim_margins(best)


def _round_block(
    structure: TreeStructure, block: int, sweep: Sweep, scale: float, shared: int
) -> TreeBlock:
    """Round one block.

    Raises:
        OverflowError: If an entry is too large for floats.
    """
    root = _round_root(structure.find_totals(block), sweep, scale)
    steps = (_round_step(covariances, scale, shared) for covariances in sweep.steps)
    return TreeBlock(block, root, tuple(steps))


def _round_root(totals: RootTotals, sweep: Sweep, scale: float) -> IntArray:
    """Round the matrix of the root, shape (n, n)."""
    precision: FloatArray = sweep.root[1]
    if totals.count:
        # Conditional on public totals, the measured classes determine the others.
        measured = np.ix_(totals.measured, totals.measured)
        precision = np.asarray(np.linalg.inv(sweep.root[0][measured]))
    if not len(precision):
        return np.zeros((0, 0), dtype=np.int64)
    rounded: IntArray = _round_upper(_triangulate(precision[None]) * scale)[0]
    return rounded


def _round_step(covariances: ChildCovariances, scale: float, shared: int) -> StepMatrices:
    """Round the matrices of the nodes of one step."""
    if isinstance(covariances, IdenticalCovariances):
        return _round_identical(covariances, scale)
    assert isinstance(covariances, KroneckerCovariances)
    A = build_strategies(covariances.siblings)
    if covariances.precisions.shape[1] == 1:
        rounded = _round_upper(A * (scale * np.sqrt(covariances.precisions)))
        return StepMatrices(rounded, _make_ones(len(A)))
    unit = 2.0**shared / np.abs(A).max(axis=(1, 2), keepdims=True)
    M = _triangulate(covariances.precisions) * (scale / unit)
    return StepMatrices(_round_upper(A * unit), _round_upper(M))


def _round_identical(covariances: IdenticalCovariances, scale: float) -> StepMatrices:
    """Round the multipliers of identical leaves, or the matrices of their dense cells."""
    counts, place = np.unique(covariances.counts.astype(np.int64), return_inverse=True)
    precisions = np.array([build_contrasts(k).precision for k in counts.tolist()], np.float64)
    unit = scale / np.sqrt(precisions[place.ravel()])
    if covariances.precisions.shape[1] > 1:
        M = _round_upper(_triangulate(covariances.precisions) * unit[:, None, None])
        return StepMatrices(np.ones(len(unit), dtype=np.int64), M)
    multipliers = np.sqrt(covariances.precisions) * unit[:, None, None]
    return StepMatrices(_round_upper(multipliers)[:, 0, 0], _make_ones(len(unit)))


def _triangulate(precisions: FloatArray) -> FloatArray:
    """Compute upper triangular G with G'G = Y for matrices Y (b, r, r)."""
    return np.asarray(np.linalg.cholesky(precisions).transpose(0, 2, 1))


def _round_upper(A: FloatArray) -> IntArray:
    """Round upper triangular or trapezoidal matrices (b, m, n), keeping their full rank."""
    rounded = np.triu(np.rint(A))
    if not np.abs(rounded).max() < MAX_ENTRY:
        raise OverflowError("an entry is too large for floats")
    at = np.arange(A.shape[1])
    rounded[:, at, at] = np.maximum(rounded[:, at, at], 1.0)
    return rounded.astype(np.int64)


def _make_ones(b: int) -> IntArray:
    """Make b matrices of shape (1, 1) with the entry 1."""
    return np.ones((b, 1, 1), dtype=np.int64)


def design_trees(
    structure: TreeStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the best member of the family of trees.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        DesignError: If an integer strategy cannot be made or bounded.
    """
    best = descend_trees(structure, objective, options)
    strategy = round_trees(structure, best.sweeps, objective=objective, upper=best.upper, loss=loss)
    if structure.cells == 1:
        duals = ascend_number_trees(structure, objective, best.duals, best.upper, options.tolerance)
    else:
        duals = ascend_tree_bound(structure, objective, best.proving, best.upper, options.tolerance)
    return _make_design(strategy, duals, best.iterations, best.ended)


def design_tree_pairs(
    structure: TreePairStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the best member of the family of trees for the mean cost of pairs of cells.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        DesignError: If an integer strategy cannot be made or bounded.
    """
    members = descend_tree_pairs(structure, options)
    # The least possible largest cost is unknown, so bits are added until they gain nothing.
    strategies = [
        round_trees(structure, member.sweeps, objective=objective, upper=0.0, loss=loss)
        for member in members
    ]
    strategy = min(strategies, key=lambda one: evaluate_at_targets(one, objective))
    member = members[-1]
    return _make_design(strategy, member.duals, member.iterations, member.ended)


def design_person_trees(
    structure: PersonTreeStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the best known strategy, for the plain objective.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        DesignError: If an integer strategy cannot be made or bounded.
    """
    once = TreeStructure(
        structure.workload,
        ONE_RECORD,
        structure.symmetric,
        structure.subsets,
        structure.tree_attribute,
        structure.merges_leaves,
    )
    single = descend_trees(once, objective, options)
    several = descend_person_trees(structure, options)
    if several.sets is not None:
        structure = replace(structure, named=several.sets)
    strategies = [
        _round_member(structure, once, member.sweeps, objective, loss)
        for member in (single, several)
    ]
    strategy = min(strategies, key=lambda one: evaluate_at_targets(one, objective))
    iterations = single.iterations + several.iterations
    ended = single.ended if single.stopped else several.ended
    return _make_design(strategy, several.duals, iterations, ended)


def _make_design(
    strategy: IntegerStrategy[Structure], duals: Duals, iterations: int, ended: Ended
) -> Design:
    return Design.in_one_tier(
        strategy,
        duals,
        bound_margin=TREE_BOUND_MARGIN,
        iterations=iterations,
        ended=ended,
    )


def _round_member(
    structure: PersonTreeStructure,
    once: TreeStructure,
    sweeps: Sequence[Sweep],
    objective: Objective,
    loss: float,
) -> IntegerStrategy[Structure]:
    """Round a member of the family to integers, as closely as needed for one record."""
    ratios = sum_variances(once, sweeps) / once.targets
    upper = math.sqrt(float(sum_profiles(once, sweeps).max()) * float(ratios.max()))
    rounded = round_trees(once, sweeps, objective=objective, upper=upper, loss=loss)
    assert isinstance(rounded, TreeIntegers)
    strategy = build_strategy(structure, make_contrasts(structure), rounded.tree_blocks)
    return add_claim_margins(strategy)
