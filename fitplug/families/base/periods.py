"""Periods: a symmetric attribute in each of whose cells a person has at most one record.

If noise is independent between the n periods, and alike in all, a person with k records costs k
times what the costliest record costs, and a sum over all periods has n times the variance of one
period. So the best such strategy is that of a workload without the period attribute m, whose groups
that sum over m have targets divided by n. In the structure of the whole workload, blocks A and A +
m then have proportional matrices. Where k < n, sums over the periods may also be measured more
precisely, by one ratio for all blocks. A person with a record in most periods hardly changes the
differences between their total numbers of records, so these are measured more precisely.

Persons of three kinds prove a lower bound: those whose records are equal but for the period, and
those with k and with k - 1 independent records (docs/theory/persons.md, "Equal periods").
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fitplug.certify import scale_weights
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.family import Certifier, Duals
from fitplug.families.base.objective import Objective
from fitplug.families.base.structure import Structure
from fitplug.numeric import BoolArray, FloatArray, IntArray, frozen_property
from fitplug.workload import (
    AddRemove,
    QueryGroup,
    Workload,
    make_bound_workload,
    read_target,
)

S = TypeVar("S", bound=Structure)

_LARGEST = 64
"""The largest multiple of blocks with the period attribute."""

_ROUNDING = 1e-11
"""More than the relative rounding of shares, multiples and sums in the bound."""


@dataclass(frozen=True, eq=False)
class Periods:
    """The period attribute of a structure.

    Attributes:
        name: The attribute m.
        n: The number of periods.
        most: k, the most records of a person, at most n.
        partners: The block A + m of each block A without m, or -1 if there is none, and -2 for
            blocks with m, shape (b,).
    """

    name: str
    n: int
    most: int
    partners: IntArray

    @classmethod
    def find(cls, structure: Structure) -> Periods:
        """Find the periods of a structure whose `once_per` is a symmetric attribute."""
        unit = structure.unit
        assert isinstance(unit, AddRemove)
        assert unit.once_per is not None
        name, n = unit.once_per, structure.workload.domain[unit.once_per].size
        m = structure.block_attributes.index(name)
        sets = structure.subsets.list_attributes(np.arange(len(structure.blocks)))
        number = {attributes: block for block, attributes in enumerate(sets)}
        partners = [
            -2 if m in attributes else number.get(tuple(sorted([*attributes, m])), -1)
            for attributes in sets
        ]
        return cls(name, n, min(unit.records, n), np.array(partners, dtype=np.int64))

    def choose_multiples(self, ratio: float = 1.0) -> IntArray:
        """Choose the integer multiple of each block, shape (b,).

        Args:
            ratio: The precision of sums over all periods relative to independent periods.
        """
        root = math.sqrt(ratio * build_contrasts(self.n).precision / self.n)
        # The least multiple that is nearly as good as the best.
        off = {i: abs(round(root * i) / (root * i) - 1) for i in range(1, _LARGEST + 1)}
        best = min(off, key=lambda i: (round(off[i], 6), i))
        return np.where(self.partners == -2, best, round(root * best))

    def price(self, ratio: float) -> float:
        """Compute the cost of k equal records at precision 1 of one period."""
        return self.most * (self.most * ratio + self.n - self.most) / self.n

    def bound_costs(
        self, squares: Sequence[int], partners: Sequence[int], alike: Sequence[bool]
    ) -> tuple[list[int], list[int]]:
        """Bound the cost of a person from what a record costs.

        Args:
            squares: What the square of a cell's column in each block is multiplied by, to give the
                cost of a record.
            partners: As `self.partners`, for what the squares are of.
            alike: Whether the matrix of each block is that of its partner.

        Returns:
            What these squares are multiplied by, to give a bound on the cost of a person, and the
            cost of k records that are equal but for the period.
        """
        k, n = self.most, self.n
        above, equal = [0] * len(squares), [0] * len(squares)
        for block, partner in enumerate(partners):
            if partner == -2:
                continue
            s = squares[block]
            above[block] = equal[block] = k * k * s
            if partner >= 0:
                e = squares[partner] // (n - 1)  # H'H = n e (I - J / n)
                above[partner], equal[partner] = k * n * e, k * (n - k) * e
                if alike[block]:
                    above[block], above[partner] = k * max(k * s + (n - k) * e, n * e), 0
        return above, equal

    def reduce(self, workload: Workload, ratio: float = 1.0) -> Workload:
        """Reduce a workload to one period; `ratio` as in `choose_multiples`."""
        groups = [self._reduce_group(group, ratio) for group in workload.groups]
        return make_bound_workload(workload.domain, groups)

    def _reduce_group(self, group: QueryGroup, ratio: float) -> QueryGroup:
        n, names = self.n, [factor.attribute for factor in group.factors]
        counts = any(f.attribute == self.name and f.kind != "total" for f in group.factors)
        times = 1 / (n * ratio) + 1 - 1 / n if counts else n / ratio
        variances = group.variances / times
        if self.name in names:
            variances = np.take(variances, 0, axis=names.index(self.name))
        factors = tuple(factor for factor in group.factors if factor.attribute != self.name)
        target = read_target(variance=np.asarray(variances))
        return QueryGroup(group.name, factors, target, np.asarray(variances))

    def find_counting(self, workload: Workload) -> BoolArray:
        """Find which groups count each period apart, shape (groups,)."""
        return np.array([self.name in group.attributes for group in workload.groups])

    def list_norms(self, workload: Workload, kinds: FloatArray) -> list[PeriodNorm]:
        """List the norms in (N18) for weights of the kinds of persons, shape (3,)."""
        k, n = self.most, self.n
        counting = self.find_counting(workload)
        # Records, pairs of records that are equal but for the period, and independent pairs.
        counts = np.array([k, k, k - 1])
        records, alike = float(kinds @ counts), float(kinds[0]) * k * (k - 1)
        apart = float(kinds[1:] @ (counts * (counts - 1))[1:])
        missing = float(kinds @ (counts * (n - counts)))
        mass, at_mean, norms = math.sqrt(float(kinds.sum())), records + alike, []
        if at_mean > 0:
            factor, mean = math.sqrt(at_mean / n) / mass, (at_mean + apart) / at_mean
            norms.append(PeriodNorm(factor, np.where(counting, 1 / n, 1.0), mean))
        # Without records in all periods the contrasts of totals have a positive moment.
        within = float(kinds[0]) * k * (n - k) + float(kinds[1:] @ counts[1:]) * (n - 1)
        if within > 0 and missing > 0 and counting.any():
            factor = math.sqrt((n - 1) * within) / n / mass
            norms.append(PeriodNorm(factor, counting.astype(np.float64), missing / within))
        return norms


class PeriodNorm(NamedTuple):
    """A norm f of (N18), for the weights of one period.

    Attributes:
        factor: The factor on it.
        times: The factor on the weights of each group, shape (groups,).
        mean: y, the variance of the total relative to independent cells.
    """

    factor: float
    times: FloatArray
    mean: float


class PeriodStructure(Structure):
    """What structures for persons with at most one record in each period share."""

    @frozen_property
    def periods(self) -> Periods:
        """The periods."""
        return Periods.find(self)

    @abstractmethod
    def reduce(self, ratio: float = 1.0) -> Any:
        """Build the structure of one period; `ratio` as in `Periods.choose_multiples`."""

    @frozen_property
    def reduced(self) -> Any:
        """The structure of one period."""
        return self.reduce()

    @frozen_property
    def reduced_blocks(self) -> IntArray:
        """The block of `reduced` of each block, shape (b,)."""
        reduced, name = self.reduced, self.periods.name
        number = {reduced.name_attributes(b): b for b in range(len(reduced.blocks))}
        names = map(self.name_attributes, range(len(self.blocks)))
        return np.array([number[tuple(a for a in block if a != name)] for block in names])

    @property
    def remedy(self) -> str:
        return (
            f"noise is independent between the cells of {self.periods.name}, except in totals, so "
            "the plan is only nearly optimal; for the optimum, use fewer cells"
        )


class PeriodCertifier(Certifier[S]):
    """The bound of persons with at most one record in each period, from that of one period.

    The weights are those of the reduced structure; p ends with the weights of the three kinds of
    persons: k records that are equal but for the period, k independent ones, and k - 1 of these.
    """

    @abstractmethod
    def multiply_groups(self, structure: S, duals: Duals, times: FloatArray) -> Duals:
        """Multiply the weights q of each group by a number, shape (groups,)."""

    @abstractmethod
    def lower_period(self, structure: S, scale: float, duals: Duals, mean: float) -> float:
        """Bound the cost of one period for differences of the moment D + (mean - 1) p p'.

        Args:
            structure: The structure of one period.
            scale: The factor on all targets.
            duals: The weights, with D = diag(p) if p is scaled to the sum 1.
            mean: The variance of the total, relative to independent cells.
        """

    def count_duals(self, structure: S) -> tuple[int, int]:
        assert isinstance(structure, PeriodStructure)
        p, q = super().count_duals(structure.reduced)  # type: ignore[safe-super]
        return p + 3, q

    def share_weight(self, structure: S, duals: Duals) -> FloatArray:
        assert isinstance(structure, PeriodStructure)
        return super().share_weight(structure.reduced, duals._replace(p=duals.p[:-3]))

    def lower_cost(self, structure: S, objective: Objective, scale: float, duals: Duals) -> float:
        assert isinstance(structure, PeriodStructure)
        reduced, periods = structure.reduced, structure.periods
        kinds = scale_weights(duals.p[-3:], 3)
        duals = duals._replace(p=duals.p[:-3])
        norms = periods.list_norms(structure.workload, kinds)
        lower = self.lower_norms(reduced, scale, duals, norms)
        return sum(norm.factor * one for norm, one in zip(norms, lower, strict=True)) * (
            1 - _ROUNDING
        )

    def lower_norms(
        self, reduced: S, scale: float, duals: Duals, norms: Sequence[PeriodNorm]
    ) -> list[float]:
        """Bound norms of one period, without their factors, for weights of one period."""
        shares = super().share_weight(reduced, duals)
        return [
            math.sqrt(float((shares * norm.times).sum()))
            * self.lower_period(
                reduced, scale, self.multiply_groups(reduced, duals, norm.times), norm.mean
            )
            for norm in norms
        ]
