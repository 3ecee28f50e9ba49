"""A plan as an OpenDP measurement."""

from __future__ import annotations

from typing import Any

import numpy as np

from fitplug.plan import Plan
from fitplug.release import Release
from fitplug_opendp.advice import check_space
from fitplug_opendp.frames import make_tables
from fitplug_opendp.gaussian import noise, opendp, sensitivity
from fitplug_opendp.spaces import Answer, TablesDescriptor, answer_counts, answer_tables


def make_fitness_for_use(
    input_domain: Any, input_metric: Any, plan: Plan, scale: float = 1.0
) -> Any:
    """Make a Measurement that answers the plan's workload. Invoked, it returns a `fitplug.Release`.

    The map is rho = (d_in * Delta / scale)^2 / 2, in rationals, rounded up; for one record
    (d_in = 1) and scale 1 it gives `plan.rho`. The input may be

    * counts of the cells, in C order, of the workload's attributes or of the whole domain:
      vector_domain(atom_domain(T)) of T i32, i64 or u32, under l1_distance. What OpenDP's
      then_count_by_categories gives, if it has no null cell or the attribute has one for it;
    * `fitplug.Tables`: `tables_domain(plan)`, under symmetric_distance();
    * a Polars LazyFrame: a lazyframe_domain under a metric of `make_tables`, which is put before.

    Needs OpenDP's features "contrib" and "honest-but-curious", which it never enables itself. Give
    vectors as NumPy arrays: of a Python list with a number that does not fit, OpenDP's own error
    names that number.

    :param input_domain: one of these.
    :param input_metric: in which d_in counts records added or removed.
    :param plan: from `fitplug.design`.
    :param scale: multiplies every standard deviation; must be positive.
    :raises ValueError: for any other domain, size or metric.
    """
    dp = opendp()
    dp.assert_features("contrib", "honest-but-curious")
    if not isinstance(plan, Plan):
        raise ValueError(f"plan must be a fitplug.Plan, not {type(plan).__name__}")
    check_space(input_domain, input_metric)
    if _is_frame(input_domain):
        counted = make_tables(input_domain, input_metric, plan)
        return counted >> then_fitness_for_use(plan, scale)
    noisy = noise(plan, scale)

    def stability(d_in: int) -> float:
        if d_in < 0:
            raise ValueError("d_in must not be negative")
        return sensitivity(plan, d_in)

    def to_release(answers: Any) -> Release:
        return Release(
            plan=plan,
            answers=np.asarray(answers, dtype=np.int64),
            rho=noisy.map(sensitivity(plan, 1)),
            contributions=None,
            noise_scale=float(scale),
        )

    strategy = dp.t.make_user_transformation(
        input_domain,
        input_metric,
        noisy.input_domain,
        noisy.input_metric,
        _answer(input_domain, input_metric, plan),
        stability,
    )
    return strategy >> noisy >> to_release


def then_fitness_for_use(plan: Plan, scale: float = 1.0) -> Any:
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


def _answer(domain: Any, metric: Any, plan: Plan) -> Answer:
    from opendp.mod import ExtrinsicDomain

    if isinstance(domain, ExtrinsicDomain) and isinstance(domain.descriptor, TablesDescriptor):
        return answer_tables(domain.descriptor, metric, plan)
    return answer_counts(domain, metric, plan)


def _is_frame(domain: Any) -> bool:
    from opendp.mod import LazyFrameDomain

    return isinstance(domain, LazyFrameDomain)
