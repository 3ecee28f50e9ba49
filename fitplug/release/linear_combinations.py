"""Linear combinations of answers: read from expressions or coefficients, and estimated, many at a
time.

Each needs memory for the answers it names only. Those of one answer have its std; the others are
put together in batches, so that what their blocks share is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.expressions import (
    Expressions,
    Quotient,
    Runs,
    SparseCoefficients,
    Terms,
    add_coefficients,
    expand_terms,
)
from fitplug.mechanism import combined_norms
from fitplug.numeric import FloatArray
from fitplug.release.noisy_answers import NoisyAnswers

Asked: TypeAlias = str | Mapping[str, npt.ArrayLike]

_TOGETHER = 2**20
"""Coefficients that combinations whose stds are found in one batch may have, of all answers."""


def read_combination(
    expressions: Expressions, asked: Asked, within: Mapping[str, Runs] | None = None
) -> Terms | Quotient[Terms]:
    """The terms of an expression, or of coefficients by group. Raises WorkloadError.

    within: of an expression, cells that everybody counted must be in; see `Expressions.read`.
    """
    if not isinstance(asked, str):
        return _terms(expressions, asked)
    found = expressions.read(asked, within)
    for part in (found.numerator, found.denominator) if isinstance(found, Quotient) else (found,):
        for name, weights in part.items():
            _check_finite(name, weights.values)
    return found


def _terms(expressions: Expressions, asked: Mapping[str, npt.ArrayLike]) -> Terms:
    if not isinstance(asked, Mapping):
        raise WorkloadError(
            f"{asked!r} is no combination; give an expression or coefficients by group"
        )
    workload = expressions.selector.workload
    terms: dict[str, SparseCoefficients] = {}
    for name, given in asked.items():
        if name not in workload.positions:
            raise WorkloadError(f"no query group {name!r}; {suggest_nearest(name, workload.names)}")
        shape = workload[name].shape
        array = np.asarray(given, dtype=np.float64)
        _check_finite(name, array)
        try:
            flat = np.broadcast_to(array, shape).ravel()
        except ValueError:
            raise WorkloadError(
                f"coefficients of {name!r} have shape {array.shape}, the group's is {shape}"
            ) from None
        places = np.flatnonzero(flat)
        terms[name] = SparseCoefficients(places, flat[places])
    return terms


def _check_finite(name: str, coefficients: FloatArray) -> None:
    if not np.isfinite(coefficients).all():
        raise WorkloadError(f"coefficients of {name!r} must be finite")


def subtract(left: Terms, factor: float, right: Terms) -> Terms:
    """left - factor * right."""
    less = {name: SparseCoefficients(w.positions, -factor * w.values) for name, w in right.items()}
    return {
        name: add_coefficients([one[name] for one in (left, less) if name in one])
        for name in dict.fromkeys([*left, *less])
    }


def estimate_values(release: NoisyAnswers, several: Sequence[Terms]) -> FloatArray:
    """The sums (k,) of coefficients times estimates."""
    found = np.zeros(len(several))
    # Group by group, as the estimates of one are computed when they are read.
    for name, those in _by_group(several).items():
        estimates = release.estimates[name].ravel()
        for k in those:
            weights = several[k][name]
            found[k] += float(weights.values @ estimates[weights.positions])
    return found


def estimate_stds(release: NoisyAnswers, several: Sequence[Terms]) -> FloatArray:
    """Standard deviations (k,) of their noise, each by itself; rounded up."""
    found = np.zeros(len(several))
    single = [terms if _is_single(terms) else {} for terms in several]
    for name, those in _by_group(single).items():
        variances = release.variances[name].ravel()
        for k in those:
            weights = several[k][name]
            of_one = np.abs(weights.values) * np.sqrt(variances[weights.positions])
            found[k] = of_one.item() * (1 + 1e-12)
    noise = release.plan.noise_std * release.noise_scale
    workload, strategy = release.plan.workload, release.plan.strategy
    for those in _batches(release, [k for k, terms in enumerate(single) if not terms], several):
        found[those] = noise * combined_norms(
            strategy, [expand_terms(workload, several[k]) for k in those]
        )
    return found


def _is_single(terms: Terms) -> bool:
    return sum(len(weights.positions) for weights in terms.values()) == 1


def count_coefficients(release: NoisyAnswers, terms: Terms) -> int:
    """How many coefficients the std of a combination is made of."""
    if _is_single(terms):
        return 1
    return sum(release.plan.workload[name].size for name in terms)


def _batches(
    release: NoisyAnswers, those: Sequence[int], several: Sequence[Terms]
) -> list[list[int]]:
    batches: list[list[int]] = []
    held = _TOGETHER
    for k in those:
        own = count_coefficients(release, several[k])
        if held + own > _TOGETHER:
            batches.append([])
            held = 0
        batches[-1].append(k)
        held += own
    return batches


def _by_group(several: Sequence[Terms]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for k, terms in enumerate(several):
        for name in terms:
            found.setdefault(name, []).append(k)
    return found
