"""Texts: the values that the text of a CSV file or of a folder's name spells.

The attribute alone says what it must spell: "01" is the string "01" to string categories and the
integer 1 to integers. No blank, sign "+", thousands mark or other spelling is taken for a value.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fitplug.domain import NAMES, OUTSIDE, Attribute, Codes, Dates, day_of_text

_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BOOLEAN = {"true": True, "false": False}
_DIGITS = 4000  # Python refuses to convert longer integers, and no domain reaches as far


def expected(attribute: Attribute) -> str:
    """What values of this attribute are, in the plural."""
    return NAMES[attribute.value_type]


def codes_of_texts(attribute: Attribute, texts: Iterable[str | None]) -> Codes:
    """Cells (n,) of texts (n,). A text that spells no value of the attribute's type is a value
    outside the domain; None is null.
    """
    spelled = _SPELLED[attribute.value_type]
    values = [None if text is None else spelled(text) for text in texts]
    if isinstance(attribute, Dates):
        codes = attribute.codes_of_days(np.array([day or 0 for day in values], dtype=np.int64))
        codes[[day is None for day in values]] = attribute.null_code
        return codes
    return attribute.codes(np.array([*values, None], dtype=object)[:-1])


def code_of_text(attribute: Attribute, text: str | None) -> int | None:
    """The cell of a value that a folder's name spells; None if it spells no such value."""
    if text is not None and _SPELLED[attribute.value_type](text) is None:
        return None
    if attribute.value_type is float and text is not None and text.lower() == "nan":
        return OUTSIDE
    return int(codes_of_texts(attribute, [text])[0])


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    if len(text) > _DIGITS:
        text = text[0] + text[1:].lstrip("0")[:_DIGITS]
    return int(text)


def _number(text: str) -> float | None:
    if text.lower() == "nan":
        return math.nan
    return float(text) if _NUMBER.fullmatch(text) else None


def _boolean(text: str) -> bool | None:
    return _BOOLEAN.get(text.lower())


_SPELLED: dict[type, Callable[[str], Any]] = {
    str: str,
    int: _integer,
    float: _number,
    bool: _boolean,
    datetime.date: day_of_text,
}
