"""Text values: the values that the text of a CSV file or of a folder's name spells.

The attribute alone says how text is read: "01" is the string "01" for string categories and the
integer 1 for integers. Strings are compared as they are. Around a number, a truth value or a date
blanks mean nothing. "34.0" and "3.4e1" are the integer 34, as programs write columns of integers
that have nulls; "34.5" is no integer. Text with a thousands separator, or of another spelling, is
no value.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fitplug.domain import BLANKS, EPOCH, TYPE_NAMES, Codes, Dates, Encoder, parse_day

_NUMBER = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?")
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_BOOLEAN = {"true": True, "false": False}
_DIGITS = 4000  # Python refuses to convert longer integers, and no domain reaches as far


def describe_values(attribute: Encoder) -> str:
    """Return what the values of an attribute are, in the plural, for messages."""
    return TYPE_NAMES[attribute.value_type]


def encode_texts(attribute: Encoder, texts: Iterable[str | None]) -> Codes:
    """Return the codes (n,) of n texts.

    Args:
        attribute: The attribute whose values the texts spell.
        texts: Texts, or None for null. A text that spells no value of the attribute's type is a
            value outside the domain.
    """
    if isinstance(attribute, Dates):  # it knows best, as months and years have text of their own
        values = list(texts)
    else:
        parse = _PARSERS[attribute.value_type]
        values = [None if text is None else parse(text) for text in texts]
    return attribute.codes(np.array([*values, None], dtype=object)[:-1])


def encode_text(attribute: Encoder, text: str | None) -> int | None:
    """Return the code of the value that a folder's name spells.

    Returns:
        The code; None if the text spells no value of the attribute's type.
    """
    if text is not None and _PARSERS[attribute.value_type](text) is None:
        return None
    if attribute.value_type is float and text is not None and text.lower() == "nan":
        return attribute.null_code
    return int(encode_texts(attribute, [text])[0])


def parse_text(value_type: type, text: str) -> Any:
    """Return the value of a type that a text spells, or None if it spells none."""
    return _PARSERS[value_type](text)


def _parse_integer(text: str) -> int | None:
    """Return the integer that a numeral spells, None if it spells none or another number.

    Numbers of more than _DIGITS digits become another one that is as far beyond all domains.
    """
    text = text.strip(BLANKS)
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        return None
    sign, whole, fraction, exponent = match.groups()
    # The number is digits * 10**power, and no digit of these is a zero at either end.
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
    """Convert an exponent; one of very many digits becomes another very large one."""
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
