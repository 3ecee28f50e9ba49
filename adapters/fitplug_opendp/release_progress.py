"""Progress of a release: what was asked for, the charge, and how far the release has come."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from fitplug.errors import AlreadyReleased, BudgetError, FitplugError, KeyTaken, OverBudget
from fitplug.ledger import ChargeReference, ChargeRequest, Ledger, ReleaseCharges, StagedCharge
from fitplug.plan import Plan
from fitplug.release import Release, read_folder
from fitplug_opendp.count_checks import ALL_ROWS, CountedRows
from fitplug_opendp.gaussian import choose_contributions
from fitplug_opendp.output import Output
from fitplug_opendp.staging import (
    StagedAnswers,
    check_charges_are_known,
    holds_release,
    label_files,
    locate_kept_plan,
    remove_kept_plan,
)

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
        contributions: The largest number of records that one person may have; that of the plan's
            unit of privacy, if this is not one record.
        ledger: The ledger that is charged; None for a release that no ledger records.
        within: The number or the key of an earlier charge within which this release is free.
        what: The text of the charge; None for one that names the plan.
        key: The name of the release in the ledger, by which a retry is recognised.
        again: Whether to draw once more a plan that the ledger has a release of.
        replace: Whether an earlier release in the folder is moved aside.
    """

    plan: Plan
    rows: CountedRows = ALL_ROWS
    contributions: int = 1
    ledger: Ledger | None = None
    within: ChargeReference | None = None
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
        object.__setattr__(
            self, "contributions", choose_contributions(self.plan, self.contributions)
        )

    @property
    def is_enforced(self) -> bool:
        """Whether the counts keep no more records of a person than the unit says."""
        return self.rows.limited == "enforced"

    def make_ledger_request(self, rho: Fraction, output: str | None) -> ChargeRequest:
        """Make the request that the ledger is given.

        Args:
            rho: The exact charge.
            output: Where the release goes, as ledgers keep it; None if it stays in memory.
        """
        return ChargeRequest(
            plan=self.plan,
            rho=rho,
            what=self.what or f"release of plan {self.plan.digest[:12]}",
            contributions=self.contributions,
            key=self.key,
            within=self.within,
            again=self.again,
            output=output,
            in_folder=output is not None,
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
    if request.within is not None:
        raise BudgetError(
            f"within = {request.within!r} names a charge of a ledger: give the ledger"
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
    if stage.output is None:
        return KeyTaken(
            f"{_describe(charge, ledger)} was drawn in the memory of a process at "
            f"{stage.time[:19]}, and noise is never drawn again; give another key",
            number=charge.entry.id,
        )
    return FitplugError(
        f"{_describe(charge, ledger)} was drawn at {stage.time[:19]}, but its staged answers are "
        f"gone from beside {stage.output}, or damaged; put them back, or ask for another draw with "
        "a new key"
    )


def make_lost_folder_error(charge: StagedCharge, ledger: Ledger) -> FitplugError:
    """Make the error for a published release that its folder does not hold any more."""
    output = charge.stage.output
    return FitplugError(
        f"{_describe(charge, ledger)} was published in {output} at {charge.stage.time[:19]}, which "
        "does not hold it any more; look where it was moved to, as --replace moves releases to "
        f"{Path(str(output)).name}-<time>, or ask for another draw with a new key"
    )


def _describe(charge: StagedCharge, ledger: Ledger) -> str:
    """Return a charge, as the subject of a sentence."""
    return f"number {charge.entry.id} of the ledger {ledger.path}"


if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, kw_only=True)
class ReleaseProgress:
    """A release into a folder, and how far it has come.

    Attributes:
        request: What the caller asked for.
        ledger_request: What the ledger is asked to charge.
        output: Where the release goes.
        is_resumed: Whether all runs of the release stage their answers in one area.
        charge: The charge and its stage; None before it, and without a ledger.
        staged: Complete answers that are not published; None if there are none.
        run: What distinguishes this run from others.
    """

    request: ReleaseRequest
    ledger_request: ChargeRequest
    output: Output
    is_resumed: bool
    charge: StagedCharge | None = None
    staged: StagedAnswers | None = None
    run: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def state(self) -> ReleaseState:
        """How far the release has come."""
        if self.charge is None:
            return "new"
        return self.charge.stage.state if self.staged is None else "drawn"

    @property
    def needs_counts(self) -> bool:
        """Whether noise is still to be drawn, which takes exact counts."""
        is_published = self.charge is not None and self.charge.stage.state == "published"
        return self.staged is None and not is_published

    @property
    def charged_seal(self) -> str | None:
        """The seal of the exact counts that the ledger has charged for; None before the charge."""
        return None if self.charge is None else self.charge.stage.counts

    def is_charged(self) -> bool:
        """Return whether the ledger has the charge of this release now, or may have it."""
        try:
            return self.find_charge().charge is not None
        except (OverBudget, AlreadyReleased, KeyTaken):  # since this release was prepared
            return False
        except FitplugError:
            return True

    def find_charge(self) -> Self:
        """Return the publication with the charge and the stage that the ledger and folders tell."""
        ledger = self.request.ledger
        charge = find_charge(ledger, self.ledger_request)
        if charge is None or ledger is None:
            return self
        stage = charge.stage
        begun_at = self.output.locate(stage)
        if self.is_resumed and begun_at != self.output:
            raise KeyTaken(
                f"number {charge.entry.id} of the ledger {ledger.path} is a release into "
                f"{stage.output}: nothing was charged; finish it there, or give another key",
                number=charge.entry.id,
            )
        if stage.state == "charged":
            for output in (self.output, begun_at):
                published = output.read_digest()
                if published is not None and holds_release(output.place, charge.entry):
                    # The ledger is a copy from before this release was made, which the charge
                    # paid for.
                    seal = read_folder(output.place)[0]["seal"]
                    stage = ReleaseCharges(ledger).record_draw(
                        charge.entry, published, counts=seal, output=output.text
                    )
                    break
        if stage.state == "drawn" and self.output.locate(stage).read_digest() == stage.answers:
            # A process was killed after it had put the folder in place.
            stage = ReleaseCharges(ledger).record_publication(stage, self.output.locate(stage).text)
        return replace(self, charge=StagedCharge(charge.entry, stage), staged=None)

    def find_staged(self) -> Self:
        """Return the publication with the answers that are staged, if it is charged.

        Raises:
            FitplugError: The ledger has answers as drawn that are nowhere, or answers are damaged.
        """
        if self.charge is None or self.charge.stage.state == "published":
            return self
        entry, stage = self.charge.entry, self.charge.stage

        def fits(release: Release) -> bool:
            named = release.contributions, release.entry
            return named == (self.request.contributions, entry)

        output = self.output.locate(stage)
        staged = output.find_staged(self.request.plan, self.label, stage.answers, fits)
        if staged is None and stage.state == "drawn":
            current = self.find_charge()  # another process may just have published them
            if current.state == "published":
                return current
            assert self.request.ledger is not None
            raise make_lost_answers_error(self.charge, self.request.ledger)
        return replace(self, staged=staged)

    def check_charges(self, ledger: Ledger) -> None:
        """Check that nothing lies here which tells of a draw that the ledger does not know of.

        Raises:
            LedgerError: A release or staged answers name a charge that the ledger does not have.
            InputError: The folder where the release was begun holds files that may be its release.
        """
        check_charges_are_known(ledger, self.output.place, self.output.list_labels())
        stage = None if self.charge is None else self.charge.stage
        first = self.output.locate(stage)
        if stage is None or first == self.output:
            return
        check_charges_are_known(ledger, first.place)
        first.check_not_damaged(f"where number {stage.entry} of the ledger {ledger.path} was begun")

    @property
    def label(self) -> str:
        """What distinguishes the files of this release from those of others at the same output."""
        if self.charge is None:
            return f"{label_files(self.request.plan, None)}.{self.run}"
        return label_files(self.request.plan, self.charge.entry)

    def locate_plan(self, ledger: Ledger) -> Path:
        """Return the file of the plan, which is kept until the release is published."""
        output = self.output.text if self.charge is None else self.charge.entry.output
        return locate_kept_plan(ledger, self.request.plan.digest, self.request.key, output)

    def remove_leftovers(self, output: Output) -> None:
        """Remove what all runs left here, and at the output that an earlier try named."""
        for one in {self.output.text: self.output, output.text: output}.values():
            one.remove_staged(self.label)
        if self.request.ledger is not None:
            remove_kept_plan(self.locate_plan(self.request.ledger))

    def check_rows(self, release: Release) -> None:
        """Raise KeyTaken if a release that was drawn is of other rows than those asked for."""
        if self.charge is not None and self.request.ledger is not None:
            check_rows(self.charge, self.request.ledger, release, self.request.rows)
