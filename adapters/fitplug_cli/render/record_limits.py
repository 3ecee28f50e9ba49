"""Limits on rows per person: what each costs, and how to learn what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from fitplug.numeric import ceil_float
from fitplug.plan import Plan
from fitplug.privacy import epsilon_at
from fitplug.releases import Limited
from fitplug.workload import AddRemove, allows_any_rows
from fitplug_cli.render.json_records import compute_rho

_SHOWN = (1, 2, 3, 5, 10)
"""Rows per person whose cost a report shows, next to the plan's limit."""


@dataclass(frozen=True)
class Limit:
    """What a limit on rows per person costs.

    Attributes:
        records: The largest number of rows per person.
        rho: The rho of all of them with the plan's noise, rounded up.
        epsilon: The epsilon of all of them.
        std_factor: The factor on every std that keeps the plan's rho.
    """

    records: int
    rho: float
    epsilon: float
    std_factor: float


def compare_limits(plan: Plan, delta: float) -> tuple[Limit, ...]:
    """Compute what other limits on rows per person would cost with the plan's noise.

    k rows of a person cost k^2 times the rho of one. This does not hold for units that keep a
    person's rows in different cells or periods; they need a new design.

    Returns:
        The limits in increasing order, including the plan's; empty for such units.
    """
    if keeps_records_apart(plan):
        return ()
    planned = plan.unit.records
    return tuple(_price_limit(plan, delta, k) for k in sorted({*_SHOWN, planned}))


def _price_limit(plan: Plan, delta: float, records: int) -> Limit:
    """Compute the cost of a limit with the plan's noise."""
    ratio = Fraction(records, plan.unit.records)
    rho = compute_rho(plan) if ratio == 1 else ceil_float(plan.rho_exact * ratio**2)
    privacy_cost = ceil_float(Fraction(plan.privacy_cost) * ratio)
    return Limit(
        records=records,
        rho=rho,
        epsilon=epsilon_at(privacy_cost, delta, plan.noise.loss),
        std_factor=float(ratio),
    )


def keeps_records_apart(plan: Plan) -> bool:
    """Return whether the plan's unit keeps a person's rows in different cells or periods."""
    return isinstance(plan.unit, AddRemove) and not allows_any_rows(plan.unit)


def explain_limits(plan: Plan, population: str, limited: Limited | None) -> tuple[str, ...]:
    """Explain the table of limits, or why there is none.

    Args:
        plan: The plan.
        population: Which rows would be counted; empty if unknown.
        limited: Whether counting enforces the unit of privacy; None if unknown.

    Returns:
        Sentences on which rows are counted, and how to learn what is left out.
    """
    sentences = [population] if population else []
    if keeps_records_apart(plan):
        sentences.append(
            f"The unit of privacy is: {plan.unit}. To see the cost of another limit, change the "
            "unit of privacy and design again."
        )
    sentences.append(
        "A lower limit costs less privacy but leaves out more rows. Margins of error do not cover "
        "the rows left out. To make counting enforce the limit, set [data] person."
    )
    if limited != "declared":
        sentences.append(
            "To estimate how many rows are left out, release the total again with a large limit K "
            "and a large std, and run `fitplug truncation`. This costs rho = K^2 / (2 std^2)."
        )
    return tuple(sentences)
