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

_MIXTURES = np.linspace(0.0, 1.0, 33)
"""The shares of persons with equal records that are tried."""


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
    """Add the weights of the two kinds of persons with the largest bound to those of one period."""
    mixed = [duals._replace(p=np.append(duals.p, [s, 1 - s])) for s in _MIXTURES.tolist()]
    return max(mixed, key=lambda one: certifier.lower_cost(structure, objective, 1.0, one))
