"""Enforced units: which records of a person are kept, so that a unit of privacy holds."""

from __future__ import annotations

from fitplug.errors import BudgetError, DomainError
from fitplug.privacy import check_contributions
from fitplug.workload import AddRemove, ReplaceOne, Unit
from fitplug_dask.kernel import Job
from fitplug_dask.persons.packing import Packing
from fitplug_dask.persons.selection import AttributeGroups, CellGroups, RecordGroups


def choose_limit(unit: Unit | None, contributions: int | None) -> AddRemove | None:
    """Choose the limit on the records of a person that a count enforces.

    Args:
        unit: The unit of privacy of the plan, or None if the contributions alone say the limit.
        contributions: The most records of a person, if the caller gives it too.

    Returns:
        The limit. One record of each person is kept where neighbours replace one record. None if
        nothing says a limit.

    Raises:
        BudgetError: The contributions are no number of records, or not that of the unit; or a
            record that is replaced keeps the values of some attributes.
    """
    if isinstance(unit, ReplaceOne) and unit.within:
        # The row that is kept may be at other values after another row of the person was replaced,
        # and a release has the numbers of kept rows at these values without noise.
        raise BudgetError(
            f"counting by person does not keep the unit of privacy ({unit}), because which row of "
            "a person is kept depends on all values of the rows; count without person, or design "
            "the plan for fp.ReplaceOne()"
        )
    if contributions is not None:
        check_contributions(contributions)
    if unit is None:
        return None if contributions is None else AddRemove(contributions)
    limit = unit if isinstance(unit, AddRemove) else AddRemove()
    if contributions not in (None, limit.records):
        raise BudgetError(
            f"contributions = {contributions}, but the unit of privacy is {unit}, of which a "
            f"count keeps at most {limit.records:,}: leave out contributions"
        )
    return limit


def find_record_groups(limit: AddRemove, job: Job) -> RecordGroups | None:
    """Find the records of a person of which at most one is kept.

    Args:
        limit: The limit on the records of a person.
        job: What is counted.

    Returns:
        The groups of records; None if the limit says how many records, and nothing else.

    Raises:
        DomainError: The limit is for each cell of an attribute that is not counted or a measure,
            or for each cell of all where measures divide records between cells.
    """
    if limit.distinct and job.measures:
        raise DomainError(
            f"records with the measure {job.measures[0]} are divided over two cells, so that no "
            "two are in distinct cells; give records alone, or once_per"
        )
    if limit.distinct:
        return CellGroups()
    if limit.once_per is None:
        return None
    if limit.once_per not in job.attributes:
        raise DomainError(
            f"the unit of privacy is {limit}, but no table counts {limit.once_per!r}: add a query "
            f"on it, or let the unit be AddRemove(records={limit.records})"
        )
    if limit.once_per in job.measures:
        raise DomainError(
            f"once_per names {limit.once_per!r}, which is a measure; name an attribute that "
            "divides records into cells"
        )
    return AttributeGroups(Packing(job).find_field(limit.once_per))
