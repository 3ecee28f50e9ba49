"""The norm of a block of a tree for persons with several records, by one sweep over its nodes.

Persons of the kinds of `fitplug.families.tree.shape.persons` have, in a block whose nodes have one
class of cells, the moment

    P = a_L diag(p) + sum over depths d < L of (a_d - a_(d+1)) C_d

where a_d says what is counted of nodes of depth d apart from their parents, and C_d is the sum of
p_v p_v' over the mass of p_v for the nodes v of depth d. As P 1_v is a_(d+1) p_v before the term
of node v of depth d is added, P^-1 has the term (1/a_d - 1/a_(d+1)) / p_v times 1_v 1_v' for each
node, beside diag(a_L p)^-1. So the sweep of `fitplug.families.tree.certificate.scalar_trees`
remains, with one more step at each node: with r = a_d / a_(d+1) and the part f = t V0_v / (a_(d+1)
p_v) of the prior variance that is left (docs/theory/persons.md, (N13)),

    e_v = r (1 - f) + f        V0_v <- V0_v r / e_v        L <- L + log e_v

This is a proof for every P of this form. Nothing is subtracted but f from 1, which is at least f.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fitplug.families.tree.certificate.scalar_trees import LOGARITHM, ScalarTree
from fitplug.numeric import FloatArray, IntArray, gamma


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
