"""`fitplug ledger`: begin a ledger, show what it holds, write its entries out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fractions import Fraction

    from fitplug.ledger import Budget, Entry, Ledger, Stage

app = typer.Typer(
    help="The ledger: the privacy budget of a group of people, and every charge to it.",
    rich_markup_mode=None,
)

PathArgument = Annotated[Path, typer.Argument(help="Ledger file.", metavar="PATH")]

COLUMNS = (
    "id",
    "time",
    "rho",
    "rho_exact",
    "what",
    "key",
    "plan_digest",
    "output",
    "within",
    "profile",
    "state",
    "state_time",
    "answers",
    "counts",
)
"""Of an entry, and of how far its release has come; answers and counts are digests."""


@app.command()
def init(
    path: PathArgument,
    rho: Annotated[float | None, typer.Option("--rho", help="The whole budget, in zCDP.")] = None,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", help="The whole budget, with --delta.")
    ] = None,
    delta: Annotated[float | None, typer.Option("--delta", help="Goes with --epsilon.")] = None,
) -> None:
    """Begin a ledger with its whole budget: --rho, or --epsilon with --delta."""
    from fitplug.display import format_down, format_up
    from fitplug.errors import BudgetError
    from fitplug.ledger import Ledger
    from fitplug_cli import show

    if rho is None and epsilon is None and delta is None:
        raise BudgetError("the budget is missing: give --rho, or --epsilon with --delta")
    began = Ledger(path, rho, epsilon=epsilon, delta=delta)
    spent = f", {format_up(began.spent)} of it spent already" if began.spent else ""
    show.out.print(f"ledger of rho = {format_down(began.total)}{spent}: {path}")


@app.command(name="show")
def show_(
    path: PathArgument,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show the budget, what is left, and every charge: whether it was only charged, its noise was
    made, or its folder was published. Verifies the file.
    """
    if as_json:
        _print_json(_existing(path))
        return
    from rich.table import Table

    from fitplug_cli import show

    ledger = _existing(path)
    (budget, entries), stages = ledger.statement(), ledger.stages()
    rows = Table.grid(padding=(0, 2))
    for name, amount in _amounts(budget).items():
        delta = None if name == "remaining" else budget.delta
        rows.add_row(name, _amount(amount, delta, left=name != "spent"))
    show.whole(rows)
    if not entries:
        show.out.print(f"nothing was charged yet: {ledger.path}")
        return
    table = Table(box=None)
    for name in ("no.", "time (UTC)", "rho", "state", "what", "key", "plan", "output"):
        long = name in ("what", "key", "output")
        table.add_column(name, no_wrap=not long, overflow="fold")
    for entry in entries:
        table.add_row(
            str(entry.id),
            entry.time[:19].replace("T", " "),
            _cost(entry),
            _state(stages.get(entry.id)),
            *(_line(text) for text in (entry.what, entry.key)),
            _line(entry.plan_digest)[:12],
            _line(entry.output),
        )
    show.whole(table)


@app.command()
def export(
    path: PathArgument,
    as_csv: Annotated[bool, typer.Option("--csv", help="Entries as CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Budget and entries as JSON.")] = False,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option(
            "--spreadsheet-safe",
            help="With --csv: an apostrophe before texts that begin as formulas do.",
        ),
    ] = False,
) -> None:
    """Write every charge, exact amounts too, to the standard output."""
    import csv
    import sys

    from fitplug.errors import InputError

    if as_csv == as_json:
        raise InputError("what to write is not clear: give one of --csv and --json")
    if spreadsheet_safe and as_json:
        raise InputError("--spreadsheet-safe is of CSV: leave it out, or give --csv")
    ledger = _existing(path)
    if as_json:
        _print_json(ledger)
        return
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    stages = ledger.stages()
    rows = (_record(entry, stages.get(entry.id)) for entry in ledger.entries())
    if spreadsheet_safe:
        from fitplug_cli.csvfile import neutral_record

        rows = (neutral_record(row) for row in rows)
    writer.writerows(rows)


def _existing(path: Path) -> Ledger:
    from fitplug.errors import InputError
    from fitplug.ledger import Ledger

    if not path.exists():
        raise InputError(f"{path}: there is no such ledger; begin one with: fitplug ledger init")
    return Ledger(path)


def _print_json(ledger: Ledger) -> None:
    import json
    import sys

    (budget, entries), stages = ledger.statement(), ledger.stages()
    said = {
        "path": str(ledger.path),
        **_amounts(budget),
        "total_exact": _exact(budget.total),
        "spent_exact": _exact(budget.spent),
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "entries": [_record(entry, stages.get(entry.id)) for entry in entries],
    }
    json.dump(said, sys.stdout, indent=2)
    sys.stdout.write("\n")


def _amounts(budget: Budget) -> dict[str, float]:
    """rho of zCDP: as floats, on the safe side."""
    from fitplug.numeric import ceil_float, floor_float

    return {
        "total": floor_float(budget.total),
        "spent": ceil_float(budget.spent),
        "remaining": floor_float(budget.left),
    }


def _amount(rho: float, delta: float | None, *, left: bool) -> str:
    from fitplug.display import format_down, format_up

    text = f"rho = {(format_down if left else format_up)(rho)} (zCDP)"
    if delta is None or not rho:
        return text
    import math

    from fitplug.privacy import epsilon_at

    # epsilon_at squares the cost again: the root must not be below.
    epsilon = epsilon_at(math.nextafter(math.sqrt(2 * rho), math.inf), delta, "zcdp")
    return f"{text}, epsilon = {format_up(epsilon)} at delta = {delta:g}"


def _record(entry: Entry, stage: Stage | None) -> dict[str, Any]:
    from dataclasses import asdict

    from fitplug.numeric import ceil_float

    said = asdict(entry) | {"rho": ceil_float(entry.rho), "rho_exact": _exact(entry.rho)}
    said |= {"state": _state(stage), "state_time": None, "answers": None, "counts": None}
    if stage is not None:
        said |= {"state_time": stage.time, "answers": stage.answers, "counts": stage.counts}
    return {name: said[name] for name in COLUMNS}


def _state(stage: Stage | None) -> str:
    """How far the release of a charge has come, in a word."""
    return "charged" if stage is None or stage.state == "begun" else stage.state


def _exact(rho: Fraction) -> str:
    if rho.denominator.bit_length() < 10_000:
        return str(rho)
    return f"{rho.numerator:#x}/{rho.denominator:#x}"  # Python prints no more decimals


def _cost(entry: Entry) -> str:
    from fitplug.display import format_up
    from fitplug.numeric import ceil_float

    if entry.within is not None:
        return f"free within {entry.within}"
    return format_up(ceil_float(entry.rho))


def _line(text: str | None) -> str:
    """Text for one line of a terminal, whatever it holds."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text or "")
