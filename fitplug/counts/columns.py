"""Columns: values of rows in memory, in a dict, a data frame or an Arrow table.

No library of data frames is imported here: a user with a frame has imported its library already.
Objects of other types may be rows of data. Errors must not quote values of rows, so they name only
types and words of the domain.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.errors import DataError

_FRAMES: tuple[tuple[str, str, Callable[[Any], Iterable[Any]]], ...] = (
    ("pandas", "DataFrame", lambda frame: frame.columns),
    ("polars", "DataFrame", lambda frame: frame.columns),
    ("pyarrow", "Table", lambda table: table.column_names),
    ("pyarrow", "RecordBatch", lambda batch: batch.schema.names),
)
"""The library and class of each kind of frame, and a function that lists its column names."""

ONE_PER_ROW = "must be a list or an array with one value per row"
"""Words of the error for a column or weights of another type or shape."""


def read_column_names(columns: Any) -> tuple[str, ...]:
    """List the names of the columns of a mapping, a pandas or Polars frame or an Arrow table.

    Args:
        columns: The rows.

    Raises:
        DataError: If it has the wrong type, or a name is not a string. The message
            names types only.
    """
    if hasattr(columns, "collect_schema") and not hasattr(columns, "height"):
        raise DataError("a LazyFrame has no rows yet. Call collect() first.")
    named: Iterable[Any] | None = columns if isinstance(columns, Mapping) else None
    for library, name, list_columns in _FRAMES:
        frame = getattr(sys.modules.get(library), name, None)
        if isinstance(frame, type) and isinstance(columns, frame):
            named = list_columns(columns)
    if named is None:
        raise DataError(
            "the rows must be a mapping of arrays, a pandas or Polars DataFrame, or an Arrow "
            f"table, not {type(columns).__name__}"
        )
    names = tuple(named)
    for name in names:
        if not isinstance(name, str):
            raise DataError(f"column names must be strings, not {type(name).__name__}")
    return names


def suggest_column(name: str, given: Iterable[str]) -> str:
    """Say what to do about a missing column.

    Args:
        name: The column that is missing.
        given: The existing columns. One of them is shown only if it differs from `name` in case,
            spaces or signs alone, because they may be a row of data that was taken for a header.
    """
    for other in given:
        if _keep_letters(other) == _keep_letters(name):
            return f"Did you mean {other!r}?"
    return "Check the spelling here and in the domain."


def _keep_letters(name: str) -> str:
    """Remove all but letters and digits, and differences of case."""
    return "".join(c for c in name if c.isalnum()).casefold()


_MISSING_OR_TRUTH_VALUES = frozenset(
    ["true", "false", "nan", "na", "n/a", "null", "none", "yes", "no"]
)
_LONGEST_NAME = 128
_DATE = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([ T].*)?")


def find_separator(names: Sequence[str]) -> str | None:
    """Find what separates the values of a text that was read with commas as separators.

    Args:
        names: The names of the columns.

    Returns:
        "semicolons" or "tabs"; None if there are several columns, or neither is in the name.
    """
    for separator, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and separator in names[0]:
            return called
    return None


def can_name_columns(words: Sequence[str]) -> bool:
    """Judge whether words can be the names of columns; the values of a row seldom can.

    Args:
        words: The first line of a file, or the names of a frame's columns.

    Returns:
        Whether all words are different and have a letter, and none is empty, a number, a date, a
        truth value, a word for null, an address with an @, or longer than 128 characters.
    """
    return len(set(words)) == len(words) and all(map(_can_be_name, words))


def _can_be_name(word: str) -> bool:
    plain = word.strip()
    if not 0 < len(plain) <= _LONGEST_NAME or plain.casefold() in _MISSING_OR_TRUTH_VALUES:
        return False
    if _DATE.fullmatch(plain) or not any(c.isalpha() for c in plain) or "@" in plain:
        return False
    try:
        float(plain.replace(",", ""))
    except ValueError:
        return plain.isprintable()
    return False  # such as 1e5


def count_values(named: str, column: Any) -> int:
    """Count the values of a column.

    Args:
        named: The column's name in the message.
        column: The column, which may be of any type.

    Raises:
        DataError: If the column is not a list or array with one axis.
    """
    shape = getattr(column, "shape", None)
    fits = not isinstance(column, (str, bytes, Mapping, set, frozenset))
    if shape is not None:
        fits = isinstance(shape, tuple) and len(shape) == 1
    try:
        count = len(column)
    except TypeError:
        fits = False
    if not fits:
        raise DataError(f"{named} {ONE_PER_ROW}")
    return count


_ZONED = re.compile(
    r"Datetime\(time_unit='\w+', time_zone='.*'\)"  # Polars
    r"|timestamp\[\w+, tz=.*\]"  # Arrow
    r"|datetime64\[\w+, .*\]"  # pandas
)
"""How the libraries write their types of times with a zone."""

_DURATIONS = re.compile(
    r"Duration\(.*\)|Time"  # Polars
    r"|duration\[\w+\]|time(32|64)\[\w+\]|\w*interval"  # Arrow
    r"|timedelta64\[\w+\]"  # pandas
)
"""How the libraries write their types of durations, and of times of a day that they do not name."""

_TIMES = re.compile(
    r"Date|Datetime\(time_unit='\w+', time_zone=None\)"  # Polars
    r"|date32\[day\]|date64\[ms\]|timestamp\[\w+\]"  # Arrow
    r"|datetime64\[\w+\]"  # pandas
)
"""How the libraries write their types of dates, and of times without a zone."""


def read_values(column: Any) -> npt.ArrayLike:
    """Read the values of a column.

    Integers stay integers if some values are null; NumPy's conversion would make them floats. Dates
    and times become NumPy's, because Python's end at the years 1 and 9999: the library's conversion
    of a time beyond them fails, with an error that may name it.

    Args:
        column: A list, an array, or a column of pandas, Polars or Arrow, shape (n,).

    Returns:
        The values (n,), with None for null if the library has its own null, and NaT in dates and
        times.

    Raises:
        DataError: No attribute can read the type of the column.
    """
    kind: Any = getattr(column, "dtype", getattr(column, "type", None))
    if hasattr(kind, "pyarrow_dtype"):  # pandas' columns of Arrow
        return read_values(getattr(column, "array", column).__arrow_array__())
    if hasattr(kind, "index_type"):  # Arrow's dictionaries
        return read_values(column.cast(kind.value_type))
    if _TIMES.fullmatch(str(kind)):
        return np.asarray(column)
    # The type is refused, rather than the first value, because no error may reveal a value.
    if _ZONED.fullmatch(str(kind)):
        raise DataError("the column has times with a time zone. Convert the column to dates.")
    if _DURATIONS.fullmatch(str(kind)):
        raise DataError(
            f"the type {kind} is not supported. Convert the column to strings, numbers or dates."
        )
    if isinstance(column, (list, tuple)):
        return _read_list(column)
    if hasattr(column, "to_pylist"):  # Arrow
        nulls, as_list = column.null_count, column.to_pylist
    elif hasattr(column, "isna"):  # pandas
        return _read_pandas_values(column)
    elif hasattr(column, "null_count") and hasattr(column, "to_list"):  # Polars
        nulls, as_list = column.null_count(), column.to_list
    else:
        return column
    plain = None if nulls else np.asarray(column)
    if plain is not None and plain.dtype.kind in "biuf":
        return plain
    return np.array([*as_list(), None], dtype=object)[:-1]


def _read_list(values: Sequence[Any]) -> npt.ArrayLike:
    """Read a list. NumPy would silently convert mixed text and numbers, or truth values and
    numbers, and would make all integers floats if one is large.
    """
    types = {np.str_ if kind is str else kind for kind in map(type, values)}
    mixed = len(types) > 1 and bool(types & {np.str_, bool, np.bool_})
    if mixed or (types == {int} and np.asarray(values).dtype.kind not in "iu"):
        return np.array([*values, None], dtype=object)[:-1]
    return values


def _read_pandas_values(column: Any) -> npt.ArrayLike:
    missing = np.asarray(column.isna(), dtype=bool)
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return np.asarray(column)
    values = np.array([*column.tolist(), None], dtype=object)[:-1]
    values[missing] = None
    return values
