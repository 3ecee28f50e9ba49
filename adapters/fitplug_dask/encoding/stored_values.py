"""Stored values: parsing text, and converting columns before they are encoded.

The attribute alone decides how the text of a CSV file or a folder name is read: "01" is the string
"01" for string categories and the integer 1 for integers. Strings are compared as they are. Blanks
around a number, a truth value or a date are ignored. "34.0" and "3.4e1" are read as the integer 34,
because programs write columns of integers with nulls in this way; "34.5" is not an integer. Text
with a thousands separator, or in any other form, is not a value.

Decimals and floats may hold integers. Times with a zone, also as text, become days once a zone is
chosen. Only the types and the zone decide which columns are converted. A value that cannot be
converted, such as 2.5 where integers are expected, becomes null: like null, it has no cell unless
one cell takes all other values.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from fitplug.domain import (
    BLANKS,
    EPOCH,
    OUTSIDE,
    Codes,
    DatesCodec,
    Encoder,
    find_days,
    parse_day,
    parse_moment,
)

_NUMBER = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?")
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_BOOLEAN = {"true": True, "false": False}
_DIGITS = 4000  # Python does not convert longer integers, and no domain needs them


def encode_texts(attribute: Encoder, texts: Iterable[str | None]) -> Codes:
    """Return the codes (n,) of n texts.

    Args:
        attribute: The attribute whose values the texts give.
        texts: Texts, or None for null. A text that is not a value of the attribute's type counts as
            outside the domain.
    """
    if isinstance(attribute, DatesCodec):  # it parses text itself: days, months or years
        values = list(texts)
    else:
        parse = _PARSERS[attribute.value_type]
        values = [None if text is None else parse(text) for text in texts]
    return attribute.codes(np.array([*values, None], dtype=object)[:-1])


def encode_folder_texts(attribute: Encoder, texts: Sequence[str | None]) -> list[int | None]:
    """Return the codes of the n values that folder names give.

    Returns:
        The codes; None where the text is not a value of the attribute's type and the attribute has
        no cell for such text.
    """
    codes: list[int | None] = encode_texts(attribute, texts).tolist()
    if attribute.null_code != OUTSIDE:
        return codes
    days = attribute.count_days if isinstance(attribute, DatesCodec) else None
    parse = days or _PARSERS[attribute.value_type]
    return [
        code if text is None or parse(text) is not None else None
        for text, code in zip(texts, codes, strict=True)
    ]


def parse_text(value_type: type, text: str) -> Any:
    """Parse a text as a value of some type; return None if it is not one."""
    return _PARSERS[value_type](text)


def _parse_integer(text: str) -> int | None:
    """Parse a numeral; return None if it is not an integer.

    An integer of more than _DIGITS digits is replaced by another one that is also far outside all
    domains.
    """
    text = text.strip(BLANKS)
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        return None
    sign, whole, fraction, exponent = match.groups()
    # The number is digits * 10**power; digits neither begin nor end with 0.
    digits = (whole + fraction).lstrip("0")
    power = _cut(exponent or "") - len(fraction)
    power += len(digits) - len(digits := digits.rstrip("0"))
    if not digits:
        return 0
    if power < 0:
        return None
    magnitude = int(digits[:_DIGITS]) * 10 ** min(power, _DIGITS)
    return -magnitude if sign == "-" else magnitude


def _cut(exponent: str) -> int:
    """Convert an exponent, of which only the first 12 digits matter: any more is very large."""
    size = int(exponent.lstrip("+-0")[:12] or "0")
    return -size if exponent.startswith("-") else size


def _parse_number(text: str) -> float | None:
    text = text.strip(BLANKS)
    if text.lower() == "nan":
        return math.nan
    match = _NUMBER.fullmatch(text)
    is_number = match is not None and bool(match[2] or match[3])
    return float(text) if is_number or _INFINITY.fullmatch(text) else None


def _parse_boolean(text: str) -> bool | None:
    return _BOOLEAN.get(text.strip(BLANKS).lower())


def _parse_date(text: str) -> datetime.date | None:
    day = parse_day(text)
    return None if day is None else datetime.date.fromordinal(day + EPOCH)


_PARSERS: dict[type, Callable[[str], Any]] = {
    str: str,
    int: _parse_integer,
    float: _parse_number,
    bool: _parse_boolean,
    datetime.date: _parse_date,
}


INT64_DIGITS = 18
"""int64 can hold all decimals of at most this many digits."""

_EXACT_DIGITS = 15  # floats represent integers and powers of ten of this many digits exactly

_TICKS_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MOST_SECONDS = 300_000_000_000  # some 9,500 years from 1970: beyond all supported days
_LATE_SECONDS = 2_114_380_800  # 2037: Arrow does not know the rules of zones from 2038 on
_CYCLE = 146_097 * 86_400  # the calendar, and the rules with it, repeat after 400 years
_QUARTER = 900  # clocks change only at full quarters of an hour
_START = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

_TEXTS = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")


def is_text(arrow_type: Any) -> bool:
    """Return whether a column of this type holds text.

    Binary columns do, because writers that set no logical type store UTF-8 text as binary.
    """
    return any(getattr(pt, f"is_{name}")(arrow_type) for name in _TEXTS)


def is_zoned(arrow_type: Any) -> bool:
    """Return whether a column of this type holds times with a time zone."""
    return pt.is_timestamp(arrow_type) and arrow_type.tz is not None


def is_decimal(arrow_type: Any) -> bool:
    """Return whether a column of this type holds decimals of at most 38 digits."""
    return pt.is_decimal(arrow_type) and not pt.is_decimal256(arrow_type)


def needs_conversion(value_type: type, arrow_type: Any, zone: str | None = None) -> bool:
    """Return whether `convert_values` changes a column of this type.

    Args:
        value_type: The type of the values that the attribute expects.
        arrow_type: The type of the column; the attribute accepts it.
        zone: The time zone that determines the day of times with a zone.
    """
    if pt.is_dictionary(arrow_type):
        return needs_conversion(value_type, arrow_type.value_type, zone)
    if value_type is datetime.date and zone is not None and is_text(arrow_type):
        return True
    if value_type is int and pt.is_floating(arrow_type):
        return True
    return is_decimal(arrow_type) or (value_type is datetime.date and is_zoned(arrow_type))


def convert_values(column: Any, value_type: type, zone: str | None = None) -> Any:
    """Convert a column (n,) to a type that attributes of this value type can read.

    Args:
        column: An Arrow array (n,).
        value_type: The type of the values that the attribute expects.
        zone: The time zone that determines the day of times with a zone.

    Returns:
        The column itself, if it needs no conversion.
    """
    if not needs_conversion(value_type, column.type, zone):
        return column
    if is_text(column.type.value_type if pt.is_dictionary(column.type) else column.type):
        return _convert_texts(column, zone)
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_zoned(column.type):
        return _convert_times(column, zone)
    if pt.is_floating(column.type):
        return _convert_whole_floats(column)
    if not pt.is_decimal128(column.type):  # of 32 or 64 bits
        column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    return (_make_integers if value_type is int else _make_floats)(column)


def convert_persons(column: Any) -> Any:
    """Convert a column (n,) of person identifiers if they are decimals, which must be integers.

    Returns:
        Integers if all values of the type fit into 64 bits, and otherwise the digits as text; the
        column itself if it does not hold decimals.
    """
    if not is_decimal(column.type):
        return column
    if column.type.precision <= INT64_DIGITS:
        return convert_values(column, int)
    return column.cast(pa.large_string())


def spell_persons(column: Any) -> Any:
    """Convert a column (n,) of person identifiers, text or integers, to text.

    One frame may hold a column as integers and another, because of a null, as floats; only their
    text forms agree.
    """
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    column = convert_persons(column)
    if pt.is_floating(column.type):
        column = _convert_whole_floats(column)
    return column.cast(pa.large_string()) if pt.is_integer(column.type) else column


def _convert_times(column: Any, zone: str | None) -> Any:
    """Convert times (n,) to local times of the zone, without a zone."""
    unit = column.type.unit
    ticks = column.cast(pa.int64())
    second = _TICKS_A_SECOND[unit]
    # Arrow raises for times that it cannot represent, but no error may reveal that there is one.
    # The offset of a zone is less than two days.
    most = min(_MOST_SECONDS * second, 2**63 - 2 * 86_400 * second)
    inside = pc.and_(pc.less_equal(ticks, most), pc.greater_equal(ticks, -most))
    ticks = pc.if_else(inside, ticks, pa.scalar(None, pa.int64()))
    local = pc.local_timestamp(ticks.cast(pa.timestamp(unit, zone)))
    late = pc.greater_equal(ticks, _LATE_SECONDS * second).fill_null(False)
    moments = ticks.filter(late).to_numpy(zero_copy_only=False)
    if not len(moments):
        return local
    quarters, rows = np.unique(moments // (_QUARTER * second), return_inverse=True)
    offsets = np.array([_find_offset(int(q) * _QUARTER, zone) for q in quarters]) * second
    shown = pa.array(moments + offsets[rows.ravel()]).cast(local.type)
    return pc.replace_with_mask(local, late, shown)


def _find_offset(seconds: int, zone: str | None) -> int:
    """Return by how many seconds a zone is ahead of UTC at a moment after 2037."""
    cycles = max(0, (seconds - _LATE_SECONDS) // _CYCLE)
    moment = _START + datetime.timedelta(seconds=seconds - cycles * _CYCLE)
    offset = moment.astimezone(ZoneInfo(str(zone))).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _convert_texts(column: Any, zone: str | None) -> Any:
    """Replace each time with an offset among texts (n,) by its day in the zone."""
    if not pt.is_dictionary(column.type):
        column = column.cast(pa.large_binary()).dictionary_encode()
    raw = column.dictionary.cast(pa.large_binary()).to_pylist()
    texts = [None if text is None else text.decode("utf-8", "surrogateescape") for text in raw]
    moments = [None if text is None else parse_moment(text) for text in texts]
    local = _convert_times(pa.array(moments, pa.timestamp("s", "UTC")), zone).cast(pa.int64())
    days, are_days = find_days(local.fill_null(0).to_numpy(zero_copy_only=False), "s")
    shown = [
        text if moment is None else _write_day(int(day)) if is_day else b""
        for text, moment, day, is_day in zip(raw, moments, days, are_days, strict=True)
    ]
    return pa.DictionaryArray.from_arrays(column.indices, pa.array(shown, pa.large_binary()))


def _write_day(day: int) -> bytes:
    return datetime.date.fromordinal(day + EPOCH).isoformat().encode()


def _convert_whole_floats(column: Any) -> Any:
    """Convert floats (n,) to int64. NaN, fractions and values that are too large become null."""
    values = column.to_numpy(zero_copy_only=False).astype(np.float64)
    with np.errstate(invalid="ignore"):
        whole = (np.floor(values) == values) & (values >= -(2.0**63)) & (values < 2.0**63)
    return pa.array(np.where(whole, values, 0).astype(np.int64), mask=~whole)


def _make_integers(column: Any) -> Any:
    """Convert decimals (n,) to int64. Fractions and values that are too large become null."""
    factor = 10 ** max(0, -column.type.scale)
    if factor > 1:  # Arrow cannot compare decimals of negative scale
        column = column.view(pa.decimal128(38, 0))
    scale = column.type.scale
    whole = column.cast(pa.decimal128(38, 0), safe=False)  # without the digits after the point
    fits = pc.equal(whole.cast(pa.decimal128(38, scale)), column)
    if column.type.precision - scale > INT64_DIGITS:
        ends = (Decimal(end) for end in (-(2**63 // factor), (2**63 - 1) // factor))
        low, high = (pa.scalar(end, pa.decimal128(38, scale)) for end in ends)
        fits = pc.and_(fits, pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)))
    values = pc.if_else(fits, whole, None).cast(pa.int64())
    return pc.multiply(values, min(factor, 10**INT64_DIGITS))  # with larger factors, only 0 fits


def _make_floats(column: Any) -> Any:
    """Convert decimals (n,) to the nearest floats, as their text would be."""
    precision, scale = column.type.precision, column.type.scale
    if scale < 0 or precision > _EXACT_DIGITS:
        return column.cast(pa.large_string()).cast(pa.float64())
    # Both operands are exact, so only the quotient is rounded.
    digits = column.view(pa.decimal128(precision, 0)).cast(pa.float64())
    return pc.divide(digits, 10.0**scale)
