"""What a caller asks of `release` and `publish`, and the charge that pays for it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Literal, TypeAlias

from fitplug.errors import BudgetError, FitplugError, KeyTaken
from fitplug.ledger import ChargeReference, ChargeRequest, Entry, Ledger, Stage, StagedCharge
from fitplug.plan import Plan
from fitplug.release import Release
from fitplug_opendp.count_checks import CountedRows
from fitplug_opendp.gaussian import choose_contributions
from fitplug_opendp.staging import encode_path


@dataclass(frozen=True)
class ReleaseRequest:
    """One release of a plan, in memory or into a folder.

    Attributes:
        plan: The plan whose noise is drawn.
        directory: The release folder; None for a release in memory.
        contributions: The largest number of records that one person may have; that of the plan's
            unit of privacy, if this is not one record.
        ledger: The ledger that is charged; None for a release that no ledger records.
        within: The number or the key of an earlier charge within which this release is free.
        what: The text of the charge; None for one that names the plan.
        key: The name of the release in the ledger, by which a retry is recognised.
        again: Whether to draw once more a plan that the ledger has a release of.
        replace: Whether an earlier release in the folder is moved aside.
        output: The place of a release in memory, as a text for the ledger. A release into a folder
            enters the folder.
        is_enforced: Whether the counts keep no more records of a person than the unit says. A
            ledger that is kept for persons with more records then charges no more.
    """

    plan: Plan
    directory: str | PathLike[str] | None = None
    contributions: int = 1
    ledger: Ledger | None = None
    within: ChargeReference | None = None
    what: str | None = None
    key: str | None = None
    again: bool = False
    replace: bool = False
    output: str | None = None
    is_enforced: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "contributions", choose_contributions(self.plan, self.contributions)
        )

    def make_ledger_request(self, rho: Fraction) -> ChargeRequest:
        """Make the request that the ledger is given, for an exact rho."""
        return ChargeRequest(
            plan=self.plan,
            rho=rho,
            what=self.what or f"release of plan {self.plan.digest[:12]}",
            contributions=self.contributions,
            key=self.key,
            within=self.within,
            again=self.again,
            output=self.output if self.directory is None else encode_path(self.directory),
            in_folder=self.directory is not None,
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
        FitplugError: The ledger would refuse the request; see `Ledger.find_release`.
    """
    if ledger is not None:
        return ledger.find_release(request)
    if request.within is not None:
        raise BudgetError(
            f"within = {request.within!r} names a charge of a ledger: give the ledger"
        )
    return None


ReleaseState: TypeAlias = Literal["new", "charged", "drawn", "published"]
"""How far a release has come: nothing was charged; charged, and no answers were drawn; drawn, and
not in its folder; published.
"""


@dataclass(frozen=True)
class ReleaseCharge:
    """An entry of a ledger that pays for a release into a folder.

    Attributes:
        ledger: The ledger.
        entry: The entry, whose number identifies the charge.
    """

    ledger: Ledger
    entry: Entry

    def read_stage(self) -> Stage | None:
        """Read from the ledger how far the release has come."""
        return self.ledger.stages().get(self.entry.id)

    def check_rows(self, release: Release, rows: CountedRows) -> None:
        """Raise KeyTaken if this release was drawn from other rows than those that are given."""
        drawn_from = CountedRows(release.rows, release.limited)
        if rows == drawn_from:
            return
        raise KeyTaken(
            f"{self._subject} was drawn from {drawn_from}, and this release is of {rows}: nothing "
            "was charged; ask for what was drawn to finish it, or give another release another key",
            number=self.entry.id,
        )

    def make_lost_answers_error(self) -> FitplugError:
        """Make the error for answers that the ledger has as drawn, and that are nowhere."""
        stage = self.read_stage()
        assert stage is not None
        if stage.output is None:
            return KeyTaken(
                f"{self._subject} was drawn in the memory of a process at {stage.time[:19]}, and "
                "noise is never drawn again; give another key",
                number=self.entry.id,
            )
        return FitplugError(
            f"{self._subject} was drawn at {stage.time[:19]}, but its staged answers are gone from "
            f"beside {stage.output}, or damaged; put them back, or ask for another draw with a new "
            "key"
        )

    def make_lost_folder_error(self, stage: Stage, folder: Path) -> FitplugError:
        """Make the error for a published release that its folder does not hold any more."""
        return FitplugError(
            f"{self._subject} was published in {folder} at {stage.time[:19]}, which does not hold "
            f"it any more; look beside it, as --replace moves releases to {folder.name}-<time>, or "
            "ask for another draw with a new key"
        )

    @property
    def _subject(self) -> str:
        """The charge, as the subject of a sentence."""
        return f"number {self.entry.id} of the ledger {self.ledger.path}"
