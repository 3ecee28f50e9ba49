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
    """The releases of one plan, drawn period by period and charged once.

        series = fp.open_series("jobs/", ledger=ledger)
        series.release("2024-02", "february.parquet")

    `begin_series` and `open_series` make a series. Its folder holds everything released so
    far, and `read` reads it. The object itself holds no data.
    """

    @property
    def folder(self) -> Path:
        """The absolute path of the series' folder."""

    @property
    def plan(self) -> Plan:
        """The plan, whose answers can be drawn period by period."""

    @property
    def rho(self) -> float:
        """The cost of the whole series in rho of zCDP, for one person in the plan's unit."""

    @property
    def key_file(self) -> Path | None:
        """The key file of the encrypted counts; None for a series that can only be read."""

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
            FitplugError: The folder and the ledger contradict each other.
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
            data: Exact counts with at least `tables`; or a function that returns them; or a
                `Source` or its path. Only the cells of this period are used. The counts must be
                final: no release includes later changes of the data.

        Returns:
            What is released so far, with this period.

        Raises:
            InputError: There is no such period, an earlier period is not drawn yet, the series is
                closed, the counts are needed and not given, or a file is damaged.
            FitplugError: As for `fitplug.release`. Repeating the call then finishes the period.
        """

    def close(self) -> None:
        """End the series before its last period. Nothing is refunded."""

    def to_release(self) -> Release:
        """Make the release of all periods, as if all had been drawn at once.

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
    """Charge a series of releases, one for each period, and make its folder. Nothing is drawn.

        series = fp.begin_series(plan, "jobs/", ledger=ledger, key="jobs 2024")
        series.release("2024-01", "january.parquet")

    The rho of the plan is charged once, for all periods together. To finish an interrupted call,
    repeat it, at no further cost. Once the series has begun, the same call opens it.

    Args:
        plan: A plan whose answers can be drawn period by period: `fitplug.design(..., periods=)`.
        folder: The folder of the series, a new or empty one.
        ledger: The ledger that is charged, and that later records which periods are drawn.
        key: The name of the series in the ledger.
        periods: The attribute whose cells are the periods; None if the plan has only one.
        what: The text to record in the ledger with the charge.
        confidence: The confidence of the tables' intervals for groups whose target has no
            confidence.
        display: Whether each period gets display tables too. They do not change the numbers in
            earlier display tables.
        key_file: The file for the key of the exact counts, which are kept encrypted next to the
            folder. Name a new file in another place. By default it is a file in your account,
            `Series.key_file`. Back it up separately from the counts: without it, no later period
            can be released. It is removed after the last period.

    Returns:
        The series, ready for its first period.

    Raises:
        ImportError: A library is not installed; the message says how to install it.
        InputError: The plan's answers cannot be drawn period by period, the folder holds something
            else, or the key file would lie next to the counts.
        OverBudget: The ledger has less left than the series costs.
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
            but not continued, and fitplug does not check its charge.
        key_file: The key file, if you gave one to `begin_series` or moved it. Drawing a period
            needs it.

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
