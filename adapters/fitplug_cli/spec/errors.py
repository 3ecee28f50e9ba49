"""The errors of spec files, and TOML files that are read with errors that never quote them.

The file may be another one than was meant, for instance the records themselves.
"""

from __future__ import annotations

import re
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from fitplug.errors import InputError, suggest_nearest
from fitplug_cli.files import read_text
from fitplug_cli.spec.sections import Document

UNDECIDED = "?"
"""What `fitplug init` writes in place of a value that only the author of a spec knows."""


HOW_TO_WRITE_UNIT = (
    "write unit = { records = K } if a person may have up to K of the rows, such as "
    "{ records = 1 } if each row is another person. K rows cost K^2 times the rho of one row"
)
"""The remedy for a spec without a unit of privacy, which no default can be right for."""

HOW_TO_WRITE_LEDGER = (
    "Add [ledger] with a path and the whole budget for these people, rho. If no ledger is to add "
    "up what releases about them cost, write ledger = false above the first section."
)
"""The remedy for a spec that does not decide on a ledger."""


class SpecError(InputError):
    """A spec file is wrong."""


def explain_validation(error: ValidationError) -> str:
    """Explain the first error of a spec that does not have the form of a Document.

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
        return f"unknown key {where}. {suggest_nearest(keys[-1], known)}"
    if keys[0] == "privacy" and (first["type"] == "missing" or keys[1:] == ["unit"]):
        return f"[privacy] unit {_find_unit_fault(first)}: {HOW_TO_WRITE_UNIT}"
    if keys == ["ledger"]:
        fault = "is missing" if first["type"] == "missing" else "must be a table, or false"
        return f"[ledger] {fault}. {HOW_TO_WRITE_LEDGER}"
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


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["read_toml", "tomllib"]

_AMOUNTS = ("privacy", "rho"), ("privacy", "max_rho"), ("ledger", "rho")
"""The keys that a float would round."""

_EXPLANATIONS = {
    "Cannot declare": "a table is there twice",
    "Cannot mutate": "a table is there twice",
    "Cannot overwrite a value": "a key is there twice",
    "Cannot redefine": "a table is there twice",
    "Duplicate": "a key is there twice",
    "Expected '='": "a key needs = and a value",
    "Expected ']'": "a table needs ] after its name",
    "Expected ']]'": "a table needs ]] after its name",
    "Expected newline": "the line goes on after its value",
    "Invalid date": "this is not a date or time",
    "Invalid initial character": "this is not a key",
    "Invalid statement": "this is neither a key nor a table",
    "Invalid value": "this is not a value; strings go in quotes",
    "Unclosed array": "a list needs ]",
    "Unclosed inline table": "a table needs }",
    "Unescaped": "a \\ in a string is written twice",
    "Unterminated string": "a string needs its second quote",
}
"""What each error of the parser means, by how its message begins."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file. The amounts of rho are decimals, exactly as they are written.

    Raises:
        SpecError: If the file cannot be read or is not valid TOML.
    """
    text = read_text(path, "spec file", "a TOML file", SpecError)
    try:
        tables, exact = tomllib.loads(text), tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: is not valid TOML: {_explain(str(error), text)}") from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists
        raise SpecError(f"{path}: is not valid TOML") from None
    for section, key in _AMOUNTS:
        table = exact.get(section)
        if isinstance(table, dict) and isinstance(table.get(key), Decimal):
            tables[section][key] = table[key]
    return tables


def _explain(error: str, content: str) -> str:
    """Explain a message of the parser in words that do not quote the file."""
    position = re.search(r"\(at (line ([0-9]+), column ([0-9]+)|end of document)\)$", error)
    known = (text for start, text in _EXPLANATIONS.items() if error.startswith(start))
    explained = next(known, "it cannot be read")
    if position is None:
        return explained
    hint = ""
    if position[2] is not None:
        line = content.split("\n")[int(position[2]) - 1]
        column = int(position[3])
        if re.fullmatch("[0-9],[0-9]", line[column - 2 : column + 1]):
            hint = "; numbers have a decimal point, not a comma"
    return f"{explained}, at {position[1]}{hint}"
