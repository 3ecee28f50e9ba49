"""What a release writes: the folder that `Release.read` reads, a CSV beside each Parquet table, a
JSON of what ran, and the review of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fitplug.errors import InputError
from fitplug.numeric import ceil_float
from fitplug.release import Release, choose_intervals, list_versions, name_files
from fitplug_cli import csvfile, reviews

RECORD = "release.json"
_LIBRARIES = ("opendp", "dask", "pyarrow")


def check_place(directory: Path, apart_from: Mapping[str, Path]) -> None:
    """Raise InputError if a release cannot go here: the place cannot be written, or is within, or
    around, one of `apart_from`, by what each is.
    """
    try:
        directory.exists()  # raises for a name that is none
        parent = directory.absolute().parent
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


@dataclass(frozen=True)
class ReleaseFiles:
    """What the command line adds to a release folder; see `fitplug.release.TableFiles`.

    confidence: of the intervals of groups that did not name one. delta: for epsilon. review: makes
    the review of the release. spreadsheet_safe: whether no text of a CSV file begins as a formula
    does.
    """

    confidence: float
    delta: float
    review: Callable[[Release], Mapping[str, Any]]
    spreadsheet_safe: bool = False

    def add_table(self, folder: Path, name: str, table: Any) -> None:
        """Write the table as CSV."""
        csvfile.write(folder / f"{name}.csv", table, spreadsheet_safe=self.spreadsheet_safe)

    def add_rest(self, folder: Path, release: Release) -> None:
        """Write the JSON of what ran, and the review."""
        record = describe(release, self.confidence, self.delta) | {"versions": all_versions()}
        text = json.dumps(record, indent=2) + "\n"
        (folder / RECORD).write_text(text, encoding="utf-8")
        reviews.write(folder, self.review(release))


def describe(release: Release, confidence: float, delta: float) -> dict[str, Any]:
    """What release.json says."""
    plan = release.plan
    k = release.contributions
    files = name_files(plan.workload)
    return {
        "rho": release.rho,
        "rho_charged": None if release.entry is None else ceil_float(release.entry.rho),
        "ledger_entry": None if release.entry is None else release.entry.id,
        "contributions": k,
        "limited": release.limited,
        "population": release.population,
        "rows": release.rows or "each row is one record",
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
                **choose_intervals(plan.workload[row.name], None, default=confidence)._asdict(),
            }
            for row in plan.group_rows()
        ],
    }


def all_versions() -> dict[str, str]:
    """Of Python, and of the libraries that a release is made with."""
    return list_versions() | {name: version(name) for name in _LIBRARIES}


def record(directory: Path) -> dict[str, Any]:
    """What release.json of a release says, and where it is; only that if there is none that can be
    read, as where it was published without the command line.
    """
    said: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        said = json.loads((directory / RECORD).read_text(encoding="utf-8"))
    return {"folder": str(directory), **said}
