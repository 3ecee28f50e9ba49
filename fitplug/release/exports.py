"""Exports of a release: grids of xarray, and data packages of Frictionless.

A data package has a CSV for each group, and datapackage.json, which describes them. The descriptor
follows the Data Package Standard 2.0 (https://datapackage.org/standard), and also the specification
1.0, which older programs read. It names no licence, as only the publisher knows that.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from fitplug.errors import WorkloadError
from fitplug.files import fill_new_folder, import_library
from fitplug.numeric import AnyArray
from fitplug.release.manifest import name_files
from fitplug.release.noisy_answers import NoisyAnswers
from fitplug.release.tables import Intervals, check_names, choose_intervals, make_metadata
from fitplug.workload import QueryGroup

PROTECTED = "protected"
"""The column that says whether an answer carries noise."""


class Answer(NamedTuple):
    """The numbers of an answer, all but the last in the group's quantity.

    Attributes:
        estimate: The estimate.
        std: Its standard deviation.
        moe: The margin of error of its interval.
        lower: The lower end of the interval.
        upper: The upper end.
        protected: "false" for an exact number that the unit of privacy makes public, else "true".
    """

    estimate: float
    std: float
    moe: float
    lower: float
    upper: float
    protected: str


def check_export_names(group: QueryGroup) -> None:
    """Raise WorkloadError if an attribute of a group has the name of a column of results."""
    check_names(group)
    if any(factor.attribute == PROTECTED for factor in group.factors):
        raise WorkloadError(f"attribute {PROTECTED!r} has the name of a result column; rename it")


def find_protected(release: NoisyAnswers, group: QueryGroup) -> AnyArray:
    """Find the answers that carry noise, of the group's shape.

    The others are computed from totals that the unit of privacy makes public, and are exact.
    """
    if release.plan.structure.public_attributes is None:
        return np.ones(group.shape, dtype=bool)
    return np.asarray(release.variances[group.name] > 0)


def iterate_answers(
    release: NoisyAnswers, group: QueryGroup, intervals: Intervals, labels: Sequence[Sequence[str]]
) -> Iterator[tuple[str | float, ...]]:
    """Yield the labels of each answer of a group, and then what `Answer` holds.

    A release in parts is read part by part.

    Args:
        release: The release.
        group: The group.
        intervals: The kind of intervals.
        labels: What stands for each row, for each factor of the group.
    """
    std = np.sqrt(release.variances[group.name])
    protected = find_protected(release, group)
    for where, estimate in _iterate_blocks(release, group):
        own = [one[chosen] for one, chosen in zip(labels, where, strict=True)]
        moe = intervals.compute_moe(group, std[where])
        flags = np.where(protected[where], "true", "false")
        numbers = (estimate, std[where], moe, estimate - moe, estimate + moe)
        # Adding 0.0 turns -0.0 into 0.0.
        columns = [*(np.ravel(one + 0.0).tolist() for one in numbers), np.ravel(flags).tolist()]
        for names, answer in zip(product(*own), zip(*columns, strict=True), strict=True):
            yield *names, *answer


def _iterate_blocks(
    release: NoisyAnswers, group: QueryGroup
) -> Iterator[tuple[tuple[slice, ...], AnyArray]]:
    """Yield where the estimates of each part stand among those of a group, and the estimates."""
    everywhere = (slice(None),) * len(group.shape)
    if release.parted_tables is None or not everywhere:
        yield everywhere, np.asarray(release.estimates[group.name])
        return
    for block in release.parted_tables.list_blocks(group.name):
        where = list(everywhere)
        where[block.axis] = slice(block.start, block.stop)
        yield tuple(where), block.read()


if TYPE_CHECKING:
    import xarray

Grid: TypeAlias = "xarray.Dataset"

_VARIANCE = "variance"


def make_grid(release: NoisyAnswers, group: QueryGroup, intervals: Intervals) -> Grid:
    """Make an xarray Dataset of a group; see `Release.to_xarray`.

    Raises:
        ImportError: xarray is not installed.
        WorkloadError: An attribute has the name of a variable.
    """
    check_export_names(group)
    names = [factor.attribute for factor in group.factors]
    if _VARIANCE in names:
        raise WorkloadError(f"attribute {_VARIANCE!r} has the name of a variable; rename it")
    estimate, variance = release.estimates[group.name], release.variances[group.name]
    std = np.sqrt(variance)
    moe = intervals.compute_moe(group, std)
    quantity = group.quantity
    numbers = {
        "estimate": (estimate, quantity),
        _VARIANCE: (variance, f"({quantity})^2"),
        "std": (std, quantity),
        "moe": (moe, quantity),
        "lower": (estimate - moe, quantity),
        "upper": (estimate + moe, quantity),
    }
    variables = {name: (names, array, {"units": unit}) for name, (array, unit) in numbers.items()}
    meaning = "false for exact numbers that the unit of privacy makes public"
    protected = {PROTECTED: (names, find_protected(release, group), {"long_name": meaning})}
    domain = release.plan.domain
    return import_library("xarray").Dataset(
        variables | protected,
        coords={f.attribute: np.array(f.labels(domain[f.attribute])) for f in group.factors},
        attrs=make_metadata(release, group, intervals),
    )


DESCRIPTOR = "datapackage.json"

_PROFILES = "https://datapackage.org/profiles/2.0"

_MOST_LISTED = 1000
"""The largest number of labels that the description of a column lists."""

_BYTES_AT_ONCE = 1 << 20

_FIELD_TYPES = {int: "integer", bool: "boolean"}

_DESCRIPTIONS = {
    "estimate": "Unbiased estimate.",
    "std": "Standard deviation of the estimate: that of the noise alone.",
    "moe": "Margin of error: half the width of the interval",
    "lower": "Lower end of the interval",
    "upper": "Upper end of the interval",
    "protected": "False for an exact number without noise, which the unit of privacy makes public.",
}


def write_package(release: NoisyAnswers, directory: str | PathLike[str], confidence: float) -> None:
    """Write a release as a data package; see `Release.write_data_package`."""
    workload = release.plan.workload
    for group in workload.groups:
        check_export_names(group)
    names = name_files(workload)
    with fill_new_folder(directory) as folder:
        resources = []
        for group in workload.groups:
            intervals = choose_intervals(group, None, default=confidence)
            labels = [f.labels(release.plan.domain[f.attribute]) for f in group.factors]
            path = folder / f"{names[group.name]}.csv"
            texts = [[_write_label(label) for label in own] for own in labels]
            header = [*(f.attribute for f in group.factors), *Answer._fields]
            write_rows(path, header, iterate_answers(release, group, intervals, texts))
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
        (folder / DESCRIPTOR).write_text(text, encoding="utf-8")


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[str | float]]) -> None:
    """Write a CSV in UTF-8 as RFC 4180 has it, with all digits of numbers.

    Raises:
        OSError: The file cannot be written.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def _write_label(label: Any) -> str:
    """Write a label as the text of a cell."""
    return str(label).lower() if isinstance(label, bool) else str(label)


def _describe_resource(
    path: Path,
    group: QueryGroup,
    labels: Sequence[Sequence[Any]],
    intervals: Intervals,
    metadata: dict[str, str],
) -> dict[str, Any]:
    """Describe the file of a group, which is complete."""
    fields = [
        _describe_labels(factor.attribute, own)
        for factor, own in zip(group.factors, labels, strict=True)
    ]
    fields += [_describe_numbers(name, group, intervals) for name in Answer._fields]
    schema: dict[str, Any] = {
        "$schema": f"{_PROFILES}/tableschema.json",
        "fields": fields,
        "missingValues": [],  # no value is missing, and a label may be an empty text
    }
    if labels and all(len(set(own)) == len(own) for own in labels):
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
        "type": "boolean" if name == "protected" else "number",
        "description": _DESCRIPTIONS[name],
        "constraints": {"required": True},
    }
    if name == "protected":
        return field
    field["unit"] = group.quantity
    if name in ("std", "moe"):
        field["constraints"]["minimum"] = 0
    if name in ("moe", "lower", "upper"):
        field["description"] += f" ({intervals})."
    return field
