"""The optimum for a person with several records: differences are added as they are needed.

The dual has a weight p_v for each difference v, and P_A = sum_v p_v B M_A(v) B' in block A
(`fitplug.neighbours.person_records`). There may be more differences than can be listed, but the
optimum has positive weights on a few. So the problem is solved with some differences. Then the
costliest differences of its covariance are found, which join the others until none of them costs
more than those do. The lower bound of each of these solves is one for all differences.

See docs/theory/persons.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cholesky

from fitplug.families.base.design import CLAIM_MARGIN, Design
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.design.rounding import choose_bases, round_blocks
from fitplug.families.blocks.shape.persons import PersonStructure
from fitplug.neighbours import (
    PersonRecords,
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
    explain_end_of_bounds,
    reduce_block,
    solve_dual,
)

_ROUNDS = 120
"""The most times that differences are added."""

_COARSE = 0.02
"""The gap of the first solve. Those after it are solved to a part of the gap that is left."""

_PARTS = (1.0, 0.5, 0.2)
"""The parts of a new precision in the mixtures with the best one that are tried."""

_TARGET = 0.99
"""The part of the tolerance that is aimed at: bounds on the cost may be rounded up slightly."""

_ROUNDING = 1e-9
"""By how much a cost is larger than one that was found, relatively, if it is not rounding."""

_NEW_SHARE = 0.1
"""The part of all weight that new differences begin with."""


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The blocks of a structure over the dense cells, and the records of a person.

    Attributes:
        structure: The structure.
        blocks: The blocks, whose bases have a column for each dense cell.
        attributes: A of each block.
        independent: For each block k independent rows of its matrix.
    """

    structure: PersonStructure
    blocks: tuple[Block, ...]
    attributes: tuple[tuple[int, ...], ...]
    independent: tuple[IndexArray, ...]

    @property
    def person(self) -> PersonRecords:
        """Which records a person may have."""
        return self.structure.person

    @classmethod
    def reduce(cls, structure: PersonStructure) -> _Blocks:
        """Reduce the blocks of a structure."""
        targets, blocks, independent = structure.targets, [], []
        for queries in structure.gather_all_queries():
            own = targets[queries.rows] / queries.variance_multiples
            block, rows = reduce_block(queries.matrix, own)
            blocks.append(replace(block, rows=queries.rows))
            independent.append(rows)
        attributes = structure.subsets.list_attributes(np.arange(len(structure.blocks)))
        return cls(structure, tuple(blocks), tuple(attributes), tuple(independent))

    def multiply_records(self, sets: RecordSets) -> tuple[Problem, tuple[IntArray, ...]]:
        """Build the problem of some differences.

        Returns:
            The problem, whose blocks have up to k columns for each difference, and for each block
            the difference of each column.
        """
        blocks, owners = [], []
        for block, attributes in zip(self.blocks, self.attributes, strict=True):
            moments = sets.multiply_labels(attributes, self.person.sizes)
            squares, vectors = np.linalg.eigh(moments)
            factors = vectors * np.sqrt(np.maximum(squares, 0.0))[:, None]
            # The factors of padding are zero, so that its cell -1 does not matter.
            columns = block.basis[:, sets.cells].transpose(1, 0, 2) @ factors
            kept = squares > 1e-12 * squares.max()
            owners.append(np.nonzero(kept)[0])
            flat = columns.transpose(1, 0, 2)[:, kept]
            blocks.append(replace(block, basis=np.ascontiguousarray(flat)))
        return Problem(len(sets), self.structure.rows, tuple(blocks)), tuple(owners)

    def solve(
        self, sets: RecordSets, options: Options, start: tuple[FloatArray, FloatArray] | None
    ) -> Solution:
        """Solve the problem of some differences."""
        problem, owners = self.multiply_records(sets)

        def evaluate(_: Problem, p: FloatArray, q: FloatArray) -> DualValue:
            return _evaluate(problem, owners, p, q)

        return solve_dual(
            problem,
            tolerance=options.tolerance,
            max_iterations=options.max_iterations,
            progress=options.progress,
            start=start,
            evaluate=evaluate,
        )

    def build_reals(self, whiteners: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
        """Build the real strategy of each block."""
        return tuple(w @ block.basis for w, block in zip(whiteners, self.blocks, strict=True))

    def multiply_reals(self, reals: Sequence[FloatArray]) -> RecordProducts:
        """Compute the products of records of real strategies."""
        parts = [(own, real.T @ real) for own, real in zip(self.attributes, reals, strict=True)]
        equal = [1 - 1 / n for n in self.person.sizes]
        other = [-1 / n for n in self.person.sizes]
        return build_record_products(self.person, parts, equal, other)


def design_persons(
    structure: PersonStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the privacy cost at the targets for a person with several records.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        WorkloadError: If the rank of a block cannot be decided.
        DesignError: If floating point cannot evaluate the dual, or integers have no room.
    """
    person = structure.person
    blocks = _Blocks.reduce(structure)
    sets = list_single_records(person)
    start: tuple[FloatArray, FloatArray] | None = None
    lower, upper, iterations, tolerance = 0.0, math.inf, 0, _COARSE
    best: tuple[FloatArray, ...] = ()
    for _ in range(_ROUNDS):
        own = replace(
            options,
            tolerance=max(tolerance, options.tolerance / 2),
            max_iterations=max(options.max_iterations - iterations, 1),
            progress=None,
        )
        found = blocks.solve(sets, own, start)
        iterations += found.iterations
        if found.lower > lower:
            lower, best_weights = found.lower, (sets, found.p, found.q)
        violated = []
        # All covariances between the new one and the best one meet the targets as well.
        for part in _PARTS if best else (1.0,):
            whiteners = _mix_precisions(found.whiteners, best, part)
            products = blocks.multiply_reals(blocks.build_reals(whiteners))
            costly = find_costly_differences(products, max(8, 2 * person.period_count))
            # The search may miss a difference that is known.
            reached = math.sqrt(products.compute_costs(costly.append(sets)).max())
            if reached < upper and (missed := find_missed_differences(products)) is not None:
                costly = costly.append(missed)
            costs = products.compute_costs(costly)
            reached = max(reached, math.sqrt(costs.max()))
            violated.append(costly.take(costs > found.lower**2 * (1 + options.tolerance / 4)))
            if reached < upper:
                upper, next_best = reached, whiteners
        best, largest = next_best, None
        if upper <= lower * (1 + _TARGET * options.tolerance):
            products = blocks.multiply_reals(blocks.build_reals(best))
            largest = upper_largest_cost(products)
            if largest.costly is not None:
                costs = products.compute_costs(largest.costly)
                violated.append(largest.costly.take(costs > upper**2 * (1 + _ROUNDING)))
                upper = max(upper, math.sqrt(costs.max()))
        gap = upper / lower - 1
        stopped = options.progress is not None and options.progress(iterations, gap) is True
        if gap <= _TARGET * options.tolerance or stopped or iterations >= options.max_iterations:
            break
        new = functools.reduce(RecordSets.append, violated).leave_out(sets)
        share = _NEW_SHARE if len(new) else 0.0
        p = np.concatenate([found.p * (1 - share), np.full(len(new), share / max(len(new), 1))])
        start, sets = (p, found.q), sets.append(new)
        tolerance = min(tolerance, gap / 4) if len(new) else tolerance / 4
    best_reals = blocks.build_reals(best)
    sets, p, q = best_weights
    if largest is None:
        largest = upper_largest_cost(blocks.multiply_reals(best_reals))
    bound = math.sqrt(float(largest.of_cells.max()))
    structure = replace(structure, named=sets)
    real_blocks = choose_bases(structure, best_reals, blocks.independent, options.periods)
    return Design.in_one_tier(
        round_blocks(structure, real_blocks, objective=objective, upper=bound, loss=loss),
        Duals(p, q),
        bound_margin=CLAIM_MARGIN,
        iterations=iterations,
        ended=explain_end_of_bounds(bound, upper, lower, options, stopped),
    )


def _mix_precisions(
    first: Sequence[FloatArray], second: Sequence[FloatArray], part: float
) -> tuple[FloatArray, ...]:
    """Compute the whiteners of precisions between two others, with a part of the first."""
    if part == 1.0:
        return tuple(first)
    return tuple(
        cholesky(part * one.T @ one + (1 - part) * two.T @ two)
        for one, two in zip(first, second, strict=True)
    )


def _evaluate(
    problem: Problem, owners: Sequence[IntArray], p: FloatArray, q: FloatArray
) -> DualValue:
    """Evaluate the dual, where each difference has several columns."""
    g, h = np.zeros(problem.cells), np.zeros(problem.queries)
    value, whiteners = 0.0, []
    for block, owner in zip(problem.matrices, owners, strict=True):
        mean = compute_mean(block, p[owner], q)
        value += mean.value
        whiteners.append(mean.compute_whitener())
        g += np.bincount(owner, mean.profile, minlength=problem.cells)
        h[block.rows] += mean.ratios
    return DualValue(value, g, h, tuple(whiteners))
