"""Requests for a count, checked before any row is read."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from fitplug.counts.consistency import AttributeSet
from fitplug.counts.joint_tables import is_measure
from fitplug.counts.records import check_weight, make_filters
from fitplug.counts.source import Source, list_person_columns
from fitplug.domain import Attribute, Domain
from fitplug.errors import BudgetError, DomainError, TablesError
from fitplug.workload import AddRemove, ReplaceOne, Unit, get_limit


def list_tables(wanted: Any) -> tuple[Domain, list[AttributeSet]]:
    """List the wanted attribute sets, each once and in the domain's order.

    Args:
        wanted: A plan, a workload, or (domain, attribute sets).

    Returns:
        The domain and the attribute sets.

    Raises:
        TablesError: No table is wanted, or a table names an attribute twice.
        DomainError: The domain does not have an attribute.
    """
    domain, tables = wanted if isinstance(wanted, tuple) else (wanted.domain, wanted.tables)
    names: list[AttributeSet] = []
    for table in tables:
        given = (table,) if isinstance(table, str) else tuple(table)
        if len(set(given)) != len(given):
            raise TablesError(f"table {given} names an attribute twice. Name each attribute once.")
        ordered = domain.ordered(given)
        if ordered not in names:
            names.append(ordered)
    if not names:
        raise TablesError("no tables are given. Name at least one set of attributes.")
    return domain, names


def check_request(
    wanted: Any,
    source: Source,
    attributes: Mapping[str, Attribute],
    unit: Unit | None = None,
) -> AddRemove | None:
    """Check that the wanted tables, the source and the unit of privacy are compatible.

    Args:
        wanted: As for `list_tables`; a plan has a unit, and perhaps coverage.
        source: The source of the rows.
        attributes: The attributes that are counted.
        unit: The unit of privacy that the caller gave.

    Returns:
        The limit on the rows per person that the count enforces; None if it counts all rows.

    Raises:
        BudgetError: The plan's unit differs from the given one, nothing limits the rows per
            person, no count can enforce the unit, or a plan with coverage is combined with persons.
        DomainError: A column of weights or persons is also used for something else, or the count
            cannot limit rows per person in each cell that the unit names.
        InputError: The source has weights and persons.
    """
    person = list_person_columns(source)
    if person and getattr(wanted, "coverage", None) is not None:
        raise BudgetError("person= and coverage cannot be combined. Remove one of them.")
    check_weight(source.weight, make_filters(source.where), attributes, person)
    limit = _find_limit(getattr(wanted, "unit", None), unit, source.person)
    check_person(person, attributes)
    if limit is not None:
        _check_limit_attributes(limit, attributes)
    return limit


def check_person(person: Sequence[str], used: Container[str]) -> None:
    """Raise DomainError if a column of persons is among the attributes that are counted."""
    for name in person:
        if name in used:
            raise DomainError(
                f"column {name!r} cannot be both a person column and an attribute. Remove the "
                "attribute."
            )


def choose_limit(unit: Unit | None) -> AddRemove | None:
    """Choose the limit on the records per person that a count enforces.

    Args:
        unit: The unit of privacy; None if all records are counted.

    Returns:
        The limit: one record per person if neighbours replace one record.

    Raises:
        BudgetError: A replaced record keeps the values of some attributes.
    """
    if isinstance(unit, ReplaceOne) and unit.within:
        # Replacing one row of a person may make the count keep another row, with other values of
        # these attributes, and a release has the numbers of kept rows per value without noise.
        raise BudgetError(
            f"person= cannot be combined with the unit of privacy ({unit}). Design the plan for "
            "fp.ReplaceOne()."
        )
    return None if unit is None else get_limit(unit)


def _find_limit(
    planned: Unit | None, unit: Unit | None, person: str | Sequence[str] | None
) -> AddRemove | None:
    """Find the limit on the rows per person that a count enforces; None if it counts all rows.

    Args:
        planned: The unit of privacy of a plan; None for a workload or tables.
        unit: The unit of privacy that the caller gave.
        person: The columns that identify persons.

    Raises:
        BudgetError: The plan's unit differs from the given one, nothing limits the rows per
            person, or no count can enforce the unit.
    """
    if planned is not None and unit not in (None, planned):
        raise BudgetError(
            f"unit= differs from the plan's unit of privacy ({planned}). Remove unit=."
        )
    if person is None:
        if unit is not None:
            raise BudgetError(
                'unit= needs person=. Name the column of persons: fp.Source(..., person="...").'
            )
        return None
    chosen = unit if planned is None else planned
    if chosen is None:
        raise BudgetError(
            "person= needs a unit of privacy. Give one, such as unit=fp.AddRemove(records=3)."
        )
    return choose_limit(chosen)


def _check_limit_attributes(limit: AddRemove, attributes: Mapping[str, Attribute]) -> None:
    """Check that a count can limit the rows per person in each cell that the unit names.

    Args:
        limit: The limit on the rows per person.
        attributes: The attributes that are counted.

    Raises:
        DomainError: The limit is per cell of a measure or of an attribute that is not counted, or
            rows must be distinct although a measure divides them between cells.
    """
    measures = [name for name, one in attributes.items() if is_measure(one)]
    if limit.distinct and measures:
        raise DomainError(
            f"distinct=True cannot be combined with the measure {measures[0]}. Use once_per= "
            "instead."
        )
    if limit.once_per is not None and limit.once_per not in attributes:
        raise DomainError(
            f"no table has the attribute {limit.once_per!r} of once_per=. Add a query on "
            f"{limit.once_per!r}."
        )
    if limit.once_per in measures:
        raise DomainError(f"once_per = {limit.once_per!r} is a measure. Name another attribute.")
