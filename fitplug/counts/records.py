"""Rows in memory: which of them are counted, how many times, and their cells.

A row counts once, or as many times as its weight in a column of weights. With filters, only rows
are counted that have, in each column that a filter names, one of the filter's values. Weights and
filters are public: they consist of column names, and of values that a user gives and that are never
read from the rows.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.counts.columns import (
    ONE_PER_ROW,
    count_values,
    read_column_names,
    read_values,
    suggest_column,
)
from fitplug.domain import (
    OUTSIDE,
    TYPE_NAMES,
    Categories,
    Codes,
    Dates,
    DatesCodec,
    Domain,
    Encoder,
    get_codec,
)
from fitplug.errors import DataError, DomainError, InputError
from fitplug.numeric import AnyArray, BoolArray, IntArray, read_array

MOST_WEIGHT = 2**40
"""The most times that one row counts; a larger weight counts as this one."""

Value: TypeAlias = str | int | bool | datetime.date
Where: TypeAlias = Mapping[str, Value | Collection[Value]]
"""The value, or the values, that a row must have in each column."""

_VALUE_TYPES = (str, int, bool, datetime.date)


@dataclass(frozen=True)
class Weight:
    """The number of times that a row counts, an integer from 0 to MOST_WEIGHT.

    A column of weights is read like a column of an attribute, with the weights as codes. Null and
    numbers below 0 count as 0, and numbers above MOST_WEIGHT as MOST_WEIGHT. So no weight is
    refused because of its value, and one person more in a row changes the counts by at most 1.
    """

    value_type: ClassVar[type] = int
    null_code: ClassVar[int] = 0
    code_count: ClassVar[int] = 1  # null has the code 0
    integer_span: ClassVar[tuple[int, int] | None] = None

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute how many times rows count.

        Args:
            values: Integers and nulls, shape (n,). Floats are refused, so that none silently
                becomes a count.

        Returns:
            The numbers (n,).

        Raises:
            DataError: If a value is neither an integer nor null.
        """
        array = read_array(values)
        if array.ndim != 1:
            raise DataError("weights must be a list of numbers, one per row")
        if array.dtype == np.uint64:
            return np.minimum(array, np.uint64(MOST_WEIGHT)).astype(np.int64)
        if array.dtype.kind in "iu":  # widened first, because bounds must fit the array's type
            return np.clip(array.astype(np.int64), 0, MOST_WEIGHT)
        if array.dtype.kind != "O":
            if not array.size:
                return np.zeros(0, dtype=np.int64)
            raise DataError(
                _describe_wrong_weights("floats" if array.dtype.kind == "f" else "other values")
            )
        weights = np.zeros(len(array), dtype=np.int64)
        for row, value in enumerate(array.tolist()):
            if value is None or (isinstance(value, float) and value != value):
                continue
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
                raise DataError(_describe_wrong_weights("other values"))
            weights[row] = min(max(int(value), 0), MOST_WEIGHT)
        return weights

    def codes_of_numbers(self, numbers: AnyArray) -> Codes:
        """Compute how many times rows count (n,) from the numbers (n,) that a file stores."""
        return self.codes(numbers)


WEIGHT: Encoder = Weight()
"""The encoder of every column of weights."""


def _describe_wrong_weights(kind: str) -> str:
    return f"weights must be integers, but the column has {kind}. Convert the column."


@dataclass(frozen=True, init=False)
class ChosenDays(Dates):
    """Single days of the calendar. Days between them are outside.

    Args:
        chosen: The days, at least one.
    """

    chosen: tuple[datetime.date, ...]

    def __init__(self, chosen: Sequence[datetime.date]) -> None:
        super().__init__(min(chosen), max(chosen))
        object.__setattr__(self, "chosen", tuple(chosen))


class ChosenDaysCodec(DatesCodec, kind=ChosenDays):
    """The codec of `ChosenDays`."""

    attribute: ChosenDays

    def codes_of_days(self, days: IntArray) -> Codes:
        """Compute the codes (n,) of days since 1970-01-01 (n,), -1 for days that are not chosen."""
        chosen = np.array(self.attribute.chosen, dtype="M8[D]").astype(np.int64)
        return np.where(np.isin(days, chosen), super().codes_of_days(days), OUTSIDE)

    def spec(self) -> Any:
        """Describe the days."""
        return {"days": [day.isoformat() for day in self.attribute.chosen]}


Filters: TypeAlias = Mapping[str, Categories | ChosenDays]
"""The attribute of each column to filter by. Its cells are the values of the rows to count."""


def make_filters(where: Where | None) -> Filters:
    """Make the filters that `where` describes.

    Args:
        where: The values of the rows to count, by column.

    Returns:
        The filters in the order of the columns' names. Filters that keep the same rows are equal,
        no matter in which order the columns and values are given.

    Raises:
        DomainError: If `where` has another form, or lists no value for a column.
    """
    if where is None:
        return {}
    if not isinstance(where, Mapping) or not all(isinstance(n, str) and n for n in where):
        raise DomainError(
            "the filter 'where' must map column names to values, such as {'STATE': ['01', '02']}"
        )
    return {name: _make_filter(name, where[name]) for name in sorted(where)}


def _make_filter(name: str, given: Any) -> Categories | ChosenDays:
    listed = list(given) if isinstance(given, (list, tuple, set, frozenset)) else [given]
    values = [value.item() if isinstance(value, np.generic) else value for value in listed]
    if not values:
        raise DomainError(
            f"the filter 'where' lists no value of {name!r}. List at least one value."
        )
    types = {type(value) for value in values}
    if len(types) > 1 or not types <= set(_VALUE_TYPES):
        raise DomainError(
            f"in the filter 'where', the values of {name!r} must be all strings, all integers, all "
            "booleans or all dates"
        )
    try:
        if types == {datetime.date}:
            return ChosenDays(sorted(set(values)))
        return Categories(sorted(values))
    except DomainError as error:
        raise DomainError(f"where: {name!r}: {error}") from None


def check_weight(
    weight: str | None, filters: Filters, used: Container[str], person: Sequence[str] = ()
) -> None:
    """Refuse a column of weights that is also used for something else.

    Args:
        weight: The name of the column of weights, or None if each row counts once.
        filters: The filters of the rows to count.
        used: The attributes that are counted.
        person: The columns that identify persons, if there are any.

    Raises:
        DomainError: If the column is also counted or filtered by, or has no name.
        InputError: If `person` is given, because a row with a weight stands for several people.
    """
    if weight is None:
        return
    if not isinstance(weight, str) or not weight:
        raise DomainError(f"weight must be the name of a column, not {weight!r}")
    if weight in used:
        raise DomainError(
            f"column {weight!r} cannot be both the weight and an attribute. Remove the attribute."
        )
    if weight in filters:
        raise DomainError(
            f"the filter 'where' cannot use the weight column {weight!r}. Remove this column from "
            "'where'."
        )
    if person:
        raise InputError("weight= and person= cannot be combined. Remove one of them.")


_COUNTS = "each row counts "


def describe_rows(weight: str | None, filters: Filters, most: int | None = None) -> str | None:
    """Describe how rows are weighted and filtered.

    Args:
        weight: The name of the column of weights, if there is one.
        filters: The filters of the rows to count.
        most: The most values of a column to name; if there are more, their number is given. By
            default all are named, so that different weights and filters have different words.

    Returns:
        The words, or None if each row counts once and all rows are counted.
    """
    parts = []
    if weight is not None:
        parts.append(f"{_COUNTS}{_quote_name(weight)} times")
    if filters:
        conditions = [
            f"{_quote_name(name)} is {_list_values(_list_chosen(attribute), most)}"
            for name, attribute in filters.items()
        ]
        parts.append(f"only rows where {' and '.join(conditions)} are counted")
    return "; ".join(parts) or None


def _list_chosen(attribute: Categories | ChosenDays) -> Sequence[Value]:
    return attribute.chosen if isinstance(attribute, ChosenDays) else attribute.values


def is_weighted(rows: str | None) -> bool:
    """Return whether the words of `describe_rows` state that rows have weights."""
    return rows is not None and rows.startswith(_COUNTS)


def _quote_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _list_values(values: Sequence[Value], most: int | None) -> str:
    """Join the values by "or"; only the first `most` of them if there are more."""
    shown = [
        value.isoformat()
        if isinstance(value, datetime.date)
        else json.dumps(value, ensure_ascii=False)
        for value in values
    ]
    if most is not None and len(shown) > most:
        return f"{', '.join(shown[:most])} or one of {len(shown) - most:,} more"
    return " or ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def select_rows(columns: Any, filters: Filters, rows: int) -> BoolArray:
    """Find the rows that pass all filters.

    Args:
        columns: Rows in memory: a mapping or a frame of columns.
        filters: The filters.
        rows: The number of rows.

    Returns:
        Whether each row passes all filters, shape (rows,).

    Raises:
        DataError: If the values of a column do not have the type of its filter.
    """
    inside = np.ones(rows, dtype=bool)
    for name, attribute in filters.items():
        codec = get_codec(attribute)
        try:
            codes = codec.codes(read_values(columns[name]))
        except (TypeError, ValueError, ArithmeticError):  # whose messages may quote values
            codes = None
        if codes is None or codes.shape != (rows,):
            raise DataError(
                f"column {name!r} does not hold {TYPE_NAMES[codec.value_type]}, as the filter "
                "'where' expects. Use values of the column's type in 'where'."
            )
        inside &= codes != OUTSIDE
    return inside


@dataclass(frozen=True, eq=False)
class EncodedRecords:
    """The cells of each row. They are confidential.

    Attributes:
        count: The number of rows.
        codes: The cells (count,) on each attribute, -1 for values in no cell.
        weights: How many times each row counts (count,); None for once each.
        rows: How rows were weighted and filtered, in words, or None (`describe_rows`).
    """

    count: int
    codes: Mapping[str, Codes]
    weights: IntArray | None
    rows: str | None


def encode_records(
    domain: Domain,
    columns: Any,
    used: Sequence[str],
    *,
    weights: str | npt.ArrayLike | None = None,
    where: Where | None = None,
) -> EncodedRecords:
    """Compute the cells of the rows that pass the filters.

    Args:
        domain: The domain that has the attributes.
        columns: A mapping, a data frame or an Arrow table, with a column for each attribute.
        used: The attributes to encode.
        weights: How many times each row counts, or the name of the column with these numbers.
        where: The values of the rows to count, by column.

    Raises:
        DataError: If a column is missing, or its values have the wrong type or length.
        DomainError: If the weights or filters are not valid.
    """
    filters = make_filters(where)
    weight = weights if isinstance(weights, str) else None
    check_weight(weight, filters, used)
    lengths = _measure_columns(columns, (*used, *filters, *([] if weight is None else [weight])))
    counts = None
    if weights is not None:
        counts = _read_weights(weights if weight is None else columns[weight], weight)
        lengths.add(len(counts))
    if len(lengths) > 1:
        raise DataError("the columns have different lengths. Give one value per row.")
    count = next(iter(lengths), 0)
    codes = {name: _encode_column(domain, name, columns[name], count) for name in used}
    if filters:
        inside = select_rows(columns, filters, count)
        codes = {name: cells[inside] for name, cells in codes.items()}
        counts = None if counts is None else counts[inside]
        count = int(inside.sum())
    named = "weights" if counts is not None and weight is None else weight
    return EncodedRecords(count, codes, counts, describe_rows(named, filters))


def _measure_columns(columns: Any, needed: Sequence[str]) -> set[int]:
    """Collect the different lengths of the needed columns, or of the first if none is needed."""
    given = read_column_names(columns)
    for name in needed:
        if name not in given:
            raise DataError(f"unknown column {name!r}. {suggest_column(name, given)}")
    if not needed and given:
        return {count_values("the first column", columns[given[0]])}
    return {count_values(f"column {name!r}", columns[name]) for name in needed}


def _read_weights(given: Any, name: str | None) -> IntArray:
    """Read weights (n,), clamped to their range; messages name their column if it has a name."""
    named = "the weights" if name is None else f"column {name!r}"
    try:
        counts = WEIGHT.codes(read_values(given))
    except DataError as error:
        raise DataError(f"{named}: {error}") from None
    except (TypeError, ValueError, ArithmeticError):  # whose messages may quote values
        counts = np.zeros((0, 0), dtype=np.int64)
    if counts.ndim != 1:
        raise DataError(f"{named} {ONE_PER_ROW}")
    return counts


def _encode_column(domain: Domain, name: str, column: Any, count: int) -> Codes:
    """Compute the cells (count,) of a column's values."""
    codec = get_codec(domain[name])
    try:
        values = read_values(column)
        codes = codec.codes(_read_integers(values) if codec.value_type is int else values)
    except DataError as error:
        raise DataError(f"column {name!r}: {error}") from None
    except (TypeError, ValueError, ArithmeticError):  # whose messages may quote values
        codes = np.zeros((0, 0), dtype=np.int64)
    if codes.shape != (count,):
        raise DataError(f"column {name!r} {ONE_PER_ROW}")
    return codes


def _read_integers(values: npt.ArrayLike) -> npt.ArrayLike:
    """Convert whole floats (n,) to integers, and other floats to null, as in files.

    Columns of integers with nulls are floats in pandas and NumPy.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fO":
        return values
    read = [
        (int(value) if math.isfinite(value) and value == int(value) else None)
        if isinstance(value, (float, np.floating))
        else value
        for value in array.tolist()
    ]
    return np.array([*read, None], dtype=object)[:-1]
