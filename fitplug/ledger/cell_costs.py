"""The costs of releases per cell: one charge can cover several releases.

A person's records all lie in cells. If, in every cell, the costs of several releases together stay
within the largest cost that one of them was charged for, then together they cost no person more
than that one did. With k records per person, the same holds by the triangle inequality for k times
the square roots of the costs, hence the factor k^2. docs/theory/prices.md has the proof.
"""

from __future__ import annotations

import functools
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

_CHUNK_CELLS = 2**22
"""The most cells whose costs are added up at once, where the attributes allow it."""


@dataclass(frozen=True, eq=False)
class CellCosts:
    """The squared privacy cost of each cell for one record, as in `Plan.profile`.

    Attributes:
        domain: The digest of the domain, from `digest_domain`.
        names: The attributes along which costs differ.
        records: The largest number of records that one person may have.
        costs: Upper bounds on the costs, with one axis for each of `names`.
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

        If the unit keeps a person's records apart, the costs are for the whole person already, and
        `records` is 1.
        """
        if plan.has_coverage:
            # A record outside the domain costs as much as any. Another release may count it.
            largest = ceil_float(2 * plan.rho_exact / plan.strategy.structure.changes**2)
            return cls(
                digest_domain(plan.domain), (), plan.strategy.structure.changes, np.array(largest)
            )
        names = plan.strategy.structure.profile_attributes
        costs = plan.profile().reshape(get_shape(plan.domain, names))
        if (changes := plan.strategy.structure.changes) > 1:
            # The profile is for a person with k records, but a ledger records the costs of one.
            costs = costs / changes**2 * (1 + 4 * UNIT_ROUNDOFF)
            # No cell costs more than rho allows. Without this, rounding could exceed a budget.
            costs = np.minimum(costs, ceil_float(2 * plan.rho_exact / changes**2))
        return cls(digest_domain(plan.domain), names, changes, costs)

    @property
    def digest(self) -> str:
        """The SHA-256, in hex, of these costs with their domain, names and records."""
        head = json.dumps([self.domain, self.names, self.records, self.costs.shape])
        return hashlib.sha256(head.encode() + b"\0" + self.to_bytes()).hexdigest()

    @property
    def rho(self) -> Fraction:
        """The least charge that covers these costs, in rho of zCDP, exact."""
        return Fraction(float(self.costs.max())) * self.records**2 / 2

    def multiply_records(self, times: int) -> CellCosts:
        """Return the costs for persons with `times` times as many records."""
        return replace(self, records=self.records * times) if times > 1 else self

    def to_bytes(self) -> bytes:
        """Write the costs as little-endian floats of 64 bits, the last axis fastest."""
        return np.ascontiguousarray(self.costs, dtype="<f8").tobytes()

    def expand_axes(self, names: Sequence[str]) -> FloatArray:
        """Return the costs with an axis for each of `names`, of size 1 if costs do not differ.

        `names` must contain all of `self.names`, in their order.
        """
        sizes = dict(zip(self.names, self.costs.shape, strict=True))
        return self.costs.reshape([sizes.get(name, 1) for name in names])


@dataclass(frozen=True)
class Excess:
    """A cell at which a charge does not cover a release.

    Attributes:
        cell: The cell's attributes with its index along each.
        requested: The cost of the release for a person whose records all lie in the cell, in rho.
        remaining: What the charge has left there, in rho.
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
        earlier: The costs of the charged release and of the releases that the charge covers
            already, for as many records per person as the new release.
        new: The costs of the new release.

    Returns:
        The cell; None if the costs stay within the charge in every cell, so that it covers the
        release.

    Raises:
        BudgetError: There are too many cells.
    """
    names, shape = _combine_axes(domain, [*earlier, new])
    largest = _find_largest_cost(rho, new.records)
    terms = [costs.expand_axes(names) for costs in (*earlier, new)]
    worst: tuple[float, tuple[int, ...], float, float] | None = None
    for first, chunks in _iterate_chunks(shape, terms):
        before, new_costs = functools.reduce(add_up, chunks[:-1]), chunks[-1]
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
        earlier: The costs of the charged release and of the releases that the charge covers.
        records: The number of records per person of the charged release.

    Returns:
        Privacy costs squared for `records` records, rounded down and at least 0, with an axis for
        each attribute of the domain, of size 1 where cells do not differ.

    Raises:
        BudgetError: There are too many cells.
    """
    names, _ = _combine_axes(domain, earlier)
    used = functools.reduce(add_up, [costs.expand_axes(names) for costs in earlier])
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


def _find_largest_cost(rho: Fraction, records: int) -> float:
    """Compute the largest cost of one record in a cell within a charge of rho."""
    return floor_float(2 * rho / records**2)


def _combine_axes(
    domain: Domain, costs: Sequence[CellCosts]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the attributes along which any of the costs differ, and their sizes."""
    names = domain.ordered([name for term in costs for name in term.names])
    shape = get_shape(domain, names)
    if math.prod(shape) > MOST_CELLS:
        raise BudgetError(
            f"the costs of these releases differ in {math.prod(shape):,} cells of "
            f"{' x '.join(names)}; the limit is {MOST_CELLS:,}. Charge this release separately."
        )
    return names, shape


def _iterate_chunks(
    shape: tuple[int, ...], terms: Sequence[FloatArray]
) -> Iterator[tuple[tuple[int, ...], list[FloatArray]]]:
    """Yield the terms at each index of the leading axes, of which there are enough for chunks."""
    lead = 0
    while math.prod(shape[lead:]) > _CHUNK_CELLS and lead < len(shape) - 1:
        lead += 1
    for first in itertools.product(*map(range, shape[:lead])):
        yield first, [_take_chunk(term, first) for term in terms]


def _take_chunk(term: FloatArray, first: tuple[int, ...]) -> FloatArray:
    """Return a term at an index of its leading axes."""
    sizes = term.shape[: len(first)]
    return np.asarray(term[tuple(0 if n == 1 else i for i, n in zip(first, sizes, strict=True))])
