"""Records: the cells of records held in memory, column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.counts.columns import count_values, read_column_names, read_values, suggest_column
from fitplug.counts.weights_and_filters import (
    WEIGHT,
    Where,
    check_weight,
    describe_rows,
    make_filters,
    select_rows,
)
from fitplug.domain import Codes, Domain
from fitplug.errors import DataError
from fitplug.numeric import IntArray


@dataclass(frozen=True, eq=False)
class EncodedRecords:
    """The cells of records, row by row. They are confidential.

    Attributes:
        count: The number of rows.
        codes: The cells (count,) on each attribute, -1 for values that have none.
        weights: The number of records (count,) that each row stands for; None if it is one.
        rows: How rows were understood, in words; None if each is one record and no row is left out.
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
    """Compute the cells of records, without those that filters leave out.

    Args:
        domain: The domain that has the attributes.
        columns: A mapping, a data frame or an Arrow table, with a column for each attribute.
        used: The attributes to encode.
        weights: The number of records that each row stands for, or the name of their column.
        where: Which rows are counted.

    Raises:
        DataError: If a column is missing, or its values have another type or number.
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
        raise DataError("the columns have different lengths; give one value per record")
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
    """Collect the different lengths of the columns needed or, if none is, of the first column."""
    given = read_column_names(columns)
    for name in needed:
        if name not in given:
            raise DataError(f"no column {name!r} was given; {suggest_column(name, given)}")
    if not needed and given:
        return {count_values("the first column", columns[given[0]])}
    return {count_values(f"column {name!r}", columns[name]) for name in needed}


def _read_weights(given: Any, name: str | None) -> IntArray:
    """Read weights (n,), clamped to their range; messages name their column if there is one."""
    named = "the weights" if name is None else f"column {name!r}"
    try:
        counts = WEIGHT.codes(read_values(given))
    except DataError as error:
        raise DataError(f"{named}: {error}") from None
    except (TypeError, ValueError, ArithmeticError):  # whose messages may quote values
        counts = np.zeros((0, 0), dtype=np.int64)
    if counts.ndim != 1:
        raise DataError(f"{named}: give a list or an array of one integer per row")
    return counts


def _encode_column(domain: Domain, name: str, column: Any, count: int) -> Codes:
    """Compute the cells (count,) of a column's values."""
    try:
        codes = domain[name].codes(read_values(column))
    except DataError as error:
        raise DataError(f"column {name!r}: {error}") from None
    except (TypeError, ValueError, ArithmeticError):  # whose messages may quote values
        codes = np.zeros((0, 0), dtype=np.int64)
    if codes.shape != (count,):
        raise DataError(f"column {name!r} is no list or array of one value per record")
    return codes
