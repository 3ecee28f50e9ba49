"""Columns: values of records in memory, held in a dict, a data frame or an Arrow table alike.

No library of frames is imported here: who has a frame has imported its library. Anything else may
be rows, and what a row holds must not reach an error: these name types, and words of the domain.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.errors import DataError

_TABLES = (
    ("pandas", "DataFrame", "columns"),
    ("polars", "DataFrame", "columns"),
    ("pyarrow", "Table", "column_names"),
    ("pyarrow", "RecordBatch", "schema"),
)
"""Library, class, and the attribute that names the columns, or is a schema of them."""


def names_of(columns: Any) -> tuple[str, ...]:
    """The names of the columns of a mapping, a pandas or Polars frame or an Arrow table.

    Raises DataError, naming the type alone, for anything else and for names that are no strings.
    """
    if hasattr(columns, "collect_schema") and not hasattr(columns, "height"):
        raise DataError("a LazyFrame holds no records yet; give what its collect() returns")
    named: Iterable[Any] | None = columns if isinstance(columns, Mapping) else None
    for library, table, attribute in _TABLES:
        kind = getattr(sys.modules.get(library), table, None)
        if isinstance(kind, type) and isinstance(columns, kind):
            named = getattr(columns, attribute)
            named = getattr(named, "names", named) if attribute == "schema" else named
    if named is None:
        raise DataError(
            "the records must be a mapping from names of attributes to arrays of values, a pandas "
            f"or Polars DataFrame, or an Arrow table, not of type {type(columns).__name__}"
        )
    names = tuple(named)
    for name in names:
        if not isinstance(name, str):
            raise DataError(
                f"the columns of this {type(columns).__name__} are named by values of type "
                f"{type(name).__name__}; name them by strings, the domain's attributes"
            )
    return names


def hint(name: str, given: Iterable[str]) -> str:
    """What to do where a column is missing. Only a name that differs in case, spaces or signs is
    shown, as the names given may be a row of data that was taken for a header.
    """
    for other in given:
        if _letters(other) == _letters(name):
            return f"did you mean {other!r}?"
    return "check the spelling there and in the domain"


def _letters(name: str) -> str:
    return "".join(c for c in name if c.isalnum()).casefold()


_NO_NAMES = frozenset(["true", "false", "nan", "na", "n/a", "null", "none", "yes", "no"])
_LONGEST_NAME = 128
_DATE = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([ T].*)?")


def are_names(words: Sequence[str]) -> bool:
    """Whether words can be the names of columns: none empty, there twice, a number, a date, a truth
    value, a null or as long as a text, and each with a letter. A record's values seldom can.
    """
    return len(set(words)) == len(words) and all(map(_is_name, words))


def _is_name(word: str) -> bool:
    plain = word.strip()
    if not 0 < len(plain) <= _LONGEST_NAME or plain.casefold() in _NO_NAMES:
        return False
    if _DATE.fullmatch(plain) or not any(c.isalpha() for c in plain) or "@" in plain:
        return False
    try:
        float(plain.replace(",", ""))
    except ValueError:
        return plain.isprintable()
    return False  # such as 1e5


def value_count(name: str, column: Any) -> int:
    """How many values a column has. Raises DataError unless it is a list or an array of them."""
    shape = getattr(column, "shape", None)
    fits = not isinstance(column, (str, bytes, Mapping, set, frozenset))
    if shape is not None:
        fits = isinstance(shape, tuple) and len(shape) == 1
    try:
        count = len(column)
    except TypeError:
        fits = False
    if not fits:
        raise DataError(
            f"column {name!r} is of type {type(column).__name__}, and no list or array of values"
        )
    return count


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
