"""Certificates of trees: the nuclear norm of each block, from below, by sweeps over its nodes.

The norm of block A is tr N_A^1/2 with N_A = D^1/2 Q_A D^1/2, D = diag(w_A p) and
Q_A = sum over the rows of the block of multiple q / c times the row's outer square. Its
determinants cost one sweep over the tree (docs/theory/trees.md, (T6)), and a quadrature takes the
trace of the square root from them (`fitplug.proof.trace_quadrature`).

A leaf or a node that stands for several identical ones has p and q of all of these together, so
each of m has p / m and q / m.
"""

from __future__ import annotations

import math

import numpy as np

from fitplug.numeric import FloatArray, gamma
from fitplug.proof.block_certifiers import BlockCertifier
from fitplug.proof.scalar_trees import build_scalar_tree, order_nodes
from fitplug.proof.trace_quadrature import bound_trace
from fitplug.structure import TreeStructure

TOLERANCE = 5e-10
"""The largest part of a norm that is lost by leaving out poles."""

_BATCH = 2_000_000
"""Most numbers of all nodes and poles that are in memory at once, unless there are fewer poles."""


class TreeCertifier(BlockCertifier[TreeStructure]):
    """The certificate of `TreeStructure`."""

    def bound_norm(
        self, structure: TreeStructure, weights: FloatArray, row_weights: FloatArray
    ) -> float:
        p = weights.reshape(-1, structure.cells)
        multiples = structure.subsets.profile_multiples
        norms = [
            math.sqrt(multiples[block]) * bound_block_norm(structure, block, p, row_weights)
            for block in range(len(structure.blocks))
        ]
        # What is left out here are roundings of p over the budgets, of q / c with the weight on the
        # total squared error, and of the multiples: the norm grows like their square roots.
        return math.fsum(norms) * (1 - gamma(64))


def bound_block_norm(
    structure: TreeStructure, block: int, p: FloatArray, row_weights: FloatArray
) -> float:
    """Bound || diag(multiple q / c)^1/2 W diag(p)^1/2 ||_* of a block from below.

    Args:
        structure: The structure.
        block: The block.
        p: Weights of leaves and dense cells, shape (leaves, D).
        row_weights: q / c, shape (rows,).

    Returns:
        The bound.
    """
    classes = structure.classes[block]
    depth = max((d for d, one in enumerate(classes) if one.size), default=-1)
    if depth < 0:
        return 0.0
    if classes[0].size > 1:
        raise NotImplementedError("blocks with dense cells follow in the next commit")
    order = order_nodes(structure.tree, np.zeros(1, dtype=np.int64), 0, depth)
    nodes = np.zeros(structure.tree.size)
    nodes[structure.tree.leaves] = p[:, classes[0].of_cell == 0].sum(axis=1)
    masses = structure.tree.add_upwards(nodes)[order.nodes]
    precisions = _sum_precisions(structure, block, row_weights)[order.nodes]
    precisions /= order.multiplicities
    scale, masses = _scale_by_power(float(masses.max()), masses)
    again, precisions = _scale_by_power(float((masses * precisions).max()), precisions)
    tree = build_scalar_tree(order, masses, precisions)
    bound, _ = bound_trace(
        tree.bound_log_determinants,
        rank=float(tree.ranks.sum()),
        trace=tree.trace,
        largest=tree.bound_eigenvalues(np.zeros(order.tops)),
        tolerance=TOLERANCE,
        batch=min(max(_BATCH // len(masses), 6), 24),
    )
    # Sums of numbers >= 0: the masses over leaves and cells, the precisions over rows.
    error = gamma(p.size + len(row_weights) + 16)
    return math.ldexp(bound, scale + again) * (1 - error)


def _sum_precisions(structure: TreeStructure, block: int, row_weights: FloatArray) -> FloatArray:
    """Sum the precisions that rows measure each node with, for all identical ones, shape (N,)."""
    found = np.zeros(structure.tree.size)
    for part in structure.parts[block]:
        squares = part.matrix[:, structure.classes[block][0].first[0]] ** 2
        q = row_weights[part.rows].reshape(len(part.level.nodes), -1)
        found[part.level.nodes] += part.multiple * (q @ squares)
    return found


def _scale_by_power(largest: float, values: FloatArray) -> tuple[int, FloatArray]:
    """Divide numbers by a power of 4 so that the largest comes near 1.

    Returns:
        k, and the numbers divided by 4^k, without rounding unless they are next to nothing.
    """
    if not largest > 0:
        return 0, values
    k = math.frexp(largest)[1] // 2
    return k, np.ldexp(values, -2 * k)
