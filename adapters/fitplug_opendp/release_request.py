"""What a caller asks of `release` and `publish`, as one object."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from os import PathLike

from fitplug.errors import BudgetError
from fitplug.ledger import ChargeReference, ChargeRequest, Ledger, StagedCharge
from fitplug.plan import Plan
from fitplug_opendp.folder_checks import encode_path
from fitplug_opendp.gaussian import choose_contributions


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
