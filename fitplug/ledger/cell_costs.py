"""What releases cost each cell: personalised accounting, by which some releases are free.

A person's records all lie in cells. If at every cell the costs of several releases add up to no
more than the most that one of them was charged for, then together they cost no person more than
that one did. With k records a person this holds for k times the costs' root, by the triangle
inequality, hence the factor k^2.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fitplug.domain import Domain
from fitplug.errors import BudgetError
from fitplug.numeric import FloatArray, ceil_float, floor_float, freeze
from fitplug.plan import Plan

MOST_CELLS = 10**8
"""That costs are compared over."""

MOST_CONTRIBUTIONS = 10**6

_SLAB = 2**22
"""Cells looked at together, where the attributes allow it."""


@dataclass(frozen=True, eq=False)
class CellCosts:
    """The privacy cost squared of each cell, for one record, as `Plan.profile` has it.

    domain: digest of the domain's spec. names: the attributes whose cells are told apart.
    contributions: most records one person may have. costs: upper bounds, one axis for each name.
    """

    domain: str
    names: tuple[str, ...]
    contributions: int
    costs: FloatArray

    def __post_init__(self) -> None:
        freeze(self.costs)

    @classmethod
    def of(cls, plan: Plan, contributions: int = 1) -> CellCosts:
        """Of a plan's release. Raises BudgetError for contributions out of range."""
        check_contributions(contributions)
        dense = plan.structure.dense
        costs = plan.profile().reshape(plan.domain.shape_of(dense))
        return cls(domain_digest(plan.domain), dense, contributions, costs)

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of all of it."""
        head = json.dumps([self.domain, self.names, self.contributions, self.costs.shape])
        return hashlib.sha256(head.encode() + b"\0" + self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """The costs as little-endian floats of 64 bits, the last axis fastest."""
        return np.ascontiguousarray(self.costs, dtype="<f8").tobytes()

    def rho(self) -> Fraction:
        """What a charge for it must be at least, in rho of zCDP; exact."""
        return Fraction(float(self.costs.max())) * self.contributions**2 / 2

    def over(self, names: Sequence[str]) -> FloatArray:
        """The costs with an axis for each of `names`, which hold its own in their order."""
        sizes = dict(zip(self.names, self.costs.shape, strict=True))
        return self.costs.reshape([sizes.get(name, 1) for name in names])


@dataclass(frozen=True)
class Excess:
    """A cell at which a release is not free. rho for all records of a person in that cell."""

    at: tuple[tuple[str, int], ...]
    requested: float
    remaining: float


def check_contributions(contributions: int) -> None:
    """Raise BudgetError unless a whole number from 1 to a million."""
    whole = isinstance(contributions, int) and not isinstance(contributions, bool)
    if not whole or not 1 <= contributions <= MOST_CONTRIBUTIONS:
        raise BudgetError(
            f"contributions = {contributions!r} must be a whole number from 1 to "
            f"{MOST_CONTRIBUTIONS}"
        )


def domain_digest(domain: Domain) -> str:
    """SHA-256, in hex, of what the domain's spec says, in its order."""
    spec = json.dumps(list(domain.spec().items()), ensure_ascii=True)
    return hashlib.sha256(spec.encode()).hexdigest()


def excess(
    domain: Domain, rho: Fraction, made: Sequence[CellCosts], new: CellCosts
) -> Excess | None:
    """The cell where `new`, after all that was `made` within a charge of rho, is the furthest above
    it; None if it is above at none, as it is then free. All are of the domain and as many records.

    Raises BudgetError for too many cells.
    """
    names, shape = _union(domain, [*made, new])
    most = _most(rho, new.contributions)
    parts = [part.over(names) for part in (*made, new)]
    worst: tuple[float, tuple[int, ...], float, float] | None = None
    for first, slabs in _slabs(shape, parts):
        before, own = _sum_up(slabs[:-1]), slabs[-1]
        whole = add_up(before, own)
        at = int(np.argmax(whole))
        if whole.flat[at] <= most or (worst and whole.flat[at] <= worst[0]):
            continue
        place = np.unravel_index(at, whole.shape)
        values = [float(np.broadcast_to(part, whole.shape)[place]) for part in (own, before)]
        # Where nothing differs along an attribute, its first cell stands for all.
        worst = (float(whole.flat[at]), (*first, *map(int, place)), values[0], values[1])
    if worst is None:
        return None
    _, cell, asked, used = worst
    square = new.contributions**2
    return Excess(
        at=tuple(zip(names, cell, strict=True)),
        requested=ceil_float(Fraction(asked) * square / 2),
        remaining=max(0.0, floor_float(rho - Fraction(used) * square / 2)),
    )


def slack(domain: Domain, rho: Fraction, made: Sequence[CellCosts]) -> FloatArray:
    """What each cell has left, privacy cost squared for one record, rounded down, >= 0; with an
    axis for each attribute of the domain, of size 1 where cells are not told apart.

    Raises BudgetError for too many cells.
    """
    names, _ = _union(domain, made)
    before = _sum_up([part.over(names) for part in made])
    left = np.maximum(-add_up(before, np.array(-_most(rho, made[0].contributions))), 0.0)
    sizes = dict(zip(names, left.shape, strict=True))
    return np.asarray(left.reshape([sizes.get(name, 1) for name in domain.names]))


def add_up(a: FloatArray, b: FloatArray) -> FloatArray:
    """a + b, each the smallest float that is not below it."""
    near = a + b
    shift = near - a
    error = (a - (near - shift)) + (b - shift)  # exact: Knuth's sum of two floats
    return np.where(error > 0, np.nextafter(near, np.inf), near)


def _sum_up(parts: Sequence[FloatArray]) -> FloatArray:
    total = parts[0]
    for part in parts[1:]:
        total = add_up(total, part)
    return total


def _most(rho: Fraction, contributions: int) -> float:
    """The most that costs of a cell may add up to within a charge of rho."""
    return floor_float(2 * rho / contributions**2)


def _union(domain: Domain, parts: Sequence[CellCosts]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    names = domain.ordered([name for part in parts for name in part.names])
    shape = domain.shape_of(names)
    if math.prod(shape) > MOST_CELLS:
        raise BudgetError(
            f"the costs would be compared over the {math.prod(shape)} cells of "
            f"{' x '.join(names)}, and at most {MOST_CELLS} can be: charge this release as one of "
            "its own"
        )
    return names, shape


def _slabs(
    shape: tuple[int, ...], parts: Sequence[FloatArray]
) -> Iterator[tuple[tuple[int, ...], list[FloatArray]]]:
    """The parts at each cell of the leading axes, as many of them as make what is left small."""
    lead = 0
    while math.prod(shape[lead:]) > _SLAB and lead < len(shape) - 1:
        lead += 1
    for first in itertools.product(*map(range, shape[:lead])):
        yield first, [_at(part, first) for part in parts]


def _at(part: FloatArray, first: tuple[int, ...]) -> FloatArray:
    sizes = part.shape[: len(first)]
    return np.asarray(part[tuple(0 if n == 1 else i for i, n in zip(first, sizes, strict=True))])
