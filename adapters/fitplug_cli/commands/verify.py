"""`fitplug verify`: checks of a plan, a release or a ledger from scratch."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fitplug.display import format_down, format_up
from fitplug.errors import FitplugError, InputError, LedgerError
from fitplug.files import LocalPlace
from fitplug.ledger import Ledger, read_statement
from fitplug.numeric import ceil_float
from fitplug.plan import Plan, describe_cost
from fitplug.releases import (
    PLAN,
    RECORD,
    SERIES_RECORD,
    DisplayParts,
    Release,
    open_display,
    read_digest,
    verify_display,
)
from fitplug_cli.options import JsonOption, QuietOption
from fitplug_cli.render import (
    open_progress_bar,
    print_facts,
    print_json,
    read_release_record,
    set_up_output,
)
from fitplug_opendp.csv_tables import write_csv
from fitplug_opendp.release_files import is_large

_SQLITE = b"SQLite format 3\x00"

_Check = tuple[str, Callable[[], str]]


def verify(
    location: Annotated[
        str,
        typer.Argument(
            help="Folder of a release or a series, URL, plan file, or ledger.", metavar="PATH"
        ),
    ],
    ledger_file: Annotated[
        Path | None,
        typer.Option(
            "--ledger", help="Also check that this ledger has the charge for the release."
        ),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check a plan, release, series or ledger from scratch. Exit with code 1 if a check fails.

    For a plan, check rho, the targets and the lower bound. For a release or a series, check its
    plan and the digests of its files, and that each Parquet and CSV table agrees with the stored
    noisy answers. For a ledger, check that no charge was altered. No data is read.
    """
    set_up_output(quiet=quiet, as_json=as_json)
    results = []
    for name, check in _list_checks(location, ledger_file):
        try:
            with open_progress_bar(name):
                holds, text = True, check()
        except FitplugError as error:
            holds, text = False, str(error)
        results.append({"what": name, "holds": holds, "text": text})
        print_facts((name, text if holds else f"FAILED: {text}"))
        if not holds:
            break  # the next check relies on this one
    if as_json:
        print_json({"path": location, "holds": holds, "checks": results})
    if not holds:
        raise typer.Exit(1)


def _list_checks(location: str, ledger_file: Path | None) -> list[_Check]:
    """List the checks for a location, in their order.

    Raises:
        InputError: If there is nothing there, or --ledger is given without a release.
    """
    path = Path(location)
    if "://" not in location and not path.exists():
        raise InputError(f"{location}: no such file or folder. Check the path.")
    if path.is_file():
        if ledger_file is not None:
            raise InputError(f"{location} is a file, but --ledger needs the folder of a release.")
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE:
                return [("ledger", lambda: _verify_ledger(path))]
        if not zipfile.is_zipfile(path):
            raise InputError(
                f"{location} is not a plan, a ledger or a release folder. Check the path."
            )
        return [("plan", lambda: _verify_plan(Plan.load(path)))]
    if (path / SERIES_RECORD).is_file():
        if ledger_file is not None:
            raise InputError(f"{location} is a series, but --ledger needs a complete release.")
        return [
            ("series", lambda: _verify_series(path)),
            ("plan", lambda: _verify_plan(Plan.load(path / PLAN))),
        ]
    checks: list[_Check] = [
        ("release", lambda: _verify_release(location)),
        ("plan", lambda: _verify_plan(Release.load(location).plan)),
    ]
    if (path / RECORD).is_file():
        checks.insert(1, ("files", lambda: _verify_files(path)))
    display = open_display(location) if read_digest(location) is not None else None
    if display is not None:
        checks.insert(1, ("display", lambda: _verify_display(location, display)))
    if ledger_file is not None:
        if not ledger_file.exists():
            raise InputError(f"{ledger_file}: no such ledger. Check the path.")
        checks.append(("ledger", lambda: _verify_charge(location, ledger_file)))
    return checks


def _verify_plan(plan: Plan) -> str:
    plan.verify()
    return f"{describe_cost(plan)}; every target met"


def _verify_series(folder: Path) -> str:
    from fitplug_dask.series import open_series

    series = open_series(folder)
    series.verify()
    drawn = series.read().drawn
    return f"the tables of {drawn} of {len(series.labels)} periods follow from the noisy sums"


def _verify_release(location: str) -> str:
    release = Release.load(location)
    release.verify()
    groups = release.plan.workload
    sums = f"{release.plan.noise.answers:,} noisy sums"
    return f"the {len(groups.names):,} Parquet tables follow from the {sums}"


def _verify_display(location: str, display: DisplayParts) -> str:
    verify_display(Release.load(location), display)
    return f"the display tables ({display.summary}) follow from the answers"


def _verify_files(folder: Path) -> str:
    """Check release.json and the CSV tables of a folder against its answers."""
    release, record = Release.load(folder), read_release_record(LocalPlace(folder))
    if "groups" not in record and not any(folder.glob("*.csv")):  # as `Release.save` writes it
        return f"{RECORD} agrees with the release"
    expected: dict[str, Any] = {"rho": release.rho, "plan_digest": release.plan.digest}
    expected["groups"] = record.get("groups", [])
    wrong = next((key for key in expected if record.get(key) != expected[key]), None)
    if wrong is not None:
        raise InputError(f"{folder / RECORD} was edited: {wrong!r} differs from the release.")
    if is_large(release.plan):
        return f"{RECORD} agrees with the release"
    display = open_display(folder)
    for entry in record["groups"]:
        path = folder / f"{entry['file']}.csv"
        if not path.is_file():
            raise InputError(f"{path} is missing.")
        kind = {key: entry[key] for key in ("confidence", "simultaneous")}
        table = release.to_arrow(entry["name"], **kind)
        if path.read_bytes() not in (_format_csv(table, safe) for safe in (False, True)):
            raise InputError(f"{path} was edited: it differs from the answers.")
        _verify_display_csv(folder, entry, display)
    return f"{RECORD} and {len(record['groups']):,} CSV tables agree with the answers"


def _verify_display_csv(folder: Path, entry: Any, display: DisplayParts | None) -> None:
    """Check the CSV of a display table, if there are any, against the Parquet table."""
    if display is None:
        return
    path, table = folder / f"{entry['file']}.display.csv", display.read(entry["name"])
    if not path.is_file():
        raise InputError(f"{path} is missing.")
    if path.read_bytes() not in (_format_csv(table, safe) for safe in (False, True)):
        raise InputError(f"{path} was edited: it differs from the display table.")


def _format_csv(table: Any, spreadsheet_safe: bool) -> bytes:
    text = io.BytesIO()
    write_csv(text, table, spreadsheet_safe=spreadsheet_safe)
    return text.getvalue()


def _verify_ledger(path: Path) -> str:
    ledger = Ledger(path)
    budget, entries = read_statement(ledger)
    spent, left = format_up(ceil_float(budget.spent)), format_down(ledger.remaining)
    return f"charges: {len(entries):,}, unaltered; rho = {spent} spent, {left} left"


def _verify_charge(location: str, path: Path) -> str:
    """Check that a ledger has the charge and the answers of a release."""
    ledger, release = Ledger(path), Release.load(location)
    entry, entries = release.entry, ledger.entries()
    if entry is None:
        raise LedgerError(f"{location} was not charged to a ledger. Remove --ledger.")
    stage = ledger.stages().get(entry.id)
    if entry not in entries or stage is None or stage.answers != read_digest(location):
        raise LedgerError(
            f"Charge {entry.id} of {path} is not for this release. Name the ledger that this "
            "release was charged to."
        )
    return f"{path}: charge {entry.id} is for this release; no charge was altered"
