"""The files of a release folder besides tables and answers: CSV, release.json, the review."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from fitplug.domain import get_codec, get_shape, list_measures
from fitplug.errors import LedgerError
from fitplug.files import Place, hash_content
from fitplug.ledger import Ledger
from fitplug.numeric import ceil_float
from fitplug.plan import Plan
from fitplug.privacy import check_delta
from fitplug.releases import (
    DISPLAY,
    About,
    DisplayRequest,
    Release,
    check_request,
    choose_intervals,
    format_markdown,
    list_core_versions,
    name_files,
    read_display,
    review,
)
from fitplug.workload import (
    DEFAULT_CONFIDENCE,
    allows_any_rows,
    check_confidence,
    list_measure_rules,
)
from fitplug_opendp.noise_source import find_check

_DISPLAY_BYTES = 40
"""About the largest size of a row of a display table in Parquet."""

_MOST_VALUES = 2**24
"""The most exact counts or answers of a release that is not made in parts."""

_DELTA = 1e-9

_LIBRARIES = ("opendp", "dask", "pyarrow")


def list_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries behind a release."""
    versions = list_core_versions()
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):  # a release from tables needs only OpenDP
            versions[name] = version(name)
    return versions


@dataclass(frozen=True)
class ReleaseFiles:
    """The files of a release folder besides tables and answers; see `complete_folder`.

    Attributes:
        ledger: The ledger that the review describes; None if there is none.
        confidence: The confidence of the intervals, for groups whose target has no confidence.
        delta: The delta at which epsilon is reported; None for the ledger's, or else 1e-9.
        about: The publisher's facts, for the review.
        spreadsheet_safe: Whether text in CSV that looks like a formula gets an apostrophe.
        display: The display tables to write; None for none.
    """

    ledger: Ledger | None = None
    confidence: float = DEFAULT_CONFIDENCE
    delta: float | None = None
    about: About | None = None
    spreadsheet_safe: bool = False
    display: DisplayRequest | None = None

    def check(self, plan: Plan) -> None:
        """Check before any row is read that the files can be written.

        Raises:
            BudgetError: delta is out of range.
            WorkloadError: The confidence is out of range, or display tables cannot be made.
        """
        check_confidence(self.confidence)
        check_delta(self.reported_delta)
        if self.display is not None:
            check_request(plan, self.display)

    @property
    def reported_delta(self) -> float:
        """The delta at which epsilon is reported."""
        if self.delta is not None:
            return self.delta
        budget = None
        with suppress(LedgerError):  # after the draw, nothing depends on the ledger's file
            budget = None if self.ledger is None else self.ledger.privacy
        return _DELTA if budget is None else budget[1]

    def estimate_size(self, plan: Plan) -> int:
        """Estimate the bytes of the CSV and display tables; the rest is small."""
        from fitplug_opendp.csv_tables import estimate_csv_size

        has_csv = not is_large(plan)
        csv = sum(estimate_csv_size(plan.domain, g) for g in plan.workload.groups if has_csv)
        display = _DISPLAY_BYTES * plan.workload.query_count
        return csv if self.display is None else 2 * csv + display

    def describe(self, release: Release) -> dict[str, Any]:
        """Return the entries of release.json."""
        return describe_release(release, self.confidence, self.reported_delta) | {
            "versions": list_versions()
        }

    def add_files(self, folder: Place, release: Release) -> None:
        """Write the CSV tables and the review. Raises OSError if a file cannot be written."""
        with tempfile.TemporaryDirectory() as directory:
            if not is_large(release.plan):
                self._write_tables(Path(directory), folder, release)
            write_review(Path(directory), self._review(release))
            for path in sorted(Path(directory).iterdir()):
                folder.replace(path.name, path.read_bytes())

    def _write_tables(self, directory: Path, folder: Place, release: Release) -> None:
        """Write the table, and the display table if there is one, of each group as CSV."""
        from fitplug_opendp.csv_tables import write_csv

        display = None
        if self.display is not None:
            display = read_display(folder, hash_content(folder.read(DISPLAY)))
        for name, file in name_files(release.plan.workload).items():
            group = release.plan.workload[name]
            kind = choose_intervals(group, None, default=self.confidence)
            tables = {f"{file}.csv": release.to_arrow(name, **kind._asdict())}
            if display is not None:
                tables[f"{file}.display.csv"] = display.read(name)
            for csv, table in tables.items():
                write_csv(directory / csv, table, spreadsheet_safe=self.spreadsheet_safe)

    def _review(self, release: Release) -> dict[str, Any]:
        """Review the release, without the ledger if it can no longer be read."""
        keywords: dict[str, Any] = {
            "about": self.about,
            "delta": self.reported_delta,
            "versions": list_versions(),
            "display": self.display is not None,
        }
        try:
            return review(release, ledger=self.ledger, **keywords)
        except LedgerError:
            return review(release, **keywords)


def is_large(plan: Plan) -> bool:
    """Return whether a plan has more than 2^24 exact counts or answers.

    The release of such a plan is made in parts and has no CSV tables. The limit does not depend on
    this machine's memory, because another machine may finish the release.
    """
    cells = sum(math.prod(get_shape(plan.domain, names)) for names in plan.tables)
    return max(cells, plan.strategy.size) > _MOST_VALUES


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
    """Describe neighbouring data sets."""
    if allows_any_rows(plan.unit):
        return "add or remove one row; rho is for all rows of one person"
    return f"{plan.bound_unit}; rho is for all rows of one person"


def _describe_check(plan: Plan) -> dict[str, Any]:
    """Describe the sensitivity check before the charge, if this process drew the noise."""
    check = find_check(plan)
    if check is None:
        return {}
    return {
        "sensitivity_check": {
            "meaning": "largest squared distance between answers on neighbouring data sets, "
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
    names = release.plan.strategy.structure.public_attributes
    return {
        "public_totals": {
            "protected": False,
            "meaning": "exact numbers of counted rows without noise, which the unit of privacy "
            "does not protect",
            "attributes": list(names or ()),
            "counts": totals.tolist(),
        }
    }


def build_coverage_record(release: Release, confidence: float) -> dict[str, Any]:
    """Build the record of the rows outside the domain, with their share of all rows, if counted."""
    rows = []
    for row in release.coverage():
        record = {
            "attribute": row.attribute,
            "rows": row.rows.value,
            "std": row.rows.std,
            "moe": row.rows.moe(confidence),
        }
        if row.share is not None:
            ends = row.share.interval(confidence)
            named = zip(("share", "lower", "upper"), (row.share.value, *ends), strict=True)
            # JSON has no infinities, the ends of the interval of an unknown share.
            record |= {name: end if math.isfinite(end) else None for name, end in named}
        rows.append(record)
    return {"coverage": rows, "coverage_confidence": confidence} if rows else {}


def build_measures_record(plan: Plan) -> dict[str, Any]:
    """Build the record of a plan's measures and of the rules that no margin of error covers."""
    rules, domain = list_measure_rules(plan.workload), plan.domain
    if not rules:
        return {}
    measures = list_measures(domain, plan.workload.attributes)
    return {
        "measures": {name: get_codec(domain[name]).spec() for name in measures},
        "measure_rules": list(rules),
    }


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
