"""The ledger: a budget of privacy in rho of zCDP, kept in a file that outlives every process.

Amounts are rational numbers, summed exactly: whether a charge fits never depends on rounding. As
floats, `spent` is rounded up and `remaining` down. The ledger is one SQLite file. A charge is one
transaction, which is on the disk before `charge` returns.

Damage, edits, and entries that were removed are noticed (see `fitplug.ledger.rows`). An older copy
of the entire file that is put in its place cannot be noticed: it does not hold later charges.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from fitplug.display import MOST_GROUPS, format_down, format_up
from fitplug.domain import Domain
from fitplug.errors import LedgerError
from fitplug.ledger import rows
from fitplug.ledger.cell_costs import CellCosts, compute_unused_budget
from fitplug.ledger.charges import (
    ChargeReference,
    ChargeRequest,
    charge_amount,
    check_fits,
)
from fitplug.ledger.earlier_charges import charge_covered, check_covered, read_charge_costs
from fitplug.ledger.file import LedgerFile, bind_unit, open_ledger
from fitplug.ledger.measurement_cost import evaluate_rho
from fitplug.ledger.records import Budget, Entry, Stage, check_amount, make_budget
from fitplug.ledger.summary import format_ledger_html, summarise_ledger
from fitplug.numeric import ExactNumber, FloatArray, ceil_written, floor_written
from fitplug.plan import Plan
from fitplug.privacy import DiscreteNoise
from fitplug.workload import BoundUnit, Unit


class Ledger:
    """A budget in rho of zCDP that several threads and processes may charge.

    Args:
        path: The file of the ledger.
        rho: The total budget, kept exactly and read as by `charge`. It is needed to create a ledger
            at `path`. To open an existing ledger, leave it out or give the same budget.
        epsilon: Instead of rho, the budget is the largest rho that is proven to satisfy
            (epsilon, delta)-differential privacy: on the Gaussian curve if all noise is discrete
            Gaussian, as that of plans is, which is then asked of every charge.
        delta: Is given together with epsilon.
        unit: The unit of privacy that the budget is for. If it is left out, the first charge says
            it. To open an existing ledger, leave it out or give the same unit.
        domain: The domain whose cells the unit is about; with `distinct`, records are apart over
            all its attributes. If it is left out, the first charge for such a unit says it.
        any_noise: Whether charges may be for noise of any kind, such as that of OpenDP's own
            measurements, if the budget is epsilon and delta. epsilon then follows from rho alone,
            which leaves some 10 % less rho.
        deferred: Whether a new ledger is created by its first charge instead of by this call.

    Raises:
        BudgetError: The budget is out of range or given twice, or a domain comes without a unit.
        DomainError: The domain does not have an attribute that the unit names.
        LedgerError: There is neither a ledger nor a budget, the ledger has another budget or unit,
            or the file cannot be used. Properties raise it, too, if the file cannot be read or is
            damaged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        rho: ExactNumber | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        unit: Unit | None = None,
        domain: Domain | None = None,
        any_noise: bool = False,
        deferred: bool = False,
    ) -> None:
        self._file = LedgerFile(path)
        bound = bind_unit(unit, domain)
        given = make_budget(rho, epsilon, delta, bound, any_noise=any_noise)
        open_ledger(self._file, given, rho, bound, deferred=deferred)

    @property
    def path(self) -> Path:
        """The file of the ledger."""
        return self._file.path

    @property
    def total(self) -> float:
        """The total budget in rho of zCDP, rounded down."""
        return floor_written(self._read_budget().total)

    @property
    def spent(self) -> float:
        """The sum of all charges in rho of zCDP, rounded up."""
        return ceil_written(self._read_budget().spent)

    @property
    def remaining(self) -> float:
        """What is left in rho of zCDP, rounded down: a charge of it fits."""
        return floor_written(self._read_budget().left)

    @property
    def privacy(self) -> tuple[float, float] | None:
        """The pair (epsilon, delta), if the total budget was given as that."""
        budget = self._read_budget()
        if budget.epsilon is None or budget.delta is None:
            return None
        return budget.epsilon, budget.delta

    def epsilon(self, delta: float) -> float:
        """Compute the epsilon of all charges together at a delta, rounded up.

        It lies on the Gaussian curve if all noise is discrete Gaussian, as that of plans is, and
        follows from rho alone otherwise (docs/theory/privacy.md, Theorems 2 and 6). It is that of
        these charges as if they had been planned: if what to release was chosen after seeing
        earlier releases, only the total budget is proven.

        Raises:
            BudgetError: delta does not lie between 0 and 1.
        """
        return self._read_budget().epsilon_at(delta)

    @property
    def unit(self) -> Unit | None:
        """The unit of privacy that all charges are for; None until something says it."""
        bound = self.bound_unit
        return None if bound is None else bound.unit

    @property
    def bound_unit(self) -> BoundUnit | None:
        """The unit with the cells that it is about, which are None until something says them."""
        return self._read_budget().bound_unit

    def entries(self) -> tuple[Entry, ...]:
        """Return all charges, the oldest first, and verify the entire ledger.

        Raises:
            LedgerError: The file is damaged.
        """
        return self.statement()[1]

    def statement(self) -> tuple[Budget, tuple[Entry, ...]]:
        """Return the budget and all charges at one moment, and verify the entire ledger.

        Returns:
            The budget, in exact amounts, and the charges, the oldest first.

        Raises:
            LedgerError: The file cannot be read, or is damaged.
        """
        with self._file.open_transaction() as database:
            return rows.read_entries(database)

    def stages(self) -> Mapping[int, Stage]:
        """Return how far the releases have come, and verify the entire ledger.

        Returns:
            The newest stage of each release by the number of its charge. Charges that are no
            releases of plans by fitplug have none.

        Raises:
            LedgerError: The file cannot be read, or is damaged.
        """
        with self._file.open_transaction() as database:
            return rows.read_all(database)[2]

    def check(self, rho: ExactNumber, *, noise: DiscreteNoise | None = None) -> None:
        """Verify the entire ledger and that such a charge fits, without charging it.

        Raises:
            FitplugError: As for `charge`.
        """
        check_fits(self._file, check_amount(rho), self.statement()[0], noise)

    def charge(
        self,
        rho: ExactNumber,
        *,
        what: str,
        key: str | None = None,
        plan_digest: str | None = None,
        output: str | None = None,
        profile: CellCosts | None = None,
        unit: Unit | None = None,
        domain: Domain | None = None,
        noise: DiscreteNoise | None = None,
    ) -> Entry:
        """Charge exactly rho of zCDP. Draw noise after this returns, and only then.

        If the disk fails, the charge may be entered, which is safe: nothing was drawn on it.

        Args:
            rho: The charge. A float is the decimal that Python prints; give a bound that other
                code computed as a Fraction (docs/reference/ledger.md).
            what: What the charge pays for.
            key: A name for the charge. A second charge with the same key is refused.
            plan_digest: The digest of the plan that is released.
            output: Where the release will be.
            profile: The costs per cell, for later releases that this charge covers.
            unit: The unit of privacy that rho is for; the ledger's own if it is left out. What is
                charged is m^2 rho if a change in the ledger's unit is m changes in this one.
            domain: The domain whose cells this unit is about, which it needs if it names or means
                any. What is paid for must leave out records outside of the domain.
            noise: The noise of what is paid for, if all of it is discrete Gaussian, such as
                `plan.noise`. A ledger in epsilon and delta asks for it; in one in rho, epsilon
                follows from rho alone once a charge does not say it.

        Returns:
            The charge as it was entered.

        Raises:
            OverBudget: The charge does not fit; nothing is charged.
            BudgetError: rho is not finite, not above 0 or less than the costs per cell come to.
            InputError: A text is empty or broken Unicode.
            DomainError: The domain does not have an attribute that the unit names.
            LedgerError: The key was used before, the unit cannot be converted to the ledger's, its
                cells are not known, or the file cannot be written.
        """
        return charge_amount(
            self._file,
            check_amount(rho),
            what=what,
            key=key,
            plan_digest=plan_digest,
            output=output,
            costs=profile,
            unit=unit,
            domain=domain,
            noise=noise,
        )

    def charge_measurement(
        self,
        measurement: Any,
        d_in: Any,
        *,
        what: str,
        key: str | None = None,
        unit: Unit | None = None,
        domain: Domain | None = None,
    ) -> Entry:
        """Charge what an OpenDP measurement costs. Call the measurement after this returns.

        Args:
            measurement: A measurement whose output measure is zero-concentrated divergence.
            d_in: The input distance that one person makes, in the unit of the charge.
            what: What the charge pays for.
            key: A name for the charge, as in `charge`.
            unit: The unit of privacy that `d_in` is for, as in `charge`.
            domain: The domain whose cells the unit is about, as in `charge`.

        Returns:
            The charge as it was entered.

        Raises:
            InputError: The measurement is another one, or has no cost at `d_in`.
            OverBudget: As for `charge`.
            LedgerError: As for `charge`.
        """
        rho = evaluate_rho(measurement, d_in)
        return self.charge(rho, what=what, key=key, unit=unit, domain=domain)

    def charge_covered(
        self,
        plan: Plan,
        *,
        covered_by: ChargeReference,
        what: str,
        key: str | None = None,
        output: str | None = None,
    ) -> Entry:
        """Enter the release of a plan that an earlier charge covers.

        Draw noise after this returns, and only then.

        At every cell, the costs of the plan that was charged, of what that charge covers
        already, and of this plan must add up to no more than the charge. A plan that is designed
        with `unused_budget` as its cell budgets satisfies this. The entire ledger is verified.

        Args:
            plan: The plan to release.
            covered_by: An earlier charge, by its key or number. It must be for a plan of the same
                domain that counted the same records: a person whose records moved to other cells
                in between would be in two places of the sums.
            what: What is released.
            key: A name for the charge, as in `charge`.
            output: Where the release will be.

        Returns:
            The charge as it was entered, with rho = 0.

        Raises:
            OverBudget: The charge does not cover the release; the message names the cell.
            LedgerError: There is no such charge, the key was used before, or the file cannot be
                written.
            BudgetError: There are too many cells.
        """
        request = ChargeRequest(plan, Fraction(0), what, key, covered_by, output=output)
        return charge_covered(self._file, request)

    def check_covered(self, plan: Plan, *, covered_by: ChargeReference) -> None:
        """Verify that a charge covers a release, and enter nothing.

        Args:
            plan: The plan to release.
            covered_by: As for `charge_covered`.

        Raises:
            OverBudget: The charge does not cover the release; the message names the cell.
            LedgerError: There is no such charge, or the file cannot be read.
            BudgetError: As for `charge_covered`.
        """
        request = ChargeRequest(plan, Fraction(0), "a check", covered_by=covered_by)
        check_covered(self._file, request)

    def unused_budget(self, covered_by: ChargeReference, domain: Domain) -> FloatArray:
        """Compute what each cell has left of a charge.

        A design with these cell budgets, for the charge's unit of privacy, makes a plan that
        `charge_covered` allows.

        Args:
            covered_by: The charge, by its key or number.
            domain: The domain of its plan.

        Returns:
            Privacy costs squared for one person in the unit of the charge, rounded down, with an
            axis for each attribute of the domain, of size 1 where cells do not differ.

        Raises:
            LedgerError: There is no such charge, or it is for a plan of another domain.
            BudgetError: There are too many cells.
        """
        with self._file.open_transaction() as database:
            _, entries = rows.read_entries(database)
            charge, costs = read_charge_costs(self._file, database, entries, covered_by, domain)
        return compute_unused_budget(domain, charge.rho, costs, charge.unit.records)

    def __repr__(self) -> str:
        try:
            budget = self._read_budget()
        except LedgerError:
            return f"Ledger({str(self.path)!r}, unreadable)"
        spent = format_up(ceil_written(budget.spent))
        total = format_down(floor_written(budget.total))
        return f"Ledger({str(self.path)!r}: rho = {spent} of {total} spent)"

    def _repr_html_(self) -> str:
        summary = summarise_ledger(*self.statement(), self.stages())
        return format_ledger_html(str(self.path), summary, MOST_GROUPS)

    def _read_budget(self) -> Budget:
        """Read the budget, verified against the newest entries."""
        with self._file.open_transaction() as database:
            return rows.read_budget(database)
