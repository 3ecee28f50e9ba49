"""The error of spec files, and the sentence for a key or a value that is wrong."""

from __future__ import annotations

import re

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from fitplug.errors import InputError, suggest_nearest
from fitplug_cli.spec.sections import Document

UNDECIDED = "?"
"""What `fitplug init` writes in place of a value that only the author of a spec knows."""


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
    if first["type"] == "extra_forbidden":
        known = _list_keys(section) if section and len(keys) > 1 else list(Document.model_fields)
        return f"unknown key {where}; {suggest_nearest(keys[-1], known)}"
    if first["type"] == "missing":
        return f"{where} is missing; add it"
    if keys[0] == "query" and len(keys) < 3:
        return f"{where} must be a list of tables; write [[query]] before each"
    if keys == ["domain"] and first["type"] == "too_short":
        return f'{where} is empty; write what values each attribute has, such as SEX = ["1", "2"]'
    if section and first["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return f"{where} must be a table, with keys such as: {', '.join(_list_keys(section))}"
    if keys == ["data", "contributions"] and first["input"] == UNDECIDED:
        return (
            f"{where} is not decided yet: write how many rows one person may have in place of "
            f'"{UNDECIDED}", such as 1 if each row is another person; leave the line out if '
            "[privacy] unit says it"
        )
    message = first["msg"].removeprefix("Input ").rstrip(".")
    if keys[:2] == ["data", "storage_options"]:  # the value may hold credentials
        return f"{where} {message}"
    hint = "; remove the quotes" if is_quoted_number(first["input"]) else ""
    return f"{where} = {first['input']!r} {message}{hint}"


def is_quoted_number(value: object) -> bool:
    """Return whether a value of a spec is a text that only spells a number."""
    return isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) is not None


def _list_keys(section: FieldInfo) -> list[str]:
    options = getattr(section.annotation, "__args__", (section.annotation,))
    return [key for option in options for key in getattr(option, "model_fields", ())]
