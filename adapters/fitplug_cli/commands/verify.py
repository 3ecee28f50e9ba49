"""`fitplug verify`: it proves a plan, a release or a ledger again."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fitplug.display import format_down, format_up
from fitplug.errors import FitplugError, InputError, LedgerError
from fitplug.ledger import Ledger
from fitplug.numeric import ceil_float
from fitplug.plan import Plan, describe_cost
from fitplug.releases import Release, read_digest
from fitplug_cli.options import JsonOption, QuietOption
from fitplug_cli.render import open_progress_bar, print_facts, print_json, set_up_output

_SQLITE = b"SQLite format 3\x00"

_Check = tuple[str, Callable[[], str]]


def verify(
    location: Annotated[
        str,
        typer.Argument(help="Folder or URL of a release, plan file, or ledger.", metavar="PATH"),
    ],
    ledger_file: Annotated[
        Path | None,
        typer.Option("--ledger", help="Also check that this ledger has the release's charge."),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Prove a plan, a release or a ledger again; exit with code 1 if something does not hold.

    A plan: its rho, its targets and its lower bound. A release: its plan, every digest, and every
    table against the answers. A ledger: its chain of charges. No data is read.
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
        print_facts((name, text if holds else f"DOES NOT HOLD: {text}"))
        if not holds:
            break  # the next check takes this one for granted
    if as_json:
        print_json({"path": location, "holds": holds, "checks": results})
    if not holds:
        raise typer.Exit(1)


def _list_checks(location: str, ledger_file: Path | None) -> list[_Check]:
    """List what is checked at a location, in the order of the checks.

    Raises:
        InputError: If there is nothing there, or --ledger is given without a release.
    """
    path = Path(location)
    if "://" not in location and not path.exists():
        raise InputError(f"{location}: there is no such file or folder. Check the path.")
    if path.is_file():
        if ledger_file is not None:
            raise InputError("--ledger needs the folder of a release.")
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE:
                return [("ledger", lambda: _verify_ledger(path))]
        if not zipfile.is_zipfile(path):
            raise InputError(f"{location} is not a plan, a ledger, or the folder of a release.")
        return [("plan", lambda: _verify_plan(Plan.load(path)))]
    checks: list[_Check] = [
        ("release", lambda: _verify_release(location)),
        ("plan", lambda: _verify_plan(Release.load(location).plan)),
    ]
    if ledger_file is not None:
        if not ledger_file.exists():
            raise InputError(f"{ledger_file}: there is no such ledger. Check the path.")
        checks.append(("ledger", lambda: _verify_charge(location, ledger_file)))
    return checks


def _verify_plan(plan: Plan) -> str:
    plan.verify()
    return f"{describe_cost(plan)}; every target is met"


def _verify_release(location: str) -> str:
    release = Release.load(location)
    release.verify()
    groups = release.plan.workload
    answers = f"{release.plan.strategy.size:,} answers"
    return f"the {len(groups.names):,} Parquet tables agree with the {answers}"


def _verify_ledger(path: Path) -> str:
    ledger = Ledger(path)
    budget, entries = ledger.statement()
    spent, left = format_up(ceil_float(budget.spent)), format_down(ledger.remaining)
    return f"the chain of {len(entries):,} charges is whole: rho = {spent} spent, {left} left"


def _verify_charge(location: str, path: Path) -> str:
    """Check that a ledger has the charge and the answers of a release."""
    ledger, release = Ledger(path), Release.load(location)
    entry, entries = release.entry, ledger.entries()
    if entry is None:
        raise LedgerError(f"{location} was charged to no ledger.")
    stage = ledger.stages().get(entry.id)
    if entry not in entries or stage is None or stage.answers != read_digest(location):
        raise LedgerError(f"{path} has another charge than the release as number {entry.id}.")
    return f"{path} has the release as charge {entry.id}; its chain of charges is whole"
