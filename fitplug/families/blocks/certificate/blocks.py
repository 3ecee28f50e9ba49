"""Certificates of blocks that are matrices or numbers: the nuclear norm is a sum over the blocks.

Where attributes are symmetric, p and q are taken equal for all that symmetry makes identical, and
the norm is the sum over the blocks A of || diag(multiple q / c)^1/2 N diag(w_A p)^1/2 ||_*
(docs/theory/symmetry.md).

With budgets s and a weight on the total squared error, p becomes p / s, q / c becomes
q / c + weight sum q (times the queries that a row stands for), and the same bounds the square root
of the objective (docs/theory/dual.md)

    max_i (profile_i / s_i) * (max_j (variance_j / c_j) + weight * sum_j variance_j).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

import numpy as np

from fitplug.certify import divide_by_mass, scale_weights, sum_nuclear_norms
from fitplug.families.base.family import Certifier, Duals
from fitplug.families.base.objective import Objective
from fitplug.families.base.structure import Structure
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.shape.scalars import ScalarStructure
from fitplug.numeric import FloatArray, gamma

S = TypeVar("S", bound=Structure)


class BlockCertifier(Certifier[S]):
    """What certificates of blocks that are summed over have in common."""

    @abstractmethod
    def lower_norm(self, structure: S, weights: FloatArray, row_weights: FloatArray) -> float:
        """Bound the nuclear norm of all blocks from below.

        Args:
            structure: The structure.
            weights: p over the budgets, shape (|V|,).
            row_weights: q over the targets, shape (rows,).

        Returns:
            The lower bound.
        """

    def count_duals(self, structure: S) -> tuple[int, int]:
        return structure.differences, structure.rows

    def lower_cost(self, structure: S, objective: Objective, scale: float, duals: Duals) -> float:
        p = scale_weights("p", duals.p, structure.differences)
        q = scale_weights("q", duals.q, structure.rows)
        row_weights = q / (scale * structure.targets)
        if objective.weight:
            row_weights = row_weights + objective.weight * structure.repeats * q.sum()
        weights = p if objective.budgets is None else p / objective.budgets
        return divide_by_mass(self.lower_norm(structure, weights, row_weights), p, q)

    def share_weight(self, structure: S, duals: Duals) -> FloatArray:
        sums = np.add.reduceat(duals.q, structure.row_starts[:-1])
        return np.asarray(sums / sums.sum())


class MatrixCertifier(BlockCertifier[MatrixStructure]):
    """The certificate of `MatrixStructure`."""

    takes_objectives = True

    def lower_norm(
        self, structure: MatrixStructure, weights: FloatArray, row_weights: FloatArray
    ) -> float:
        return sum_nuclear_norms(
            (
                queries.matrix,
                queries.variance_multiples * row_weights[queries.rows],
                queries.profile_multiple * weights,
            )
            for queries in structure.gather_all_queries()
        )


class ScalarCertifier(BlockCertifier[ScalarStructure]):
    """The certificate of `ScalarStructure`."""

    takes_objectives = True

    def lower_norm(
        self, structure: ScalarStructure, weights: FloatArray, row_weights: FloatArray
    ) -> float:
        # The sum over the blocks of (w_A p sum_t multiple_t q_t / c_t)^1/2.
        Q = structure.incidence.T @ row_weights
        norms = np.sqrt(structure.subsets.profile_multiples * weights[0] * Q)
        return float(norms.sum()) * (1 - gamma(structure.rows + len(Q) + 64))
