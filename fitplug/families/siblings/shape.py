"""Siblings: hierarchies whose finest nodes may be permuted below their parents.

Let the finest level that queries use of a hierarchy have equal targets below each *parent*, a node
of the next coarser level that queries use, or the root. Then permuting the children of one parent
changes nothing. So by convexity the optimal Sigma consists of any covariance over the parents and,
for each parent, any covariance of the other attributes times I - J/k for its k children
(docs/theory/symmetry.md).

The same form comes from `MatrixStructure` and, where neighbours replace a record, `PairStructure`
for an *unfolded* workload. There the parents are a dense attribute, and the children of each parent
are a separate symmetric attribute. A group of the finest level is divided into one group for each
parent. A record has a cell of each of these attributes, but only that of its parent matters: no
query counts the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fitplug.domain import Domain, Integers, get_codec, get_shape
from fitplug.families.base.structure import Structure, list_names
from fitplug.families.base.tree_shape import is_tree
from fitplug.families.base.workload_subsets import find_workload_subsets
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.blocks.shape.pairs import MOST_INDEPENDENT, PairStructure
from fitplug.neighbours import MOST_PAIRS
from fitplug.numeric import FloatArray, IntArray, frozen_property
from fitplug.workload import (
    ONE_RECORD,
    Factor,
    QueryGroup,
    ReplaceOne,
    Workload,
    make_bound_workload,
    read_target,
)

MOST_GROUPS, MOST_ANSWERS = 4000, 2**24
"""The most groups of an unfolded workload, and the most cells, so that no group must be cut."""


@dataclass(frozen=True, eq=False)
class Siblings:
    """The finest nodes of a hierarchy that queries use, and their parents.

    Attributes:
        name: The attribute.
        kinds: The kinds of factors whose rows are the finest nodes.
        nodes: The node of each leaf, shape (n,).
        starts: The first node of each parent, shape (S,).
        ends: The node after the last of each parent, shape (S,).
    """

    name: str
    kinds: frozenset[str]
    nodes: IntArray
    starts: IntArray
    ends: IntArray

    @frozen_property
    def parents(self) -> IntArray:
        """The parent of each node."""
        return np.repeat(np.arange(len(self.starts)), self.ends - self.starts)

    @frozen_property
    def leaf_parents(self) -> IntArray:
        """The parent of each leaf, shape (n,)."""
        return self.parents[self.nodes]

    def list_children(self) -> list[tuple[str, int, int]]:
        """List the children's attribute of each parent of several: name, size and parent."""
        sizes = (self.ends - self.starts).tolist()
        return [(self.name_children(s), k, s) for s, k in enumerate(sizes) if k > 1]

    def name_children(self, parent: int) -> str:
        """Name the children's attribute of a parent."""
        return f"{self.name}#{parent}"


class Part(NamedTuple):
    """A part of a group that is one group of the unfolded workload.

    Attributes:
        group: The unfolded group.
        place: The place of its answers in an array of the group's shape.
        parents: The parent of its nodes, for each axis of finest nodes.
    """

    group: int
    place: tuple[slice, ...]
    parents: Mapping[int, int]


def find_siblings(workload: Workload, name: str) -> Siblings | None:
    """Find the siblings of an attribute; None if it is not a hierarchy, or no nodes are alike."""
    codec = get_codec(workload.domain[name])
    if not (codec.levels and is_tree(workload, name)):
        return None
    asked = {f.kind for f in workload.groups.factors if f.attribute == name} - {"total"}
    levels = [
        n
        for i, n in enumerate(codec.levels)
        if n in asked or ("identity" in asked and i == len(codec.levels) - 1)
    ]
    spans = [codec.intervals(level) for level in levels[-2:]]
    n = codec.attribute.size
    if any(span[-1, 1] != n - 1 or (span[1:, 0] != span[:-1, 1] + 1).any() for span in spans):
        return None
    first = spans[-1][:, 0]
    tops = spans[0][:, 0] if len(spans) > 1 else first[:1]
    starts = np.searchsorted(first, tops)
    kinds = {levels[-1]} | ({"identity"} if levels[-1] == codec.levels[-1] else set())
    nodes = np.searchsorted(first, np.arange(n), side="right") - 1
    siblings = Siblings(name, frozenset(kinds), nodes, starts, np.append(starts[1:], len(first)))
    if len(starts) == len(first):
        return None
    for group in map(workload.groups.__getitem__, workload.groups.with_arrays.tolist()):
        for axis, factor in enumerate(group.factors):
            if factor.attribute == name and factor.kind in kinds:
                along = np.moveaxis(group.variances, axis, 0)
                if (along != along[starts[siblings.parents]]).any():
                    return None
    return siblings


@dataclass(frozen=True, eq=False)
class UnfoldedPairs(PairStructure):
    """An unfolded workload whose neighbours replace a record.

    A record's children's attribute is that of its parent. So the children's attributes of one
    hierarchy share one digit of the sets D, which two cells below different parents do not need.

    Attributes:
        children: For each unfolded hierarchy along which a record may move, the children's
            attribute of each dense cell's parent, shape (D,), or -1 if the parent has one child.
    """

    children: tuple[IntArray, ...] = ()

    @property
    def most_classes(self) -> int:
        return 2 * MOST_PAIRS

    @cached_property
    def is_independent(self) -> bool:
        return self.pairs.count > self.most_classes

    @property
    def fits(self) -> bool:
        return self._has_room and (
            not self.is_independent or self.pairs.entries <= MOST_INDEPENDENT
        )

    @cached_property
    def movable(self) -> tuple[tuple[int, ...], ...]:
        below = [tuple(sorted({*some.tolist()} - {-1})) for some in self.children]
        within = {a for some in below for a in some}
        return (*((a,) for a in self.free.tolist() if a not in within), *filter(None, below))

    def take_numbers(self, numbers: Sequence[Any], digit: int, nodes: Any) -> Any:
        first = self.movable[digit][0]
        some = next((some for some in self.children if (some == first).any()), None)
        if some is None:
            return numbers[first]
        # No block of children uses an only child, so its number does not matter.
        kind = object if isinstance(numbers[first], int) else np.float64
        given = np.array([*numbers, 1], dtype=kind)
        return given[some[self.pairs.cells[nodes]]]


@dataclass(frozen=True, eq=False)
class SiblingStructure(Structure):
    """A structure of siblings.

    Attributes:
        siblings: The hierarchies that are unfolded, in the domain's order.
        unfolded: The structure of the unfolded workload.
    """

    siblings: tuple[Siblings, ...]
    unfolded: MatrixStructure

    def __str__(self) -> str:
        names = list_names([one.name for one in self.siblings])
        count = len(self.unfolded.blocks)
        return f"siblings are alike in {names}: {count:,} blocks over {self.cells:,} parents' cells"

    @property
    def cells(self) -> int:
        return self.unfolded.cells

    @property
    def names_in_files(self) -> Mapping[str, tuple[str, ...]]:
        return {**super().names_in_files, "siblings": tuple(one.name for one in self.siblings)}

    def check_size(self) -> None:
        if not len(self.unfolded.noisy_blocks):
            raise self.make_public_error()
        self.unfolded.check_size()

    def build_block_matrix(self, block: int) -> FloatArray:
        return self.unfolded.build_block_matrix(block)

    def find_rows(self, block: int, group: int) -> slice:
        return self.unfolded.find_rows(block, group)

    @cached_property
    def by_name(self) -> Mapping[str, Siblings]:
        """The siblings by attribute."""
        return {one.name: one for one in self.siblings}

    def find_parent(self, attribute: int) -> tuple[str, int | None]:
        """Find the hierarchy and the parent whose children are an attribute of the unfolded blocks.

        Returns:
            The attribute of the workload, and the parent, or None if the attribute is symmetric
            itself.
        """
        if attribute < len(self.symmetric):
            return self.symmetric[attribute], None
        children = [(one.name, s) for one in self.siblings for _, _, s in one.list_children()]
        return children[attribute - len(self.symmetric)]

    def arrange_by_cell(self, values: FloatArray) -> FloatArray:
        shaped = self.unfolded.arrange_by_cell(values)
        for axis, name in enumerate(self.dense):
            if name in self.by_name:
                shaped = shaped.take(self.by_name[name].leaf_parents, axis)
        return shaped

    def take_least(self, values: FloatArray) -> FloatArray:
        for axis, name in enumerate(self.dense):
            if name in self.by_name:
                one = self.by_name[name]
                first = np.searchsorted(one.nodes, one.starts)
                values = np.minimum.reduceat(values, first, axis=axis)
        return values.ravel()

    @cached_property
    def parts(self) -> tuple[tuple[Part, ...], ...]:
        """The parts of each group, in the order of the unfolded groups."""
        parts, number = [], itertools.count()
        for group in self.workload.groups:
            of_group = list_parts(group, self.by_name)
            parts.append(tuple(Part(next(number), *part) for part in of_group))
        return tuple(parts)

    @frozen_property
    def unfolded_rows(self) -> IntArray:
        """The unfolded structure's row for each row, shape (rows,)."""
        starts, rows = self.unfolded.row_starts, []
        for parts, group in zip(self.parts, self.workload.groups, strict=True):
            axes = [a for a, f in enumerate(group.factors) if f.attribute not in self.symmetric]
            shape = [group.shape[a] for a in axes]
            row = np.zeros(shape, dtype=np.int64)
            for part in parts:
                place = tuple(part.place[a] for a in axes)
                rest = [1 if a in part.parents else group.shape[a] for a in axes]
                first = int(starts[part.group])
                row[place] = first + np.arange(math.prod(rest)).reshape(rest)
            rows.append(row.ravel())
        return np.concatenate(rows)


@dataclass(frozen=True, eq=False)
class SiblingPairStructure(SiblingStructure):
    """A structure of siblings whose neighbours replace a record."""

    unfolded: UnfoldedPairs

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.unfolded.pairs.count:,} kinds of pairs of cells"

    @property
    def holds_optimum(self) -> bool:
        return not self.unfolded.is_independent

    @property
    def differences(self) -> int:
        return self.unfolded.differences

    @property
    def profile_size(self) -> int:
        return self.cells


def list_parts(
    group: QueryGroup, by_name: Mapping[str, Siblings]
) -> Iterator[tuple[tuple[slice, ...], dict[int, int]]]:
    """List the places and the parents of a group's parts."""
    fine = {
        axis: by_name[f.attribute]
        for axis, f in enumerate(group.factors)
        if f.attribute in by_name and f.kind in by_name[f.attribute].kinds
    }
    for chosen in itertools.product(*(range(len(one.starts)) for one in fine.values())):
        parents = dict(zip(fine, chosen, strict=True))
        yield (
            tuple(
                slice(int(fine[a].starts[parents[a]]), int(fine[a].ends[parents[a]]))
                if a in fine
                else slice(0, n)
                for a, n in enumerate(group.shape)
            ),
            parents,
        )


def unfold_siblings(matrices: MatrixStructure) -> SiblingStructure | None:
    """Unfold the hierarchies of a workload.

    Args:
        matrices: The workload's structure over all cells of its asymmetric attributes.

    Returns:
        A structure with the same optimum; None if no nodes are alike, or there are too many groups
        or answers.
    """
    workload, symmetric, others = matrices.workload, matrices.symmetric, matrices.asymmetric
    if math.prod(workload.shape) > MOST_ANSWERS:
        return None
    siblings = tuple(filter(None, (find_siblings(workload, name) for name in others)))
    by_name = {one.name: one for one in siblings}
    children = [child for one in siblings for child in one.list_children()]
    if not siblings or {name for name, *_ in children} & set(workload.domain.names):
        return None
    domain = Domain(
        {
            **{name: workload.domain[name] for name in symmetric},
            **{name: Integers(0, k - 1) for name, k, _ in children},
            **{
                name: Integers(0, len(by_name[name].starts) - 1)
                if name in by_name
                else workload.domain[name]
                for name in others
            },
        }
    )
    groups: list[QueryGroup] = []
    for group in workload.groups:
        for part in list_parts(group, by_name):
            groups.append(_unfold_part(f"{len(groups)}", group, by_name, *part))
            if len(groups) > MOST_GROUPS:
                return None
    unfolded = make_bound_workload(domain, groups)
    names = (*symmetric, *(name for name, *_ in children))
    subsets = find_workload_subsets(unfolded, names)
    given = workload, matrices.unit, symmetric, matrices.subsets
    if not isinstance(matrices, PairStructure):
        of_parents = MatrixStructure(unfolded, ONE_RECORD, names, subsets)
        return SiblingStructure(*given, siblings, of_parents)
    # A record that stays at its leaf keeps all children's attributes, too.
    public = matrices.public_attributes or ()
    moved = [one for one in siblings if one.name not in public]
    stay = [name for one in siblings if one.name in public for name, *_ in one.list_children()]
    of_pairs = UnfoldedPairs(unfolded, ReplaceOne(within=(*public, *stay)), names, subsets)
    return SiblingPairStructure(*given, siblings, _number_children(of_pairs, moved))


def _number_children(unfolded: UnfoldedPairs, siblings: Sequence[Siblings]) -> UnfoldedPairs:
    """Add the children's attribute of each dense cell's parent."""
    shape, places = get_shape(unfolded.workload.domain, unfolded.dense), unfolded.block_attributes
    children = []
    for one in siblings:
        of_parent = np.full(len(one.starts), -1, dtype=np.int64)
        for name, _, s in one.list_children():
            of_parent[s] = places.index(name)
        axis = unfolded.dense.index(one.name)
        along = of_parent.reshape(-1, *(1,) * (len(shape) - axis - 1))
        children.append(np.broadcast_to(along, shape).ravel())
    return replace(unfolded, children=tuple(children))


def _unfold_part(
    name: str,
    group: QueryGroup,
    by_name: Mapping[str, Siblings],
    place: tuple[slice, ...],
    parents: Mapping[int, int],
) -> QueryGroup:
    """Unfold a part of a group."""
    factors: list[Factor] = []
    shape: list[int] = []
    given = group.variances[
        tuple(slice(p.start, p.start + 1) if a in parents else p for a, p in enumerate(place))
    ]
    for axis, factor in enumerate(group.factors):
        one = by_name.get(factor.attribute)
        shape.append(given.shape[axis])
        if one is None:
            factors.append(factor)
            continue
        size = len(one.starts)
        if factor.kind == "total":
            factors.append(replace(factor, size=size))
            continue
        if axis not in parents:
            first = np.searchsorted(one.nodes, one.starts)
            rows = factor.matrix()[:, first]
            factors.append(Factor(one.name, "matrix", size, array=rows))
            continue
        parent, k = parents[axis], place[axis].stop - place[axis].start
        rows = (np.arange(size) == parent)[None, :].astype(np.float64)
        factors.append(Factor(one.name, "matrix", size, array=rows))
        if k > 1:
            factors.append(Factor(one.name_children(parent), "identity", k))
            shape.append(1)
    value = group.variances.flat[0] if group.target.value.size == 1 else given.reshape(shape)
    variances = np.broadcast_to(value, [factor.rows for factor in factors])
    return QueryGroup(name, tuple(factors), read_target(variance=value), variances)
