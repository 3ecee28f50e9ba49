"""Data packages of Frictionless: a CSV for each group, and datapackage.json, which describes them.

The descriptor follows the Data Package Standard 2.0 (https://datapackage.org/standard), and also
the specification 1.0, which older programs read. It names no licence, as only the publisher knows
that.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from fitplug.files import fill_new_folder
from fitplug.numeric import AnyArray
from fitplug.releases import Intervals, Release, choose_intervals, make_metadata, name_files
from fitplug.workload import DEFAULT_CONFIDENCE, QueryGroup, check_confidence
from fitplug_export.answers import COLUMNS, PROTECTED, check_export_names, iterate_columns

DESCRIPTOR = "datapackage.json"

_PROFILES = "https://datapackage.org/profiles/2.0"

_MOST_LISTED = 1000
"""The largest number of labels that the description of a column lists."""

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
    """Write a data package of Frictionless: a CSV for each group, and datapackage.json.

    The descriptor says what each column is, its type and its quantity, and which records the
    numbers are about. It names no licence; add that of the publisher.

    Args:
        release: The release.
        folder: The folder, which must be new or empty.
        confidence: The confidence of the intervals of groups whose target has none.

    Raises:
        InputError: The folder is not empty.
        WorkloadError: The confidence is out of range, or an attribute has the name of a column
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
            labels = [f.labels(release.plan.domain[f.attribute]) for f in group.factors]
            path = new_folder / f"{names[group.name]}.csv"
            texts = [[_write_value(label) for label in axis] for axis in labels]
            header = [*(f.attribute for f in group.factors), *COLUMNS]
            _write_csv(path, header, iterate_columns(release, group, intervals, texts))
            metadata = make_metadata(release, group, intervals)
            resources.append(_describe_resource(path, group, labels, intervals, metadata))
        package = {
            "$schema": f"{_PROFILES}/datapackage.json",
            "profile": "tabular-data-package",
            "name": f"release-{release.plan_digest[:12]}",
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
    labels: Sequence[Sequence[Any]],
    intervals: Intervals,
    metadata: dict[str, str],
) -> dict[str, Any]:
    """Describe the file of a group, which is complete."""
    fields = [
        _describe_labels(factor.attribute, axis)
        for factor, axis in zip(group.factors, labels, strict=True)
    ]
    fields += [_describe_numbers(name, group, intervals) for name in COLUMNS]
    schema: dict[str, Any] = {
        "$schema": f"{_PROFILES}/tableschema.json",
        "fields": fields,
        "missingValues": [],  # no value is missing, and a label may be an empty text
    }
    if labels and all(len(set(axis)) == len(axis) for axis in labels):
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


def _describe_labels(name: str, labels: Sequence[Any]) -> dict[str, Any]:
    """Describe a column of labels."""
    types = {type(label) for label in labels}
    field_type = _FIELD_TYPES.get(types.pop(), "string") if len(types) == 1 else "string"
    constraints: dict[str, Any] = {"required": True}
    if len(labels) <= _MOST_LISTED and field_type != "boolean":
        constraints["enum"] = list(dict.fromkeys(labels))
    return {"name": name, "type": field_type, "constraints": constraints}


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
