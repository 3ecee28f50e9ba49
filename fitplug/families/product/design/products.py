"""The design of the product family: its best known member in integers, and a bound.

The coefficients of block A's answers are products of entries of its attributes' matrices, and an
answer has 64 bits. So a table of more attributes leaves fewer bits for each of them. The scales are
optimised again for the rounded matrices. The cost of rounding is part of the plan's gap. See
docs/theory/integer-mechanism.md.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from fitplug.errors import DesignError
from fitplug.families.base.attribute_matrices import AttributeMatrix
from fitplug.families.base.basis import Basis
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.family import (
    LEAST_RECORDS,
    PRODUCT_BOUND_MARGIN,
    Design,
    add_claim_margins,
    build_strategy,
)
from fitplug.families.base.mechanism import SATURATION
from fitplug.families.base.objective import Objective
from fitplug.families.base.strategy import IntegerStrategy
from fitplug.families.base.structure import Structure
from fitplug.families.product.certificate.products import pack_duals
from fitplug.families.product.design.bound_ascent import ascend_product_bound
from fitplug.families.product.design.cell_weights import CellWeights
from fitplug.families.product.design.descent import DifferenceWeights, descend_product_family
from fitplug.families.product.design.members import FamilyMember, optimise_attributes
from fitplug.families.product.design.pair_weights import PairShares
from fitplug.families.product.design.person_bound import find_person_duals
from fitplug.families.product.design.person_weights import PersonCells
from fitplug.families.product.design.scales import (
    build_extreme_rows,
    invert_scales,
    optimise_scales,
)
from fitplug.families.product.shape.grades import BlockScales
from fitplug.families.product.shape.products import (
    ProductPairStructure,
    ProductPersonStructure,
    ProductStructure,
)
from fitplug.numeric import FloatArray, IntArray, to_positions
from fitplug.solve import GapProgress, Options

_BITS = (20, 16, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4)
"""Binary logarithms of the largest column norm of an attribute's matrix, tried in this order."""

_MULTIPLES = 2_000_000
"""The most multiples to try, times the number of blocks."""

_WORSE = 2
"""The search ends when this many precisions in a row are no better than the best."""

_TOO_LARGE = (
    "tables with so many attributes need integers of more than 64 bits. Use tables with fewer "
    "attributes."
)


@dataclass(frozen=True, eq=False)
class _Rounding:
    """Integer matrices of the attributes, a multiple of each scale (count,), and the cost."""

    matrices: tuple[AttributeMatrix, ...]
    multiples: IntArray
    cost: float


def round_member(
    structure: ProductStructure,
    member: FamilyMember,
    *,
    loss: float,
) -> IntegerStrategy[Structure]:
    """Find the best integer strategy near a real member of the family.

    Args:
        structure: The structure of the workload.
        member: The member of the family.
        loss: The search ends at the first strategy that costs at most (1 + loss) times as much.

    Returns:
        A strategy with room for `LEAST_RECORDS` records.

    Raises:
        DesignError: If there is none.
    """
    most = SATURATION / LEAST_RECORDS / structure.shares
    best = _find_rounding(member, most, loss)
    blocks = make_block_set(member.batched.scales, best.multiples, structure.noisy_blocks)
    return add_claim_margins(build_strategy(structure, best.matrices, (blocks,)))


def _find_rounding(member: FamilyMember, most: float, loss: float) -> _Rounding:
    """Find the best integers near a real member of the family.

    Args:
        member: The member.
        most: The largest coefficient of an answer.
        loss: As for `round_member`.

    Raises:
        DesignError: If there are none.
    """
    best: _Rounding | None = None
    worse = 0
    for bits in _BITS:
        try:
            matrices = _round_attributes(member, bits)
            rounding = _round_blocks(member, matrices, most, loss)
        except DesignError:
            continue
        worse += 1
        if best is None or rounding.cost < best.cost:
            best, worse = rounding, 0
        elif worse == _WORSE:
            break
        if rounding.cost <= member.upper * (1 + loss):
            break
    if best is None:
        raise DesignError(_TOO_LARGE)
    return best


def _round_attributes(member: FamilyMember, bits: int) -> tuple[AttributeMatrix, ...]:
    """Round the covariance of each attribute; identical ones are rounded once."""
    known: dict[Hashable, AttributeMatrix] = {}
    matrices: list[AttributeMatrix] = []
    for a, covariance in enumerate(member.covariances):
        factors = [factor for factor in member.batched.factors if factor.attribute == a]
        key = covariance.key, *(factor.rows.tobytes() for factor in factors)
        if key not in known:
            known[key] = covariance.round_to_integers(factors, bits)
        matrices.append(known[key])
    return tuple(matrices)


def _round_blocks(
    member: FamilyMember,
    matrices: tuple[AttributeMatrix, ...],
    most: float,
    loss: float,
) -> _Rounding:
    """Choose the integer multiples of the scales for the integer matrices of the attributes.

    Raises:
        DesignError: If a coefficient of an answer would be larger than `most`.
    """
    batched = member.batched
    tables = [
        matrices[factor.attribute].upper_variance_parts(factor.factor) for factor in batched.factors
    ]
    scales = batched.scales
    entry = scales.multiply([_list_entries(matrix) for matrix in matrices])
    if float(entry.max()) > most:
        raise DesignError(_TOO_LARGE)
    rows = build_extreme_rows(batched, tables, loss / 10)
    profiles = member.profiles.of_matrices(matrices)
    best = optimise_scales(rows, profiles, tolerance=loss, near=member.scales)
    z = best.z
    real = invert_scales(np.sqrt(z))
    room = most / float((real * entry).max())
    M = _round_multiples(real, best.costs * real**2, room)
    if float((M * entry).max()) > 2 * most:
        raise DesignError(_TOO_LARGE)
    # Public totals answer the blocks without cost.
    worst = float(rows.multiply(np.where(z > 0, M**-2.0, 0.0)).max())
    cost = math.sqrt(worst * float(profiles.multiply(M**2).max()))
    return _Rounding(matrices, M.astype(np.int64), cost)


def _list_entries(matrix: AttributeMatrix) -> FloatArray:
    """List the largest entry of each grade of a matrix, shape (K,)."""
    if matrix.grades is None:
        return np.array([float(max(matrix.largest_entry, 1))])
    return matrix.grades.largest_entries.astype(np.float64)


def make_block_set(scales: BlockScales, multiples: IntArray, blocks: IntArray) -> BlockSet:
    """Make the block set of given blocks from a multiple of each scale, shape (count,)."""
    basis = Basis("cells", np.zeros(1, dtype=np.int64), np.ones(1))
    if not len(scales.divided):
        return BlockSet(blocks, basis, multiples[blocks][:, None, None])
    ones = np.ones((len(blocks), 1, 1), dtype=np.int64)
    by_block = scales.split(multiples)
    return BlockSet(blocks, basis, ones, tuple(by_block[block] for block in blocks.tolist()))


def _round_multiples(real: FloatArray, spent: FloatArray, room: float) -> FloatArray:
    """Round a multiple of `real` (b,), at most room * real, to integers.

    Of the multiples that make the smallest entry an integer, the chosen one changes the others
    least, weighted by what each block spends.
    """
    needed = real > 0
    least = float(real[needed].min())
    most = math.floor(room * least)
    if most < 1:
        return np.maximum(np.rint(real * room), 1.0)
    tried = max(1, min(most // 2, _MULTIPLES // len(real)))
    # One entry stands for all blocks with the same number.
    kinds, place = np.unique(real[needed], return_inverse=True)
    share = np.bincount(to_positions(place.ravel()), spent[needed])
    wanted = np.arange(most - tried + 1, most + 1)[:, None] * (kinds / least)
    off = (np.abs(np.rint(wanted) / wanted - 1) * share).sum(axis=1)
    multiple = float(most - tried + 1 + int(off.argmin())) / least
    return np.maximum(np.rint(real * multiple), 1.0)


def design_product_persons(
    structure: ProductPersonStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the best known member of the product family for persons.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        WorkloadError: If too many queries have individual targets.
        DesignError: If an integer strategy cannot be made.
    """
    member = _find_member(structure, options)
    return Design.in_one_tier(
        round_member(structure, member, loss=loss),
        find_person_duals(structure, objective, member),
        bound_margin=PRODUCT_BOUND_MARGIN,
        iterations=member.iterations,
        ended="stopped" if member.stopped else "apart",
    )


_MOST_ROWS = 20_000
"""The most rows of a group with individual weights in the descent for pairs of cells."""


def design_products(
    structure: ProductStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Find the best known member of the product family, for the plain objective.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        WorkloadError: If too many queries have individual targets.
        DesignError: If an integer strategy cannot be made.
    """
    member = _find_member(structure, options)
    duals, _bound = ascend_product_bound(member.batched, member.weights)
    return Design.in_one_tier(
        round_member(structure, member, loss=loss),
        pack_duals(duals),
        bound_margin=PRODUCT_BOUND_MARGIN,
        iterations=member.iterations,
        ended="stopped" if member.stopped else "apart",
    )


def _find_member(structure: ProductStructure, options: Options) -> FamilyMember:
    """Find the best known member, with dual weights."""
    return find_member(
        structure,
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )


def find_member(
    structure: ProductStructure,
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 600,
    progress: GapProgress | None = None,
) -> FamilyMember:
    """Find the best known member of the product family, with dual weights.

    The keywords are those of `descend_product_family`.

    Raises:
        WorkloadError: If too many queries have individual targets.
        DesignError: As the dual solver does.
    """
    batched = spread = structure.batched
    differences: DifferenceWeights
    if isinstance(structure, ProductPairStructure):
        if not any(structure.trees):
            spread = batched.spread_targets(_MOST_ROWS)
        covariances, weights = optimise_attributes(spread)
        differences = PairShares.spread(structure, weights.cells)
    else:
        covariances, weights = optimise_attributes(batched)
        differences = (
            PersonCells.spread(structure, weights.cells)
            if isinstance(structure, ProductPersonStructure)
            else CellWeights(batched, weights.cells)
        )
    return descend_product_family(
        batched,
        spread,
        (covariances, weights, differences),
        tolerance=tolerance,
        max_iterations=max_iterations,
        progress=progress,
    )
