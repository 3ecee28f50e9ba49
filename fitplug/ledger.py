"""The ledger: a budget of privacy in rho of zCDP, kept in a file that outlives every process.

Amounts are rational numbers, kept and summed exactly, so that whether a charge fits never depends
on rounding; as floats, `spent` is rounded up and `remaining` down. One SQLite file in write-ahead
mode, which needs a local disk; a charge is one transaction, on the disk before `charge` returns.

Damage, edits, and entries removed are noticed (see `fitplug.ledgerrows`). An older copy of the
whole file put back in its place cannot be: what was charged since would be forgotten.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fitplug import cellcosts
from fitplug import ledgerrows as rows
from fitplug.budgets import cell_name
from fitplug.cellcosts import Array, CellCosts, domain_digest
from fitplug.domain import Domain
from fitplug.errors import BudgetError, InputError, OverBudget
from fitplug.ledgerfile import LedgerFile
from fitplug.ledgerrows import Budget, Entry
from fitplug.privacy import rho_at
from fitplug.rounding import ceil_float, floor_float

if TYPE_CHECKING:
    from fitplug.plan import Plan

Which: TypeAlias = int | str
"""An earlier charge: its number, or its key."""


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
        self._allow(_exact(rho), self._read()[0].left)

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
        if profile is not None and profile.rho() > amount:
            least = ceil_float(profile.rho())
            raise BudgetError(
                f"rho = {ceil_float(amount)!r} is less than the {least!r} that the costs per cell "
                "come to: charge what the release costs"
            )
        digest = None if profile is None else profile.digest
        with self._file.transaction("IMMEDIATE") as database:
            budget = rows.read_budget(database)
            self._check_key(database, key)
            self._allow(amount, budget.left)
            entry = Entry(
                budget.entries + 1, _now(), amount, what, key, plan_digest, output, None, digest
            )
            rows.add(database, budget, entry, profile)
        return entry

    def charge_measurement(
        self, measurement: Any, d_in: Any, *, what: str, key: str | None = None
    ) -> Entry:
        """Charge what an OpenDP measurement costs at the input distance d_in: call it afterwards.

        Its output measure must be zero-concentrated divergence. d_in is that of all records of one
        person. Raises InputError for another measurement, or one that has no cost at d_in; else as
        `charge`.
        """
        return self.charge(_measured(measurement, d_in), what=what, key=key)

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
            charge = self._allow_free(database, entries, within, plan.domain, costs)
            entry = Entry(
                id=budget.entries + 1,
                time=_now(),
                rho=Fraction(0),
                what=what,
                key=key,
                plan_digest=plan.digest,
                output=output,
                within=charge.id,
                profile=costs.digest,
            )
            rows.add(database, budget, entry, costs)
        return entry

    def check_free(self, plan: Plan, *, within: Which, contributions: int = 1) -> None:
        """Enter nothing; raise as `charge_free` would."""
        costs = CellCosts.of(plan, contributions)
        with self._file.transaction() as database:
            _, entries = rows.read_entries(database)
            self._allow_free(database, entries, within, plan.domain, costs)

    def slack(self, within: Which, domain: Domain) -> Array:
        """What each cell has left within a charge: as cell_budgets of a design it makes a plan that
        `charge_free` allows. Privacy cost squared for one record, rounded down; an axis for each
        attribute of the domain. Raises LedgerError, and BudgetError for too many cells.
        """
        with self._file.transaction() as database:
            _, entries = rows.read_entries(database)
            charge, made = self._within(database, entries, within, domain)
        return cellcosts.slack(domain, charge.rho, made)

    def _budget(self) -> Budget:
        with self._file.transaction() as database:
            return rows.read_budget(database)

    def _read(self) -> tuple[Budget, tuple[Entry, ...]]:
        with self._file.transaction() as database:
            return rows.read_entries(database)

    def _allow(self, amount: Fraction, left: Fraction) -> None:
        if amount > left:
            asked, rest = ceil_float(amount), floor_float(left)
            message = f"rho = {asked!r} is over budget: the ledger {self.path} has {rest!r} left"
            raise OverBudget(message, requested=asked, remaining=rest)

    def _allow_free(
        self,
        database: sqlite3.Connection,
        entries: tuple[Entry, ...],
        within: Which,
        domain: Domain,
        costs: CellCosts,
    ) -> Entry:
        charge, made = self._within(database, entries, within, domain)
        if costs.contributions != made[0].contributions:
            raise self._file.error(
                f"has the charge {within!r} for {made[0].contributions} record(s) a person, not "
                f"{costs.contributions}: give the same contributions"
            )
        over = cellcosts.excess(domain, charge.rho, made, costs)
        if over is not None:
            names, at = tuple(name for name, _ in over.at), tuple(cell for _, cell in over.at)
            place = f" at {cell_name(domain, names, at)}" if names else ""
            raise OverBudget(
                f"rho = {over.requested!r} is over budget{place}: within the charge {within!r} the "
                f"ledger {self.path} has {over.remaining!r} left there: this release is not free",
                requested=over.requested,
                remaining=over.remaining,
            )
        return charge

    def _within(
        self,
        database: sqlite3.Connection,
        entries: tuple[Entry, ...],
        within: Which,
        domain: Domain,
    ) -> tuple[Entry, list[CellCosts]]:
        """A charge, and the costs per cell of it and of all that is free within it."""
        by_number = isinstance(within, int)
        found = [e for e in entries if within == (e.id if by_number else e.key)]
        if not found:
            known = "number" if by_number else "key"
            raise self._file.error(f"has no charge of the {known} {within!r}: see its entries")
        (charge,) = found
        if charge.within is not None:
            raise self._file.error(
                f"has {within!r} as a free release: name the charge it is within, {charge.within}"
            )
        parts = [charge, *(e for e in entries if e.within == charge.id)]
        made = [rows.read_costs(database, e.profile) for e in parts if e.profile is not None]
        if len(made) != len(parts):
            raise self._file.error(
                f"keeps no costs per cell with the charge {within!r}: name the release of a plan"
            )
        if made[0].domain != domain_digest(domain):
            raise self._file.error(
                f"has the charge {within!r} for a plan of another domain: name one of this domain"
            )
        return charge, made

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


def _measured(measurement: Any, d_in: Any) -> float:
    try:
        measure = str(measurement.output_measure)
    except AttributeError:
        raise InputError(
            f"{type(measurement).__name__} is no OpenDP measurement: give one, such as what "
            "make_gaussian returns"
        ) from None
    if "".join(c for c in measure if c.isalnum()).lower() != "zeroconcentrateddivergence":
        raise InputError(
            f"the measurement's output measure is {measure}, and the ledger is kept in "
            "zero-concentrated divergence: use a measurement of that, with Gaussian noise, or "
            "convert it with make_pureDP_to_zCDP"
        )
    try:
        rho = measurement.map(d_in)
    except Exception as error:  # OpenDP's own, which the core does not know
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"the measurement has no cost at d_in = {d_in!r}: {why}") from None
    if not isinstance(rho, float) or not 0 < rho < math.inf:
        raise InputError(
            f"the measurement costs rho = {rho!r} at d_in = {d_in!r}, which is no finite number "
            "above 0: give the distance that one person's records make"
        )
    return rho


def _exact(rho: float | Fraction) -> Fraction:
    given = str(rho) if isinstance(rho, float) else f"this {type(rho).__name__}"
    with contextlib.suppress(AttributeError, ValueError, OverflowError):
        exact = Fraction(*map(int, rho.as_integer_ratio()))
        given = str(float(exact))
        if exact > 0 and ceil_float(exact) < math.inf:
            return exact
    raise BudgetError(f"rho must be a finite number above 0, not {given}")


def _check_texts(what: str, *others: str | None) -> None:
    for text in (what, *(other for other in others if other is not None)):
        # SQLite cannot hold half a surrogate pair, as Python makes of undecodable file names.
        if not isinstance(text, str) or not text or text.encode(errors="ignore").decode() != text:
            raise InputError(
                "what, key and output of a charge must be text, neither empty nor broken Unicode"
            )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
