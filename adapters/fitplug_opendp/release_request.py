"""Requests for releases, their charges in the ledger, and errors if they cannot continue."""

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
    """Log the duration of a phase in seconds, if it succeeds."""
    start = time.perf_counter()
    yield
    _LOG.info("the phase %r took %.1f s", phase, time.perf_counter() - start)


@dataclass(frozen=True)
class ReleaseRequest:
    """One release of a plan, in memory or into a folder.

    Attributes:
        plan: The plan whose noise is drawn.
        rows: The rows that are released; answers of other rows are not accepted for these. If the
            rows per person are limited, a ledger whose unit has more records charges no more.
        ledger: The ledger to charge; None for a release that no ledger records.
        covered_by: The number or the key of an earlier charge that covers this release.
        what: The text of the charge; None for one that names the plan.
        key: The name of the release in the ledger, by which a retry is recognised.
        again: Whether to draw a plan again that was released before.
        replace: Whether to move an earlier release in the folder aside.
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
            raise BudgetError("key=, again= and replace= need a ledger. Add ledger=.")
        if self.key is not None and self.again:
            raise BudgetError(
                "again= and key= cannot be combined. For another release, use another key."
            )

    @property
    def is_enforced(self) -> bool:
        """Whether the counts enforce the unit's limit on the records per person."""
        return self.rows.limited == "enforced"

    def make_ledger_request(self, rho: Fraction, folder: str | None) -> ChargeRequest:
        """Make the request to the ledger.

        Args:
            rho: The exact charge.
            folder: The folder of the release, as ledgers record it; None for memory.
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
    """Find the charge of which a request would be a retry, without charging anything.

    Args:
        ledger: The ledger; None if there is none.
        request: The request to the ledger.

    Returns:
        The charge and the stage of its release; None if the ledger has no such charge yet.

    Raises:
        BudgetError: The request names an earlier charge, and there is no ledger.
        FitplugError: The ledger would refuse the request; see `ReleaseCharges.find`.
    """
    if ledger is not None:
        return ReleaseCharges(ledger).find(request)
    if request.covered_by is not None:
        raise BudgetError("covered_by= needs a ledger. Add ledger=.")
    return None


ReleaseState: TypeAlias = Literal["new", "charged", "drawn", "published"]
"""The state of a release: nothing was charged; charged, but not drawn; drawn, but not in its
folder; published.
"""


def check_rows(charge: StagedCharge, ledger: Ledger, release: Release, rows: CountedRows) -> None:
    """Raise KeyTaken if a drawn release is of other rows than the requested ones."""
    drawn_from = CountedRows(release.rows, release.limited)
    if rows == drawn_from:
        return
    raise KeyTaken(
        f"the rows of {_describe(charge, ledger)} ({drawn_from}) differ from the given rows "
        f"({rows}). Use another key.",
        number=charge.entry.id,
    )


def make_lost_answers_error(charge: StagedCharge, ledger: Ledger) -> FitplugError:
    """Make the error for answers that the ledger has entered as drawn but that are missing."""
    stage = charge.stage
    if stage.folder is None:
        return KeyTaken(
            f"the release of {_describe(charge, ledger)} was made in memory at {stage.time[:19]} "
            "and cannot be repeated. Use another key.",
            number=charge.entry.id,
        )
    return FitplugError(
        f"the answers of {_describe(charge, ledger)} in the hidden folder next to {stage.folder} "
        "are missing or damaged. Restore this hidden folder, or use another key."
    )


def make_lost_folder_error(charge: StagedCharge, ledger: Ledger) -> FitplugError:
    """Make the error for a published release that is no longer in its folder."""
    folder = charge.stage.folder
    return FitplugError(
        f"the release of {_describe(charge, ledger)} is no longer in {folder}. Look for "
        f"{Path(str(folder)).name}-<time>, or use another key."
    )


def _describe(charge: StagedCharge, ledger: Ledger) -> str:
    """Name a charge as the subject of a sentence."""
    return f"charge {charge.entry.id} of the ledger {ledger.path}"
