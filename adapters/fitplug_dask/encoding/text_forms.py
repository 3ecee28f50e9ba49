"""Text forms: how a program wrote a column of text, judged by the column's first values.

A Parquet file declares a type for each column. A CSV file does not, so a form that attributes
cannot read, such as 1/2/2020, would put all rows outside the domain. Only forms that all of these
values share are reported, since they come from the program that wrote the column; single values
never matter.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence

from fitplug.domain import FORMATS, NULLS, TYPE_NAMES, CategoriesCodec, DatesCodec, Encoder

MOST_ROWS = 100
"""The number of rows of a file that are inspected."""

_LEAST_VALUES = 10
"""The least number of values from which a form is inferred."""

_TIME = r"([ T:][0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?( ?[AP]M)?)?"

_FORMS = {
    "such as 1/2/2020": re.compile(rf"[0-9]{{1,2}}([-/])[0-9]{{1,2}}\1[0-9]{{4}}{_TIME}"),
    "with years of two digits": re.compile(rf"[0-9]{{1,2}}([-/.])[0-9]{{1,2}}\1[0-9]{{2}}{_TIME}"),
    "such as 31JAN2020": re.compile(
        rf"[0-9]{{1,2}}[- ]?[A-Za-z]{{3,9}}[-, ]*([0-9]{{2}}){{1,2}}{_TIME}"
    ),
    "such as Jan 31, 2020": re.compile(rf"[A-Za-z]{{3,9}}\.? [0-9]{{1,2}},? [0-9]{{4}}{_TIME}"),
    "such as 31. 1. 2020": re.compile(rf"([0-9]{{1,2}}\. ){{2}}[0-9]{{4}}\.?{_TIME}"),
    "such as 20200131": re.compile(
        r"(1[89]|2[0-2])[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])(T[0-9]{4,6}Z?)?"
    ),
    "with a decimal comma": re.compile(r"[+-]?[0-9]+,[0-9]+"),
    "such as 30-34": re.compile(
        r"[0-9]{1,3} ?([-–] ?[0-9]{1,3}|\+|(to|and|or) [0-9a-z]+)|[<>≤≥]=? ?[0-9]{1,3}"
    ),
    "such as $12": re.compile(r"[$€£¥] ?[0-9][0-9.,]*|[0-9][0-9.,]* ?[$€£¥%]"),
    "such as 12.0": re.compile(r"[0-9]+\.0"),
    "of truth values, 0 and 1": re.compile(r"[01]"),
    "of truth values, yes and no": re.compile(r"[tfyn]|yes|no", re.IGNORECASE),
    "such as 43861.5": re.compile(r"[0-9]{5}\.[0-9]+"),
    "with blanks at its ends": re.compile(r"\s.*|.*\s", re.DOTALL),
    "in an encoding other than UTF-8": re.compile(r".*\ufffd.*", re.DOTALL),
}
"""Forms of text by their names in messages."""

_WHOLE = re.compile(r"0|[1-9][0-9]{0,18}")
"""Integers as programs write them: codes that lost their leading zeros, or numbers of days."""

_NULLS = frozenset(["", *map(str.casefold, NULLS)])

_DATES = tuple(_FORMS)[:6]
_BLANKS, _ENCODED = tuple(_FORMS)[-2:]

_RANGES, _MONEY = "such as 30-34", "such as $12"
_REMEDIES = {_BLANKS: "Remove them.", _ENCODED: "Save the file as UTF-8."}

_UNREAD: dict[type, tuple[str, ...]] = {
    datetime.date: (*_DATES, "such as 12.0", "such as 43861.5"),
    int: (*_DATES[:5], "with a decimal comma", _RANGES, _MONEY),
    float: (*_DATES[:5], "with a decimal comma", _RANGES, _MONEY),
    bool: ("such as 12.0", "of truth values, 0 and 1", "of truth values, yes and no"),
    str: ("such as 12.0", _BLANKS, _ENCODED),
}
"""The forms that attributes of each type cannot read."""


def find_forms(texts: Sequence[str]) -> tuple[str, ...]:
    """Find the forms that all values of a column have.

    Args:
        texts: The first values of the column, decoded with replacement characters. Nulls are
            ignored.

    Returns:
        The names of the forms; none if there are too few values.
    """
    raw = [text for text in texts if text.strip().casefold() not in _NULLS]
    values = [text.strip() for text in raw]
    if len(values) < _LEAST_VALUES:
        return ()
    looked_at = dict.fromkeys(_FORMS, values) | {_BLANKS: raw}
    # Only texts with certain letters reveal the encoding.
    looked_at[_ENCODED] = [text for text in raw if "\ufffd" in text]
    forms = [
        name
        for name, form in _FORMS.items()
        if len(looked_at[name]) >= _LEAST_VALUES and all(map(form.fullmatch, looked_at[name]))
    ]
    if all(map(_WHOLE.fullmatch, values)):
        forms.append(f"such as {('1234567890' * 2)[: max(map(len, values))]}")
    return tuple(forms)


def explain_forms(attribute: Encoder, forms: Sequence[str], says: str) -> str | None:
    """Explain why an attribute can read no value of a column with these forms.

    Args:
        attribute: The attribute, or the encoder of weights.
        forms: The forms that `find_forms` found.
        says: The subject and verb of the sentence about what is expected.

    Returns:
        The end of a sentence that begins with the name of the column, and a sentence of advice;
        None if the attribute can read some values.
    """
    return next(filter(None, (_explain_form(attribute, form, says) for form in forms)), None)


def _explain_form(attribute: Encoder, form: str, says: str) -> str | None:
    """Explain one form, as `explain_forms` does."""
    value_type, advice = attribute.value_type, "Convert the column."
    expected = TYPE_NAMES[value_type]
    if form not in _FORMS:
        if _reads_whole(attribute, digits := len(form.split()[-1])):
            return None
        if value_type is str:
            if not _have_lost_zeros(codes := _list_codes(attribute), digits):
                return None
            expected = f"codes such as {next(code for code in codes if code.startswith('0'))}"
            advice = "Restore the leading zeros."
    elif form not in _UNREAD[value_type]:
        return None
    elif type(attribute) is DatesCodec:
        dates = attribute.attribute
        if (dates.date_format and form == _DATES[0]) or (
            dates.by == "year" and form == "such as 12.0"
        ):
            return None
        if form == _DATES[0]:
            advice = (
                f"Add date_format = {' or '.join(map(repr, FORMATS))} to its entry in the domain."
            )
    elif form == _RANGES:
        advice = "Declare its values as categories, or convert the column."
    elif isinstance(attribute, CategoriesCodec):
        if any(map(_FORMS[form].fullmatch, attribute.labels)):
            return None
        kind = "integers" if value_type is str else "text or integers"
        advice = _REMEDIES.get(form, f"Declare the values as {kind}, or convert the column.")
    return f"has text {form}, but {says} {expected}. {advice}"


def _reads_whole(attribute: Encoder, digits: int) -> bool:
    """Return whether attributes of this type can read integers of this many digits."""
    if attribute.value_type is datetime.date:
        return type(attribute) is DatesCodec and attribute.attribute.by == "year" and digits <= 4
    return attribute.value_type in (int, float)


def _list_codes(attribute: Encoder) -> Sequence[str]:
    """List the codes of a text attribute with categories, without the label of `other`."""
    if not isinstance(attribute, CategoriesCodec):
        return ()
    return attribute.labels[: len(attribute.labels) - (attribute.attribute.other is not None)]


def _have_lost_zeros(codes: Sequence[str], digits: int) -> bool:
    """Return whether integers of this many digits may be codes that lost their leading zeros."""
    return (
        any(code.startswith("0") for code in codes)
        and "".join(codes).isdecimal()
        and min(map(len, codes)) > digits
    )
