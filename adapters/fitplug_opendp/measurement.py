"""A plan as an OpenDP measurement on a vector of counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.errors import TablesError
from fitplug.plan import Plan
from fitplug.problem import MAX_ENTRIES
from fitplug.release import Release
from fitplug.rounding import exact_product
from fitplug_opendp.gaussian import noise, opendp, sensitivity


def make_fitness_for_use(
    input_domain: Any, input_metric: Any, plan: Plan, scale: float = 1.0
) -> Any:
    """Make a Measurement that answers the plan's workload from a vector of exact counts.

    The map is rho = (d_in * Delta / scale)^2 / 2, in rationals, rounded up; for one record
    (d_in = 1) and scale 1 it gives `plan.rho`. Invoked, it returns a `fitplug.Release`.

    Needs OpenDP's features "contrib" and "honest-but-curious", which it never enables itself.

    :param input_domain: vector_domain(atom_domain(T="i64"), size=d): counts of the cells, in C
        order, of the workload's attributes or of the whole domain.
    :param input_metric: l1_distance(T="i64"): d_in records added or removed.
    :param plan: from `fitplug.design`.
    :param scale: multiplies every standard deviation; must be positive.
    :raises ValueError: for any other domain, size or metric.
    """
    dp = opendp()
    dp.assert_features("contrib", "honest-but-curious")
    if not isinstance(plan, Plan):
        raise ValueError(f"plan must be a fitplug.Plan, not {type(plan).__name__}")
    _check_metric(dp, input_metric)
    B = _basis_over(plan, _checked_size(dp, input_domain, plan))
    noisy = noise(plan, scale)

    def answer(counts: Any) -> npt.NDArray[np.int64]:
        vector = np.asarray(counts, dtype=np.int64)
        if vector.shape != (B.shape[1],):
            raise TablesError(f"a vector of {B.shape[1]} counts is needed, not of {vector.size}")
        return plan.strategy.answer(exact_product(B, vector[:, None])[:, 0])

    def stability(d_in: int) -> float:
        if d_in < 0:
            raise ValueError("d_in must not be negative")
        return sensitivity(plan, d_in)

    def to_release(answers: Any) -> Release:
        return Release(
            plan=plan,
            answers=np.asarray(answers, dtype=np.int64),
            rho=noisy.map(sensitivity(plan, 1)),
            noise_scale=float(scale),
        )

    strategy = dp.t.make_user_transformation(
        input_domain, input_metric, noisy.input_domain, noisy.input_metric, answer, stability
    )
    return strategy >> noisy >> to_release


def then_fitness_for_use(plan: Plan, scale: float = 1.0) -> Callable[..., Any]:
    """Partial constructor of `make_fitness_for_use`, for `>>` after a transformation or space.

    :param plan: from `fitplug.design`.
    :param scale: multiplies every standard deviation; must be positive.
    """
    opendp()
    from opendp.mod import _PartialConstructor

    return _PartialConstructor(
        lambda input_domain, input_metric: make_fitness_for_use(
            input_domain, input_metric, plan, scale
        )
    )


def _check_metric(dp: Any, metric: Any) -> None:
    if metric != dp.l1_distance(T="i64"):
        raise ValueError(
            f'a count vector needs l1_distance(T="i64") as its metric, not {metric}: '
            "there d_in is the number of records added or removed"
        )


def _checked_size(dp: Any, domain: Any, plan: Plan) -> int:
    cells, whole = plan.workload.cell_count, plan.domain.size
    wanted = f'vector_domain(atom_domain(T="i64"), size={cells})'
    for size in {cells, whole}:
        fits = size * plan.strategy.basis.size <= MAX_ENTRIES
        if fits and domain == dp.vector_domain(dp.atom_domain(T="i64"), size=size):
            return size
    raise ValueError(f"the plan counts {cells} cells and needs {wanted}, not {domain}")


def _basis_over(plan: Plan, size: int) -> npt.NDArray[np.int64]:
    """B (n, size), over the used attributes' cells or over those of the whole domain."""
    workload, domain = plan.workload, plan.domain
    B = plan.strategy.basis.matrix(workload.matrix())
    if size == workload.cell_count:
        return B
    used = np.arange(workload.cell_count).reshape(
        [domain[n].size if n in workload.attributes else 1 for n in domain.names]
    )
    return B[:, np.broadcast_to(used, domain.shape).ravel()]
