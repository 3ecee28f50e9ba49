"""Batches: the groups of the residual family, stacked.

Groups whose factor tables have equal shapes are stacked, so that each sum over their tables is one
einsum. See `fitplug.structure.residual_blocks` for the family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from fitplug.domain import Hierarchy
from fitplug.numeric import FloatArray, IntArray, freeze
from fitplug.structure.structure import Structure
from fitplug.structure.tree_shape import TreeShape, find_tree_levels, targets_vary, tree_shape
from fitplug.workload import Factor, QueryGroup, Workload

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class DistinctFactor:
    """A factor that groups ask of an attribute, an index into `Structure.split`.

    rows: (r, n); one row of a symmetric attribute, and none, but the level's name in `factor`, of a
    tree. count: r.
    """

    attribute: int
    factor: Factor
    rows: FloatArray
    count: int


class Moments(Protocol):
    """One attribute's space in two: the direction u and the contrasts, with covariance C."""

    def moments(self, asked: DistinctFactor) -> FloatArray:
        """mu^2 and gamma of a factor's rows, shape (r, 2)."""


@dataclass(frozen=True, eq=False)
class Batch:
    """g groups over m attributes whose tables have the same shapes.

    groups: their places in the workload. attributes: (g, m), ascending. factors: (g, m), indices
    into `BatchedGroups.factors`. varying: the axes along which targets vary. targets: (g, r_1, ..., r_m),
    with r_i = 1 where they do not. blocks: (g, 2, ..., 2), the index of each subset A of S.
    """

    groups: IntArray
    attributes: IntArray
    factors: IntArray
    varying: tuple[bool, ...]
    targets: FloatArray
    blocks: IntArray


@dataclass(frozen=True, eq=False)
class BatchedGroups:
    """The groups of a structure, batched.

    symmetric: whether each attribute may be permuted freely. trees: of the attributes that are
    split level by level. factors: the different factors.
    """

    structure: Structure
    symmetric: tuple[bool, ...]
    trees: tuple[TreeShape | None, ...]
    factors: tuple[DistinctFactor, ...]
    batches: tuple[Batch, ...]

    @property
    def workload(self) -> Workload:
        return self.structure.workload

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.structure.sizes

    @property
    def members(self) -> IntArray:
        """The blocks' attributes, shape (b, most), padded with -1."""
        return self.structure.blocks

    @property
    def widths(self) -> tuple[int, ...]:
        """The columns that tell an attribute's cells apart: of a tree, its top nodes."""
        return tuple(
            1 if alike else n if tree is None else tree.top
            for alike, n, tree in zip(self.symmetric, self.sizes, self.trees, strict=True)
        )

    def products(self, values: Sequence[float] | FloatArray) -> FloatArray:
        """prod_{a in A} values[a] for every block, shape (b,)."""
        return np.asarray(np.append(np.asarray(values), 1.0)[self.members].prod(axis=1))

    def tables(self, splits: Sequence[Moments]) -> list[FloatArray]:
        """mu^2 and gamma of every factor's rows, (r, 2)."""
        return [splits[asked.attribute].moments(asked) for asked in self.factors]

    def variances(self, tables: Sequence[FloatArray], z: FloatArray) -> list[FloatArray]:
        """The variances of every group's queries, of the shape of the group's factors that are not
        "total", in the domain's order; of size 1 along a symmetric attribute.

        All terms are positive: the relative error is that of at most 2^m sums of products of m + 1.
        """
        found: list[FloatArray] = [np.empty(0)] * len(self.workload.groups)
        for batch in self.batches:
            part = z[batch.blocks]
            for own in batch.factors.T:
                part = np.einsum("ga...,gia->g...i", part, gather_tables(tables, own))
            for number, values in zip(batch.groups, part, strict=True):
                found[number] = values
        return found

    def by_row(self, values: Sequence[FloatArray]) -> FloatArray:
        """What `variances` gives, over the structure's rows, shape (rows,)."""
        place = {name: a for a, name in enumerate(self.structure.block_attributes)}
        parts = []
        for group, used, array in zip(
            self.workload.groups, self.structure.subsets.group_attributes, values, strict=True
        ):
            axes = _axes(group, place)
            parts.append(array.transpose(np.argsort([axes[a] for a in used])).ravel())
        return np.concatenate(parts)


def batch_groups(structure: Structure) -> BatchedGroups:
    """Batch the groups of a structure of the residual family."""
    place = {name: a for a, name in enumerate(structure.block_attributes)}
    symmetric = tuple(name in structure.symmetric for name in structure.block_attributes)
    found: dict[tuple[object, ...], int] = {}
    trees = tuple(_tree(structure, name) for name in structure.block_attributes)
    factors: list[DistinctFactor] = []
    batches: list[Batch] = []
    for of_length, subsets in structure.subsets.by_count:
        alike: dict[tuple[Shape, Shape], list[tuple[int, list[int], FloatArray]]] = {}
        for i, number in enumerate(of_length):
            group = structure.workload.groups[number]
            own, targets = _once(group, place, structure.subsets.group_attributes[number])
            chosen: list[int] = []
            for axis, a in zip(own, structure.subsets.group_attributes[number], strict=True):
                factor = group.factors[axis]
                given = factor.cells if factor.array is None else factor.array
                # Rows with targets of their own get weights of their own.
                apart = int(number) if targets.shape[len(chosen)] > 1 else None
                key = (a, factor.kind, None if given is None else given.tobytes(), apart)
                if key not in found:
                    found[key] = len(factors)
                    factors.append(_asked(a, factor, symmetric[a], trees[a] is not None))
                chosen.append(found[key])
            lengths = tuple(factors[f].count for f in chosen)
            alike.setdefault((lengths, targets.shape), []).append((i, chosen, targets))
        for (lengths, shape), same in alike.items():
            mine = np.array([i for i, _, _ in same])
            m = len(lengths)
            batches.append(
                Batch(
                    groups=of_length[mine],
                    attributes=np.array(
                        [structure.subsets.group_attributes[g] for g in of_length[mine]],
                        dtype=np.int64,
                    ).reshape(len(mine), m),
                    factors=np.array([own for _, own, _ in same], np.int64).reshape(len(mine), m),
                    varying=tuple(r > 1 for r in shape),
                    targets=np.stack([targets for _, _, targets in same]),
                    # The bits of a subset count from the last axis.
                    blocks=subsets[mine].reshape(-1, *[2] * m).transpose(0, *range(m, 0, -1)),
                )
            )
    return freeze(BatchedGroups(structure, symmetric, trees, tuple(factors), tuple(batches)))


def _tree(structure: Structure, name: str) -> TreeShape | None:
    levels = find_tree_levels(structure.workload, name) if name in structure.told_apart else ()
    hierarchy = structure.workload.domain[name]
    return tree_shape(hierarchy, levels) if levels and isinstance(hierarchy, Hierarchy) else None


def _asked(attribute: int, factor: Factor, symmetric: bool, tree: bool) -> DistinctFactor:
    if symmetric:
        return DistinctFactor(attribute, factor, np.eye(1, factor.size), 1)
    rows = np.zeros((0, factor.size)) if tree else factor.matrix()
    return DistinctFactor(attribute, factor, rows, factor.rows)


def _once(
    group: QueryGroup, place: Mapping[str, int], used: Sequence[int]
) -> tuple[list[int], FloatArray]:
    """The axes of the attributes used, in their order, and the targets along them: of size 1 where
    they do not vary.
    """
    axes = _axes(group, place)
    own, targets = [axes[a] for a in used], group.variances
    for axis in range(targets.ndim):
        if not targets_vary(targets, axis):
            targets = targets.take([0], axis)
    rest = [axis for axis in range(targets.ndim) if axis not in own]
    kept = targets.transpose(own + rest)
    return own, kept.reshape(kept.shape[: len(own)])


def _axes(group: QueryGroup, place: Mapping[str, int]) -> dict[int, int]:
    """The axis of each split attribute in the group's shape."""
    factors = enumerate(group.factors)
    return {place[f.attribute]: axis for axis, f in factors if f.attribute in place}


def gather_tables(
    tables: Sequence[FloatArray] | Mapping[int, FloatArray], own: IntArray
) -> FloatArray:
    """tables[f] for each f of own (g,), stacked."""
    different, place = np.unique(own, return_inverse=True)
    return np.stack([tables[f] for f in different])[place.ravel()]
