"""Codebooks: published lists of the values of attributes, in CSV, JSON or Parquet.

    attribute,value,label,min,max,unit    {"SEX": {"1": "Male", "2": "Female"},
    SEX,1,Male,,,                          "RAC1P": ["1", "2"],
    SEX,2,Female,,,                        "AGEP": {"min": 0, "max": 95},
    AGEP,,,0,95,                           "PINCP": {"min": 0, "max": 200000, "unit": 100}}
    PINCP,,,0,200000,100

Bounds without a unit make integers, and those with a unit make a measure, for sums. The column
label may be missing, and other columns are ignored. Parquet has the columns attribute and value,
and may have label. JSON may hold all attributes under "schema", and the values of an attribute
under "values": these are lists, or mappings from values to labels. Trees, and files with a line for
each code of one attribute, are in `fitplug_cli.inputs.attributes_from_files`.

Someone may name the confidential data by mistake, so errors give a line and never quote it.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from fitplug.counts import suggest_column
from fitplug.domain import Domain
from fitplug.errors import DomainError, suggest_nearest
from fitplug_cli.files import read_text
from fitplug_cli.inputs.code_files import (
    BLANKS_FAULT,
    PARQUET_SUFFIXES,
    CodeFile,
    has_outer_blanks,
)

CODEBOOK_KEY, COLUMN_KEY, LABEL_KEY = "codebook", "column", "label"
"""The keys, in an entry of [domain], of a codebook and of the columns of the codes and labels."""

Labels: TypeAlias = dict[str, str]
"""The labels of an attribute's values."""


@dataclass(frozen=True)
class Codebook:
    """The content of a codebook of many attributes.

    Attributes:
        entries: For each attribute, an entry of a [domain] table.
        labels: For each attribute that has some, the labels of its values.
    """

    entries: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, Labels] = field(default_factory=dict)

    def add_label(self, name: str, value: Any, label: Any) -> None:
        """Add the label of a value, unless it is empty."""
        if isinstance(label, str) and label.strip():
            self.labels.setdefault(name, {})[str(value)] = label.strip()


_RANGE = r"\s*-?[0-9]+\s*(-|\.\.+|to|\u2013)\s*-?[0-9]+\s*"


def fill_in_entry(name: str, value: Any, folder: Path) -> tuple[Any, Labels]:
    """Replace an entry that names a codebook of many attributes; return other entries as is.

    Returns:
        The entry, and the labels that the codebook has.
    """
    if not isinstance(value, Mapping) or CODEBOOK_KEY not in value:
        return value, {}
    for key in value:
        if key not in (CODEBOOK_KEY, "other"):
            known = suggest_nearest(key, [CODEBOOK_KEY, COLUMN_KEY, "levels", "other"])
            raise DomainError(f"unknown key {key!r}. {known}")
    if not isinstance(value[CODEBOOK_KEY], str):
        raise DomainError("'codebook' must be the path of a file")
    path = folder / value[CODEBOOK_KEY]
    codebook = read_codebook(path)
    entries, labels = codebook.entries, codebook.labels.get(name, {})
    if name not in entries:
        raise DomainError(
            f"{path} does not describe this attribute. {suggest_column(name, entries)}"
        )
    try:
        Domain.from_spec({name: entries[name]})
    except DomainError:  # its message may quote the file
        raise DomainError(
            f"{path} has no valid values for this attribute. List each value once, all strings or "
            "all integers."
        ) from None
    if "other" not in value:
        return entries[name], labels
    entry = entries[name]
    described = {"categories": entry} if isinstance(entry, list) else entry
    return {**described, "other": value["other"]}, labels


def read_codebook(path: Path) -> Codebook:
    """Read a codebook that describes many attributes.

    Args:
        path: A CSV, JSON or Parquet file.

    Raises:
        DomainError: If the file cannot be read or is not a codebook.
    """
    if path.suffix.lower() in PARQUET_SUFFIXES:
        codebook = _read_parquet(path)
    elif path.suffix.lower() == ".json":
        codebook = _parse_json(path, read_text(path, "codebook", "a codebook", DomainError))
    else:
        codebook = _read_csv(path)
    if not codebook.entries:
        raise DomainError(f"{path}: the codebook is empty. Add a line for each value.")
    for number, values in enumerate(codebook.entries.values(), 1):
        if isinstance(values, list) and any(map(has_outer_blanks, values)):
            raise DomainError(f"{path}: a value of attribute {number} {BLANKS_FAULT}")
        only_value = str(values[0]) if isinstance(values, list) and len(values) == 1 else ""
        if re.fullmatch(_RANGE, only_value):
            raise DomainError(
                f"{path}: the only value of attribute {number} looks like a range. Write the range "
                "as 'min' and 'max'."
            )
    return codebook


def _read_csv(path: Path) -> Codebook:
    file = CodeFile(path, "codebook", DomainError)
    for needed in ("attribute", "value"):
        if needed not in file.names:
            raise DomainError(
                f"{path} has no column {needed!r}. For a codebook of one attribute, set 'column' "
                "in [domain]."
            )
    codebook = Codebook()
    entries = codebook.entries
    first: dict[tuple[str, str], int] = {}
    for i, row in file.iterate_rows():
        where = file.locate(i)
        name, value = row["attribute"], row["value"]
        low, high = row.get("min"), row.get("max")
        if not value and not (low and high):
            raise DomainError(f"{where} has no value. Add a value, or both 'min' and 'max'.")
        for what, text in (("attribute", name), ("value", value)):
            if has_outer_blanks(text):
                raise DomainError(f"{where}: the {what} {BLANKS_FAULT}")
        listed = entries.setdefault(name, []) if value else None
        if value and isinstance(listed, list):
            earlier = first.setdefault((name, value), i)
            if earlier != i:
                raise DomainError(
                    f"{where} repeats {file.locate_row(earlier)}. Remove one of these lines."
                )
            listed.append(value)
            codebook.add_label(name, value, row.get(LABEL_KEY))
        elif value or name in entries:
            raise DomainError(
                f"{where}: an attribute must have either values, or one line with 'min' and 'max'"
            )
        else:
            entries[name] = _parse_bounds(where, low, high, row.get("unit"))
    return codebook


def _read_parquet(path: Path) -> Codebook:
    file = CodeFile(path, "codebook", DomainError)
    codebook = Codebook()
    names, values = file.read_column("attribute"), file.read_column("value")
    labels = file.read_labels(LABEL_KEY) if LABEL_KEY in file.names else [None] * len(names)
    for name, value, label in zip(names, values, labels, strict=True):
        codebook.entries.setdefault(str(name), []).append(value)
        codebook.add_label(str(name), value, label)
    return codebook


def _parse_bounds(where: str, low: Any, high: Any, unit: str | None) -> dict[str, Any]:
    """Parse the bounds of integers or, with a unit, of a measure."""
    if not unit:
        return {"integers": [_parse_integer(where, end) for end in (low, high)]}
    return {
        "measure": [_parse_number(where, end) for end in (low, high)],
        "unit": _parse_number(where, unit),
    }


def _parse_number(where: str, text: str) -> int | float:
    """Parse a number, as an integer if written as one."""
    try:
        return int(text) if re.fullmatch("-?[0-9]+", text) else float(text)
    except ValueError:
        raise DomainError(f"{where}: 'min', 'max' and 'unit' must be numbers") from None


def _parse_integer(where: str, text: str | None) -> int:
    if not re.fullmatch("-?[0-9]+", text or ""):
        raise DomainError(f"{where}: 'min' and 'max' must be integers, unless 'unit' is given")
    return int(text or "")


def _parse_json(path: Path, text: str) -> Codebook:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        raise DomainError(f"{path}: not valid JSON at {position}. Correct the file.") from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists
        raise DomainError(f"{path} is not a JSON codebook. Check the path.") from None
    if isinstance(content, dict) and isinstance(content.get("schema"), dict):
        content = content["schema"]
    if not isinstance(content, dict):
        raise DomainError(f"{path} must be a JSON object with an entry for each attribute")
    codebook = Codebook()
    for number, (name, entry) in enumerate(content.items(), 1):
        values = entry.get("values", entry) if isinstance(entry, dict) else entry
        codebook.entries[name] = _parse_json_values(path, number, values)
        if isinstance(values, dict) and isinstance(codebook.entries[name], list):
            for value, label in values.items():
                codebook.add_label(name, value, label)
    return codebook


def _parse_json_values(path: Path, number: int, values: Any) -> Any:
    """Convert an attribute's content in the file to an entry of a [domain] table."""
    if isinstance(values, list):
        return values
    if isinstance(values, dict) and values and not {"min", "max"} & set(values):
        return list(values)
    if isinstance(values, dict) and {"min", "max"} <= set(values):
        ends = [values["min"], values["max"]]
        return {"measure": ends, "unit": values["unit"]} if "unit" in values else {"integers": ends}
    raise DomainError(f"{path}: attribute {number} must have a list of values, or 'min' and 'max'")


def check_files_are_public(entries: Mapping[str, Any], folder: Path, data: str | None) -> None:
    """Check that no attribute names the data file as its codebook, list or crosswalk.

    Args:
        entries: The entry of each attribute in [domain] or in a [[query]].
        folder: The folder that paths are relative to.
        data: The path of the rows, which may be a glob; None if the rows are in a store.

    Raises:
        DomainError: If an entry names the data file, by the same or another path.
    """
    if data is None:
        return
    named = [(name, text) for name, entry in entries.items() for text in _find_texts(entry)]
    files = [(name, text, key) for name, text in named if (key := _identify_file(folder / text))]
    if not files:
        return
    rows = set(map(_identify_file, match_rows(folder, data)))
    for name, text, key in files:
        if key in rows:
            raise DomainError(
                f"attribute {name!r}: {folder / text} must be a public file, not the data of "
                "[data] path"
            )


def match_rows(folder: Path, data: str) -> Iterator[Path]:
    """Yield [data] path itself, which need not exist, and the paths that it matches.

    Args:
        folder: The folder that paths are relative to.
        data: The path of the rows, which may be a glob.
    """
    yield folder / data
    pattern = os.path.join(glob.escape(str(folder)), data)  # noqa: PTH118 - a glob, not a path
    yield from map(Path, glob.iglob(pattern, recursive=True))  # noqa: PTH207 - as the count does


def _find_texts(entry: Any) -> Iterator[str]:
    """Yield the strings in the tables of an entry, which may be paths; lists contain values."""
    if isinstance(entry, Mapping):
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from _find_texts(value)


def _identify_file(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, or None if there is no such file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if path.is_file() else None
