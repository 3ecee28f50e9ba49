"""The publisher's call: charge, draw the noise once, release."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

import numpy as np

from fitplug.answers import exact_answers as strategy_answers
from fitplug.cellcosts import CellCosts, check_contributions
from fitplug.errors import BudgetError, TablesError
from fitplug.ledger import Ledger, Which
from fitplug.plan import Plan
from fitplug.release import Release
from fitplug.rounding import ceil_float
from fitplug.tables import Tables
from fitplug_opendp.gaussian import Progress, noise, opendp, sampler, sensitivity

_CONSENT = threading.Lock()


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
    ledger: charged rho before any noise is drawn; what, key, output: see `Ledger.charge`. What the
    plan costs each cell is kept with the charge.
    within: an earlier charge, by its key or number: nothing is charged, if at no cell the costs add
    up to more than that charge; see `Ledger.charge_free`. Both must have counted the same records:
    tables whose records of a person were chosen by a hash are refused.
    progress: called with (answers drawn, answers in all) while many are drawn.

    OpenDP's "contrib" feature, which its Gaussian constructor asks for, is switched on for the
    length of this call only: the call itself is the consent.
    Raises TablesError, BudgetError, OverBudget, LedgerError; then nothing was charged or drawn.
    """
    check_contributions(contributions)
    if within is not None and ledger is None:
        raise BudgetError(f"within = {within!r} is a charge of a ledger: give the ledger too")
    check_limit(tables, contributions)
    if within is not None and tables.contributions is not None:
        raise BudgetError(
            f"within = {within!r} needs tables of the same records as that charge, but these were "
            "limited by person, which keeps others each time; charge this release"
        )
    answers = exact_answers(plan, tables)
    with _contrib():
        noisy, draw = noise(plan), sampler(plan)
    rho = noisy.map(sensitivity(plan, contributions))
    entry = None
    if ledger is not None:
        what = what or f"release of plan {plan.digest[:12]}"
        if within is None:
            costs = CellCosts.of(plan, contributions)
            entry = ledger.charge(
                _charged(Fraction(rho), costs),
                what=what,
                key=key,
                plan_digest=plan.digest,
                output=output,
                profile=costs,
            )
        else:
            entry = ledger.charge_free(
                plan,
                within=within,
                what=what,
                contributions=contributions,
                key=key,
                output=output,
            )
    drawn = draw(answers, progress)
    return Release(plan=plan, answers=drawn, rho=rho, contributions=contributions, entry=entry)


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
    """Raise TablesError if the tables are of another domain, do not hold what the plan needs, or
    count more records than its integers hold.
    """
    for names in plan.tables:
        for name in names:
            if name not in tables.domain or tables.domain[name] != plan.domain[name]:
                raise TablesError(
                    f"the tables do not match the plan: their attribute {name!r} is missing or "
                    "has other cells; count them again with this plan"
                )
    if int(tables.marginal(()).sum()) > plan.strategy.max_records:
        raise TablesError(
            f"the tables count more than {plan.strategy.max_records} records, the most that this "
            "plan's 64-bit integers hold; integers would overflow"
        )
    for names in plan.tables:
        tables.marginal(names)


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
