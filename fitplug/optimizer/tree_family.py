"""The best member of a tree's family at given weights, one sweep over the nodes at a time.

At weights p of the cells and q of the rows, the Lagrangian tr(P Sigma^-1) + tr(Q Sigma) of a block
is minimised node by node (docs/theory/trees.md). A sweep upwards collects what the covariance of
each node costs, K_v = W_v + sum_j u_vj^2 K_j. A sweep downwards then finds the covariances of every
node's children, from the node's own covariance. Both start from what the sweep before them found,
so that a few sweeps at slowly changing weights reach the minimum.

Where more than one class of dense cells is asked of a node's children, X_v and Y_v are found in
turn: X_v at the weights tr(Y_v P_j) and tr(Y_v^-1 K_j), and then Y_v as a geometric mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.numeric import FloatArray, IntArray
from fitplug.optimizer.sibling_covariance import solve_siblings
from fitplug.structure import GroupPart, IdenticalLeaves, TreeStep, TreeStructure

_FIRST_STEPS, _STEPS = 12, 2
"""Newton steps for the multipliers, in the first sweep and in later ones."""

_RIDGE = 1e-12
"""The weight of directions that no query asks for, relative to the others."""


@dataclass(frozen=True, eq=False)
class StepCovariances:
    """What a sweep finds of the b nodes of one step, and the next sweep starts from.

    Attributes:
        multipliers: lambda of each node, shape (b,); None before the first sweep.
        references: u of the children, shape (b, k); of identical leaves, 1/k, shape (b, 1).
        covariances: Y_v^-1, shape (b, r, r).
        precisions: Y_v, shape (b, r, r).
    """

    multipliers: FloatArray | None
    references: FloatArray
    covariances: FloatArray
    precisions: FloatArray


@dataclass(frozen=True, eq=False)
class StepWeights:
    """What the Lagrangian charges the children of one step, per unit of Y_v.

    Attributes:
        P: Weights in the profile, shape (b, k).
        K: Weights of the variances, shape (b, k).
    """

    P: FloatArray
    K: FloatArray


@dataclass(frozen=True, eq=False)
class Sweep:
    """What one sweep finds.

    Attributes:
        steps: Per step of the tree within the block's depth.
        weights: Per step, what its children were charged; None for identical leaves.
        root: Sigma of the root and its inverse, shape (r, r) each.
        variances: For each of the block's parts, the variances of its rows without the part's
            multiple, shape (rows of the part,).
        profile: Of each leaf and dense cell, shape (leaves, D).
    """

    steps: tuple[StepCovariances, ...]
    weights: tuple[StepWeights | None, ...]
    root: tuple[FloatArray, FloatArray]
    variances: tuple[FloatArray, ...]
    profile: FloatArray


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a part whose nodes have one depth: such with one child may be above the level.

    Attributes:
        depth: The depth.
        rows: Which of the part's nodes, shape (n,).
        places: The places of these nodes among those of the depth, shape (n,).
        L: What is asked of each node's classes of dense cells, shape (rows of each node, r).
    """

    depth: int
    rows: IntArray
    places: IntArray
    L: FloatArray


class TreeFamily:
    """The family of one block of a structure."""

    def __init__(self, structure: TreeStructure, block: int) -> None:
        self.classes = structure.classes[block]
        tree = self._tree = structure.tree
        self.steps = tuple(step for step in tree.steps if step.depth < len(self.classes))
        self._nodes = [np.flatnonzero(tree.depths == d) for d in range(len(self.classes))]
        self._places: IntArray = np.zeros(tree.size, dtype=np.int64)
        for nodes in self._nodes:
            self._places[nodes] = np.arange(len(nodes))
        self._parts = structure.parts[block]
        self._rows = [self._find_rows(part) for part in self._parts]

    def start(self) -> tuple[StepCovariances, ...]:
        """Make what the first sweep starts from: every node is spread evenly over its children."""
        found = []
        for step in self.steps:
            b, r = len(step.parents), self.classes[step.depth].size
            unit = np.broadcast_to(np.eye(r), (b, r, r))
            if isinstance(step, IdenticalLeaves):
                even = 1 / step.counts[:, None]
            else:
                even = np.full(step.children.shape, 1 / step.children.shape[1])
            found.append(StepCovariances(None, even, unit, unit))
        return tuple(found)

    def sweep(self, start: Sequence[StepCovariances], cells: FloatArray, rows: FloatArray) -> Sweep:
        """Find the covariances of every node's children.

        Args:
            start: What the sweep before this one found.
            cells: The weights p of the dense cells below each node, shape (N, D).
            rows: The weights q of the structure's rows, over their targets, shape (rows,).

        Returns:
            What the sweep finds.
        """
        pairs = list(zip(self._nodes, self.classes, strict=True))
        P = [classes.merge_counts(cells[nodes]) for nodes, classes in pairs]
        K = self._collect_weights(start, rows)
        S = [np.zeros_like(own) for own in K]
        g = [np.zeros((len(nodes), cells.shape[1])) for nodes in self._nodes]
        S[0], precision = _find_mean(P[0], K[0])
        g[0] = self._expand(0, _get_diagonal(precision))
        steps, weights = [], []
        for step, before in zip(self.steps, start, strict=True):
            at, above = self._places[step.children], self._places[step.parents]
            T = self._restrict(step, S[step.parent_depth][above])
            own_P, own_K = P[step.depth][at], K[step.depth][at]
            if isinstance(step, IdenticalLeaves):
                charged = None
                found = StepCovariances(None, before.references, *_find_mean(own_P, own_K))
                spread = cost = 1 - found.references
            else:
                charged, found, spread, cost = _solve_children(own_P, own_K, T, before)
            u = found.references[:, :, None, None]
            below = u * u * T[:, None] + spread[:, :, None, None] * found.covariances[:, None]
            S[step.depth][at] = below.reshape(*at.shape, *below.shape[2:])
            own_profile = self._expand(step.depth, _get_diagonal(found.precisions))
            profile = g[step.parent_depth][above][:, None] + cost[:, :, None] * own_profile[:, None]
            g[step.depth][at] = profile.reshape(*at.shape, -1)
            steps.append(found)
            weights.append(charged)
        return Sweep(
            steps=tuple(steps),
            weights=tuple(weights),
            root=(S[0][0], precision[0]),
            variances=self._compute_variances(S),
            profile=self._spread_profile(g),
        )

    def _find_rows(self, part: GroupPart) -> list[_Rows]:
        """Find a part's rows by the depth of their nodes."""
        depths = self._tree.depths[part.level.nodes]
        found = []
        for depth in np.unique(depths).tolist():
            rows = np.flatnonzero(depths == depth)
            L = self.classes[depth].restrict(part.matrix)
            found.append(_Rows(depth, rows, self._places[part.level.nodes[rows]], L))
        return found

    def _collect_weights(
        self, start: Sequence[StepCovariances], rows: FloatArray
    ) -> list[FloatArray]:
        """Collect what the covariance of each node costs, by depth, (nodes, r, r)."""
        sizes = [own.size for own in self.classes]
        K = [np.zeros((len(n), r, r)) for n, r in zip(self._nodes, sizes, strict=True)]
        for part, several in zip(self._parts, self._rows, strict=True):
            q = part.multiple * rows[part.rows].reshape(len(part.level.nodes), -1)
            for own in several:
                if own.L.shape[1] == 1:
                    K[own.depth][own.places, 0, 0] += q[own.rows] @ own.L[:, 0] ** 2
                else:
                    K[own.depth][own.places] += own.L.T @ (q[own.rows][:, :, None] * own.L)
        for step, before in zip(reversed(self.steps), reversed(start), strict=True):
            u = before.references
            own_weights = _add_axis(K[step.depth][self._places[step.children]], step)
            below = np.einsum("bk,bkij->bij", u * u, own_weights)
            if (F := self._find_merging(step)) is not None:
                below = F.T @ below @ F
            K[step.parent_depth][self._places[step.parents]] += below
        return K

    def _find_merging(self, step: TreeStep) -> FloatArray | None:
        """Find F (r below, r above), which sums classes of the nodes to those of their children."""
        above, below = self.classes[step.parent_depth], self.classes[step.depth]
        merged = below.of_cell[above.first]
        if np.array_equal(merged, np.arange(below.size)):
            return None
        return (np.arange(below.size)[:, None] == merged).astype(np.float64)

    def _restrict(self, step: TreeStep, S: FloatArray) -> FloatArray:
        """Restrict covariances (b, r, r) of nodes to the classes of their children."""
        F = self._find_merging(step)
        return S if F is None else np.asarray(F @ S @ F.T)

    def _expand(self, depth: int, values: FloatArray) -> FloatArray:
        """Expand values of the classes of a depth, (n, r), to the dense cells, (n, D)."""
        of_cell = self.classes[depth].of_cell
        return np.where(of_cell >= 0, values[:, of_cell], 0.0)

    def _compute_variances(self, S: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
        """Compute the variances of each part's rows from the covariances of all nodes."""
        found = []
        for part, several in zip(self._parts, self._rows, strict=True):
            values = np.empty((len(part.level.nodes), len(part.matrix)))
            for own in several:
                covariances = S[own.depth][own.places]
                if own.L.shape[1] == 1:
                    values[own.rows] = covariances[:, 0] * own.L[:, 0] ** 2
                else:
                    values[own.rows] = ((own.L @ covariances) * own.L).sum(axis=2)
            found.append(values.ravel())
        return tuple(found)

    def _spread_profile(self, g: Sequence[FloatArray]) -> FloatArray:
        """Spread the profiles of nodes, by depth, to the leaves below them, (leaves, D)."""
        found = np.zeros((self._tree.size, g[0].shape[1]))
        for nodes, own in zip(self._nodes, g, strict=True):
            found[nodes] = own
        for step in self._tree.steps:
            if step.depth >= len(self.classes):
                above = found[step.parents]
                found[step.children] = above if step.children.ndim == 1 else above[:, None]
        return np.asarray(found[self._tree.leaves])


def _solve_children(
    P: FloatArray, K: FloatArray, T: FloatArray, before: StepCovariances
) -> tuple[StepWeights, StepCovariances, FloatArray, FloatArray]:
    """Find X_v and Y_v of the nodes of a step whose children are distinct.

    Args:
        P: Weights of the children's classes of dense cells in the profile, shape (b, k, r).
        K: Weights of the children's covariances, shape (b, k, r, r).
        T: The covariances of the nodes over their children's classes, shape (b, r, r).
        before: What the last sweep found.

    Returns:
        What the children are charged per unit of Y_v, what the sweep finds, and the diagonals of
        X_v^+ and of X_v, shape (b, k).
    """
    covariances, precisions = before.covariances, before.precisions
    if T.shape[1] == 1:
        charged, s = StepWeights(P[:, :, 0], K[:, :, 0, 0]), T[:, 0, 0]
    else:
        charged = StepWeights(
            np.einsum("bkc,bc->bk", P, _get_diagonal(precisions)),
            np.einsum("bkij,bij->bk", K, covariances),
        )
        s = np.einsum("bkij,bij->b", K, T) / charged.K.sum(axis=1)
    if before.multipliers is None:
        start, steps = np.zeros(len(s)), _FIRST_STEPS
    else:
        start, steps = before.multipliers, _STEPS
    found = solve_siblings(charged.P, charged.K, s, start, steps)
    if T.shape[1] > 1:
        covariances, precisions = _find_mean(
            np.einsum("bk,bkc->bc", found.profiles, P),
            np.einsum("bk,bkij->bij", found.variances, K),
        )
    kept = StepCovariances(found.multipliers, found.references, covariances, precisions)
    return charged, kept, found.variances, found.profiles


def _find_mean(P: FloatArray, K: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Find diag(P) # K^-1 and its inverse, for P (b, r) > 0 and K (b, r, r)."""
    r = P.shape[1]
    if r == 1:
        mean = np.sqrt(P / K[:, :, 0])[:, :, None]
        return mean, 1 / mean
    root = np.sqrt(P)
    N = root[:, :, None] * K * root[:, None, :]
    at = np.arange(r)
    N[:, at, at] += _RIDGE * N[:, at, at].mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(N)
    half = np.sqrt(np.maximum(values, _RIDGE * values[:, -1:]))
    left, right = root[:, :, None] * vectors, vectors / root[:, :, None]
    mean = (left / half[:, None, :]) @ left.transpose(0, 2, 1)
    return mean, (right * half[:, None, :]) @ right.transpose(0, 2, 1)


def _get_diagonal(matrices: FloatArray) -> FloatArray:
    """Return the diagonals of matrices (b, r, r), shape (b, r)."""
    return np.diagonal(matrices, axis1=1, axis2=2)


def _add_axis(values: FloatArray, step: TreeStep) -> FloatArray:
    """Give the values of identical leaves an axis of one child."""
    return values[:, None] if isinstance(step, IdenticalLeaves) else values
