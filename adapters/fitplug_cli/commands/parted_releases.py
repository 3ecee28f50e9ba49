"""Releases in parts, on the workers of the spec's cluster or on threads."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitplug.counts import Tables
from fitplug.files import Place
from fitplug.ledger import Ledger
from fitplug.plan import Plan
from fitplug.release import Release
from fitplug_cli.commands.budgets import check_first_charge, has_ledger_file, open_ledger
from fitplug_cli.commands.clusters import connect
from fitplug_cli.commands.counts import find_source, list_reading_options
from fitplug_cli.commands.releases import (
    ChargeOptions,
    check_counts,
    make_request,
    review_release,
)
from fitplug_cli.output import (
    build_ledger_record,
    open_progress_bar,
    print_charge,
    print_release,
    print_row_rules,
)
from fitplug_cli.output.release_record import describe_release
from fitplug_cli.output.review_files import write_review
from fitplug_cli.software import describe_software
from fitplug_cli.spec import Spec, SpecError
from fitplug_opendp.publication import PublishedRelease


@dataclass(frozen=True)
class _PartedFiles:
    """What the command line adds to a release in parts: entries of release.json, and the review."""

    spec: Spec
    ledger: Ledger | None

    def describe(self, release: Release) -> Mapping[str, Any]:
        """Return the entries of release.json."""
        record = describe_release(release, self.spec.output.confidence, self.spec.privacy.delta)
        return record | describe_software()

    def add_files(self, folder: Place, release: Release) -> None:
        """Write the review. Raises OSError if it cannot be written."""
        with tempfile.TemporaryDirectory() as directory:
            write_review(Path(directory), review_release(self.spec, release, self.ledger))
            for path in sorted(Path(directory).iterdir()):
                folder.replace(path.name, path.read_bytes())


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
    counting = {
        "key": None,
        **list_reading_options(spec),
    }
    print_row_rules(spec)
    files = _PartedFiles(spec, ledger)
    with connect(spec) as client, open_progress_bar("release") as bar:
        release, state = make_release(
            find_source(spec) if tables is None else tables,
            request,
            Output.open(location, spec.output.storage_options),
            counting,
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
