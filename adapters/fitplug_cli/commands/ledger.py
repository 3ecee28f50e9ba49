"""`fitplug ledger`: a privacy budget and its charges."""

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
    read_statement,
    summarise_ledger,
)
from fitplug.numeric import ceil_float, ceil_written, floor_written
from fitplug_cli.options import CommandGroup, JsonOption, QuietOption, read_amount
from fitplug_cli.render import (
    build_ledger_record,
    out,
    print_facts,
    print_json,
    print_table,
    set_up_output,
)
from fitplug_opendp.csv_tables import neutralise_record

_COLUMNS = (
    "id",
    "time",
    "rho",
    "rho_exact",
    "what",
    "key",
    "plan_digest",
    "folder",
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
"""The columns of a charge and its release's state.

`answers` and `counts` are digests. `unit` is the unit of privacy as a spec writes it, with digests
of the cells. `noise_std` is the std of the noise on each of `noise_answers` integers, if all of it
is discrete Gaussian.
"""


_HEAD = """<meta charset="utf-8"><meta name="viewport" content="width=device-width">
<style>
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
div { overflow-x: auto; }
table { border-collapse: collapse; margin-top: 1rem; }
th, td { padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8886; vertical-align: top; }
th { white-space: nowrap; }
td { min-width: 8rem; max-width: 20rem; }
td:nth-child(-n+4) { min-width: 0; white-space: nowrap; }
@media (max-width: 600px) {
  table { font-size: .85rem; }
  td { min-width: 6rem; }
  td:nth-child(2) { white-space: normal; }
}
</style>
"""

app = typer.Typer(
    cls=CommandGroup,
    help="Create a privacy budget, or show its charges.",
    add_completion=False,
    rich_markup_mode=None,
)

_SHORT = ("no.", "time (UTC)", "rho", "state")
"""The columns of a charge on the terminal, next to its texts."""

PathArgument = Annotated[Path, typer.Argument(help="Ledger file.", metavar="PATH")]


@app.command()
def init(
    path: PathArgument,
    rho: Annotated[
        Fraction | None,
        typer.Option(
            "--rho",
            parser=read_amount,
            metavar="<float>",
            help="Total budget as rho of zCDP.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="Total budget as epsilon. Needs --delta."),
    ] = None,
    delta: Annotated[float | None, typer.Option("--delta", help="Delta for --epsilon.")] = None,
    any_noise: Annotated[
        bool,
        typer.Option(
            "--any-noise",
            help="With --epsilon: also allow charges for noise other than discrete Gaussian. This "
            "leaves about 10% less rho.",
        ),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Create a ledger with a total budget.

    Give --rho, or --epsilon with --delta.
    """
    set_up_output(quiet=quiet, as_json=as_json)
    if rho is None and epsilon is None and delta is None:
        raise BudgetError("The budget is missing. Give --rho, or --epsilon with --delta.")
    ledger = Ledger(path, rho, epsilon=epsilon, delta=delta, any_noise=any_noise)
    spent = f", {format_up(ledger.spent)} already spent" if ledger.spent else ""
    print_facts(("ledger", f"{path}: rho = {format_down(ledger.total, 6)}{spent}"))
    if as_json:
        print_json(build_ledger_record(ledger) or {})


@app.command()
def show(
    path: PathArgument,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the charges as CSV.")] = False,
    as_html: Annotated[bool, typer.Option("--html", help="Print an HTML page.")] = False,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option(
            "--spreadsheet-safe",
            help="With --csv: put an apostrophe before text that looks like a formula.",
        ),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the budget and every charge.

    Each charge is in one of three states: charged, drawn or published. This command
    also checks the file for edits. --csv and --json give the exact amounts.
    """
    set_up_output(quiet=quiet, as_json=as_json)
    if as_csv + as_html + as_json > 1:
        raise InputError("Give only one of --csv, --html and --json.")
    if spreadsheet_safe and not as_csv:
        raise InputError("--spreadsheet-safe needs --csv.")
    if not path.exists():
        raise InputError(f"{path}: no such ledger. Check the path.")
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
    summary = summarise_ledger(*read_statement(ledger), ledger.stages())
    body = format_ledger_html(str(ledger.path), summary, len(summary.charges))
    head = f"{_HEAD}<title>{escape(ledger.path.name)}</title>"
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
    summary = summarise_ledger(*read_statement(ledger), ledger.stages())
    print_facts(*summary.facts)
    if not summary.charges:
        out.print("Nothing has been charged yet.")
        return
    table = Table(*_SHORT, box=None)
    table.add_column("charge", overflow="fold")
    for cells in summary.charges:
        charge = dict(zip(summary.headings, cells, strict=True))
        more = [f"{name}: {charge[name]}" for name in ("key", "plan", "unit") if charge.get(name)]
        if charge["folder"]:
            more.append(f"folder: {_shorten_path(charge['folder'])}")
        table.add_row(*(charge[name] for name in _SHORT), "\n".join([charge["what"], *more]))
    print_table(table)


def _shorten_path(path: str) -> str:
    """Return a path below the current folder relative to it, and others unchanged."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def _print_json(ledger: Ledger) -> None:
    """Print the budget and all charges as one JSON object, with exact amounts."""
    (budget, entries), stages = read_statement(ledger), ledger.stages()
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
    """Return the amounts in rho, rounded so that spending is never understated."""
    return {
        "total": floor_written(budget.total),
        "spent": ceil_written(budget.spent),
        "remaining": floor_written(budget.left),
    }


def _build_record(entry: Entry, stage: Stage | None) -> dict[str, Any]:
    """Build the record of a charge and its release's state."""
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
    # Python refuses to print longer integers in decimal.
    return f"{rho.numerator:#x}/{rho.denominator:#x}"
