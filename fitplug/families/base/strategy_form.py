"""Strategy forms: what mechanism and verification need to know of one structure's strategies.

Each structure has one implementation, registered in `fitplug.families.registry`. Those whose
blocks have a basis and a matrix over it share `fitplug.families.blocks.strategy.matrices`.

The forms know integers that count records, and the differences of one record. What they prove is
carried over here to integers that count shares of records, as measures divide them, and to
differences of k records.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Generic, Literal, NamedTuple, TypeVar

from fitplug.errors import PlanError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.boxed_combinations import Products
from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.dense_mechanism import MeasuredCells
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.strategy import Integers, IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.numeric import UNIT_ROUNDOFF, AnyArray, FloatArray, IntArray, ceil_float, ceil_sqrt


@dataclass(frozen=True)
class Mechanism:
    """One part of a plan's mechanism: integer answers that get noise of one size.

    Attributes:
        name: The attributes whose interaction is measured, or "all answers".
        kind: The distribution of the noise.
        sensitivity: The L2 sensitivity in the plan's unit of privacy, rounded up.
        sigma: The parameter of the noise: each answer gets an independent draw of the discrete
            Gaussian N_Z(0, sigma^2).
        dimension: The number of answers.
    """

    name: str
    kind: Literal["discrete Gaussian"]
    sensitivity: float
    sigma: float
    dimension: int

    @property
    def rho(self) -> float:
        """The rho of zCDP of this part, rounded up."""
        return ceil_float((Fraction(self.sensitivity) / Fraction(self.sigma)) ** 2 / 2)

    def multiply_sensitivity(self, times: int) -> Mechanism:
        """Return the mechanism of answers that are so many times as large, beside equal noise."""
        return replace(self, sensitivity=ceil_float(Fraction(self.sensitivity) * times))


def make_mechanism(name: str, square: int, sigma: float, dimension: int) -> Mechanism:
    """Make a mechanism from its exact squared sensitivity."""
    return Mechanism(name, "discrete Gaussian", ceil_sqrt(Fraction(square)), sigma, dimension)


S = TypeVar("S", bound=Structure)


class StrategyCost(NamedTuple):
    """What a strategy's integers cost.

    Attributes:
        sensitivity_squared: max_v |A v|^2 over the differences v between neighbours, or an upper
            bound on it; `upper_overstatement` says how far above it may be.
        column_squares: Upper bounds on the largest |A v|^2 of each cell, shape (profile_size,).
        max_records: The most records of which no answer leaves the range that is released as it is.
    """

    sensitivity_squared: int
    column_squares: FloatArray
    max_records: int


class StrategyForm(ABC, Generic[S]):
    """How the strategies of one structure are laid out, and what follows from their integers.

    `fitplug.families.base.strategies` describes the methods that have no description here.
    """

    @abstractmethod
    def compute_cost(self, structure: S, integers: Integers) -> StrategyCost:
        """Compute the squared sensitivity of the integers, and what they have room for."""

    def confirm_cost(self, structure: S, integers: Integers, claimed: int) -> StrategyCost:
        """Compute the cost of the integers as `compute_cost`, where one is claimed.

        Where the squared sensitivity is a bound, it is the claimed one if that is proven.
        """
        return self.compute_cost(structure, integers)

    def upper_overstatement(self, strategy: IntegerStrategy) -> float:
        """Bound by how much the stated sensitivity may be above the truth, relatively."""
        return 0.0

    @abstractmethod
    def upper_unit_variances(self, structure: S, integers: Integers) -> FloatArray:
        """Bound the variances of the structure's rows at noise variance 1 from above, (rows,).

        Raises:
            DesignError: If a basis does not span its block, or they cannot be bounded.
        """

    @abstractmethod
    def list_mechanisms(self, strategy: IntegerStrategy, noise_std: float) -> tuple[Mechanism, ...]:
        """List mechanisms whose rho add up to the strategy's but for rounding."""

    @abstractmethod
    def list_tables(self, strategy: IntegerStrategy) -> list[tuple[str, ...]]:
        """List attribute sets whose exact counts give the answers of all blocks."""

    def read_attribute_matrices(
        self, structure: S, arrays: Sequence[Mapping[str, AnyArray]]
    ) -> tuple[AttributeMatrix, ...]:
        """Read the matrices of the structure's `block_attributes` from a plan file.

        Args:
            structure: The structure.
            arrays: What the file holds of each attribute, by name; see
                `AttributeMatrix.arrays_in_file`.

        Returns:
            The matrices. They are not checked.
        """
        return make_contrasts(structure)

    def check_form(self, strategy: IntegerStrategy, structure: S) -> None:
        """Check that the integers have the shapes, types and ranges that they must have.

        Raises:
            PlanError: If a shape or a type is another one, or an integer is out of range.
        """
        self.check_blocks(strategy, structure)
        for name, n, matrix in zip(
            structure.block_attributes, structure.sizes, strategy.attribute_matrices, strict=True
        ):
            if matrix.is_symmetric != (name in structure.symmetric) or not matrix.has_form(n):
                raise PlanError(
                    f"what it measures of {name!r} is not an integer matrix of its cells"
                )

    @abstractmethod
    def check_blocks(self, strategy: IntegerStrategy, structure: S) -> None:
        """Check the integers of each block, and that each is measured once.

        Raises:
            PlanError: If a shape or a type is another one, or an integer is out of range.
        """

    @abstractmethod
    def cut_strategy(self, strategy: IntegerStrategy, most: int) -> PartedStrategy:
        """Cut a strategy, so that its answers and estimates are made in parts."""

    @abstractmethod
    def upper_combined_stds(
        self, strategy: IntegerStrategy, combinations: Sequence[Mapping[str, FloatArray]]
    ) -> FloatArray:
        """Bound the stds of linear combinations of estimates, at noise variance 1."""

    @abstractmethod
    def compute_combined_covariance(
        self, strategy: IntegerStrategy, combinations: Sequence[Mapping[str, FloatArray]]
    ) -> FloatArray:
        """Compute the covariance of linear combinations of estimates, at noise variance 1."""

    @abstractmethod
    def upper_boxed_stds(
        self, strategy: IntegerStrategy, combinations: Sequence[Products]
    ) -> FloatArray:
        """Bound the stds of combinations given by products, at noise variance 1."""

    @abstractmethod
    def compute_boxed_covariance(
        self, strategy: IntegerStrategy, combinations: Sequence[Products]
    ) -> FloatArray:
        """Compute the covariance of combinations given by products, at noise variance 1."""

    @abstractmethod
    def build_covariance(
        self, strategy: IntegerStrategy, noise_std: float
    ) -> tuple[FloatArray, IntArray]:
        """Write out the covariance of the noise on a basis, and the basis."""

    @abstractmethod
    def list_measured_cells(self, strategy: IntegerStrategy) -> MeasuredCells:
        """List what each block measures of the cells of the attributes that are not split."""


def upper_excess(stated: int, attained: int) -> float:
    """Bound by how much a stated sensitivity is above one that is attained, relatively.

    Args:
        stated: The square of the stated sensitivity.
        attained: The square of the other one, at most as large.
    """
    if attained == stated:
        return 0.0
    if not attained:
        return math.inf
    ratio = ceil_float(Fraction(stated, attained))
    return (math.sqrt(ratio) - 1) * (1 + 4 * UNIT_ROUNDOFF) + 2 * UNIT_ROUNDOFF


def multiply_changes(cost: StrategyCost, changes: int) -> StrategyCost:
    """Return the cost of differences that are k times as large; see `Structure.changes`."""
    if changes == 1:
        return cost
    squares = cost.column_squares * float(changes**2) * (1 + 4 * UNIT_ROUNDOFF)
    return StrategyCost(cost.sensitivity_squared * changes**2, squares, cost.max_records)


def count_in_shares(cost: StrategyCost, structure: Structure) -> StrategyCost:
    """Return the cost of integers that count shares of records; see `Structure.shares`.

    A record is a convex combination of records in one cell each, times the number of shares. The
    norm is convex, so no record costs more than one at the bounds of its measures.
    """
    shares = structure.shares
    if shares == 1:
        return cost
    squares = cost.column_squares * float(shares**2) * (1 + 4 * UNIT_ROUNDOFF)
    return StrategyCost(cost.sensitivity_squared * shares**2, squares, cost.max_records // shares)


def count_in_records(strategy: IntegerStrategy) -> IntegerStrategy:
    """Return a strategy with the squared sensitivity of its integers, which records multiply by
    their number of shares; the inverse of `count_in_shares`.
    """
    shares = strategy.structure.shares
    if shares == 1:
        return strategy
    return replace(strategy, sensitivity_squared=strategy.sensitivity_squared // shares**2)


def divide_bounds(bounds: FloatArray, number: int) -> FloatArray:
    """Divide numbers by an integer, with what rounding takes away added to them."""
    return bounds if number == 1 else bounds / float(number) * (1 + 4 * UNIT_ROUNDOFF)
