"""Beginning: charging a series once for all its periods, and opening it again later."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from os import PathLike
from pathlib import Path

from fitplug.errors import FitplugError, InputError, KeyTaken, LedgerError
from fitplug.files import LocalPlace, check_arrow, is_url
from fitplug.ledger import Ledger, ReleaseCharges, StagedCharge
from fitplug.plan import Plan
from fitplug.releases import PLAN, SERIES_RECORD, check_names, check_period_display
from fitplug.workload import DEFAULT_CONFIDENCE, check_confidence
from fitplug_dask.encryption import check_encryption
from fitplug_dask.series.counts import answer_by_period, estimate_more_files
from fitplug_dask.series.folders import SeriesRecord, locate_hidden, read_plan
from fitplug_dask.series.period import SeriesCharge
from fitplug_dask.series.series import Series
from fitplug_opendp.key_file import KeyFile
from fitplug_opendp.noise_source import NoiseSource
from fitplug_opendp.output import Output
from fitplug_opendp.release_request import ReleaseRequest
from fitplug_opendp.staging import encode_path, report_write_errors


def begin_series(
    plan: Plan,
    folder: str | PathLike[str],
    *,
    ledger: Ledger,
    key: str,
    periods: str | None = None,
    what: str | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
    display: bool = False,
    key_file: str | PathLike[str] | None = None,
) -> Series:
    """Charge a series of releases; see `fitplug.begin_series`, which calls this."""
    periods = _choose_periods(plan, periods)
    check_confidence(confidence)
    if display:
        check_period_display(plan, periods)
    place = _check_can_begin(plan, folder, ledger, key)
    asked = ReleaseRequest(
        plan,
        ledger=ledger,
        what=what or f"series of plan {plan.digest[:12]} by {periods}",
        key=key,
    )
    noise_source = NoiseSource.from_plan(plan)
    request = asked.make_ledger_request(noise_source.charged, encode_path(place))

    def describe(begun: StagedCharge) -> SeriesRecord:
        return SeriesRecord(
            plan_digest=plan.digest,
            periods=periods,
            confidence=float(confidence),
            display=bool(display),
            key=key,
            entry=begun.entry.id,
            time=begun.entry.time,
        )

    def find_begun() -> Series | None:
        charge = ReleaseCharges(ledger).find(request)
        return (
            None
            if charge is None
            else _open_begun(charge, describe(charge), place, ledger, key_file)
        )

    def find_owner() -> str:
        charge = ReleaseCharges(ledger).find(request)
        return "" if charge is None else describe(charge).digest

    if (series := find_begun()) is not None:
        return series
    noise_source.check_plan(answer_by_period(plan, periods))
    noise_source.check_sampler()
    try:
        with report_write_errors(
            place, "Nothing was charged. Free some space, or name another folder."
        ):
            more = estimate_more_files(plan, periods, display=display)
            Output(LocalPlace(place)).check_room(plan, more)
            _prepare_folder(plan, place, ledger)
        _check_key_file(key_file, key, place, find_owner)
    except FitplugError:
        if (series := find_begun()) is None:  # another process may have begun it meanwhile
            raise
        return series
    begun = ReleaseCharges(ledger).begin(request)
    record, output = describe(begun), encode_path(place)
    key_of_counts = _locate_key(key_file, key, record.digest, place)
    key_of_counts.keep()
    # From now on, the charge cannot be mistaken for that of a release drawn at once.
    stage = ReleaseCharges(ledger).record_draw(
        begun.entry, record.digest, counts=record.digest, folder=output
    )
    _check_charge(ledger, StagedCharge(begun.entry, stage), record, place)
    if stage.state == "published":  # another process has drawn all periods meanwhile
        key_of_counts.remove()
    with report_write_errors(place, "The series is charged. Run again to finish it."):
        record.write(place)
    return open_series(place, ledger=ledger, key_file=key_file)


def _open_begun(
    charge: StagedCharge,
    record: SeriesRecord,
    place: Path,
    ledger: Ledger,
    key_file: str | PathLike[str] | None,
) -> Series | None:
    """Open a charged series; None if the process was killed before it wrote the record."""
    state = charge.stage.state
    if state != "charged":
        _check_charge(ledger, charge, record, place)
    if state != "published" and not (place / SERIES_RECORD).is_file():
        return None
    if SeriesRecord.read(place) != record:
        raise InputError(
            f"{place} holds a different series. Name the folder of the series {record.key!r}."
        )
    if state == "charged":
        # The ledger is a copy from before the record was entered, so enter it again.
        output = encode_path(place)
        ReleaseCharges(ledger).record_draw(
            charge.entry, record.digest, counts=record.digest, folder=output
        )
    return open_series(place, ledger=ledger, key_file=key_file)


def open_series(
    folder: str | PathLike[str],
    *,
    ledger: Ledger | None = None,
    key_file: str | PathLike[str] | None = None,
) -> Series:
    """Open a series that was begun; see `fitplug.open_series`, which calls this."""
    place = _locate(folder)
    record = SeriesRecord.read(place)
    plan = read_plan(place, record)
    _choose_periods(plan, record.periods)
    noise_source = NoiseSource.from_plan(plan)
    if ledger is None:
        return Series(place, plan, record, noise_source)
    entry = next((entry for entry in ledger.entries() if entry.id == record.entry), None)
    stage = ledger.stages().get(record.entry)
    described = plan.digest, record.key, record.time
    if entry is None or stage is None or (entry.plan_digest, entry.key, entry.time) != described:
        raise LedgerError(
            f"the series in {place} was not charged to the ledger {ledger.path}. Open the "
            "series with the ledger that was charged."
        )
    _check_charge(ledger, StagedCharge(entry, stage), record, place)
    key = _locate_key(key_file, record.key, record.digest, place)
    return Series(place, plan, record, noise_source, SeriesCharge(ledger, record.entry), key)


def _choose_periods(plan: Plan, periods: str | None) -> str:
    """Choose the attribute whose cells are the periods.

    Raises:
        InputError: The answers of the plan cannot be drawn period by period along it, or the plan
            has coverage.
    """
    if plan.has_coverage:
        raise InputError("a series cannot have coverage. Design the plan without coverage.")
    possible = plan.causal_attributes
    if periods in possible and periods is not None:
        return periods
    if periods is None and len(possible) == 1:
        return possible[0]
    if periods is None and possible:
        raise InputError(f"periods= must name one of these attributes: {', '.join(possible)}")
    of = "" if periods is None else f" with {periods!r} as the period"
    raise InputError(
        f"this plan cannot be released period by period{of}. Design the plan with "
        "periods=ATTRIBUTE (in a spec, [design] periods)."
    )


def _locate(folder: str | PathLike[str]) -> Path:
    """Return the absolute path of a folder, or raise InputError if it is in a store."""
    if is_url(folder):
        raise InputError(f"{folder} is a URL. Name a local folder for the series.")
    return Path(folder).absolute()


def _check_can_begin(plan: Plan, folder: str | PathLike[str], ledger: object, key: object) -> Path:
    """Check the needs of a series before anything is charged; return its absolute path.

    Raises:
        InputError: There is no ledger or key, nothing can be encrypted, or the folder is in a
            store.
        WorkloadError: The table of a group cannot be written.
        ImportError: pyarrow is not installed.
    """
    if not isinstance(ledger, Ledger) or not isinstance(key, str):
        raise InputError("a series needs ledger= and key=")
    check_encryption("a series")
    check_arrow()
    for group in plan.workload.groups:
        check_names(group)
    return _locate(folder)


def _check_charge(ledger: Ledger, charge: StagedCharge, record: SeriesRecord, place: Path) -> None:
    """Raise KeyTaken unless a charge belongs to this series in this folder."""
    number, stage = charge.entry.id, charge.stage
    if stage.answers != record.digest:
        raise KeyTaken(
            f"charge {number} of the ledger {ledger.path} has the key {record.key!r}, but is not "
            "for this series. Use another key.",
            number=number,
        )
    if stage.folder != encode_path(place) and not (place / SERIES_RECORD).is_file():
        raise KeyTaken(
            f"charge {number} of the ledger {ledger.path} is for a series in {stage.folder}. Name "
            "that folder, or use another key.",
            number=number,
        )


def _locate_key(named: str | PathLike[str] | None, key: str, owner: str, place: Path) -> KeyFile:
    """Locate the key of the exact counts of the series with digest `owner`."""
    return KeyFile.locate(named, f"the series {key!r}", owner, beside=(place,))


def _check_key_file(
    named: str | PathLike[str] | None, key: str, place: Path, find_owner: Callable[[], str]
) -> None:
    """Check before the charge that the key of a series can be stored.

    Args:
        named: The file that the publisher names, if any.
        key: The name of the series in the ledger.
        place: The folder of the series.
        find_owner: Returns the digest of the series if it is charged, and otherwise "".

    Raises:
        InputError: The file belongs to something else, or would lie next to the counts.
        FitplugError: It cannot be written.
    """
    is_there = named is not None and Path(named).exists()
    # The process that made the file has charged before, so the owner must be read afterwards.
    file = _locate_key(named, key, find_owner(), place)
    if is_there:
        file.find()
    else:
        file.check_writable()


def _prepare_folder(plan: Plan, place: Path, ledger: Ledger) -> None:
    """Make the folder of a series without a record yet, and write the plan.

    Raises:
        InputError: The folder has other content.
        LedgerError: The folder has a series that was not charged to this ledger.
        OSError: It cannot be written, or its name is too long.
    """
    if place.is_file():
        raise InputError(f"{place} is a file. Name a folder for the series.")
    place.mkdir(parents=True, exist_ok=True)
    # Names that begin with a dot are left from killed processes.
    names = {path.name for path in place.iterdir() if not path.name.startswith(".")}
    if SERIES_RECORD in names:
        record = SeriesRecord.read(place)
        if (record.entry, record.time) not in {
            (entry.id, entry.time) for entry in ledger.entries()
        }:
            raise LedgerError(
                f"{place} holds a series whose charge {record.entry} is not in the ledger "
                f"{ledger.path}. Restore the newest copy of the ledger, or name another folder."
            )
    if not names <= {PLAN} or (names and Plan.load(place / PLAN).digest != plan.digest):
        raise InputError(f"{place} already holds other files. Name a new or empty folder.")
    if PLAN not in names:
        plan.save(place / PLAN)
    # The hidden folder has a longer name. Find out before the charge whether it can be made.
    probe = locate_hidden(place, secrets.token_hex(32)).path
    probe.mkdir(mode=0o700)
    probe.rmdir()
