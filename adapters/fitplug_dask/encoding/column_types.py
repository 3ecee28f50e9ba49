"""Column types: what an Arrow column holds, and whether an attribute can read it."""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from fitplug.counts import WEIGHT
from fitplug.domain import TYPE_NAMES, Encoder
from fitplug_dask.encoding.stored_values import INT64_DIGITS, is_decimal, is_text, is_zoned

_ACCEPTED: dict[type, set[str]] = {
    str: {"strings", "null"},
    int: {"integers", "floats", "decimals", "null"},
    bool: {"booleans", "null"},
    float: {"integers", "floats", "decimals", "null"},
    datetime.date: {"dates", "strings", "null"},
}


@lru_cache(2**10)
def classify_type(arrow_type: Any) -> str | None:
    """Return the kind of values that a column of an Arrow type holds, as attributes see it.

    Returns:
        "strings", "integers", "floats", "decimals", "booleans", "dates" or "null"; None for other
        types.
    """
    if pt.is_dictionary(arrow_type):
        return classify_type(arrow_type.value_type)
    if is_text(arrow_type):
        return "strings"
    if pt.is_integer(arrow_type):
        return "integers"
    if pt.is_floating(arrow_type):
        return "floats"
    if pt.is_boolean(arrow_type):
        return "booleans"
    if is_decimal(arrow_type):
        return "decimals"
    if is_date(arrow_type):
        return "dates"
    return "null" if pt.is_null(arrow_type) else None


def is_date(arrow_type: Any) -> bool:
    """Return whether values of this type determine a day.

    A time with a time zone does not, because its day depends on the zone of the reader.
    """
    return pt.is_date(arrow_type) or (pt.is_timestamp(arrow_type) and arrow_type.tz is None)


def classify_person_type(arrow_type: Any) -> str | None:
    """Return what a column that identifies persons holds.

    Returns:
        "strings", "integers", "wide decimals", "bytes of width w" or "null" (if it holds nothing
        else); None for types that cannot identify persons.
    """
    if isinstance(arrow_type, pa.UuidType):
        arrow_type = arrow_type.storage_type
    if pt.is_fixed_size_binary(arrow_type):
        # Not strings: the same identifier written as text has other bytes, so it would be another
        # person.
        return f"bytes of width {arrow_type.byte_width}"
    kind = classify_type(arrow_type)
    if kind == "decimals":  # see `convert_persons`
        if pt.is_dictionary(arrow_type) or arrow_type.scale != 0:
            return None
        return "integers" if arrow_type.precision <= INT64_DIGITS else "wide decimals"
    return kind if kind in ("strings", "integers", "null") else None


def explain_person_mismatch(arrow_type: Any, *, floats: bool = False) -> str | None:
    """Return why a column of this type cannot identify persons, or None if it can.

    Args:
        arrow_type: The type of the column.
        floats: Whether floats may hold integers.
    """
    if classify_person_type(arrow_type) or (floats and pt.is_floating(arrow_type)):
        return None
    return f"has the type {arrow_type}, but person identifiers must be strings or integers"


def explain_mismatch(
    attribute: Encoder,
    arrow_type: Any,
    says: str = "the domain expects",
    zone: str | None = None,
) -> str | None:
    """Return why an attribute cannot read a column of this type, or None if it can.

    Args:
        attribute: The attribute, or the encoder of weights.
        arrow_type: The Arrow type of the column.
        says: The subject and verb of the sentence about what is expected.
        zone: The time zone that determines the day of times with a zone.
    """
    if attribute is WEIGHT:
        return explain_weight_mismatch(arrow_type)
    return explain_value_mismatch(attribute.value_type, arrow_type, says, zone)


def explain_value_mismatch(
    value_type: type, arrow_type: Any, says: str, zone: str | None = None
) -> str | None:
    """Do as `explain_mismatch` for attributes of a value type."""
    if classify_type(arrow_type) in _ACCEPTED[value_type]:
        return None
    why = f"has the type {arrow_type}, but {says} {TYPE_NAMES[value_type]}"
    if value_type is not datetime.date or not is_zoned(arrow_type):
        return why
    if zone is not None:
        return None
    return f'{why}; set the time zone, such as zone="Europe/Berlin"'


def explain_weight_mismatch(arrow_type: Any) -> str | None:
    """Return why a column of this type cannot hold weights, or None if it can.

    Floats are refused because sampling weights usually are floats, and must not silently become
    counts.
    """
    if holds_integers_only(arrow_type):
        return None
    return f"has the type {arrow_type}, but weights are {TYPE_NAMES[int]}"


def holds_integers_only(arrow_type: Any) -> bool:
    """Return whether all values of this type are integers."""
    if pt.is_dictionary(arrow_type):
        return holds_integers_only(arrow_type.value_type)
    if is_decimal(arrow_type):
        return bool(arrow_type.scale == 0)
    return classify_type(arrow_type) in ("integers", "null")
