"""Choices of a design for equal periods: how precise sums over them are, and kinds of persons."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from scipy.optimize import minimize_scalar

from fitplug.families.base.family import Duals
from fitplug.families.base.periods import PeriodCertifier, Periods, PeriodStructure
from fitplug.families.base.structure import Structure
from fitplug.numeric import FloatArray

S = TypeVar("S", bound=Structure)

_LARGEST_RATIO = 256.0
"""The largest precision of sums over all periods relative to independent periods."""

_SHARES, _MEANS = 41, 6
"""The number of shares of a kind of persons, and of means at which norms are evaluated."""


def choose_ratio(periods: Periods, measure_cost: Callable[[float], float]) -> float:
    """Choose the ratio of least cost: 1 if persons may have a record in every period."""
    if periods.most == periods.n:
        return 1.0
    found = minimize_scalar(
        lambda x: math.log(measure_cost(math.exp(x))),
        bounds=(0.0, math.log(_LARGEST_RATIO)),
        method="bounded",
        options={"xatol": 0.02},
    )
    return math.exp(float(found.x))


def choose_kinds(certifier: PeriodCertifier[S], structure: S, duals: Duals) -> FloatArray:
    """Choose the weights of the kinds of persons with the largest bound, shape (3,).

    Args:
        certifier: The certifier.
        structure: The structure.
        duals: The weights of one period.
    """
    assert isinstance(structure, PeriodStructure)
    periods, workload = structure.periods, structure.workload
    shares = np.linspace(0, 1, _SHARES)
    kinds = [
        np.array([equal, (1 - equal) * (1 - fewer), (1 - equal) * fewer])
        for equal in shares
        for fewer in shares
    ]
    norms = [periods.list_norms(workload, one) for one in kinds]
    bounds = np.zeros(len(kinds))
    for i in range(max(map(len, norms))):
        chosen = [j for j, one in enumerate(norms) if len(one) > i]
        factors, means = np.array([(norms[j][i].factor, norms[j][i].mean) for j in chosen]).T
        # The norm is a convex function of the root of the mean.
        roots = np.linspace(math.sqrt(means.min()), math.sqrt(means.max()), _MEANS)
        of_roots = [norms[chosen[0]][i]._replace(mean=root**2) for root in roots.tolist()]
        lower = certifier.lower_norms(structure.reduced, 1.0, duals, of_roots)
        bounds[chosen] += factors * np.interp(np.sqrt(means), roots, lower)
    return kinds[int(bounds.argmax())]
