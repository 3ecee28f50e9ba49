"""Releases into folders: each is charged, drawn and written exactly once."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from fitplug.counts import Tables, describe_source_rows, is_in_database
from fitplug.errors import InputError, LedgerError, TablesError, WorkloadError
from fitplug.families import list_names
from fitplug.ledger import ChargeReference, Ledger
from fitplug.plan import Plan
from fitplug.releases import check_request
from fitplug_cli.commands.budgets import (
    check_first_charge,
    check_ledger_is_kept,
    has_ledger_file,
    open_ledger,
)
from fitplug_cli.commands.clusters import connect
from fitplug_cli.commands.count import count_tables
from fitplug_cli.render import (
    build_ledger_record,
    open_progress_bar,
    print_release,
    print_row_rules,
    read_counts,
    read_release_record,
)
from fitplug_cli.spec import Spec, SpecError
from fitplug_opendp.count_checks import CountedRows, check_limit, check_tables
from fitplug_opendp.executor import ThisProcess, WholeTables
from fitplug_opendp.folder_release import FolderPublication, PublishedRelease
from fitplug_opendp.output import Output
from fitplug_opendp.release_files import ReleaseFiles
from fitplug_opendp.release_request import ReleaseRequest, ReleaseState

_MOST_DIGITS = 19
"""Text with this many digits or more is never the number of a charge."""


@dataclass(frozen=True)
class ChargeOptions:
    """How a release is charged.

    Attributes:
        key: The key of the release.
        covered_by: The number or key of an earlier charge that covers the release.
        again: Whether to pay for another draw of a plan that was already released.
        replace: Whether to rename an earlier release in the folder.
    """

    key: str | None = None
    covered_by: ChargeReference | None = None
    again: bool = False
    replace: bool = False


def read_charge_options(
    spec: Spec, key: str | None, covered_by: str | None, again: bool, replace: bool
) -> ChargeOptions:
    """Check the options of a charge.

    Args:
        spec: The spec.
        key: The key of the release.
        covered_by: The number or key of an earlier charge; digits alone are a number.
        again: Whether to pay for another draw.
        replace: Whether to rename an earlier release in the folder.

    Raises:
        SpecError: If an option needs a ledger and the spec has none, or options conflict.
    """
    asked = {"--key": key, "--covered-by": covered_by, "--again": again, "--replace": replace}
    for option, given in asked.items():
        if given not in (None, False) and spec.ledger is None:
            shown = option if given is True else f"{option} {given!r}"
            raise SpecError(f"{spec.path}: {shown} needs a ledger. Add [ledger] path and rho.")
    if key is not None and again:
        raise SpecError(
            "--again and --key cannot be combined. For another release, use another --key."
        )
    earlier: ChargeReference | None = covered_by
    if covered_by is not None and covered_by.isdecimal() and len(covered_by) < _MOST_DIGITS:
        earlier = int(covered_by)
    return ChargeOptions(key, earlier, again, replace)


def check_counts_are_kept(spec: Spec, options: ChargeOptions) -> None:
    """Check that a new count has the same records as the earlier charge that should cover it.

    Raises:
        SpecError: If the records may differ.
    """
    if options.covered_by is None:
        return
    key = None
    if spec.data.person is not None:
        key = "[data] person"
    if describe_source_rows(spec.source) is not None:
        key = "[data] weight or where"
    if spec.source.columns:
        key = "[domain] from"
    if key is not None:
        raise SpecError(
            f"{spec.path}: with {key}, --covered-by needs the counts file of the earlier release. "
            "Use `fitplug release --counts FILE`."
        )


def check_paths(spec: Spec) -> None:
    """Check, before any work, that the release can be written and the ledger can be charged.

    Raises:
        InputError: If the folder cannot be written, or overlaps with other paths.
        SpecError: If the ledger cannot be used.
    """
    others = {}
    if spec.data.local_path is not None and not glob.has_magic(spec.data.local_path):
        others["the data"] = spec.resolve(spec.data.local_path)
    if spec.ledger_path is not None:
        others["the ledger"] = spec.ledger_path
        try:
            if has_ledger_file(spec):
                open_ledger(spec)
            check_ledger_is_kept(spec)
            if not spec.ledger_path.absolute().parent.is_dir():
                raise LedgerError(
                    f"The folder of {spec.ledger_path} does not exist. Create this folder first."
                )
        except (LedgerError, OSError) as error:
            raise SpecError(f"{spec.path}: [ledger] {error}") from None
    if not spec.output.is_url:
        check_release_folder(spec.output_dir, others)
    elif spec.output.parts is False:
        raise SpecError(
            f"{spec.path}: a release at a URL must be in parts. Remove [output] parts = false."
        )


def publish_release(
    spec: Spec, plan: Plan, options: ChargeOptions, counts_file: Path | None = None
) -> dict[str, Any]:
    """Count, charge, draw and write a release, or finish an interrupted one.

    All checks come before the charge; those that need no rows come before rows are read.

    Args:
        counts_file: The file of exact counts; None to count the data of the spec.

    Returns:
        The content of release.json, the folder, and the state of the ledger.

    Raises:
        SpecError: If --replace is given for a release in a store.
        TablesError: If the counts do not match the spec.
        OverBudget: If the ledger has too little left.
        AlreadyReleased: If the plan was already released and --again is not given.
        LedgerError: If the ledger refuses the charge.
        InputError: If the folder holds something else.
    """
    has_begun = spec.ledger is None or has_ledger_file(spec)
    if not has_begun:
        check_first_charge(spec, plan, options.covered_by)
    check_display(spec, plan)
    publish = _publish_in_parts if spec.output.is_in_parts(plan) else _publish_whole
    published, state, ledger = publish(spec, plan, options, counts_file)
    print_release(published, ledger, spec.output_location, state)
    return read_release_record(published.output.place) | {
        "found": state,
        "ledger": build_ledger_record(ledger),
    }


_Published: TypeAlias = tuple[PublishedRelease, ReleaseState, Ledger | None]


def _publish_whole(
    spec: Spec, plan: Plan, options: ChargeOptions, counts_file: Path | None
) -> _Published:
    """Publish a release drawn by this process."""
    ledger = open_ledger(spec)
    with open_progress_bar("check"):  # large plans take a while to verify
        publication = FolderPublication.prepare(
            make_request(spec, plan, options, ledger),
            Output.open(spec.output_dir),
            ThisProcess(),
            make_release_files(spec, ledger),
        )
    tables = None
    if publication.needs_counts:
        tables = count_tables(spec, plan) if counts_file is None else read_counts(counts_file)
        check_counts(spec, plan, tables, counts_file)

    def get_counts() -> WholeTables:
        assert tables is not None
        return WholeTables(plan, tables)

    with open_progress_bar("draw") as bar:
        executor = ThisProcess(lambda done, total: bar.show(done / total, f"{done:,} of {total:,}"))
        published = replace(publication, executor=executor).publish(get_counts)
    return published, publication.state, ledger


def _publish_in_parts(
    spec: Spec, plan: Plan, options: ChargeOptions, counts_file: Path | None
) -> _Published:
    """Publish a release in parts, on the workers of the spec's cluster or on threads."""
    from fitplug_dask.releases import make_release

    if options.replace and spec.output.is_url:
        raise SpecError(
            f"{spec.path}: --replace does not work when [output] path is a URL. Use another "
            "[output] path."
        )
    tables = None if counts_file is None else read_counts(counts_file)
    if tables is not None:
        check_counts(spec, plan, tables, counts_file)
    print_row_rules(spec)
    if tables is None and is_in_database(spec.source):
        if spec.source.person is not None:
            raise SpecError(
                f"{spec.path}: a release in parts cannot limit the rows per person in a database. "
                "Use `fitplug count` and then `fitplug release --counts`."
            )
        tables = count_tables(spec, plan)
    with connect(spec) as client, open_progress_bar("release") as bar:
        ledger = open_ledger(spec)
        published, state = make_release(
            spec.source if tables is None else tables,
            make_request(spec, plan, options, ledger),
            Output.open(spec.output_location, spec.output.storage_options),
            client,
            lambda done, total: bar.show(done / total if total else 1.0),
            make_release_files(spec, ledger),
            key_file=None if ledger is None else spec.key_file,
        )
    return published, state, ledger


def make_request(
    spec: Spec, plan: Plan, options: ChargeOptions, ledger: Ledger | None
) -> ReleaseRequest:
    """Make the request for the release of a spec.

    Args:
        spec: The spec.
        plan: Its plan.
        options: How the release is charged.
        ledger: The ledger; None if there is none yet.
    """
    return ReleaseRequest(
        plan,
        CountedRows(
            describe_source_rows(spec.source),
            "declared" if spec.data.person is None else "enforced",
        ),
        ledger=ledger,
        covered_by=options.covered_by,
        what=f"{spec.path.name}: {list_names(spec.workload.names)}",
        key=options.key,
        again=options.again,
        replace=options.replace,
    )


def check_counts(spec: Spec, plan: Plan, tables: Tables, counts_file: Path | None) -> None:
    """Raise TablesError unless the counts match the spec."""
    try:
        check_limit(plan, tables)
        check_tables(plan, tables)
    except TablesError as error:
        raise TablesError(f"{counts_file or f'{spec.path}: the data'}: {error}") from None
    for key, is_same in (
        ("person", spec.source.person == tables.person),
        ("weight or where", describe_source_rows(spec.source) == tables.rows),
    ):
        if not is_same:
            raise TablesError(
                f"{counts_file} and {spec.path} differ in [data] {key}. Count again with this spec."
            )


def make_release_files(spec: Spec, ledger: Ledger | None) -> ReleaseFiles:
    """Say what the folder of a release holds in addition to tables and answers.

    Args:
        spec: The spec.
        ledger: The ledger that the review describes; None if there is none.
    """
    return ReleaseFiles(
        ledger,
        spec.output.confidence,
        spec.privacy.delta,
        spec.about.about,
        spec.output.spreadsheet_safe,
        spec.output.display_request,
    )


def check_release_folder(directory: Path, others: Mapping[str, Path]) -> None:
    """Check that a release can be written into a folder.

    Args:
        directory: The folder, which need not exist.
        others: Paths that must not contain the folder or be inside it, by what they are.

    Raises:
        InputError: If the folder cannot be written, or overlaps with another path.
    """
    try:
        directory.exists()  # raises OSError for an invalid name
        parent = directory.absolute().parent
        while not parent.exists():
            parent = parent.parent
    except OSError:
        raise InputError(f"{directory} is not a valid folder name. Change [output] path.") from None
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InputError(f"{directory} is not writable. Change [output] path.")
    here = directory.resolve()
    for what, path in others.items():
        there = path.resolve()
        if here in (there, *there.parents) or there in here.parents:
            raise InputError(f"{directory} overlaps with {what}, {path}. Change [output] path.")


def check_display(spec: Spec, plan: Plan) -> None:
    """Check before any work that the display tables of a release can be made.

    Raises:
        SpecError: If they cannot be made.
    """
    if spec.output.display_request is None:
        return
    try:
        check_request(plan, spec.output.display_request)
    except WorkloadError as error:
        raise SpecError(f"{spec.path}: [output] display: {error}") from None
