"""`fitplug series`: a series is begun, one period after another is added, and it is closed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitplug.display import format_up
from fitplug.errors import InputError, LedgerError
from fitplug.ledger import Ledger
from fitplug_cli.commands.budgets import has_ledger_file, open_ledger
from fitplug_cli.commands.counts import count_tables
from fitplug_cli.commands.plans import get_plan, has_queries
from fitplug_cli.render import build_ledger_record, out, print_plan
from fitplug_cli.spec import Spec, SpecError

if TYPE_CHECKING:
    from fitplug_dask import Series


def begin(spec: Spec, plan_file: Path | None, key: str) -> dict[str, Any]:
    """Begin the series of a spec, or open it if it is begun.

    Args:
        spec: The spec.
        plan_file: A plan file to load, if one is given.
        key: The name of the series in the ledger.

    Returns:
        The record of the series, for JSON.

    Raises:
        SpecError: The spec names no ledger or no folder for a series.
        FitplugError: As for `fitplug_dask.begin_series`.
    """
    from fitplug_dask import begin_series

    folder, ledger = _find_folder(spec), _find_ledger(spec)
    plan = get_plan(spec, plan_file, key)
    print_plan(plan, spec.privacy.delta)
    series = begin_series(
        plan,
        folder,
        ledger=ledger,
        key=key,
        periods=spec.design.periods,
        key_file=spec.key_file,
    )
    out.print(f"charged rho = {format_up(series.rho)} to {ledger.path} for all periods together")
    out.print(f"key of the exact counts, to back up apart from them: {series.key_file}")
    return _describe(series, ledger)


def add(spec: Spec, period: str) -> dict[str, Any]:
    """Draw a period of the series of a spec, from the rows of the spec.

    Args:
        spec: The spec.
        period: The period, as tables show it.

    Returns:
        The record of the series, for JSON.

    Raises:
        SpecError: The spec is another one than that of the series.
        FitplugError: As for `fitplug_dask.Series.release`.
    """
    series, ledger = _open(spec)
    series.release(period, lambda: count_tables(spec, series.plan, tables=series.tables))
    return _describe(series, ledger)


def close(spec: Spec) -> dict[str, Any]:
    """End the series of a spec.

    Args:
        spec: The spec.

    Returns:
        The record of the series, for JSON.

    Raises:
        FitplugError: As for `fitplug_dask.Series.close`.
    """
    series, ledger = _open(spec)
    series.close()
    return _describe(series, ledger)


def _open(spec: Spec) -> tuple[Series, Ledger]:
    """Open the series of a spec."""
    from fitplug_dask import open_series

    folder, ledger = _find_folder(spec), _find_ledger(spec)
    series = open_series(folder, ledger=ledger, key_file=spec.key_file)
    if series.plan.unit != spec.unit or not has_queries(spec, series.plan):
        raise InputError(
            f"{spec.path}: the series in {series.folder} was begun with other queries, targets or "
            "another unit of privacy; use the spec that it was begun with"
        )
    return series, ledger


def _find_ledger(spec: Spec) -> Ledger:
    """Open the ledger of a spec, which a series needs.

    Raises:
        SpecError: The spec names none.
        LedgerError: It is missing, and the folder holds a series that was charged to it.
    """
    from fitplug_dask.series.record import RECORD

    folder = _find_folder(spec)
    if spec.ledger is not None and not has_ledger_file(spec) and (folder / RECORD).exists():
        raise LedgerError(
            f"{spec.ledger_path} is missing, and {folder} holds a series that was charged to it; "
            "put the ledger back, as only it says which periods were drawn"
        )
    ledger = open_ledger(spec)
    if ledger is None:
        raise SpecError(f"{spec.path}: a series needs a ledger: add [ledger] path and rho")
    return ledger


def _find_folder(spec: Spec) -> Path:
    """Find the folder of the series."""
    if spec.output.is_url:
        raise SpecError(f"{spec.path}: [output] path is a URL; a series needs a folder")
    return spec.output_dir


def _describe(series: Series, ledger: Ledger) -> dict[str, Any]:
    """Say how far a series has come, and make its record."""
    drawn = series.read().drawn
    out.print(f"{drawn} of {len(series.labels)} periods are drawn, in {series.folder}")
    return {
        "folder": str(series.folder),
        "plan": series.plan.digest,
        "periods": list(series.labels),
        "drawn": drawn,
        "rho": series.rho,
        "ledger": build_ledger_record(ledger),
    }
