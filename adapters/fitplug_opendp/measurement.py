"""A plan as an OpenDP measurement."""

from __future__ import annotations

from typing import Any

import numpy as np

from fitplug.plan import Plan
from fitplug.releases import Release
from fitplug_opendp._compat import import_opendp, make_partial_constructor
from fitplug_opendp.count_checks import check_space
from fitplug_opendp.gaussian import make_noise, upper_sensitivity
from fitplug_opendp.input_domains import (
    AnswerFunction,
    TablesDescriptor,
    check_unit_is_measurable,
    make_answers_from_counts,
    make_answers_from_tables,
)
from fitplug_opendp.lazyframes import make_tables
from fitplug_opendp.noise_source import check_plan
from fitplug_opendp.sampler_check import check_sampler_once


def make_fitness_for_use(
    input_domain: Any, input_metric: Any, plan: Plan, scale: float = 1.0
) -> Any:
    """Make a Measurement that answers the plan's workload.

    If the plan's unit of privacy is k rows per person, the privacy map is
    rho = (d_in * Delta / (k * scale))^2 / 2, in rationals, rounded up. For d_in = k and scale 1
    this is `plan.rho`. For a plan of `fp.ReplaceOne()`, k is 1 and d_in is the number of rows
    replaced, under change_one_distance() on Tables or a LazyFrame. Plans for other units are
    refused: see `fitplug_opendp.input_domains`. The input may be

    * counts of the cells, in C order, of the workload's attributes or of all attributes:
      vector_domain(atom_domain(T)) with T i32, i64 or u32, under l1_distance. OpenDP's
      then_count_by_categories gives such counts if it has no cell for null values, or if the plan's
      attribute also has such a cell. Plans with measures are refused here, because such a vector
      holds no sums;
    * `fitplug.Tables`: `tables_domain(plan)`, under symmetric_distance() or, for a plan of
      `fp.ReplaceOne()`, change_one_distance();
    * a Polars LazyFrame: a lazyframe_domain under one of the metrics that `make_tables` accepts.
      The frame is then counted by `make_tables`.

    OpenDP's features "contrib" and "honest-but-curious" must be enabled first. Give vectors as
    NumPy arrays. With a Python list, OpenDP's error would show a confidential count if the count is
    too large for T.

    Args:
        input_domain: A domain from the list above.
        input_metric: A metric in which d_in counts rows that are added or removed, or rows that are
            replaced.
        plan: The plan, from `fitplug.design`.
        scale: The factor on every standard deviation; it must be positive.

    Returns:
        A Measurement under zCDP. When it is invoked, it returns a `fitplug.Release`, whose rho is
        for one person in the plan's unit of privacy. So design the plan for the number of rows in
        the context's privacy unit.

    Raises:
        ValueError: The domain, its size or the metric does not fit the plan, or the plan was
            designed with `coverage=True`.
        BudgetError: The scale is not positive and finite, or OpenDP has no distance for the plan's
            unit of privacy.
        PlanError: The plan fails its verification, or its answers cost more than it claims.
        SamplerError: OpenDP's sampler fails its test. Each process tests it once, and again for a
            standard deviation that is much larger or smaller.
    """
    dp = import_opendp()
    dp.assert_features("contrib", "honest-but-curious")
    if not isinstance(plan, Plan):
        raise ValueError(f"plan must be a fitplug.Plan, not {type(plan).__name__}")
    if plan.has_coverage:
        raise ValueError("measurements cannot have coverage. Design the plan without coverage.")
    check_unit_is_measurable(plan.unit)
    check_space(input_domain, input_metric)
    if _is_frame_domain(input_domain):
        counting = make_tables(input_domain, input_metric, plan)
        return counting >> then_fitness_for_use(plan, scale)
    check_plan(plan)
    noise = make_noise(plan, scale)
    check_sampler_once(plan.noise_std * scale)

    def upper_distance(d_in: int) -> float:
        if d_in < 0:
            raise ValueError("d_in must be at least 0")
        return upper_sensitivity(plan, d_in)

    def make_release(answers: Any) -> Release:
        return Release(
            plan=plan,
            answers=np.asarray(answers, dtype=np.int64),
            rho=noise.map(upper_sensitivity(plan, plan.strategy.structure.changes)),
            noise_scale=float(scale),
        )

    answer = _make_answers(input_domain, input_metric, plan)
    if plan.strategy.structure.public_size:
        # Noise is added to the answers only; the public totals follow unchanged.
        def release_with_totals(data: Any) -> Release:
            exact, public = plan.strategy.split_answers(answer(data))
            return make_release(np.concatenate([noise(exact), public]))

        return dp.m.make_user_measurement(
            input_domain,
            input_metric,
            noise.output_measure,
            release_with_totals,
            lambda d_in: noise.map(upper_distance(d_in)),
        )
    strategy = dp.t.make_user_transformation(
        input_domain,
        input_metric,
        noise.input_domain,
        noise.input_metric,
        answer,
        upper_distance,
    )
    return strategy >> noise >> make_release


def then_fitness_for_use(plan: Plan, scale: float = 1.0) -> Any:
    """Make a partial constructor: `make_fitness_for_use` without the input domain and metric.

    Args:
        plan: The plan, from `fitplug.design`.
        scale: The factor on every standard deviation; it must be positive.

    Returns:
        An object for the right side of `>>`, after a transformation or a pair (domain, metric).
    """
    import_opendp()
    return make_partial_constructor(
        lambda input_domain, input_metric: make_fitness_for_use(
            input_domain, input_metric, plan, scale
        )
    )


def _make_answers(domain: Any, metric: Any, plan: Plan) -> AnswerFunction:
    """Make the function that computes exact answers from members of the input domain."""
    from opendp.mod import ExtrinsicDomain

    if isinstance(domain, ExtrinsicDomain) and isinstance(domain.descriptor, TablesDescriptor):
        return make_answers_from_tables(domain.descriptor, metric, plan)
    return make_answers_from_counts(domain, metric, plan)


def _is_frame_domain(domain: Any) -> bool:
    """Return whether the members of a domain are Polars LazyFrames."""
    from opendp.mod import LazyFrameDomain

    return isinstance(domain, LazyFrameDomain)
