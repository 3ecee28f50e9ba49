"""Series of releases, by the adapter that provides them."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from fitplug.adapters.entry_points import call_adapter
from fitplug.counts import AttributeSet, Source, Tables
from fitplug.errors import check_type
from fitplug.ledger import Ledger
from fitplug.plan import Plan
from fitplug.releases import PartialRelease, Release
from fitplug.workload import DEFAULT_CONFIDENCE


class Series(Protocol):
    """A series: the release of one plan in parts, one for each period. It is charged once.

        series = fp.open_series("jobs/", ledger=ledger)
        series.release("2024-02", "february.parquet")

    `begin_series` and `open_series` return a series. The folder of the series holds everything that
    has been released so far, for `read`. The Python object holds no data.
    """

    @property
    def folder(self) -> Path:
        """The absolute path of the series' folder."""

    @property
    def plan(self) -> Plan:
        """The plan, whose answers can be drawn period by period."""

    @property
    def rho(self) -> float:
        """The privacy cost (zCDP) of the whole series, in the plan's unit of privacy."""

    @property
    def key_file(self) -> Path | None:
        """The file with the key of the encrypted counts; None if the series can only be read."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The periods, in their order."""

    @property
    def tables(self) -> tuple[AttributeSet, ...]:
        """The attribute sets to count with `fp.count(source, (plan.domain, series.tables))`."""

    def read(self) -> PartialRelease:
        """Read what has been released so far.

        Raises:
            InputError: A file is damaged or was edited.
            FitplugError: The folder and the ledger do not agree on what has been released.
        """

    def release(
        self, period: Any, data: Source | Tables | Callable[[], Tables] | Any = None
    ) -> PartialRelease:
        """Draw the noise of a period, once, and write its folder.

        For a period that was drawn before, this returns what was released and does not read the
        data. If an earlier call was interrupted, this call continues it with the counts that were
        stored then.

        Args:
            period: The period: a value of the attribute, or its text.
            data: Exact counts that include all tables of `Series.tables`; or a function that
                returns these counts; or a `Source` or a path. Only the cells of this period are
                used. The counts must be final, because neither this release nor a later release
                includes changes that are made to the data afterwards.

        Returns:
            Everything that has been released so far, including this period.

        Raises:
            InputError: There is no such period, an earlier period is not drawn yet, the series is
                closed, `data` is needed but not given, or a file is damaged.
            FitplugError: As for `fitplug.release`. Repeating the call then finishes the period.
        """

    def close(self) -> None:
        """End the series before its last period. No part of the charge is refunded."""

    def to_release(self) -> Release:
        """Combine all periods into one release, as if all periods had been drawn at once.

        Raises:
            InputError: A period is not drawn yet.
        """

    def verify(self) -> None:
        """Check that the tables in the folders of all periods agree with the answers.

        Raises:
            InputError: A file is missing, damaged or was edited; the message names it.
        """


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
    """Begin a series, a release period by period: charge its rho to the ledger and make its folder.

        series = fp.begin_series(plan, "jobs/", ledger=ledger, key="jobs 2024")
        series.release("2024-01", "january.parquet")

    The plan's rho is charged once, for all periods together. No noise is drawn yet. If the call is
    interrupted, repeat it; this costs nothing more. Once the series has begun, the same call opens
    it.

    Args:
        plan: A plan whose answers can be drawn period by period: `fitplug.design(..., periods=)`.
        folder: The folder of the series; new or empty when the series begins.
        ledger: The ledger that is charged, and that later records which periods are drawn.
        key: The name of the series in the ledger.
        periods: The attribute whose cells are the periods; None if the plan can be drawn period by
            period along only one attribute.
        what: A text that describes the charge in the ledger.
        confidence: The confidence of the intervals in the tables, for groups whose target has no
            confidence.
        display: Whether to make display tables for each period, too. Display tables of earlier
            periods do not change.
        key_file: A new file for the key that encrypts the exact counts, which are stored next to
            the folder. The file must not lie next to these counts. By default it is in your
            account's folder of local state; see `Series.key_file`. Back up the key file separately
            from the counts: without it, no later period can be released. It is removed after the
            last period.

    Returns:
        The series, ready for its first period.

    Raises:
        ImportError: A library is not installed; the message says how to install it.
        InputError: The plan's answers cannot be drawn period by period, the folder is in use for
            something else, or the key file would lie next to the exact counts.
        OverBudget: The series costs more than the ledger has left.
        KeyTaken: The key belongs to another release.
        LedgerError: The ledger cannot be read or written.
        WorkloadError: A table cannot be written, or display tables cannot be made.
        PlanError: The plan fails its verification, or its answers cost more than the charge.
        SamplerError: OpenDP's sampler fails its test.
        FitplugError: A file cannot be written.
    """
    charge = {"ledger": ledger, "key": key, "what": what}
    check_type("plan", plan, Plan, "fitplug.begin_series(plan, folder, ledger=..., key=...)")
    series: Series = call_adapter(
        "begin_series",
        plan,
        folder,
        periods=periods,
        confidence=confidence,
        display=display,
        key_file=key_file,
        **charge,
    )
    return series


def open_series(
    folder: str | PathLike[str],
    *,
    ledger: Ledger | None = None,
    key_file: str | PathLike[str] | None = None,
) -> Series:
    """Open a series that was begun, to draw its next period or to read it.

        series = fp.open_series("jobs/", ledger=ledger)

    Args:
        folder: The folder of the series.
        ledger: The ledger that the series was charged to. Without a ledger, the series can be read
            but not continued, and fitplug does not check that the series was charged.
        key_file: The file with the encryption key of the exact counts, without which no further
            period can be released. Name the file if you gave `key_file` to `begin_series` or moved
            the file.

    Returns:
        The series.

    Raises:
        ImportError: A library is not installed; the message says how to install it.
        InputError: The folder is not a folder of a series, or it is damaged; or the key file lies
            next to the exact counts.
        LedgerError: The ledger cannot be read, or the series was not charged to it.
    """
    series: Series = call_adapter("open_series", folder, ledger=ledger, key_file=key_file)
    return series
