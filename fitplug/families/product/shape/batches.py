"""Batches: the groups of the product family, stacked.

Groups whose factor tables have equal shapes are stacked, so that each sum over their tables is one
einsum. See `fitplug.families.product.shape.products` for the family.

The factors of one attribute, such as ages and age groups or the levels of a hierarchy, also
determine how the product bound can split the space of its cells: into nested spaces of rows, or
into classes of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import numpy as np

from fitplug.families.base.structure import Structure
from fitplug.families.base.subsets import Subsets
from fitplug.families.base.tree_shape import TreeShape, targets_vary
from fitplug.families.product.shape.grades import AttributeGrades, BlockScales, find_tree
from fitplug.numeric import FloatArray, IntArray, freeze
from fitplug.workload import Factor, QueryGroup, Workload

_Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class DistinctFactor:
    """A distinct factor of the groups' queries along an attribute.

    Attributes:
        attribute: The attribute, by index of `Structure.block_attributes`.
        factor: The factor.
        rows: The factor's rows, shape (r, n). A symmetric attribute has one row; a tree has none,
            since the factor's kind names the level.
        count: r, the number of rows.
    """

    attribute: int
    factor: Factor
    rows: FloatArray
    count: int


class VarianceParts(Protocol):
    """One attribute's reference u and covariances C_k of its grades."""

    def compute_variance_parts(self, factor: DistinctFactor) -> FloatArray:
        """Compute mu^2 = (w'u)^2 and gammas w'C_k w of a factor's rows w, shape (r, 1 + K)."""


@dataclass(frozen=True, eq=False)
class Batch:
    """g groups over m attributes whose factor tables have equal shapes.

    Attributes:
        groups: The groups' indices in the workload, shape (g,).
        attributes: The groups' attributes, ascending, shape (g, m).
        factors: Indices into `BatchedGroups.factors`, shape (g, m).
        varying: Whether targets vary along each axis.
        targets: The targets, shape (g, r_1, ..., r_m), with r_i = 1 where they do not vary.
        scales: The scale of each tuple of grades of a group's attributes, 0 for a total, as indices
            for `BlockScales.gather`, shape (g, 1 + K_1, ..., 1 + K_m).
    """

    groups: IntArray
    attributes: IntArray
    factors: IntArray
    varying: tuple[bool, ...]
    targets: FloatArray
    scales: IntArray


@dataclass(frozen=True, eq=False)
class BatchedGroups:
    """The groups of a structure, in batches.

    Attributes:
        workload: The workload.
        attributes: The attributes of the workload, in the domain's order.
        subsets: The sets of attributes that have blocks.
        symmetric: Whether each attribute's cells may be permuted freely.
        trees: The nodes of each attribute that is divided level by level; None for others.
        grades: The grades of each attribute.
        scales: The positions of the scales of all tuples of grades.
        factors: The distinct factors.
        batches: The batches.
    """

    workload: Workload
    attributes: tuple[str, ...]
    subsets: Subsets
    symmetric: tuple[bool, ...]
    trees: tuple[TreeShape | None, ...]
    grades: tuple[AttributeGrades, ...]
    scales: BlockScales
    factors: tuple[DistinctFactor, ...]
    batches: tuple[Batch, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """n_a of the attributes."""
        return self.subsets.sizes

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of columns of each attribute: its distinguished cells, or a tree's top
        nodes."""
        return tuple(
            1 if is_symmetric else n if tree is None else tree.top
            for is_symmetric, n, tree in zip(self.symmetric, self.sizes, self.trees, strict=True)
        )

    def spread_targets(self, most: int) -> BatchedGroups:
        """Spread targets over all rows, for groups with at most `most` rows."""
        batches = []
        for batch in self.batches:
            lengths = [self.factors[f].count for f in batch.factors[0]]
            if math.prod(lengths) <= most:
                targets = np.broadcast_to(batch.targets, (len(batch.groups), *lengths))
                varying = (True,) * len(lengths)
                batch = replace(batch, varying=varying, targets=targets)
            batches.append(batch)
        return replace(self, batches=tuple(batches))

    def compute_tables(self, covariances: Sequence[VarianceParts]) -> list[FloatArray]:
        """Compute mu^2 and the gammas of each distinct factor's rows, shape (r, 1 + K) each."""
        return [covariances[one.attribute].compute_variance_parts(one) for one in self.factors]

    def compute_variances(self, tables: Sequence[FloatArray], z: FloatArray) -> list[FloatArray]:
        """Compute the variances of every group's queries.

        Args:
            tables: mu^2 and gammas of every distinct factor's rows, each of shape (r, 1 + K).
            z: The scales, shape (scales.count,).

        Returns:
            Per group, an array with an axis for each attribute of A_t, of size 1 if symmetric. All
            terms are positive, so the relative error is that of sums of prod (1 + K_i) products of
            m + 1 numbers.
        """
        variances: list[FloatArray] = [np.empty(0)] * len(self.workload.groups)
        for batch in self.batches:
            part = self.scales.gather(z, batch.scales)
            for factors in batch.factors.T:
                part = np.einsum("ga...,gia->g...i", part, gather_tables(tables, factors))
            for number, values in zip(batch.groups, part, strict=True):
                variances[number] = values
        return variances

    def arrange_by_row(self, values: Sequence[FloatArray]) -> FloatArray:
        """Arrange the result of `compute_variances` by the structure's rows, shape (rows,)."""
        position = {name: a for a, name in enumerate(self.attributes)}
        parts = []
        for group, used, array in zip(
            self.workload.groups, self.subsets.group_attributes, values, strict=True
        ):
            axes = _find_axes(group, position)
            parts.append(array.transpose(np.argsort([axes[a] for a in used])).ravel())
        return np.concatenate(parts)


def batch_groups(
    structure: Structure, grades: tuple[AttributeGrades, ...], apart: bool = False
) -> BatchedGroups:
    """Batch the groups of a structure whose blocks are made of all attributes.

    Args:
        structure: The structure.
        grades: The grades of each attribute.
        apart: Whether rows have separate weights in each group.
    """
    names, subsets = structure.block_attributes, structure.subsets
    scales = BlockScales(subsets, grades)
    position = {name: a for a, name in enumerate(names)}
    register = _FactorRegister(
        symmetric=tuple(name in structure.symmetric for name in names),
        trees=tuple(find_tree(structure, name) for name in names),
    )
    batches: list[Batch] = []
    for numbers, blocks in subsets.by_count:
        by_shape: dict[tuple[_Shape, ...], list[tuple[int, list[int], FloatArray]]] = {}
        for i, number in enumerate(numbers):
            group = structure.workload.groups[number]
            attributes = subsets.group_attributes[number]
            axes, targets = _collapse_targets(group, position, attributes)
            chosen = [
                register.find(
                    a,
                    group.factors[axis],
                    # Rows with individual targets get individual weights.
                    int(number) if rows > 1 or apart else None,
                )
                for axis, a, rows in zip(axes, attributes, targets.shape, strict=True)
            ]
            lengths = tuple(register.factors[f].count for f in chosen)
            counts = tuple(scales.counts[a] for a in attributes)
            by_shape.setdefault((lengths, targets.shape, counts), []).append((i, chosen, targets))
        for (_, shape, _), same in by_shape.items():
            rows_of_shape = np.array([i for i, _, _ in same])
            size = len(rows_of_shape), len(shape)
            of_groups = np.array(
                [subsets.group_attributes[g] for g in numbers[rows_of_shape]], dtype=np.int64
            ).reshape(size)
            batches.append(
                Batch(
                    groups=numbers[rows_of_shape],
                    attributes=of_groups,
                    factors=np.array([one for _, one, _ in same], np.int64).reshape(size),
                    varying=tuple(r > 1 for r in shape),
                    targets=np.stack([targets for _, _, targets in same]),
                    # The bits of a subset count from the last axis.
                    scales=scales.index(
                        blocks[rows_of_shape]
                        .reshape(-1, *[2] * size[1])
                        .transpose(0, *range(size[1], 0, -1)),
                        of_groups,
                    ),
                )
            )
    return freeze(
        BatchedGroups(
            workload=structure.workload,
            attributes=names,
            subsets=subsets,
            symmetric=register.symmetric,
            trees=register.trees,
            grades=grades,
            scales=scales,
            factors=tuple(register.factors),
            batches=tuple(batches),
        )
    )


@dataclass
class _FactorRegister:
    """The distinct factors so far, and their indices."""

    symmetric: tuple[bool, ...]
    trees: tuple[TreeShape | None, ...]
    factors: list[DistinctFactor] = field(default_factory=list)
    _indices: dict[tuple[object, ...], int] = field(default_factory=dict)

    def find(self, attribute: int, factor: Factor, group: int | None) -> int:
        """Find the index of a factor, or add it; with a group, it is separate for this group."""
        given = factor.cells if factor.array is None else factor.array
        key = (attribute, factor.kind, None if given is None else given.tobytes(), group)
        if key not in self._indices:
            self._indices[key] = len(self.factors)
            self.factors.append(self._describe(attribute, factor))
        return self._indices[key]

    def _describe(self, attribute: int, factor: Factor) -> DistinctFactor:
        """Describe a factor by the rows that the family needs."""
        if self.symmetric[attribute]:
            return DistinctFactor(attribute, factor, np.eye(1, factor.size), 1)
        if self.trees[attribute] is not None:
            return DistinctFactor(attribute, factor, np.zeros((0, factor.size)), factor.rows)
        return DistinctFactor(attribute, factor, factor.matrix(), factor.rows)


def _collapse_targets(
    group: QueryGroup, position: Mapping[str, int], attributes: Sequence[int]
) -> tuple[list[int], FloatArray]:
    """Find the axes of some attributes in a group's shape, and the targets along them.

    Targets have size 1 along axes where they do not vary.
    """
    axes = _find_axes(group, position)
    chosen, targets = [axes[a] for a in attributes], group.variances
    for axis in range(targets.ndim):
        if not targets_vary(targets, axis):
            targets = targets.take([0], axis)
    rest = [axis for axis in range(targets.ndim) if axis not in chosen]
    arranged = targets.transpose(chosen + rest)
    return chosen, arranged.reshape(arranged.shape[: len(chosen)])


def _find_axes(group: QueryGroup, position: Mapping[str, int]) -> dict[int, int]:
    """Find the axis of each attribute in the group's shape."""
    factors = enumerate(group.factors)
    return {position[f.attribute]: axis for axis, f in factors if f.attribute in position}


def gather_tables(
    tables: Sequence[FloatArray] | Mapping[int, FloatArray], indices: IntArray
) -> FloatArray:
    """Stack tables[f] for each f in indices (g,); equal indices are looked up once."""
    different, inverse = np.unique(indices, return_inverse=True)
    return np.stack([tables[f] for f in different])[inverse.ravel()]


_NOISE = 1e-9
"""Singular values of unit rows below this add no dimension to a space."""


def build_row_spaces(batched: BatchedGroups, attribute: int) -> tuple[FloatArray, ...]:
    """Build rows whose spans, added one after another, each add dimensions.

    The factors with the fewest rows come first; a factor that adds no dimension is left out.

    Args:
        batched: The groups.
        attribute: The attribute, which is not symmetric.

    Returns:
        Rows (r, P) over the attribute's columns; at least one array.
    """
    width, tree = batched.widths[attribute], batched.trees[attribute]
    asked: list[FloatArray] = []
    for factor in batched.factors:
        if factor.attribute == attribute:
            if tree is None:
                asked.append(factor.rows)
            elif factor.factor.kind in tree.above:
                asked.append(tree.build_top_rows(factor.factor.kind))
            else:
                asked.append(np.eye(width))
    spaces: list[FloatArray] = []
    known = np.zeros((0, width))
    for rows in sorted(asked, key=len):
        added = orthonormalise(rows, known)
        if len(added):
            spaces.append(rows)
            known = np.concatenate([known, added])
    return tuple(spaces) or (np.zeros((1, width)),)


def orthonormalise(rows: FloatArray, known: FloatArray) -> FloatArray:
    """Find orthonormal rows for the dimensions that rows add to the span of `known`.

    Args:
        rows: Shape (r, n).
        known: Shape (k, n).

    Returns:
        Shape (r', n).
    """
    size = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    rows = np.divide(rows, size, out=np.zeros_like(rows), where=size > 0)
    for _ in range(2):
        rows = rows - (rows @ known.T) @ known
    _, s, V = np.linalg.svd(rows, full_matrices=False)
    V = V[s > _NOISE]
    return np.asarray(V - (V @ known.T) @ known)


def classify_nodes(tree: TreeShape, most: int) -> tuple[tuple[IntArray, ...], int]:
    """Divide the nodes that branch into classes: one per node, unless nodes are too many.

    Args:
        tree: The tree.
        most: The most classes.

    Returns:
        Per step, the class of every parent, 0 for parents of one child; and the number of classes.
        Nodes in one class have similar depths and numbers of children.
    """
    order = np.lexsort((tree.branching_children, tree.branching_depths))
    count = min(len(order), most)
    classes = np.empty(len(order), dtype=np.int64)
    classes[order] = np.arange(len(order)) * count // max(len(order), 1)
    return tuple(tree.arrange_by_step(classes, 0)), count
