"""What a release writes: the folder that `Release.read` reads, a CSV beside each Parquet table, a
JSON of what ran, and the review of it.

A folder appears whole or not at all, and an earlier release is kept beside it: it was paid for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from fitplug.errors import InputError
from fitplug.exports import spread
from fitplug.plan import Plan
from fitplug.release import Release
from fitplug.releasefile import PLAN, file_names, versions, written
from fitplug.rounding import ceil_float
from fitplug_cli import reviews
from fitplug_cli.files import writing

RECORD = "release.json"
_LIBRARIES = ("opendp", "dask", "pyarrow")


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
        for name, table in written(release, self.partial, confidence):
            pa.csv.write_csv(table, self.partial / f"{name}.csv")
        record = describe(release, confidence, delta) | {"versions": dict(self.versions)}
        text = json.dumps(record, indent=2) + "\n"
        (self.partial / RECORD).write_text(text, encoding="utf-8")


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
                **spread(plan.workload[row.name], None, default=confidence)._asdict(),
            }
            for row in plan.group_rows()
        ],
    }


def _versions() -> dict[str, str]:
    return versions() | {name: version(name) for name in _LIBRARIES}


def record(directory: Path) -> dict[str, Any]:
    """What release.json of a release just written says, and where it is."""
    said = json.loads((directory / RECORD).read_text(encoding="utf-8"))
    return {"folder": str(directory), **said}


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
