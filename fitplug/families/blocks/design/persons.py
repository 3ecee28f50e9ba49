"""The optimum for a person with several records: the dual's moments, and costly differences.

In block A the dual has P_A = B M_A B' with M_A = sum_v p_v M_A(v) over the named persons v
(`fitplug.neighbours.persons`, docs/theory/persons.md), and the profile tr(M_A(v) B' S_A^-1 B),
summed over the blocks. A person's M_A(v) has at most k^2 entries. So with many cells and few
records, both are computed as sums over the pairs of each person's records. If a person may have
records in most cells, both are products with F_v, where F_v F_v' = M_A(v).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fitplug.families.base.family import CLAIM_MARGIN, Design
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.design.columns import ColumnProblem, design_columns
from fitplug.families.blocks.design.optimum import reduce_blocks
from fitplug.families.blocks.design.rounding import RealBlocks, choose_bases
from fitplug.families.blocks.shape.matrices import PersonStructure
from fitplug.neighbours import (
    RecordProducts,
    RecordSets,
    build_record_products,
    find_costly_at_cells,
    find_costly_differences,
    find_missed_differences,
    list_single_records,
    upper_largest_cost,
)
from fitplug.numeric import FloatArray, IndexArray, IntArray
from fitplug.solve import (
    Block,
    DualValue,
    Options,
    Problem,
    Simplex,
    Solution,
    compute_mean_of_product,
    solve_dual,
)

_SEARCHES, _CELLS_SEARCHED = 8, 300
"""The number of single records from which searches for costly persons start, and the number of
records for which a costly person who has the record is searched."""

_SPREAD = 1.0
"""The share of the excess over the lower bound by which the latter may favour other records."""

_GATHERED = 30
"""The operations of a matrix product that take as long as adding up one entry."""


class _Moments(Protocol):
    """The moments of some persons v in a block, in its basis B (k, D)."""

    def add_up(self, p: FloatArray) -> FloatArray:
        """Add up p_v B M_A(v) B' over the persons, shape (k, k)."""

    def measure(self, whitener: FloatArray) -> FloatArray:
        """Compute tr(M_A(v) B' W'W B) of each person, shape (v,), for a whitener W (k, k)."""


@dataclass(frozen=True, eq=False)
class _ColumnMoments:
    """Moments as products of columns.

    Attributes:
        columns: The columns B F_v of all persons, shape (k, columns).
        owners: The person of each column, ascending; each has at least one.
    """

    columns: FloatArray
    owners: IntArray

    def add_up(self, p: FloatArray) -> FloatArray:
        scaled = self.columns * np.sqrt(p[self.owners])
        return np.asarray(scaled @ scaled.T)

    def measure(self, whitener: FloatArray) -> FloatArray:
        squares = ((whitener @ self.columns) ** 2).sum(axis=0)
        return np.asarray(np.bincount(self.owners, squares), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _PairMoments:
    """Moments as sums over the pairs of each person's records.

    Attributes:
        basis: B, shape (k, D).
        pairs: The flat index of each pair's entry in a matrix (D, D), shape (v, pairs).
        multiples: c_A of each pair, half of it for a record with itself; 0 for padding.
    """

    basis: FloatArray
    pairs: IntArray
    multiples: FloatArray

    def add_up(self, p: FloatArray) -> FloatArray:
        d = self.basis.shape[1]
        weights = self.multiples * p[:, None]
        half = np.bincount(self.pairs.ravel(), weights.ravel(), minlength=d * d).reshape(d, d)
        product = self.basis @ half @ self.basis.T
        return np.asarray(product + product.T)

    def measure(self, whitener: FloatArray) -> FloatArray:
        strategy = whitener @ self.basis
        gram = (strategy.T @ strategy).ravel()
        return np.asarray(2 * np.einsum("vp,vp->v", self.multiples, gram[self.pairs]))


def multiply_records(
    sets: RecordSets, block: Block, attributes: tuple[int, ...], sizes: Sequence[int]
) -> _Moments:
    """Build the moments of some persons in the block of the given attributes."""
    multiples = sets.multiply_labels(attributes, sizes)
    k, (rank, d) = sets.cells.shape[1], block.basis.shape
    columns = len(sets) * (k if attributes else 1)
    if rank * columns > 2 * d * d + _GATHERED * len(sets) * k * (k + 1) / (2 * rank):
        first, second = np.triu_indices(k)
        halves = multiples[:, first, second] * np.where(first == second, 0.5, 1.0)
        cells = np.maximum(sets.cells, 0)
        return _PairMoments(block.basis, cells[:, first] * d + cells[:, second], halves)
    squares, vectors = np.linalg.eigh(multiples)
    factors = vectors * np.sqrt(np.maximum(squares, 0.0))[:, None]
    # The factors of padding are zero, so its cell -1 does not matter.
    products = block.basis[:, sets.cells].transpose(1, 0, 2) @ factors
    is_positive = squares > 1e-12 * squares.max()
    flat = products.transpose(1, 0, 2)[:, is_positive]
    return _ColumnMoments(np.ascontiguousarray(flat), np.nonzero(is_positive)[0])


@dataclass(frozen=True, eq=False)
class PersonProblem(ColumnProblem[PersonStructure, RecordProducts]):
    """The problem for persons: blocks that are matrices over the dense cells.

    Attributes:
        blocks: The blocks, whose bases have a column for each dense cell.
        attributes: A of each block.
        independent: For each block k independent rows of its matrix.
    """

    structure: PersonStructure
    blocks: tuple[Block, ...]
    attributes: tuple[tuple[int, ...], ...]
    independent: tuple[IndexArray, ...]

    bound_margin = CLAIM_MARGIN
    first_shares = (1e-2, 1e-3, 1e-4)

    @classmethod
    def reduce(cls, structure: PersonStructure) -> PersonProblem:
        """Reduce the blocks of a structure."""
        blocks, independent = reduce_blocks(structure)
        attributes = structure.subsets.list_attributes(np.arange(len(structure.blocks)))
        return cls(structure, tuple(blocks), tuple(attributes), tuple(independent))

    def list_first(self) -> RecordSets:
        return list_single_records(self.structure.person)

    def solve(
        self,
        sets: RecordSets,
        options: Options,
        start: tuple[FloatArray, FloatArray] | None,
        simplices: Sequence[Simplex] | None = None,
    ) -> Solution:
        sizes = self.structure.person.sizes
        moments = [
            multiply_records(sets, block, attributes, sizes)
            for block, attributes in zip(self.blocks, self.attributes, strict=True)
        ]

        def evaluate(problem: Problem, p: FloatArray, q: FloatArray) -> DualValue:
            g, h = np.zeros(problem.cells), np.zeros(problem.queries)
            value, whiteners = 0.0, []
            for block, moment in zip(self.blocks, moments, strict=True):
                mean = compute_mean_of_product(
                    moment.add_up(p), block.representation, q[block.rows]
                )
                value += mean.value
                whiteners.append(mean.compute_whitener())
                g += moment.measure(whiteners[-1])
                h[block.rows] += mean.ratios
            return DualValue(value, g, h, tuple(whiteners))

        return solve_dual(
            Problem(len(sets), self.structure.rows, ()),
            tolerance=options.tolerance,
            max_iterations=options.max_iterations,
            progress=options.progress,
            simplices=simplices,
            start=start,
            evaluate=evaluate,
        )

    def measure(self, whiteners: Sequence[FloatArray]) -> RecordProducts:
        reals, sizes = self._build_reals(whiteners), self.structure.person.sizes
        parts = [(a, real.T @ real) for a, real in zip(self.attributes, reals, strict=True)]
        equal, other = [1 - 1 / n for n in sizes], [-1 / n for n in sizes]
        return build_record_products(self.structure.person, parts, equal, other)

    def find_costly(
        self, costs: RecordProducts, sets: RecordSets, p: FloatArray, upper: float
    ) -> RecordSets:
        person = self.structure.person
        has_all = (
            person.has_one_cell_each and person.most == person.place_count and not person.apart
        )
        # If a person may have a record in every cell, the persons found have nearly all of them.
        costly = find_costly_differences(costs, _SEARCHES)
        if not has_all:
            excess = float(costs.compute_costs(costly)[0] / (p @ costs.compute_costs(sets))) - 1
            spread = _SPREAD * max(excess, 0.0)
            costly = costly.append(find_costly_at_cells(costs, _CELLS_SEARCHED, spread))
        reached = math.sqrt(costs.compute_costs(costly.append(sets)).max())
        if reached < upper and (missed := find_missed_differences(costs, _SEARCHES)) is not None:
            return costly.append(missed)
        return costly

    def upper_cost(self, costs: RecordProducts) -> tuple[float, RecordSets | None]:
        largest = upper_largest_cost(costs)
        return float(largest.of_cells.max()), largest.costly

    def make_real_blocks(
        self, structure: PersonStructure, whiteners: Sequence[FloatArray], options: Options
    ) -> list[RealBlocks]:
        reals = self._build_reals(whiteners)
        return choose_bases(structure, reals, self.independent, options.periods)

    def _build_reals(self, whiteners: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
        """Build the real strategy of each block."""
        return tuple(w @ block.basis for w, block in zip(whiteners, self.blocks, strict=True))


def design_persons(
    structure: PersonStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the privacy cost at the targets for a person with several records.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        WorkloadError: If the rank of a block cannot be decided.
        DesignError: If floating point cannot evaluate the dual, or integers have no room.
    """
    return design_columns(PersonProblem.reduce(structure), objective, options, loss)
