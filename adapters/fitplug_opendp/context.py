"""Plans in OpenDP's Context API: queries whose noise scale is computed, and a check before them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fitplug.display import format_excess
from fitplug.errors import OverBudget
from fitplug.plan import Plan
from fitplug_opendp import _compat
from fitplug_opendp.measurement import make_fitness_for_use

_NAME = "fitness_for_use"


def register() -> None:
    """Register plans in OpenDP's Context API, as `context.query(rho=...).fitness_for_use(plan)`.

    The plan's noise is scaled so that it spends the query's privacy loss. If you pass `scale=` to
    `fitness_for_use`, the plan's standard deviations are multiplied by this number instead.

    This works in contexts of zCDP and of (epsilon, delta), on vectors of counts, on
    `fitplug.Tables` with `domain=fitplug_opendp.tables_domain(plan)`, and on LazyFrames. OpenDP has
    no contexts on pandas frames: give `polars.from_pandas(frame).lazy()`, or the tables that
    `fitplug.Tables.from_records(plan.domain, frame, plan.tables)` counts. If `register` was called
    before, nothing happens.

    Raises:
        ValueError: Another constructor is registered under the name `fitness_for_use`.
    """
    _compat.import_opendp()
    _compat.register_constructor(_NAME, _make_query_measurement)
    _compat.add_frame_method(_NAME, _fit_frame_query)


def _make_query_measurement(
    input_domain: Any, input_metric: Any, plan: Plan, scale: float | None = None
) -> Any:
    """Make fitplug's measurement of a plan, with the scale left open unless it is given."""
    if scale is not None:
        return make_fitness_for_use(input_domain, input_metric, plan, scale)
    # That module imports OpenDP, which this package imports only when needed.
    from fitplug_opendp.noise_scale import UnscaledMeasurement

    return UnscaledMeasurement(
        lambda scale: make_fitness_for_use(input_domain, input_metric, plan, scale)
    )


def _fit_frame_query(query: Any, plan: Plan, scale: float | None = None) -> Any:
    """Call `fitness_for_use` on one of OpenDP's queries on LazyFrames; see `register`."""
    given = {} if scale is None else {"scale": scale}
    return as_query(query).fitness_for_use(plan, **given)


def as_query(query: Any) -> Any:
    """Turn a query on a LazyFrame into an OpenDP query that has all registered constructors.

    In a context on a LazyFrame, queries have only the methods of Polars and, after `register`,
    `fitness_for_use`. Before this call you may use the steps that OpenDP accepts as stable (filter,
    with_columns, truncate_per_group).

    Args:
        query: A query from `Context.query`.

    Returns:
        An OpenDP Query with the same steps in its chain. A query that is not on a LazyFrame is
        returned unchanged.
    """
    dp = _compat.import_opendp()
    from opendp.extras.polars import LazyFrameQuery

    if not isinstance(query, LazyFrameQuery):
        return query
    inner, plan = _compat.split_frame_query(query)
    domain, metric = _compat.get_query_chain(inner)
    frame = "FrameDistance<SymmetricDistance>"
    return inner.new_with(chain=dp.t.make_stable_lazyframe(domain, metric, plan, MO=frame))


def preflight(context: Any, measurement: Any) -> None:
    """Raise an error if the context would refuse this measurement.

    Call this before you make the query, because a refused query exhausts a privacy filter for good:
    the rest of the filter's budget is lost. This call makes no query.

    Args:
        context: An `opendp.context.Context`.
        measurement: The measurement that you want to pass to `context(measurement)`. For a query
            that you built with `context.query()`, pass `query.resolve()`.

    Raises:
        OverBudget: The measurement costs more than the context has left.
        ValueError: The measurement has another input domain, input metric or output measure than
            the context.
    """
    dp = _compat.import_opendp()
    domain, metric = context.query_space or context.accountant.input_space
    for what, theirs, ours in (
        ("input domain", domain, measurement.input_domain),
        ("input metric", metric, measurement.input_metric),
        ("output measure", context.accountant.output_measure, measurement.output_measure),
    ):
        if theirs != ours:
            raise ValueError(
                f"the {what} of the measurement is {ours}, but the context needs {theirs}. Make "
                f"the measurement for the context's {what}."
            )
    costs = _make_exact(measurement.map(context.d_in))
    if context.d_mids is not None:
        left = _make_exact(context.d_mids[0]) if context.d_mids else [Fraction(0)] * len(costs)
    elif context.d_out is None:
        return
    else:
        try:
            spent = _make_exact(context.current_privacy_loss())
        except dp.OpenDPException:  # the filter is exhausted
            left = [Fraction(0)] * len(costs)
        else:
            # OpenDP adds up losses and rounds each sum up. The sum is at most d_out only if the
            # exact difference is not negative.
            budget = _make_exact(context.d_out)
            left = [d - s for d, s in zip(budget, spent, strict=True)]
    for cost, rest in zip(costs, left, strict=True):
        if cost > rest:
            pairs = [format_excess(float(c), float(r)) for c, r in zip(costs, left, strict=True)]
            shown = [", ".join(texts) for texts in zip(*pairs, strict=True)]
            raise OverBudget(
                f"the query has a privacy loss of {shown[0]}, but the context has only {shown[1]} "
                "left. Relax the targets, or raise the budget.",
                requested=float(cost),
                remaining=float(rest),
            )


def _make_exact(loss: Any) -> list[Any]:
    """Return the components of a privacy loss, as fractions where they are finite."""
    components = loss if isinstance(loss, tuple) else (loss,)
    return [value if value == float("inf") else Fraction(value) for value in components]
