"""Grades: the division of an attribute's contrasts, and the scales of blocks.

Grade 0 of an attribute is its total. Its contrasts have the grades 1 to K. A hierarchy has one
grade for each node with several children: the contrasts of these. Any other attribute has one grade
for each step in a chain of nested row spaces of its factors, such as age groups within prefixes of
age. Block A has a scale for each tuple of grades of its attributes. Attributes with K = 1 are not
divided. See docs/theory/product-family.md, "Grades".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.families.base.structure import Structure
from fitplug.families.base.subsets import Subsets
from fitplug.families.base.tree_shape import (
    MAX_TOP,
    TreeShape,
    find_tree_levels,
    find_tree_shape,
)
from fitplug.numeric import AnyArray, FloatArray, IntArray, frozen_property, to_positions
from fitplug.workload import Factor

MOST_SCALES = 200_000
"""The most scales of all blocks together; beyond, attributes are not divided."""

MOST_CLASSES = 1_000_000
"""The most combinations of distinguished cells of divided attributes."""

MOST_ENTRIES = 5_000_000
"""The most entries of a table of an attribute's cells by its grades."""

_MOST_VARIANTS = 16
"""The most variants of an attribute."""

_NEGLIGIBLE = 1e-9


@dataclass(frozen=True, eq=False)
class AttributeGrades:
    """The grades of the contrasts of one attribute.

    Attributes:
        starts: The first grade of each variant, and K, shape (V + 1,).
        tree: The tree of a hierarchy, with one root, whose branching nodes are the grades, in
            order; None for other attributes, and if K = 1.
        subspaces: Orthonormal contrasts of each grade, shapes (n, k); empty for a hierarchy, and if
            K = 1. The first grades of a variant together span a factor's contrasts, and all grades
            of the first variant span the contrasts of all factors.
        variants: The variant of each block, shape (b,); 0 for blocks without the attribute.
    """

    starts: IntArray
    variants: IntArray
    tree: TreeShape | None = None
    subspaces: tuple[FloatArray, ...] = ()

    @property
    def count(self) -> int:
        """K, the number of grades of all variants."""
        return int(self.starts[-1])

    @property
    def classes(self) -> int:
        """An upper bound on the number of cells that grades distinguish."""
        if self.tree is not None:
            return len(self.tree.first[max(self.tree.steps - 1, 0)])
        return len(self.subspaces[0]) if self.subspaces else 1


def make_grades(
    counts: Sequence[int],
    variants: IntArray,
    tree: TreeShape | None = None,
    subspaces: Sequence[FloatArray] = (),
) -> AttributeGrades:
    """Make grades from the number of grades of each variant, and the variant of each block."""
    starts = np.append(0, np.cumsum(counts)).astype(np.int64)
    return AttributeGrades(starts, variants, tree, tuple(subspaces))


def leave_undivided(subsets: Subsets) -> AttributeGrades:
    """Return the single grade of an undivided attribute."""
    return make_grades([1], np.zeros(len(subsets.blocks), dtype=np.int64))


def add_total(numbers: FloatArray) -> FloatArray:
    """Add a first column of ones, for the total, to numbers of grades (n, K)."""
    return np.concatenate([np.ones((len(numbers), 1)), numbers], axis=1)


@dataclass(frozen=True, eq=False)
class BlockScales:
    """The scales of all blocks, one block after another.

    A block's scales are in the order of its tuples of grades, the last grade varying fastest.

    Attributes:
        subsets: The attributes of each block.
        grades: The grades of each attribute.
    """

    subsets: Subsets
    grades: tuple[AttributeGrades, ...]

    @frozen_property
    def starts(self) -> IntArray:
        """The first scale of each block, and the number of scales, shape (b + 1,)."""
        sizes = np.ones(len(self.subsets.blocks), dtype=np.int64)
        for a in self.divided.tolist():
            grades = self.grades[a]
            has = (self.subsets.blocks == a).any(axis=1)
            sizes[has] *= np.diff(grades.starts)[grades.variants[has]]
        return np.append(0, np.cumsum(sizes))

    @property
    def count(self) -> int:
        """The number of scales."""
        return int(self.starts[-1])

    @frozen_property
    def counts(self) -> tuple[int, ...]:
        """K of each attribute."""
        return tuple(grades.count for grades in self.grades)

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
        """The position in `grid` of each scale's grades, shape (count,)."""
        places = np.zeros(self.count, dtype=np.int64)
        if not len(self.divided):
            return places
        cells = np.arange(math.prod(self.grid)).reshape(self.grid)
        # For each block, the variant of each divided attribute, or -1.
        has = (self.subsets.blocks[:, None, :] == self.divided[:, None]).any(axis=2)
        variants = np.stack([self.grades[a].variants for a in self.divided], axis=1)
        patterns, pattern_of = np.unique(np.where(has, variants, -1), axis=0, return_inverse=True)
        for i, pattern in enumerate(patterns.tolist()):
            slices = [
                0 if v < 0 else slice(1 + grades.starts[v], 1 + grades.starts[v + 1])
                for v, grades in zip(pattern, (self.grades[a] for a in self.divided), strict=True)
            ]
            places_of_pattern = cells[tuple(slices)].ravel()
            starts = self.starts[:-1][pattern_of.ravel() == i]
            places[starts[:, None] + np.arange(places_of_pattern.size)] = places_of_pattern
        return places

    def multiply(self, numbers: Sequence[AnyArray]) -> AnyArray:
        """Multiply, per scale, one number for each of its grades.

        Args:
            numbers: The numbers of each attribute's grades 1 to K, shapes (K,), all of one type.

        Returns:
            Shape (count,).
        """
        kind = np.result_type(np.int64, *numbers)
        whole = [
            factors[0] if k == 1 else 1 for factors, k in zip(numbers, self.counts, strict=True)
        ]
        blocks = np.array([*whole, 1], dtype=kind)[self.subsets.blocks].prod(axis=1)
        spread = np.repeat(blocks, to_positions(np.diff(self.starts)))
        return spread * self.build_grid([numbers[a] for a in self.divided], kind)[self.places]

    def build_grid(self, numbers: Sequence[AnyArray], kind: np.dtype) -> AnyArray:
        """Form the flat outer product over `grid` of the divided attributes' numbers (K,)."""
        grid: AnyArray = np.ones(1, dtype=kind)
        for factors in numbers:
            grid = np.multiply.outer(grid, np.append(np.ones(1, dtype=kind), factors)).ravel()
        return grid

    def label(self, attribute: int) -> IntArray:
        """Find each scale's grade of an attribute, 0 for its total, shape (count,)."""
        if self.counts[attribute] == 1:
            has = (self.subsets.blocks == attribute).any(axis=1).astype(np.int64)
            return np.repeat(has, to_positions(np.diff(self.starts)))
        axis = int(np.searchsorted(self.divided, attribute))
        return np.unravel_index(self.places, self.grid)[axis].astype(np.int64)

    def list_grades(self, block: int) -> list[range]:
        """List the range of grades, counted from 0, of each attribute of a block."""
        (attributes,) = self.subsets.list_attributes([block])
        ranges = []
        for a in attributes:
            grades = self.grades[a]
            variant = int(grades.variants[block])
            ranges.append(range(int(grades.starts[variant]), int(grades.starts[variant + 1])))
        return ranges

    def split(self, values: AnyArray) -> tuple[AnyArray, ...]:
        """Split values of all scales by block, with an axis for each attribute of a block."""
        return tuple(
            part.reshape([len(grades) for grades in self.list_grades(block)])
            for block, part in enumerate(np.split(values, self.starts[1:-1]))
        )

    def gather(self, values: FloatArray, places: IntArray) -> FloatArray:
        """Gather values of all scales at places; the place `count` has the value 0."""
        return np.append(values, 0.0)[places]

    def index(self, blocks: IntArray, attributes: IntArray) -> IntArray:
        """Find the scales of groups whose attributes have equal K.

        Args:
            blocks: The block of each subset of a group's attributes, shape (g, 2, ..., 2).
            attributes: The groups' attributes, shape (g, m).

        Returns:
            Shape (g, 1 + K_1, ..., 1 + K_m); `count` where a block does not have these grades.
        """
        counts = [self.counts[a] for a in attributes[0].tolist()]
        scales = np.full((len(blocks), *(1 + k for k in counts)), self.count, dtype=np.int64)
        for subset in np.ndindex(blocks.shape[1:]):
            subset_blocks = blocks[(slice(None), *subset)]
            if all(k == 1 for k in counts):
                scales[(slice(None), *subset)] = self.starts[subset_blocks]
                continue
            for g, block in enumerate(subset_blocks.tolist()):
                grades = iter(self.list_grades(block))
                ranges = [next(grades) if one else None for one in subset]
                at = (0 if k is None else slice(1 + k.start, 1 + k.stop) for k in ranges)
                shape = [len(k) for k in ranges if k is not None]
                offsets = np.arange(math.prod(shape)).reshape(shape)
                scales[(g, *at)] = self.starts[block] + offsets
        return scales


def find_grades(structure: Structure, by_block: bool = False) -> tuple[AttributeGrades, ...]:
    """Find the grades of each of a structure's `block_attributes`.

    If scales or classes of cells would be too many, attributes with the most grades get fewer.

    Args:
        structure: The structure.
        by_block: Whether each block may have its own variant.
    """
    names = structure.block_attributes
    choices = [_list_choices(structure, name, by_block) for name in names]
    while True:
        grades = tuple(choice[0] for choice in choices)
        counts = [choice.count for choice in grades]
        classes = math.prod(choice.classes for choice in grades)
        if max(counts, default=1) == 1 or (
            BlockScales(structure.subsets, grades).count <= MOST_SCALES and classes <= MOST_CLASSES
        ):
            return grades
        del choices[counts.index(max(counts))][0]


def _list_choices(structure: Structure, name: str, by_block: bool) -> list[AttributeGrades]:
    """List the possible grades of one attribute, the best first."""
    undivided = leave_undivided(structure.subsets)
    same = undivided.variants
    if name not in structure.asymmetric:
        return [undivided]
    factors, asked = _find_factors(structure, name)
    if tree := find_tree(structure, name, most=1):
        variants_of = [same]
        if has_unequal_children(tree):
            variants_of = [_number_blocks(asked)[1], _number_sets(asked)[1], same]
        nodes = tree.branching
        return [
            *(
                make_grades([nodes] * count, variants, tree)
                for variants, count in ((one, 1 + int(one.max())) for one in variants_of)
                if nodes > 1 and count <= _MOST_VARIANTS and count * nodes * tree.n <= MOST_ENTRIES
            ),
            undivided,
        ]
    if len(factors) == 1 and not by_block:
        return [undivided]
    different, variants = _number_sets(asked)
    choices = []
    ways = [(different, variants), (different[:1], same)]
    if by_block:
        ways.insert(0, _number_blocks(asked))
    for sets, of_block in ways:
        nested = [find_nested_contrasts([factors[f].matrix() for f in chosen]) for chosen in sets]
        counts = [len(spaces) for spaces in nested]
        subspaces = [space for spaces in nested for space in spaces]
        has_contrasts = min(counts) > 0 and min(space.shape[1] for space in subspaces) > 0
        if len(sets) <= _MOST_VARIANTS and sum(counts) > 1 and has_contrasts:
            choices.append(make_grades(counts, of_block, None, subspaces))
    return [*choices, undivided]


def find_tree(structure: Structure, name: str, most: int = MAX_TOP) -> TreeShape | None:
    """Find the tree of an attribute that is divided level by level; None for others.

    Args:
        structure: The structure.
        name: The attribute.
        most: The most nodes of the top level.
    """
    levels = find_tree_levels(structure.workload, name) if name in structure.asymmetric else ()
    return find_tree_shape(structure.workload.domain[name], levels, most=most) if levels else None


def has_unequal_children(tree: TreeShape) -> bool:
    """Tell whether children of some node have different trees below.

    Only nodes with at least three children count, because two have one contrast, which no weights
    change. Nodes below the finest level that queries use do not.
    """
    kinds = np.zeros(len(tree.first[tree.deepest]), dtype=np.int64)
    for step in reversed(range(tree.deepest)):
        first = tree.first_children[step]
        children = np.split(kinds, first[1:])
        different = [sorted(of_node.tolist()) for of_node in children]
        if any(len(one) > 2 and one[0] != one[-1] for one in different):
            return True
        kinds = np.unique([f"{len(one)}.{one[0]}" for one in different], return_inverse=True)[1]
    return False


def _find_factors(structure: Structure, name: str) -> tuple[list[Factor], list[set[int]]]:
    """Find the distinct factors of an attribute, and the set of factors in each block.

    Blocks without the attribute have the empty set. The block of the attribute alone has all
    factors.
    """
    known: dict[tuple[object, ...], int] = {}
    factors: list[Factor] = []
    of_group: dict[int, int] = {}
    for g, group in enumerate(structure.workload.groups):
        for factor in group.factors:
            if factor.attribute == name and factor.kind != "total":
                given = factor.cells if factor.array is None else factor.array
                key = factor.kind, None if given is None else given.tobytes()
                if key not in known:
                    known[key] = len(factors)
                    factors.append(factor)
                of_group[g] = known[key]
    subsets, a = structure.subsets, structure.block_attributes.index(name)
    asked = []
    for block in range(len(subsets.blocks)):
        has = a in subsets.blocks[block]
        groups = subsets.find_groups(block)[0].tolist() if has else []
        asked.append({of_group[g] for g in groups})
    return factors, asked


def _number_sets(asked: Sequence[set[int]]) -> tuple[list[list[int]], IntArray]:
    """Number the distinct non-empty sets, the largest first; return them and each block's."""
    different = sorted(
        {tuple(sorted(factors)) for factors in asked if factors},
        key=lambda factors: (-len(factors), factors),
    )
    number = {factors: i for i, factors in enumerate(different)}
    of_block = [number.get(tuple(sorted(factors)), 0) for factors in asked]
    return [list(factors) for factors in different], np.array(of_block, dtype=np.int64)


def _number_blocks(asked: Sequence[set[int]]) -> tuple[list[list[int]], IntArray]:
    """Number the blocks with non-empty sets, the largest set first."""
    blocks = [block for block, factors in enumerate(asked) if factors]
    blocks.sort(key=lambda block: (-len(asked[block]), sorted(asked[block]), block))
    of_block = np.zeros(len(asked), dtype=np.int64)
    of_block[blocks] = np.arange(len(blocks))
    return [sorted(asked[block]) for block in blocks], of_block


def find_nested_contrasts(matrices: Sequence[FloatArray]) -> tuple[FloatArray, ...]:
    """Divide the contrasts of rows along a chain of nested row spaces.

    Args:
        matrices: The rows of each factor, shapes (r, n).

    Returns:
        Orthonormal contrasts of each grade, shapes (n, k). The first grades together span a
        factor's contrasts, and all grades span the contrasts of all factors.
    """
    spaces = sorted(
        (_find_contrasts(matrix) for matrix in matrices), key=lambda matrix: matrix.shape[1]
    )
    if len(spaces) < 2:
        return tuple(spaces)
    spaces.append(_find_contrasts(np.concatenate([contrasts.T for contrasts in spaces])))
    grades = [spaces[0][:, :0]]
    for space in spaces:
        U = np.concatenate(grades, axis=1)
        within = space.T @ U
        if space.shape[1] > U.shape[1] and np.allclose(space @ within, U, atol=_NEGLIGIBLE):
            # The rest of the space: the directions outside U.
            left = np.linalg.svd(np.eye(len(within)) - within @ within.T)[0]
            grades.append(space @ left[:, : space.shape[1] - U.shape[1]])
    return tuple(grades[1:])


def _find_contrasts(rows: FloatArray) -> FloatArray:
    """Find orthonormal contrasts (n, rank) that span the contrasts of rows (r, n)."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    return directions[sizes > _NEGLIGIBLE * np.abs(rows).max(initial=0.0)].T
