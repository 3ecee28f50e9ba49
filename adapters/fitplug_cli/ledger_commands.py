"""The options of `fitplug ledger`; `fitplug_cli.commands.ledgers` does the work.

Everything else is imported inside the commands, so that `fitplug --help` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Show or begin a ledger: a privacy budget and all its charges.",
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
) -> None:
    """Begin a ledger with its total budget.

    The budget is --rho, or --epsilon with --delta.
    """
    from fitplug_cli.commands import ledgers

    ledgers.begin_ledger(path, rho, epsilon, delta)


@app.command()
def show(
    path: PathArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Show the budget, what is left, and every charge.

    A charge is shown with its state: whether it was only charged, its noise was made, or its folder
    was published. The file is verified.
    """
    from fitplug_cli.commands import ledgers

    if as_json:
        ledgers.print_ledger_as_json(path)
    else:
        ledgers.print_ledger(path)


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
    from fitplug_cli.commands import ledgers

    ledgers.export_ledger(path, as_csv=as_csv, as_json=as_json, spreadsheet_safe=spreadsheet_safe)
