"""Verification: a plan's claims, recomputed from what it contains by code that knows no solver."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fitplug.basis import Basis
from fitplug.certificate import lower_bound
from fitplug.errors import DesignError, PlanError
from fitplug.problem import dense_matrix
from fitplug.strategy import measured

if TYPE_CHECKING:
    from fitplug.plan import Plan

_SLIGHTLY = 1 + 1e-9
"""Another machine may round a proven bound differently, by this much at the very most."""


def check_form(plan: Plan) -> None:
    """Raise PlanError unless every part has the shape, type and range that it must have."""
    workload, strategy, basis = plan.workload, plan.strategy, plan.strategy.basis
    m, d = workload.query_count, workload.cell_count
    for group in workload.groups:
        for factor in group.factors:
            if factor.attribute not in plan.domain:
                raise PlanError("a query names an attribute that the domain does not have")
            if factor.size != plan.domain[factor.attribute].size:
                raise PlanError("a query has another number of cells than its attribute")
        if group.variances.shape != group.shape or not _positive(group.variances):
            raise PlanError(f"the targets of {group.name!r} are not positive numbers of its shape")
    _check_basis(basis, m, d)
    n = basis.size
    M = strategy.M
    if M.dtype != np.int64 or M.shape != (n, n):
        raise PlanError("the strategy is not a square integer matrix over its basis")
    if np.tril(M, -1).any() or (np.diag(M) <= 0).any():
        raise PlanError("the strategy is not an invertible upper triangular matrix")
    for number in (plan.noise_std, plan.scale, plan.lower_bound):
        if not 0 < number < math.inf:
            raise PlanError("the noise, the scale or the lower bound is not a positive number")
    unit = strategy.unit_variances
    if unit.shape != (m,) or unit.dtype != np.float64 or not (unit >= 0).all():
        raise PlanError("the variances are not numbers, one for each query")
    if strategy.sensitivity_squared < 1 or strategy.max_records < 1:
        raise PlanError("the privacy cost or the number of records is not positive")


def verify(plan: Plan) -> None:
    """Raise PlanError, saying which claim of the plan does not hold."""
    check_form(plan)
    W, c = dense_matrix(plan.workload), plan.workload.targets()
    strategy, basis = plan.strategy, plan.strategy.basis
    B = basis.matrix(W)
    if basis.kind == "rows" and not np.array_equal(B, W[basis.index] * basis.scale[:, None]):
        raise PlanError("the basis is not made of integer rows of the workload")
    try:
        L, L_error = basis.representation(W)
        again = measured(basis, strategy.M, B, L, L_error)
    except DesignError:
        raise PlanError("the basis does not span the workload, or its bounds fail") from None
    if (np.abs(L @ B - W).max(axis=1) > 1e-9 * np.abs(W).max(axis=1)).any():
        raise PlanError("the basis does not span the workload: answers would be biased")
    if again.sensitivity_squared != strategy.sensitivity_squared:
        raise PlanError("the privacy cost is not the one the plan claims")
    if again.max_records < strategy.max_records:
        raise PlanError("the number of records it holds is not the one the plan claims")
    if (again.unit_variances > strategy.unit_variances * _SLIGHTLY).any():
        raise PlanError("the variances are not those the plan claims")
    if (strategy.variances(plan.noise_std) > plan.scale * c).any():
        raise PlanError("some target is not met")
    try:
        certified = lower_bound(W, plan.scale * c, plan.p, plan.q)
    except ValueError as error:
        raise PlanError(f"nothing is certified: {error}") from None
    if plan.lower_bound > certified * _SLIGHTLY:
        raise PlanError("the lower bound is not certified by the plan's dual weights")


def _check_basis(basis: Basis, m: int, d: int) -> None:
    index, scale = basis.index, basis.scale
    if basis.kind == "cells":
        classes = np.unique(index[index >= 0]) if index.shape == (d,) else index[:0]
        fits = len(classes) > 0 and np.array_equal(classes, np.arange(len(classes)))
        fits = fits and int(index.min()) >= -1
    else:
        fits = basis.kind == "rows" and index.ndim == 1 and len(np.unique(index)) == len(index) > 0
        fits = fits and 0 <= int(index.min()) <= int(index.max()) < m
        fits = fits and scale.shape == index.shape and _positive(scale)
        fits = fits and bool((np.frexp(scale)[0] == 0.5).all())
    if index.dtype != np.int64 or not fits:
        raise PlanError("the basis is neither classes of cells nor distinct rows of the workload")


def _positive(values: npt.NDArray[Any]) -> bool:
    return values.dtype == np.float64 and bool(((values > 0) & (values < math.inf)).all())
