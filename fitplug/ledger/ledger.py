"""The ledger: a budget of privacy in rho of zCDP, kept in a file that outlives every process.

Amounts are rational numbers, kept and summed exactly, so that whether a charge fits never depends
on rounding; as floats, `spent` is rounded up and `remaining` down. One SQLite file in write-ahead
mode, which needs a local disk; a charge is one transaction, on the disk before `charge` returns.

Damage, edits, and entries removed are noticed (see `fitplug.ledger.rows`). An older copy of the
whole file put back in its place cannot be: what was charged since would be forgotten.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

from fitplug.domain import Domain
from fitplug.errors import BudgetError, InputError
from fitplug.ledger import cell_costs as cellcosts
from fitplug.ledger import rows as rows
from fitplug.ledger import rules as rules
from fitplug.ledger.cell_costs import CellCosts
from fitplug.ledger.file import LedgerFile
from fitplug.ledger.measurement_cost import measured_rho
from fitplug.ledger.rows import Budget, Entry
from fitplug.ledger.rules import Begun, Request, Which
from fitplug.ledger.stages import Stage, State
from fitplug.numeric import FloatArray, ceil_float, floor_float, read_exact_number
from fitplug.plan import Plan
from fitplug.privacy import rho_at

_LOG = logging.getLogger("fitplug.ledger")


@dataclass(frozen=True)
class _Charge:
    """A charge that is allowed, to be entered."""

    rho: Fraction
    what: str
    key: str | None
    plan_digest: str | None
    output: str | None
    within: int | None
    costs: CellCosts | None

    def enter(self, database: sqlite3.Connection, budget: Budget) -> tuple[Entry, Budget]:
        """The entry, and the budget after it."""
        entry = Entry(
            id=budget.entries + 1,
            time=_now(),
            rho=self.rho,
            what=self.what,
            key=self.key,
            plan_digest=self.plan_digest,
            output=self.output,
            within=self.within,
            profile=None if self.costs is None else self.costs.digest,
        )
        return entry, rows.add(database, budget, entry, self.costs)


class Ledger:
    """A budget in rho of zCDP that several threads and processes may charge.

    rho: the whole budget, kept exactly. Needed to begin a ledger at `path`; to open one, leave it
        out or give the same.
    epsilon, delta: instead of rho, the largest rho that is proven to be (epsilon, delta).
    Raises BudgetError for a budget out of range or given twice, and LedgerError for no ledger and
    no budget, for a ledger of another budget, or for a file that cannot be used. A file of schema
    version 1 is brought to the present one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        rho: float | Fraction | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> None:
        given = _whole(rho, epsilon, delta)
        self._file = LedgerFile(path)
        if not self._file.exists():
            if given is None:
                raise self._file.error(
                    "does not exist yet: give the whole budget, rho or epsilon and delta, to begin "
                    "it"
                )
            self._file.begin(given)
        self._file.upgrade()
        held, _ = self._read()
        if given is not None and not _same(held, given):
            asked = f"{rho!r}" if rho is not None else f"epsilon = {epsilon!r} at delta = {delta!r}"
            kept = f"rho = {floor_float(held.total)!r}"
            if held.epsilon is not None:
                kept += f", epsilon = {held.epsilon!r} at delta = {held.delta!r}"
            raise self._file.error(
                f"holds a budget of {kept}, not {asked}: give that or none, or name another file "
                "if this is for the data of other people"
            )

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def total(self) -> float:
        """The whole budget, rho of zCDP, rounded down. Raises LedgerError."""
        return floor_float(self._budget().total)

    @property
    def spent(self) -> float:
        """The sum of all charges, rho of zCDP, rounded up. Raises LedgerError."""
        return ceil_float(self._budget().spent)

    @property
    def remaining(self) -> float:
        """What is left, rho of zCDP, rounded down: a charge of it fits. Raises LedgerError."""
        return floor_float(self._budget().left)

    @property
    def privacy(self) -> tuple[float, float] | None:
        """(epsilon, delta), if the whole budget was given as that. Raises LedgerError."""
        budget = self._budget()
        if budget.epsilon is None or budget.delta is None:
            return None
        return budget.epsilon, budget.delta

    def entries(self) -> tuple[Entry, ...]:
        """All charges, oldest first; verifies the whole ledger. Raises LedgerError."""
        return self._read()[1]

    def statement(self) -> tuple[Budget, tuple[Entry, ...]]:
        """The budget, in exact amounts, and all charges, of one moment; verifies the whole ledger.

        Raises LedgerError.
        """
        return self._read()

    def check(self, rho: float | Fraction) -> None:
        """Charge nothing; raise as charging rho would: OverBudget, BudgetError, LedgerError.

        Verifies the whole ledger.
        """
        rules.check_fits(self._file, _exact(rho), self._read()[0].left)

    def charge(
        self,
        rho: float | Fraction,
        *,
        what: str,
        key: str | None = None,
        plan_digest: str | None = None,
        output: str | None = None,
        profile: CellCosts | None = None,
    ) -> Entry:
        """Charge exactly rho of zCDP, or raise and charge nothing; draw noise after it returns.

        what: what is paid for. key: a name for the charge, by which a retry is told from another
        release, and refused. plan_digest, output: of the plan, and where the release will be.
        profile: the costs per cell, for later releases that are free within this charge.
        Takes as long with many entries as with few, since it verifies the newest of them only.
        Raises BudgetError (rho not finite and > 0, or less than the profile says), InputError (a
        text is none), OverBudget, and LedgerError (key used before; file cannot be written). After
        a failure of the disk the charge may still turn up, which is safe: nothing was drawn on it.
        """
        amount = _exact(rho)
        _check_texts(what, key, plan_digest, output)
        if profile is not None:
            _check_covers(amount, profile)
        with self._file.transaction("IMMEDIATE") as database:
            budget = rows.read_budget(database)
            self._check_key(database, key)
            rules.check_fits(self._file, amount, budget.left)
            new = _Charge(amount, what, key, plan_digest, output, None, profile)
            return new.enter(database, budget)[0]

    def charge_measurement(
        self, measurement: Any, d_in: Any, *, what: str, key: str | None = None
    ) -> Entry:
        """Charge what an OpenDP measurement costs at the input distance d_in: call it afterwards.

        Its output measure must be zero-concentrated divergence. d_in is that of all records of one
        person. Raises InputError for another measurement, or one that has no cost at d_in; else as
        `charge`.
        """
        return self.charge(measured_rho(measurement, d_in), what=what, key=key)

    def charge_free(
        self,
        plan: Plan,
        *,
        within: Which,
        what: str,
        contributions: int = 1,
        key: str | None = None,
        output: str | None = None,
    ) -> Entry:
        """Enter the release of a plan at no cost, or raise; draw noise after it returns.

        within: an earlier charge for a plan of the same domain and contributions, by its key or
        number, which counted the same records: a person whose records moved to other cells in
        between would be in two places of the sums. At every cell the costs of that plan, of what
        was free within it already and of this one must add up to no more than it was charged; as
        cell budgets, `slack` holds what is left. Verifies the whole ledger. Raises OverBudget,
        naming the cell; LedgerError, and BudgetError for too many cells or contributions.
        """
        costs = CellCosts.of(plan, contributions)
        _check_texts(what, key, output)
        with self._file.transaction("IMMEDIATE") as database:
            budget, entries = rows.read_entries(database)
            self._check_key(database, key)
            charge = rules.check_free(self._file, database, entries, within, plan.domain, costs)
            new = _Charge(Fraction(0), what, key, plan.digest, output, charge.id, costs)
            return new.enter(database, budget)[0]

    def check_free(self, plan: Plan, *, within: Which, contributions: int = 1) -> None:
        """Enter nothing; raise as `charge_free` would."""
        costs = CellCosts.of(plan, contributions)
        with self._file.transaction() as database:
            _, entries = rows.read_entries(database)
            rules.check_free(self._file, database, entries, within, plan.domain, costs)

    def begin(self, request: Request, counts: str | None = None) -> Begun:
        """Charge the release of a plan, or find the charge that this is a retry of; draw noise
        after it returns, and only if its stage is "begun".

        counts: the seal of the exact counts, if the records of a person were limited: to be free
        within an earlier charge they must be the counts of that charge. Verifies the whole ledger.
        Raises KeyTaken, AlreadyReleased, and as `charge` and `charge_free`; then nothing changed.
        """
        _check_texts(request.what, request.key, request.output)
        with self._file.transaction("IMMEDIATE") as database:
            budget, entries, stages = rows.read_all(database)
            found, within = self._look(database, budget, entries, stages, request)
            if within is not None:
                rules.check_counts(self._file, stages, within, counts)
            if found is not None:
                return found
            new = _Charge(
                rho=request.rho if within is None else Fraction(0),
                what=request.what,
                key=request.key,
                plan_digest=request.plan.digest,
                output=request.output,
                within=None if within is None else within.id,
                costs=request.costs,
            )
            entry, budget = new.enter(database, budget)
            folder = request.output if request.in_folder else None
            stage = Stage(entry.id, "begun", _now(), output=folder)
            rows.add_stage(database, budget, stage)
        _LOG.info("charged rho = %r as number %d of %s", float(entry.rho), entry.id, self.path)
        return Begun(entry, stage)

    def look(self, request: Request) -> Begun | None:
        """What `begin` would find, None if it would charge; charges nothing, and raises what
        `begin` would raise but for the seal of the counts.
        """
        _check_texts(request.what, request.key, request.output)
        # As it would be to charge, so that a file that cannot be written is found now.
        with self._file.transaction("IMMEDIATE") as database:
            return self._look(database, *rows.read_all(database), request)[0]

    def mark_made(
        self, entry: Entry, answers: str, *, counts: str | None = None, output: str | None = None
    ) -> Stage:
        """Enter that the noise of a charge was drawn; returns the stage that stands, which is
        another's if another process was first: then discard this draw.

        answers: digest of the noisy answers. counts: seal of the exact counts, if limited by
        person. output: the folder of the release; None for a release in memory. Raises LedgerError.
        """
        return self._mark(Stage(entry.id, "made", _now(), answers, counts, output))

    def mark_published(self, made: Stage, output: str) -> Stage:
        """Enter that a release which was made is in its folder; returns the stage that stands.

        Raises LedgerError.
        """
        return self._mark(replace(made, state="published", time=_now(), output=output))

    def stages(self) -> Mapping[int, Stage]:
        """How far the releases have come: the newest stage by the number of the charge. Charges
        that are no releases of plans by fitplug have none. Verifies the whole ledger.

        Raises LedgerError.
        """
        with self._file.transaction() as database:
            return rows.read_all(database)[2]

    def slack(self, within: Which, domain: Domain) -> FloatArray:
        """What each cell has left within a charge: as cell_budgets of a design it makes a plan that
        `charge_free` allows. Privacy cost squared for one record, rounded down; an axis for each
        attribute of the domain. Raises LedgerError, and BudgetError for too many cells.
        """
        with self._file.transaction() as database:
            _, entries = rows.read_entries(database)
            charge, made = rules.charge_with_costs(self._file, database, entries, within, domain)
        return cellcosts.slack(domain, charge.rho, made)

    def _budget(self) -> Budget:
        with self._file.transaction() as database:
            return rows.read_budget(database)

    def _read(self) -> tuple[Budget, tuple[Entry, ...]]:
        with self._file.transaction() as database:
            return rows.read_entries(database)

    def _look(
        self,
        database: sqlite3.Connection,
        budget: Budget,
        entries: tuple[Entry, ...],
        stages: Mapping[int, Stage],
        request: Request,
    ) -> tuple[Begun | None, Entry | None]:
        """The charge of which this is a retry, None if it is to be charged and fits; and the charge
        within which it is free.
        """
        within = None
        if request.within is not None:
            within = rules.find_charge(self._file, entries, request.within)
        entry = rules.find_release(self._file, entries, stages, request, within)
        if entry is not None:
            return Begun(entry, stages[entry.id]), within
        if request.within is None:
            _check_covers(request.rho, request.costs)
            rules.check_fits(self._file, request.rho, budget.left)
        else:
            domain = request.plan.domain
            rules.check_free(self._file, database, entries, request.within, domain, request.costs)
        return None, within

    def _mark(self, stage: Stage) -> Stage:
        order = get_args(State)
        with self._file.transaction("IMMEDIATE") as database:
            budget, _, stages = rows.read_all(database)
            stands = stages.get(stage.entry)
            if stands is not None and order.index(stands.state) >= order.index(stage.state):
                return stands
            rows.add_stage(database, budget, stage)
        _LOG.info("number %d of %s is %s", stage.entry, self.path, stage.state)
        return stage

    def _check_key(self, database: sqlite3.Connection, key: str | None) -> None:
        used = None if key is None else rows.find_key(database, key)
        if used is None:
            return
        time, digest = used
        plan = f" for the plan {str(digest)[:12]}" if digest else ""
        raise self._file.error(
            f"has a charge under the key {key!r} already, of {time}{plan}: nothing was charged; "
            "give another release another key"
        )


def _whole(
    rho: float | Fraction | None, epsilon: float | None, delta: float | None
) -> Budget | None:
    """The budget asked for, or None."""
    if rho is not None:
        if epsilon is not None or delta is not None:
            raise BudgetError("give rho, or epsilon with delta, not both")
        return Budget.unspent(_exact(rho), None, None)
    if epsilon is None and delta is None:
        return None
    if epsilon is None or delta is None:
        raise BudgetError("epsilon and delta belong together: give both, or rho")
    return Budget.unspent(Fraction(rho_at(epsilon, delta)), float(epsilon), float(delta))


def _same(held: Budget, given: Budget) -> bool:
    if given.epsilon is None:
        return held.total == given.total
    # Not by rho: another SciPy may give its last digit otherwise.
    return (held.epsilon, held.delta) == (given.epsilon, given.delta)


def _exact(rho: float | Fraction) -> Fraction:
    exact = read_exact_number(rho)
    given = str(rho) if type(rho) is float else f"this {type(rho).__name__}"
    with contextlib.suppress(OverflowError):
        if exact is not None:
            given = str(float(exact))
            if exact > 0 and ceil_float(exact) < math.inf:
                return exact
    raise BudgetError(f"rho must be a finite number above 0, not {given}")


def _check_covers(amount: Fraction, costs: CellCosts) -> None:
    if costs.rho() > amount:
        raise BudgetError(
            f"rho = {ceil_float(amount)!r} is less than the {ceil_float(costs.rho())!r} that the "
            "costs per cell come to: charge what the release costs"
        )


def _check_texts(what: str, *others: str | None) -> None:
    for text in (what, *(other for other in others if other is not None)):
        # SQLite cannot hold half a surrogate pair, as Python makes of undecodable file names.
        if not isinstance(text, str) or not text or text.encode(errors="ignore").decode() != text:
            raise InputError(
                "what, key and output of a charge must be text, neither empty nor broken Unicode"
            )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
