"""`fitplug count`: exact counts of the tables that a plan needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fitplug.adapters import count as count_rows, preview as preview_rows
from fitplug.counts import AttributeSet, Tables
from fitplug.plan import Plan
from fitplug_cli.commands.clusters import connect
from fitplug_cli.commands.design import design_within_limit, load_plan
from fitplug_cli.files import check_target
from fitplug_cli.options import JsonOption, PlanOption, QuietOption, SpecArgument, VerboseOption
from fitplug_cli.render import (
    build_preview_record,
    open_progress_bar,
    print_facts,
    print_json,
    print_preview,
    print_row_rules,
    read_counts,
    set_up_output,
    write_counts,
)
from fitplug_cli.spec import Spec, load_spec


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
        bool,
        typer.Option(
            "--dry-run", help="Only show the files, rows, tasks and memory that counting needs."
        ),
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Count the exact tables that the plan needs. The output file is CONFIDENTIAL."""
    set_up_output(quiet=quiet, as_json=as_json, verbose=verbose)
    spec = load_spec(spec_file)
    path = output or spec_file.with_suffix(".counts.npz")
    if not dry_run:
        check_target(path, read_counts)
    plan = load_plan(spec, plan_file) if plan_file else design_within_limit(spec)
    if dry_run:
        preview = preview_rows(spec.source, plan)
        print_preview(preview, plan)
        if as_json:
            print_json(build_preview_record(preview))
        return
    tables = count_tables(spec, plan)
    write_counts(path, tables)
    print_facts(("counts", f"{path} (exact and CONFIDENTIAL; delete after the release)"))
    if as_json:
        print_json({"counts": str(path), "confidential": True})


def count_tables(
    spec: Spec,
    plan: Plan,
    tables: Sequence[AttributeSet] | None = None,
) -> Tables:
    """Count the exact tables that a plan needs.

    Args:
        spec: The spec.
        plan: The plan.
        tables: Attribute sets to count instead of the plan's.

    Returns:
        The tables, which are confidential.

    Raises:
        DataError: If the rows cannot be read.
        FitplugError: If the cluster does not answer.
    """
    print_row_rules(spec)
    with connect(spec) as client, open_progress_bar("count") as bar:
        return count_rows(
            spec.source,
            plan if tables is None else (plan.domain, tables),
            client=client,
            progress=lambda done, rows: bar.show(done / rows if rows else 1.0),
            unit=None if spec.data.person is None else plan.unit,
        )
