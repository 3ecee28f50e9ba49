"""Dual weights for the product bound, from a few steps of ascent.

The bound of `fitplug.families.product.certificate.product_bound` is <Z, X> / sqrt(sum q) for a
matrix Z of norm 1. As in the dual solver, each of the weights w and y becomes its share of <Z, X>,
divided by its share of sum q, and each weight p becomes its share of <Z, X>
(`fitplug.families.product.design.cell_ascent`). The bound holds for any weights, so nothing here
needs to be trusted. See docs/theory/product-bound.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fitplug.families.base.periods import PeriodNorm
from fitplug.families.product.certificate.gram_matrices import (
    MAX_WORK,
    GramTerms,
    decompose_symmetric,
    place_terms,
)
from fitplug.families.product.certificate.product_bound import (
    ScaledDuals,
    lower_product_cost,
    scale_duals,
)
from fitplug.families.product.certificate.product_duals import ProductDuals, plan_splits
from fitplug.families.product.design.cell_ascent import (
    ascend_cells,
    couple_totals,
    normalise_gains,
    share_among_nodes,
)
from fitplug.families.product.design.members import FamilyWeights
from fitplug.families.product.shape.batches import BatchedGroups
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray

_TILTS = (0.06, 0.12, 0.3, 1.0)
_RESTS = 512
"""The rests of an attribute, of each kind, unless they are too many for frames of one column."""

_STEPS = 40
"""The most steps of ascent between two sizes of frames."""

_LEAST_STEP = 2e-6
"""An ascent ends at a step with less than this relative gain."""

_WORK = 6e9
"""The limit on the sum of the widths cubed times the steps: about half a minute."""

_LEAST_GAIN = 1e-4
"""The least relative gain of a larger frame that counts as progress."""

_LEAST_GROUP = 1e-30
"""The least weight of a group: no group drops out during the ascent."""


@dataclass(frozen=True, eq=False)
class _Climb:
    """An ascent with frames of one size.

    Attributes:
        value: The best bound so far, not certified.
        best: The weights that attain it.
        following: The weights after the next step.
    """

    value: float
    best: ProductDuals
    following: ProductDuals


def ascend_product_bound(
    batched: BatchedGroups, weights: FamilyWeights
) -> tuple[ProductDuals, float]:
    """Find dual weights with a high product bound, starting from any weights.

    The frames grow as far as the limits of `fitplug.families.product.certificate.gram_matrices`
    allow. If not even frames of one column fit, all weight goes to one group.

    Args:
        batched: The groups of the workload.
        weights: The weights to start from.

    Returns:
        The weights and their certified bound on the privacy cost of every mechanism.

    Raises:
        ValueError: If the bound cannot be evaluated.
    """
    duals = ascend_duals(batched, fit_product_duals(batched, weights))
    return duals, lower_product_cost(batched, duals)


def ascend_duals(
    batched: BatchedGroups, duals: ProductDuals, norms: Sequence[PeriodNorm] = ()
) -> ProductDuals:
    """Find dual weights with a high product bound, starting from any frames of one column.

    Args:
        batched: The groups of the workload.
        duals: The weights to start from.
        norms: Whose sum is to be large; none for the plain norm.
    """
    norms = norms or [PeriodNorm(1.0, np.ones(len(duals.w)), 1.0)]
    largest = max(batched.widths, default=1)
    # If only one attribute has several columns, its frame takes all of them, which is exact.
    t = largest if sum(n > 1 for n in batched.widths) == 1 else 1
    choices = _choose_rests(batched, duals, t)
    top, idle = _Climb(0.0, duals, duals), 0
    steps_left = 1 + _WORK / (1 + sum(float(n) ** 3 for n in batched.widths))
    while idle < 2 and steps_left > 0:
        # The best weights for frames of one column are a poor start for larger frames.
        start = replace(top.best if top.best.t > 1 else duals, t=t)
        climbs = [
            (climb, gram_matrices)
            for rests in choices
            for climb, gram_matrices in _begin_climbs(batched, replace(start, rests=rests), norms)
        ]
        if not climbs:
            break
        climb, gram_matrices = max(climbs, key=lambda one: one[0].value)
        choices = [climb.best.rests]
        steps = math.ceil(min(_STEPS, MAX_WORK / gram_matrices.work, steps_left))
        steps_left -= steps + len(climbs)
        climb = _climb(batched, gram_matrices, climb, steps - 2, norms)
        idle = 0 if climb.value > top.value * (1 + _LEAST_GAIN) else idle + 1
        top = max(top, climb, key=lambda one: one.value)
        if t == largest:
            break
        t = min(largest, t + max(1, t // 2))
    if not top.value:
        costs, _ = _compute_costs(batched, duals)
        costliest = np.arange(len(duals.w)) == (duals.w * costs).argmax()
        return replace(duals, w=costliest.astype(np.float64))
    return top.best


def _choose_rests(batched: BatchedGroups, duals: ProductDuals, t: int) -> list[int]:
    """Choose the numbers of rests to try: as many as fit, and one."""
    fewest = plan_splits(batched, replace(duals, t=t, rests=1))
    most = _RESTS
    while most > 1:
        splits = plan_splits(batched, replace(duals, t=t, rests=most))
        if sum(split.rests for split in splits) == sum(split.rests for split in fewest):
            break
        if place_terms(batched, splits, duals.w > 0) is not None:
            return [most, 1]
        most //= 2
    return [1]


def _begin_climbs(
    batched: BatchedGroups, start: ProductDuals, norms: Sequence[PeriodNorm]
) -> Iterator[tuple[_Climb, GramTerms]]:
    """Start an ascent with every tilt, or none if frames and rests are too many."""
    splits = plan_splits(batched, start, has_mean=any(norm.mean != 1 for norm in norms))
    gram_matrices = place_terms(batched, splits, start.w > 0)
    if gram_matrices is not None:
        tilted = any(
            split.columns and not symmetric
            for split, symmetric in zip(splits, batched.symmetric, strict=True)
        )
        for tilt in _TILTS if tilted else _TILTS[-1:]:
            climb = _Climb(0.0, start, replace(start, tilt=tilt))
            yield _climb(batched, gram_matrices, climb, 2, norms), gram_matrices


def fit_product_duals(batched: BatchedGroups, weights: FamilyWeights) -> ProductDuals:
    """Return weights of product form near the given ones."""
    y = [np.zeros(factor.count) for factor in batched.factors]
    w = np.zeros(len(batched.workload.groups))
    for batch, q in zip(batched.batches, weights.queries, strict=True):
        relative = q / batch.targets
        g = len(relative)
        w[batch.groups] = relative.reshape(g, -1).sum(axis=1)
        for axis, (factors, varies) in enumerate(zip(batch.factors.T, batch.varying, strict=True)):
            along = np.moveaxis(relative, 1 + axis, 1).reshape(g, relative.shape[1 + axis], -1)
            for f in np.unique(factors):
                share = along[factors == f].sum(axis=(0, 2))
                y[f] += share if varies else share * weights.shares[f]
    p = [
        np.ones(1) if symmetric else p
        for p, symmetric in zip(weights.cells, batched.symmetric, strict=True)
    ]
    y = [
        weights_y / weights_y.sum()
        if weights_y.any()
        else np.full(len(weights_y), 1 / len(weights_y))
        for weights_y in y
    ]
    return ProductDuals(tuple(p), tuple(y), w / w.sum(), 1, 1, _TILTS[-1], weights.pairs)


def _climb(
    batched: BatchedGroups,
    gram_matrices: GramTerms,
    climb: _Climb,
    steps: int,
    norms: Sequence[PeriodNorm],
) -> _Climb:
    """Continue an ascent by some steps."""
    for _ in range(steps):
        try:
            value, following = _step(batched, gram_matrices, climb.following, norms)
        except np.linalg.LinAlgError:
            # Floating point can go no further.
            break
        gain = value - climb.value
        if gain > 0:
            climb = replace(climb, value=value, best=climb.following)
        climb = replace(climb, following=following)
        if gain < _LEAST_STEP * climb.value:
            break
    return climb


def _step(
    batched: BatchedGroups,
    gram_matrices: GramTerms,
    duals: ProductDuals,
    norms: Sequence[PeriodNorm],
) -> tuple[float, ProductDuals]:
    """Return the bound at the weights, without its rounding, and the weights after one step."""
    splits = plan_splits(batched, duals, has_mean=any(norm.mean != 1 for norm in norms))
    here = scale_duals(batched, duals, splits)
    lengths = None
    if here.spectrum is not None:
        assert gram_matrices.columns is not None
        lengths = here.spectrum.lower_lengths(gram_matrices.columns)
    total, by_w, by_table, roots = _add_norms(gram_matrices, here, lengths, norms)
    costs, by_y = _compute_costs(batched, duals)
    w = here.w * by_w / costs
    w = np.where(duals.w > 0, np.maximum(w / w.sum(), _LEAST_GROUP), 0.0)
    y, gains = list(duals.y), {}
    for f, slope in by_table.items():
        factor = batched.factors[f]
        if batched.symmetric[factor.attribute]:
            continue
        pinch, tree = here.pinches[f], batched.trees[factor.attribute]
        rows, gains[f] = pinch.compute_parts(slope)
        if tree is not None and factor.factor.kind not in tree.above:
            along, weights = pinch.compute_contraction(slope)
            classes, _ = splits[factor.attribute].classes
            met = along.diagonal(), weights[len(pinch.polars) :]
            nodes = share_among_nodes(
                tree, duals.p[factor.attribute], y[f], factor.factor.kind, classes, met
            )
            gains[f] = rows = nodes * (rows.sum() / nodes.sum()) if nodes.any() else nodes
        if len(y[f]) > 1:
            y[f] = normalise_gains(rows / by_y[f])
    couplings = couple_totals(batched, here, gram_matrices, roots, by_table)
    p = ascend_cells(batched, duals.p, here, gains, couplings)
    if duals.pairs is not None:
        # The cells on both sides of a pair would change together with them.
        p = tuple(
            old if sides.any() else new
            for old, new, sides in zip(duals.p, p, duals.pairs.sides, strict=True)
        )
    return here.divide_by_mass(total), replace(duals, p=p, y=tuple(y), w=w)


def _add_norms(
    gram_matrices: GramTerms,
    here: ScaledDuals,
    lengths: FloatArray | None,
    norms: Sequence[PeriodNorm],
) -> tuple[float, FloatArray, dict[int, FloatArray], FloatArray]:
    """Add up norms; the results are those of `differentiate_norms`."""
    total, by_w, roots = 0.0, np.zeros_like(here.w), np.zeros(0)
    by_table = {f: np.zeros_like(table) for f, table in here.tables.items()}
    for norm in norms:
        if norm.mean != 1:
            assert gram_matrices.columns is not None
            lengths = np.where(gram_matrices.columns.states == 0, math.sqrt(norm.mean), 1.0)
        one = differentiate_norms(gram_matrices, here.w * norm.times, here.tables, lengths)
        total += norm.factor * one[0]
        by_w += norm.factor * norm.times * one[1]
        for f, slope in one[2].items():
            by_table[f] += norm.factor * slope
        roots = norm.factor * one[3] + (roots if roots.size else 0.0)
    return total, by_w, by_table, roots


def differentiate_norms(
    gram_matrices: GramTerms,
    w: FloatArray,
    tables: Mapping[int, FloatArray],
    lengths: FloatArray | None = None,
) -> tuple[float, FloatArray, dict[int, FloatArray], FloatArray]:
    """Compute sum_b tr Gamma_b^1/2 (B7), not certified, and its derivatives.

    Args:
        gram_matrices: The positions of the Gram matrices, for these groups and frames.
        w: Weights of the groups, shape (groups,).
        tables: The table of each used factor.
        lengths: The factors of the columns of all Y_b, shape (columns,); None for 1.

    Returns:
        The sum, its derivatives with respect to w and to the tables, and a buffer with Gamma_b^1/2
        in place of Gamma_b.
    """
    total, by_buffer, roots = 0.0, [], []
    filled = gram_matrices.fill(w, tables)
    if lengths is not None:
        filled = gram_matrices.multiply_columns(filled, lengths)
    for stack in gram_matrices.split_by_size(filled):
        squares, U = decompose_symmetric(stack)
        noise = 32 * stack.shape[-1] * UNIT_ROUNDOFF * squares.sum(axis=1, keepdims=True)
        singular = np.sqrt(np.where(squares > noise, squares, 0.0))
        total += float(singular.sum())
        roots.append(((U * singular[:, None, :]) @ U.transpose(0, 2, 1)).ravel())
        halves = np.divide(0.5, singular, out=np.zeros_like(singular), where=singular > 0)
        by_buffer.append(((U * halves[:, None, :]) @ U.transpose(0, 2, 1)).ravel())
    slope = np.concatenate(by_buffer)
    if lengths is not None:
        slope = gram_matrices.multiply_columns(slope, lengths)
    by_w = np.zeros_like(w)
    by_table = {f: np.zeros_like(table) for f, table in tables.items()}
    for groups, factors, place in gram_matrices.parts:
        slopes = slope[place]
        tables_by_axis = [np.stack([tables[f] for f in axis]) for axis in factors.T]
        by_w[groups] = _contract(slopes, tables_by_axis)
        slopes = slopes * w[groups].reshape(-1, *[1] * len(tables_by_axis))
        for axis in range(len(tables_by_axis)):
            by_axis = _contract(
                np.moveaxis(slopes, 1 + axis, -1),
                tables_by_axis[:axis] + tables_by_axis[axis + 1 :],
            )
            for f in np.unique(factors[:, axis]):
                by_table[f] += by_axis[factors[:, axis] == f].sum(axis=0)
    return total, by_w, by_table, np.concatenate(roots)


def _contract(tensor: FloatArray, along: Sequence[FloatArray]) -> FloatArray:
    """Contract a tensor (g, i, j, ...) with arrays (g, i), (g, j), ... along the axes after g."""
    for array in along:
        tensor = np.einsum("gi...,gi->g...", tensor, array)
    return tensor


def _compute_costs(
    batched: BatchedGroups, duals: ProductDuals
) -> tuple[FloatArray, list[FloatArray]]:
    """Differentiate sum q by w (groups,), for y that sum to 1, and by every y (r,)."""
    costs, by_y = np.zeros_like(duals.w), [np.zeros_like(y) for y in duals.y]
    for batch in batched.batches:
        w = duals.w[batch.groups]
        y = [
            np.stack([duals.y[f] if varies else np.ones(1) for f in factors])
            for factors, varies in zip(batch.factors.T, batch.varying, strict=True)
        ]
        for axis, factors in enumerate(batch.factors.T):
            by_row = _contract(np.moveaxis(batch.targets, 1 + axis, -1), y[:axis] + y[axis + 1 :])
            for f in np.unique(factors):
                by_y[f] += w[factors == f] @ by_row[factors == f]
        costs[batch.groups] = _contract(batch.targets, y)
    return costs, by_y
