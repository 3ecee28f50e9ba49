"""Requests: what a ledger is asked to charge for the release of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from fitplug.ledger.cell_costs import CellCosts
from fitplug.ledger.entry import Entry
from fitplug.ledger.stages import Stage
from fitplug.plan import Plan
from fitplug.privacy import check_contributions
from fitplug.workload import BoundUnit

ChargeReference: TypeAlias = int | str
"""An earlier charge: its number, or its key."""


@dataclass(frozen=True)
class ChargeRequest:
    """A request to charge a ledger for the release of a plan, made for the first time or again.

    Without a key, a release into a folder is a retry of an unfinished release of the same plan that
    had no key either. A release in memory without a key is never a retry.

    Attributes:
        plan: The plan.
        rho: The cost for all records of a person in rho of zCDP, exact.
        what: What the charge pays for.
        contributions: The largest number of records that one person may have.
        key: The name of the release. A request with the key of an earlier one is a retry of it.
        within: An earlier charge, within which the release is to be free.
        again: Whether another draw of a plan that was released before is wanted, if there is no
            key.
        output: Where the release goes.
        in_folder: Whether the release is published in the folder `output` exactly once. If not, it
            is made in memory.
        is_enforced: Whether the count kept no more records of a person than the unit says.
        changes: The changes in the unit of the request that a change in the ledger's unit is made
            of. The ledger finds it, and `rho` is then that for a person in the ledger's unit.
    """

    plan: Plan
    rho: Fraction
    what: str
    contributions: int = 1
    key: str | None = None
    within: ChargeReference | None = None
    again: bool = False
    output: str | None = None
    in_folder: bool = False
    is_enforced: bool = False
    changes: int = 1

    @property
    def bound_unit(self) -> BoundUnit:
        """The unit of privacy of the release with its cells: the plan's, or the contributions if it
        is one record.

        Raises:
            BudgetError: The contributions are out of range.
        """
        check_contributions(self.contributions)
        return self.plan.bind_unit(self.contributions)

    @cached_property
    def costs(self) -> CellCosts | None:
        """The costs per cell, which are kept with the charge.

        They are None in units of privacy where the costs of a person do not follow from those of
        single cells.

        Raises:
            BudgetError: The contributions are out of range.
        """
        if not self.plan.unit.is_of_records:
            return None
        return CellCosts.from_plan(self.plan, self.contributions * self.changes)


@dataclass(frozen=True)
class StagedCharge:
    """A charge, made now or before, and the stage that its release has reached.

    The noise is to be drawn at stage "charged". At any other stage it must not be drawn again.
    """

    entry: Entry
    stage: Stage
