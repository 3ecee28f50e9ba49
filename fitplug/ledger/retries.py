"""Retries: which charge an earlier request for the same release has made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from fitplug.display import format_up
from fitplug.errors import AlreadyReleased, KeyTaken
from fitplug.ledger.entry import Entry
from fitplug.ledger.file import LedgerFile
from fitplug.ledger.requests import ChargeRequest
from fitplug.ledger.stages import Stage
from fitplug.numeric import ceil_float


def find_retried(
    file: LedgerFile,
    entries: Sequence[Entry],
    stages: Mapping[int, Stage],
    request: ChargeRequest,
    within: Entry | None,
) -> Entry | None:
    """Find the charge of which a request is a retry.

    Args:
        file: The ledger's file.
        entries: All entries of the ledger.
        stages: The newest stage of each release, by the number of its entry.
        request: The request.
        within: The charge that the request names to be free within.

    Returns:
        The charge; None if the request is no retry and is to be charged.

    Raises:
        KeyTaken: The key is that of another release.
        AlreadyReleased: The plan was released before, and the request neither has a new key nor
            asks for a second draw.
    """
    if request.key is not None:
        of_key = next((entry for entry in entries if entry.key == request.key), None)
        if of_key is not None:
            _check_retry(file, of_key, stages.get(of_key.id), request, within)
        return of_key
    if not request.in_folder:
        return None
    of_plan = [entry for entry in entries if entry.plan_digest == request.plan.digest]
    for entry in reversed(of_plan):
        is_same = entry.key is None and entry.output == request.output
        is_unfinished = _is_unfinished(stages.get(entry.id))
        if is_same and is_unfinished and _has_same_costs(entry, request, within):
            return entry
    if of_plan and not request.again:
        newest = of_plan[-1]
        raise _make_already_released(file, newest, stages.get(newest.id), request, within)
    return None


def _has_same_costs(entry: Entry, request: ChargeRequest, within: Entry | None) -> bool:
    """Return whether a charge is for what a request costs at every cell."""
    cost = (request.rho, None) if within is None else (Fraction(0), within.id)
    profile = None if request.costs is None else request.costs.digest
    return (entry.rho, entry.within, entry.profile) == (*cost, profile)


def _is_unfinished(stage: Stage | None) -> bool:
    """Return whether the stage is of a release into a folder that is not published yet."""
    return stage is not None and stage.state != "published" and stage.output is not None


def _check_retry(
    file: LedgerFile,
    entry: Entry,
    stage: Stage | None,
    request: ChargeRequest,
    within: Entry | None,
) -> None:
    """Raise KeyTaken unless the request is for the release that has its key."""
    of_plan = f" for the plan {entry.plan_digest[:12]}" if entry.plan_digest else ""
    why = None
    if entry.plan_digest != request.plan.digest:
        why = "this is another plan; if the spec is the same, give the plan file of that run"
    elif stage is None:
        why = "the ledger does not know whether its noise was drawn"
    elif not _has_same_costs(entry, request, within):
        wanted = _describe_request_price(request, within)
        why = f"it was {_describe_price(entry)}, and this release is to be {wanted}"
    elif (stage.output is not None) != request.in_folder:
        places = {True: "into a folder", False: "in memory"}
        begun, wanted = places[stage.output is not None], places[request.in_folder]
        why = f"it was begun {begun}, and this is a release {wanted}"
    if why is not None:
        raise KeyTaken(
            file.make_sentence(
                f"has a charge under the key {entry.key!r} already, of {entry.time}{of_plan}, and "
                f"{why}: nothing was charged; give another release another key"
            ),
            number=entry.id,
        )


def _describe_price(entry: Entry) -> str:
    """Describe what a charge cost, in words."""
    if entry.within is not None:
        return f"free within the charge {entry.within}"
    return f"charged rho = {format_up(ceil_float(entry.rho))}"


def _describe_request_price(request: ChargeRequest, within: Entry | None) -> str:
    """Describe what a request would cost, in words."""
    records = f" for {request.contributions} record(s) a person"
    if within is not None:
        return f"free within the charge {within.id}{records}"
    return f"charged rho = {format_up(ceil_float(request.rho))}{records}"


def _describe_absence(place: str) -> str:
    """Say that the folder of a release is gone, if it is a local one that does not exist."""
    if not Path(place).is_absolute() or Path(place).exists():
        return ""
    return " (which is gone: put it back from a copy, as the same numbers are not drawn again)"


def _make_already_released(
    file: LedgerFile,
    entry: Entry,
    stage: Stage | None,
    request: ChargeRequest,
    within: Entry | None,
) -> AlreadyReleased:
    """Make the error for a plan that the ledger has as released already."""
    place = stage.output if stage is not None and stage.output else entry.output
    if _is_unfinished(stage):
        named = f"under the key {entry.key!r}" if entry.key else f"for {place}"
        predicate = (
            f"has an unfinished release of this plan {named}: finish it as it was begun, or ask "
            "for another draw with --again (again=True) or a new key"
        )
    else:
        where = f", in {place}{_describe_absence(place)}" if place else ""
        cost = (
            "nothing" if within is not None else f"rho = {format_up(ceil_float(request.rho))} more"
        )
        predicate = (
            f"has a release of this plan already, number {entry.id} of {entry.time[:19]}{where}: a "
            f"second draw of the same plan costs {cost}; ask for it with --again (again=True) or a "
            "new key"
        )
    return AlreadyReleased(file.make_sentence(predicate), number=entry.id)
