"""`fitplug series`: releases period by period, for one charge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fitplug.display import format_up
from fitplug.errors import InputError, LedgerError
from fitplug.ledger import Ledger
from fitplug.releases import SERIES_RECORD
from fitplug_cli.commands.budgets import has_ledger_file, open_ledger
from fitplug_cli.commands.count import count_tables
from fitplug_cli.commands.design import get_plan, has_queries
from fitplug_cli.options import (
    CommandGroup,
    JsonOption,
    PlanOption,
    QuietOption,
    SpecArgument,
    VerboseOption,
)
from fitplug_cli.render import (
    build_ledger_record,
    print_facts,
    print_json,
    print_plan,
    set_up_output,
)
from fitplug_cli.spec import Spec, SpecError, load_spec

if TYPE_CHECKING:
    from fitplug_dask.series import Series


app = typer.Typer(
    cls=CommandGroup,
    help="Release counts period by period, with a single charge.",
    add_completion=False,
    rich_markup_mode=None,
)


@app.command()
def begin(
    spec_file: SpecArgument,
    key: Annotated[str, typer.Option("--key", help="Name of the series in the ledger.")],
    plan_file: PlanOption = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Start a series and charge it once for all its periods.

    In the spec, [design] periods must name an attribute; each of its values is a period. Nothing
    is drawn yet. Exact counts will be stored encrypted next to [output] path. Their key is in
    [output] key_file, by default in your home folder. Back up this key file separately: without
    it, no later period can be released.
    """
    from fitplug_dask.series import begin_series

    set_up_output(quiet=quiet, as_json=as_json, verbose=verbose)
    spec = load_spec(spec_file)
    folder, ledger = _find_folder(spec), _find_ledger(spec)
    plan = get_plan(spec, plan_file, key)
    print_plan(plan, spec.privacy.delta, spec)
    series = begin_series(
        plan,
        folder,
        ledger=ledger,
        key=key,
        periods=spec.design.periods,
        display=spec.output.display_request is not None,
        key_file=spec.key_file,
    )
    print_facts(
        (
            "ledger",
            f"{ledger.path}: rho = {format_up(series.rho)} charged for all periods",
        ),
        ("key", f"{series.key_file} (decrypts the exact counts; back it up separately)"),
    )
    _report(series, ledger, as_json)


@app.command()
def add(
    spec_file: SpecArgument,
    period: Annotated[
        str,
        typer.Argument(
            help="Period to release: the next value of the period attribute.", metavar="PERIOD"
        ),
    ],
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Count and release the next period.

    After an interruption the same command finishes the work with the same counts.
    """
    set_up_output(quiet=quiet, as_json=as_json, verbose=verbose)
    spec = load_spec(spec_file)
    series, ledger = _open(spec)
    before = series.read().drawn
    series.release(period, lambda: count_tables(spec, series.plan, tables=series.tables))
    _report(series, ledger, as_json, before)


@app.command()
def close(
    spec_file: SpecArgument,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """End a series before its last period.

    The encrypted counts and their key are deleted. Nothing is refunded.
    """
    set_up_output(quiet=quiet, as_json=as_json, verbose=verbose)
    spec = load_spec(spec_file)
    series, ledger = _open(spec)
    series.close()
    _report(series, ledger, as_json)


def _open(spec: Spec) -> tuple[Series, Ledger]:
    """Open the series of a spec."""
    from fitplug_dask.series import open_series

    folder, ledger = _find_folder(spec), _find_ledger(spec)
    series = open_series(folder, ledger=ledger, key_file=spec.key_file)
    is_shown = spec.output.display_request is not None
    is_same = (series.plan.unit, series.record.display) == (spec.unit, is_shown)
    if not is_same or not has_queries(spec, series.plan):
        raise InputError(
            f"{spec.path} does not match the series in {series.folder}. Use the spec that the "
            "series was created with."
        )
    return series, ledger


def _find_ledger(spec: Spec) -> Ledger:
    """Open the ledger of a spec, which a series needs.

    Raises:
        SpecError: The spec names none.
        LedgerError: It is missing, and the folder holds a series that was charged to it.
    """
    folder = _find_folder(spec)
    if spec.ledger is not None and not has_ledger_file(spec) and (folder / SERIES_RECORD).exists():
        raise LedgerError(
            f"the ledger {spec.ledger_path} does not exist, but {folder} holds a series that was "
            "charged to a ledger. Restore the ledger of this series."
        )
    ledger = open_ledger(spec)
    if ledger is None:
        raise SpecError(f"{spec.path}: a series needs a ledger. Add [ledger] path and rho.")
    return ledger


def _find_folder(spec: Spec) -> Path:
    """Find the folder of the series."""
    if spec.output.display_request is not None and spec.output.display_request.totals:
        raise SpecError(
            f"{spec.path}: the display tables of a series cannot add up to totals. Set [output] "
            "display = true."
        )
    if spec.output.is_url:
        raise SpecError(
            f"{spec.path}: [output] path of a series must be a local folder, not a URL."
        )
    return spec.output_dir


def _report(series: Series, ledger: Ledger, as_json: bool, before: int | None = None) -> None:
    """Print the progress of a series, as facts or JSON; `before` periods had been drawn."""
    drawn = series.read().drawn
    done = " (this period was already drawn)" if drawn == before else ""
    print_facts(("series", f"{series.folder}: {drawn} of {len(series.labels)} periods drawn{done}"))
    record = {
        "folder": str(series.folder),
        "plan": series.plan.digest,
        "periods": list(series.labels),
        "drawn": drawn,
        "rho": series.rho,
        "ledger": build_ledger_record(ledger),
    }
    if as_json:
        print_json(record)
