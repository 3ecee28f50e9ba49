"""Grades: the parts into which the contrasts of an attribute are divided, and the scales of blocks.

Grade 0 of an attribute is its total. Its contrasts have the grades 1 to K: of a hierarchy one for
each node with several children, the contrasts of these, and of another attribute one for each step
in a chain of nested row spaces of its factors, such as age groups within prefixes of age. Block A
has a scale for each tuple of grades of its attributes. Attributes with K = 1 are not divided.
See docs/theory/product-family.md, "Grades".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.families.base.structure import Structure
from fitplug.families.base.subsets import Subsets
from fitplug.families.base.tree_shape import TreeShape, find_tree_levels, find_tree_shape
from fitplug.numeric import AnyArray, FloatArray, IntArray, frozen_property, to_positions

MOST_SCALES = 200_000
"""Most scales of all blocks together: more attributes are not divided."""

MOST_CLASSES = 1_000_000
"""Most combinations of cells of divided attributes that are told apart."""

MOST_ENTRIES = 5_000_000
"""Most entries of a table of all cells of an attribute by its grades."""

_MOST_SUBSPACES = 4

_NEGLIGIBLE = 1e-9


@dataclass(frozen=True, eq=False)
class AttributeGrades:
    """The grades of the contrasts of one attribute.

    Attributes:
        count: K.
        tree: The nodes of a hierarchy below one root, each a grade in the order of the nodes that
            branch; None for other attributes, and where K = 1.
        subspaces: Orthonormal contrasts of each grade, shapes (n, k); none for a hierarchy, and
            where K = 1. Those of the first grades together span those of a factor.
    """

    count: int
    tree: TreeShape | None = None
    subspaces: tuple[FloatArray, ...] = ()

    @property
    def classes(self) -> int:
        """The most cells that grades tell apart."""
        if self.tree is not None:
            return len(self.tree.first[max(self.tree.steps - 1, 0)])
        return len(self.subspaces[0]) if self.subspaces else 1


UNDIVIDED = AttributeGrades(1)


@dataclass(frozen=True, eq=False)
class BlockScales:
    """The scales of all blocks, one after another.

    Those of a block are in the order of its tuples of grades, of which the last varies fastest.

    Attributes:
        subsets: The attributes of each block.
        counts: K of each attribute.
    """

    subsets: Subsets
    counts: tuple[int, ...]

    @frozen_property
    def starts(self) -> IntArray:
        """Where the scales of each block start, shape (b + 1,)."""
        sizes = np.append(np.array(self.counts, dtype=np.int64), 1)[self.subsets.blocks]
        return np.append(0, np.cumsum(sizes.prod(axis=1, dtype=np.int64)))

    @property
    def count(self) -> int:
        """The number of scales."""
        return int(self.starts[-1])

    @frozen_property
    def divided(self) -> IntArray:
        """The attributes with several grades, ascending."""
        return np.flatnonzero(np.array(self.counts) > 1)

    @property
    def grid(self) -> tuple[int, ...]:
        """1 + K of each divided attribute."""
        return tuple(1 + self.counts[a] for a in self.divided)

    @frozen_property
    def places(self) -> IntArray:
        """The position in `grid` of the grades of each scale, shape (count,)."""
        places = np.zeros(self.count, dtype=np.int64)
        if not len(self.divided):
            return places
        cells = np.arange(math.prod(self.grid)).reshape(self.grid)
        has = (self.subsets.blocks[:, None, :] == self.divided[:, None]).any(axis=2)
        for pattern in np.unique(has, axis=0):
            own = cells[tuple(slice(1, None) if one else 0 for one in pattern)].ravel()
            starts = self.starts[:-1][(has == pattern).all(axis=1)]
            places[starts[:, None] + np.arange(own.size)] = own
        return places

    def multiply(self, numbers: Sequence[AnyArray]) -> AnyArray:
        """Multiply one number for each grade of a scale.

        Args:
            numbers: Those of each attribute's grades 1 to K, shapes (K,), of one type.

        Returns:
            Shape (count,).
        """
        kind = np.result_type(np.int64, *numbers)
        whole = [own[0] if k == 1 else 1 for own, k in zip(numbers, self.counts, strict=True)]
        blocks = np.array([*whole, 1], dtype=kind)[self.subsets.blocks].prod(axis=1)
        spread = np.repeat(blocks, to_positions(np.diff(self.starts)))
        return spread * self.build_grid([numbers[a] for a in self.divided], kind)[self.places]

    def build_grid(self, numbers: Sequence[AnyArray], kind: np.dtype) -> AnyArray:
        """Multiply numbers of the divided attributes' grades, shapes (K,), over `grid`, flat."""
        grid: AnyArray = np.ones(1, dtype=kind)
        for own in numbers:
            grid = np.multiply.outer(grid, np.append(np.ones(1, dtype=kind), own)).ravel()
        return grid

    def label(self, attribute: int) -> IntArray:
        """Find the grade that each scale has of an attribute, 0 for its total, shape (count,)."""
        if self.counts[attribute] == 1:
            has = (self.subsets.blocks == attribute).any(axis=1).astype(np.int64)
            return np.repeat(has, to_positions(np.diff(self.starts)))
        axis = int(np.searchsorted(self.divided, attribute))
        return np.unravel_index(self.places, self.grid)[axis].astype(np.int64)

    def split(self, values: AnyArray) -> tuple[AnyArray, ...]:
        """Split values of all scales by block, with an axis for each attribute of a block."""
        blocks = range(len(self.starts) - 1)
        shapes = [
            tuple(self.counts[a] for a in own) for own in self.subsets.list_attributes(list(blocks))
        ]
        parts = np.split(values, self.starts[1:-1])
        return tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))

    def index(self, blocks: IntArray, counts: Sequence[int]) -> IntArray:
        """Find the scales of groups.

        Args:
            blocks: The block of each subset of a group's attributes, shape (g, 2, ..., 2).
            counts: K of these attributes, which all groups share.

        Returns:
            Shape (g, 1 + K_1, ..., 1 + K_m).
        """
        found = np.zeros((len(blocks), *(1 + k for k in counts)), dtype=np.int64)
        for subset in np.ndindex(blocks.shape[1:]):
            own = [k for k, one in zip(counts, subset, strict=True) if one]
            offsets = np.arange(math.prod(own)).reshape(own)
            starts = self.starts[blocks[(slice(None), *subset)]]
            at = (slice(None), *(slice(1, None) if one else 0 for one in subset))
            found[at] = np.add.outer(starts, offsets)
        return found


def find_grades(structure: Structure) -> tuple[AttributeGrades, ...]:
    """Find the grades of each of a structure's `block_attributes`.

    Where all of them would be too many, attributes with the most grades are not divided.
    """
    found = [_find_own_grades(structure, name) for name in structure.block_attributes]
    while max((own.count for own in found), default=1) > 1:
        counts = [own.count for own in found]
        scales = BlockScales(structure.subsets, tuple(counts)).count
        classes = math.prod(own.classes for own in found)
        if scales <= MOST_SCALES and classes <= MOST_CLASSES:
            break
        found[counts.index(max(counts))] = UNDIVIDED
    return tuple(found)


def _find_own_grades(structure: Structure, name: str) -> AttributeGrades:
    """Find the grades of one attribute, by itself."""
    if name not in structure.told_apart:
        return UNDIVIDED
    workload = structure.workload
    attribute = workload.domain[name]
    if levels := find_tree_levels(workload, name):
        tree = find_tree_shape(attribute, levels, most=1)
        fits = tree.branching > 1 and tree.branching * tree.n <= MOST_ENTRIES
        return AttributeGrades(tree.branching, tree) if fits else UNDIVIDED
    distinct = {}
    for factor in workload.groups.factors:
        if factor.attribute == name and factor.kind != "total":
            given = factor.cells if factor.array is None else factor.array
            distinct[factor.kind, None if given is None else given.tobytes()] = factor
    subspaces = find_nested_contrasts([factor.matrix() for factor in distinct.values()])
    return AttributeGrades(len(subspaces), None, subspaces) if len(subspaces) > 1 else UNDIVIDED


def find_nested_contrasts(matrices: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Divide the contrasts that rows ask for along a chain of their nested row spaces.

    Args:
        matrices: The rows of each factor, shapes (r, n).

    Returns:
        Orthonormal contrasts of each grade, shapes (n, k). Those of the first grades together span
        those of a factor, and all together span those of all factors.
    """
    spaces = sorted((_find_contrasts(own) for own in matrices), key=lambda own: own.shape[1])
    if len(spaces) < 2:
        return tuple(spaces)
    spaces.append(_find_contrasts(np.concatenate([own.T for own in spaces])))
    grades = [spaces[0][:, :0]]
    for space in spaces:
        U = np.concatenate(grades, axis=1)
        within = space.T @ U
        if space.shape[1] > U.shape[1] and np.allclose(space @ within, U, atol=_NEGLIGIBLE):
            # What is left of the space: the directions that U does not have.
            left = np.linalg.svd(np.eye(len(within)) - within @ within.T)[0]
            grades.append(space @ left[:, : space.shape[1] - U.shape[1]])
    return tuple(grades[1:])


def _find_contrasts(rows: FloatArray) -> FloatArray:
    """Find orthonormal contrasts that span those of some rows (r, n), shape (n, rank)."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    return directions[sizes > _NEGLIGIBLE * np.abs(rows).max(initial=0.0)].T
