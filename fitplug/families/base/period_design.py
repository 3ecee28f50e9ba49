"""Choices of a design for equal periods: how precise sums over them are, and kinds of persons."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from scipy.optimize import minimize_scalar

from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.base.periods import PeriodCertifier, Periods
from fitplug.families.base.structure import Structure

S = TypeVar("S", bound=Structure)

_LARGEST_RATIO = 256.0
"""The largest precision of sums over all periods relative to independent periods."""

_SEARCHES = 2
"""The number of searches for each share of a kind of persons."""


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


def choose_kinds(
    certifier: PeriodCertifier[S], structure: S, objective: Objective, duals: Duals
) -> Duals:
    """Add the weights of the kinds of persons with the largest bound to those of one period."""

    def mix(equal: float, fewer: float) -> Duals:
        kinds = [equal, (1 - equal) * (1 - fewer), (1 - equal) * fewer]
        return duals._replace(p=np.append(duals.p, kinds))

    def search(mix_with: Callable[[float], Duals]) -> float:
        found = minimize_scalar(
            lambda x: -certifier.lower_cost(structure, objective, 1.0, mix_with(float(x))),
            bounds=(0.0, 1.0),
            method="bounded",
            options={"xatol": 0.01},
        )
        return float(found.x)

    equal, fewer = 0.0, 0.5
    for _ in range(_SEARCHES):
        equal = search(lambda x: mix(x, fewer))  # noqa: B023
        fewer = search(lambda x: mix(equal, x))  # noqa: B023
    ends = [mix(x, y) for x in (0.0, equal, 1.0) for y in (0.0, fewer, 1.0)]
    return max(ends, key=lambda one: certifier.lower_cost(structure, objective, 1.0, one))
