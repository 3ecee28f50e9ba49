"""The ledger: a budget of privacy in rho of zCDP, kept in a file that outlives every process.

Amounts are rational numbers, summed exactly: whether a charge fits never depends on rounding. As
floats, `spent` is rounded up and `remaining` down. The ledger is one SQLite file. A charge is one
transaction, which is on the disk before `charge` returns.

Damage, edits and removed entries are noticed (see `fitplug.ledger.rows`). An older copy of the
entire file that replaces it is not noticed, and it lacks later charges.
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
    check_covers,
    check_fits,
    check_key_is_new,
    check_texts,
    choose_unit,
    count_changes,
    enter_charge,
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
    """A privacy budget in rho of zCDP, which several threads and processes may charge.

    Args:
        path: The file of the ledger.
        rho: The total budget, stored exactly; a float is read as the decimal that Python prints.
            Required to create a ledger. To open an existing ledger, leave `rho` out or give the
            same budget.
        epsilon: A budget in epsilon and `delta`, instead of in rho. It is converted to the largest
            rho that is proven to satisfy (epsilon, delta)-differential privacy. By default the
            conversion uses the exact privacy curve of Gaussian noise, so every charge must be for
            discrete Gaussian noise.
        delta: The delta of `epsilon`.
        unit: The unit of privacy of the budget. By default the first charge sets this unit. To open
            an existing ledger, leave `unit` out or give the same unit.
        domain: The domain of the attributes that the unit names in `once_per` or `within`; for
            `distinct`, the domain of all attributes. By default the first charge for such a unit
            sets the domain.
        any_noise: With a budget in epsilon and delta, whether charges may be for any noise, such as
            the noise of OpenDP's own measurements. This lowers the budget in rho by about 10%.
        deferred: Whether a new ledger is created by its first charge instead of by this call.

    Raises:
        BudgetError: The budget is out of range or given twice, or a domain is given without a unit.
        DomainError: The domain does not have an attribute that the unit names.
        LedgerError: The ledger does not exist and no budget is given, the ledger has another budget
            or unit, or the file cannot be used. The properties of a ledger raise this error, too,
            if the file is damaged or cannot be read.

    Example:
        >>> budget = fp.Ledger(folder / "budget.db", rho=1.0)
        >>> entry = budget.charge(0.25, what="pilot")
        >>> budget.spent, budget.remaining
        (0.25, 0.75)
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
        """The remaining budget in rho of zCDP, rounded down. A charge of this amount fits."""
        return floor_written(self._read_budget().left)

    @property
    def privacy(self) -> tuple[float, float] | None:
        """The pair (epsilon, delta) if the budget was given in this form, otherwise None."""
        budget = self._read_budget()
        if budget.epsilon is None or budget.delta is None:
            return None
        return budget.epsilon, budget.delta

    def epsilon(self, delta: float) -> float:
        """Compute the epsilon of all charges together at a delta, rounded up.

        If all noise is discrete Gaussian, as in every plan, epsilon comes from the exact privacy
        curve of Gaussian noise. Otherwise epsilon follows from rho alone (docs/theory/privacy.md,
        Theorems 2 and 6). This epsilon assumes that all charges were planned in advance. If you
        choose a release after seeing another, only the budget holds; epsilon may be too low.

        Raises:
            BudgetError: delta is not between 0 and 1.

        Example:
            >>> ledger.epsilon(1e-9) <= ledger.epsilon(1e-12)
            True
        """
        return self._read_budget().epsilon_at(delta)

    @property
    def unit(self) -> Unit | None:
        """The unit of privacy of all charges; None if it is not set yet."""
        bound = self.bound_unit
        return None if bound is None else bound.unit

    @property
    def bound_unit(self) -> BoundUnit | None:
        """The unit of privacy, with the cells that it refers to if they are set already."""
        return self._read_budget().bound_unit

    def entries(self) -> tuple[Entry, ...]:
        """Verify the whole ledger and return all charges, oldest first.

        Raises:
            LedgerError: The file is damaged.

        Example:
            >>> [entry.what for entry in ledger.entries()]
            ['pilot']
        """
        return read_statement(self)[1]

    def stages(self) -> Mapping[int, Stage]:
        """Verify the whole ledger and return the stage that each release has reached.

        Returns:
            A mapping from the number of a release's charge to the newest stage of the release.
            Charges that are not for releases are not included.

        Raises:
            LedgerError: The file cannot be read, or is damaged.

        Example:
            >>> ledger.stages()
            {}
        """
        with self._file.open_transaction() as database:
            return rows.read_all(database)[2]

    def check(self, rho: ExactNumber, *, noise: DiscreteNoise | None = None) -> None:
        """Verify the whole ledger and check that a charge would fit, without charging it.

        Raises:
            FitplugError: As for `charge`.

        Example:
            >>> ledger.check(0.5)
        """
        check_fits(self._file, check_amount(rho), read_statement(self)[0], noise)

    def charge(
        self,
        rho: ExactNumber,
        *,
        what: str,
        key: str | None = None,
        plan_digest: str | None = None,
        folder: str | None = None,
        profile: CellCosts | None = None,
        unit: Unit | None = None,
        domain: Domain | None = None,
        noise: DiscreteNoise | None = None,
    ) -> Entry:
        """Charge exactly rho of zCDP.

        Draw noise only after this call has returned. If the disk fails, the charge may be recorded
        although nothing was drawn; this is safe for privacy.

        Args:
            rho: The charge. A float is read as the decimal that Python prints. If other code
                computed rho, pass it as a Fraction (docs/reference/ledger.md).
            what: A text that describes what the charge pays for.
            key: A name for the charge. A second charge with the same key is refused.
            plan_digest: The digest of the plan that is released.
            folder: The folder or file of the release.
            profile: The cost of the release in each cell, from which `charge_covered` finds what
                later releases may cost.
            unit: The unit of privacy for rho; by default, the ledger's unit. If one change in the
                ledger's unit consists of m changes in this unit, m^2 * rho is charged.
            domain: The domain of the attributes that the unit names, as in `once_per="month"`; not
                needed for other units. The release must leave out rows outside this domain.
            noise: The noise of the release, such as `plan.noise`, if all of it is discrete
                Gaussian. A ledger in epsilon and delta requires it, unless it allows any noise. In
                a ledger in rho, a single charge without `noise` makes `epsilon()` larger.

        Returns:
            The ledger's entry for the charge.

        Raises:
            OverBudget: The charge does not fit; nothing is charged.
            BudgetError: rho is not finite, not above 0, or less than the costs per cell.
            InputError: `what` or another text is empty or not valid Unicode.
            DomainError: The domain does not have an attribute that the unit names.
            LedgerError: The key was used before, the unit cannot be converted to the ledger's unit,
                `domain` is missing although the unit names attributes, or the file cannot be
                written.

        Example:
            >>> entry = ledger.charge(0.01, what="pilot", key="pilot 2024")
            >>> entry.rho
            Fraction(1, 100)
        """
        amount = check_amount(rho)
        check_texts(what, key, plan_digest, folder)
        if profile is not None:
            check_covers(amount, profile)
        with self._file.open_transaction("IMMEDIATE") as database:
            budget = rows.read_budget(database)
            check_key_is_new(self._file, database, key)
            bound_unit = choose_unit(self._file, budget, unit, domain)
            changes = count_changes(self._file, budget, bound_unit)
            amount *= changes**2
            check_fits(self._file, amount, budget, noise, changes)
            entry, _ = enter_charge(
                database,
                budget,
                rho=amount,
                what=what,
                key=key,
                folder=folder,
                bound_unit=bound_unit,
                plan_digest=plan_digest,
                costs=None if profile is None else profile.multiply_records(changes),
                noise=noise,
            )
        return entry

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
        """Charge the cost of an OpenDP measurement.

        Invoke the measurement only after this call has returned.

        Args:
            measurement: A measurement whose output measure is zero-concentrated divergence.
            d_in: The largest distance between the measurement's inputs for two data sets that are
                neighbours in `unit`, for example the number of rows that one person adds.
            what: A text that describes what the charge pays for.
            key: A name for the charge, as in `charge`.
            unit: The unit of privacy that defines the neighbours for `d_in`; by default, the
                ledger's unit.
            domain: The domain of the attributes that the unit names, as in `charge`.

        Returns:
            The ledger's entry for the charge.

        Raises:
            InputError: The output measure is not zero-concentrated divergence, or the measurement
                has no cost for `d_in`.
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
        folder: str | None = None,
    ) -> Entry:
        """Record the release of a plan at no further cost, because an earlier charge covers it.

        Draw noise only after this call has returned.

        In every cell, three costs must together stay within the earlier charge: the charged plan's,
        this plan's, and those of the releases that the charge already covers. A plan that is
        designed with `cell_budgets=ledger.unused_budget(...)` satisfies this. The whole ledger is
        verified.

        Args:
            plan: The plan to release.
            covered_by: An earlier charge, by its key or number. Its plan must have the same domain,
                and its release must have counted the same rows: if a person's rows moved to other
                cells in between, the person would cost something in both cells.
            what: A text that describes what is released.
            key: A name for the charge, as in `charge`.
            folder: The folder or file of the release.

        Returns:
            The ledger's entry for the release, with rho = 0.

        Raises:
            OverBudget: The charge does not cover the release; the message names the cell.
            LedgerError: There is no such charge, the key was used before, or the file cannot be
                written.
            BudgetError: There are too many cells.

        Example:
            >>> ledger.charge_covered(
            ...     extra, covered_by="2024", what="one more table"
            ... )  # doctest: +SKIP
        """
        request = ChargeRequest(plan, Fraction(0), what, key, covered_by, folder=folder)
        return charge_covered(self._file, request)

    def check_covered(self, plan: Plan, *, covered_by: ChargeReference) -> None:
        """Check that an earlier charge covers a release, without recording the release.

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
        """Compute how much of a charge is unused in each cell.

        Pass the result to `fitplug.design` as `cell_budgets`, with the charge's unit of privacy, to
        make a plan that `charge_covered` allows.

        Args:
            covered_by: The charge, by its key or number.
            domain: The domain of the plan that was charged.

        Returns:
            The unused squared privacy cost (Delta^2, which is 2 rho) of each cell, in the unit of
            the charge, rounded down. The array has an axis for each attribute of the domain. An
            axis has length 1 if the cost is the same in all cells of the attribute.

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
        total = format_down(floor_written(budget.total), 6)
        return f"Ledger({str(self.path)!r}: rho = {spent} of {total} spent)"

    def _repr_html_(self) -> str:
        summary = summarise_ledger(*read_statement(self), self.stages())
        return format_ledger_html(str(self.path), summary, MOST_GROUPS)

    def _read_budget(self) -> Budget:
        """Read the budget, verified against the newest entries."""
        with self._file.open_transaction() as database:
            return rows.read_budget(database)


def read_statement(ledger: Ledger) -> tuple[Budget, tuple[Entry, ...]]:
    """Verify the whole ledger and return its budget and charges at one moment.

    Returns:
        The budget, in exact amounts, and the charges, oldest first.

    Raises:
        LedgerError: The file cannot be read, or is damaged.
    """
    with ledger._file.open_transaction() as database:
        return rows.read_entries(database)
