"""Column types: what an Arrow column holds, and whether an attribute can read it."""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from fitplug.domain import Encoder
from fitplug_dask.encoding.text_values import describe_values

_STRINGS = ("is_string", "is_large_string", "is_string_view")
_BYTES = ("is_binary", "is_large_binary", "is_binary_view")
_ACCEPTED: dict[type, set[str]] = {
    str: {"strings", "null"},
    int: {"integers", "null"},
    bool: {"booleans", "null"},
    float: {"integers", "floats", "null"},
    datetime.date: {"dates", "strings", "null"},
}


@lru_cache(2**10)
def classify_type(arrow_type: Any) -> str | None:
    """Return what a column of an Arrow type holds, as attributes distinguish values.

    Binary columns count as strings, since writers that set no logical type store UTF-8 text so.

    Returns:
        "strings", "integers", "floats", "booleans", "dates" or "null"; None for other types.
    """
    if pt.is_dictionary(arrow_type):
        return classify_type(arrow_type.value_type)
    if any(getattr(pt, test)(arrow_type) for test in (*_STRINGS, *_BYTES)):
        return "strings"
    if pt.is_integer(arrow_type):
        return "integers"
    if pt.is_floating(arrow_type):
        return "floats"
    if pt.is_boolean(arrow_type):
        return "booleans"
    if is_date(arrow_type):
        return "dates"
    return "null" if pt.is_null(arrow_type) else None


def is_date(arrow_type: Any) -> bool:
    """Return whether a column of this type says which day.

    A time with a time zone does not, as its day depends on where one is.
    """
    return pt.is_date(arrow_type) or (pt.is_timestamp(arrow_type) and arrow_type.tz is None)


def classify_person_type(arrow_type: Any) -> str | None:
    """Return what a column that identifies persons holds.

    Returns:
        "strings", "integers", "bytes of width w" or "null" (if it holds nothing else); None for
        types that cannot identify persons.
    """
    if isinstance(arrow_type, pa.UuidType):
        arrow_type = arrow_type.storage_type
    if pt.is_fixed_size_binary(arrow_type):
        # Not strings: as text the same identifier has other bytes, and would be another person.
        return f"bytes of width {arrow_type.byte_width}"
    held = classify_type(arrow_type)
    return held if held in ("strings", "integers", "null") else None


def explain_mismatch(
    attribute: Encoder, arrow_type: Any, says: str = "the domain expects"
) -> str | None:
    """Return why an attribute cannot read a column of this type, or None if it can.

    Args:
        attribute: The attribute.
        arrow_type: The Arrow type of the column.
        says: The subject and verb of the sentence about what is expected.
    """
    if classify_type(arrow_type) in _ACCEPTED[attribute.value_type]:
        return None
    return f"holds {arrow_type}, but {says} {describe_values(attribute)}"
