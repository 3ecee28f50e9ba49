"""Releases, by the adapter that draws where the data are."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from fitplug.adapters.entry_points import call_adapter
from fitplug.counts import Source, Tables, is_in_database, read_source
from fitplug.display import Progress
from fitplug.errors import InputError, check_type
from fitplug.files import is_url
from fitplug.ledger import ChargeReference, Ledger
from fitplug.plan import Plan
from fitplug.releases import About, DisplayRequest, Release, Totals
from fitplug.workload import DEFAULT_CONFIDENCE


def release(
    plan: Plan,
    data: Tables | Source | Any,
    folder: str | PathLike[str] | None = None,
    *,
    ledger: Ledger | None = None,
    key: str | None = None,
    client: Any = None,
    covered_by: ChargeReference | None = None,
    what: str | None = None,
    again: bool = False,
    replace: bool = False,
    confidence: float = DEFAULT_CONFIDENCE,
    display: bool | Totals = False,
    about: About | None = None,
    key_file: str | PathLike[str] | None = None,
    folder_options: Mapping[str, Any] | None = None,
    progress: Progress = None,
) -> Release:
    """Draw the plan's noise once, and release the noisy answers in memory or into a folder.

        ledger = fp.Ledger("budget.db", rho=1.0)
        release = fp.release(plan, tables, ledger=ledger, key="2024")
        release = fp.release(plan, "people/", "release/", ledger=ledger, key="2025")

    The ledger and the plan are checked before any row is read, and the ledger is charged before any
    noise is drawn. OpenDP draws the noise, after a test of its sampler. If the call is refused,
    nothing is charged or drawn.

    **In memory** (without `folder`), the answers are lost when the process ends. If the process was
    killed before the noise was drawn, repeat the call with the same key; this costs nothing more.
    Once the noise is drawn, a call with the same key is refused.

    **Into a folder**, the release happens exactly once. With a ledger, you may repeat the call at
    no further cost: it finishes an interrupted release, or returns the finished release. The folder
    holds what `fitplug run` writes: tables, answers, the plan, and a review.

    **From a source**, or with `client`, the release is made in parts of about a million answers, on
    threads or a cluster. If two workers draw the same part, only the copy that is written first is
    used. A repeated call counts the rows again and draws only the missing parts. The repeated call
    is refused if the data have changed, because answers from two data sets would cost more than was
    charged. It needs the secret in `key_file`. Until the release is published, exact counts of more
    than 2^24 cells are stored next to the folder, encrypted.

    Args:
        plan: The plan, from `fitplug.design`.
        data: Exact counts that include all `plan.tables`; or a `Source` or a path, whose rows are
            then counted first.
        folder: The folder of the release: a path, which this process and all workers share, or the
            URL of a folder in an object store. None for a release in memory.
        ledger: The ledger. The plan's rho is charged to it once, before any noise is drawn, and the
            ledger records the plan's cost in each cell.
        key: The name of the release in the ledger. Without a key, each call in memory is a new
            release, and a release into a folder is identified by its plan, its cost and its folder.
        client: A dask.distributed Client that counts, draws and writes; None for this process.
        covered_by: The key or the number of an earlier charge. This release is then not charged,
            provided that the earlier charge covers it: in every cell, this release's cost and all
            costs that the charge already covers must together stay within the charge; see
            `Ledger.charge_covered`. Both releases must use the same rows. If rows were limited per
            person, weighted or filtered, both releases must use the tables of the same count.
        what: A text that describes the charge in the ledger; see `Ledger.charge`.
        again: For a release into a folder, without a key: whether to draw again a plan that was
            already released.
        replace: Whether to make the new release if the folder holds an earlier release. The earlier
            release is renamed and kept next to the new release. This needs a ledger, which counts
            the draws. Without `replace`, a folder that holds a release is refused.
        confidence: The confidence of the intervals in the tables of the folder, for groups whose
            target has no confidence.
        display: True to add display tables, which have consistent nonnegative numbers, to the
            folder. To make these tables match known totals, give the totals instead, as for
            `Release.integers`.
        about: Facts that only the publisher knows, for the review in the folder.
        key_file: For a release in parts, the file with its secret. The file is created if it does
            not exist, and removed when the release is published. It must not lie next to the
            folder. By default it is in your account on this machine, so nobody else can finish the
            release, nor can you on another machine.
        folder_options: Options for access to the object store of the folder's URL, such as
            credentials.
        progress: True shows a percentage on stderr; a callable receives, for each step, the amounts
            (done, total). These numbers may be exact counts of rows, which are confidential, so
            show only their ratio.

    Returns:
        The release, with the noisy answers and the charge. A release in parts reads its answers
        from the folder when they are needed.

    Raises:
        ImportError: OpenDP or another library is not installed; the message says how to install it.
        AlreadyReleased: The ledger already has a release of this plan, and the call has neither a
            key nor `again`.
        KeyTaken: The key was used for another plan or charge, for a release of other rows, or for a
            release in memory whose noise was already drawn.
        OverBudget: The release costs more than the ledger has left.
        InputError: The folder holds something other than this release, or another argument is
            wrong. TablesError, BudgetError and the errors of `count` are InputErrors, too.
        LedgerError: The ledger cannot be read or written, or does not have the charge that
            `covered_by` names.
        SamplerError: OpenDP's sampler fails its test. If the test fails on a worker of a cluster, a
            FitplugError with the same message is raised instead.
        FitplugError: Workers fail, or the folder cannot be written after the charge. Repeating the
            call then finishes the release.
    """
    check_type("plan", plan, Plan, "fitplug.release(plan, data, folder)")
    if ledger is not None:
        call = "fitplug.release(plan, data, ledger=fitplug.Ledger(path))"
        check_type("ledger", ledger, Ledger, call)
    is_counted = isinstance(data, Tables)
    for_folder = {
        "again": again,
        "replace": replace,
        "display": display,
        "about": about,
        "key_file": key_file,
        "folder_options": folder_options,
        "client": client if is_counted else None,
    }
    for name, given in for_folder.items():
        if folder is None and given:
            raise InputError(f"{name}= needs folder=. Name a folder, or remove {name}=.")
    charge = {
        "ledger": ledger,
        "key": key,
        "covered_by": covered_by,
        "what": what,
        "again": again,
        "replace": replace,
    }
    files: dict[str, Any] = {"ledger": ledger, "confidence": confidence, "about": about}
    if display is not False:
        files["display"] = DisplayRequest({} if display is True else display)
    options: dict[str, Any] = {"files": files, "progress": progress}
    in_store = folder is not None and is_url(folder)
    if folder_options and not in_store:
        raise InputError(
            "folder_options= needs a URL as folder=. Give the URL of a store, or remove "
            "folder_options=."
        )
    source = data if isinstance(data, Tables) else read_source(data)
    if isinstance(source, Source) and is_in_database(source):
        wrong = {"client=": client, "key_file=": key_file, "a URL as folder=": in_store}
        for name, given in wrong.items():
            if given:
                raise InputError(
                    f"{name} cannot be combined with rows in a database. Release the result of "
                    "fitplug.count instead."
                )
        name = "release_from_database"
    elif is_counted and client is None and key_file is None and not in_store:
        name = "release_tables"
    else:
        name = "release_source"
        options |= {"client": client, "key_file": key_file, "folder_options": folder_options}
    made: Release = call_adapter(name, plan, source, folder, **options, **charge)
    return made
