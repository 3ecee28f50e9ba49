"""Releases in parts, on the workers of the spec's cluster or on threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fitplug.counts import Tables
from fitplug.plan import Plan
from fitplug_cli.commands.budgets import check_first_charge, has_ledger_file, open_ledger
from fitplug_cli.commands.clusters import connect
from fitplug_cli.commands.count import find_source, list_reading_options
from fitplug_cli.commands.releases import (
    ChargeOptions,
    check_counts,
    make_release_files,
    make_request,
)
from fitplug_cli.render import (
    build_ledger_record,
    open_progress_bar,
    print_charge,
    print_release,
    print_row_rules,
)
from fitplug_cli.spec import Spec, SpecError
from fitplug_opendp.publication import PublishedRelease


def publish_in_parts(
    spec: Spec,
    plan: Plan,
    options: ChargeOptions,
    *,
    tables: Tables | None = None,
    counts_file: Path | None = None,
) -> dict[str, Any]:
    """Count, charge, draw and write a release in parts, or finish one that was interrupted.

    Args:
        spec: The spec.
        plan: The plan.
        options: How the release is charged.
        tables: Exact counts, instead of the data of the spec.
        counts_file: The file that the counts are from, for errors.

    Returns:
        The record of release.json, the folder, and what the ledger has left.

    Raises:
        SpecError: An earlier release is to be replaced, which releases in parts cannot do.
        FitplugError: The release is refused or cannot be finished; see `fitplug_dask.release`.
    """
    from fitplug_dask.releases import Output, make_release

    if options.replace:
        raise SpecError(
            f"{spec.path}: --replace is not for [output] parts; name another [output] path"
        )
    if tables is not None:
        check_counts(spec, plan, tables, counts_file)
    if spec.ledger is not None and not has_ledger_file(spec):
        check_first_charge(spec, plan, options.within)
    ledger = open_ledger(spec)
    location = spec.output_location
    request = make_request(spec, plan, options, location, ledger)
    print_row_rules(spec)
    files = make_release_files(spec, ledger)
    with connect(spec) as client, open_progress_bar("release") as bar:
        release, state = make_release(
            find_source(spec) if tables is None else tables,
            request,
            Output.open(location, spec.output.storage_options),
            {"key": None, **list_reading_options(spec)},
            client,
            lambda done, total: bar.show(done / total if total else 1.0),
            spec.output.confidence,
            files,
            None if ledger is None else spec.key_file,
        )
    print_charge(ledger, release, state)
    print_release(PublishedRelease(release, Path(location)), location, state)
    return {
        "folder": location,
        **files.describe(release),
        "found": state,
        "ledger": build_ledger_record(ledger),
    }
