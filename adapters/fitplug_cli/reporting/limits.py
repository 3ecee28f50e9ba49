"""Limits: what it costs to count so many records of a person, and what a limit leaves out."""

from __future__ import annotations

from dataclasses import dataclass

from fitplug.plan import Plan
from fitplug.privacy import epsilon_at
from fitplug.release import Limited, describe_population
from fitplug_cli import costs

SHOWN = (1, 2, 3, 5, 10)
"""Records a person that a report tells the cost of, beside the number declared."""


@dataclass(frozen=True)
class Limit:
    """What at most so many records of a person cost: rho and epsilon with the plan's noise, or, at
    the rho of the number declared, by which factor every std changes.
    """

    contributions: int
    rho: float
    epsilon: float
    std_factor: float


def compare_limits(plan: Plan, declared: int, delta: float) -> tuple[Limit, ...]:
    """From the plan alone: k records cost k^2 times the rho of one. Epsilon is proven from rho."""
    return tuple(
        Limit(
            k,
            costs.rho(plan, k),
            epsilon_at(costs.privacy_cost(plan, k), delta, "zcdp"),
            k / declared,
        )
        for k in sorted({*SHOWN, declared})
    )


def explain_limits(contributions: int, limited: Limited | None) -> tuple[str, ...]:
    """Sentences below the table: whom the answers are about, and how to learn what is left out."""
    told = [] if limited is None else [describe_population(contributions, limited)]
    told.append(
        "A spec with [data] person keeps at most this number of records of each person; without it "
        "the number is the publisher's word. A smaller number costs less privacy and leaves out "
        "more records of persons with many. No std and no interval tells how many."
    )
    if limited != "declared":
        told.append(
            "A private estimate of the records left out is bought by a second release: the total "
            "with a large limit K and a coarse std costs rho = K^2 / (2 std^2). The command "
            "fitplug lost compares the two."
        )
    return tuple(told)
