"""Messages of the commands, for people: the plan, the rows, the charge and the release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from fitplug.counts import describe_rows, make_filters
from fitplug.display import format_down, format_up
from fitplug.families import list_names
from fitplug.files import LocalPlace
from fitplug.ledger import Ledger
from fitplug.numeric import ceil_float
from fitplug.plan import (
    Plan,
    describe_cost,
    describe_overstatement,
    describe_public_totals,
    has_sums,
)
from fitplug.release import Release
from fitplug.workload import Workload
from fitplug_cli.render.console import err, out, print_table
from fitplug_cli.render.csv_tables import find_formula_warning
from fitplug_cli.render.release_record import read_release_record

if TYPE_CHECKING:
    from fitplug.counts import Preview
    from fitplug_cli.spec import Spec
    from fitplug_opendp.publication import PublishedRelease
    from fitplug_opendp.release_progress import ReleaseState

_MOST_VALUES = 3
"""The largest number of a filter's values that a message names; others are only counted."""


def print_plan(plan: Plan, delta: float) -> None:
    """Print what a plan costs, and what each group of queries gets."""
    rows = Table.grid(padding=(0, 2))
    rows.add_row("unit", str(plan.unit))
    if public := describe_public_totals(plan):
        rows.add_row("", public)
    rows.add_row("privacy cost", describe_cost(plan, delta))
    if plan.gap > plan.tolerance:
        rows.add_row("", plan.status)
    if overstated := describe_overstatement(plan):
        rows.add_row("", overstated)
    if (k := plan.structure.changes) > 1:
        rho_of_record = ceil_float(plan.rho_exact * plan.compare_records(1) ** 2)
        rows.add_row("", f"{k:,} rows per person cost {k**2:,} x {format_up(rho_of_record)}")
    if plan.scale != 1.0:
        rows.add_row("budget given", f"all target variances scaled by {format_up(plan.scale)}")
    rows.add_row("counts needed", ", ".join(" x ".join(t) or "total" for t in plan.tables))
    if strict := _list_strict_attributes(plan):
        rows.add_row("not counted", f"rows with a value outside the domain of {list_names(strict)}")
    print_table(rows)
    listed = plan.group_rows()
    quantity = ["quantity"] if has_sums(listed) else []
    groups = Table("group", "queries", *quantity, "target", "achieved std", "% of target", box=None)
    for row in listed:
        spread = format_up(row.largest_std, 4)
        if format_up(row.smallest_std, 4) != spread:
            spread = f"{format_up(row.smallest_std, 4)} to {spread}"
        quantities = [row.quantity] if quantity else []
        groups.add_row(
            row.name, f"{row.queries:,}", *quantities, row.target, spread, f"{row.used:.1%}"
        )
    print_table(groups)
    for rule in plan.workload.measure_rules:
        out.print(rule)


def _list_strict_attributes(plan: Plan) -> list[str]:
    """Return the attributes of the plan's tables that have no cell for other values."""
    used = {name for names in plan.tables for name in names}
    return list(plan.domain.list_names_without_other(used))


def print_row_rules(spec: Spec) -> None:
    """Print the weights and filters of the rows, if there are any."""
    data = spec.data
    rules = describe_rows(data.weight, make_filters(data.where), _MOST_VALUES)
    if rules is not None:
        out.print(f"rows counted: {rules}")


def print_preview(preview: Preview, plan: Plan) -> None:
    """Print what a count would read, and how much memory it would take."""
    rows = "not known before they are read"
    if preview.rows is not None:
        # The exact number is confidential.
        rows = f"about {float(f'{preview.rows:.1g}'):,.0f}, by the files' footers"
    table = Table.grid(padding=(0, 2))
    files = f"{preview.files:,} {preview.format}"
    if preview.left_out:
        files += f"; {preview.left_out:,} more lie in folders that where leaves out"
    table.add_row("files", files)
    table.add_row("rows", rows)
    table.add_row("tasks", f"{preview.tasks:,} on {preview.threads:,} threads")
    table.add_row("cells", f"{preview.cells:,} counted jointly")
    table.add_row("memory", f"about {preview.memory / 2**30:.1f} GiB")
    print_table(table)
    out.print(f"how rows are understood: {preview.rows_are}")
    if public := describe_public_totals(plan):
        out.print(public)
    if preview.counts:
        names = " or ".join(f"weight = {json.dumps(n, ensure_ascii=False)}" for n in preview.counts)
        out.print(
            f"if rows are aggregates, name the column of counts in [data]: {names}; never a "
            "survey's sampling weight, as there one person is one row"
        )
    out.print("nothing was counted, written or charged")


def warn_of_formulas(workload: Workload, *, safe: bool) -> None:
    """Warn of labels that spreadsheets may run as formulas.

    Args:
        workload: The workload whose labels the tables have.
        safe: Whether the tables are written so that no text begins as a formula; then there is no
            warning.
    """
    warning = None if safe else find_formula_warning(workload)
    if warning is not None:
        err.print(f"warning: {warning}")


def print_release(published: PublishedRelease, directory: Path | str, state: ReleaseState) -> None:
    """Print what was released, and where it is.

    Args:
        published: The release and its folder.
        directory: The folder that the spec names.
        state: How far an earlier run had come with this release.
    """
    if state == "published":
        out.print(f"this release is done already, nothing was charged or drawn: {published.output}")
        return
    release = published.release
    if state == "drawn":
        out.print("an earlier run had drawn these answers; the data was not counted again")
    out.print(
        f"released {release.plan.workload.query_count:,} answers at "
        f"rho = {format_up(release.rho)}: {directory}"
    )
    out.print(release.population)
    if release.public_totals is not None:
        out.print(f"{describe_public_totals(release.plan)} See public_totals in release.json.")
    if published.earlier is not None:
        out.print(f"the earlier release was kept as {published.earlier}")
        earlier = read_release_record(LocalPlace(published.earlier))
        if "rho" in earlier and earlier.get("ledger_entry") is None:
            out.print(
                f"it cost rho = {format_up(earlier['rho'])}, which is in no ledger: enter it with "
                "Ledger.charge in Python"
            )


def print_charge(ledger: Ledger | None, release: Release, state: ReleaseState) -> None:
    """Print what a release was charged, and what the ledger has left.

    Args:
        ledger: The ledger; None if the spec names none.
        release: The release.
        state: How far an earlier run had come with this release.
    """
    if ledger is None:
        out.print(
            f"nothing was charged, as the spec has no [ledger]: this release costs rho = "
            f"{format_up(release.rho)}, each further release about the same people adds its own, "
            "and nobody counts them. To count them, add a [ledger]."
        )
        return
    entry = release.entry
    assert entry is not None
    if entry.within is not None:
        text = f"free within the charge {entry.within} of {ledger.path}"
    else:
        text = f"charged rho = {format_up(ceil_float(entry.rho))} to {ledger.path}"
    if state != "new":
        text += f" before, as number {entry.id}, and nothing more now"
    out.print(
        f"{text}: {format_up(ledger.spent)} of {format_down(ledger.total)} spent "
        f"by {len(ledger.entries())} release(s), {format_down(ledger.remaining)} remains"
    )
