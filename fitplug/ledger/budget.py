"""Budget: how much privacy a ledger may spend, and how much is spent."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from fractions import Fraction

from fitplug.errors import BudgetError
from fitplug.ledger.fraction_text import encode_fraction
from fitplug.ledger.hash_chain import hash_values
from fitplug.ledger.unit_text import encode_unit
from fitplug.numeric import ceil_written, read_exact_number
from fitplug.privacy import check_budget, rho_at
from fitplug.workload import BoundUnit


@dataclass(frozen=True)
class Budget:
    """The total budget of a ledger, and where its two hash chains end.

    Attributes:
        total: The total budget in rho of zCDP, exact.
        epsilon: The epsilon of the total budget, if it was given as epsilon and delta.
        delta: The delta of the total budget, if it was given as epsilon and delta.
        spent: The sum of all charges in rho of zCDP, exact.
        entries: The number of entries.
        head: The hash of the newest entry.
        stages: The number of stages of releases.
        stage_head: The hash of the newest stage.
        bound_unit: The unit of privacy that all charges are for, with the cells that it is about.
            Until the first charge it may be None, and its cells may be missing until the first
            charge that says them.
    """

    total: Fraction
    epsilon: float | None
    delta: float | None
    spent: Fraction
    entries: int
    head: str
    stages: int
    stage_head: str
    bound_unit: BoundUnit | None = None

    @classmethod
    def create(
        cls,
        total: Fraction,
        epsilon: float | None = None,
        delta: float | None = None,
        unit: BoundUnit | None = None,
    ) -> Budget:
        """Create a budget of which nothing is spent."""
        first = hash_total(total, epsilon, delta)
        return cls(total, epsilon, delta, Fraction(0), 0, first, 0, first, unit)

    @property
    def left(self) -> Fraction:
        """What is left of the total budget in rho of zCDP, exact."""
        return self.total - self.spent

    @property
    def first_hash(self) -> str:
        """The hash that the first entry and the first stage follow."""
        return hash_total(self.total, self.epsilon, self.delta)

    def compute_hash(self) -> str:
        """Compute the hash of the budget's row."""
        unit = None if self.bound_unit is None else encode_unit(self.bound_unit)
        chains = self.entries, self.head, self.stages, self.stage_head
        return hash_values("now", self.first_hash, encode_fraction(self.spent), *chains, unit)

    def complete_unit(self, charged: BoundUnit) -> BoundUnit:
        """Return the ledger's unit after a charge for this one, which may be the first to say it or
        its cells.
        """
        return charged if self.bound_unit is None else self.bound_unit.complete(charged)

    def has_total_of(self, given: Budget) -> bool:
        """Return whether the total of this budget is the one that a caller gives."""
        if given.epsilon is None:
            return self.total == given.total
        # rho is not compared, as another version of SciPy may compute another last digit.
        return (self.epsilon, self.delta) == (given.epsilon, given.delta)


def hash_total(total: Fraction, epsilon: float | None, delta: float | None) -> str:
    """Compute the hash of a total budget, with which the hash chains begin."""
    return hash_values("budget", encode_fraction(total), epsilon, delta)


def make_budget(
    rho: float | Fraction | None,
    epsilon: float | None,
    delta: float | None,
    unit: BoundUnit | None = None,
) -> Budget | None:
    """Make the budget that a caller gives as rho, or as epsilon and delta.

    Returns:
        The budget, of which nothing is spent; None if the caller gives none.

    Raises:
        BudgetError: A number is out of range, or the caller gives both or only one of epsilon and
            delta.
    """
    check_budget(rho, epsilon, delta)
    if rho is not None:
        return Budget.create(check_amount(rho), unit=unit)
    if epsilon is None or delta is None:
        return None
    return Budget.create(Fraction(rho_at(epsilon, delta)), float(epsilon), float(delta), unit)


def check_amount(rho: float | Fraction) -> Fraction:
    """Return the exact number that rho means (`read_exact_number`), if it is finite and above 0.

    Raises:
        BudgetError: rho is no finite number above 0.
    """
    exact = read_exact_number(rho)
    given = str(rho) if type(rho) is float else f"this {type(rho).__name__}"
    with contextlib.suppress(OverflowError):
        if exact is not None:
            given = str(float(exact))
            if exact > 0 and ceil_written(exact) < math.inf:
                return exact
    raise BudgetError(f"rho must be a finite number above 0, not {given}")
