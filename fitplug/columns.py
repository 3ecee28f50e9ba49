"""Columns: values of records in memory, held in a dict, a data frame or an Arrow table alike.

No library of frames is imported here: a column is told by the methods that it has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.errors import DataError


def names_of(columns: Any) -> tuple[Any, ...]:
    """The names of the columns of a mapping, a data frame or an Arrow table. Raises DataError for
    a LazyFrame.
    """
    if hasattr(columns, "collect_schema") and not hasattr(columns, "height"):
        raise DataError("a LazyFrame holds no records yet; give what its collect() returns")
    named = getattr(columns, "column_names", None)  # of Arrow
    if named is None:
        named = getattr(columns, "columns", columns)
    return tuple(named)


def values_of(column: Any) -> npt.ArrayLike:
    """The values (n,) of a column, None for null where its library has a null of its own.

    Integers stay integers where some are null; NumPy's conversion would make them floats.
    """
    if hasattr(column, "to_pylist"):  # Arrow
        nulls, as_list = column.null_count, column.to_pylist
    elif hasattr(column, "isna"):  # pandas
        return _of_pandas(column)
    elif hasattr(column, "null_count") and hasattr(column, "to_list"):  # Polars
        nulls, as_list = column.null_count(), column.to_list
    else:
        return column
    plain = None if nulls else np.asarray(column)
    if plain is not None and plain.dtype.kind in "biuf":
        return plain
    return np.array([*as_list(), None], dtype=object)[:-1]


def _of_pandas(column: Any) -> npt.ArrayLike:
    missing = np.asarray(column.isna(), dtype=bool)
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return np.asarray(column)
    values = np.array([*column.tolist(), None], dtype=object)[:-1]
    values[missing] = None
    return values
