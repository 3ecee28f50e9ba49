"""Text forms: how a program wrote a column of text, judged by the form of its first values only.

A Parquet file has a type for each column. A CSV file has none, so a form that no attribute reads,
such as 1/2/2020, would put all rows outside the domain. What is looked at are forms that hold for a
whole column, as they come from the program that wrote it, and never single values.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence

from fitplug.domain import FORMATS, TYPE_NAMES, CategoriesCodec, DatesCodec, Encoder

MOST_ROWS = 100
"""How many rows of a file are looked at."""

_LEAST_VALUES = 10
"""Fewer values than this do not show a form."""

_TIME = r"([ T][0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?( ?[AP]M)?)?"

_FORMS = {
    "such as 1/2/2020": re.compile(rf"[0-9]{{1,2}}([-/])[0-9]{{1,2}}\1[0-9]{{4}}{_TIME}"),
    "with years of two digits": re.compile(rf"[0-9]{{1,2}}([-/.])[0-9]{{1,2}}\1[0-9]{{2}}{_TIME}"),
    "such as 31JAN2020": re.compile(r"[0-9]{1,2}[- ]?[A-Za-z]{3,9}[-, ]*([0-9]{2}){1,2}"),
    "such as Jan 31, 2020": re.compile(r"[A-Za-z]{3,9}\.? [0-9]{1,2},? [0-9]{4}"),
    "such as 20200131": re.compile(
        r"(1[89]|2[0-2])[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])"
    ),
    "with a decimal comma": re.compile(r"[+-]?[0-9]+,[0-9]+"),
    "such as 12.0": re.compile(r"[0-9]+\.0"),
    "of truth values, 0 and 1": re.compile(r"[01]"),
    "of truth values, yes and no": re.compile(r"[tfyn]|yes|no", re.IGNORECASE),
}
"""Forms of text by the words that name them in messages."""

_NULLS = frozenset(["", "na", "n/a", "nan", "null", "none", "nat", "."])

_DATES = tuple(_FORMS)[:5]

_UNREAD: dict[type, tuple[str, ...]] = {
    datetime.date: (*_DATES, "such as 12.0"),
    int: (*_DATES[:4], "with a decimal comma"),
    float: (*_DATES[:4], "with a decimal comma"),
    bool: ("such as 12.0", "of truth values, 0 and 1", "of truth values, yes and no"),
    str: ("such as 12.0",),
}
"""The forms that attributes of each type do not read."""


def find_form(texts: Sequence[str]) -> str | None:
    """Find the form that all values of a column have.

    Args:
        texts: The first values of the column. Nulls are left out.

    Returns:
        The words of the form. None if some value has another one, or the values are few.
    """
    values = [text for text in map(str.strip, texts) if text.casefold() not in _NULLS]
    if len(values) < _LEAST_VALUES:
        return None
    return next((name for name, form in _FORMS.items() if all(map(form.fullmatch, values))), None)


def explain_form(attribute: Encoder, form: str, says: str) -> str | None:
    """Explain why an attribute reads no value of a column with this form; None if it reads some.

    Args:
        attribute: The attribute, or what reads weights.
        form: What `find_form` found.
        says: The subject and verb of the sentence about what is expected.

    Returns:
        What follows the name of the column: two sentences.
    """
    value_type, advice = attribute.value_type, "Convert the column."
    if form not in _UNREAD[value_type]:
        return None
    if type(attribute) is DatesCodec:
        dates = attribute.attribute
        if (dates.date_format and form == _DATES[0]) or (dates.by == "year" and form not in _DATES):
            return None
        if form == _DATES[0]:
            advice = (
                f"Add date_format = {' or '.join(map(repr, FORMATS))} to its entry in the domain."
            )
    elif isinstance(attribute, CategoriesCodec):
        if any(map(_FORMS[form].fullmatch, attribute.labels)):
            return None
        kind = "integers" if value_type is str else "text or integers"
        advice = f"Declare the values as {kind}, or convert the column."
    return f"has text {form}, but {says} {TYPE_NAMES[value_type]}. {advice}"
