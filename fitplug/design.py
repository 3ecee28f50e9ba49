"""Design: from a workload with targets to a certified plan."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.basis import choose_basis
from fitplug.certificate import lower_bound
from fitplug.errors import BudgetError, DesignError, InputError, nearest
from fitplug.plan import Plan
from fitplug.privacy import check_rho, privacy_cost_at
from fitplug.problem import dense_matrix, reduce
from fitplug.rounding import UNIT, floor_float
from fitplug.solvers import dual, sm2
from fitplug.solvers.dual import Progress, Solution
from fitplug.strategy import (
    CLAIM_MARGIN,
    LARGEST_NOISE,
    LEAST_NOISE,
    Strategy,
    integer_strategy,
    within,
)
from fitplug.threads import blas_threads
from fitplug.workload import Workload

Array: TypeAlias = npt.NDArray[np.float64]

_SOLVERS: dict[str, Callable[..., Solution]] = {"dual": dual.solve, "sm2": sm2.solve}

_ULPS = 64
_OUT_OF_RANGE = "targets and budget lie outside what floats can hold; rescale the queries"

_ROUNDING_SHARE = 0.1
"""The part of the tolerance that rounding to integers may use up."""


def design(
    workload: Workload,
    *,
    rho: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    tolerance: float = 1e-4,
    solver: Literal["dual", "sm2"] = "dual",
    max_iterations: int = 2000,
    progress: Progress | None = None,
) -> Plan:
    """The mechanism of least privacy cost that meets every target (the paper's Problem 1).

    rho, or epsilon with delta (on the exact Gaussian curve): spend this and scale all targets by
        the least common factor instead (Problem 2); see Plan.scale.
    tolerance: relative gap wanted between the privacy cost Delta and its certified lower bound.
        If it is not reached within max_iterations, the best plan comes back with its true gap;
        see Plan.status.
    solver: "dual", or "sm2" for the paper's own algorithm (slower, and it may stop further above
        the optimum); the certificate is checked the same way for both.
    progress: called with (iterations so far, gap so far).
    Raises WorkloadError, BudgetError, and DesignError if nothing can be certified.
    """
    budget = _budget(rho, epsilon, delta)
    if not isinstance(tolerance, (int, float)) or not 1e-9 <= tolerance < 1:
        raise BudgetError(f"tolerance = {tolerance!r} must lie between 1e-9 and 1")
    if not isinstance(max_iterations, int) or max_iterations < 1:
        raise BudgetError(f"max_iterations = {max_iterations!r} must be a whole number, at least 1")
    if solver not in _SOLVERS:
        raise InputError(f"solver = {solver!r} is unknown; {nearest(solver, _SOLVERS)}")
    with blas_threads(min(workload.query_count, workload.cell_count)):
        return _designed(workload, budget, _SOLVERS[solver], tolerance, max_iterations, progress)


def _designed(
    workload: Workload,
    budget: float | None,
    solve: Callable[..., Solution],
    tolerance: float,
    max_iterations: int,
    progress: Progress | None,
) -> Plan:
    W, c = dense_matrix(workload), workload.targets()
    problem, independent = reduce(W, c)
    found = solve(
        problem,
        tolerance=(1 - 2 * _ROUNDING_SHARE) * tolerance,
        max_iterations=max_iterations,
        progress=progress,
    )
    (block,) = problem.blocks
    strategy = integer_strategy(
        W,
        c,
        choose_basis(W, independent),
        found.whiteners[0] @ block.basis,
        upper=found.upper,
        loss=_ROUNDING_SHARE * tolerance,
    )
    noise_std, scale = (
        (_noise_for_targets(strategy, c), 1.0)
        if budget is None
        else _noise_for_budget(strategy, c, budget)
    )
    bound = lower_bound(W, scale * c, found.p, found.q) * (1 - CLAIM_MARGIN)
    if not bound > 0:
        raise DesignError("no lower bound could be certified; the targets are too far apart")
    for array in (found.p, found.q):
        array.setflags(write=False)
    return Plan(
        workload=workload,
        strategy=strategy,
        noise_std=noise_std,
        scale=scale,
        lower_bound=bound,
        p=found.p,
        q=found.q,
        tolerance=tolerance,
        max_iterations=max_iterations,
        iterations=found.iterations,
    )


def _budget(rho: float | None, epsilon: float | None, delta: float | None) -> float | None:
    """The rho to spend, or None."""
    if rho is not None and (epsilon is not None or delta is not None):
        raise BudgetError("give rho, or epsilon with delta, not both")
    if rho is not None:
        check_rho(rho)
        return float(rho)
    if epsilon is None and delta is None:
        return None
    if epsilon is None or delta is None:
        raise BudgetError("epsilon and delta go together; give both, or rho")
    return floor_float(Fraction(privacy_cost_at(epsilon, delta)) ** 2 / 2)


def _noise_for_targets(strategy: Strategy, c: Array) -> float:
    """The largest sigma, to a few ulps, at which every proven variance is within its target."""
    asked = strategy.unit_variances > 0
    std = math.sqrt(float((c[asked] / strategy.unit_variances[asked]).min()))
    for _ in range(_ULPS):
        if within(strategy.variances(std), 1.0, c):
            return _fitting(std)
        std *= 1 - 2 * UNIT
    raise DesignError(_OUT_OF_RANGE)


def _noise_for_budget(strategy: Strategy, c: Array, rho: float) -> tuple[float, float]:
    """The smallest sigma whose rho, rounded up, is within the budget; and the scale k it meets."""
    std = strategy.sensitivity / math.sqrt(2 * rho)
    for _ in range(_ULPS):
        if strategy.rho(std) <= rho:
            break
        std *= 1 + 2 * UNIT
    variances = strategy.variances(std)
    scale = float((variances / c).max())
    for _ in range(_ULPS):
        if within(variances, scale, c) and strategy.rho(std) <= rho:
            return _fitting(std), scale
        scale *= 1 + 2 * UNIT
    raise DesignError(_OUT_OF_RANGE)


def _fitting(noise_std: float) -> float:
    if noise_std > LARGEST_NOISE:
        raise BudgetError(
            "targets this loose, or a rho this small, need more noise than 64-bit integers hold; "
            "give tighter targets or a larger rho"
        )
    if noise_std < LEAST_NOISE:
        raise BudgetError(
            "targets this tight, or a rho this large, leave next to no noise, which protects "
            "nobody; give looser targets or a smaller rho"
        )
    return noise_std
