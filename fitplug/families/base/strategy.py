"""The integer strategy, which really runs: y = A x + z, A integer and z discrete Gaussian.

A family defines A, and has a subclass of `IntegerStrategy` for each of its structures in the table
of `fitplug.families.registry`. The privacy guarantee is a rational number, rho = max_v |A v|^2 / (2
sigma^2) over the differences v between neighbours. Estimates are unbiased, and their variances are
at most the stated ones: a discrete Gaussian N_Z(0, sigma^2) has variance at most sigma^2 (Canonne,
Kamath, Steinke 2020). See docs/theory/integer-mechanism.md.

With measures, the integers count shares of records, and a unit's differences may be k times those
of one record. Methods with `record` in their names know neither: this class converts what they
prove.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar

import numpy as np

from fitplug.errors import BAD_INTEGERS, PlanError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.mechanism import (
    BlockCovariance,
    BlockWeights,
    Combined,
    MeasuredBlock,
    Mechanism,
    Products,
    StrategyCost,
    divide_bounds,
    upper_excess,
)
from fitplug.families.base.parted_strategy import Estimates, PartedStrategy, ReadCounts
from fitplug.families.base.pieces import PART, WHOLE
from fitplug.families.base.structure import Structure
from fitplug.numeric import (
    UNIT_ROUNDOFF,
    AnyArray,
    FloatArray,
    IntArray,
    ceil_float,
    ceil_sqrt,
    gamma,
)
from fitplug.workload import Unit

S = TypeVar("S", bound=Structure, covariant=True)


@dataclass(frozen=True, eq=False)
class IntegerStrategy(ABC, Generic[S]):
    """An integer strategy for a structure.

    Attributes:
        structure: The structure.
        attribute_matrices: A_a of each of the structure's `block_attributes`.
        sensitivity_squared: max_v |A v|^2 over the differences v between neighbours, or an upper
            bound on it.
        column_squares: Upper bounds on the largest |A v|^2 of each cell, shape (profile_size,).
        unit_variances: Upper bounds on the variances of the structure's rows at noise variance 1.
        max_records: With no more records than this, no answer is clamped and nothing overflows.
    """

    structure: S
    attribute_matrices: tuple[AttributeMatrix, ...]
    sensitivity_squared: int
    column_squares: FloatArray
    unit_variances: FloatArray
    max_records: int

    # What a family provides.

    @abstractmethod
    def compute_record_cost(self, claimed: int | None = None) -> StrategyCost:
        """Compute the cost of the differences of one record.

        Args:
            claimed: A squared sensitivity. Where the cost is a bound that depends on the length of
                a search, this value is returned if it can be proven.
        """

    def compute_attained_square(self) -> int | None:
        """Compute a squared norm that some difference attains; None if the cost is exact."""
        return None

    @abstractmethod
    def upper_record_variances(self) -> FloatArray:
        """Bound the variances of the structure's rows at noise variance 1 from above, (rows,).

        Raises:
            DesignError: If a basis does not span its block, or they cannot be bounded.
        """

    @classmethod
    def read_attribute_matrices(
        cls, structure: Structure, arrays: Sequence[Mapping[str, AnyArray]]
    ) -> tuple[AttributeMatrix, ...]:
        """Read the matrices of the structure's `block_attributes` from a plan file.

        Args:
            structure: The structure.
            arrays: The file's arrays of each attribute, by name; see
                `AttributeMatrix.arrays_in_file`.

        Returns:
            The matrices. They are not checked: `check_form` does that.
        """
        return make_contrasts(structure)

    @abstractmethod
    def describe_blocks(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """Describe the integers of each block: entries of a plan file's header, and its arrays."""

    @classmethod
    @abstractmethod
    def read_blocks(
        cls, structure: Structure, header: Mapping[str, Any], arrays: Mapping[str, AnyArray]
    ) -> dict[str, Any]:
        """Read what `describe_blocks` described, as arguments of the class, unchecked.

        Raises:
            KeyError: If something is missing; other wrong entries raise errors of any kind.
        """

    @abstractmethod
    def check_blocks(self) -> None:
        """Check the integers of each block, and that each block is measured once.

        Raises:
            PlanError: If a shape or a type is wrong, or an integer is out of range.
        """

    @property
    @abstractmethod
    def widths(self) -> Sequence[tuple[IntArray, int]]:
        """Blocks, and the number of their answers per row of their attributes' matrices."""

    @property
    @abstractmethod
    def column_height(self) -> int:
        """About the number of rows of A in which a column has entries."""

    @abstractmethod
    def list_block_tables(self) -> list[tuple[str, ...]]:
        """List the attribute sets whose exact counts give the answers of all blocks."""

    @abstractmethod
    def cut(self, most: int = PART) -> PartedStrategy:
        """Cut the strategy, so that its answers and estimates can be computed in parts.

        The parts depend on the strategy and `most` alone, so they are the same everywhere.

        Args:
            most: The most counts of a slab, answers of a part and estimates of an output, unless
                the structure's smallest ones are larger.

        Raises:
            WorkloadError: If the smallest slab, part or output has more than 2^24 numbers.
        """

    @abstractmethod
    def weigh_arrays(
        self, combinations: Sequence[Mapping[str, FloatArray]]
    ) -> Iterable[BlockWeights]:
        """Find the answers' weights in combinations given by arrays; see `combine`."""

    @abstractmethod
    def weigh_products(self, combinations: Sequence[Products]) -> Iterable[BlockWeights]:
        """Find the answers' weights in combinations given by products; see `combine_products`."""

    @property
    def cell_attributes(self) -> tuple[str, ...]:
        """The attributes whose cells all blocks are over, besides the ones that they split."""
        return self.structure.dense

    @abstractmethod
    def list_measured(self) -> Iterable[MeasuredBlock]:
        """List the matrices with which the blocks measure the cells of `cell_attributes`."""

    @abstractmethod
    def list_covariances(self, noise_std: float) -> Iterable[BlockCovariance]:
        """List an integer basis of each block, and the covariance of the noise on it."""

    # What follows.

    def prove(self) -> IntegerStrategy[S]:
        """Return the strategy with its proven sensitivity and variances.

        Raises:
            DesignError: If a basis does not span its block, or variances cannot be bounded.
        """
        variances = self.upper_unit_variances()
        return replace(self, unit_variances=variances, **self.compute_cost()._asdict())

    def compute_cost(self) -> StrategyCost:
        """Compute the cost of the integers, and the number of records they have room for.

        Returns:
            The squared sensitivity, exact where the differences are few enough and else an upper
            bound, upper bounds on the square of each column, and the number of records that the
            integers have room for.
        """
        # |A k v|^2 = k^2 |A v|^2 for the k of the unit.
        cost = self.compute_record_cost().multiply(self.structure.changes)
        return cost.count_in_shares(self.structure.shares)

    def confirm_cost(self) -> StrategyCost:
        """Compute the cost of the integers anew.

        Returns:
            The same as `compute_cost`, except where the cost is a bound that depends on the length
            of a search: there the squared sensitivity is the strategy's claim if it can be proven.
        """
        if self.structure.changes != 1:
            return self.compute_cost()
        return self.compute_record_cost(self.record_square).count_in_shares(self.structure.shares)

    @property
    def record_square(self) -> int:
        """The squared sensitivity of integers that count records."""
        return self.sensitivity_squared // self.structure.shares**2

    def restate(self, unit: Unit) -> IntegerStrategy[S]:
        """Return a strategy for one record added or removed, with its cost in another unit.

        Args:
            unit: A unit whose differences are k times those of one record.
        """
        if unit == self.structure.unit:
            return self
        structure = replace(self.structure, unit=unit)
        once = StrategyCost(self.sensitivity_squared, self.column_squares, self.max_records)
        return replace(self, structure=structure, **once.multiply(structure.changes)._asdict())

    def upper_overstatement(self) -> float:
        """Bound the relative excess of the stated sensitivity over the true one; 0.0 if exact."""
        attained = self.compute_attained_square()
        return 0.0 if attained is None else upper_excess(self.record_square, attained)

    def upper_unit_variances(self) -> FloatArray:
        """Bound the variances of the structure's rows at noise variance 1 from above, (rows,).

        Raises:
            DesignError: If a basis does not span its block, or they cannot be bounded.
        """
        # The estimates are of records, and the noise is in shares.
        return divide_bounds(self.upper_record_variances(), self.structure.shares**2)

    def list_mechanisms(self, noise_std: float) -> tuple[Mechanism, ...]:
        """List mechanisms whose rho add up to the strategy's, except for rounding.

        All answers are one mechanism unless all blocks attain their largest sensitivity at the same
        difference. Otherwise the blocks' sum would exceed the rho of all answers together.
        """
        return (self.make_mechanism("all answers", self.record_square, noise_std, self.size),)

    def make_mechanism(self, name: str, square: int, noise_std: float, size: int) -> Mechanism:
        """Make a mechanism from the squared sensitivity of integers that count records."""
        sensitivity = ceil_float(Fraction(ceil_sqrt(Fraction(square))) * self.structure.shares)
        return Mechanism(name, "discrete Gaussian", sensitivity, noise_std, size)

    def list_tables(self) -> list[tuple[str, ...]]:
        """List the attribute sets whose exact counts give all answers and the public totals."""
        public = self.structure.public_attributes
        return [*self.list_block_tables(), *(() if public is None else (public,))]

    def check_form(self) -> None:
        """Check the shapes, types and ranges of the integers.

        Raises:
            PlanError: If a shape or a type is wrong, or an integer is out of range.
        """
        self.check_blocks()
        structure = self.structure
        for name, n, matrix in zip(
            structure.block_attributes, structure.sizes, self.attribute_matrices, strict=True
        ):
            if matrix.is_symmetric != (name in structure.symmetric) or not matrix.has_form(n):
                raise PlanError(BAD_INTEGERS)

    def answer_exactly(self, read_counts: ReadCounts) -> IntArray:
        """Compute A x exactly for every integer input, and clamp it at +-2^62.

        The answers are confidential. The clamp is 1-Lipschitz in each answer, so it never adds to
        the sensitivity.

        Args:
            read_counts: Gives the exact counts over some attributes, in the order named, in shares
                of the measures among them.

        Returns:
            The answers, shape (released_size,). Totals that the unit of privacy makes public come
            last and get no noise.
        """
        return cut_into_wholes(self).answer(read_counts)

    def make_estimates(self, answers: IntArray) -> Mapping[str, FloatArray]:
        """Make the unbiased estimates of every group from noisy answers.

        Args:
            answers: Shape (released_size,), with public totals last.

        Returns:
            By group name, an array of the group's shape, computed when it is read.

        Raises:
            TablesError: If the answers are of another plan.
        """
        return Estimates(cut_into_wholes(self), answers)

    def combine(self, combinations: Sequence[Mapping[str, FloatArray]]) -> Combined:
        """Combine estimates linearly, at noise variance 1.

        Args:
            combinations: k mappings from names of groups to coefficients of the group's shape.
        """
        return Combined(
            len(combinations), lambda: self.weigh_arrays(combinations), self.structure.shares
        )

    def combine_products(self, combinations: Sequence[Products]) -> Combined:
        """Combine estimates of large groups linearly, at noise variance 1.

        No array of a group's size is formed.

        Args:
            combinations: k mappings from names of groups to products, whose sum gives the
                coefficients.

        Raises:
            WorkloadError: If the products are too many.
        """
        return Combined(
            len(combinations), lambda: self.weigh_products(combinations), self.structure.shares
        )

    @cached_property
    def size(self) -> int:
        """The number of answers with noise."""
        rows = [matrix.rows for matrix in self.attribute_matrices]
        multiply = self.structure.subsets.multiply
        return sum(width * int(multiply(rows, blocks).sum()) for blocks, width in self.widths)

    @property
    def released_size(self) -> int:
        """The number of integers in a release: the answers, and then the public totals."""
        return self.size + self.structure.public_size

    def split_answers(self, answers: IntArray) -> tuple[IntArray, IntArray]:
        """Split exact answers into those that get noise and the public totals, or raise ValueError
        if their number is wrong: no other answer may pass for a public total."""
        if len(answers) != self.released_size:
            raise ValueError("the number of exact answers is not that of the plan")
        return answers[: self.size], answers[self.size :]

    def find_matrix(self, attribute: int, block: int) -> AttributeMatrix:
        """Find the integer matrix with which a block measures one of its attributes."""
        return self.attribute_matrices[attribute].of_block(block)

    def spread_multiples(self, block: int) -> IntArray | None:
        """Spread a block's factors for grades over the rows of its attributes' matrices.

        Returns:
            An axis for each attribute of the block, or None if its answers are not multiplied.
        """
        return None

    @property
    def sensitivity(self) -> float:
        """The L2 sensitivity in the structure's unit of privacy, rounded up to a float."""
        return ceil_sqrt(Fraction(self.sensitivity_squared))

    def compute_rho(self, noise_std: float) -> Fraction:
        """Compute rho in the structure's unit of privacy, at noise N_Z(0, noise_std^2)."""
        return Fraction(self.sensitivity_squared) / (2 * Fraction(noise_std) ** 2)

    def upper_rho(self, noise_std: float) -> float:
        """Bound rho from above through the rounded sensitivity, as OpenDP's own map does."""
        return ceil_float((Fraction(self.sensitivity) / Fraction(noise_std)) ** 2 / 2)

    def upper_profile(self, noise_std: float) -> FloatArray:
        """Bound the privacy cost squared of each cell from above, shape (profile_size,).

        No bound exceeds twice the exact rho, rounded up.
        """
        cost = self.column_squares / (noise_std * noise_std) * (1 + 4 * UNIT_ROUNDOFF)
        return np.minimum(cost, ceil_float(2 * self.compute_rho(noise_std)))

    def upper_variances(self, noise_std: float) -> FloatArray:
        """Bound the variances of the structure's rows from above, shape (rows,)."""
        return noise_std * noise_std * self.unit_variances * (1 + 4 * UNIT_ROUNDOFF)

    def upper_total_variance(self, noise_std: float) -> float:
        """Bound the sum of the variances of all queries from above."""
        total = float((self.structure.repeats * self.upper_variances(noise_std)).sum())
        return total * (1 + gamma(self.structure.rows + 1))


@lru_cache(maxsize=2)  # a check before a charge and the release after it share one
def cut_into_wholes(strategy: IntegerStrategy[Structure]) -> PartedStrategy:
    """Cut a strategy for use in memory: each table is one slab, each group one output.

    All answers of a block are in one part.
    """
    return strategy.cut(WHOLE)


def meets_targets(variances: FloatArray, scale: float, targets: FloatArray) -> bool:
    """Tell whether variances <= scale * targets holds exactly, and for the rounded product too."""
    allowed = targets if scale == 1.0 else np.nextafter(scale * targets, 0.0)
    return bool((variances <= allowed).all())
