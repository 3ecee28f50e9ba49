"""Sweeps up and down a tree for the posterior covariance of each node at a pole.

An upward sweep finds V (docs/theory/trees.md, (T6)). With the gain G = V_j (V0_v)^-1 of child j,
the downward sweep finds y_j = V_j - G V_j + G y_v G'. Matrices are inverted from their Cholesky
factors, in stacks that fit into the caches. Nothing here is proven: the certificate evaluates the
bound again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg.lapack import dtrtri

from fitplug.families.tree.certificate.dense_trees import DenseTree
from fitplug.families.tree.certificate.scalar_trees import ScalarTree
from fitplug.numeric import FloatArray, IntArray

_NUMBERS = 2**17
"""The number of entries of a stack of matrices."""

_RIDGE = 1e-13
"""The relative addition to the diagonal of V0 before it is inverted."""

_LEAST_MASS = 1e-30
"""The least mass relative to the largest; smaller masses are raised to it."""


class PosteriorSweep:
    """Sweeps over a tree, at one pole after another.

    Args:
        tree: The tree.
        priors: The additional prior precision of each node at pole 1, shape (n, r, r), where
            records move; None for that of the masses.

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
            information: The precision with which nodes below determine the total, shape (n,).
            root: The covariance of the root's counts times tau, if it is not that of the masses,
                shape (r, r).

        Returns:
            The posterior covariances, shape (n, r, r). The next run overwrites them.
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
        """Sweep up one step: compute V of its parents, and return the inverse of V0, (b, r, r)."""
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
    """Find the posterior covariance of the root for a new prior covariance of its counts.

    Args:
        V: The posterior covariance for the prior covariance diag(sums) / tau, shape (r, r).
        sums: The sums of p, shape (r,).
        tau: The pole.
        covariance: The new prior covariance, times tau.
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
    """Sweep up, and then down from posterior variances of the top nodes, (tops, P).

    Returns:
        V, y, and the gain from the top node down to each node, shape (n, P) each.
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
