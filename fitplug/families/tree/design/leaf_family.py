"""The family of a block of a tree for persons whose records are all in one leaf.

A difference v over the dense cells has the moment M_A(v), and weights of several differences have
the sum M of theirs. At a node with the weight p, the Lagrangian charges tr(p M Sigma^-1). So the
sweeps of `fitplug.families.tree.design.family` find the best member, with M in the place of a
diagonal matrix: at each depth they work with a factor F F' of what the classes there have of M.
"""

from __future__ import annotations

import numpy as np

from fitplug.families.tree.design.child_covariances import (
    ChildCovariances,
    IdenticalCovariances,
    KroneckerCovariances,
)
from fitplug.families.tree.design.family import Sweep, TreeFamily
from fitplug.families.tree.shape.persons import PersonTreeStructure
from fitplug.numeric import FloatArray
from fitplug.workload import CellClasses

_RIDGE = 1e-10
"""The least eigenvalue of a moment, relative to the largest: nothing is measured for free."""


class LeafFamily(TreeFamily):
    """The family of a block.

    Args:
        structure: The structure, whose periods are dense cells.
        block: The block.
    """

    def __init__(self, structure: PersonTreeStructure, block: int) -> None:
        super().__init__(structure, block)
        self._factors: list[FloatArray] = []

    def sweep_moment(
        self,
        start: tuple[ChildCovariances, ...],
        masses: FloatArray,
        moments: tuple[FloatArray, FloatArray],
        rows: FloatArray,
    ) -> Sweep:
        """Find the covariances of every node's children.

        Args:
            start: What the sweep before this one found.
            masses: The weights p of the leaves below each node, shape (N,).
            moments: M at the root, and below it, shape (D, D).
            rows: The weights q of the structure's rows, over their targets, shape (rows,).
        """
        self._factors = [
            _factor(merge_moments(own, moments[min(depth, 1)]))
            for depth, own in enumerate(self.classes)
        ]
        return self.sweep(start, masses[:, None], rows)

    def measure_costs(self, sweep: Sweep, moments: tuple[FloatArray, FloatArray]) -> FloatArray:
        """Compute tr(M_v Sigma^-1) of differences v at each leaf.

        Args:
            sweep: What a sweep found.
            moments: M_v at the root, and below it, shape (v, D, D).

        Returns:
            Shape (leaves, v).
        """
        merged = [
            merge_moments(own, moments[min(depth, 1)]) for depth, own in enumerate(self.classes)
        ]
        found = np.zeros((self._tree.size, len(moments[0])))
        found[0] = np.tensordot(merged[0], sweep.root[1], 2)
        for i, step in enumerate(self._tree.steps):
            at = step.children.reshape(len(step.parents), -1)
            found[at] = found[step.parents, None]
            if i < len(self.steps):
                multiples, precisions = _divide(sweep.steps[i])
                own = np.tensordot(precisions, merged[step.depth], ((1, 2), (1, 2)))
                found[at] += multiples[:, :, None] * own[:, None]
        return found[self._tree.leaves]

    def average_precisions(self, sweep: Sweep, masses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Average Sigma^-1 over the leaves, by the weights below nodes (N,).

        Returns:
            What the root adds, and what the nodes below it add, shape (D, D).
        """
        total = np.zeros((len(self.classes[0].of_cell),) * 2)
        for step, own in zip(self.steps, sweep.steps, strict=True):
            multiples, precisions = _divide(own)
            at = step.children.reshape(len(step.parents), -1)
            weights = (masses[at] * multiples).sum(axis=1) / masses[0]
            total = total + _expand(self.classes[step.depth], np.tensordot(weights, precisions, 1))
        return _expand(self.classes[0], sweep.root[1]), total

    def _weigh_profile(self, depth: int, cells: FloatArray) -> FloatArray:
        return np.repeat(cells, self._factors[depth].shape[1], axis=1)

    def _get_factor(self, depth: int) -> FloatArray | None:
        return self._factors[depth]


def merge_moments(classes: CellClasses, moments: FloatArray) -> FloatArray:
    """Sum moments (..., D, D) by class, (..., r, r)."""
    half = classes.merge_counts(moments).swapaxes(-1, -2)
    return np.asarray(classes.merge_counts(half))


def _divide(own: ChildCovariances) -> tuple[FloatArray, FloatArray]:
    """Divide X (x) Y of nodes into the diagonals of X, (b, k), and Y, (b, r, r)."""
    if isinstance(own, IdenticalCovariances):
        return (1 - 1 / own.counts)[:, None], own.precisions
    assert isinstance(own, KroneckerCovariances)
    return own.siblings.found.profiles, own.precisions


def _factor(moment: FloatArray) -> FloatArray:
    """Factor a moment, (r, r)."""
    values, vectors = np.linalg.eigh(moment)
    return np.asarray(vectors * np.sqrt(np.maximum(values, _RIDGE * values[-1:])))


def _expand(classes: CellClasses, values: FloatArray) -> FloatArray:
    """Spread values (r, r) of classes to the dense cells, (D, D); 0 where there is none."""
    padded = np.pad(values, (0, 1))
    return np.asarray(padded[np.ix_(classes.of_cell, classes.of_cell)])
