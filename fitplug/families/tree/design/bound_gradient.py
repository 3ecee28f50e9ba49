"""The lower bound of a tree and its gradient, by sweeps up and down at a few poles.

T = tr N^1/2 is a sum of omega tr N (N + tau)^-1 over poles, and its derivatives need the posterior
covariance y_v of each node: an upward sweep finds V (docs/theory/trees.md, (T6)), and with the gain
G = V_j (V0_v)^-1 of child j the downward one y_j = V_j - G V_j + G y_v G'. Nodes below which only
totals are asked have numbers. Matrices are inverted from their Cholesky factors, in stacks that fit
into the caches. Nothing here is proven: the certificate evaluates the bound anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg.lapack import dtrtri

from fitplug.families.base.objective import Objective
from fitplug.families.tree.certificate.block_weights import BlockWeights, Totals
from fitplug.families.tree.certificate.dense_trees import DenseTree
from fitplug.families.tree.certificate.scalar_trees import ScalarTree
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.numeric import FloatArray, IntArray
from fitplug.solve import place_poles

_LEAST_EIGENVALUE, _LEAST_SHARE, _LEAST_POLE = 1e-10, 1e-7, 1e-19
"""Relative to the largest: smaller eigenvalues of N add next to nothing to the trace. Where N has
very many, such as are below the second number over the square of their number: with 3e-3 there,
half a percent of the trace was missing for the pyramids of 3,145 counties. Below the third number
a posterior variance cannot be distinguished from the prior one."""


def evaluate_tree_bound(
    structure: TreeStructure, objective: Objective, p: FloatArray, q: FloatArray, error: float
) -> tuple[float, FloatArray, FloatArray]:
    """Evaluate T and twice its gradient.

    Args:
        structure: The structure.
        objective: The objective.
        p: Weights of leaves and dense cells, shape (|V|,). Averages are evaluated much faster than
            others; see `fitplug.families.average_weights`.
        q: Weights of the rows, shape (rows,).
        error: The relative error of T that is wanted.

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


class BlockGradient:
    """T of a block, h by row over its target, and g by node and class of dense cells.

    With the weights of rows, h sums to T. Where the root has another covariance than p gives it, g
    means nothing.

    Args:
        structure: The structure.
        block: The block.
        p: Weights of leaves and dense cells in the block, shape (leaves, D).
        rows: The weights of rows over their targets, shape (rows,).
        error: The relative error of T that is wanted.
        root: The covariance that the counts of the classes at the root have in the place of
            diag(sums of p), shape (r, r), where records move.
        priors: The precision that each node has before it is measured beyond what its children tell
            of it, at pole 1, by node, shape (N, r, r), where weights of pairs depend on where their
            paths part.
    """

    def __init__(
        self,
        structure: TreeStructure,
        block: int,
        p: FloatArray,
        rows: FloatArray,
        error: float,
        root: FloatArray | None = None,
        priors: FloatArray | None = None,
    ) -> None:
        self.error = error
        self.priors = priors
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
        if priors is not None and self.weights.last > 0:
            totals = Totals(self.weights.last + 1, 1.0)
            self._add_matrices(self.weights.build_dense(totals), totals.depth)
        elif self.weights.classes[0].size == 1:
            self._add_numbers(self.weights.build_scalar())
        else:
            totals = self.weights.find_totals()
            self._add_matrices(self.weights.build_dense(totals), totals.depth)

    def spread_to_cells(self) -> FloatArray:
        """Spread g of the lowest nodes that the block asks for to leaves and cells, (leaves, D)."""
        self.tree.repeat_downwards(self.by_class, self.weights.last)
        of_cell = self.weights.classes[0].of_cell
        padded = np.pad(self.by_class[self.tree.leaves], ((0, 0), (0, 1)))
        return np.asarray(padded[:, of_cell])

    def _add_numbers(self, tree: ScalarTree) -> None:
        """Add up the poles of a tree of numbers."""
        largest = tree.upper_eigenvalue()
        tau, omega = _place_poles(largest, len(tree.masses), self.error)
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
        priors = None if self.priors is None or not tree.steps else self.priors[nodes]
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
            diagonals: Those of the posterior covariances of the top nodes, shape (P, tops, r).
            towards: Their sums over the classes in the total, shape (P, tops, r).
        """
        inside = tree.members.astype(np.float64)
        z = towards @ inside
        _, y, gains = sweep_numbers(totals, poles[0], z.T)
        numbers = y @ poles[1]
        below = slice(len(tree.tops), None)
        at = find_top(totals)[below]
        masses, above = self.each[totals.order.nodes[below]], tree.masses[tree.tops][at]
        # Of x_i = s z_i + beta (x_v - s z_v) + the rest, for the totals z of leaf i and node v.
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
        self.value += float((totals.order.multiplicities * totals.precisions) @ numbers)
        self._add_rows(totals.order.nodes[below], numbers[below, None, None])

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
    """Compute (1 - tau y / p) / p, which is tr N (N + tau)^-1 by p; zero where p is."""
    safe = np.where(masses > 0, masses, 1.0)
    return np.asarray(np.where(masses > 0, np.maximum(1 - tau * y / safe, 0.0) / safe, 0.0))


_NUMBERS = 2**17
"""Entries of a stack of matrices."""

_RIDGE = 1e-13
"""What is added to the diagonal of V0 before it is inverted, relatively."""

_LEAST_MASS = 1e-30
"""Relative to the largest mass: lower ones are taken to be this."""


class PosteriorSweep:
    """Sweeps over a tree, at one pole after the other.

    Args:
        tree: The tree.
        priors: See `BlockGradient`; by position, shape (n, r, r).

    Attributes:
        precisions: W_v of each node, shape (n, r, r).
    """

    def __init__(self, tree: DenseTree, priors: FloatArray | None = None) -> None:
        self.tree = tree
        self.priors = priors
        self.precisions = _build_precisions(tree)
        inner = np.zeros(len(tree.masses), dtype=bool)
        for step in tree.steps:
            inner[step.parents] = True
        self._bottom: IntArray = np.flatnonzero(~inner)
        self._y = np.empty_like(self.precisions)
        masses = tree.masses[self._bottom]
        self._masses = np.maximum(masses, _LEAST_MASS * tree.masses.max())
        self._inside = tree.members.astype(np.float64)

    def run(self, tau: float, information: FloatArray, root: FloatArray | None) -> FloatArray:
        """Sweep up and down.

        Args:
            tau: The pole.
            information: The precision with which the total is known from below, shape (n,).
            root: The covariance of the counts at the root, times tau, if the masses do not give it,
                shape (r, r).

        Returns:
            The posterior covariances, shape (n, r, r); another run overwrites them.
        """
        y, at = self._y, np.arange(self.tree.masses.shape[1])
        for some in self._divide(len(self._bottom)):
            nodes = self._bottom[some]
            inverse = self.precisions[nodes]
            if self.tree.totals is not None:
                inverse += information[nodes, None, None] * np.outer(self._inside, self._inside)
            if self.priors is not None:
                inverse = inverse + tau * self.priors[nodes]
            else:
                inverse[:, at, at] += tau / self._masses[some]
            y[nodes] = _invert_positive(inverse)
        inverses = [self._find_prior_inverse(i, tau) for i in reversed(range(len(self.tree.steps)))]
        if root is not None:
            y[0] = move_root(y[0], self.tree.masses[0], tau, root)
        for step, inverse in zip(self.tree.steps, reversed(inverses), strict=True):
            change = inverse @ y[step.parents] @ inverse - inverse
            for some in self._divide(len(step.parents)):
                for nodes in step.children[some].T:
                    V = y[nodes]
                    gain = V @ change[some]
                    gain[:, at, at] += 1
                    y[nodes] = gain @ V
        return y

    def _find_prior_inverse(self, i: int, tau: float) -> FloatArray:
        """Sweep up one step: find V of its parents, and return the inverse of V0, (b, r, r)."""
        step, y = self.tree.steps[i], self._y
        at = np.arange(y.shape[1])
        prior = y[step.children[:, 0]]
        for nodes in step.children.T[1:]:
            prior += y[nodes]
        prior *= step.counts[:, None, None]
        prior[:, at, at] *= 1 + _RIDGE
        inverse = np.empty_like(prior)
        for some in self._divide(len(step.parents)):
            nodes = step.parents[some]
            inverse[some] = _invert_positive(prior[some])
            after = inverse[some] + self.precisions[nodes]
            if self.priors is not None:
                after += tau * self.priors[nodes]
            y[nodes] = _invert_positive(after)
        return inverse

    def _divide(self, n: int) -> Iterator[slice]:
        """Divide n matrices into stacks."""
        size = max(1, _NUMBERS // self._y.shape[1] ** 2)
        return (slice(start, start + size) for start in range(0, n, size))


def move_root(V: FloatArray, sums: FloatArray, tau: float, covariance: FloatArray) -> FloatArray:
    """Find the posterior covariance of the root for another covariance of its counts.

    Args:
        V: The posterior covariance if the counts have the covariance diag(sums) / tau, (r, r).
        sums: The sums of p, shape (r,).
        tau: The pole.
        covariance: The other one, times tau.
    """
    information = np.linalg.inv(V) - np.diag(tau / sums)
    prior = covariance / tau
    return np.asarray(np.linalg.solve(np.eye(len(V)) + prior @ information, prior))


def _invert_positive(stack: FloatArray) -> FloatArray:
    """Invert positive definite matrices (b, r, r).

    Raises:
        LinAlgError: If one is not positive definite in floating point.
    """
    factors = np.linalg.cholesky(stack)
    for factor in factors:
        # LAPACK stores matrices by columns: the lower triangle here is its upper one.
        dtrtri(factor.T, lower=0, overwrite_c=1)
    return np.asarray(factors.swapaxes(1, 2) @ factors)


def _build_precisions(tree: DenseTree) -> FloatArray:
    """Build W_v of each node, shape (n, r, r)."""
    n, r = tree.masses.shape
    W = np.zeros((n, r, r))
    for kind, nodes in tree.group_kinds(np.arange(n)):
        measured = tree.measurements[kind]
        weights = measured.precisions[tree.places[nodes]]
        W[nodes] = measured.matrix.T @ (weights[:, :, None] * measured.matrix)
    return W


def sweep_numbers(
    tree: ScalarTree, tau: FloatArray, top: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sweep up, and down from the posterior variances of the top nodes, (tops, P).

    Returns:
        V, y, and the gain from the top node down to each node, shape (n, P).
    """
    order = tree.order
    before = tree.masses[:, None] / tau
    after = np.empty_like(before)
    w = tree.precisions[:, None]

    def observe(at: slice) -> None:
        after[at] = before[at] / (1 + w[at] * before[at])

    for step in reversed(order.steps):
        observe(step.children)
        below = after[step.children]
        if step.counts is not None:
            before[step.parents] = step.counts * below
        else:
            before[step.parents] = below.reshape(step.k, -1, len(tau)).sum(axis=0)
    observe(slice(0, order.tops))
    y, gain = after.copy(), np.ones_like(after)
    if top is not None:
        y[: order.tops] = top
    for step in order.steps:
        shape = (step.k, len(step.parents), len(tau))
        posterior = after[step.children].reshape(shape)
        prior = before[step.parents]
        ratio = np.divide(posterior, prior, out=np.zeros(shape), where=prior > 0)
        y[step.children] = (posterior - posterior * ratio + ratio**2 * y[step.parents]).reshape(
            -1, len(tau)
        )
        gain[step.children] = (ratio * gain[step.parents]).reshape(-1, len(tau))
    return after, y, gain


def find_top(tree: ScalarTree) -> IntArray:
    """Find the top node that each position lies under, shape (n,)."""
    top = np.arange(len(tree.masses))
    for step in tree.order.steps:
        top[step.children] = np.tile(top[step.parents], step.k)
    return top
