"""Linear combinations of answers: many at a time, read from expressions or coefficients.

Each combination needs memory only for the answers that it names. A combination of one answer has
the standard deviation of that answer. The others are estimated in batches, so that what their
blocks share is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.expressions import (
    Expression,
    Expressions,
    Runs,
    SparseCoefficients,
    Terms,
    add_boxes,
    expand_terms,
    list_sums,
)
from fitplug.families import Product
from fitplug.numeric import FloatArray
from fitplug.releases.noisy_answers import NoisyAnswers, list_parts

CombinationLike: TypeAlias = str | Mapping[str, npt.ArrayLike]
"""An expression, or coefficients by group."""

_BATCH_COEFFICIENTS = 2**20
"""The largest number of coefficients of the combinations whose stds are computed in one batch."""


def read_combination(
    expressions: Expressions, asked: CombinationLike, within: Mapping[str, Runs] | None = None
) -> Expression:
    """Read a combination.

    Args:
        expressions: The reader of expressions of the workload.
        asked: An expression, or coefficients by group.
        within: The cells, by attribute, that every row that the expression counts must be in; see
            `Expressions.read`.

    Returns:
        The terms of the combination.

    Raises:
        WorkloadError: The combination cannot be read.
    """
    if not isinstance(asked, str):
        return _read_coefficients(expressions, asked)
    expression = expressions.read(asked, within)
    for terms in list_sums(expression):
        for name, coefficients in terms.items():
            if not coefficients.is_finite:
                raise WorkloadError(f"coefficients of {name!r} must be finite")
    return expression


def add_terms(several: Sequence[Terms], weights: Sequence[float]) -> Terms:
    """Add sums, each multiplied by a weight."""
    scaled = [
        {name: c.scale(weight) for name, c in one.items()} if weight != 1.0 else one
        for one, weight in zip(several, weights, strict=True)
    ]
    return {
        name: add_boxes([one[name] for one in scaled if name in one])
        for name in dict.fromkeys(name for one in scaled for name in one)
    }


def estimate_values(release: NoisyAnswers, several: Sequence[Terms]) -> FloatArray:
    """Compute the sums (k,) of coefficients times estimates."""
    values = np.zeros(len(several))
    # Group by group, as the estimates of a group are computed, or read, when they are needed.
    for name, users in _index_by_group(several).items():
        shape = release.plan.workload[name].shape
        for part in list_parts(release, name):
            # Only parts that hold answers of some sum are read.
            within = {
                k: several[k][name].keep_range(shape, part.axis, part.start, part.stop)
                for k in users
            }
            within = {k: coefficients for k, coefficients in within.items() if coefficients.count}
            if within:
                estimates = part.read()
                for k, coefficients in within.items():
                    values[k] += coefficients.multiply_values(estimates)
    return values


def estimate_stds(release: NoisyAnswers, several: Sequence[Terms]) -> FloatArray:
    """Compute the standard deviations (k,) of the noise in sums, each by itself, rounded up."""
    stds = np.zeros(len(several))
    single = [terms if _is_single(terms) else {} for terms in several]
    for name, users in _index_by_group(single).items():
        variances = release.variances[name]  # a view of few numbers, where many are equal
        for k in users:
            coefficients = several[k][name]
            if not coefficients.count:  # the one answer is of another group
                continue
            at = np.unravel_index(int(coefficients.positions[0]), variances.shape)
            stds[k] = abs(float(coefficients.values[0])) * np.sqrt(variances[at]) * (1 + 1e-12)
    rest = [k for k, terms in enumerate(single) if not terms]
    boxed = [k for k in rest if _is_boxed(release, several[k])]
    for k in boxed:
        combined = release.plan.strategy.combine_products([_list_boxes(several[k])])
        stds[k] = release.noise_std * combined.upper_stds()[0]
    workload, strategy = release.plan.workload, release.plan.strategy
    rest = [k for k in rest if k not in set(boxed)]
    for batch in _split_batches(release, rest, several):
        combined = strategy.combine([expand_terms(workload, several[k]) for k in batch])
        stds[batch] = release.noise_std * combined.upper_stds()
    return stds


def compute_covariance(release: NoisyAnswers, several: Sequence[Terms]) -> FloatArray:
    """Compute the covariance (k, k) of sums of answers, with upper bounds on its diagonal."""
    plan = release.plan
    if any(_is_boxed(release, terms) for terms in several):
        if not all(_has_boxes(terms) for terms in several):
            raise WorkloadError(
                "expressions and arrays of coefficients cannot be combined for groups this large. "
                "Use only expressions."
            )
        combined = plan.strategy.combine_products([_list_boxes(one) for one in several])
    else:
        arrays = [expand_terms(plan.workload, terms) for terms in several]
        combined = plan.strategy.combine(arrays)
    return release.noise_std**2 * combined.compute_covariance()


def count_coefficients(release: NoisyAnswers, terms: Terms) -> int:
    """Count the coefficients that the std of a combination is computed from."""
    if _is_single(terms):
        return 1
    if _is_boxed(release, terms):
        groups = release.plan.workload
        return sum(sum(groups[name].shape) * len(c.boxes or ()) for name, c in terms.items())
    return sum(release.plan.workload[name].size for name in terms)


def _read_coefficients(expressions: Expressions, asked: Mapping[str, npt.ArrayLike]) -> Terms:
    """Read coefficients by group, which are broadcast to the group's shape."""
    if not isinstance(asked, Mapping):
        raise WorkloadError(
            f"{asked!r} must be an expression, or a mapping of query groups to coefficients"
        )
    workload = expressions.selector.workload
    terms: dict[str, SparseCoefficients] = {}
    for name, given in asked.items():
        if name not in workload.groups.positions:
            raise WorkloadError(f"no query group {name!r}. {suggest_nearest(name, workload.names)}")
        shape = workload[name].shape
        array = np.asarray(given, dtype=np.float64)
        if not np.isfinite(array).all():
            raise WorkloadError(f"coefficients of {name!r} must be finite")
        try:
            flat = np.broadcast_to(array, shape).ravel()
        except ValueError:
            raise WorkloadError(
                f"coefficients of {name!r} have shape {array.shape}, but the group has shape "
                f"{shape}"
            ) from None
        nonzero = np.flatnonzero(flat)
        terms[name] = SparseCoefficients(nonzero, flat[nonzero])
    return terms


def _is_single(terms: Terms) -> bool:
    """Return whether a combination has only one answer."""
    return sum(coefficients.count for coefficients in terms.values()) == 1


def _has_boxes(terms: Terms) -> bool:
    """Return whether all coefficients of a combination are sums of boxes."""
    return all(coefficients.boxes is not None for coefficients in terms.values())


def _is_boxed(release: NoisyAnswers, terms: Terms) -> bool:
    """Return whether a std is computed from boxes: arrays of the groups' shapes are too large."""
    sizes = [release.plan.workload[name].size for name in terms]
    return sum(sizes) > _BATCH_COEFFICIENTS and _has_boxes(terms)


def _list_boxes(terms: Terms) -> dict[str, list[Product]]:
    """List the boxes of a combination, as the mechanism takes them."""
    return {
        name: [
            Product(box.weight, tuple((f.positions, f.values) for f in box.factors))
            for box in coefficients.boxes or ()
        ]
        for name, coefficients in terms.items()
    }


def _split_batches(
    release: NoisyAnswers, indices: Sequence[int], several: Sequence[Terms]
) -> list[list[int]]:
    """Split the indices of combinations into batches of at most `_BATCH_COEFFICIENTS`."""
    batches: list[list[int]] = []
    used = _BATCH_COEFFICIENTS
    for k in indices:
        size = count_coefficients(release, several[k])
        if used + size > _BATCH_COEFFICIENTS:
            batches.append([])
            used = 0
        batches[-1].append(k)
        used += size
    return batches


def _index_by_group(several: Sequence[Terms]) -> dict[str, list[int]]:
    """Return the indices of the combinations that name each group."""
    indices: dict[str, list[int]] = {}
    for k, terms in enumerate(several):
        for name in terms:
            indices.setdefault(name, []).append(k)
    return indices
