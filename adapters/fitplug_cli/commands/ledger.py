"""`fitplug ledger`: it begins a ledger, shows what it holds, and exports its entries."""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fitplug.display import format_down, format_up
from fitplug.errors import BudgetError, InputError
from fitplug.ledger import Budget, Entry, Ledger, Stage
from fitplug.numeric import ceil_float, ceil_written, floor_written
from fitplug_cli.options import CommandGroup
from fitplug_cli.render import neutralise_record, out, print_json, print_table

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
    help="Show or begin a ledger: a privacy budget and all its charges.",
    add_completion=False,
    rich_markup_mode=None,
)

PathArgument = Annotated[Path, typer.Argument(help="Ledger file.", metavar="PATH")]


@app.command()
def init(
    path: PathArgument,
    rho: Annotated[
        float | None, typer.Option("--rho", help="The total budget, as rho of zCDP.")
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
) -> None:
    """Begin a ledger with its total budget.

    The budget is --rho, or --epsilon with --delta.
    """
    if rho is None and epsilon is None and delta is None:
        raise BudgetError("the budget is missing: give --rho, or --epsilon with --delta")
    ledger = Ledger(path, rho, epsilon=epsilon, delta=delta, any_noise=any_noise)
    spent = f", {format_up(ledger.spent)} of it spent already" if ledger.spent else ""
    out.print(f"ledger of rho = {format_down(ledger.total)}{spent}: {path}")


@app.command()
def show(
    path: PathArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Show the budget, what is left, and every charge.

    A charge is shown with its state: whether it was only charged, its noise was drawn, or its
    folder was published. The file is verified.
    """
    if as_json:
        print_ledger_as_json(path)
    else:
        ledger = _open_existing(path)
        (budget, entries), stages = ledger.statement(), ledger.stages()
        rows = Table.grid(padding=(0, 2))
        amounts, delta = _list_amounts(budget), budget.delta
        spent = None if delta is None or not entries else budget.epsilon_at(delta)
        rows.add_row("total", _format_amount(format_down(amounts["total"]), budget.epsilon, delta))
        rows.add_row("spent", _format_amount(format_up(amounts["spent"]), spent, delta))
        rows.add_row("remaining", _format_amount(format_down(amounts["remaining"])))
        if budget.epsilon is not None:
            rows.add_row("noise", "any" if budget.any_noise else "discrete Gaussian only")
        if budget.bound_unit is not None:
            rows.add_row("for", _make_printable(str(budget.bound_unit)))
        print_table(rows)
        if not entries:
            out.print(f"nothing was charged yet: {ledger.path}")
            return
        table = Table(box=None)
        # What every charge is for is said once.
        is_of_one_unit = {entry.bound_unit for entry in entries} <= {budget.bound_unit}
        names = ["no.", "time (UTC)", "rho", "state", "what", "key", "plan", "output"]
        for name in names if is_of_one_unit else [*names, "unit"]:
            is_long = name in ("what", "key", "output", "unit")
            table.add_column(name, no_wrap=not is_long, overflow="fold")
        for entry in entries:
            table.add_row(
                str(entry.id),
                entry.time[:19].replace("T", " "),
                _format_cost(entry),
                _get_state(stages.get(entry.id)),
                *(_make_printable(text) for text in (entry.what, entry.key)),
                _make_printable(entry.plan_digest)[:12],
                _make_printable(entry.output),
                *([] if is_of_one_unit else [_make_printable(str(entry.bound_unit))]),
            )
        print_table(table)


@app.command()
def export(
    path: PathArgument,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the entries as CSV.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the budget and the entries as JSON.")
    ] = False,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option(
            "--spreadsheet-safe",
            help="With --csv: put an apostrophe before texts that begin as formulas do.",
        ),
    ] = False,
) -> None:
    """Write every charge, with exact amounts, to the standard output."""
    if as_csv == as_json:
        raise InputError("what to write is not clear: give one of --csv and --json")
    if spreadsheet_safe and as_json:
        raise InputError("--spreadsheet-safe is of CSV: leave it out, or give --csv")
    if as_json:
        print_ledger_as_json(path)
        return
    ledger = _open_existing(path)
    writer = csv.DictWriter(sys.stdout, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    stages = ledger.stages()
    for entry in ledger.entries():
        record = _build_record(entry, stages.get(entry.id))
        record["unit"] = json.dumps(record["unit"])
        writer.writerow(neutralise_record(record) if spreadsheet_safe else record)


def print_ledger_as_json(path: Path) -> None:
    """Print the budget and all entries as one JSON object, with exact amounts.

    Args:
        path: The file, which is verified.

    Raises:
        InputError: If there is no such file.
        LedgerError: If the file is damaged.
    """
    ledger = _open_existing(path)
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


def _open_existing(path: Path) -> Ledger:
    if not path.exists():
        raise InputError(f"{path}: there is no such ledger; check the path")
    return Ledger(path)


def _list_amounts(budget: Budget) -> dict[str, float]:
    """Return the amounts in rho, each rounded to the safe side."""
    return {
        "total": floor_written(budget.total),
        "spent": ceil_written(budget.spent),
        "remaining": floor_written(budget.left),
    }


def _format_amount(rho: str, epsilon: float | None = None, delta: float | None = None) -> str:
    """Format an amount in rho, and in epsilon at delta if there is one."""
    text = f"rho = {rho} (zCDP)"
    return (
        text if epsilon is None else f"{text}, epsilon = {format_up(epsilon)} at delta = {delta:g}"
    )


def _build_record(entry: Entry, stage: Stage | None) -> dict[str, Any]:
    """Build the record of an entry, with the stage of its release."""
    record = dataclasses.asdict(entry)
    record |= {"rho": ceil_float(entry.rho), "rho_exact": _format_exactly(entry.rho)}
    record |= {"unit": entry.bound_unit.to_spec(), "noise_std": None, "noise_answers": None}
    if entry.noise is not None:
        record |= {"noise_std": entry.noise.noise_std, "noise_answers": entry.noise.answers}
    record |= {"state": _get_state(stage), "state_time": None, "answers": None, "counts": None}
    if stage is not None:
        record |= {"state_time": stage.time, "answers": stage.answers, "counts": stage.counts}
    return {name: record[name] for name in _COLUMNS}


def _get_state(stage: Stage | None) -> str:
    """Return the word for how far the release of a charge has come."""
    return "charged" if stage is None else stage.state


def _format_exactly(rho: Fraction) -> str:
    if rho.denominator.bit_length() < 10_000:
        return str(rho)
    return f"{rho.numerator:#x}/{rho.denominator:#x}"  # Python refuses to print longer decimals


def _format_cost(entry: Entry) -> str:
    if entry.covered_by is not None:
        return f"covered by {entry.covered_by}"
    return format_up(ceil_float(entry.rho))


def _make_printable(text: str | None) -> str:
    """Replace the characters of a text that do not belong on one line of a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text or "")
