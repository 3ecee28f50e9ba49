"""Records of a ledger: its budget, its entries, the stages of their releases, and their hashes.

A release is "charged" once its cost is in the ledger, "drawn" once its noisy answers are durable
(or in the hands of the caller), and "published" once its folder is in place. Nobody has seen a
release that is charged but not drawn, so its noise may be drawn again at no further cost. A drawn
release is never drawn again. Charges from `Ledger.charge` have no stage.

Entries and stages form one hash chain each: every row has a hash of itself and of the row before
it. The budget's row has the number of rows and the hash of the last one. So any edit and any
missing row is noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

from fitplug.errors import BudgetError
from fitplug.numeric import ExactNumber, ceil_float, ceil_written, floor_written, read_exact_number
from fitplug.privacy import (
    CONTINUOUS,
    CurveLoss,
    DiscreteNoise,
    check_budget,
    epsilon_at,
    rho_at,
    rho_of_budget,
)
from fitplug.workload import BoundUnit, Unit, read_bound_unit


class DamagedError(Exception):
    """The rows of a ledger are not as they were written."""


def hash_values(*values: str | float | None) -> str:
    """Compute the SHA-256, in hex, of a sequence of values."""
    return hashlib.sha256(json.dumps(values, ensure_ascii=True).encode()).hexdigest()


def encode_fraction(exact: Fraction) -> str:
    """Write a fraction as numerator/denominator in hexadecimal.

    Python refuses to print decimal numbers that are as long as these may be.
    """
    return f"{exact.numerator:x}/{exact.denominator:x}"


def decode_fraction(text: str) -> Fraction:
    """Read a fraction that `encode_fraction` wrote; other texts raise ValueError or TypeError."""
    return Fraction(*(int(digits, 16) for digits in text.split("/")))


def encode_unit(unit: BoundUnit) -> str:
    """Write a unit with its cells as canonical JSON."""
    return json.dumps(unit.to_spec(), sort_keys=True)


def decode_unit(text: str) -> BoundUnit:
    """Read a unit from its text.

    Raises:
        ValueError: The text is not what `encode_unit` writes.
        TypeError: The value is not text.
    """
    unit = read_bound_unit(json.loads(text))
    if encode_unit(unit) != text:
        raise ValueError("the text is not a unit of privacy as fitplug writes it")
    return unit


@dataclass(frozen=True)
class Entry:
    """One charge to a ledger.

    Attributes:
        id: The number of the charge, from 1.
        time: The time of the charge, in UTC (ISO 8601).
        rho: The charge in rho of zCDP, exact. It is 0 for a release that an earlier charge covers.
        what: What the charge paid for.
        key: The name of the charge, if it has one. No two charges have the same key.
        plan_digest: The digest of the released plan.
        folder: The folder or the file of the release.
        covered_by: The number of the earlier charge that covers this release.
        profile: The digest of the costs per cell that the ledger stores with the charge.
        bound_unit: The unit of privacy of the release, with its cells; rho is the cost in the
            ledger's unit.
        noise: The noise of the release, if all of it is discrete Gaussian.
    """

    id: int
    time: str
    rho: Fraction
    what: str
    key: str | None = None
    plan_digest: str | None = None
    folder: str | None = None
    covered_by: int | None = None
    profile: str | None = None
    bound_unit: BoundUnit = field(kw_only=True)
    noise: DiscreteNoise | None = field(default=None, kw_only=True)

    @property
    def unit(self) -> Unit:
        """The unit of privacy of the release, without its cells."""
        return self.bound_unit.unit

    @property
    def loss(self) -> CurveLoss | None:
        """The loss of the noise on the Gaussian curve; None if it may be of another kind."""
        if self.rho == 0 and self.plan_digest is None:
            return CONTINUOUS  # a part of a release, whose charge has the noise of all parts
        return None if self.noise is None else self.noise.loss


State: TypeAlias = Literal["charged", "drawn", "published"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class Stage:
    """A stage that the release of a charge has reached.

    Attributes:
        entry: The number of the charge.
        state: The state of the release.
        time: When the ledger recorded the stage, in UTC (ISO 8601).
        answers: The digest of the noisy answers, once they are drawn.
        counts: The seal of the exact counts behind the answers (`Tables.seal`), if the records per
            person were limited.
        folder: The folder of the release; None for a release in memory.
    """

    entry: int
    state: State
    time: str
    answers: str | None = None
    counts: str | None = None
    folder: str | None = None

    def is_at_least(self, other: Stage) -> bool:
        """Return whether this stage is as late as another one, or later."""
        return STATES.index(self.state) >= STATES.index(other.state)


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
        bound_unit: The unit of privacy of all charges, with its cells. It may be None until the
            first charge, and its cells may be missing until the first charge that has them.
        any_noise: Whether charges may be for noise of any kind, if the budget is given as epsilon
            and delta. The total is then less.
        loss: The loss of all charges' noise on the Gaussian curve; None if a charge may have noise
            of another kind.
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
    any_noise: bool = False
    loss: CurveLoss | None = CONTINUOUS

    @classmethod
    def create(
        cls,
        total: Fraction,
        epsilon: float | None = None,
        delta: float | None = None,
        unit: BoundUnit | None = None,
        any_noise: bool = False,
    ) -> Budget:
        """Create a budget of which nothing is spent."""
        first = hash_total(total, epsilon, delta, any_noise)
        return cls(total, epsilon, delta, Fraction(0), 0, first, 0, first, unit, any_noise)

    @property
    def left(self) -> Fraction:
        """The remaining budget in rho of zCDP, exact."""
        return self.left_for(CONTINUOUS)

    @property
    def needs_gaussian(self) -> bool:
        """Whether all noise must be discrete Gaussian, because epsilon is on the Gaussian curve."""
        return self.epsilon is not None and not self.any_noise

    def left_for(self, loss: CurveLoss | None) -> Fraction:
        """Compute what is left in rho of zCDP for a charge, exact.

        Args:
            loss: The loss of the charge's noise on the Gaussian curve; None if it may be of another
                kind. It matters only if sigma is so small that it is not `USUAL`.

        Returns:
            An amount that is at least 0.
        """
        return max(self.total_with(loss) - self.spent, Fraction(0))

    def total_with(self, loss: CurveLoss | None) -> Fraction:
        """Compute the most rho of zCDP that all charges may have after a charge with this loss.

        It may be less than the amount spent so far. It is never the total that rho alone would
        allow, because which theorem holds must not depend on past releases (Theorem 6).
        """
        joined = self.join_loss(loss)
        if joined is None or not self.needs_gaussian:
            return self.total
        return joined.limit_rho(self.total)

    def join_loss(self, loss: CurveLoss | None) -> CurveLoss | None:
        """Return the loss of all noise on the Gaussian curve after a charge with this loss."""
        return None if self.loss is None or loss is None else self.loss.join(loss)

    def epsilon_at(self, delta: float) -> float:
        """Compute the epsilon of the spent budget at a delta, rounded up.

        It lies on the Gaussian curve if all noise is discrete Gaussian; otherwise it follows from
        rho alone.
        """
        cost = math.nextafter(math.sqrt(ceil_float(2 * self.spent)), math.inf)
        return epsilon_at(cost, delta, self.loss) if self.spent else 0.0

    @property
    def first_hash(self) -> str:
        """The hash that the first entry and the first stage follow."""
        return hash_total(self.total, self.epsilon, self.delta, self.any_noise)

    def compute_hash(self) -> str:
        """Compute the hash of the budget's row."""
        unit = None if self.bound_unit is None else encode_unit(self.bound_unit)
        chains = self.entries, self.head, self.stages, self.stage_head
        loss = encode_loss(self.loss)
        spent = encode_fraction(self.spent)
        return hash_values("now", self.first_hash, spent, *chains, unit, *loss)

    def complete_unit(self, charged: BoundUnit) -> BoundUnit:
        """Return the ledger's unit after a charge for this unit, which may be the first with a unit
        or with cells.
        """
        return charged if self.bound_unit is None else self.bound_unit.complete(charged)

    def has_total_of(self, given: Budget) -> bool:
        """Return whether this budget has the total that a caller gives."""
        if given.epsilon is None:
            return self.total == given.total
        # rho is not compared, because another version of SciPy may compute another last digit.
        described = self.epsilon, self.delta, self.any_noise
        return described == (given.epsilon, given.delta, given.any_noise)


def encode_loss(loss: CurveLoss | None) -> tuple[float | None, float | None]:
    """Return the numbers of a loss, or two times None if the noise may be of another kind."""
    return (None, None) if loss is None else (loss.stretch, loss.log_ratio)


def hash_total(total: Fraction, epsilon: float | None, delta: float | None, any_noise: bool) -> str:
    """Compute the hash of a total budget, with which the hash chains begin."""
    return hash_values("budget", encode_fraction(total), epsilon, delta, any_noise)


def make_budget(
    rho: ExactNumber | None,
    epsilon: float | None,
    delta: float | None,
    unit: BoundUnit | None = None,
    *,
    any_noise: bool = False,
) -> Budget | None:
    """Make the budget that a caller gives as rho, or as epsilon and delta.

    Returns:
        The unspent budget; None if the caller gives none.

    Raises:
        BudgetError: A number is out of range, the caller gives rho with epsilon or delta, only one
            of epsilon and delta, or any_noise with a budget in rho.
    """
    check_budget(rho, epsilon, delta)
    if type(any_noise) is not bool:
        raise BudgetError(f"any_noise must be True or False, not {any_noise!r}")
    if any_noise and epsilon is None:
        raise BudgetError(
            "any_noise is only for a new ledger with a budget in epsilon and delta. Remove "
            "any_noise."
        )
    if rho is not None:
        return Budget.create(check_amount(rho), unit=unit)
    if epsilon is None or delta is None:
        return None
    total = rho_at(epsilon, delta) if any_noise else rho_of_budget(epsilon, delta)
    # The total is the decimal of the float that a ledger shows for it.
    exact = Fraction(repr(floor_written(Fraction(total))))
    return Budget.create(exact, float(epsilon), float(delta), unit, any_noise)


def check_amount(rho: ExactNumber) -> Fraction:
    """Return the exact number that rho means (`read_exact_number`), if it is finite and above 0.

    Raises:
        BudgetError: rho is not a finite number above 0.
    """
    exact = read_exact_number(rho)
    given = str(rho) if type(rho) is float else f"this {type(rho).__name__}"
    with contextlib.suppress(OverflowError):
        if exact is not None:
            given = str(float(exact))
            if exact > 0 and ceil_written(exact) < math.inf:
                return exact
    raise BudgetError(f"rho must be a finite number above 0, not {given}")
