"""Reading TOML files, and errors of spec files.

Someone may name the confidential data by mistake, so errors of reading never quote a file.
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
"""The placeholder of `fitplug init` for a value that only the author of a spec knows."""


HOW_TO_WRITE_UNIT = (
    "Write { records = 1 } if every row is a different person, or { records = K } if a person may "
    "have up to K rows."
)
"""How to fix a spec without a unit of privacy, which has no default."""

HOW_TO_WRITE_LEDGER = (
    "Add [ledger] with path and rho, or write ledger = false above the first section to release "
    "without a ledger."
)
"""The remedy for a spec that does not decide on a ledger."""


class SpecError(InputError):
    """A spec file is wrong."""


def _explain_validation(error: ValidationError) -> str:
    """Explain the first error of a spec that does not have the form of a Document.

    Returns:
        A message that names the key and how to correct it.
    """
    # A misspelt key is also a missing key; the misspelling is more helpful.
    errors = sorted(error.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden")
    first = errors[0]
    keys = [str(key) for key in first["loc"]]
    where = f"[{keys[0]}] {'.'.join(keys[1:])}".rstrip()
    section = Document.model_fields.get(keys[0])
    if first["type"] == "extra_forbidden":
        known = _list_keys(section) if section and len(keys) > 1 else list(Document.model_fields)
        return f"unknown key {where}. {suggest_nearest(keys[-1], known)}"
    if keys[0] == "privacy" and (first["type"] == "missing" or keys[1:] == ["unit"]):
        return f"[privacy] unit {_find_unit_fault(first)}. {HOW_TO_WRITE_UNIT}"
    if keys == ["ledger"]:
        fault = "is missing" if first["type"] == "missing" else "must be a table, or false"
        return f"[ledger] {fault}. {HOW_TO_WRITE_LEDGER}"
    if first["type"] == "missing":
        return f"{where} is missing. Add it."
    if keys[0] == "query" and len(keys) < 3:
        return f"{where} must be a list of tables. Write [[query]] before each."
    if keys == ["domain"] and first["type"] == "too_short":
        return f'{where} is empty. List each attribute with its values, such as SEX = ["1", "2"]'
    if section and first["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return f"{where} must be a table, with keys such as: {', '.join(_list_keys(section))}"
    if first["type"] == "string_pattern_mismatch":
        return f"{where} = {first['input']!r} must not contain a null character"
    message = first["msg"].removeprefix("Input ").rstrip(".")
    if keys[:2] == ["data", "storage_options"]:  # the value may contain credentials
        return f"{where} {message}"
    hint = ". Remove the quotes." if is_quoted_number(first["input"]) else ""
    return f"{where} = {first['input']!r} {message}{hint}"


def _find_unit_fault(error: ErrorDetails) -> str:
    """Describe what is wrong with a unit of privacy that is not a table."""
    if error["type"] == "missing":
        return "is missing"
    given = error["input"]
    return "is still open" if given == UNDECIDED else f"= {given!r} must be a table"


def is_quoted_number(value: object) -> bool:
    """Return whether a value of a spec is a number in quotes."""
    return isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) is not None


def _list_keys(section: FieldInfo) -> list[str]:
    options = getattr(section.annotation, "__args__", (section.annotation,))
    return [key for option in options for key in getattr(option, "model_fields", ())]


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["read_document", "tomllib"]

_AMOUNTS = ("privacy", "rho"), ("privacy", "max_rho"), ("ledger", "rho")
"""Keys whose decimals a float would round."""

_EXPLANATIONS = {
    "Cannot declare": "a section appears twice (begin each query with [[query]])",
    "Cannot mutate": "a section appears twice (begin each query with [[query]])",
    "Cannot overwrite a value": "a key appears twice",
    "Cannot redefine": "a section appears twice (begin each query with [[query]])",
    "Duplicate": "a key appears twice",
    "Expected '='": "a key needs = and a value (names with blanks need quotes)",
    "Expected ']'": "a section needs ] after its name",
    "Expected ']]'": "a section needs ]] after its name",
    "Expected newline": "the line continues after its value",
    "Invalid date": "not a date or time",
    "Invalid initial character": "not a key",
    "Invalid statement": "not a key or a section",
    "Invalid value": "not a value (strings need quotes)",
    "Unclosed array": "a list needs ]",
    "Unclosed inline table": "a table needs }",
    "Unescaped": "write \\\\ for a \\ in a string",
    "Unterminated string": "a string needs its closing quote",
}
"""Explanations of the parser's errors, by how their messages begin."""


def _read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; amounts of rho stay decimals, exactly as written.

    Raises:
        SpecError: If the file cannot be read or is not valid TOML.
    """
    if path.suffix in (".csv", ".parquet") and path.is_file():
        raise SpecError(
            f"{path} is a data file, not a spec. Create a spec with `fitplug init {path}`."
        )
    text = read_text(path, "spec file", "a TOML file", SpecError)
    try:
        tables, exact = tomllib.loads(text), tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(
            f"{path}: not valid TOML: {_explain(str(error), text)}. Correct the file."
        ) from None
    except (ValueError, RecursionError):  # numbers with thousands of digits, deep nesting
        raise SpecError(f"{path}: not valid TOML. Correct the file.") from None
    for section, key in _AMOUNTS:
        table = exact.get(section)
        if isinstance(table, dict) and isinstance(table.get(key), Decimal):
            tables[section][key] = table[key]
    return tables


def read_document(path: Path) -> Document:
    """Read the sections of a spec file, and check that they have known keys with valid values.

    Raises:
        SpecError: If the file is not a spec.
    """
    tables = _read_toml(path)
    if not tables.keys() & Document.model_fields.keys():
        raise SpecError(f"{path} is not a spec. Create a spec with `fitplug init`.")
    try:
        return Document.model_validate(tables)
    except ValidationError as error:
        raise SpecError(f"{path}: {_explain_validation(error)}") from None


def _explain(error: str, content: str) -> str:
    """Explain a message of the parser without quoting the file."""
    position = re.search(r"\(at (line ([0-9]+), column ([0-9]+)|end of document)\)$", error)
    known = (text for start, text in _EXPLANATIONS.items() if error.startswith(start))
    explained = next(known, "unreadable")
    if position is None:
        return explained
    hint = ""
    if position[2] is not None:
        line = content.split("\n")[int(position[2]) - 1]
        column = int(position[3])
        if re.fullmatch("[0-9],[0-9]", line[column - 2 : column + 1]):
            hint = " (numbers need a decimal point, not a comma)"
    return f"{explained}, at {position[1]}{hint}"
