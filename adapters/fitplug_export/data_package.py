"""Frictionless data packages: a CSV for each group, and datapackage.json, which describes them.

The descriptor follows the Data Package Standard 2.0 (https://datapackage.org/standard), and also
the specification 1.0, which older programs read. It names no licence, because only the publisher
knows it.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from fitplug.domain import Domain, label_values
from fitplug.files import fill_new_folder
from fitplug.numeric import AnyArray
from fitplug.releases import Intervals, Release, choose_intervals, make_metadata, name_files
from fitplug.workload import DEFAULT_CONFIDENCE, Factor, QueryGroup, check_confidence
from fitplug_export.answers import COLUMNS, PROTECTED, check_export_names, iterate_columns

DESCRIPTOR = "datapackage.json"

_PROFILES = "https://datapackage.org/profiles/2.0"

_MOST_LISTED = 1000
"""The largest number of values without labels that the description of a column lists."""

_BYTES_AT_ONCE = 1 << 20

_FIELD_TYPES = {int: "integer", bool: "boolean"}

_DESCRIPTIONS = {
    "estimate": "Unbiased estimate.",
    "std": "Standard deviation of the noise in the estimate.",
    "moe": "Margin of error: half the width of the interval",
    "lower": "Lower end of the interval",
    "upper": "Upper end of the interval",
    PROTECTED: "False for an exact number without noise, which the unit of privacy makes public.",
}


def write_data_package(
    release: Release,
    folder: str | PathLike[str],
    *,
    confidence: float = DEFAULT_CONFIDENCE,
) -> None:
    """Write a Frictionless data package: a CSV for each group, and datapackage.json.

    The file datapackage.json describes which rows were counted, and each column with its type and
    quantity. It has no licence; add the licence under which you publish.

    Args:
        release: The release.
        folder: The folder, which must be new or empty.
        confidence: The confidence of the intervals, for groups whose target has no confidence.

    Raises:
        InputError: The folder is not empty.
        WorkloadError: The confidence is out of range, or an attribute has the same name as a column
            of results.
        OSError: The folder cannot be written.
    """
    check_confidence(confidence)
    workload = release.plan.workload
    for group in workload.groups:
        check_export_names(group)
    names = name_files(workload)
    with fill_new_folder(folder) as new_folder:
        resources = []
        for group in workload.groups:
            intervals = choose_intervals(group, None, default=confidence)
            domain = release.plan.domain
            values = [factor.labels(domain[factor.attribute]) for factor in group.factors]
            path = new_folder / f"{names[group.name]}.csv"
            texts = [[_write_value(value) for value in axis] for axis in values]
            header = [*(f.attribute for f in group.factors), *COLUMNS]
            _write_csv(path, header, iterate_columns(release, group, intervals, texts))
            metadata = make_metadata(release, group, intervals)
            columns = [
                _describe_values(domain, factor, axis)
                for factor, axis in zip(group.factors, values, strict=True)
            ]
            columns += [_describe_numbers(name, group, intervals) for name in COLUMNS]
            is_key = bool(values) and all(len(set(axis)) == len(axis) for axis in values)
            resources.append(_describe_resource(path, group, columns, is_key, metadata))
        package = {
            "$schema": f"{_PROFILES}/datapackage.json",
            "profile": "tabular-data-package",
            "name": f"release-{release.plan.digest[:12]}",
            "description": release.population,
            "resources": resources,
        }
        text = json.dumps(package, indent=2, ensure_ascii=False) + "\n"
        (new_folder / DESCRIPTOR).write_text(text, encoding="utf-8")


def _write_csv(path: Path, header: Sequence[str], parts: Iterable[list[AnyArray]]) -> None:
    """Write a CSV in UTF-8 by RFC 4180, with all digits of numbers."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for *columns, protected in parts:
            flags = [_write_value(flag) for flag in protected.tolist()]
            rows = [column.tolist() for column in columns]
            writer.writerows(zip(*rows, flags, strict=True))


def _write_value(value: Any) -> str:
    """Write a label or a flag as the text of a field."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _describe_resource(
    path: Path,
    group: QueryGroup,
    fields: Sequence[dict[str, Any]],
    is_key: bool,
    metadata: dict[str, str],
) -> dict[str, Any]:
    """Describe the file of a group, which is complete.

    Args:
        path: The file.
        group: The group.
        fields: The descriptions of its columns.
        is_key: Whether the attributes' values name a row.
        metadata: The metadata of the table.
    """
    schema: dict[str, Any] = {
        "$schema": f"{_PROFILES}/tableschema.json",
        "fields": fields,
        "missingValues": [],  # no value is missing, and a label may be an empty text
    }
    if is_key:
        schema["primaryKey"] = [factor.attribute for factor in group.factors]
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_BYTES_AT_ONCE):
            digest.update(chunk)
    return {
        "name": path.stem,
        "type": "table",
        "profile": "tabular-data-resource",
        "title": group.name,
        "path": path.name,
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "bytes": path.stat().st_size,
        "hash": f"sha256:{digest.hexdigest()}",
        "schema": schema,
        **metadata,
    }


def _describe_values(domain: Domain, factor: Factor, values: Sequence[Any]) -> dict[str, Any]:
    """Describe a column of an attribute's values."""
    types = {type(value) for value in values}
    field_type = _FIELD_TYPES.get(types.pop(), "string") if len(types) == 1 else "string"
    constraints: dict[str, Any] = {"required": True}
    field: dict[str, Any] = {
        "name": factor.attribute,
        "type": field_type,
        "constraints": constraints,
    }
    if field_type == "boolean":
        return field
    if len(values) <= _MOST_LISTED:
        constraints["enum"] = list(dict.fromkeys(values))
    labels = label_values(domain, factor.attribute, factor.kind, values)
    if labels is not None:
        named = dict(zip(values, labels, strict=True))
        field["categories"] = [{"value": value, "label": text} for value, text in named.items()]
    return field


def _describe_numbers(name: str, group: QueryGroup, intervals: Intervals) -> dict[str, Any]:
    """Describe a column of results."""
    field: dict[str, Any] = {
        "name": name,
        "type": "boolean" if name == PROTECTED else "number",
        "description": _DESCRIPTIONS[name],
        "constraints": {"required": True},
    }
    if name == PROTECTED:
        return field
    field["unit"] = group.quantity
    if name in ("std", "moe"):
        field["constraints"]["minimum"] = 0
    if name in ("moe", "lower", "upper"):
        field["description"] += f" ({intervals})."
    return field
