"""Opening a ledger: its file is made or found, and holds the budget that the caller gives."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from fitplug.domain import Domain
from fitplug.errors import BudgetError
from fitplug.ledger import rows as rows
from fitplug.ledger.budget import Budget, make_budget
from fitplug.ledger.file import LedgerFile
from fitplug.numeric import floor_written
from fitplug.workload import BoundUnit, Unit


def open_ledger(
    file: LedgerFile,
    rho: float | Fraction | None,
    epsilon: float | None,
    delta: float | None,
    unit: Unit | None,
    domain: Domain | None,
) -> None:
    """Make the file of a ledger, or check that it holds what the caller gives: see `Ledger`."""
    bound = _bind_unit(unit, domain)
    given = make_budget(rho, epsilon, delta, bound)
    if not file.exists():
        if given is None:
            raise file.make_error(
                "does not exist yet: give the whole budget, rho or epsilon and delta, to begin it"
            )
        file.create(given)
    with file.open_transaction() as database:
        held, _ = rows.read_entries(database)
    if given is not None and not held.has_total_of(given):
        wanted = f"epsilon = {epsilon!r} at delta = {delta!r}" if rho is None else repr(rho)
        kept = f"rho = {floor_written(held.total)!r}"
        if held.epsilon is not None:
            kept += f", epsilon = {held.epsilon!r} at delta = {held.delta!r}"
        raise file.make_error(
            f"holds a budget of {kept}, not {wanted}: give that or none, or name another file "
            "if this is for the data of other people"
        )
    if bound is not None and held.bound_unit != bound:
        _set_unit(file, bound)


def _bind_unit(unit: Unit | None, domain: Domain | None) -> BoundUnit | None:
    """Bind the unit that a caller gives to the cells of the domain, if there is one.

    Raises:
        BudgetError: There is a domain and no unit.
        DomainError: The domain does not have the attributes that the unit names.
    """
    if unit is None:
        if domain is not None:
            raise BudgetError("domain says which cells the unit is about: give unit too")
        return None
    return BoundUnit(unit) if domain is None else BoundUnit.bind(unit, domain)


def _set_unit(file: LedgerFile, unit: BoundUnit) -> None:
    """Set the unit of a ledger that has none yet, or the cells of its unit if they are not known.

    Raises:
        LedgerError: The ledger has another unit, or its unit is about other cells.
    """
    with file.open_transaction("IMMEDIATE") as database:
        budget: Budget = rows.read_budget(database)
        kept = budget.complete_unit(unit)
        if kept.unit != unit.unit or unit.cells not in (None, kept.cells):
            raise file.make_error(
                f"is kept for the unit of privacy ({kept}), not ({unit}): give that or none, or "
                "name another file"
            )
        if kept != budget.bound_unit:
            rows.write_budget(database, replace(budget, bound_unit=kept))
