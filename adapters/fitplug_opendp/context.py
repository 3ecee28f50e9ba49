"""Plans in OpenDP's Context API: queries whose noise is solved for, and a check before asking."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fitplug.errors import OverBudget
from fitplug.plan import Plan
from fitplug_opendp import _compat
from fitplug_opendp.gaussian import opendp
from fitplug_opendp.measurement import make_fitness_for_use

_NAME = "fitness_for_use"


def register() -> None:
    """Let `context.query(rho=...).fitness_for_use(plan)` work: the release has the plan's shape of
    noise at the scale that spends this loss. With `scale=` given, the noise is that instead.

    It works in contexts of zCDP and of (epsilon, delta), on vectors of counts, on `fitplug.Tables`
    with `domain=fitplug_opendp.tables_domain(plan)`, and on LazyFrames. OpenDP has no contexts on
    frames of pandas: give `polars.from_pandas(frame).lazy()`, or the tables that
    `fitplug.Tables.from_records(plan.domain, frame, plan.tables)` counts. Registering again does
    nothing.

    :raises ValueError: if something else is registered under this name.
    """
    dp = opendp()
    from opendp.context import constructors

    if _NAME not in constructors:
        dp.register(_to_fit, _NAME)
    elif not getattr(constructors[_NAME][0], "__doc__", "").startswith(str(_to_fit.__doc__)):
        raise ValueError(f"another {_NAME!r} is registered in OpenDP's Context API")
    _compat.add_to_frames(_NAME, _fit_frame)


def _to_fit(input_domain: Any, input_metric: Any, plan: Plan, scale: float | None = None) -> Any:
    """make_fitness_for_use of fitplug, with the scale left open unless it is given."""
    if scale is not None:
        return make_fitness_for_use(input_domain, input_metric, plan, scale)
    from fitplug_opendp.fitting import Fitted

    return Fitted(lambda scale: make_fitness_for_use(input_domain, input_metric, plan, scale))


def _fit_frame(query: Any, plan: Plan, scale: float | None = None) -> Any:
    """A method of OpenDP's queries on LazyFrames; see `register`."""
    given = {} if scale is None else {"scale": scale}
    return as_query(query).fitness_for_use(plan, **given)


def as_query(query: Any) -> Any:
    """An OpenDP Query on whose chain any registered constructor can be called, from the
    LazyFrameQuery that a context on a LazyFrame gives, on which only Polars' methods can; and
    `fitness_for_use`, once `register` was called. Steps that OpenDP finds stable (filter,
    with_columns, truncate_per_group) may come between.

    :param query: of `Context.query`; any other Query comes back as it is.
    """
    dp = opendp()
    from opendp.extras.polars import LazyFrameQuery

    if not isinstance(query, LazyFrameQuery):
        return query
    inner, plan = _compat.parts_of(query)
    domain, metric = inner._chain
    frame = "FrameDistance<SymmetricDistance>"
    return inner.new_with(chain=dp.t.make_stable_lazyframe(domain, metric, plan, MO=frame))


def preflight(context: Any, measurement: Any) -> None:
    """Raise if the context would refuse this measurement; ask nothing of it.

    A privacy filter that refuses a query is exhausted by it for good, and all that is left of its
    budget is lost: check first.

    :param context: an opendp.context.Context.
    :param measurement: what `context(measurement)` is to be called with, or a query's `resolve()`.
    :raises OverBudget: if less is left than it costs.
    :raises ValueError: if it is of another domain, metric or measure than the context.
    """
    dp = opendp()
    domain, metric = context.query_space or context.accountant.input_space
    for what, theirs, ours in (
        ("input domain", domain, measurement.input_domain),
        ("input metric", metric, measurement.input_metric),
        ("output measure", context.accountant.output_measure, measurement.output_measure),
    ):
        if theirs != ours:
            raise ValueError(f"the measurement's {what} is {ours}, the context's is {theirs}")
    asked = _exact(measurement.map(context.d_in))
    if context.d_mids is not None:
        left = _exact(context.d_mids[0]) if context.d_mids else [Fraction(0)] * len(asked)
    elif context.d_out is None:
        return
    else:
        try:
            spent = _exact(context.current_privacy_loss())
        except dp.OpenDPException:  # exhausted
            left = [Fraction(0)] * len(asked)
        else:
            # OpenDP adds losses up rounding each sum up, to no more than d_out only if this is so.
            left = [d - s for d, s in zip(_exact(context.d_out), spent, strict=True)]
    for cost, rest in zip(asked, left, strict=True):
        if cost > rest:
            shown = [", ".join(f"{float(v):.6g}" for v in amounts) for amounts in (asked, left)]
            raise OverBudget(
                f"a privacy loss of {shown[0]} is over budget: the context has {shown[1]} left",
                requested=float(cost),
                remaining=float(rest),
            )


def _exact(loss: Any) -> list[Any]:
    """A loss, or the parts of it; exact where it is finite."""
    parts = loss if isinstance(loss, tuple) else (loss,)
    return [part if part == float("inf") else Fraction(part) for part in parts]
