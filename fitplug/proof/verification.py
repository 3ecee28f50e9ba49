"""Verification: a plan's claims, recomputed from what it contains by code that knows no solver.

Every claim must be what is recomputed: integers exactly; floats, which another machine may round
otherwise, on the safe side by LOOSEST at most, relatively. What no claim depends on, the tolerance
asked for, the iterations and how the design ended, is told to people and decides nothing.
"""

from __future__ import annotations

import math
from typing import get_args

import numpy as np

from fitplug.errors import DesignError, PlanError
from fitplug.mechanism import (
    FEWEST_RECORDS,
    LARGEST_NOISE,
    LEAST_NOISE,
    MAX_COEFFICIENT,
    MAX_ENTRY,
    Basis,
    BlockSet,
    Contrast,
    DenseMatrix,
    Strategy,
    TreeMatrix,
    contrast,
    cost,
    unit_variances,
    within,
)
from fitplug.numeric import AnyArray, FloatArray, find_largest_entry
from fitplug.proof.certificate import WHOLE, Frame, dual_sizes
from fitplug.proof.plan_record import LEAST_TOLERANCE, Ended, PlanRecord
from fitplug.proof.tiers import Tiers
from fitplug.structure import Objective, Structure

LOOSEST = 1e-8
"""How much worse than what is recomputed a claim in floats may be, relatively: ten times the widest
margin that designs leave for other machines."""


def check_form(plan: PlanRecord) -> None:
    """Raise PlanError unless every part has the shape, type and range that it must have."""
    structure, strategy = plan.structure, plan.strategy
    m, d = structure.rows, structure.cells
    for block_set in strategy.block_sets:
        _check_family(block_set, structure)
    _check_splits(strategy)
    measured = [block for block_set in strategy.block_sets for block in block_set.blocks.tolist()]
    if sorted(measured) != list(range(len(structure.blocks))):
        raise PlanError("the strategy does not measure each block once")
    for number in (plan.noise_std, plan.scale, plan.lower_bound):
        if not 0 < number < math.inf:
            raise PlanError("the noise, the scale or the lower bound is not a positive number")
    if not LEAST_NOISE <= plan.noise_std <= LARGEST_NOISE:
        raise PlanError("the noise is next to none, or more than 64-bit integers hold")
    unit, squares = strategy.unit_variances, strategy.column_squares
    if unit.shape != (m,) or unit.dtype != np.float64 or not (unit >= 0).all():
        raise PlanError("the variances are not numbers, one for each query")
    if squares.shape != (d,) or squares.dtype != np.float64 or not (squares >= 0).all():
        raise PlanError("the privacy profile is not a number for each cell")
    if not LEAST_TOLERANCE <= plan.tolerance < 1 or plan.iterations < 0:
        raise PlanError("the tolerance or the number of iterations is out of range")
    if plan.ended not in get_args(Ended):
        raise PlanError("it does not say how the design ended")
    if structure.ordered and not plan.objective.plain:
        raise PlanError("the residual family has the plain objective only")
    _check_objective(plan.objective, d)
    if type(plan.frame) is not Frame or (plan.frame == WHOLE) == bool(structure.ordered):
        raise PlanError("the frame of the dual weights is not one of the structure's")
    _check_tiers(plan.weights, d, *dual_sizes(structure))


def check_privacy(plan: PlanRecord) -> None:
    """Raise PlanError unless the privacy cost claimed is that of the integers that will run."""
    strategy = plan.strategy
    exact, above, records = cost(plan.structure, strategy.block_sets, strategy.attribute_matrices)
    if exact != strategy.sensitivity_squared:
        raise PlanError("the privacy cost is not the one the plan claims")
    if strategy.max_records != records:
        raise PlanError("the number of records it holds is not the one the plan claims")
    if records < FEWEST_RECORDS:
        raise PlanError(f"its integers do not hold {FEWEST_RECORDS:,} records")
    if not _claimed(strategy.column_squares, above):
        raise PlanError("the privacy profile is not the one the plan claims")
    if not np.array_equal(plan.weights.of_cell < 0, above == 0):
        raise PlanError("the tiers leave out cells that cost something")
    budgets = plan.objective.budgets
    if budgets is not None and not (strategy.profile(plan.noise_std) <= budgets).all():
        raise PlanError("the privacy profile is not within the cell budgets")


def verify(plan: PlanRecord) -> None:
    """Raise PlanError, saying which claim of the plan does not hold."""
    check_form(plan)
    check_privacy(plan)
    structure, strategy = plan.structure, plan.strategy
    try:
        variances = unit_variances(structure, strategy.block_sets, strategy.attribute_matrices)
        certified = plan.bound_at(plan.p, plan.q)
    except (DesignError, ValueError) as error:
        raise PlanError(f"the plan does not prove its claims: {error}") from None
    if not _claimed(strategy.unit_variances, variances):
        raise PlanError("the variances are not those the plan claims")
    reached = strategy.variances(plan.noise_std)
    if not within(reached, plan.scale, structure.targets):
        raise PlanError("some target is not met")
    if not plan.scale * (1 - LOOSEST) <= float((reached / structure.targets).max()):
        raise PlanError("the targets are scaled by more, or there is less noise, than need be")
    if not certified * (1 - LOOSEST) <= plan.lower_bound <= certified:
        raise PlanError("the lower bound is not the one that the plan's dual weights certify")


def _claimed(bounds: AnyArray, proven: AnyArray) -> bool:
    """Whether upper bounds are the proven ones, or above them by LOOSEST at most."""
    return bool(((proven <= bounds) & (bounds <= proven * (1 + LOOSEST))).all())


def _check_family(block_set: BlockSet, structure: Structure) -> None:
    blocks, M = block_set.blocks, block_set.M
    fits = blocks.dtype == np.int64 and blocks.ndim == 1 and len(blocks) > 0
    fits = fits and 0 <= int(blocks.min()) <= int(blocks.max()) < len(structure.blocks)
    if not fits or not (structure.scalar or len(blocks) == 1):
        raise PlanError("the strategy measures blocks that the workload does not have")
    if structure.scalar and block_set.basis.kind != "cells":
        # Their sensitivity is counted for the cells themselves: a scaled row would cost more.
        raise PlanError("the basis is not the one cell that is left")
    block = int(blocks[0])
    matrix = np.ones((1, 1)) if structure.scalar else structure.piece(block).matrix
    _check_basis(block_set.basis, matrix)
    n = block_set.basis.size
    if M.dtype != np.int64 or M.shape != (len(blocks), n, n):
        raise PlanError("the strategy is not a square integer matrix over its basis")
    at = np.arange(n)
    if np.tril(M, -1).any() or (M[:, at, at] <= 0).any():
        raise PlanError("the strategy is not an invertible upper triangular matrix")
    if find_largest_entry(M) >= MAX_ENTRY:
        raise PlanError("the strategy's integers are too large")


def _check_splits(strategy: Strategy) -> None:
    structure = strategy.structure
    for name, n, split in zip(
        structure.split, structure.sizes, strategy.attribute_matrices, strict=True
    ):
        if name not in structure.ordered:
            fits = isinstance(split, Contrast) and (split.n, split.kind) == (n, contrast(n).kind)
        elif isinstance(split, TreeMatrix):
            m = split.multipliers
            fits = split.n == n and _fits(split.top.matrix, split.shape.top)
            fits = fits and m.dtype == np.int64 and m.shape == (split.shape.branching,)
            fits = fits and (not m.size or 1 <= int(m.min()) <= int(m.max()) < MAX_ENTRY)
        else:
            fits = isinstance(split, DenseMatrix) and _fits(split.matrix, n)
        if not fits:
            raise PlanError(f"what it measures of {name!r} is not an integer matrix of its cells")


def _fits(matrix: AnyArray, n: int) -> bool:
    fits = matrix.dtype == np.int64 and matrix.shape == (n - 1, n)
    return fits and (not matrix.size or find_largest_entry(matrix) < MAX_ENTRY)


def _check_basis(basis: Basis, matrix: FloatArray) -> None:
    index, scale = basis.index, basis.scale
    m, d = matrix.shape
    if basis.kind == "cells":
        fits = index.shape == (d,)
        classes = np.unique(index[index >= 0])
        fits = fits and len(classes) > 0 and np.array_equal(classes, np.arange(len(classes)))
        fits = fits and int(index.min()) >= -1
        fits = fits and scale.dtype == np.float64 and np.array_equal(scale, np.ones(len(classes)))
    else:
        fits = basis.kind == "rows" and index.ndim == 1 and len(np.unique(index)) == len(index) > 0
        fits = fits and 0 <= int(index.min()) <= int(index.max()) < m
        fits = fits and scale.shape == index.shape and _positive(scale)
        fits = fits and bool((np.frexp(scale)[0] == 0.5).all())
    if index.dtype != np.int64 or not fits:
        raise PlanError("the basis is neither classes of cells nor distinct rows of the workload")
    if basis.kind == "rows":
        # Checked before the cost is: what a cast to integers makes of others is not defined.
        rows = matrix[index] * scale[:, None]
        if not ((np.abs(rows) <= MAX_COEFFICIENT) & (rows == np.rint(rows))).all():
            raise PlanError("the basis is not made of integer rows of the workload")


def _check_objective(objective: Objective, d: int) -> None:
    budgets = objective.budgets
    if budgets is not None and (budgets.shape != (d,) or not _positive(budgets)):
        raise PlanError("the cell budgets are not positive numbers, one for each cell")
    if not 0 <= objective.weight < math.inf:
        raise PlanError("the weight of the total squared error is not a number from 0 up")


def _check_tiers(tiers: Tiers, cells: int, d: int, m: int) -> None:
    of_cell, p, q = tiers.arrays()
    fits = of_cell.dtype == np.int64 and of_cell.shape == (cells,)
    fits = fits and int(of_cell.min()) >= -1 and int(of_cell.max()) <= len(p) + 1
    fits = fits and p.shape == (len(p), d) and q.shape == (len(p), m)
    fits = fits and len(np.unique(of_cell[of_cell >= 0])) == int(of_cell.max()) + 1
    if not fits or not all(_weights(x) for x in (p, q)):
        raise PlanError("the tiers are not cells with dual weights")


def _weights(rows: AnyArray) -> bool:
    finite = rows.dtype == np.float64 and bool(((rows >= 0) & (rows < math.inf)).all())
    return finite and bool((rows.sum(axis=1) > 0).all())


def _positive(values: AnyArray) -> bool:
    return values.dtype == np.float64 and bool(((values > 0) & (values < math.inf)).all())
