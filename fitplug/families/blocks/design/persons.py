"""The optimum for a person with several records: persons are added as they are needed.

In block A the dual has P_A = sum_v p_v B M_A(v) B' (`fitplug.neighbours.persons`,
docs/theory/persons.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cholesky

from fitplug.families.base.design import CLAIM_MARGIN, Design
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.design.columns import ColumnProblem, design_columns
from fitplug.families.blocks.design.optimum import reduce_blocks
from fitplug.families.blocks.design.rounding import RealBlocks, choose_bases
from fitplug.families.blocks.shape.persons import PersonStructure
from fitplug.neighbours import (
    RecordProducts,
    RecordSets,
    build_record_products,
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
    Solution,
    compute_mean,
    solve_dual,
)


@dataclass(frozen=True, eq=False)
class PersonProblem(ColumnProblem[PersonStructure, RecordProducts]):
    """Blocks that are matrices over the dense cells, and the records of a person.

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

    @classmethod
    def reduce(cls, structure: PersonStructure) -> PersonProblem:
        """Reduce the blocks of a structure."""
        blocks, independent = reduce_blocks(structure)
        attributes = structure.subsets.list_attributes(np.arange(len(structure.blocks)))
        return cls(structure, tuple(blocks), tuple(attributes), tuple(independent))

    def list_first(self) -> RecordSets:
        return list_single_records(self.structure.person)

    def solve(
        self, sets: RecordSets, options: Options, start: tuple[FloatArray, FloatArray] | None
    ) -> Solution:
        problem, owners = self._multiply_records(sets)

        def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
            # Each difference has several columns.
            g, h = np.zeros(problem.cells), np.zeros(problem.queries)
            value, whiteners = 0.0, []
            for block, owner in zip(problem.matrices, owners, strict=True):
                mean = compute_mean(block, p[owner], q)
                value += mean.value
                whiteners.append(mean.compute_whitener())
                g += np.bincount(owner, mean.profile, minlength=problem.cells)
                h[block.rows] += mean.ratios
            return DualValue(value, g, h, tuple(whiteners))

        return solve_dual(
            problem,
            tolerance=options.tolerance,
            max_iterations=options.max_iterations,
            progress=options.progress,
            start=start,
            evaluate=evaluate,
        )

    def mix_precisions(
        self, first: Sequence[FloatArray], second: Sequence[FloatArray], part: float
    ) -> tuple[FloatArray, ...]:
        return tuple(
            cholesky(part * a.T @ a + (1 - part) * b.T @ b)
            for a, b in zip(first, second, strict=True)
        )

    def measure(self, whiteners: Sequence[FloatArray]) -> RecordProducts:
        reals, sizes = self._build_reals(whiteners), self.structure.person.sizes
        parts = [(a, real.T @ real) for a, real in zip(self.attributes, reals, strict=True)]
        equal, other = [1 - 1 / n for n in sizes], [-1 / n for n in sizes]
        return build_record_products(self.structure.person, parts, equal, other)

    def find_costly(
        self, costs: RecordProducts, sets: RecordSets, p: FloatArray, upper: float
    ) -> RecordSets:
        costly = find_costly_differences(costs, max(8, 2 * self.structure.person.period_count))
        reached = math.sqrt(costs.compute_costs(costly.append(sets)).max())
        if reached < upper and (missed := find_missed_differences(costs)) is not None:
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

    def _multiply_records(self, sets: RecordSets) -> tuple[Problem, tuple[IntArray, ...]]:
        """Build the problem of some differences.

        Returns:
            The problem, whose blocks have up to k columns for each difference, and for each block
            the difference of each column.
        """
        blocks, owners = [], []
        for block, attributes in zip(self.blocks, self.attributes, strict=True):
            moments = sets.multiply_labels(attributes, self.structure.person.sizes)
            squares, vectors = np.linalg.eigh(moments)
            factors = vectors * np.sqrt(np.maximum(squares, 0.0))[:, None]
            # The factors of padding are zero, so that its cell -1 does not matter.
            columns = block.basis[:, sets.cells].transpose(1, 0, 2) @ factors
            is_positive = squares > 1e-12 * squares.max()
            owners.append(np.nonzero(is_positive)[0])
            flat = columns.transpose(1, 0, 2)[:, is_positive]
            blocks.append(replace(block, basis=np.ascontiguousarray(flat)))
        return Problem(len(sets), self.structure.rows, tuple(blocks)), tuple(owners)


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
