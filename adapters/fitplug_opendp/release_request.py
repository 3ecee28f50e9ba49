"""Requests: what a release is asked for, its charge in the ledger, and why it cannot go on."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal, TypeAlias

from fitplug.errors import BudgetError, FitplugError, KeyTaken
from fitplug.ledger import ChargeReference, ChargeRequest, Ledger, ReleaseCharges, StagedCharge
from fitplug.plan import Plan
from fitplug.releases import Release
from fitplug_opendp.count_checks import ALL_ROWS, CountedRows

_LOG = logging.getLogger(__name__)

Phase: TypeAlias = Literal["check", "count", "draw", "store", "publish"]
"""A phase of a release."""


@contextmanager
def log_duration(phase: Phase) -> Iterator[None]:
    """Log how many seconds a phase took, once it has succeeded."""
    start = time.perf_counter()
    yield
    _LOG.info("the phase %r took %.1f s", phase, time.perf_counter() - start)


@dataclass(frozen=True)
class ReleaseRequest:
    """One release of a plan, in memory or into a folder.

    Attributes:
        plan: The plan whose noise is drawn.
        rows: The rows that are released; answers of other rows are not taken for these. If they
            are limited by person, a ledger that is kept for persons with more records charges no
            more.
        ledger: The ledger that is charged; None for a release that no ledger records.
        covered_by: The number or the key of an earlier charge that covers this release.
        what: The text of the charge; None for one that names the plan.
        key: The name of the release in the ledger, by which a retry is recognised.
        again: Whether to draw once more a plan that the ledger has a release of.
        replace: Whether an earlier release in the folder is moved aside.
    """

    plan: Plan
    rows: CountedRows = ALL_ROWS
    ledger: Ledger | None = None
    covered_by: ChargeReference | None = None
    what: str | None = None
    key: str | None = None
    again: bool = False
    replace: bool = False

    def __post_init__(self) -> None:
        if self.ledger is None and (self.key is not None or self.again or self.replace):
            raise BudgetError(
                "key, again and replace are for releases that a ledger counts: give the ledger"
            )
        if self.key is not None and self.again:
            raise BudgetError("again is for releases without a key: give another draw another key")

    @property
    def is_enforced(self) -> bool:
        """Whether the counts keep no more records of a person than the unit says."""
        return self.rows.limited == "enforced"

    def make_ledger_request(self, rho: Fraction, folder: str | None) -> ChargeRequest:
        """Make the request that the ledger is given.

        Args:
            rho: The exact charge.
            folder: Where the release goes, as ledgers keep it; None if it stays in memory.
        """
        return ChargeRequest(
            plan=self.plan,
            rho=rho,
            what=self.what or f"release of plan {self.plan.digest[:12]}",
            key=self.key,
            covered_by=self.covered_by,
            again=self.again,
            folder=folder,
            in_folder=folder is not None,
            is_enforced=self.is_enforced,
        )


def find_charge(ledger: Ledger | None, request: ChargeRequest) -> StagedCharge | None:
    """Find the charge that a request would be a retry of, without charging anything.

    Args:
        ledger: The ledger; None if there is none.
        request: What the ledger would be asked.

    Returns:
        The charge and how far its release has come; None if the ledger has no such charge yet.

    Raises:
        BudgetError: The request names an earlier charge, and there is no ledger.
        FitplugError: The ledger would refuse the request; see `ReleaseCharges.find`.
    """
    if ledger is not None:
        return ReleaseCharges(ledger).find(request)
    if request.covered_by is not None:
        raise BudgetError(
            f"covered_by = {request.covered_by!r} names a charge of a ledger: give the ledger"
        )
    return None


ReleaseState: TypeAlias = Literal["new", "charged", "drawn", "published"]
"""How far a release has come: nothing was charged; charged, and no answers were drawn; drawn, and
not in its folder; published.
"""


def check_rows(charge: StagedCharge, ledger: Ledger, release: Release, rows: CountedRows) -> None:
    """Raise KeyTaken if a release that was drawn is of other rows than those that are asked for."""
    drawn_from = CountedRows(release.rows, release.limited)
    if rows == drawn_from:
        return
    raise KeyTaken(
        f"{_describe(charge, ledger)} was drawn from {drawn_from}, and this release is of {rows}: "
        "nothing was charged; ask for what was drawn to finish it, or give another release "
        "another key",
        number=charge.entry.id,
    )


def make_lost_answers_error(charge: StagedCharge, ledger: Ledger) -> FitplugError:
    """Make the error for answers that the ledger has as drawn, and that are nowhere."""
    stage = charge.stage
    if stage.folder is None:
        return KeyTaken(
            f"{_describe(charge, ledger)} was drawn in the memory of a process at "
            f"{stage.time[:19]}, and noise is never drawn again; give another key",
            number=charge.entry.id,
        )
    return FitplugError(
        f"{_describe(charge, ledger)} was drawn at {stage.time[:19]}, but its staged answers are "
        f"gone from beside {stage.folder}, or damaged; put them back, or ask for another draw with "
        "a new key"
    )


def make_lost_folder_error(charge: StagedCharge, ledger: Ledger) -> FitplugError:
    """Make the error for a published release that its folder does not hold any more."""
    folder = charge.stage.folder
    return FitplugError(
        f"{_describe(charge, ledger)} was published in {folder} at {charge.stage.time[:19]}, which "
        "does not hold it any more; look where it was moved to, as --replace moves releases to "
        f"{Path(str(folder)).name}-<time>, or ask for another draw with a new key"
    )


def _describe(charge: StagedCharge, ledger: Ledger) -> str:
    """Return a charge, as the subject of a sentence."""
    return f"number {charge.entry.id} of the ledger {ledger.path}"
