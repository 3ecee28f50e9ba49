"""The functions of the mechanism, each done by the form that the structure's strategies have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.basis import ReadCounts
from fitplug.families.base.boxed_combinations import Products
from fitplug.families.base.dense_mechanism import MeasuredTable, write_out_matrix, write_out_tables
from fitplug.families.base.estimates import Estimates
from fitplug.families.base.family import find_form
from fitplug.families.base.parted_strategy import PartedStrategy
from fitplug.families.base.pieces import PART, WHOLE
from fitplug.families.base.strategy import BlockSet, Integers, IntegerStrategy
from fitplug.families.base.strategy_form import (
    Mechanism,
    StrategyCost,
    count_in_records,
    count_in_shares,
    divide_bounds,
    multiply_changes,
)
from fitplug.families.base.structure import Structure
from fitplug.numeric import AnyArray, FloatArray, IntArray
from fitplug.workload import Unit


def build_strategy(
    structure: Structure,
    block_sets: tuple[BlockSet, ...],
    attribute_matrices: tuple[AttributeMatrix, ...],
    tree_blocks: tuple[Any, ...] = (),
) -> IntegerStrategy:
    """Build the strategy of some integers, with its proven sensitivity and variances.

    Raises:
        DesignError: If a basis does not span its block, or variances cannot be bounded.
    """
    integers = Integers(block_sets, attribute_matrices, tree_blocks)
    cost = compute_cost(structure, *integers)
    variances = upper_unit_variances(structure, *integers)
    return IntegerStrategy(
        structure=structure,
        block_sets=block_sets,
        attribute_matrices=attribute_matrices,
        sensitivity_squared=cost.sensitivity_squared,
        column_squares=cost.column_squares,
        unit_variances=variances,
        max_records=cost.max_records,
        tree_blocks=tree_blocks,
    )


def compute_cost(
    structure: Structure,
    block_sets: tuple[BlockSet, ...],
    attribute_matrices: tuple[AttributeMatrix, ...],
    tree_blocks: tuple[Any, ...] = (),
) -> StrategyCost:
    """Compute the squared sensitivity of a strategy's integers, and what they have room for.

    Returns:
        The squared sensitivity, exact where the differences are few enough and else an upper bound,
        upper bounds on the square of each column, and the number of records that the integers have
        room for.
    """
    integers = Integers(block_sets, attribute_matrices, tree_blocks)
    once = find_form(structure).compute_cost(structure, integers)
    # |A k v|^2 = k^2 |A v|^2 for the k of the unit, and the largest difference is k times as large.
    return count_in_shares(multiply_changes(once, structure.changes), structure)


def confirm_cost(strategy: IntegerStrategy) -> StrategyCost:
    """Compute the cost of a strategy's integers anew.

    Returns:
        What `compute_cost` returns. Where it is a bound that depends on how long one
        searches, the squared sensitivity is the one the strategy claims if that is proven.
    """
    structure = strategy.structure
    if structure.changes != 1:
        return compute_cost(structure, *strategy.integers)
    claimed = count_in_records(strategy).sensitivity_squared
    cost = find_form(structure).confirm_cost(structure, strategy.integers, claimed)
    return count_in_shares(cost, structure)


def restate_strategy(strategy: IntegerStrategy, unit: Unit) -> IntegerStrategy:
    """Return the strategy of one record added or removed with what it costs in another unit.

    Args:
        strategy: A strategy whose structure has the default unit.
        unit: A unit whose differences are those of one record, k times.
    """
    if unit == strategy.structure.unit:
        return strategy
    structure = replace(strategy.structure, unit=unit)
    once = StrategyCost(strategy.sensitivity_squared, strategy.column_squares, strategy.max_records)
    cost = multiply_changes(once, structure.changes)
    return replace(strategy, structure=structure, **cost._asdict())


def upper_overstatement(strategy: IntegerStrategy) -> float:
    """Bound by how much the stated sensitivity is above the truth, relatively; 0.0 where exact."""
    return find_form(strategy.structure).upper_overstatement(count_in_records(strategy))


def upper_unit_variances(
    structure: Structure,
    block_sets: tuple[BlockSet, ...],
    attribute_matrices: tuple[AttributeMatrix, ...],
    tree_blocks: tuple[Any, ...] = (),
) -> FloatArray:
    """Bound the variances of the structure's rows at noise variance 1 from above, shape (rows,).

    Raises:
        DesignError: If a basis does not span its block, or they cannot be bounded.
    """
    integers = Integers(block_sets, attribute_matrices, tree_blocks)
    variances = find_form(structure).upper_unit_variances(structure, integers)
    # The estimates are of records, and the noise is in shares.
    return divide_bounds(variances, structure.shares**2)


def list_mechanisms(strategy: IntegerStrategy, noise_std: float) -> tuple[Mechanism, ...]:
    """List mechanisms whose rho add up to the strategy's but for rounding.

    There is one for each block where all blocks have their largest sensitivity at the same cell;
    elsewhere all answers are one mechanism.
    """
    structure = strategy.structure
    found = find_form(structure).list_mechanisms(count_in_records(strategy), noise_std)
    return tuple(own.multiply_sensitivity(structure.shares) for own in found)


def list_tables(strategy: IntegerStrategy) -> list[tuple[str, ...]]:
    """List attribute sets whose exact counts give the answers of all blocks."""
    return find_form(strategy.structure).list_tables(strategy)


def check_strategy(strategy: IntegerStrategy) -> None:
    """Check that a strategy's integers have the shapes, types and ranges that they must have.

    Raises:
        PlanError: If a shape or a type is another one, or an integer is out of range.
    """
    find_form(strategy.structure).check_form(strategy, strategy.structure)


def read_attribute_matrices(
    structure: Structure, arrays: Sequence[Mapping[str, AnyArray]]
) -> tuple[AttributeMatrix, ...]:
    """Read the attribute matrices of a strategy from a plan file.

    Args:
        structure: The structure.
        arrays: What the file holds of each of the structure's `block_attributes`, by name.

    Returns:
        The matrices. They are not checked: `check_strategy` does that.
    """
    return find_form(structure).read_attribute_matrices(structure, arrays)


def answer_exactly(strategy: IntegerStrategy, read_counts: ReadCounts) -> IntArray:
    """Compute A x exactly for every integer input, and clamp it at +-2^62.

    The answers are confidential. The clamp is 1-Lipschitz in each answer, so it never adds to the
    sensitivity.

    Args:
        strategy: The strategy.
        read_counts: Gives the exact counts over some attributes, in the order named, in shares of
            the measures among them.

    Returns:
        The answers, shape (strategy.released_size,). What the unit of privacy makes public comes
        last, and gets no noise.
    """
    whole = cut_into_wholes(strategy)
    answers = np.zeros(strategy.released_size, dtype=np.int64)
    pieces = [
        whole.split_counts(number, np.asarray(read_counts(slab.names))[slab.index])
        for number, slab in enumerate(whole.slabs)
    ]
    for part in range(len(whole.sizes)):
        own = {slab: pieces[slab][part] for slab in whole.list_slabs(part)}
        answers[whole.place(part)] = whole.answer_part(part, own)
    return answers


def cut_strategy(strategy: IntegerStrategy, most: int = PART) -> PartedStrategy:
    """Cut a strategy, so that its answers and estimates are made in parts.

    The plan alone decides the parts: the same strategy and `most` give the same ones everywhere.

    Args:
        strategy: The strategy.
        most: The most counts of a slab, answers of a part and estimates of an output, where the
            smallest that the structure allows is not more.

    Raises:
        WorkloadError: If the smallest slab, part or output has more than 2^24 numbers.
    """
    return find_form(strategy.structure).cut_strategy(strategy, most)


@lru_cache(maxsize=2)  # a check before a charge, and then a release, ask for the same one
def cut_into_wholes(strategy: IntegerStrategy) -> PartedStrategy:
    """Cut a strategy as in memory: each table is one slab, and each group one output.

    A block is in one part with the whole of its answers.
    """
    return cut_strategy(strategy, WHOLE)


def make_estimates(strategy: IntegerStrategy, answers: IntArray) -> Mapping[str, FloatArray]:
    """Make the unbiased estimates of every group from noisy answers.

    Args:
        strategy: The strategy.
        answers: Shape (strategy.released_size,), with public totals last.

    Returns:
        By the groups' names, arrays of each group's shape. Each is computed when it is read.

    Raises:
        TablesError: If the answers are of another plan.
    """
    return Estimates(cut_into_wholes(strategy), answers)


def upper_combined_stds(
    strategy: IntegerStrategy, combinations: Sequence[Mapping[str, FloatArray]]
) -> FloatArray:
    """Bound the stds of linear combinations of estimates from above, at noise variance 1.

    Args:
        strategy: The strategy.
        combinations: k mappings from names of groups to coefficients, of the group's shape.

    Returns:
        The bounds, shape (k,). Blocks that combinations share are inverted once.
    """
    found = find_form(strategy.structure).upper_combined_stds(strategy, combinations)
    return divide_bounds(found, strategy.structure.shares)


def compute_combined_covariance(
    strategy: IntegerStrategy, combinations: Sequence[Mapping[str, FloatArray]]
) -> FloatArray:
    """Compute the covariance of linear combinations of estimates, at noise variance 1.

    Args:
        strategy: The strategy.
        combinations: As for `upper_combined_stds`.

    Returns:
        A positive semidefinite matrix, shape (k, k), with upper bounds on the variances on its
        diagonal.
    """
    found = find_form(strategy.structure).compute_combined_covariance(strategy, combinations)
    return divide_bounds(found, strategy.structure.shares**2)


def upper_boxed_stds(strategy: IntegerStrategy, combinations: Sequence[Products]) -> FloatArray:
    """Bound the stds of linear combinations of large groups from above, at noise variance 1.

    Args:
        strategy: The strategy.
        combinations: k mappings from names of groups to products of coefficients, which are added.

    Returns:
        The bounds, shape (k,). No array of a group's size is formed.

    Raises:
        WorkloadError: If the products are too many.
    """
    found = find_form(strategy.structure).upper_boxed_stds(strategy, combinations)
    return divide_bounds(found, strategy.structure.shares)


def compute_boxed_covariance(
    strategy: IntegerStrategy, combinations: Sequence[Products]
) -> FloatArray:
    """Compute the covariance of linear combinations of large groups, at noise variance 1.

    Args:
        strategy: The strategy.
        combinations: As for `upper_boxed_stds`.

    Returns:
        As for `compute_combined_covariance`.

    Raises:
        WorkloadError: If the products are too many.
    """
    found = find_form(strategy.structure).compute_boxed_covariance(strategy, combinations)
    return divide_bounds(found, strategy.structure.shares**2)


def build_dense_covariance(
    strategy: IntegerStrategy, noise_std: float
) -> tuple[FloatArray, IntArray]:
    """Write out the covariance of the noise on a basis of a small strategy.

    Returns:
        The covariance of the noise on B x, shape (k, k), and the integer basis B, shape (k, d),
        over the cells of the workload's attributes in C order.

    Raises:
        WorkloadError: If d times the answers measured exceeds 5e7.
    """
    covariance, basis = find_form(strategy.structure).build_covariance(strategy, noise_std)
    return divide_bounds(covariance, strategy.structure.shares**2), basis


def build_dense_strategy(strategy: IntegerStrategy) -> FloatArray:
    """Write out A, shape (n, d), over the cells of the workload's attributes in C order.

    A column is what the strategy answers for one record, of all its shares. Entries above 2^53 are
    rounded to floats.
    """
    measured = find_form(strategy.structure).list_measured_cells(strategy)
    return write_out_matrix(strategy, measured) * float(strategy.structure.shares)


def list_measured_tables(strategy: IntegerStrategy) -> Iterator[MeasuredTable]:
    """List what each block measures of a table of counts of records, in the order of the answers.

    Raises:
        WorkloadError: If a matrix has more than 2^24 entries.
    """
    form = find_form(strategy.structure)
    return write_out_tables(strategy, form.list_measured_cells(strategy))
