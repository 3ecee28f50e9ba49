"""The publisher's call: charge, draw the noise once, release. `fitplug_opendp.publication` does the
same into a folder.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from fitplug.counts import Tables
from fitplug.errors import BudgetError, KeyTaken, TablesError
from fitplug.ledger import Begun, CellCosts, Entry, Ledger, Request, Which, check_contributions
from fitplug.mechanism import exact_answers as strategy_answers
from fitplug.mechanism import may_be_clamped
from fitplug.numeric import ceil_float
from fitplug.plan import Plan
from fitplug.release import Limited, Release, answers_digest
from fitplug_opendp.advice import counting, type_of
from fitplug_opendp.gaussian import Progress, noise, opendp, sampler, sensitivity

_CONSENT = threading.Lock()

CLAMPED = (
    "some answers are as large as 64-bit integers hold, so estimates of this release may be far "
    "too small: count fewer records, or design a plan of fewer or smaller tables"
)
"""Said of noisy answers, which is free: see `fitplug.mechanism.answers.may_be_clamped`."""


def release(
    plan: Plan,
    tables: Tables,
    *,
    contributions: int = 1,
    ledger: Ledger | None = None,
    within: Which | None = None,
    what: str | None = None,
    key: str | None = None,
    output: str | None = None,
    progress: Progress | None = None,
) -> Release:
    """Draw the plan's noise through OpenDP, once, and release the answers.

    tables: exact counts holding at least `plan.tables`.
    contributions: most records one person may have; k of them cost k^2 rho. Tables that were
    limited to more are refused.
    ledger: charged rho before any noise is drawn; what, output: see `Ledger.charge`. What the plan
    costs each cell is kept with the charge.
    key: a name for the release. After a process was killed before it had the noise, the same call
    with the same key releases at no further cost; once the noise was drawn, the key is refused.
    within: an earlier charge, by its key or number: nothing is charged, if at no cell the costs add
    up to more than that charge; see `Ledger.charge_free`. Both must have counted the same records:
    tables whose records of a person were chosen by a hash, or whose rows were weighted or filtered,
    must be those of that charge.
    progress: called with (answers drawn, answers in all) while many are drawn.

    OpenDP's "contrib" feature, which its Gaussian constructor asks for, is switched on for the
    length of this call only: the call itself is the consent.
    Raises TablesError, BudgetError, OverBudget, LedgerError; then nothing was charged or drawn.
    What the ledger and the plan refuse is refused before any look at the counts.
    """
    check_are_tables(tables)
    mechanism = Mechanism.of(plan, contributions)
    check_limit(tables, contributions)
    request = mechanism.request(what=what, key=key, within=within, output=output)
    check_ledger(ledger, request)
    answers = exact_answers(plan, tables)
    if ledger is None:
        return mechanism.draw(tables, answers, progress)
    begun = ledger.begin(request, seal_of(tables))
    if begun.stage.state != "begun":
        raise _made_before(ledger, begun.entry)
    drawn = mechanism.draw(tables, answers, progress, begun.entry)
    digest = answers_digest(drawn)
    # Nobody has seen this draw. If another process was first, its draw is the one that is paid for.
    if ledger.mark_made(begun.entry, digest, counts=drawn.seal).answers != digest:
        raise _made_before(ledger, begun.entry)
    return drawn


@dataclass(frozen=True)
class Mechanism:
    """A plan's noise, ready to be drawn. rho: for all records of one person, rounded up as OpenDP's
    map does; charged: what a ledger is charged, exact.
    """

    plan: Plan
    contributions: int
    rho: float
    charged: Fraction
    sample: Callable[[npt.NDArray[np.int64], Progress | None], npt.NDArray[np.int64]]

    @classmethod
    def of(cls, plan: Plan, contributions: int) -> Mechanism:
        """Raises BudgetError for contributions out of range, ImportError without OpenDP."""
        check_contributions(contributions)
        with _contrib():
            noisy, sample = noise(plan), sampler(plan)
        rho = noisy.map(sensitivity(plan, contributions))
        charged = _charged(Fraction(rho), CellCosts.of(plan, contributions))
        return cls(plan, contributions, rho, charged, sample)

    def request(
        self,
        *,
        what: str | None,
        key: str | None = None,
        within: Which | None = None,
        again: bool = False,
        output: str | None = None,
        in_folder: bool = False,
    ) -> Request:
        """What a ledger is asked for this release."""
        return Request(
            plan=self.plan,
            rho=self.charged,
            what=what or f"release of plan {self.plan.digest[:12]}",
            contributions=self.contributions,
            key=key,
            within=within,
            again=again,
            output=output,
            in_folder=in_folder,
        )

    def draw(
        self,
        tables: Tables,
        answers: npt.NDArray[np.int64],
        progress: Progress | None,
        entry: Entry | None = None,
    ) -> Release:
        """The release of the exact answers (n,) of tables: draws the noise."""
        noisy = self.sample(answers, progress)
        if may_be_clamped(noisy, self.plan.noise_std):
            warnings.warn(CLAMPED, RuntimeWarning, stacklevel=3)
        return Release(
            plan=self.plan,
            answers=noisy,
            rho=self.rho,
            contributions=self.contributions,
            entry=entry,
            limited=limit_of(tables),
            rows=tables.rows,
            seal=seal_of(tables),
            outside=outside_of(self.plan, tables),
        )


@dataclass(frozen=True)
class Understood:
    """Which rows a release is of: how they were understood (`Tables.rows`), and whether those of a
    person were limited.
    """

    rows: str | None
    limited: Limited | None

    @classmethod
    def of(cls, tables: Tables) -> Understood:
        """Those of counts."""
        return cls(tables.rows, limit_of(tables))

    def __str__(self) -> str:
        limited = ", limited by person" if self.limited == "enforced" else ""
        return f"{self.rows or 'rows that are one record each'}{limited}"


def check_ledger(ledger: Ledger | None, request: Request) -> Begun | None:
    """The charge that the ledger would find, if any. Raises what it would refuse, looks at no
    counts, and charges nothing.
    """
    if ledger is not None:
        return ledger.look(request)
    if request.within is not None:
        raise BudgetError(f"within = {request.within!r} is a charge of a ledger: give the ledger")
    return None


def seal_of(tables: Tables) -> str | None:
    """The seal of counts that may be of other records than another count: of a person those that a
    hash chose, or those of weighted or filtered rows, where a person may be in another cell. None
    for counts of all rows.
    """
    return None if tables.contributions is None and tables.rows is None else tables.seal


def limit_of(tables: Tables) -> Limited:
    """Whether the count kept only so many records of each person."""
    return "declared" if tables.contributions is None else "enforced"


def outside_of(plan: Plan, tables: Tables) -> tuple[str, ...]:
    """The attributes that the plan does not use, by whose values these counts left records out."""
    used = {name for names in plan.tables for name in names}
    held = {name for names in tables for name in names} - used
    domain = tables.domain
    return tuple(name for name in domain.names if name in held and domain[name].null_code < 0)


def _made_before(ledger: Ledger, entry: Entry) -> KeyTaken:
    return KeyTaken(
        f"the ledger {ledger.path} has the release under the key {entry.key!r} as drawn already, "
        f"at {entry.time}: nothing more was charged, and its noise is never drawn again; give "
        "another release another key",
        number=entry.id,
    )


def cost(plan: Plan, contributions: int) -> float:
    """What `release` charges: rho for all records of one person, rounded up."""
    exact = (Fraction(sensitivity(plan, contributions)) / Fraction(plan.noise_std)) ** 2 / 2
    return ceil_float(_charged(exact, CellCosts.of(plan, contributions)))


def _charged(rho: Fraction, costs: CellCosts) -> Fraction:
    # The costs per cell, rounded up for one record, may be a last digit more for many.
    return max(rho, costs.rho())


def exact_answers(plan: Plan, tables: Tables) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """A x, the exact integers (n,) that get the noise. Confidential. Raises as `check_tables`."""
    check_tables(plan, tables)
    return strategy_answers(plan.strategy, tables.marginal)


def check_tables(plan: Plan, tables: Tables) -> None:
    """Raise TablesError if the tables are of another domain or do not hold what the plan needs.
    How many records they count has no say: beyond what the plan's integers hold, answers are
    clamped, which the noisy ones tell of. A refusal would tell the exact number.
    """
    for names in plan.tables:
        for name in names:
            if name not in tables.domain or tables.domain[name] != plan.domain[name]:
                raise TablesError(
                    f"the tables do not match the plan: their attribute {name!r} is missing or "
                    "has other cells; count them again with this plan"
                )
    for names in plan.tables:
        tables.marginal(names)


def check_are_tables(tables: object) -> None:
    """Raise TablesError, which says how to count, for frames and whatever else is no Tables."""
    if not isinstance(tables, Tables):
        raise TablesError(
            f"tables must be fitplug.Tables, exact counts, not {type_of(tables)}; "
            + counting(tables)
        )


def check_limit(tables: Tables, contributions: int) -> None:
    """Raise TablesError if the tables were limited to more records a person than are claimed."""
    if tables.contributions is not None and tables.contributions > contributions:
        raise TablesError(
            f"the tables hold up to {tables.contributions} records of a person, but the release "
            f"is charged for {contributions}; count again with contributions={contributions}, or "
            f"release with contributions={tables.contributions}"
        )


@contextmanager
def _contrib() -> Iterator[None]:
    dp = opendp()
    from opendp.mod import GLOBAL_FEATURES

    with _CONSENT:  # OpenDP's features are one set for all threads
        already = "contrib" in GLOBAL_FEATURES
        dp.enable_features("contrib")
        try:
            yield
        finally:
            if not already:
                dp.disable_features("contrib")
