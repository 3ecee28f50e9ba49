"""Strategy forms: what mechanism and verification need to know of one structure's strategies.

Each structure has one implementation, registered in `fitplug.mechanism.dispatch`. The methods that
are not abstract hold for every strategy of blocks (see `fitplug.mechanism.strategy`); a structure
whose strategy is laid out otherwise overrides them too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from fitplug.errors import PlanError
from fitplug.mechanism.answers import answer_blocks
from fitplug.mechanism.attribute_matrices import AttributeMatrix
from fitplug.mechanism.basis import ReadCounts
from fitplug.mechanism.block_set import BlockSet
from fitplug.mechanism.contrasts import make_contrasts
from fitplug.mechanism.covariance import build_block_covariance, build_block_strategy
from fitplug.mechanism.estimates import (
    BlockEstimates,
    bound_block_stds,
    compute_block_covariance,
)
from fitplug.mechanism.integer_limits import MAX_ENTRY
from fitplug.mechanism.mechanisms import Mechanism
from fitplug.mechanism.strategy import Strategy
from fitplug.numeric import AnyArray, FloatArray, IntArray, find_largest_entry
from fitplug.structure import Structure

S = TypeVar("S", bound=Structure)


class ExactCost(NamedTuple):
    """What a strategy's integers cost.

    Attributes:
        sensitivity_squared: max_v |A v|^2 over the differences between neighbours, exact.
        column_squares: Upper bounds on |A v|^2 of each difference, shape (|V|,).
        max_records: The most records of which no answer leaves the range that is released as it is.
    """

    sensitivity_squared: int
    column_squares: FloatArray
    max_records: int


class StrategyForm(ABC, Generic[S]):
    """How the strategies of one structure are laid out, and what follows from their integers."""

    @abstractmethod
    def compute_exact_cost(
        self,
        structure: S,
        block_sets: tuple[BlockSet, ...],
        attribute_matrices: tuple[AttributeMatrix, ...],
    ) -> ExactCost:
        """Compute the exact squared sensitivity of the integers, and what they have room for.

        Returns:
            The exact squared sensitivity, upper bounds on the square of each column, and the number
            of records that the integers have room for.
        """

    @abstractmethod
    def bound_unit_variances(
        self,
        structure: S,
        block_sets: tuple[BlockSet, ...],
        attribute_matrices: tuple[AttributeMatrix, ...],
    ) -> FloatArray:
        """Bound the variances of the structure's rows at noise variance 1 from above, (rows,).

        Raises:
            DesignError: If a basis does not span its block, or they cannot be bounded.
        """

    @abstractmethod
    def list_mechanisms(self, strategy: Strategy, noise_std: float) -> tuple[Mechanism, ...]:
        """List mechanisms whose rho add up to the strategy's but for rounding."""

    @abstractmethod
    def check_blocks(self, structure: S, block_set: BlockSet) -> None:
        """Check that blocks of the structure may share a set and its basis.

        Raises:
            PlanError: If they are not blocks that may share a set, or its basis is not theirs.
        """

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

    def check_form(self, strategy: Strategy, structure: S) -> None:
        """Check that the integers have the shapes, types and ranges that they must have.

        Raises:
            PlanError: If a shape or a type is another one, or an integer is out of range.
        """
        for block_set in strategy.block_sets:
            self._check_block_set(structure, block_set)
        for name, n, matrix in zip(
            structure.block_attributes, structure.sizes, strategy.attribute_matrices, strict=True
        ):
            if matrix.is_symmetric != (name in structure.symmetric) or not matrix.has_form(n):
                raise PlanError(
                    f"what it measures of {name!r} is not an integer matrix of its cells"
                )
        measured = [block for own in strategy.block_sets for block in own.blocks.tolist()]
        if sorted(measured) != list(range(len(structure.blocks))):
            raise PlanError("the strategy does not measure each block once")

    def answer_exactly(self, strategy: Strategy, read_counts: ReadCounts) -> IntArray:
        """Compute A x of exact counts; see `fitplug.mechanism.dispatch.answer_exactly`."""
        return answer_blocks(strategy, read_counts)

    def make_estimates(self, strategy: Strategy, answers: IntArray) -> Mapping[str, FloatArray]:
        """Make the unbiased estimates of every group from noisy answers."""
        return BlockEstimates(strategy, answers)

    def bound_combined_stds(
        self, strategy: Strategy, combinations: Sequence[Mapping[str, FloatArray]]
    ) -> FloatArray:
        """Bound the stds of linear combinations of estimates, at noise variance 1."""
        return bound_block_stds(strategy, combinations)

    def compute_combined_covariance(
        self, strategy: Strategy, combinations: Sequence[Mapping[str, FloatArray]]
    ) -> FloatArray:
        """Compute the covariance of linear combinations of estimates, at noise variance 1."""
        return compute_block_covariance(strategy, combinations)

    def build_covariance(self, strategy: Strategy, noise_std: float) -> tuple[FloatArray, IntArray]:
        """Write out the covariance of the noise on a basis, and the basis."""
        return build_block_covariance(strategy, noise_std)

    def build_matrix(self, strategy: Strategy) -> FloatArray:
        """Write out A over the cells of the workload's attributes."""
        return build_block_strategy(strategy)

    def _check_block_set(self, structure: S, block_set: BlockSet) -> None:
        """Check one block set; see `check_form`."""
        blocks, M = block_set.blocks, block_set.M
        fits = blocks.dtype == np.int64 and blocks.ndim == 1 and len(blocks) > 0
        fits = fits and 0 <= int(blocks.min()) <= int(blocks.max()) < len(structure.blocks)
        if not fits:
            raise PlanError("the strategy measures blocks that the workload does not have")
        self.check_blocks(structure, block_set)
        block_set.basis.check_form(structure.build_block_matrix(int(blocks[0])))
        n = block_set.basis.size
        if M.dtype != np.int64 or M.shape != (len(blocks), n, n):
            raise PlanError("the strategy is not a square integer matrix over its basis")
        at = np.arange(n)
        if np.tril(M, -1).any() or (M[:, at, at] <= 0).any():
            raise PlanError("the strategy is not an invertible upper triangular matrix")
        if find_largest_entry(M) >= MAX_ENTRY:
            raise PlanError("the strategy's integers are too large")
