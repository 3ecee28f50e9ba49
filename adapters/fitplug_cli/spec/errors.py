"""The error of spec files, and the sentence for a key or a value that is wrong."""

from __future__ import annotations

import re

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from fitplug.errors import InputError, suggest_nearest
from fitplug_cli.spec.sections import Document

UNDECIDED = "?"
"""What `fitplug init` writes in place of a value that only the author of a spec knows."""


HOW_TO_WRITE_UNIT = (
    "write unit = { records = K } if a person may have up to K of the rows, such as "
    "{ records = 1 } if each row is another person. K rows cost K^2 times the rho of one row"
)
"""The remedy for a spec without a unit of privacy, which no default can be right for."""


class SpecError(InputError):
    """A spec file is wrong."""


def explain_validation(error: ValidationError) -> str:
    """Explain the first error of a spec that does not have the form of a Document.

    Args:
        error: The errors.

    Returns:
        One sentence that names the key, and says how to correct it.
    """
    # A misspelt key is also a missing key. The misspelling tells the user more.
    errors = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    first = errors[0]
    keys = [str(key) for key in first["loc"]]
    where = f"[{keys[0]}] {'.'.join(keys[1:])}".rstrip()
    section = Document.model_fields.get(keys[0])
    if keys == ["data", "contributions"]:
        number = first["input"] if type(first["input"]) is int else "K"
        return (
            f"unknown key {where}. The unit of privacy says how many rows a person may have: write "
            f"[privacy] unit = {{ records = {number} }}"
        )
    if first["type"] == "extra_forbidden":
        known = _list_keys(section) if section and len(keys) > 1 else list(Document.model_fields)
        return f"unknown key {where}; {suggest_nearest(keys[-1], known)}"
    if keys[0] == "privacy" and (first["type"] == "missing" or keys[1:] == ["unit"]):
        return f"[privacy] unit {_find_unit_fault(first)}: {HOW_TO_WRITE_UNIT}"
    if first["type"] == "missing":
        return f"{where} is missing; add it"
    if keys[0] == "query" and len(keys) < 3:
        return f"{where} must be a list of tables; write [[query]] before each"
    if keys == ["domain"] and first["type"] == "too_short":
        return f'{where} is empty; write what values each attribute has, such as SEX = ["1", "2"]'
    if section and first["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return f"{where} must be a table, with keys such as: {', '.join(_list_keys(section))}"
    if first["type"] == "string_pattern_mismatch":
        return f"{where} = {first['input']!r} must not have a null character"
    message = first["msg"].removeprefix("Input ").rstrip(".")
    if keys[:2] == ["data", "storage_options"]:  # the value may hold credentials
        return f"{where} {message}"
    hint = "; remove the quotes" if is_quoted_number(first["input"]) else ""
    return f"{where} = {first['input']!r} {message}{hint}"


def _find_unit_fault(error: ErrorDetails) -> str:
    """Say what is wrong with a unit of privacy that is no table."""
    if error["type"] == "missing":
        return "is missing, and nothing is assumed"
    given = error["input"]
    return "is not decided yet" if given == UNDECIDED else f"= {given!r} must be a table"


def is_quoted_number(value: object) -> bool:
    """Return whether a value of a spec is a text that only spells a number."""
    return isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) is not None


def _list_keys(section: FieldInfo) -> list[str]:
    options = getattr(section.annotation, "__args__", (section.annotation,))
    return [key for option in options for key in getattr(option, "model_fields", ())]
