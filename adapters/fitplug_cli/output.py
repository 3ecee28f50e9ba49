"""What a release writes: a Parquet and a CSV table per group, the plan, a JSON of what ran, and
the review of it.

A folder appears whole or not at all, and an earlier release is kept beside it: it was paid for.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import fitplug
from fitplug.errors import InputError
from fitplug.plan import Plan
from fitplug.release import Release
from fitplug.rounding import ceil_float
from fitplug.targets import two_sided_quantile
from fitplug.workload import QueryGroup, Workload
from fitplug_cli import reviews
from fitplug_cli.files import writing

RECORD = "release.json"
PLAN = "plan.npz"
_LIBRARIES = ("numpy", "scipy", "opendp", "dask", "pyarrow")


def check_place(directory: Path, apart_from: Mapping[str, Path]) -> None:
    """Raise InputError if a release cannot go here: the place is taken by something else, or is
    within, or around, one of `apart_from`, by what each is.
    """
    try:
        if directory.exists() and not directory.is_dir():
            raise InputError(f"{directory} is a file; name another [output] path")
        if directory.is_dir() and any(directory.iterdir()) and not _record(directory):
            raise InputError(
                f"{directory} holds files that are no fitplug release; name another [output] path"
            )
        parent = directory.absolute()
        while not parent.exists():
            parent = parent.parent
    except OSError:
        raise InputError(f"{directory} cannot be a folder; name another [output] path") from None
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InputError(f"{directory} cannot be written; name another [output] path")
    here = directory.resolve()
    for what, path in apart_from.items():
        there = path.resolve()
        if here in (there, *there.parents) or there in here.parents:
            raise InputError(
                f"{directory} is not apart from {what}, {path}; name another [output] path"
            )


@contextmanager
def folder(directory: Path, plan: Plan) -> Iterator[Folder]:
    """A place for one release of the plan, begun before anything is charged.

    What can fail without the noise fails on entering. Left without `finish`, nothing remains.
    Raises WriteError.
    """
    partial = directory.with_name(f".{directory.name}.{os.getpid()}.partial")
    try:
        with writing(directory):
            partial.mkdir(parents=True)
            plan.save(partial / PLAN)
        yield Folder(directory, partial, _versions())
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@dataclass(frozen=True)
class Folder:
    """A release folder being written: `partial` becomes `directory` when all of it is there."""

    directory: Path
    partial: Path
    versions: Mapping[str, str]

    def finish(
        self, release: Release, confidence: float, delta: float, review: Mapping[str, Any]
    ) -> Path | None:
        """Write the tables; returns where an earlier release was moved to, if there was one.

        confidence: of the intervals of groups that did not name one. delta: for epsilon.
        review: of the release, by `fitplug.review`. Raises WriteError.
        """
        with writing(self.directory):
            self._write(release, confidence, delta)
            reviews.write(self.partial, review)
            earlier = _set_aside(self.directory)
            self.partial.replace(self.directory)
        return earlier

    def _write(self, release: Release, confidence: float, delta: float) -> None:
        files = file_names(release.plan.workload)
        for group in release.plan.workload.groups:
            table = group_table(release, group, group.target.confidence or confidence)
            pa.parquet.write_table(table, self.partial / f"{files[group.name]}.parquet")
            pa.csv.write_csv(table, self.partial / f"{files[group.name]}.csv")
        record = describe(release, confidence, delta) | {"versions": dict(self.versions)}
        text = json.dumps(record, indent=2) + "\n"
        (self.partial / RECORD).write_text(text, encoding="utf-8")


def group_table(release: Release, group: QueryGroup, confidence: float) -> pa.Table:
    """One row per query: what it counts, estimate, std, and at the confidence moe, lower, upper."""
    domain = release.plan.domain
    columns: dict[str, Any] = {}
    for axis, factor in enumerate(group.factors):
        labels = np.array(factor.labels(domain[factor.attribute]))
        shape = [-1 if i == axis else 1 for i in range(len(group.shape))]
        columns[factor.attribute] = np.broadcast_to(labels.reshape(shape), group.shape).ravel()
    estimate = release.estimates[group.name].ravel()
    std = np.sqrt(release.variances[group.name].ravel())
    moe = two_sided_quantile(confidence) * std
    columns |= {"estimate": estimate, "std": std, "moe": moe}
    columns |= {"lower": estimate - moe, "upper": estimate + moe}
    return pa.table(columns).replace_schema_metadata(
        {
            "fitplug.group": group.name,
            "fitplug.confidence": repr(confidence),
            "fitplug.plan_digest": release.plan_digest,
            "fitplug.rho": repr(release.rho),
        }
    )


def describe(release: Release, confidence: float, delta: float) -> dict[str, Any]:
    """What release.json says."""
    plan = release.plan
    k = release.contributions
    files = file_names(plan.workload)
    return {
        "rho": release.rho,
        "rho_charged": None if release.entry is None else ceil_float(release.entry.rho),
        "ledger_entry": None if release.entry is None else release.entry.id,
        "contributions": k,
        "neighbours": "add or remove one record; rho is for all records of one person",
        "delta": delta,
        "epsilon_gaussian_curve": release.epsilon(delta),
        "epsilon_zcdp": release.epsilon(delta, "zcdp"),
        "plan_digest": plan.digest,
        "plan_rho": plan.rho,
        "plan_rho_exact": str(plan.rho_exact),
        "certified_gap": plan.gap,
        "target_scale": plan.scale,
        "released": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "groups": [
            {
                "name": row.name,
                "file": files[row.name],
                "queries": row.queries,
                "target": row.target,
                "largest_std": row.largest_std,
                "confidence": plan.workload[row.name].target.confidence or confidence,
            }
            for row in plan.group_rows()
        ],
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "fitplug": fitplug.__version__}
    return found | {name: version(name) for name in _LIBRARIES}


def file_names(workload: Workload) -> Mapping[str, str]:
    """A file name, without ending, for each group: its own name in plain letters."""
    names: dict[str, str] = {}
    for group in workload.names:
        base = re.sub(r"[^A-Za-z0-9]+", "_", group).strip("_").lower()[:80] or "group"
        name, number = base, 2
        while name in (*names.values(), "release", "plan"):
            name, number = f"{base}_{number}", number + 1
        names[group] = name
    return names


def _record(directory: Path) -> dict[str, Any] | None:
    """What release.json says, or None if the folder is no release of ours."""
    try:
        said = json.loads((directory / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    ours = isinstance(said, dict) and isinstance(said.get("released"), str)
    return said if ours and "plan_digest" in said else None


def _set_aside(directory: Path) -> Path | None:
    record = _record(directory) if directory.is_dir() else None
    if record is None:
        if directory.is_dir():
            directory.rmdir()
        return None
    stamp = re.sub(r"[^0-9T]", "", record["released"])[:15]
    kept, number = directory.with_name(f"{directory.name}-{stamp}"), 2
    while kept.exists():
        kept, number = directory.with_name(f"{directory.name}-{stamp}-{number}"), number + 1
    directory.replace(kept)
    return kept
