"""The optimum where neighbours replace a record: the dual with weights on pairs of cells.

The dual is that of `fitplug.solve.dual` with P = B V diag(p) V' B' in each block, where V has a
column e_i - e_j for each pair. V is not written down: V diag(p) V' comes from the Laplacians of the
weights of each set D, and the profile (e_i - e_j)' G (e_i - e_j) of all pairs from the blocks'
G = B' S^-1 B (docs/theory/units.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from fitplug.families.base.basis import Basis
from fitplug.families.base.contrasts import compute_precisions
from fitplug.families.base.design import PRODUCT_BOUND_MARGIN, Design
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.blocks.design.rounding import RealBlocks, choose_bases, round_blocks
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.blocks.shape.symmetric_pairs import SymmetricPairStructure
from fitplug.numeric import FloatArray, IndexArray
from fitplug.solve import (
    DualValue,
    Options,
    Problem,
    Solution,
    compute_mean_of_product,
    explain_end,
    reduce_block,
    solve_dual,
)


def design_pairs(
    structure: PairStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the privacy cost at the targets, for classes of pairs of cells.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        WorkloadError: If the rank of a block cannot be decided.
        DesignError: If floating point cannot evaluate the dual, or integers have no room.
    """
    pairs, multiples = structure.pairs, structure.subsets.profile_multiples
    ones = [1.0] * len(structure.sizes)
    between = [-1.0 / (n - 1) if n > 1 else 0.0 for n in structure.sizes]
    blocks, independent = [], []
    for number in structure.noisy_blocks.tolist():
        queries = structure.gather_queries(number)
        # Rows that public totals answer have no variance and no weight.
        asked = np.flatnonzero(queries.matrix.any(axis=1))
        rows = queries.rows[asked]
        block, chosen = reduce_block(
            queries.matrix[asked], structure.targets[rows] / queries.variance_multiples[asked]
        )
        blocks.append(replace(block, rows=rows))
        independent.append(asked[chosen])
    noisy = np.unique(np.concatenate([block.rows for block in blocks]))
    places = [np.searchsorted(noisy, block.rows) for block in blocks]
    bases = [block.basis[:, pairs.cells] for block in blocks]
    weights = multiples[structure.noisy_blocks].tolist()

    def evaluate(problem: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        moments, _ = structure.sum_moments(p)
        value, ratios, whiteners, grams = 0.0, np.zeros(len(noisy)), [], []
        for block, B, place, weight, moment in zip(
            blocks, bases, places, weights, moments, strict=True
        ):
            P = weight * (B @ moment @ B.T)
            mean = compute_mean_of_product(P, block.representation, q[place])
            value += mean.value
            ratios[place] += mean.ratios
            whiteners.append(mean.compute_whitener())
            strategy = whiteners[-1] @ B
            grams.append(weight * (strategy.T @ strategy))
        products = structure.sum_products(grams, ones, between)
        profile = pairs.measure_pairs(products[0].diagonal(), products)
        return DualValue(value, profile, ratios, tuple(whiteners))

    solution = solve_dual(
        Problem(structure.differences, len(noisy), ()),
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
        evaluate=evaluate,
    )
    q = np.zeros(structure.rows)
    q[noisy] = solution.q
    reals = [
        whitener @ block.basis for whitener, block in zip(solution.whiteners, blocks, strict=True)
    ]
    real_blocks = choose_bases(structure, reals, independent)
    return _round_pairs(structure, objective, real_blocks, replace(solution, q=q), options, loss)


def design_symmetric_pairs(
    structure: SymmetricPairStructure, objective: Objective, options: Options, loss: float
) -> Design:
    """Minimise the privacy cost at the targets, for blocks that are numbers.

    The arguments are those of `fitplug.families.designs.find_design`.

    Raises:
        DesignError: If floating point cannot evaluate the dual, or integers have no room.
    """
    scalars = MovedBlocks.build(structure)
    solution = scalars.spread(scalars.solve(structure.multiples, options))
    real_blocks = [scalars.scale_real(solution.whiteners[0])]
    return _round_pairs(structure, objective, real_blocks, solution, options, loss)


def _round_pairs(
    structure: PairStructure | SymmetricPairStructure,
    objective: Objective,
    real_blocks: Sequence[RealBlocks],
    solution: Solution,
    options: Options,
    loss: float,
) -> Design:
    """Round an optimum to integers."""
    return Design.in_one_tier(
        round_blocks(structure, real_blocks, objective=objective, upper=solution.upper, loss=loss),
        Duals(solution.p, solution.q),
        bound_margin=PRODUCT_BOUND_MARGIN,
        iterations=solution.iterations,
        ended=explain_end(solution, options),
    )


@dataclass(frozen=True, eq=False)
class MovedBlocks:
    """Blocks that are numbers, and the queries that they add noise to, for moves of a record.

    Attributes:
        structure: The structure.
        rows: The queries that public totals do not answer.
        incidence: Their variances over targets are incidence @ z, for the noise z of the noisy
            blocks.
        transposed: The transpose of `incidence`.
    """

    structure: SymmetricPairStructure
    rows: IndexArray
    incidence: csr_array
    transposed: csr_array

    @classmethod
    def build(cls, structure: SymmetricPairStructure) -> MovedBlocks:
        """Select the noisy blocks of a structure, and the queries that they are part of."""
        of_targets = csr_array(structure.incidence / structure.targets[:, None])
        incidence = of_targets[:, structure.noisy_blocks]
        rows = np.flatnonzero(incidence.sum(axis=1))
        incidence = csr_array(incidence[rows])
        return cls(structure, rows, incidence, csr_array(incidence.T))

    def solve(
        self,
        multiples: FloatArray,
        options: Options,
        start: tuple[FloatArray, FloatArray] | None = None,
    ) -> Solution:
        """Solve the dual with weights on some moves.

        Args:
            multiples: c_A(D) of each noisy block and each of these moves, shape (blocks, v).
            options: How to solve.
            start: Positive weights of the moves and of `rows` to begin from.

        Raises:
            DesignError: If floating point cannot evaluate the dual.
        """

        def evaluate(problem: Problem, p: FloatArray, q: FloatArray) -> DualValue:
            P, Q = multiples @ p, self.transposed @ q
            if not min(P.min(), Q.min()) > 0:
                raise np.linalg.LinAlgError("a weight is zero")
            z = np.sqrt(P / Q)
            value = float(np.sqrt(P * Q).sum())
            return DualValue(value, multiples.T @ (1 / z), self.incidence @ z, (1 / np.sqrt(z),))

        return solve_dual(
            Problem(multiples.shape[1], len(self.rows), ()),
            tolerance=options.tolerance,
            max_iterations=options.max_iterations,
            progress=options.progress,
            start=start,
            evaluate=evaluate,
        )

    def spread(self, solution: Solution) -> Solution:
        """Give the queries that public totals answer the weight 0."""
        q = np.zeros(self.structure.rows)
        q[self.rows] = solution.q
        return replace(solution, q=q)

    def scale_real(self, real: FloatArray) -> RealBlocks:
        """Scale z^-1/2 of the noisy blocks to real strategies with columns of norm 1."""
        structure, blocks = self.structure, self.structure.noisy_blocks
        unit = np.sqrt(float((structure.subsets.profile_multiples[blocks] * real**2).sum()))
        G = real / np.sqrt(compute_precisions(structure, blocks)) / unit
        basis = Basis("cells", np.zeros(1, dtype=np.int64), np.ones(1))
        return RealBlocks(blocks, basis, G[:, None, None])
