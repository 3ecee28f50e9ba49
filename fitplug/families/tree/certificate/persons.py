"""Certificates of trees for persons with several records (docs/theory/persons.md, Theorem N4).

The dual weights are p of the leaves and dense cells, and a weight for each kind of persons
(`fitplug.families.tree.shape.persons`). In block A these persons have the moment P_A, and the bound
is the sum of the norms of the blocks with P_A in the place of diag(w_A p).

Where a block has one class of dense cells, one sweep finds the norm, from below
(`PersonScalarTree`). Elsewhere P_A is at least a multiple a of
diag(p), or of what is left of diag(p) when the sum of each dense cell is known. This costs the norm
no more than what the queries measure of these sums, since | |F (I - U U')|_* - |F|_* | <= |F U|_*.

Where periods are dense cells, p has weights of the leaves, and then of differences over the dense
cells, which are all in one leaf (`fitplug.families.tree.certificate.leaf_persons`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.certify import lower_trace, scale_weights
from fitplug.families.base.family import Duals
from fitplug.families.base.objective import Objective
from fitplug.families.tree.certificate.block_weights import BlockWeights
from fitplug.families.tree.certificate.leaf_persons import lower_leaf_norm
from fitplug.families.tree.certificate.scalar_trees import LOGARITHM, ScalarTree
from fitplug.families.tree.certificate.trees import (
    MOST_NUMBERS,
    TOLERANCE,
    TreeCertifier,
    lower_block_norm,
    scale_by_power,
    scale_rows,
)
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.numeric import UNIT_ROUNDOFF, FloatArray, IntArray, gamma


@dataclass(frozen=True, eq=False)
class PersonScalarTree:
    """A tree of numbers with the moment of persons.

    Attributes:
        tree: The tree, with p as its masses.
        depths: The depth of the node at each position, shape (n,).
        scales: a_d of each depth, at least 0, shape (depths,). Where one is 0, so are those above.
    """

    tree: ScalarTree
    depths: IntArray
    scales: FloatArray

    def lower_log_determinants(self, poles: FloatArray) -> FloatArray:
        """Bound log det(I + N / t) from below.

        Args:
            poles: t, shape (P,).

        Returns:
            Shape (P,).
        """
        tree, order = self.tree, self.tree.order
        own = self.scales[self.depths]
        V = (own * tree.masses)[:, None] / poles
        known, ends, sizes = (np.zeros(len(poles)) for _ in range(3))

        def measure(at: slice) -> FloatArray:
            prior = V[at]
            x = tree.precisions[at, None] * prior
            below = prior / (1 + x)
            known[:] += order.multiplicities[at] @ np.log1p(x, out=x)
            return np.asarray(below)

        for step in reversed(order.steps):
            below = measure(step.children)
            if step.counts is not None:
                prior = step.counts * below
            else:
                prior = below.reshape(step.k, -1, len(poles)).sum(axis=0)
            scale = float(own[step.children][0])
            # Where nothing is left below a node, nothing is left of it.
            ratio = float(own[step.parents[0]]) / scale if scale > 0 else 1.0
            if ratio != 1.0:
                full = (scale * tree.masses[step.parents])[:, None] / poles
                f = np.divide(prior, full, out=np.ones_like(prior), where=full > 0)
                f = np.minimum(f, 1.0)
                e = ratio * (1 - f) + f
                prior = np.divide(prior * ratio, e, out=np.zeros_like(prior), where=e > 0)
                logs = np.log(np.maximum(e, np.finfo(float).tiny))
                counts = order.multiplicities[step.parents]
                ends += counts @ logs
                sizes += counts @ np.abs(logs)
            V[step.parents] = prior
        measure(slice(0, order.tops))
        relative = self._error + gamma(len(V) + LOGARITHM)
        # Each logarithm of e is wrong by the relative error of e.
        lost = relative * (known + sizes) + self._error * self._growth * self._parents
        return np.maximum(known + ends - lost * (1 + gamma(8)), 0.0)

    @cached_property
    def trace(self) -> float:
        """tr N, not rounded outwards."""
        masses, order = self.tree.masses, self.tree.order
        own = self.scales[self.depths]
        # A node v has the variance a_d p_v, and what the nodes u above it share, p_v^2 / p_u.
        shared = np.zeros(len(masses))
        for step in order.steps:
            change = own[step.parents] - float(own[step.children][0])
            above = masses[step.parents]
            more = np.divide(change, above, out=np.zeros_like(above), where=above > 0)
            below = shared[step.children].reshape(step.k, -1)
            below += shared[step.parents] + more
        variances = own * masses + shared * masses**2
        return float(order.multiplicities @ (self.tree.precisions * variances))

    def upper_eigenvalue(self) -> float:
        """Bound the largest eigenvalue of N from above, but for rounding."""
        return float(self.scales.max()) * self.tree.upper_eigenvalues(np.zeros(1))

    @property
    def _parents(self) -> float:
        """The number of nodes with children."""
        steps = self.tree.order.steps
        return sum(float(self.tree.order.multiplicities[one.parents].sum()) for one in steps)

    @property
    def _growth(self) -> float:
        """No less than the factor by which relative errors grow along a path."""
        pairs = zip(self.scales[:-1].tolist(), self.scales[1:].tolist(), strict=True)
        return math.prod(max(1.0, a / b) for a, b in pairs if b > 0) * (1 + gamma(64))

    @property
    def _error(self) -> float:
        """A bound on the relative errors of V, and of e over the growth."""
        operations = self.tree.order.roundings + 16 * (len(self.scales) + 2)
        return 2 * self._growth * gamma(operations)


class PersonTreeCertifier(TreeCertifier):
    """The certificate of `PersonTreeStructure`."""

    is_refined = False

    takes_objectives = False

    def count_duals(self, structure: TreeStructure) -> tuple[int, int]:
        return structure.differences, structure.rows

    def lower_cost(
        self, structure: TreeStructure, objective: Objective, scale: float, duals: Duals
    ) -> float:
        assert isinstance(structure, PersonTreeStructure)
        if duals.p.shape != (structure.differences,):
            count = structure.differences
            raise ValueError(f"dual weights p must be {count} finite numbers >= 0")
        places = structure.profile_size if structure.sets is None else len(structure.tree.leaves)
        p = scale_weights("p", duals.p[:places], places)
        of_kinds = scale_weights("p", duals.p[places:], len(duals.p) - places)
        q = scale_weights("q", duals.q, structure.rows)
        # Masses are divided by their sum.
        mass = float(p.sum()) * float(q.sum()) * (1 + 2 * gamma(len(p) + len(q)))
        power, p = scale_by_power(p)
        more, rows = scale_by_power(q / (scale * structure.targets))
        if structure.sets is not None:
            norm, kind_mass = lower_leaf_norm(structure, structure.sets, of_kinds, p, rows)
        else:
            kind_mass = float(of_kinds.sum())
            p = p.reshape(-1, structure.cells)
            norm = math.fsum(
                _lower_kinds_norm(structure, block, of_kinds, p, rows)
                for block in range(len(structure.blocks))
            )
        mass *= kind_mass * (1 + gamma(len(of_kinds) + 4))
        norm = math.ldexp(norm, power + more) * (1 - gamma(64))
        return max(0.0, norm / math.sqrt(mass) * (1 - 8 * UNIT_ROUNDOFF))


def _lower_kinds_norm(
    structure: PersonTreeStructure,
    block: int,
    of_kinds: FloatArray,
    p: FloatArray,
    row_weights: FloatArray,
) -> float:
    """Bound the norm of a block from below, for weights of kinds of persons.

    Args:
        structure: The structure.
        block: The block.
        of_kinds: The weight of each kind, shape (kinds,).
        p: Weights of leaves and dense cells, near 1 or less, shape (leaves, D).
        row_weights: q / c, near 1 or less, shape (rows,).
    """
    scales = of_kinds @ structure.weigh_kinds(block)
    scales *= 1 - gamma(len(of_kinds) + 8)
    root = math.sqrt(float(structure.subsets.profile_multiples[block]))
    if structure.cells > 1:
        # All weights below the root are at least those of the last depth, or equal to them.
        full = lower_block_norm(structure, block, p, row_weights)
        least, deepest = float(scales.min()), float(scales[-1])
        known = 0.0
        if least < deepest:
            known = _upper_known_norm(structure, block, p, row_weights)
        found = max(math.sqrt(least) * full, math.sqrt(deepest) * (full - known))
        return root * max(found, 0.0) * (1 - 16 * UNIT_ROUNDOFF)
    return root * _lower_scalar_norm(structure, block, scales, p, row_weights)


def _lower_scalar_norm(
    structure: PersonTreeStructure,
    block: int,
    scales: FloatArray,
    p: FloatArray,
    row_weights: FloatArray,
) -> float:
    """Bound the norm of a block with one class of dense cells from below."""
    power, rows = scale_rows(structure, block, row_weights)
    weights = BlockWeights(structure, block, p, rows)
    if weights.last < 0:
        return 0.0
    tree = weights.build_scalar()
    own = PersonScalarTree(tree, structure.tree.depths[tree.order.nodes], scales)
    bound, _ = lower_trace(
        own.lower_log_determinants,
        rank=tree.count_ranks()[0],
        trace=own.trace,
        largest=own.upper_eigenvalue(),
        tolerance=TOLERANCE,
        batch=min(max(MOST_NUMBERS // len(tree.masses), 6), 24),
    )
    return math.ldexp(bound, power) * (1 - 8 * weights.rounding) * (1 - 64 * UNIT_ROUNDOFF)


def _upper_known_norm(
    structure: PersonTreeStructure,
    block: int,
    p: FloatArray,
    row_weights: FloatArray,
) -> float:
    """Bound what is measured of the sums of dense cells, |F U|_*, from above.

    U has a column (p_c / mass of p_c)^1/2 for each dense cell c: its norm is the square root of
    p_c' Q p_c over the mass.

    Args:
        structure: The structure.
        block: The block.
        p: Weights of leaves and dense cells, shape (leaves, D).
        row_weights: q / c, shape (rows,).
    """
    tree = structure.tree
    masses = tree.sum_leaves(p)
    total, operations = 0.0, tree.size + structure.cells + len(tree.steps) + 64
    for cell in range(structure.cells):
        square = 0.0
        for part in structure.parts[block]:
            nodes = part.level.nodes
            weights = part.multiple * row_weights[part.rows].reshape(len(nodes), -1)
            reached = masses[nodes, cell, None] * np.abs(part.matrix[:, cell])
            # Each of m identical leaves has one m-th of the mass, and of the weights.
            counts = tree.multiplicities[nodes].astype(np.float64)[:, None]
            square += float((weights * (reached / counts) ** 2).sum())
            operations += len(part.matrix)
        if (mass := float(masses[0, cell])) > 0:
            total += math.sqrt(square / mass)
    return total * (1 + 4 * gamma(operations))
