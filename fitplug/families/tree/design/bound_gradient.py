"""The lower bound of a tree and its gradient, by sweeps up and down at a few poles.

T = tr N^1/2 is a sum of omega tr N (N + tau)^-1 over poles, and its derivatives need the posterior
covariance y_v of each node (`fitplug.families.tree.design.posterior_sweep`). Nodes have numbers
where queries use only totals. Nothing here is proven: the certificate evaluates the bound again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fitplug.certify import place_poles as place_wide_poles
from fitplug.families.base.objective import Objective
from fitplug.families.tree.certificate.block_weights import BlockWeights, Totals
from fitplug.families.tree.certificate.dense_trees import DenseTree
from fitplug.families.tree.certificate.scalar_trees import ScalarTree
from fitplug.families.tree.design.posterior_sweep import (
    PosteriorSweep,
    find_top,
    move_root,
    sweep_numbers,
)
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import FloatArray, IntArray
from fitplug.solve import place_poles

_LEAST_EIGENVALUE, _LEAST_SHARE, _LEAST_POLE = 1e-10, 1e-7, 1e-15
"""Eigenvalues of N below the first number, relative to the largest, add next to nothing to the
trace. If N has n eigenvalues, the limit is at most the second number over n^2: with 3e-3 instead,
half a percent of the trace was missing for the pyramids of 3,145 counties. Below the third number
`place_poles` cannot place poles: with 1e-19, 1.3% was missing for 83,951 leaves."""

_UNSEEN = 100_000
"""In trees of numbers, cells with eigenvalues below the poles would seem to cost nothing, and would
lose the weight that they need. So the poles serve as many times more eigenvalues."""


def evaluate_tree_bound(
    structure: TreeStructure, objective: Objective, p: FloatArray, q: FloatArray, error: float
) -> tuple[float, FloatArray, FloatArray]:
    """Evaluate T and twice its gradient.

    Args:
        structure: The structure.
        objective: The objective.
        p: Weights of leaves and dense cells, shape (|V|,). Averaged weights are evaluated much
            faster; see `fitplug.families.tree.certificate.block_weights.average_weights`.
        q: Weights of the rows, shape (rows,).
        error: The desired relative error of T.

    Returns:
        T, g (|V|,) and h (rows,), with sum p g = sum q h = T.
    """
    weights = (p if objective.budgets is None else p / objective.budgets).reshape(
        -1, structure.cells
    )
    rows = q / structure.targets + objective.weight * structure.repeats * q.sum()
    value, g, h = 0.0, np.zeros_like(weights), np.zeros(len(q))
    for block, multiple in enumerate(structure.subsets.profile_multiples.tolist()):
        gradient = BlockGradient(structure, block, multiple * weights, rows, error)
        value += gradient.value
        g += multiple * gradient.spread_to_cells()
        h += gradient.h
    h = h / structure.targets + objective.weight * float(h @ structure.repeats)
    by_cell: FloatArray = g.ravel() if objective.budgets is None else g.ravel() / objective.budgets
    return value, by_cell, h


@dataclass(frozen=True, eq=False)
class PartedPriors:
    """The prior precisions, where the densities of pairs depend on the nodes.

    Attributes:
        depth: The depth from which queries use only a total.
        precisions: The additional prior precision of each node above, at pole 1, shape (n, r, r).
        masses: The variance of the total of each node at the depth, and of its parent, shape (N,).
    """

    depth: int
    precisions: FloatArray
    masses: FloatArray


class BlockGradient:
    """T of a block, h per row over its target, and g per node and class of dense cells.

    Weighted by the rows' weights, h sums to T. If `root` is given, g is meaningless.

    Args:
        structure: The structure.
        block: The block.
        p: Weights of leaves and dense cells in the block, shape (leaves, D).
        rows: The weights of rows over their targets, shape (rows,).
        error: The desired relative error of T.
        root: The covariance of the classes' sums at the root, if it is not diag(sums of p) because
            records move, shape (r, r).
        parted: The prior precisions, if the densities of pairs depend on where their paths part.
    """

    def __init__(
        self,
        structure: TreeStructure,
        block: int,
        p: FloatArray,
        rows: FloatArray,
        error: float,
        root: FloatArray | None = None,
        parted: PartedPriors | None = None,
    ) -> None:
        self.error = error
        self.parted = parted
        self.tree = structure.tree
        self.root = root
        self.weights = BlockWeights(structure, block, p, rows)
        self.value = 0.0
        self.h = np.zeros(structure.rows)
        if self.weights.last < 0:
            self.by_class = np.zeros((self.tree.size, 0))
            return
        self.by_class = np.zeros_like(self.weights.masses)
        self.each = self.weights.masses / self.tree.multiplicities[:, None]
        if parted is not None and self.weights.last > 0:
            tree = self.weights.build_dense(Totals(parted.depth, 1.0))
            if tree.totals is not None:
                masses = parted.masses[tree.totals.order.nodes]
                tree = replace(tree, totals=replace(tree.totals, masses=masses))
            self._add_matrices(tree, parted.depth)
        elif self.weights.classes[0].size == 1:
            self._add_numbers(self.weights.build_scalar())
        else:
            totals = self.weights.find_totals()
            self._add_matrices(self.weights.build_dense(totals), totals.depth)

    def spread_to_cells(self) -> FloatArray:
        """Spread g of the lowest nodes that the block uses to leaves and cells, (leaves, D)."""
        self.tree.repeat_downwards(self.by_class, self.weights.last)
        of_cell = self.weights.classes[0].of_cell
        padded = np.pad(self.by_class[self.tree.leaves], ((0, 0), (0, 1)))
        return np.asarray(padded[:, of_cell])

    def _add_numbers(self, tree: ScalarTree) -> None:
        """Add up the poles of a tree of numbers."""
        largest = tree.upper_eigenvalue()
        tau, omega = place_wide_poles(largest, _UNSEEN * len(tree.masses))
        V, y, _ = sweep_numbers(tree, tau, None)
        if self.root is not None:
            top = [move_root(V[:1, [i]], tree.masses[:1], t, self.root) for i, t in enumerate(tau)]
            _, y, _ = sweep_numbers(tree, tau, np.hstack(top))
        nodes = tree.order.nodes
        mean = y @ omega
        self.value = float((tree.order.multiplicities * tree.precisions) @ mean)
        self._add_rows(nodes, mean[:, None, None])
        self.by_class[nodes, 0] = _differentiate(y, tree.masses[:, None], tau) @ omega

    def _add_matrices(self, tree: DenseTree, depth: int) -> None:
        """Add up the poles of a tree of matrices, with numbers from a depth on."""
        nodes = np.flatnonzero(self.tree.depths < depth)
        tau, omega = _place_poles(tree.upper_eigenvalue(), tree.masses.size, self.error)
        priors = None if self.parted is None else self.parted.precisions
        sweep, totals, tops = PosteriorSweep(tree, priors), tree.totals, tree.tops
        information = np.zeros((len(tau), len(nodes)))
        inside = tree.members.astype(np.float64)
        if totals is not None:
            prior = totals.masses[: len(tops), None] / tau
            V, _, _ = sweep_numbers(totals, tau, None)
            information[:, tops] = np.maximum(1 / V[: len(tops)] - 1 / prior, 0).T
        mean = np.zeros_like(sweep.precisions)
        diagonals = np.empty((len(tau), *tree.masses.shape))
        towards = np.empty((len(tau), len(tops), len(inside)))
        for k, t in enumerate(tau.tolist()):
            y = sweep.run(t, information[k], self.root)
            diagonals[k] = np.diagonal(y, axis1=1, axis2=2)
            towards[k] = y[tops] @ inside
            y *= omega[k]
            mean += y
            self.by_class[nodes] += omega[k] * _differentiate(diagonals[k], tree.masses, t)
        self.value = float(tree.multiplicities @ np.einsum("nij,nij->n", sweep.precisions, mean))
        self._add_rows(nodes, mean)
        if totals is not None:
            self._add_totals(tree, totals, (tau, omega), diagonals[:, tops], towards)

    def _add_totals(
        self,
        tree: DenseTree,
        totals: ScalarTree,
        poles: tuple[FloatArray, FloatArray],
        diagonals: FloatArray,
        towards: FloatArray,
    ) -> None:
        """Add up the poles of the trees of numbers below a tree of matrices.

        Args:
            tree: The tree of matrices.
            totals: The trees of numbers.
            poles: tau and omega, shape (P,) each.
            diagonals: The diagonals of the top nodes' posterior covariances, shape (P, tops, r).
            towards: The posterior covariances of the top nodes with their totals, shape (P, tops,
                r).
        """
        inside = tree.members.astype(np.float64)
        z = towards @ inside
        _, y, gains = sweep_numbers(totals, poles[0], z.T)
        numbers = y @ poles[1]
        below = slice(len(tree.tops), None)
        self.value += float((totals.order.multiplicities * totals.precisions) @ numbers)
        self._add_rows(totals.order.nodes[below], numbers[below, None, None])
        if self.parted is not None:
            return
        at = find_top(totals)[below]
        masses, above = self.each[totals.order.nodes[below]], tree.masses[tree.tops][at]
        # The variance of x_i = s z_i + beta (x_v - s z_v) + a rest, with totals z of leaf i and
        # node v.
        beta = np.divide(masses, above, out=np.zeros_like(masses), where=above > 0)
        s = inside * above / (above @ inside)[:, None]
        share = masses @ inside / (above @ inside)
        for k, (tau, omega) in enumerate(zip(*poles, strict=True)):
            gain = gains[below, k]
            kappa = (gain - share)[:, None]
            variance = beta**2 * diagonals[k, at]
            variance += 2 * beta * s * kappa * towards[k, at] + (s * kappa) ** 2 * z[k, at, None]
            variance += s**2 * (y[below, k] - gain**2 * z[k, at])[:, None]
            variance += (1 - s) * (masses - masses * beta) / tau
            self.by_class[totals.order.nodes[below]] += omega * _differentiate(
                variance, masses, tau
            )

    def _add_rows(self, nodes: IntArray, y: FloatArray) -> None:
        """Add the variances of rows at nodes whose posterior covariances are y, (nodes, r, r)."""
        place = np.full(self.tree.size, -1)
        place[nodes] = np.arange(len(nodes))
        for part in self.weights.parts:
            at = place[part.level.nodes]
            here = at >= 0
            N = self.weights.classes[0].restrict(part.matrix)
            if y.shape[1] == 1:
                first = np.flatnonzero(N.any(axis=0))[:1]
                variances = y[at[here], 0] * N[:, first].sum(axis=1) ** 2
            else:
                variances = ((N @ y[at[here]]) * N).sum(axis=2)
            of_rows = self.h[part.rows].reshape(len(at), -1)
            of_rows[here] += part.multiple * variances


def _place_poles(largest: float, n: int, error: float) -> tuple[FloatArray, FloatArray]:
    """Place the poles for n eigenvalues up to the largest: tau and omega."""
    least = min(_LEAST_EIGENVALUE, max(_LEAST_SHARE / n**2, _LEAST_POLE)) * largest
    poles = place_poles(np.array([least]), np.array([largest]), error)
    return poles.tau[0], poles.omega[0]


def _differentiate(y: FloatArray, masses: FloatArray, tau: FloatArray | float) -> FloatArray:
    """Compute (1 - tau y / p) / p, the derivative of tr N (N + tau)^-1 by p; 0 where p is 0."""
    safe = np.where(masses > 0, masses, 1.0)
    return np.asarray(np.where(masses > 0, np.maximum(1 - tau * y / safe, 0.0) / safe, 0.0))
