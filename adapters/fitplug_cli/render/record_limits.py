"""Limits on the records of a person: what each costs, and what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from fitplug.numeric import ceil_float
from fitplug.plan import Plan
from fitplug.privacy import epsilon_at
from fitplug.releases import Limited
from fitplug.workload import AddRemove
from fitplug_cli.render.json_records import compute_rho

_SHOWN = (1, 2, 3, 5, 10)
"""The numbers of records of a person whose cost a report shows, and the plan's own number."""


@dataclass(frozen=True)
class Limit:
    """What a limit on the records of a person costs.

    Attributes:
        records: The largest number of records of a person.
        rho: The rho of all of them with the plan's noise, rounded up.
        epsilon: The epsilon of all of them.
        std_factor: The factor by which every std changes if rho stays that of the plan's unit.
    """

    records: int
    rho: float
    epsilon: float
    std_factor: float


def compare_limits(plan: Plan, delta: float) -> tuple[Limit, ...]:
    """Compute what other limits than the plan's own would cost.

    Only the plan is needed, since k records of a person cost k^2 times the rho of one. This does
    not hold where a unit of privacy keeps the records of a person apart: there a plan for another
    number is another plan, and none is shown.

    Returns:
        The limits, the smallest first; the plan's own is among them. None if the unit keeps
        records apart.
    """
    if keeps_records_apart(plan):
        return ()
    planned = plan.unit.records
    return tuple(_price_limit(plan, delta, k) for k in sorted({*_SHOWN, planned}))


def _price_limit(plan: Plan, delta: float, records: int) -> Limit:
    """Compute what a limit costs with the plan's noise."""
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
    """Return whether a person's records are in different cells or periods in the plan's unit."""
    return isinstance(plan.unit, AddRemove) and not plan.unit.is_of_records


def explain_limits(plan: Plan, population: str, limited: Limited | None) -> tuple[str, ...]:
    """Explain the table of limits, or why there is none.

    Args:
        plan: The plan.
        population: Which rows the answers would be about; empty if that is not known.
        limited: Whether counting enforces the unit of privacy or nothing does; None if not known.

    Returns:
        Sentences that say which records the answers are about, and how to learn what is left out.
    """
    sentences = [population] if population else []
    if keeps_records_apart(plan):
        sentences.append(
            f"The plan is for {plan.unit}. What another number of records costs is the rho of "
            "another plan: change the unit of privacy and design again."
        )
    sentences.append(
        "With [data] person, counting keeps no more rows of a person than the unit of privacy "
        "allows; without it, fitplug does not check how many rows a person has. A smaller number "
        "costs less privacy and leaves out more rows of persons with many. No std and no interval "
        "shows how many."
    )
    if limited != "declared":
        sentences.append(
            "A private estimate of the records left out is bought by a second release: the total "
            "with a large limit K and a coarse std costs rho = K^2 / (2 std^2). The command "
            "fitplug truncation compares the two."
        )
    return tuple(sentences)
