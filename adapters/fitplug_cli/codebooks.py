"""Codebooks: published lists of values, in CSV, JSON or Parquet, as the domain of a spec.

    attribute,value,min,max    {"SEX": ["1", "2"],
    SEX,1,,                     "RAC1P": {"1": "White alone", "2": "Black alone"},
    SEX,2,,                     "AGEP": {"min": 0, "max": 95}}
    AGEP,,0,95

A CSV may have further columns, such as labels; Parquet has the columns attribute and value. JSON
may hold all of it under "schema", and an attribute's values under "values": lists, or mappings from
codes to labels. Trees and files with a line for each code are in `fitplug_cli.trees`.

The wrong file may be given, the records themselves for instance: errors name lines and never what
is on them.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fitplug.counts import hint
from fitplug.domain import Domain
from fitplug.errors import DomainError, suggest_nearest
from fitplug_cli import trees
from fitplug_cli.codefiles import PARQUET, CodeFile
from fitplug_cli.files import text_of

KEY = "codebook"
_RANGE = r"\s*-?[0-9]+\s*(-|\.\.+|to|\u2013)\s*-?[0-9]+\s*"


def filled_in(domain: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A [domain] table in which `{ codebook = "FILE" }` gives way to what the file says of that
    attribute; FILE is relative to the folder. Raises DomainError.
    """
    filled = {}
    for name, value in domain.items():
        try:
            if trees.is_here(value):
                plain = partial(_plain, name, folder=folder)
                filled[name] = trees.attribute(name, value, folder, plain)
            else:
                filled[name] = _plain(name, value, folder)
        except DomainError as error:
            raise DomainError(f"attribute {name!r}: {error}") from None
    return filled


def _plain(name: str, value: Any, folder: Path) -> Any:
    """An entry with what a codebook of many attributes says of this one, if it names one."""
    if not isinstance(value, Mapping) or KEY not in value:
        return value
    for key in value:
        if key not in (KEY, "other"):
            known = suggest_nearest(key, [KEY, trees.COLUMN, "levels", "other"])
            raise DomainError(f"unknown key {key!r}; {known}")
    if not isinstance(value[KEY], str):
        raise DomainError("codebook must be the path of a file")
    path = folder / value[KEY]
    found = read(path)
    if name not in found:
        raise DomainError(f"{path} says nothing of it; {hint(name, found)}")
    try:
        Domain.from_spec({name: found[name]})
    except DomainError:  # which may quote the file
        raise DomainError(
            f"what {path} says of it makes no attribute; give each value once, all of them strings "
            "or all whole numbers, or its least and its largest"
        ) from None
    if "other" not in value:
        return found[name]
    if not isinstance(found[name], list):
        raise DomainError("other goes with a list of values only")
    return {"categories": found[name], "other": value["other"]}


def read(path: Path) -> dict[str, Any]:
    """{attribute: as a [domain] table has it}, for every attribute of a codebook. Raises
    DomainError naming the file.
    """
    if path.suffix.lower() in PARQUET:
        found = _of_parquet(path)
    else:
        text = text_of(path, "codebook", "a codebook", DomainError)
        found = _of_json(path, text) if path.suffix.lower() == ".json" else _of_csv(path, text)
    if not found:
        raise DomainError(f"{path}: the codebook is empty")
    for number, values in enumerate(found.values(), 1):
        alone = str(values[0]) if isinstance(values, list) and len(values) == 1 else ""
        if re.fullmatch(_RANGE, alone):
            raise DomainError(
                f"{path}: the one value of attribute {number} looks like a range; give min and "
                "max, as columns in CSV or names in JSON, or list the values"
            )
    return found


def _of_csv(path: Path, text: str) -> dict[str, Any]:
    rows = csv.DictReader(text.splitlines(), strict=True)
    found: dict[str, Any] = {}
    lines: dict[tuple[str, str], int] = {}
    try:
        for needed in ("attribute", "value"):
            if needed not in (rows.fieldnames or []):
                raise DomainError(
                    f"{path}: the codebook has no column {needed!r}; its first line names the "
                    "columns: attribute, value"
                )
        for row in rows:
            where = f"{path}: line {rows.line_num}"
            name, value = row["attribute"], row["value"]
            low, high = row.get("min"), row.get("max")
            if name is None or (not value and not (low and high)):
                raise DomainError(f"{where} has no value, and no min and max")
            listed = found.setdefault(name, []) if value else None
            if value and isinstance(listed, list):
                first = lines.setdefault((name, value), rows.line_num)
                if first != rows.line_num:
                    raise DomainError(f"{where} says what line {first} does; keep one of them")
                listed.append(value)
            elif value or name in found:
                raise DomainError(
                    f"{where}: its attribute has lines already; give its range in one, or only "
                    "values"
                )
            else:
                found[name] = {"integers": [_whole(where, end) for end in (low, high)]}
    except csv.Error:
        raise DomainError(f"{path}: line {rows.line_num} is no CSV; check its quotes") from None
    return found


def _of_parquet(path: Path) -> dict[str, Any]:
    file = CodeFile(path, "codebook", DomainError)
    found: dict[str, Any] = {}
    for name, value in zip(file.column("attribute"), file.column("value"), strict=True):
        found.setdefault(str(name), []).append(value)
    return found


def _whole(where: str, text: str | None) -> int:
    if not re.fullmatch("-?[0-9]+", text or ""):
        raise DomainError(f"{where}: min and max must be whole numbers")
    return int(text or "")


def _of_json(path: Path, text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise DomainError(f"{path}: is not valid JSON from {place} on") from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists
        raise DomainError(f"{path}: is no codebook in JSON") from None
    if isinstance(said, dict) and isinstance(said.get("schema"), dict):
        said = said["schema"]
    if not isinstance(said, dict):
        raise DomainError(f"{path}: must be an object with an entry for each attribute")
    return {
        name: _attribute(path, number, entry)
        for number, (name, entry) in enumerate(said.items(), 1)
    }


def _attribute(path: Path, number: int, entry: Any) -> Any:
    values = entry.get("values", entry) if isinstance(entry, dict) else entry
    if isinstance(values, list):
        return values
    if isinstance(values, dict) and values and not {"min", "max"} & set(values):
        return list(values)
    if isinstance(values, dict) and {"min", "max"} <= set(values):
        return {"integers": [values["min"], values["max"]]}
    raise DomainError(
        f"{path}: attribute {number} must be a list of values, an object from values to labels, or "
        "have min and max"
    )
