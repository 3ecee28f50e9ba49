"""Rows: which rows of a database are counted, and their cells.

Of each person, at most as many rows are counted as the unit of privacy allows: the first ones in a
random order, which the database draws separately for each person. `docs/theory/persons.md` proves
that this preserves the guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fitplug.counts import WEIGHT, Source, list_person_columns, make_filters
from fitplug.domain import NULLS, Attribute, Encoder, get_codec
from fitplug.errors import DataError
from fitplug.workload import AddRemove
from fitplug_ibis.codes import select_codes
from fitplug_ibis.columns import Column, check_column, read_column

_PERSON_KINDS = ("strings", "integers", "uuids", "null")


@dataclass(frozen=True)
class CodedRows:
    """Rows as an Ibis table of codes, without values.

    Attributes:
        rows: The table.
        code_of: The name of the column of codes of each attribute; a code is null where the value
            of the row is in no cell.
        weight: The name of the column of weights, or None.
        persons: The names of the columns that identify persons; null where nobody is identified.
    """

    rows: Any
    code_of: Mapping[str, str]
    weight: str | None
    persons: tuple[str, ...]

    def select_inside(self) -> CodedRows:
        """Select the rows that are in a cell of every attribute."""
        return self._filter([self.rows[name].notnull() for name in self.code_of.values()])

    def select_persons(self, limit: AddRemove) -> CodedRows:
        """Select at random as many rows of each person as a limit allows."""
        known = self._filter([self.rows[name].notnull() for name in self.persons])
        if limit.distinct:
            known = known._select_first([*known.code_of.values()], 1)
        if limit.once_per is not None:
            known = known._select_first([known.code_of[limit.once_per]], 1)
        return known._select_first([], limit.records)

    def _select_first(self, groups: list[str], most: int) -> CodedRows:
        """Select the first rows of each person and group in a random order."""
        import ibis

        # The random numbers are a column because some databases cannot order by a random function.
        drawn = self.rows.mutate(fitplug_order=ibis.random())
        place = ibis.row_number().over(
            group_by=[*self.persons, *groups], order_by=drawn.fitplug_order
        )
        placed = drawn.mutate(fitplug_place=place)
        kept = placed.filter(placed.fitplug_place < most).select(*self.rows.columns)
        return CodedRows(kept, self.code_of, self.weight, self.persons)

    def _filter(self, conditions: list[Any]) -> CodedRows:
        rows = self.rows.filter(*conditions) if conditions else self.rows
        return CodedRows(rows, self.code_of, self.weight, self.persons)


def code_rows(
    table: Any, source: Source, attributes: Mapping[str, Attribute], *, is_sqlite: bool
) -> CodedRows:
    """Write the codes of the rows that pass the filters.

    Args:
        table: A table of Ibis.
        source: Its weight, filters, persons and names of columns are used.
        attributes: The attributes that are counted.
        is_sqlite: Whether SQLite holds the table.

    Raises:
        DataError: A column is missing, or of a type that cannot be read.
    """
    named = source.columns or {}
    wanted_rows = make_filters(source.where)
    wanted: list[tuple[str, Encoder]] = [
        *((named.get(name, name), get_codec(one)) for name, one in wanted_rows.items()),
        *((named.get(name, name), get_codec(one)) for name, one in attributes.items()),
    ]
    if source.weight is not None:
        wanted.append((source.weight, WEIGHT))
    columns = [read_column(table, name, is_sqlite) for name, _ in wanted]
    for column, (_, encoder) in zip(columns, wanted, strict=True):
        check_column(column, encoder)
    persons = {
        f"fitplug_person{n}": _write_person(read_column(table, name, is_sqlite))
        for n, name in enumerate(list_person_columns(source))
    }
    names = [f"fitplug_code{n}" for n in range(len(wanted))]
    encoded = {
        name: (encoder, column)
        for name, column, (_, encoder) in zip(names, columns, wanted, strict=True)
    }
    filters, rest = names[: len(wanted_rows)], names[len(wanted_rows) :]
    if names or persons:
        table = select_codes(table.mutate(**persons), encoded, list(persons))
    if filters:
        table = table.filter(*(table[name].notnull() for name in filters))
    return CodedRows(
        table,
        dict(zip(attributes, rest, strict=False)),
        None if source.weight is None else rest[-1],
        tuple(persons),
    )


def _write_person(column: Column) -> Any:
    """Write a person's identifier; null for text that is empty, blank or a way to write null.

    Raises:
        DataError: The type of the column cannot identify persons.
    """
    import ibis

    whole = column.kind == "decimals" and column.dtype.scale == 0
    if column.kind not in _PERSON_KINDS and not whole:
        raise DataError(
            f"column {column.name!r} has the type {column.dtype}, but person identifiers must be "
            "strings or integers. Convert it in the database: table.mutate(...)."
        )
    if column.kind != "strings":
        return column.value
    text = column.value.concat("").strip()
    return ibis.cases((text.notin(["", *NULLS]), text))
