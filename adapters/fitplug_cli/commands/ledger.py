"""`fitplug ledger`: it creates a ledger, and shows its budget and charges."""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
from fractions import Fraction
from html import escape
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fitplug.display import format_down, format_up
from fitplug.errors import BudgetError, InputError
from fitplug.ledger import (
    Budget,
    Entry,
    Ledger,
    Stage,
    format_ledger_html,
    summarise_ledger,
)
from fitplug.numeric import ceil_float, ceil_written, floor_written
from fitplug_cli.options import CommandGroup, JsonOption, QuietOption, read_amount
from fitplug_cli.render import (
    build_ledger_record,
    neutralise_record,
    out,
    print_facts,
    print_json,
    print_table,
    set_up_output,
)

_COLUMNS = (
    "id",
    "time",
    "rho",
    "rho_exact",
    "what",
    "key",
    "plan_digest",
    "output",
    "covered_by",
    "profile",
    "state",
    "state_time",
    "answers",
    "counts",
    "unit",
    "noise_std",
    "noise_answers",
)
"""The columns of an entry and of its release's stage; answers and counts are digests. The unit of
privacy is that of what was paid for, as a spec has it, with the digests of the cells it is about.
The noise is that on each of so many integer answers, if all of it is discrete Gaussian.
"""


app = typer.Typer(
    cls=CommandGroup,
    help="Show or create a ledger: a privacy budget and its charges.",
    add_completion=False,
    rich_markup_mode=None,
)

PathArgument = Annotated[Path, typer.Argument(help="Ledger file.", metavar="PATH")]


@app.command()
def init(
    path: PathArgument,
    rho: Annotated[
        Fraction | None,
        typer.Option(
            "--rho",
            parser=read_amount,
            metavar="FLOAT",
            help="The total budget, as rho of zCDP.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="The total budget, as epsilon; --delta goes with it."),
    ] = None,
    delta: Annotated[float | None, typer.Option("--delta", help="The delta of --epsilon.")] = None,
    any_noise: Annotated[
        bool,
        typer.Option(
            "--any-noise",
            help="With --epsilon: allow charges for other than discrete Gaussian noise; about 10% "
            "less rho.",
        ),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Create a ledger with its total budget.

    The budget is --rho, or --epsilon with --delta.
    """
    set_up_output(quiet=quiet, as_json=as_json)
    if rho is None and epsilon is None and delta is None:
        raise BudgetError("The budget is missing. Give --rho, or --epsilon with --delta.")
    ledger = Ledger(path, rho, epsilon=epsilon, delta=delta, any_noise=any_noise)
    spent = f", {format_up(ledger.spent)} of it spent already" if ledger.spent else ""
    print_facts(("ledger", f"{path}: rho = {format_down(ledger.total)}{spent}"))
    if as_json:
        print_json(build_ledger_record(ledger) or {})


@app.command()
def show(
    path: PathArgument,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the charges as CSV.")] = False,
    as_html: Annotated[bool, typer.Option("--html", help="Print a page for a browser.")] = False,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option(
            "--spreadsheet-safe",
            help="With --csv: put an apostrophe before texts that begin as formulas do.",
        ),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the budget, what is left, and every charge.

    A charge is shown with its state: whether it was only charged, its noise was drawn, or its
    folder was published. The file is verified. --csv and --json have the exact amounts.
    """
    set_up_output(quiet=quiet, as_json=as_json)
    if as_csv + as_html + as_json > 1:
        raise InputError("Give only one of --csv, --html and --json.")
    if spreadsheet_safe and not as_csv:
        raise InputError("--spreadsheet-safe needs --csv.")
    if not path.exists():
        raise InputError(f"{path}: there is no such ledger; check the path")
    ledger = Ledger(path)
    if as_json:
        _print_json(ledger)
    elif as_csv:
        _print_csv(ledger, spreadsheet_safe=spreadsheet_safe)
    elif as_html:
        _print_page(ledger)
    else:
        _print_tables(ledger)


def _print_page(ledger: Ledger) -> None:
    """Print the ledger as an HTML page."""
    summary = summarise_ledger(*ledger.statement(), ledger.stages())
    body = format_ledger_html(str(ledger.path), summary, len(summary.charges))
    head = f'<meta charset="utf-8"><title>{escape(ledger.path.name)}</title>'
    print(f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>')


def _print_csv(ledger: Ledger, *, spreadsheet_safe: bool) -> None:
    """Print every charge as CSV, with exact amounts."""
    writer = csv.DictWriter(sys.stdout, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    stages = ledger.stages()
    for entry in ledger.entries():
        record = _build_record(entry, stages.get(entry.id))
        record["unit"] = json.dumps(record["unit"])
        writer.writerow(neutralise_record(record) if spreadsheet_safe else record)


def _print_tables(ledger: Ledger) -> None:
    """Print the budget, and a table of all charges."""
    summary = summarise_ledger(*ledger.statement(), ledger.stages())
    print_facts(*summary.facts)
    if not summary.charges:
        out.print("Nothing was charged yet.")
        return
    table = Table(box=None)
    for name in summary.headings:
        is_long = name in ("what", "key", "output", "unit")
        table.add_column(name, no_wrap=not is_long, overflow="fold")
    for cells in summary.charges:
        table.add_row(*cells)
    print_table(table)


def _print_json(ledger: Ledger) -> None:
    """Print the budget and all charges as one JSON object, with exact amounts."""
    (budget, entries), stages = ledger.statement(), ledger.stages()
    record = {
        "path": str(ledger.path),
        **_list_amounts(budget),
        "total_exact": _format_exactly(budget.total),
        "spent_exact": _format_exactly(budget.spent),
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "any_noise": budget.epsilon is None or budget.any_noise,
        "unit": None if budget.bound_unit is None else budget.bound_unit.to_spec(),
        "entries": [_build_record(entry, stages.get(entry.id)) for entry in entries],
    }
    print_json(record, ascii_only=True)


def _list_amounts(budget: Budget) -> dict[str, float]:
    """Return the amounts in rho, each rounded to the safe side."""
    return {
        "total": floor_written(budget.total),
        "spent": ceil_written(budget.spent),
        "remaining": floor_written(budget.left),
    }


def _build_record(entry: Entry, stage: Stage | None) -> dict[str, Any]:
    """Build the record of an entry, with the stage of its release."""
    record = dataclasses.asdict(entry)
    record |= {"rho": ceil_float(entry.rho), "rho_exact": _format_exactly(entry.rho)}
    record |= {"unit": entry.bound_unit.to_spec(), "noise_std": None, "noise_answers": None}
    if entry.noise is not None:
        record |= {"noise_std": entry.noise.noise_std, "noise_answers": entry.noise.answers}
    record |= {"state": "charged", "state_time": None, "answers": None, "counts": None}
    if stage is not None:
        record |= {"state": stage.state, "state_time": stage.time}
        record |= {"answers": stage.answers, "counts": stage.counts}
    return {name: record[name] for name in _COLUMNS}


def _format_exactly(rho: Fraction) -> str:
    if rho.denominator.bit_length() < 10_000:
        return str(rho)
    return f"{rho.numerator:#x}/{rho.denominator:#x}"  # Python refuses to print longer decimals
