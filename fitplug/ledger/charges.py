"""Charges: requests to charge a ledger, their unit of privacy, and the checks before a charge.

A ledger adds up the costs of one person in one unit of privacy. A release that costs rho in the
unit u costs a person in the ledger's unit m^2 rho, if every change in the ledger's unit consists of
m changes in u (group privacy of zCDP). The ledger is charged m^2 rho. Where no m is known, as
between adding a record and replacing one, the charge is refused. Units are compared together with
the cells that they refer to; see `fitplug.workload.units`.

If the count itself limited the records per person, a release costs any person rho, however many
records the person has: the records that the count keeps are one change in u. So a ledger for
persons who are added or removed is charged rho, whatever number of records its unit has.

The unit of a ledger may be given before its cells are known. The first charge for a similar unit
then fixes them. Earlier charges add up whatever these cells are: they are for records anywhere, or
are charged for each record of a person.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from fitplug.display import format_down, format_excess
from fitplug.domain import Domain
from fitplug.errors import BudgetError, InputError, OverBudget, check_type
from fitplug.ledger import rows
from fitplug.ledger.cell_costs import CellCosts
from fitplug.ledger.file import LedgerFile
from fitplug.ledger.records import Budget, Entry, Stage
from fitplug.numeric import ceil_float, ceil_written, floor_written
from fitplug.plan import Plan
from fitplug.privacy import DiscreteNoise
from fitplug.workload import ONE_RECORD, AddRemove, BoundUnit, Unit, allows_any_rows

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
        what: A text that describes what the charge pays for.
        key: The name of the release. A request with the key of an earlier one is a retry of it.
        covered_by: An earlier charge to cover the release.
        again: Whether to draw a plan again that was released before, if there is no key.
        folder: The folder or the file of the release.
        in_folder: Whether the release is published in `folder` exactly once. If not, it
            is made in memory.
        is_enforced: Whether the count enforced the unit's limit on the records per person.
        changes: The number of changes in the request's unit that make up a change in the ledger's
            unit. The ledger sets it, and then `rho` is the cost for a person in the ledger's unit.
    """

    plan: Plan
    rho: Fraction
    what: str
    key: str | None = None
    covered_by: ChargeReference | None = None
    again: bool = False
    folder: str | None = None
    in_folder: bool = False
    is_enforced: bool = False
    changes: int = 1

    @property
    def bound_unit(self) -> BoundUnit:
        """The unit of privacy of the release, with its cells: the plan's."""
        return self.plan.bound_unit

    @cached_property
    def costs(self) -> CellCosts | None:
        """The costs per cell, which the ledger stores with the charge.

        They are None in units of privacy where costs per cell do not determine a person's cost.
        """
        if not allows_any_rows(self.plan.unit):
            return None
        return CellCosts.from_plan(self.plan).multiply_records(self.changes)


@dataclass(frozen=True)
class StagedCharge:
    """A charge, made now or before, and the stage that its release has reached.

    The noise may be drawn only at stage "charged". At any other stage it must not be drawn again.
    """

    entry: Entry
    stage: Stage


def enter_charge(
    database: sqlite3.Connection,
    budget: Budget,
    *,
    rho: Fraction,
    what: str,
    key: str | None,
    folder: str | None,
    bound_unit: BoundUnit,
    plan_digest: str | None = None,
    covered_by: int | None = None,
    costs: CellCosts | None = None,
    noise: DiscreteNoise | None = None,
) -> tuple[Entry, Budget]:
    """Enter a charge that is allowed; the fields are those of `Entry`.

    Returns:
        The entry, and the budget after it.
    """
    entry = Entry(
        id=budget.entries + 1,
        time=read_time(),
        rho=rho,
        what=what,
        key=key,
        plan_digest=plan_digest,
        folder=folder,
        covered_by=covered_by,
        profile=None if costs is None else costs.digest,
        bound_unit=bound_unit,
        noise=noise,
    )
    return entry, rows.append_entry(database, budget, entry, costs)


def enter_release(
    database: sqlite3.Connection, budget: Budget, request: ChargeRequest, covered_by: Entry | None
) -> tuple[Entry, Budget]:
    """Enter the charge of a release that is allowed, or covered by an earlier charge."""
    return enter_charge(
        database,
        budget,
        rho=request.rho if covered_by is None else Fraction(0),
        what=request.what,
        key=request.key,
        folder=request.folder,
        bound_unit=request.bound_unit,
        plan_digest=request.plan.digest,
        covered_by=None if covered_by is None else covered_by.id,
        costs=request.costs,
        noise=request.plan.noise,
    )


def check_fits(
    file: LedgerFile,
    amount: Fraction,
    budget: Budget,
    noise: DiscreteNoise | None,
    changes: int = 1,
) -> None:
    """Raise OverBudget if this much rho, the cost of `changes` changes, is more than is left.

    A covered release, with rho 0, is also refused if its noise is too small for the spent budget.

    Raises:
        BudgetError: The budget is for Gaussian noise only, and the charge does not name its noise.
    """
    if noise is None and budget.needs_gaussian:
        raise BudgetError(
            f"the ledger {file.path} accepts only charges for discrete Gaussian noise. Pass the "
            "noise as noise=fitplug.DiscreteNoise(noise_std, answers)."
        )
    if noise is not None:
        call = "ledger.charge(rho, what=..., noise=fitplug.DiscreteNoise(noise_std, answers))"
        check_type("noise", noise, DiscreteNoise, call)
    loss = None if noise is None else noise.loss
    left = budget.left_for(loss)
    if (
        noise is not None
        and budget.spent + amount > budget.total_with(loss)
        and (amount <= budget.left)
    ):
        raise OverBudget(
            f"noise_std = {noise.noise_std:.6g} is too small: the ledger {file.path} has only rho "
            f"= {format_down(floor_written(left))} left for such noise. Use a ledger with a budget "
            "in rho.",
            requested=ceil_written(amount),
            remaining=floor_written(left),
        )
    if amount > left:
        requested, remaining = ceil_written(amount), floor_written(left)
        times = f" ({changes**2} times the release's rho)" if changes > 1 else ""
        shown = format_excess(requested, remaining)
        raise OverBudget(
            f"rho = {shown[0]}{times} is over budget: the ledger {file.path} has {shown[1]} left. "
            "Relax the targets or ask for fewer tables.",
            requested=requested,
            remaining=remaining,
        )


def check_covers(amount: Fraction, costs: CellCosts) -> None:
    """Raise BudgetError if an amount is less than the rho of the costs per cell."""
    if costs.rho > amount:
        raise BudgetError(
            f"rho must be at least {ceil_float(costs.rho)!r}, the largest cost of a cell, not "
            f"{ceil_float(amount)!r}"
        )


def check_texts(what: str, *others: str | None) -> None:
    """Raise InputError unless the texts of a charge are texts that SQLite can store."""
    for text in (what, *(other for other in others if other is not None)):
        # SQLite cannot hold half a surrogate pair, as Python makes of undecodable file names.
        if not isinstance(text, str) or not text or text.encode(errors="ignore").decode() != text:
            raise InputError("what=, key= and folder= must be valid text and not empty")


def check_key_is_new(file: LedgerFile, database: sqlite3.Connection, key: str | None) -> None:
    """Raise LedgerError if another charge has this key."""
    taken = None if key is None else rows.find_key(database, key)
    if taken is None:
        return
    time, _ = taken
    raise file.make_error(
        f"already has a charge with the key {key!r}, from {time}. Use another key for another "
        "release."
    )


def read_time() -> str:
    """Read the clock: the time in UTC (ISO 8601)."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def choose_unit(
    file: LedgerFile, budget: Budget, unit: Unit | None, domain: Domain | None
) -> BoundUnit:
    """Choose the unit of a charge: the given one, or else the ledger's.

    Raises:
        DomainError: The domain does not have the attributes that the unit names.
        LedgerError: The unit refers to cells that are not known.
    """
    known = budget.bound_unit
    if unit is None and domain is None and known is not None:
        bound_unit = known
    else:
        plain = unit or (ONE_RECORD if known is None else known.unit)
        bound_unit = BoundUnit(plain) if domain is None else BoundUnit.bind(plain, domain)
    if bound_unit.is_known or (known is not None and allows_any_rows(known.unit)):
        return bound_unit
    raise file.make_error(
        f"has the unit of privacy {bound_unit.unit}, so a charge needs a domain. Give domain=."
    )


def count_changes(
    file: LedgerFile, budget: Budget, unit: BoundUnit, *, is_enforced: bool = False
) -> int:
    """Count how many changes in the unit of a charge make up a change in the ledger's unit.

    Args:
        file: The ledger's file.
        budget: The ledger's budget, with its unit; without one, the charge is its first.
        unit: The unit of the charge.
        is_enforced: Whether the count enforced the unit's limit on the records per person.

    Returns:
        m: the ledger is charged m^2 times the cost in the unit of the charge.

    Raises:
        LedgerError: The two units cannot be compared.
    """
    ledger_unit = budget.complete_unit(unit)
    if is_enforced and isinstance(unit.unit, AddRemove) and isinstance(ledger_unit.unit, AddRemove):
        return 1
    changes = unit.count_changes(ledger_unit)
    if changes is None:
        raise file.make_error(
            f"is for the unit of privacy ({ledger_unit}). Use this unit instead of ({unit})."
        )
    return changes


def convert_request(file: LedgerFile, budget: Budget, request: ChargeRequest) -> ChargeRequest:
    """Convert a request to the cost for one person in the ledger's unit.

    A person in the ledger's unit with m changes of k records each has m k records, and the costs
    per cell are for these.

    Raises:
        LedgerError: The two units cannot be compared.
    """
    changes = count_changes(file, budget, request.bound_unit, is_enforced=request.is_enforced)
    if changes == 1:
        return request
    return replace(request, rho=request.rho * changes**2, changes=changes)
