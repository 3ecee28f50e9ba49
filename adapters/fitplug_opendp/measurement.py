"""A plan as an OpenDP measurement on a vector of counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.answers import exact_answers
from fitplug.errors import TablesError
from fitplug.plan import Plan
from fitplug.release import Release
from fitplug.rounding import largest
from fitplug_opendp.gaussian import noise, opendp, sensitivity

MAX_CELLS = 10**9
"""Of a vector of counts: more are not enumerated; tables of fewer attributes are."""


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
    names = _checked_attributes(dp, input_domain, plan)
    shape = plan.domain.shape_of(names)
    noisy = noise(plan, scale)

    def answer(counts: Any) -> npt.NDArray[np.int64]:
        vector = np.asarray(counts, dtype=np.int64)
        size = math.prod(shape)
        if vector.shape != (size,):
            raise TablesError(f"a vector of {size} counts is needed, not of {vector.size}")
        # Sums that 64 bits might not hold are taken in Python integers.
        exact = vector if largest(vector) * size < 2**62 else vector.astype(object)
        cells = exact.reshape(shape)

        def counted(wanted: tuple[str, ...]) -> npt.NDArray[Any]:
            summed = cells.sum(axis=tuple(i for i, n in enumerate(names) if n not in wanted))
            left = [name for name in names if name in wanted]
            return np.asarray(summed).transpose([left.index(name) for name in wanted])

        return exact_answers(plan.strategy, counted)

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


def _checked_attributes(dp: Any, domain: Any, plan: Plan) -> tuple[str, ...]:
    """The attributes that the input's cells are of: those the workload uses, or all."""
    cells = plan.workload.cell_count
    for names in (plan.workload.attributes, plan.domain.names):
        size = math.prod(plan.domain.shape_of(names))
        if size <= MAX_CELLS and domain == dp.vector_domain(dp.atom_domain(T="i64"), size=size):
            return names
    wanted = f'vector_domain(atom_domain(T="i64"), size={cells})'
    raise ValueError(f"the plan counts {cells} cells and needs {wanted}, not {domain}")
