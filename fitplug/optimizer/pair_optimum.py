"""The optimum where neighbours replace a record: the dual with weights on pairs of cells.

The dual is that of `fitplug.optimizer.dual` with P = B V diag(p) V' B', where V has a column
e_i - e_j for each pair. V is not written down: V diag(p) V' is the Laplacian of the weights, and
the profile (e_i - e_j)' G (e_i - e_j) of all pairs comes from G = B' S^-1 B (docs/theory/units.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from fitplug.mechanism import Basis, compute_precisions
from fitplug.numeric import FloatArray, IndexArray
from fitplug.optimizer.block_rounding import RealBlocks, triangulate
from fitplug.optimizer.dual import DualValue, Solution, solve
from fitplug.optimizer.geometric_mean import compute_mean_of_product
from fitplug.optimizer.optimum import Options
from fitplug.optimizer.problem import Problem, reduce_block
from fitplug.structure import PairStructure, SymmetricPairStructure


@dataclass(frozen=True, eq=False)
class PairOptimum:
    """An optimum for pairs of cells.

    Attributes:
        real_blocks: The real strategy over the classes of cells that queries tell apart.
        solution: The dual weights of pairs and rows, and the bounds that the solver computed.
    """

    real_blocks: RealBlocks
    solution: Solution


def find_pair_optimum(structure: PairStructure, options: Options) -> PairOptimum:
    """Minimise the privacy cost at the targets, for pairs of cells.

    Raises:
        WorkloadError: If the rank of the workload cannot be decided.
        DesignError: If floating point cannot evaluate the dual.
    """
    pairs, W = structure.pairs, structure.pairs.grounded
    # Rows that public totals answer have no variance and no weight.
    rows = np.flatnonzero(W.any(axis=1))
    block, _ = reduce_block(W[rows], structure.targets[rows])
    B = block.basis[:, pairs.cells]

    def evaluate(problem: Problem, p: FloatArray, q: FloatArray) -> DualValue:
        mean = compute_mean_of_product(B @ pairs.sum_weights(p) @ B.T, block.representation, q)
        whitener = mean.compute_whitener()
        strategy = whitener @ B
        profile = pairs.measure_pairs(strategy.T @ strategy)
        return DualValue(mean.value, profile, mean.ratios, (whitener,))

    solution = solve(
        Problem(structure.differences, len(rows), ()),
        tolerance=options.tolerance,
        max_iterations=options.max_iterations,
        progress=options.progress,
        evaluate=evaluate,
    )
    q = np.zeros(structure.rows)
    q[rows] = solution.q
    basis = Basis("cells", pairs.classes, np.ones(int(pairs.classes.max()) + 1))
    real = solution.whiteners[0] @ block.basis
    G = triangulate(basis, W, real, structure.shares)
    unit = np.sqrt(float((G * G).sum(axis=0).max()))
    found = RealBlocks(np.zeros(1, dtype=np.int64), basis, (G / unit)[None])
    return PairOptimum(found, replace(solution, q=q))


def find_symmetric_pair_optimum(structure: SymmetricPairStructure, options: Options) -> PairOptimum:
    """Minimise the privacy cost at the targets, for blocks that are numbers.

    Raises:
        DesignError: If floating point cannot evaluate the dual.
    """
    scalars = MovedBlocks.build(structure)
    solution = scalars.solve(structure.multiples, options)
    return PairOptimum(scalars.scale_real(solution.whiteners[0]), scalars.spread(solution))


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

        return solve(
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
