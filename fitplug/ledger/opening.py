"""Opening a ledger: its file is made or found, and holds the budget that the caller gives."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from fitplug.ledger import rows as rows
from fitplug.ledger.budget import Budget, make_budget
from fitplug.ledger.file import LedgerFile
from fitplug.numeric import floor_written
from fitplug.workload import Unit


def open_ledger(
    file: LedgerFile,
    rho: float | Fraction | None,
    epsilon: float | None,
    delta: float | None,
    unit: Unit | None,
) -> None:
    """Make the file of a ledger, or check that it holds what the caller gives: see `Ledger`."""
    given = make_budget(rho, epsilon, delta, unit)
    if not file.exists():
        if given is None:
            raise file.make_error(
                "does not exist yet: give the whole budget, rho or epsilon and delta, to begin it"
            )
        file.create(given)
    file.upgrade()
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
    if unit is not None and held.unit != unit:
        _set_unit(file, unit)


def _set_unit(file: LedgerFile, unit: Unit) -> None:
    """Set the unit of a ledger in which nothing was charged yet.

    Raises:
        LedgerError: The ledger has another unit.
    """
    with file.open_transaction("IMMEDIATE") as database:
        budget: Budget = rows.read_budget(database)
        if budget.unit is None:
            budget = replace(budget, unit=unit)
            rows.write_budget(database, budget)
    if budget.unit != unit:
        raise file.make_error(
            f"is kept for the unit of privacy ({budget.unit}), not ({unit}): give that or none, or "
            "name another file"
        )
