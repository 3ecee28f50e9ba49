"""Files that the command line adds to a release folder: CSV tables, release.json, the review."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from fitplug.errors import InputError
from fitplug.files import Place, hash_content
from fitplug.numeric import ceil_float
from fitplug.plan import Plan
from fitplug.releases import (
    DISPLAY,
    DisplayRequest,
    Release,
    choose_intervals,
    format_markdown,
    list_core_versions,
    name_files,
    read_display,
)
from fitplug_cli.render.csv_tables import estimate_csv_size, write_csv
from fitplug_cli.render.json_records import build_coverage_record, build_measures_record
from fitplug_opendp.noise_source import find_check

RECORD = "release.json"

_DISPLAY_BYTES = 40
"""About the largest size of a row of a display table in Parquet."""

_LIBRARIES = ("opendp", "dask", "pyarrow")


def list_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries behind a release."""
    return list_core_versions() | {name: version(name) for name in _LIBRARIES}


def check_release_folder(directory: Path, others: Mapping[str, Path]) -> None:
    """Check that a release can be written into a folder.

    Args:
        directory: The folder, which need not exist.
        others: Paths that must not contain the folder or be inside it, by what they are.

    Raises:
        InputError: If the folder cannot be written, or overlaps with another path.
    """
    try:
        directory.exists()  # raises OSError for an invalid name
        parent = directory.absolute().parent
        while not parent.exists():
            parent = parent.parent
    except OSError:
        raise InputError(f"{directory} is not a valid folder name. Change [output] path.") from None
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InputError(f"{directory} is not writable. Change [output] path.")
    here = directory.resolve()
    for what, path in others.items():
        there = path.resolve()
        if here in (there, *there.parents) or there in here.parents:
            raise InputError(f"{directory} overlaps with {what}, {path}. Change [output] path.")


@dataclass(frozen=True)
class ReleaseFiles:
    """What the command line adds to a release folder; see `fitplug.releases.MoreFiles`.

    Attributes:
        confidence: The confidence of the intervals of groups that do not name one.
        delta: The delta at which epsilon is reported.
        review: A function that reviews the release.
        spreadsheet_safe: Whether text in CSV that looks like a formula gets an apostrophe.
        has_csv: Whether to write a CSV of each table.
        display: What display tables are written; None for none.
    """

    confidence: float
    delta: float
    review: Callable[[Release], Mapping[str, Any]]
    spreadsheet_safe: bool = False
    has_csv: bool = True
    display: DisplayRequest | None = None

    def estimate_size(self, plan: Plan) -> int:
        """Estimate the bytes of the CSV and display tables; the rest is small."""
        csv = sum(estimate_csv_size(plan.domain, g) for g in plan.workload.groups if self.has_csv)
        display = _DISPLAY_BYTES * plan.workload.query_count
        return csv if self.display is None else 2 * csv + display

    def describe(self, release: Release) -> dict[str, Any]:
        """Return the entries of release.json."""
        return describe_release(release, self.confidence, self.delta) | {
            "versions": list_versions()
        }

    def add_files(self, folder: Place, release: Release) -> None:
        """Write the CSV tables and the review. Raises OSError if a file cannot be written."""
        with tempfile.TemporaryDirectory() as directory:
            if self.has_csv:
                self._write_tables(Path(directory), release)
                self._write_display(Path(directory), folder, release)
            write_review(Path(directory), self.review(release))
            for path in sorted(Path(directory).iterdir()):
                folder.replace(path.name, path.read_bytes())

    def _write_tables(self, directory: Path, release: Release) -> None:
        """Write the table of each group as CSV."""
        for name, file in name_files(release.plan.workload).items():
            group = release.plan.workload[name]
            kind = choose_intervals(group, None, default=self.confidence)
            table = release.to_arrow(name, **kind._asdict())
            path = directory / f"{file}.csv"
            write_csv(path, table, spreadsheet_safe=self.spreadsheet_safe)

    def _write_display(self, directory: Path, folder: Place, release: Release) -> None:
        """Write the display table of each group as CSV, if there are any."""
        if self.display is None:
            return
        display = read_display(folder, hash_content(folder.read(DISPLAY)))
        assert display is not None
        for name, file in name_files(release.plan.workload).items():
            table = display.read(name)
            path = directory / f"{file}.display.csv"
            write_csv(path, table, spreadsheet_safe=self.spreadsheet_safe)


def describe_release(release: Release, confidence: float, delta: float) -> dict[str, Any]:
    """Build the content of release.json, except for the software."""
    plan = release.plan
    files = name_files(plan.workload)
    return {
        "rho": release.rho,
        "rho_charged": None if release.entry is None else ceil_float(release.entry.rho),
        "ledger_entry": None if release.entry is None else release.entry.id,
        "limited": release.limited,
        "population": release.population,
        "rows": release.rows or "each row counts once",
        "unit": plan.bound_unit.to_spec(),
        "neighbours": _describe_neighbours(plan),
        **_describe_public_totals(release),
        **build_measures_record(plan),
        **build_coverage_record(release, confidence),
        "delta": delta,
        "epsilon": release.epsilon(delta),
        "plan_digest": plan.digest,
        "plan_rho": plan.rho,
        "plan_rho_exact": str(plan.rho_exact),
        **_describe_check(plan),
        "gap": plan.gap,
        "target_scale": plan.scale,
        "released": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "groups": [
            {
                "name": row.name,
                "file": files[row.name],
                "queries": row.queries,
                "quantity": row.quantity,
                "target": row.target,
                "largest_std": row.largest_std,
                **choose_intervals(plan.workload[row.name], None, default=confidence)._asdict(),
            }
            for row in plan.group_rows()
        ],
    }


def _describe_neighbours(plan: Plan) -> str:
    """Describe neighbouring datasets."""
    if plan.unit.is_of_records:
        return "add or remove one row; rho is for all rows of one person"
    return f"{plan.bound_unit}; rho is for all rows of one person"


def _describe_check(plan: Plan) -> dict[str, Any]:
    """Describe the sensitivity check before the charge, if this process drew the noise."""
    check = find_check(plan)
    if check is None:
        return {}
    return {
        "sensitivity_check": {
            "meaning": "largest squared distance between answers on neighbouring datasets, "
            "computed as for the release, compared with the distance charged for",
            "cells": check.cells,
            "neighbours": check.neighbours,
            "all_neighbours": check.is_complete,
            "largest_squared_distance": str(check.largest_squared),
            "charged_squared_distance": str(plan.strategy.sensitivity_squared),
        }
    }


def _describe_public_totals(release: Release) -> dict[str, Any]:
    """Describe exact totals, which the unit of privacy does not protect."""
    totals = release.public_totals
    if totals is None:
        return {}
    names = release.plan.structure.public_attributes
    return {
        "public_totals": {
            "protected": False,
            "meaning": "exact numbers of counted rows without noise, which the unit of privacy "
            "does not protect",
            "attributes": list(names or ()),
            "counts": totals.tolist(),
        }
    }


def read_release_record(folder: Place) -> dict[str, Any]:
    """Read release.json of a release.

    Returns:
        Its content and the folder; only the folder if there is no readable file, as in releases
        that were not made by the command line.
    """
    record: Any = None
    with suppress(OSError, ValueError):
        record = json.loads(folder.read(RECORD))
    return {"folder": str(folder), **(record if isinstance(record, dict) else {})}


YAML, MARKDOWN = "review.yaml", "review.md"


class _Dumper(yaml.SafeDumper):
    """A dumper that writes multi-line strings as blocks, as the registry requires."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def write_review(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the review of a release into a folder.

    Raises:
        OSError: If a file cannot be written.
    """
    text = yaml.dump(record, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    (folder / YAML).write_text(text, encoding="utf-8")
    (folder / MARKDOWN).write_text(format_markdown(record), encoding="utf-8")
