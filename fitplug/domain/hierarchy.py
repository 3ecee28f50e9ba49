"""Hierarchies: attributes whose cells are the leaves of a tree with named levels.

The cells are the leaves: records have the codes of leaves, and a hierarchy is used like categories.
A query of a level has a row for each node of the level, and each row counts an interval of leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np

from fitplug.domain.attribute import Attribute, Category, get_codec, make_level_error, suggest_name
from fitplug.domain.categories import Categories, CategoriesCodec
from fitplug.domain.label_array import (
    LabelArray,
    are_equal,
    find_first_equal,
)
from fitplug.domain.leaf_columns import (
    name_columns,
    read_columns,
    read_leaves,
    read_level_names,
)
from fitplug.domain.spec_form import SpecForm
from fitplug.domain.tree_nodes import (
    LevelNodes,
    find_runs,
    group_runs,
    name_nodes,
    pack_tree,
    unpack_tree,
)
from fitplug.errors import DomainError
from fitplug.numeric import AnyArray, IntArray, freeze

Path: TypeAlias = tuple[Category, ...]
"""The labels of a leaf and of the nodes that contain it, the coarsest first."""

MOST_LISTED = 2**18
"""The most leaves that a spec lists one by one. Larger trees are written level by level, in a tenth
of the room and time. The number may never grow: plan files of trees above the old limit would be
refused.
"""

_MOST_SUGGESTED = 20_000
"""The most nodes of a level in which to search for a suggestion."""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Hierarchy(Categories):
    """A tree of values, such as regions and their cities. Each leaf is a cell.

        fp.Hierarchy({"state": 2, "county": 5}, ["01001", "01003", "02001"])
        fp.Hierarchy(["region", "city"], [["north", "Ulm"], ["south", "Rom"]])

    A query may ask for any level by name. A node is identified by its path, the labels from the
    coarsest level down to the node, so labels may repeat under different parents. Nodes may have
    any number of children. A leaf that skips levels repeats its label on the skipped levels. The
    cells are in the order of `leaves`, except that all leaves of a node directly follow the node's
    first leaf.

    Args:
        levels: Names of the levels, the coarsest first. If every code starts with its parent's
            code, also a mapping from the name of each level to the number of characters in the
            level's codes.
        leaves: For each leaf the list of its labels, one per level; or an array of labels, shape
            (leaves, levels). The last label is the leaf's code, as it appears in the data; codes
            must be unique. The labels of a level are all str or all int. If `levels` is a mapping,
            give only the codes of the leaves, as a list or an array of shape (leaves,).
        other: Label of an extra last leaf for null and all other values. Each level gets an extra
            node with this label, which contains only this leaf.

    Raises:
        DomainError: If the paths do not form a tree, or `other` is also the label of a node.

    Attributes:
        levels: Names of the levels, the coarsest first.
    """

    levels: tuple[str, ...]
    _coarser: tuple[LevelNodes, ...]  # of each level but the finest, whose nodes are the leaves

    def __init__(
        self,
        levels: Sequence[str] | Mapping[str, int],
        leaves: Sequence[Any] | AnyArray,
        other: str | None = None,
    ) -> None:
        names = read_level_names(levels)
        columns = read_leaves(names, levels, leaves)
        _check_codes(columns[-1])
        self._build(names, find_runs(columns), other)

    @classmethod
    def from_columns(cls, columns: Any, other: str | None = None) -> Hierarchy:
        """Make a tree from a table that has a row for each leaf and a column for each level.

            fp.Hierarchy.from_columns({"region": ["north", "south"], "city": ["Ulm", "Rom"]})

        Args:
            columns: A table with a column for each level, from the coarsest level to the codes of
                the leaves: a pandas or Polars data frame, an Arrow table, or a mapping from the
                names of the levels to lists, arrays or columns (leaves,).
            other: Label of an extra last leaf; see `Hierarchy`.

        Raises:
            DomainError: If the columns do not form a tree; see `Hierarchy`.
        """
        given = name_columns(columns)
        names = read_level_names(list(given))
        labels = read_columns(given)
        _check_codes(labels[-1])
        made = cls.__new__(cls)
        made._build(names, find_runs(labels), other)
        return made

    def _build(self, names: tuple[str, ...], runs: Sequence[LevelNodes], other: str | None) -> None:
        """Set the fields to the tree with these runs of leaves, all with different paths."""
        nodes = freeze(group_runs(runs))
        self._set_values(nodes[-1].labels, other)
        object.__setattr__(self, "levels", names)
        object.__setattr__(self, "_coarser", nodes[:-1])
        for name in names[:-1]:
            if (twice := _find_repeated(self._name(name))) is not None:
                raise DomainError(
                    f"two nodes of level {name!r} would have the same name {twice!r}. Use labels "
                    "without '/'."
                )
        self._check_other()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        freeze(self._coarser)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return (
            self.levels == other.levels
            and self.other == other.other
            and are_equal(self._value_array, other._value_array)
            and all(
                np.array_equal(mine.first, theirs.first) and are_equal(mine.labels, theirs.labels)
                for mine, theirs in zip(self._coarser, other._coarser, strict=True)
            )
        )

    def __hash__(self) -> int:
        return hash((self.levels, self.other, self._checksum))

    def __repr__(self) -> str:
        other = "" if self.other is None else f", other={self.other!r}"
        return f"Hierarchy({' > '.join(self.levels)}, {self._value_count} leaves{other})"

    @cached_property
    def leaves(self) -> tuple[Path, ...]:
        """The path of each leaf except `other`, in the order of the cells, shape (leaves,)."""
        columns = [self._spread(level).tolist() for level in self.levels]
        return tuple(zip(*columns, strict=True))

    def _spread(self, level: str) -> LabelArray:
        """Return the label of each leaf except `other` on a level, (leaves,)."""
        nodes = self._find_nodes(level)
        counts = np.diff(np.append(nodes.first, self._value_count))
        return nodes.labels.take(np.repeat(np.arange(len(counts)), counts))

    def _find_nodes(self, level: str) -> LevelNodes:
        """Return the nodes of a level without `other`, or raise DomainError if there is none."""
        if level not in self.levels:
            raise make_level_error(level, self.levels)
        if level == self.levels[-1]:
            return LevelNodes(np.arange(self._value_count), self._value_array)
        return self._coarser[self.levels.index(level)]

    def _name(self, level: str) -> LabelArray:
        """Return the value that a column of a table shows for each node except `other`."""
        if level == self.levels[-1]:  # whose labels are all different
            return self._value_array
        depth = self.levels.index(level) + 1
        return name_nodes([self._find_nodes(level) for level in self.levels[:depth]])

    def labels_at(self, level: str) -> tuple[str, ...]:
        """List the label of each node of a level.

        Args:
            level: One of `levels`.

        Returns:
            The labels of the nodes, shape (nodes,); `other` is the last. A node whose label repeats
            on the level is listed by its path, such as "01/001".

        Raises:
            DomainError: If there is no such level.

        Example:
            >>> fp.Hierarchy({"state": 2, "county": 5}, ["01001", "02001"]).labels_at("state")
            ('01', '02')
        """
        return get_codec(self).labels_at(level)

    @classmethod
    def from_attribute(cls, attribute: Attribute, level: str) -> Hierarchy:
        """Turn an attribute into a tree, so that `with_level` can add levels to it.

        Args:
            attribute: A hierarchy, which is returned unchanged, or categories.
            level: For categories, the name of the tree's only level.

        Raises:
            DomainError: If the attribute is neither a hierarchy nor categories.

        Example:
            >>> fp.Hierarchy.from_attribute(fp.Categories(["01", "02"]), "county").levels
            ('county',)
        """
        if isinstance(attribute, Hierarchy):
            return attribute
        # CodePrefix is refused: the codes of records are longer than its values.
        if not isinstance(attribute, Categories) or type(attribute) is not Categories:
            raise DomainError("only categories and hierarchies can have levels")
        return cls.from_columns({level: attribute._value_array}, attribute.other)

    def with_level(self, level: str, region_of: Mapping[Any, Category]) -> Hierarchy:
        """Make a tree with an additional level of regions.

        Each node of a finer level must lie within one region, and each region within one node of
        every coarser level. Cells are reordered so that the leaves of a region are adjacent.

        Args:
            level: The name of the new level.
            region_of: A mapping from each leaf's code to the label of the leaf's region.

        Raises:
            DomainError: If a leaf has no region, or a region and a node of another level overlap
                only in part.

        Example:
            >>> counties = fp.Hierarchy(["county"], [["01"], ["02"], ["03"]])
            >>> tree = counties.with_level("region", {"01": "north", "02": "south", "03": "north"})
            >>> tree.levels, tree.labels
            (('region', 'county'), ('01', '03', '02'))
        """
        missing = [leaf for leaf in self.values if leaf not in region_of]
        if missing:
            raise DomainError(
                f"leaf {missing[0]!r} has no label on the level {level}. Give each leaf a label."
            )
        regions = read_columns({level: [region_of[leaf] for leaf in self.values]})[0]
        # Leaves in the same node, or the same region, have equal numbers.
        number = find_first_equal(regions)
        columns = [self._spread(name) for name in self.levels]
        for place in range(len(self.levels)):
            finer = self._number_nodes(place)
            nodes_are_complete = _count_pairs(finer, number) == len(np.unique(finer))
            coarser = self._number_nodes(place - 1)
            if nodes_are_complete and _count_pairs(coarser, number) == len(np.unique(number)):
                levels = read_level_names([*self.levels[:place], level, *self.levels[place:]])
                labels = [*columns[:place], regions, *columns[place:]]
                return Hierarchy.from_columns(dict(zip(levels, labels, strict=True)), self.other)
        raise DomainError(
            f"the level {level!r} does not nest with the levels {', '.join(self.levels)}"
        )

    def _number_nodes(self, place: int) -> IntArray:
        """Return the number of each leaf's node on a level, (leaves,); level -1 is one node."""
        if place < 0:
            return np.zeros(self._value_count, dtype=np.int64)
        first = self._find_nodes(self.levels[place]).first
        numbers = np.searchsorted(first, np.arange(self._value_count), side="right")
        return np.asarray(numbers, dtype=np.int64)


class HierarchyCodec(CategoriesCodec, kind=Hierarchy):
    """The codec of `Hierarchy`."""

    attribute: Hierarchy
    spec_form: ClassVar[SpecForm] = SpecForm(
        "{ levels = [...], leaves = [...] }",
        names=("levels", "leaves"),
        required=("levels",),
        optional=("nodes",),
    )

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels, the coarsest first."""
        return self.attribute.levels

    def names_value(self, text: str) -> bool:
        """Tell whether a text names a node of any level."""
        return any(text in map(str, self.attribute._name(level).tolist()) for level in self.levels)

    def intervals(self, level: str) -> IntArray:
        """Compute the first and last cell of each node of a level.

        Args:
            level: One of `levels`.

        Returns:
            A row for each node, in the order of the cells, shape (nodes, 2); `other` is the last.

        Raises:
            DomainError: If there is no such level.
        """
        first = self.attribute._find_nodes(level).first
        if self.other is not None:
            first = np.append(first, self.value_count)
        return np.stack([first, np.append(first[1:], self.size) - 1], axis=1).astype(np.int64)

    def named_at(self, level: str) -> tuple[Category, ...]:
        """List the values that a column of a table shows for each node of a level.

        Args:
            level: One of `levels`.

        Returns:
            The label of each node or, if another node of the level has the same label, its path,
            such as "01/001", shape (nodes,). Integers stay integers if no node needs its path and
            there is no `other`, which is the last.

        Raises:
            DomainError: If there is no such level.
        """
        return tuple(self.named_between(level, 0, len(self.attribute._find_nodes(level).first) + 1))

    def named_between(self, level: str, start: int, stop: int) -> list[Any]:
        """List the values that a column shows for some nodes of a level, without naming all."""
        count = len(self.attribute._find_nodes(level).first)
        named: list[Any] = (
            self.attribute._name(level).take(np.arange(start, min(stop, count))).tolist()
        )
        if self.other is None:
            return named
        return [*map(str, named), *([self.other] if start <= count < stop else [])]

    def suggest(self, value: Any, *, end: bool = False) -> str:
        """Name the node of any level whose label is nearest to an unknown one."""
        small = [
            level
            for level in self.levels
            if len(self.attribute._find_nodes(level).first) <= _MOST_SUGGESTED
        ]
        names = dict.fromkeys(label for level in small for label in self.labels_at(level))
        if not names:
            names = dict.fromkeys(
                map(str, self.attribute._find_nodes(self.levels[0]).labels.tolist())
            )
        return suggest_name(value, list(names))

    def remedy(self, names: str) -> str:
        """Suggest a tree without its finest level."""
        if len(self.levels) > 1:
            return f"a tree {names} that ends at {self.levels[-2]}"
        return f"fewer leaves of {names}"

    def spec(self) -> Any:
        """Describe the attribute as a spec file writes it.

        The leaves are listed up to `MOST_LISTED`. For more, the nodes of each level are listed.
        """
        spec: dict[str, Any] = {"levels": list(self.levels)}
        if self.value_count > MOST_LISTED:
            nodes = [self.attribute._find_nodes(level) for level in self.levels]
            spec["nodes"] = pack_tree(nodes, self.value_count)
        else:
            columns = [self.attribute._spread(level).tolist() for level in self.levels]
            spec["leaves"] = list(map(list, zip(*columns, strict=True)))
        return spec | self._spec_of_other()

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Hierarchy:
        """Make the attribute of a table such as `{ levels = ["a"], leaves = [["1"], ["2"]] }`."""
        if "nodes" not in spec:
            if "leaves" not in spec:
                raise DomainError(f"'leaves' is missing. Write {cls.spec_form.example}")
            return Hierarchy(spec["levels"], spec["leaves"], spec.get("other"))
        if "leaves" in spec:
            raise DomainError("a hierarchy must have either 'leaves' or 'nodes', not both")
        names = read_level_names(spec["levels"])
        made = Hierarchy.__new__(Hierarchy)
        runs = unpack_tree(spec["nodes"], len(names))
        _check_codes(runs[-1].labels)
        made._build(names, runs, spec.get("other"))
        return made


def _check_codes(codes: LabelArray) -> None:
    """Raise DomainError for a code that two leaves have."""
    if (twice := _find_repeated(codes)) is not None:
        raise DomainError(f"leaf {twice!r} is listed twice. List each leaf once.")


def _count_pairs(numbers: IntArray, others: IntArray) -> int:
    """Count the different pairs of two numbers (n,) and (n,), both below 2^31."""
    return len(np.unique(numbers * (others.max() + 1) + others))


def _find_repeated(labels: LabelArray) -> Any:
    """Find the first label that occurred before; None if all are different."""
    twice = np.flatnonzero(find_first_equal(labels) != np.arange(len(labels)))
    return labels.take(twice[:1]).tolist()[0] if len(twice) else None
