"""What releases cost each cell: one charge can cover several releases.

A person's records all lie in cells. If the costs of several releases add up, at every cell, to no
more than the largest cost that one of these releases was charged for, then together they cost no
person more than that one did. With k records a person, the same holds by the triangle inequality
for k times the square roots of the costs, hence the factor k^2. docs/theory/prices.md has the
proof.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from fitplug.domain import Domain, get_shape
from fitplug.errors import BudgetError
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, ceil_float, floor_float, freeze
from fitplug.plan import Plan

MOST_CELLS = 10**8
"""The largest number of cells over which costs are compared."""

_SLAB_CELLS = 2**22
"""The number of cells whose costs are added up at once, where the attributes allow it."""


@dataclass(frozen=True, eq=False)
class CellCosts:
    """The squared privacy cost of each cell for one record, as in `Plan.profile`.

    Attributes:
        domain: The digest of the domain, from `digest_domain`.
        names: The attributes along which costs differ.
        records: The largest number of records that one person may have.
        costs: Upper bounds of the costs, with one axis for each of `names`.
    """

    domain: str
    names: tuple[str, ...]
    records: int
    costs: FloatArray

    def __post_init__(self) -> None:
        freeze(self.costs)

    @classmethod
    def from_plan(cls, plan: Plan) -> CellCosts:
        """Return the costs of a plan's release, for a person in its unit of privacy.

        Where the unit keeps a person's records apart, the costs are those of the person already,
        and `records` is 1.
        """
        if plan.has_coverage:
            # A record in no table costs as much as any, and may lie in a cell of another release.
            largest = ceil_float(2 * plan.rho_exact / plan.strategy.structure.changes**2)
            return cls(
                digest_domain(plan.domain), (), plan.strategy.structure.changes, np.array(largest)
            )
        names = plan.strategy.structure.profile_attributes
        costs = plan.profile().reshape(get_shape(plan.domain, names))
        if (changes := plan.strategy.structure.changes) > 1:
            # The profile is of a person with k records, and what a ledger keeps is of one record.
            costs = costs / changes**2 * (1 + 4 * UNIT_ROUNDOFF)
            # No cell costs more than rho says; else rounding would charge more than a budget.
            costs = np.minimum(costs, ceil_float(2 * plan.rho_exact / changes**2))
        return cls(digest_domain(plan.domain), names, changes, costs)

    @property
    def digest(self) -> str:
        """The SHA-256, in hex, of all attributes."""
        head = json.dumps([self.domain, self.names, self.records, self.costs.shape])
        return hashlib.sha256(head.encode() + b"\0" + self.to_bytes()).hexdigest()

    @property
    def rho(self) -> Fraction:
        """The least charge that covers these costs, in rho of zCDP, exact."""
        return Fraction(float(self.costs.max())) * self.records**2 / 2

    def multiply_records(self, times: int) -> CellCosts:
        """Return the costs for persons with so many times as many records."""
        return replace(self, records=self.records * times) if times > 1 else self

    def to_bytes(self) -> bytes:
        """Write the costs as little-endian floats of 64 bits, the last axis fastest."""
        return np.ascontiguousarray(self.costs, dtype="<f8").tobytes()

    def expand_axes(self, names: Sequence[str]) -> FloatArray:
        """Return the costs with an axis for each of `names`, of size 1 if costs do not differ.

        `names` must hold all of `self.names`, in their order.
        """
        sizes = dict(zip(self.names, self.costs.shape, strict=True))
        return self.costs.reshape([sizes.get(name, 1) for name in names])


@dataclass(frozen=True)
class Excess:
    """A cell at which a charge does not cover a release.

    Attributes:
        cell: The cell's attributes with its index along each.
        requested: What the release costs a person whose records all lie in the cell, in rho.
        remaining: What is left there, in rho.
    """

    cell: tuple[tuple[str, int], ...]
    requested: float
    remaining: float


def digest_domain(domain: Domain) -> str:
    """Compute the SHA-256, in hex, of a domain's spec with its attributes in their order."""
    spec = json.dumps(list(domain.spec().items()), ensure_ascii=True)
    return hashlib.sha256(spec.encode()).hexdigest()


def find_excess(
    domain: Domain, rho: Fraction, earlier: Sequence[CellCosts], new: CellCosts
) -> Excess | None:
    """Find the cell where a release exceeds a charge the most.

    Args:
        domain: The domain of all releases.
        rho: The charge that is to cover the release.
        earlier: The costs of the release that was charged and of those that the charge covers
            already, for as many records as the new one.
        new: The costs of the new release.

    Returns:
        The cell; None if the costs exceed the charge at no cell, so that it covers the release.

    Raises:
        BudgetError: There are too many cells.
    """
    names, shape = _combine_axes(domain, [*earlier, new])
    largest = _find_largest_cost(rho, new.records)
    terms = [costs.expand_axes(names) for costs in (*earlier, new)]
    worst: tuple[float, tuple[int, ...], float, float] | None = None
    for first, slabs in _iterate_slabs(shape, terms):
        before, new_costs = _sum_up(slabs[:-1]), slabs[-1]
        total = add_up(before, new_costs)
        flat_index = int(np.argmax(total))
        highest = float(total.flat[flat_index])
        if highest <= largest or (worst and highest <= worst[0]):
            continue
        index = np.unravel_index(flat_index, total.shape)
        added, used = (
            float(np.broadcast_to(term, total.shape)[index]) for term in (new_costs, before)
        )
        # Where costs do not differ along an attribute, its first cell stands for all.
        worst = (highest, (*first, *map(int, index)), added, used)
    if worst is None:
        return None
    _, cell, added, used = worst
    square = new.records**2
    return Excess(
        cell=tuple(zip(names, cell, strict=True)),
        requested=ceil_float(Fraction(added) * square / 2),
        remaining=max(0.0, floor_float(rho - Fraction(used) * square / 2)),
    )


def compute_unused_budget(
    domain: Domain, rho: Fraction, earlier: Sequence[CellCosts], records: int = 1
) -> FloatArray:
    """Compute what each cell has left of a charge.

    Args:
        domain: The domain of all releases.
        rho: The charge.
        earlier: The costs of the release that was charged and of those that it covers.

    Returns:
        Privacy costs squared for so many records, rounded down and at least 0, with an axis for
        each attribute of the domain, of size 1 where cells do not differ.

    Raises:
        BudgetError: There are too many cells.
    """
    names, _ = _combine_axes(domain, earlier)
    used = _sum_up([costs.expand_axes(names) for costs in earlier])
    largest = _find_largest_cost(rho, earlier[0].records)
    left = np.maximum(-add_up(used, np.array(-largest)), 0.0)
    if records > 1:
        left = np.nextafter(left * records**2, 0.0)
    sizes = dict(zip(names, left.shape, strict=True))
    return np.asarray(left.reshape([sizes.get(name, 1) for name in domain.names]))


def add_up(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a + b, each entry the smallest float that is not below the exact sum."""
    near = a + b
    shift = near - a
    error = (a - (near - shift)) + (b - shift)  # exact: Knuth's sum of two floats
    return np.where(error > 0, np.nextafter(near, np.inf), near)


def _sum_up(terms: Sequence[FloatArray]) -> FloatArray:
    """Add up costs, rounded up."""
    total = terms[0]
    for term in terms[1:]:
        total = add_up(total, term)
    return total


def _find_largest_cost(rho: Fraction, records: int) -> float:
    """Compute the largest cost, for one record, that a cell may have within a charge of rho."""
    return floor_float(2 * rho / records**2)


def _combine_axes(
    domain: Domain, costs: Sequence[CellCosts]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the attributes along which any of the costs differ, and their sizes."""
    names = domain.ordered([name for term in costs for name in term.names])
    shape = get_shape(domain, names)
    if math.prod(shape) > MOST_CELLS:
        raise BudgetError(
            f"the costs would have to be compared over {math.prod(shape)} cells of "
            f"{' x '.join(names)}; the limit is {MOST_CELLS}. Charge this release separately."
        )
    return names, shape


def _iterate_slabs(
    shape: tuple[int, ...], terms: Sequence[FloatArray]
) -> Iterator[tuple[tuple[int, ...], list[FloatArray]]]:
    """Yield the terms at each index of the leading axes, as many axes as leave small slabs."""
    lead = 0
    while math.prod(shape[lead:]) > _SLAB_CELLS and lead < len(shape) - 1:
        lead += 1
    for first in itertools.product(*map(range, shape[:lead])):
        yield first, [_take_slab(term, first) for term in terms]


def _take_slab(term: FloatArray, first: tuple[int, ...]) -> FloatArray:
    """Return a term at an index of its leading axes."""
    sizes = term.shape[: len(first)]
    return np.asarray(term[tuple(0 if n == 1 else i for i, n in zip(first, sizes, strict=True))])
