"""Units of charges: a ledger adds up costs of one person in one unit of privacy.

A release of cost rho in the unit u costs a person in the ledger's unit m^2 rho, if every change in
the ledger's unit is made of m changes in u (group privacy of zCDP). The ledger is charged that.
Where no m is known, as between adding a record and replacing one, the charge is refused. Units are
compared with the cells that they are about; see `fitplug.workload.bound_units`.

If the count itself kept only so many records of each person, a release costs any person rho,
however many records the person has: what the count keeps of them is one change in u. So this is
what a ledger of persons who are added or removed is charged, whatever records it is kept for.

The unit of a ledger may be given before its cells are known. The first charge for a unit that is
alike then fixes them. Charges before that one add up whatever these cells are: they are for records
anywhere, or are charged for each record of a person.
"""

from __future__ import annotations

from dataclasses import replace

from fitplug.domain import Domain
from fitplug.ledger.budget import Budget
from fitplug.ledger.file import LedgerFile
from fitplug.ledger.requests import ChargeRequest
from fitplug.workload import ONE_RECORD, AddRemove, BoundUnit, Unit


def choose_unit(
    file: LedgerFile, budget: Budget, unit: Unit | None, domain: Domain | None
) -> BoundUnit:
    """Choose the unit of a charge: the one that is given, or else the ledger's.

    Raises:
        DomainError: The domain does not have the attributes that the unit names.
        LedgerError: The unit is about cells, and nothing says which.
    """
    kept = budget.bound_unit
    if unit is None and domain is None and kept is not None:
        own = kept
    else:
        plain = unit or (ONE_RECORD if kept is None else kept.unit)
        own = BoundUnit(plain) if domain is None else BoundUnit.bind(plain, domain)
    if own.is_known or (kept is not None and kept.unit.is_of_records):
        return own
    remedy = "" if kept is None or kept.cells is None else ", or no unit for a cost in the ledger's"
    raise file.make_error(
        f"does not know which cells a cost in the unit of privacy ({own.unit}) is about: nothing "
        f"was charged; give the domain of the charge{remedy}"
    )


def count_changes(
    file: LedgerFile, budget: Budget, unit: BoundUnit, *, is_enforced: bool = False
) -> int:
    """Count the changes in the unit of a charge that a change in the ledger's unit is made of.

    Args:
        file: The ledger's file.
        budget: The ledger's budget, with its unit; without one, the charge is its first.
        unit: The unit of the charge.
        is_enforced: Whether the count kept no more records of a person than the unit says.

    Returns:
        m: the ledger is charged m^2 times the cost in the unit of the charge.

    Raises:
        LedgerError: The two units cannot be compared.
    """
    kept = budget.complete_unit(unit)
    if is_enforced and isinstance(unit.unit, AddRemove) and isinstance(kept.unit, AddRemove):
        return 1
    changes = unit.count_changes(kept)
    if changes is None:
        raise file.make_error(
            f"is kept for the unit of privacy ({kept}), and this charge is for another one "
            f"({unit}): costs of the two do not add up; charge another ledger, or design the plan "
            "for the unit of this ledger and with its attributes and cells"
        )
    return changes


def convert_request(file: LedgerFile, budget: Budget, request: ChargeRequest) -> ChargeRequest:
    """Return a request with its cost for one person in the ledger's unit.

    A person in the ledger's unit with m changes of k records each has m k records, which are those
    that the costs per cell are for.

    Raises:
        LedgerError: The two units cannot be compared.
    """
    changes = count_changes(file, budget, request.bound_unit, is_enforced=request.is_enforced)
    if changes == 1:
        return request
    return replace(request, rho=request.rho * changes**2, changes=changes)
