"""Lower bounds on determinants of trees whose nodes have r classes of dense cells.

As in `fitplug.families.tree.certificate.scalar_trees`, but with matrices: a node is measured with
precision W_v = F_v'F_v, shape (r, r), and log det(I + N / t) is the sum over the nodes of log det(I
+ V0_v W_v) with

    V0_v = sum of V over the children       V_v = (V0_v^-1 + W_v)^-1

All of this increases with V0 in the order of symmetric matrices, so lower bounds on V0 give lower
bounds on everything. A node's V is bounded from below by c P P', for a float c <= 1 and a matrix P
of floats, a bound that is verified a posteriori (T8) (`fitplug.certify.nuclear_norms`).

If queries below a node use only the total of some classes, a tree of numbers is enough there. It
enters the node as one more measurement of this total (docs/theory/trees.md, (T7)). For this, p must
divide the total among these classes in the same way on all leaves below the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fitplug.certify import factor_precision, factor_sum, sum_logarithms
from fitplug.families.tree.certificate.scalar_trees import RootPosterior, ScalarTree
from fitplug.numeric import UNIT_ROUNDOFF, BoolArray, FloatArray, IntArray, gamma

_MOST_NUMBERS, _FEW_NUMBERS = 2_000_000, 2**16
"""The most entries in stacks of nodes' children, and in stacks of nodes without children, which fit
into the caches."""


@dataclass(frozen=True, eq=False)
class Measurements:
    """The measurements of some nodes.

    Attributes:
        matrix: The rows N of queries, shape (m, r).
        precisions: q / c of each row at each node, shape (nodes, m).
    """

    matrix: FloatArray
    precisions: FloatArray


@dataclass(frozen=True, eq=False)
class DenseStep:
    """Nodes with equally many children.

    Attributes:
        parents: Positions of the parents, shape (b,).
        children: Positions of their children, shape (b, k).
        counts: The number of identical nodes that each child stands for, shape (b,).
    """

    parents: IntArray
    children: IntArray
    counts: FloatArray


@dataclass(frozen=True, eq=False)
class DenseTree:
    """A tree with r classes of cells for each node.

    Attributes:
        masses: p of each class below one of the identical nodes at each position, shape (n, r).
        multiplicities: The number of identical nodes that each position stands for, shape (n,).
        kinds: The kind of each node, as an index of `measurements`, shape (n,).
        places: The index of each node in the measurements of its kind, shape (n,).
        measurements: The measurements of the nodes of each kind.
        steps: The nodes with children, from the root downwards. Position 0 is the root.
        totals: The trees of numbers below, whose top nodes are the totals.
        tops: Positions of these top nodes, shape (tops,).
        members: Whether each class is in the total, shape (r,).
        rounding: A bound on the relative error of the masses, here and in `totals`.
    """

    masses: FloatArray
    multiplicities: FloatArray
    kinds: IntArray
    places: IntArray
    measurements: tuple[Measurements, ...]
    steps: tuple[DenseStep, ...]
    totals: ScalarTree | None
    tops: IntArray
    members: BoolArray
    rounding: float

    def lower_determinants(self, poles: FloatArray) -> tuple[FloatArray, list[RootPosterior]]:
        """Bound log det(I + N / t) from below, by a sweep upwards.

        Args:
            poles: t, shape (P,).

        Returns:
            The bounds, shape (P,), and the root's posterior at each pole.
        """
        information = np.zeros((2, len(self.masses), len(poles)))
        total = np.zeros(len(poles))
        if self.totals is not None:
            total, V = self.totals.sweep(poles)
            information[:, self.tops] = self._upper_information(V, poles)
        bounds = np.zeros(len(poles))
        roots = []
        with np.errstate(all="ignore"):
            for i, t in enumerate(poles.tolist()):
                upward = _Sweep(self, t, *information[:, :, i])
                bounds[i] = upward.run()
                assert upward.root is not None
                roots.append(upward.root)
        return (total + bounds) * (1 - gamma(len(self.masses) + 8)), roots

    def _upper_information(self, V: FloatArray, poles: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Bound the precisions from above with which nodes below determine the totals.

        Returns:
            The bounds, shape (tops, P), and for each the relative excess over the true precision of
            a top node that it can cause, shape (tops, P).
        """
        assert self.totals is not None
        prior = self.totals.masses[: len(self.tops), None] / poles
        error = self.totals.error + self.rounding + gamma(8)
        # 1 / V - 1 / prior, where V is at most the prior. If V is 0, the total is known exactly.
        ratio = np.divide(prior, V, out=np.full_like(V, np.inf), where=V > 0)
        excess = np.maximum(ratio - 1, 0.0) + 2 * error * ratio
        upper = np.divide(excess, prior, out=np.zeros_like(V), where=prior > 0) * (1 + error)
        # The true precision is smaller by at most 8 error ratio / prior: a share of the bound, or
        # of the prior precision, whichever is less.
        with np.errstate(invalid="ignore"):
            part = 8 * error * np.minimum(ratio, np.divide(ratio, excess))
        return upper, np.where(part < 0.5, 1 / (1 - part) - 1, np.inf)

    @property
    def trace(self) -> float:
        """tr N, not rounded outwards."""
        total = 0.0 if self.totals is None else self.totals.trace
        for kind, nodes in self.group_kinds(np.arange(len(self.masses))):
            measured = self.measurements[kind]
            traces = (
                measured.precisions[self.places[nodes]]
                * (self.masses[nodes] @ measured.matrix.T**2)
            ).sum(1)
            total += float(self.multiplicities[nodes] @ traces)
        return total

    @property
    def rank(self) -> float:
        """The rank of N if all masses and precisions are positive, not proven.

        A node adds the dimensions of its own queries that its children do not determine together:
        let A_v be the space of sums at v that queries at v or below determine. The node adds the
        dimension of N_v beyond the intersection of its children's A.
        """
        rank, r = 0.0, self.masses.shape[1]
        spaces = [np.zeros((0, r))]  # orthonormal rows
        space_of = np.zeros(len(self.masses), dtype=np.int64)
        if self.totals is not None:
            rank, determined = self.totals.count_ranks()
            spaces.append(self.members[None] / np.sqrt(max(float(self.members.sum()), 1.0)))
            space_of[self.tops] = determined
        known: dict[tuple[int, ...], tuple[int, int]] = {}

        def measure(nodes: IntArray, below: IntArray) -> None:
            nonlocal rank
            keys = np.column_stack([self.kinds[nodes], below])
            different, inverse = np.unique(keys, axis=0, return_inverse=True)
            for i, row in enumerate(different.tolist()):
                key = (row[0], *sorted(set(row[1:])))
                if key not in known:
                    space = _intersect([spaces[j] for j in key[1:]])
                    both = _find_basis(np.vstack([space, self.measurements[key[0]].matrix]))
                    known[key] = (len(spaces), len(both) - len(space))
                    spaces.append(both)
                alike = nodes[inverse.ravel() == i]
                space_of[alike], more = known[key]
                rank += more * float(self.multiplicities[alike].sum())

        inner = np.zeros(len(self.masses), dtype=bool)
        for step in self.steps:
            inner[step.parents] = True
        bottom = np.flatnonzero(~inner)
        measure(bottom, space_of[bottom, None])
        for step in reversed(self.steps):
            measure(step.parents, np.sort(space_of[step.children], axis=1))
        return rank

    def upper_eigenvalue(self) -> float:
        """Bound the largest eigenvalue of N from above, up to rounding."""
        sums = np.zeros_like(self.masses)
        for kind, nodes in self.group_kinds(np.arange(len(self.masses))):
            measured, N = self.measurements[kind], np.abs(self.measurements[kind].matrix)
            sums[nodes] = (measured.precisions[self.places[nodes]] * (self.masses[nodes] @ N.T)) @ N
        for step in self.steps:
            sums[step.children] += sums[step.parents][:, None, :]
        most = sums.max(axis=1)
        if self.totals is None:
            return float(most.max())
        return max(float(most.max()), self.totals.upper_eigenvalue(most[self.tops]))

    def group_kinds(self, nodes: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Group nodes by their kind."""
        kinds = self.kinds[nodes]
        for kind in np.unique(kinds).tolist():
            yield kind, nodes[kinds == kind]


class _Sweep:
    """The sweep at one pole: c, C and P of the nodes with children, once they are computed.

    V of each node is at least c P P' and at most C P P'.
    """

    def __init__(
        self, tree: DenseTree, t: float, information: FloatArray, excess: FloatArray
    ) -> None:
        self.tree = tree
        self.information = information
        self.excess = excess
        self.variances = tree.masses / t
        self.total = 0.0
        r = tree.masses.shape[1]
        inner = np.concatenate([np.zeros(0, np.int64), *(step.parents for step in tree.steps)])
        self.slot = np.full(len(tree.masses), -1)
        self.slot[inner] = np.arange(len(inner))
        self.P = np.zeros((len(inner), r, r))
        self.c, self.C = np.zeros(len(inner)), np.zeros(len(inner))
        self.root: RootPosterior | None = None

    def run(self) -> float:
        """Sweep from the leaves up, and return the bound on the log determinant."""
        if not self.tree.steps:
            self._update_bottom(np.zeros(1, dtype=np.int64))
        for step in reversed(self.tree.steps):
            k, r = step.children.shape[1], self.variances.shape[1]
            size = max(1, _MOST_NUMBERS // (k * r * r))
            for start in range(0, len(step.parents), size):
                some = slice(start, start + size)
                self._update_parents(step.parents[some], step.children[some], step.counts[some])
        return self.total

    def _update_parents(self, parents: IntArray, children: IntArray, counts: FloatArray) -> None:
        """Update nodes whose children have matrices."""
        b, k = children.shape
        c, C, P = self._find(children.ravel())
        r = P.shape[1]
        S = P.reshape(b, k, r, r).transpose(0, 2, 1, 3).reshape(b, r, k * r)
        scale = _round_to_power((S * S).sum(axis=2))
        S = np.divide(S, scale[:, :, None], out=np.zeros_like(S), where=scale[:, :, None] > 0)
        Zt, departure = factor_sum(S, counts)
        least = c.reshape(b, k).min(axis=1) * (1 - departure) * (1 - 4 * UNIT_ROUNDOFF)
        largest = C.reshape(b, k).max(axis=1) * (1 + departure) * (1 + 4 * UNIT_ROUNDOFF)
        diagonals = np.diagonal(Zt, axis1=1, axis2=2)
        log, error = sum_logarithms(diagonals)
        least = np.where(least > 0, least, 0.0)
        self._update(parents, scale, Zt, (least, largest), 2 * (log + error))

    def _update_bottom(self, nodes: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Update nodes below which queries use only totals, or nothing."""
        variances = self.variances[nodes]
        scale = _round_to_power(variances)
        empty = scale == 0
        prior = np.divide(variances, scale**2, out=np.ones_like(scale), where=~empty)
        below = self.information[nodes]
        members = self.tree.members
        log, error = sum_logarithms(prior)
        ratio = below * variances[:, members].sum(axis=1) * (1 + gamma(len(members) + 4))
        least = np.full(len(nodes), 1 - 16 * UNIT_ROUNDOFF)
        largest = (1 + self.excess[nodes]) * (1 + 16 * UNIT_ROUNDOFF)
        known = np.log1p(ratio) * (1 + gamma(256)) - log
        error += gamma(8 * len(members) + 64)  # of Z and of the row below
        return self._update(nodes, scale, 1 / np.sqrt(prior), (least, largest), known + error)

    def _update(
        self,
        nodes: IntArray,
        scale: FloatArray,
        Zt: FloatArray,
        limits: tuple[FloatArray, FloatArray],
        log: FloatArray,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Update nodes with V0 near scale (Z Z')^-1 scale by their measurements.

        Args:
            nodes: The positions of the nodes, shape (b,).
            scale: Powers of 2, or zero, shape (b, r).
            Zt: Z' or its diagonal.
            limits: c and C of V0, each of shape (b,).
            log: An upper bound on the log determinant of Z Z' plus the information on totals, shape
                (b,).

        Returns:
            c, C and P of the nodes.
        """
        tree, r = self.tree, scale.shape[1]
        (least, largest), c = limits, np.zeros(len(nodes))
        C, P = np.full(len(nodes), np.inf), np.zeros((len(nodes), r, r))
        for kind in np.unique(tree.kinds[nodes]).tolist():
            at = np.flatnonzero(tree.kinds[nodes] == kind)
            measured = tree.measurements[kind]
            roots = np.sqrt(measured.precisions[tree.places[nodes[at]]])
            F = roots[:, :, None] * measured.matrix * scale[at, None, :]
            if Zt.ndim == 2 and tree.totals is not None:
                # Raised slightly, since the square root is rounded.
                information = np.sqrt(self.information[nodes[at]] * (1 + 8 * UNIT_ROUNDOFF))
                more = information[:, None] * np.where(tree.members, scale[at], 0.0)
                F = np.concatenate([F, more[:, None, :]], axis=1)
            m = len(measured.matrix)
            factors, proven, asked = factor_precision(Zt[at], F, m)
            sums, error = sum_logarithms(np.diagonal(factors, axis1=1, axis2=2))
            fits = np.isfinite(proven.departure) & (least[at] > 0)
            # log(1 + x) >= x - x^2 for the eigenvalues x of P'(Z Z' + F'F)P - I.
            gain = -2 * (sums + error) + proven.trace - 1.01 * proven.departure**2 - log[at]
            # It is also -sum log(1 - x) >= sum x + x^2 / 2 for the eigenvalues x of F (..)^-1 F',
            # which is better if they are tiny, as nothing is subtracted.
            few = asked / (1 + proven.departure) * (1 - 8 * UNIT_ROUNDOFF)
            gain = np.maximum(gain, few + few**2 / (2 * max(min(m, r), 1)) * (1 - gamma(8)))
            gain = np.where(fits, least[at] * np.maximum(gain, 0.0), 0.0) * (1 - gamma(4))
            self.total += float(tree.multiplicities[nodes[at]] @ gain)
            # Where nothing is proven, P is zero, which is a valid lower bound.
            c[at] = np.where(fits, least[at] / (1 + proven.departure), 1.0)
            C[at] = np.where(fits, largest[at] / (1 - proven.departure), np.inf)
            P[at] = np.where(fits[:, None, None], scale[at, :, None] * factors, 0.0)
            if nodes[at[0]] == 0:
                root_Z = np.diag(Zt[at[0]]) if Zt.ndim == 2 else Zt[at[0]].T
                information = np.vstack([root_Z.T, F[0]]) / scale[at[0]]
                self.root = RootPosterior(
                    float(c[at[0]]) * (1 - 4 * UNIT_ROUNDOFF),
                    np.diagonal(P[at[0]]),
                    float(largest[at[0]]) * (1 + 16 * UNIT_ROUNDOFF),
                    information,
                )
        c *= 1 - 4 * UNIT_ROUNDOFF
        C *= 1 + 4 * UNIT_ROUNDOFF
        inner = self.slot[nodes] >= 0
        slots = self.slot[nodes[inner]]
        self.c[slots], self.C[slots], self.P[slots] = c[inner], C[inner], P[inner]
        return c, C, P

    def _find(self, nodes: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Find c, C and P of nodes; compute them now for nodes without children."""
        r = self.variances.shape[1]
        c, C, P = np.empty(len(nodes)), np.empty(len(nodes)), np.empty((len(nodes), r, r))
        inner = self.slot[nodes] >= 0
        slots = self.slot[nodes[inner]]
        c[inner], C[inner], P[inner] = self.c[slots], self.C[slots], self.P[slots]
        bottom = np.flatnonzero(~inner)
        size = max(1, _FEW_NUMBERS // r**2)
        for start in range(0, len(bottom), size):
            some = bottom[start : start + size]
            c[some], C[some], P[some] = self._update_bottom(nodes[some])
        return c, C, P


def _round_to_power(squares: FloatArray) -> FloatArray:
    """Round square roots of numbers to powers of 2; zero stays zero."""
    exponents = np.frexp(squares)[1] // 2
    return np.where(squares > 0, np.ldexp(1.0, exponents), 0.0)


def _find_basis(rows: FloatArray) -> FloatArray:
    """Find orthonormal rows with the same span."""
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    _, s, basis = np.linalg.svd(rows / np.where(lengths > 0, lengths, 1.0), full_matrices=False)
    return np.asarray(basis[s > 1e-9 * s.max(initial=0.0)])


def _intersect(spaces: list[FloatArray]) -> FloatArray:
    """Find orthonormal rows that span the intersection of the spans of orthonormal rows."""
    intersection = spaces[0]
    for other in spaces[1:]:
        # A vector is in both spans if and only if projecting on the other span keeps its length.
        _, s, basis = np.linalg.svd(intersection @ other.T @ other)
        intersection = np.asarray(basis[: len(s)][s > 1 - 1e-9])
    return intersection
