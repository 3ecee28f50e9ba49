"""Counting of the exact tables that a plan needs, on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitplug.counts import AttributeSet, Tables
from fitplug.plan import Plan
from fitplug_cli.commands.clusters import connect
from fitplug_cli.files import check_target
from fitplug_cli.output import open_progress_bar, print_row_rules, print_survey, read_counts
from fitplug_cli.spec import Spec, SpecError

if TYPE_CHECKING:
    from fitplug_dask.sources import Source


def check_counts_target(path: Path) -> None:
    """Check that counts may be written to a file.

    Args:
        path: The file.

    Raises:
        InputError: If the file cannot be written, or holds something else.
    """
    check_target(path, read_counts)


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
    """List how rows are read, as keywords of `fitplug_dask.count` and `fitplug_dask.survey`."""
    data = spec.data
    return {
        "storage_options": data.storage_options,
        "person": data.person,
        "weight": data.weight,
        "where": data.where,
        "zone": data.zone,
        "missing": {name: None if value == "" else value for name, value in data.missing.items()},
    }


def survey(spec: Spec, plan: Plan) -> None:
    """Print what counting would read, and how much memory it would take. No row is read.

    Args:
        spec: The spec.
        plan: The plan.

    Raises:
        DataError: If the files cannot be read.
    """
    import fitplug_dask

    print_survey(
        fitplug_dask.survey(
            find_source(spec),
            plan,
            **list_reading_options(spec),
        ),
        plan,
    )
