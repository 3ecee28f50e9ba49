"""Counting of the exact tables that a plan needs, on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fitplug.counts import AttributeSet, Tables
from fitplug.plan import Plan
from fitplug_cli.commands.clusters import connect
from fitplug_cli.commands.design import design_within_limit, load_plan
from fitplug_cli.files import check_target
from fitplug_cli.options import PlanOption, QuietOption, SpecArgument, VerboseOption
from fitplug_cli.render import (
    open_progress_bar,
    out,
    print_preview,
    print_row_rules,
    read_counts,
    set_up_output,
    write_counts,
)
from fitplug_cli.spec import Spec, SpecError, load_spec

if TYPE_CHECKING:
    from fitplug_dask.sources import Source


def count(
    spec_file: SpecArgument,
    plan_file: PlanOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Where to write the counts. [default: SPEC.counts.npz]"
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show files, rows, tasks and memory.")
    ] = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Count the exact tables the plan needs into a file. The file is CONFIDENTIAL."""
    import fitplug_dask

    set_up_output(quiet=quiet, as_json=False, verbose=verbose)
    spec = load_spec(spec_file)
    path = output or spec_file.with_suffix(".counts.npz")
    if not dry_run:
        check_target(path, read_counts)
    plan = load_plan(spec, plan_file) if plan_file else design_within_limit(spec)
    if dry_run:
        print_preview(
            fitplug_dask.preview(find_source(spec), plan, **list_reading_options(spec)), plan
        )
        return
    tables = count_tables(spec, plan)
    write_counts(path, tables)
    out.print(f"exact counts written, CONFIDENTIAL, delete after the release: {path}")


def count_tables(
    spec: Spec,
    plan: Plan,
    tables: Sequence[AttributeSet] | None = None,
) -> Tables:
    """Count the exact tables that a plan needs.

    Args:
        spec: The spec.
        plan: The plan.
        tables: Other attribute sets that are to be counted for the plan instead.

    Returns:
        The tables, which are confidential.

    Raises:
        DataError: If the rows cannot be read.
        FitplugError: If the cluster of the spec does not answer.
    """
    import fitplug_dask

    print_row_rules(spec)
    with connect(spec) as client, open_progress_bar("count") as bar:
        return fitplug_dask.count(
            find_source(spec),
            plan if tables is None else (plan.domain, tables),
            client=client,
            progress=lambda done, rows: bar.show(done / rows if rows else 1.0),
            unit=None if spec.data.person is None else plan.unit,
            **list_reading_options(spec),
        )


def find_source(spec: Spec) -> Source:
    """Return the rows that a spec names, as `fitplug_dask.count` takes them.

    Raises:
        SpecError: If [data] version is given for files, which have none.
    """
    from fitplug_dask import DeltaTable, IcebergTable

    data = spec.data
    if data.table == "delta":
        return DeltaTable(spec.source, data.version)
    if data.table == "iceberg":
        return IcebergTable(spec.source, data.version)
    if data.version is not None:
        raise SpecError(
            f'{spec.path}: [data] version is for tables: add table = "delta" or "iceberg", '
            "or leave it out"
        )
    return spec.source


def list_reading_options(spec: Spec) -> dict[str, Any]:
    """List how rows are read, as keywords of `fitplug_dask.count` and `fitplug_dask.preview`."""
    data = spec.data
    return {
        "storage_options": data.storage_options,
        "person": data.person,
        "weight": data.weight,
        "where": data.where,
        "zone": data.zone,
        "missing": {name: None if value == "" else value for name, value in data.missing.items()},
    }
