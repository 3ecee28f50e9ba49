"""The descent of the product family: several attributes whose product is too large to write down.

The covariances (u_a, C_a) begin at the optimum of each attribute by itself. Each iteration takes a
step in the Lagrangian (F16)

    sum_A z_A^-1 prod_{a in A} p_a'eta_a + sum_A z_A (K'q)_A

from one set of its derivatives: z_A is a square root, C_a a geometric mean, u_a the solution of a
linear system, and the weights p_a and q ascend by the multiplicative steps (F21). It is not proven
that the value decreases in each iteration, so the member of least cost that was seen is kept.
Where targets do not vary along an attribute, q is a product along it. See
docs/theory/product-family.md, "Descent in the splits".
The weights prove a lower bound on the privacy cost of every mechanism; see
`fitplug.families.product.design.bound_ascent`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fitplug.families.product.design.attribute_covariance import AttributeCovariance
from fitplug.families.product.design.initial_member import optimise_attributes
from fitplug.families.product.design.members import FamilyMember, FamilyWeights
from fitplug.families.product.design.profiles import build_profiles
from fitplug.families.product.design.scales import (
    Scales,
    VarianceMatrix,
    build_extreme_rows,
    compute_scales,
    optimise_scales,
)
from fitplug.families.product.shape.batches import BatchedGroups, gather_tables
from fitplug.families.product.shape.products import ProductStructure
from fitplug.numeric import FloatArray, to_positions
from fitplug.solve import GapProgress, mix_with_uniform

_MIXING = 0.03
"""The mass of uniform weights that a step mixes in, as a multiple of the tolerance."""

_RELAXATION = 1.4
"""The power of the factors by which weights are raised, after the first round."""

_MOVES = 3
"""The covariances move in every so manieth iteration: the weights need far more of them."""

_WORSE = 0.02
"""If a round raises the cost by more than this part, steps are plain from the best member on."""

_ROUND = 24
"""Iterations between two evaluations of the true privacy cost."""

_WORK = 1e10
"""The sum of the cubes of the attributes' widths, for each variant, times the moves."""


def descend_product_family(
    structure: ProductStructure,
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 600,
    progress: GapProgress | None = None,
) -> FamilyMember:
    """Find a good member of the product family by alternating descent.

    Args:
        structure: A structure of the product family.
        tolerance: The descent ends when two rounds in turn lower the privacy cost by no more than
            this part, and the weights have settled. The scales are optimal to a fraction of it.
        max_iterations: The largest number of iterations.
        progress: Called with the iterations so far and the relative difference between the member's
            cost and the value that the family might reach; it may ask to stop.

    Raises:
        WorkloadError: If too many queries have targets of their own.
        DesignError: As the dual solver does.
    """
    batched = structure.batched
    covariances, weights = optimise_attributes(batched)
    cubes = sum(
        n**3.0 * (len(own.starts) - 1)
        for n, symmetric, own in zip(batched.widths, batched.symmetric, batched.grades, strict=True)
        if not symmetric
    )
    # A single attribute is at its optimum already, and so are symmetric ones.
    descends = len(covariances) > 1 and cubes > 0
    most = min(max_iterations, 1 + int(_MOVES * _WORK / cubes)) if descends else 0
    measures = _measure(batched, covariances)
    best = _scale(measures, covariances, weights, tolerance)
    idle, last, done, stopped, every = 0, 0.0, 0, False, _MOVES
    while done < most and not stopped:
        try:
            for _ in range(min(_ROUND, most - done)):
                moved, weights, value = _descend(
                    measures,
                    covariances,
                    weights,
                    mixing=_MIXING * tolerance,
                    power=_RELAXATION if done >= _ROUND and every > 1 else 1.0,
                    moves=done % every == 0,
                )
                if moved is not covariances:
                    covariances, measures = moved, _measure(batched, moved)
                done += 1
        except np.linalg.LinAlgError:
            # Floating point can go no further; the best member so far is returned.
            break
        found = _scale(measures, covariances, weights, tolerance, best.scales)
        if every > 1 and found.upper > best.upper * (1 + _WORSE):
            # The steps are too long for this workload.
            every, covariances, weights = 1, best.covariances, best.weights
            measures = _measure(batched, covariances)
            continue
        idle = 0 if found.upper < best.upper * (1 - tolerance) else idle + 1
        best = min(best, found, key=lambda member: member.upper)
        if progress is not None:
            stopped = progress(done, max(best.upper / value - 1, tolerance)) is True
        if idle >= 2 and abs(value - last) <= tolerance / 4 * value:
            break
        last = value
    return replace(best, weights=weights, iterations=done, stopped=stopped)


@dataclass(frozen=True, eq=False)
class _Measures:
    """What some covariances say of rows and cells.

    Attributes:
        batched: The groups.
        tables: mu^2 and gammas of the rows of each factor, shape (r, 1 + K).
        eta: Of each attribute's cells, shape (n, K) or (1, K).
    """

    batched: BatchedGroups
    tables: list[FloatArray]
    eta: list[FloatArray]


def _measure(batched: BatchedGroups, covariances: Sequence[AttributeCovariance]) -> _Measures:
    """Measure rows and cells by covariances."""
    eta = [covariance.compute_eta() for covariance in covariances]
    return _Measures(batched, batched.compute_tables(covariances), eta)


def _scale(
    measures: _Measures,
    covariances: tuple[AttributeCovariance, ...],
    weights: FamilyWeights,
    tolerance: float,
    near: Scales | None = None,
) -> FamilyMember:
    """Return the member with the best scales for these covariances."""
    rows = build_extreme_rows(measures.batched, measures.tables, tolerance / 10)
    profiles = build_profiles(measures.batched.scales, measures.eta)
    scales = optimise_scales(rows, profiles, tolerance=tolerance / 4, near=near)
    return FamilyMember(measures.batched, covariances, scales, weights)


def _descend(
    measures: _Measures,
    covariances: tuple[AttributeCovariance, ...],
    weights: FamilyWeights,
    *,
    mixing: float,
    power: float,
    moves: bool,
) -> tuple[tuple[AttributeCovariance, ...], FamilyWeights, float]:
    """Make one iteration: find the scales, raise the weights, and may move every covariance.

    The last result is half of the Lagrangian before the iteration, which is the privacy cost if
    nothing can be gained.
    """
    batched, tables, eta = measures.batched, measures.tables, measures.eta
    mean_eta = [(p[:, None] * own).sum(axis=0) for p, own in zip(weights.cells, eta, strict=True)]
    costs = batched.scales.multiply(mean_eta)
    ascent = ascend_queries(batched, tables, weights, costs, mixing=mixing, power=power)
    spent, total = ascent.spent, ascent.total
    moved, cells = list(covariances), list(weights.cells)
    for a, covariance in enumerate(covariances):
        # Symmetry keeps the weights of a symmetric attribute uniform.
        if batched.symmetric[a] or not mean_eta[a].any():
            continue
        labels = to_positions(batched.scales.label(a))
        by_grade = np.bincount(labels, spent, 1 + len(mean_eta[a]))[1:]
        prices = by_grade / np.where(mean_eta[a] > 0, mean_eta[a], 1.0)
        p = cells[a]
        if moves:
            own_pulls = [
                (factor, pull)
                for factor, pull in zip(batched.factors, ascent.pulls, strict=True)
                if factor.attribute == a
            ]
            moved[a] = covariance.descend(p, prices, own_pulls)
        grown = p * (1 + (eta[a] @ prices - by_grade.sum()) / total) ** power
        cells[a] = mix_with_uniform(grown / grown.sum(), mixing)
    raised = FamilyWeights(tuple(cells), ascent.queries, ascent.shares)
    return tuple(moved) if moves else covariances, raised, total


@dataclass(frozen=True, eq=False)
class QueryAscent:
    """The best scales for weights of cells and queries, and a step of ascent of the latter.

    Attributes:
        z: The scales, shape (count,).
        spent: The half of the Lagrangian that each scale has, shape (count,).
        queries: The weights of rows after the step, as `FamilyWeights` has them.
        shares: Those of the rows of factors, likewise.
        pulls: The derivatives of the Lagrangian by mu^2 and gammas of each factor, (r, 1 + K).
    """

    z: FloatArray
    spent: FloatArray
    queries: tuple[FloatArray, ...]
    shares: tuple[FloatArray, ...]
    pulls: tuple[FloatArray, ...]

    @property
    def total(self) -> float:
        """Half of the Lagrangian, which is the privacy cost if nothing can be gained."""
        return float(self.spent.sum())


def ascend_queries(
    batched: BatchedGroups,
    tables: Sequence[FloatArray],
    weights: FamilyWeights,
    costs: FloatArray,
    *,
    mixing: float,
    power: float = 1.0,
) -> QueryAscent:
    """Find the scales, and raise the weights of queries, for what scales cost at 1, (count,)."""
    rows = _mix_rows(batched, tables, weights.shares)
    q = np.concatenate([own.ravel() for own in weights.queries])
    needed = rows.multiply_transposed(q)
    z, spent = compute_scales(costs, needed), np.sqrt(costs * needed)
    raised = q * (rows.multiply(z) / float(spent.sum())) ** power
    raised = mix_with_uniform(raised / raised.sum(), mixing)
    cuts = np.cumsum([own.size for own in weights.queries])[:-1]
    queries = tuple(
        new.reshape(old.shape)
        for new, old in zip(np.split(raised / raised.sum(), cuts), weights.queries, strict=True)
    )
    pulls, shares = _differentiate(batched, tables, rows, weights, q, z, power)
    mixed = tuple(mix_with_uniform(share, mixing) for share in shares)
    return QueryAscent(z, spent, queries, mixed, tuple(pulls))


def _mix_rows(
    batched: BatchedGroups, tables: Sequence[FloatArray], shares: Sequence[FloatArray]
) -> VarianceMatrix:
    """Build K, with the rows along an axis where targets do not vary mixed by their shares."""
    mixtures = [(share @ table)[None] for share, table in zip(shares, tables, strict=True)]
    axes = tuple(
        tuple(
            gather_tables(tables if varies else mixtures, own)
            for own, varies in zip(batch.factors.T, batch.varying, strict=True)
        )
        for batch in batched.batches
    )
    return VarianceMatrix(
        tuple(batch.scales for batch in batched.batches),
        axes,
        tuple(batch.targets for batch in batched.batches),
        batched.scales.count,
    )


def _differentiate(
    batched: BatchedGroups,
    tables: Sequence[FloatArray],
    rows: VarianceMatrix,
    weights: FamilyWeights,
    q: FloatArray,
    z: FloatArray,
    power: float,
) -> tuple[list[FloatArray], tuple[FloatArray, ...]]:
    """Differentiate the Lagrangian by mu^2 and gamma of the rows of each factor.

    Returns the derivatives of each factor (r, 1 + K), and the shares (r,) after an ascent.
    """
    pulls = [np.zeros_like(table) for table in tables]
    mixed = [np.zeros(table.shape[1]) for table in tables]
    batches = zip(batched.batches, rows.divide_by_targets(q), rows.tables, strict=True)
    for batch, weighted, axes in batches:
        for axis, own in enumerate(batch.factors.T):
            slope = _contract(weighted, batched.scales.gather(z, batch.scales), axes, axis)
            if batch.varying[axis]:
                for f in np.unique(own):
                    pulls[f] += slope[own == f].sum(axis=0)
            else:
                for f, one in zip(own.tolist(), slope[:, 0], strict=True):
                    mixed[f] += one
    raised = []
    for pull, table, share, slope in zip(pulls, tables, weights.shares, mixed, strict=True):
        pull += np.outer(share, slope)
        grown = share * (table @ slope) ** power
        raised.append(grown / grown.sum() if grown.sum() > 0 else share)
    return pulls, tuple(raised)


def _contract(
    weighted: FloatArray, z: FloatArray, tables: tuple[FloatArray, ...], axis: int
) -> FloatArray:
    """Differentiate sum weighted * (z contracted with all tables) by the table of an axis.

    Args:
        weighted: Weights over targets, shape (g, r_1, ..., r_m).
        z: Scales, shape (g, 1 + K_1, ..., 1 + K_m).
        tables: m tables, shape (g, r_i, 1 + K_i).
        axis: The table's index.

    Returns:
        The derivative, shape (g, r, 1 + K).
    """
    weighted = np.moveaxis(weighted, 1 + axis, -1)
    for i, table in enumerate(tables):
        if i != axis:
            weighted = np.einsum("gi...r,gia->g...ar", weighted, table)
    g, r = len(weighted), weighted.shape[-1]
    z = np.moveaxis(z, 1 + axis, -1)
    z = z.reshape(g, -1, z.shape[-1])
    return np.asarray(np.einsum("gxr,gxa->gra", weighted.reshape(g, -1, r), z))
