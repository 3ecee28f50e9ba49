"""Dual weights for the bound of `product_bound`: the best that a few steps of ascent reach.

The weights w and y ascend as those of the dual solver do: each becomes its part of <Z, X>, at the Z
that attains the bound, over its part of sum q. Nothing of this need be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fitplug.numeric import UNIT_ROUNDOFF, FloatArray
from fitplug.optimizer.residual_family import Weights
from fitplug.proof import MAX_WORK, Grams, ProductDuals, bound, eigen, frames, grams, point
from fitplug.structure import BatchedGroups

_TILTS = (0.06, 0.12, 0.3, 1.0)
_ITERATIONS = 15
_WORK = 6e9  # the cubes of the widths, over all steps: half a minute or so
_LEAST_GAIN = 1e-4
_FLOOR = 1e-9  # of a mean weight of a row
_LEAST = 1e-30  # weight of a group: none drops out on the way


@dataclass(frozen=True, eq=False)
class _Climb:
    """The best value so far (not certified), where it was found, and where to go on."""

    value: float
    at: ProductDuals
    next: ProductDuals


def ascend_bound(batched: BatchedGroups, weights: Weights) -> tuple[ProductDuals, float]:
    """The best dual weights that are found from those given, of any origin, with frames as large as
    the limits of `gram_matrices` allow, and their bound. If not even frames of one column fit, all
    weight goes to one group. Raises ValueError as `bound` does.
    """
    duals = product(batched, weights)
    largest = max(batched.widths, default=1)
    # Frames of all columns are exact.
    t = largest if sum(n > 1 for n in batched.widths) == 1 else 1
    top, idle = _Climb(0.0, duals, duals), 0
    left = 1 + _WORK / (1 + sum(float(n) ** 3 for n in batched.widths))  # steps
    while idle < 2 and left > 0:
        start = replace(top.at if top.at.t > 1 else duals, t=t)  # with t = 1 other weights are best
        columns = frames(batched, start)
        places = grams(batched, columns, start.w > 0)
        if places is None:
            break
        tilted = columns[~np.array(batched.symmetric, dtype=np.bool_)].any()
        climbs = [
            _climbed(batched, places, replace(start, tilt=tilt), 2)
            for tilt in (_TILTS if tilted else _TILTS[-1:])
        ]
        steps = math.ceil(min(_ITERATIONS, MAX_WORK / places.work, left))
        left -= steps + len(climbs)
        climb = max(climbs, key=lambda one: one.value)
        climb = _climbed(batched, places, climb, steps - 2)
        idle = 0 if climb.value > top.value * (1 + _LEAST_GAIN) else idle + 1
        top = max(top, climb, key=lambda one: one.value)
        t = min(largest, t + max(1, t // 2))
        if (frames(batched, replace(start, t=t)) == columns).all():
            break
    if places is None and t == 1:
        costs, _ = _costs(batched, duals)
        alone = np.arange(len(duals.w)) == (duals.w * costs).argmax()
        return (one := replace(duals, w=alone.astype(np.float64))), bound(batched, one)
    return top.at, bound(batched, top.at)


def product(batched: BatchedGroups, weights: Weights) -> ProductDuals:
    """The product weights nearest to the given ones."""
    y = [np.zeros(asked.count) for asked in batched.factors]
    w = np.zeros(len(batched.workload.groups))
    for batch, q in zip(batched.batches, weights.queries, strict=True):
        over = q / batch.targets
        w[batch.groups] = over.reshape(len(over), -1).sum(axis=1)
        for axis, (own, varies) in enumerate(zip(batch.factors.T, batch.varying, strict=True)):
            along = np.moveaxis(over, 1 + axis, 1).reshape(len(over), over.shape[1 + axis], -1)
            for f in np.unique(own):
                part = along[own == f].sum(axis=(0, 2))
                y[f] += part if varies else part * weights.shares[f]
    p = [
        np.ones(1) if alike else p
        for p, alike in zip(weights.cells, batched.symmetric, strict=True)
    ]
    y = [part / part.sum() if part.any() else np.full(len(part), 1 / len(part)) for part in y]
    return ProductDuals(tuple(p), tuple(y), w / w.sum(), 1, _TILTS[-1])


def _climbed(
    batched: BatchedGroups, places: Grams, start: ProductDuals | _Climb, steps: int
) -> _Climb:
    """Some steps further."""
    climb = start if isinstance(start, _Climb) else _Climb(0.0, start, start)
    for _ in range(steps):
        try:
            value, after = _step(batched, places, climb.next)
        except np.linalg.LinAlgError:  # no further in floating point
            break
        if value > climb.value:
            climb = replace(climb, value=value, at=climb.next)
        climb = replace(climb, next=after)
    return climb


def _step(batched: BatchedGroups, places: Grams, duals: ProductDuals) -> tuple[float, ProductDuals]:
    """The bound, but for its rounding, and the weights after one step."""
    here = point(batched, duals)
    total, by_w, by_table = slopes(places, here.w, here.tables)
    costs, by_y = _costs(batched, duals)
    w = here.w * by_w / costs
    w = np.where(duals.w > 0, np.maximum(w / w.sum(), _LEAST), 0.0)
    y = list(duals.y)
    for f, slope in by_table.items():
        if len(y[f]) > 1:
            y[f] = _raised(batched, f, y[f], here.pinches[f].parts(slope), by_y[f])
    return here.over_mass(total), replace(duals, y=tuple(y), w=w)


def _raised(
    batched: BatchedGroups, f: int, y: FloatArray, parts: FloatArray, prices: FloatArray
) -> FloatArray:
    """The weights of a factor's rows after a step; the nodes below a tree's top node keep their
    shares of its weight.
    """
    asked = batched.factors[f]
    tree = batched.trees[asked.attribute]
    if tree is not None and asked.factor.kind not in tree.above:
        over = tree.over(asked.factor.kind)
        share = y / np.bincount(over, y)[over]
        return share * _weights(parts / np.bincount(over, share * prices))[over]
    return _weights(parts / prices)


def _weights(parts: FloatArray) -> FloatArray:
    positive = np.maximum(parts, _FLOOR * np.abs(parts).mean())
    if not positive.any():  # of queries of nothing
        return np.full(len(parts), 1 / len(parts))
    return np.asarray(positive / positive.sum())


def slopes(
    places: Grams, w: FloatArray, tables: Mapping[int, FloatArray]
) -> tuple[float, FloatArray, dict[int, FloatArray]]:
    """sum_B tr Gamma_B^1/2, not certified, and its derivatives by w and the tables."""
    total, by_buffer = 0.0, []
    for stack in places.stacks(places.fill(w, tables)):
        squares, U = eigen(stack)
        noise = 32 * stack.shape[-1] * UNIT_ROUNDOFF * squares.sum(axis=1, keepdims=True)
        roots = np.sqrt(np.where(squares > noise, squares, 0.0))
        total += float(roots.sum())
        halves = np.divide(0.5, roots, out=np.zeros_like(roots), where=roots > 0)
        by_buffer.append(((U * halves[:, None, :]) @ U.transpose(0, 2, 1)).ravel())
    slope = np.concatenate(by_buffer)
    by_w = np.zeros_like(w)
    by_table = {f: np.zeros_like(table) for f, table in tables.items()}
    for groups, factors, place in places.parts:
        pull = slope[place]
        own = [np.stack([tables[f] for f in axis]) for axis in factors.T]
        by_w[groups] = _contracted(pull, own)
        pull = pull * w[groups].reshape(-1, *[1] * len(own))
        for axis in range(len(own)):
            force = _contracted(np.moveaxis(pull, 1 + axis, -1), own[:axis] + own[axis + 1 :])
            for f in np.unique(factors[:, axis]):
                by_table[f] += force[factors[:, axis] == f].sum(axis=0)
    return total, by_w, by_table


def _contracted(tensor: FloatArray, along: list[FloatArray]) -> FloatArray:
    """tensor (g, i, j, ..) summed over its first axes after g with these, (g, i), (g, j), .."""
    for part in along:
        tensor = np.einsum("gi...,gi->g...", tensor, part)
    return tensor


def _costs(batched: BatchedGroups, duals: ProductDuals) -> tuple[FloatArray, list[FloatArray]]:
    """sum q per unit of w_S, for y that sum to 1, and the derivative of sum q by every y."""
    costs, by_y = np.zeros_like(duals.w), [np.zeros_like(y) for y in duals.y]
    for batch in batched.batches:
        w = duals.w[batch.groups]
        y = [
            np.stack([duals.y[f] if varies else np.ones(1) for f in own])
            for own, varies in zip(batch.factors.T, batch.varying, strict=True)
        ]
        for axis, own in enumerate(batch.factors.T):
            part = _contracted(np.moveaxis(batch.targets, 1 + axis, -1), y[:axis] + y[axis + 1 :])
            for f in np.unique(own):
                by_y[f] += w[own == f] @ part[own == f]
        costs[batch.groups] = _contracted(batch.targets, y)
    return costs, by_y
