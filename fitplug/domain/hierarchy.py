"""Hierarchies: attributes whose cells are the leaves of a tree with named levels.

The cells are the leaves: records hold the codes of leaves, and a hierarchy is used as categories
are. A query of a level has a row for each node of the level, and the row counts an interval of
leaves.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from fitplug.domain.attribute import Attribute, Category, make_level_error, suggest_name
from fitplug.domain.categories import Categories
from fitplug.domain.spec_form import SpecForm
from fitplug.errors import DomainError
from fitplug.numeric import IntArray

Path: TypeAlias = tuple[Category, ...]
"""The labels of a leaf and of the nodes that it lies in, the coarsest first."""

_KINDS_OF_QUERIES = ("identity", "prefix", "all_ranges", "total", "ranges", "matrix")
"""Names that a query gives to something else than a level."""


@dataclass(frozen=True, init=False, repr=False)
class Hierarchy(Categories):
    """The leaves of a tree, with a cell for each of them. A query may ask for any level by name.

        fp.Hierarchy({"state": 2, "county": 5}, ["01001", "01003", "02001"])
        fp.Hierarchy(["region", "city"], [["north", "Ulm"], ["south", "Rom"]])

    A node is the path of labels that leads to it, so labels may repeat under different parents.
    Nodes may have any number of children. A leaf that skips levels repeats its label on them. The
    cells are in the order of `leaves`, except that the leaves of a node stand together: each node
    stands where `leaves` names it first.

    Args:
        levels: Names of the levels, the coarsest first. Or a mapping from the name of each level to
            the length of its prefix, if every code starts with the codes of what it lies in.
        leaves: For each leaf the list of its labels, one per level. The last label is the code of
            the leaf, which records hold; two leaves may not have the same code. The labels of a
            level are all str or all int. If `levels` has lengths of prefixes, the codes alone.

    Raises:
        DomainError: If the paths make no such tree.
    """

    levels: tuple[str, ...]
    leaves: tuple[Path, ...]
    spec_form: ClassVar[SpecForm] = SpecForm(
        "{ levels = [...], leaves = [...] }",
        names=("levels", "leaves"),
        required=("levels", "leaves"),
    )

    def __init__(self, levels: Sequence[str] | Mapping[str, int], leaves: Sequence[Any]) -> None:
        names = _read_level_names(levels)
        if isinstance(leaves, str) or not isinstance(leaves, Sequence):
            raise DomainError(f"leaves must be a list, not {type(leaves).__name__}")
        if not leaves:
            raise DomainError("the hierarchy has no leaves; give at least one")
        if isinstance(levels, Mapping):
            leaves = _split_codes(levels, leaves)
        paths = _group_leaves(_read_paths(names, leaves))
        super().__init__([path[-1] for path in paths])
        object.__setattr__(self, "levels", names)
        object.__setattr__(self, "leaves", paths)
        for level in names:
            if (twice := _find_repeated(self.labels_at(level))) is not None:
                raise DomainError(
                    f"two nodes of level {level!r} would both be shown as {twice!r}; "
                    "use labels without '/'"
                )

    def __repr__(self) -> str:
        return f"Hierarchy({' > '.join(self.levels)}, {self.size} leaves)"

    def intervals(self, level: str) -> IntArray:
        """Compute the first and last cell of each node of a level.

        Args:
            level: One of `levels`.

        Returns:
            A row for each node, in the order of the cells, shape (nodes, 2).

        Raises:
            DomainError: If there is no such level.
        """
        depth = self._depth(level)
        paths = [leaf[:depth] for leaf in self.leaves]
        first = [0, *(i for i, (a, b) in enumerate(itertools.pairwise(paths), 1) if a != b)]
        return np.stack([first, np.append(first[1:], self.size) - 1], axis=1).astype(np.int64)

    def named_at(self, level: str) -> tuple[Category, ...]:
        """List what a column of a table shows for each node of a level.

        Args:
            level: One of `levels`.

        Returns:
            The label of each node or, if another node of the level has the same label, its path,
            such as "01/001", shape (nodes,). Integers stay integers if no node needs its path.

        Raises:
            DomainError: If there is no such level.
        """
        depth = self._depth(level)
        nodes = [self.leaves[first][:depth] for first, _ in self.intervals(level)]
        named = Counter(node[-1] for node in nodes)
        if len(named) == len(nodes):
            return tuple(node[-1] for node in nodes)
        return tuple(
            str(node[-1]) if named[node[-1]] == 1 else "/".join(map(str, node)) for node in nodes
        )

    def suggest(self, value: Any, *, end: bool = False) -> str:
        """Name the node of any level whose label is nearest to an unknown one."""
        names = dict.fromkeys(label for level in self.levels for label in self.labels_at(level))
        return suggest_name(value, list(names))

    def remedy(self, names: str) -> str:
        """Say that a tree without its finest level has fewer leaves."""
        if len(self.levels) > 1:
            return f"a tree {names} that ends at {self.levels[-2]}"
        return f"fewer leaves of {names}"

    @classmethod
    def from_attribute(cls, attribute: Attribute, level: str) -> Hierarchy:
        """Make a tree of an attribute, to which levels may then be added by `with_level`.

        Args:
            attribute: A hierarchy, which is kept as it is, or categories.
            level: The name of the level of the categories.

        Raises:
            DomainError: If the attribute is of another kind, or has a cell for other values.
        """
        if isinstance(attribute, Hierarchy):
            return attribute
        # A prefix has no levels: the codes of records are longer than its values.
        if not isinstance(attribute, Categories) or type(attribute) is not Categories:
            raise DomainError("only categories and trees can have levels")
        if attribute.other is not None:
            raise DomainError(
                f"the cell {attribute.other!r} of other values would lie in no node of a level; "
                "leave out other, or the levels"
            )
        return cls([level], [[value] for value in attribute.values])

    def with_level(self, level: str, region_of: Mapping[Any, Category]) -> Hierarchy:
        """Make the tree that has one level more, whose nodes are regions.

        The level goes where each region consists of complete nodes of the finer levels and lies
        within one node of each coarser level. Cells move so that the leaves of a region stand
        together.

        Args:
            level: The name of the new level.
            region_of: The label of the region of every leaf, by the code of the leaf.

        Raises:
            DomainError: If a leaf has no region, or the regions do not nest with the levels.
        """
        missing = [leaf for leaf in self.values if leaf not in region_of]
        if missing:
            raise DomainError(
                f"{len(missing)} of {self.size} leaves have no {level}, such as {missing[0]!r}"
            )
        labels = [region_of[leaf] for leaf in self.values]
        for place in range(len(self.levels)):
            finer = {
                (path[: place + 1], label) for path, label in zip(self.leaves, labels, strict=True)
            }
            coarser = {
                (path[:place], label) for path, label in zip(self.leaves, labels, strict=True)
            }
            nodes_are_complete = len(finer) == len({path for path, _ in finer})
            if nodes_are_complete and len(coarser) == len({label for _, label in coarser}):
                levels = [*self.levels[:place], level, *self.levels[place:]]
                paths = zip(self.leaves, labels, strict=True)
                leaves = [(*path[:place], label, *path[place:]) for path, label in paths]
                return Hierarchy(levels, leaves)
        raise DomainError(
            f"the nodes of {level!r} do not nest with the levels {', '.join(self.levels)}: each "
            "must consist of complete nodes, or lie within one node, of every level"
        )

    def _depth(self, level: str) -> int:
        if level not in self.levels:
            raise make_level_error(level, self.levels)
        return self.levels.index(level) + 1

    def spec(self) -> Any:
        """Describe the attribute as a spec file writes it."""
        return {"levels": list(self.levels), "leaves": [list(leaf) for leaf in self.leaves]}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Hierarchy:
        """Make the attribute of a table such as `{ levels = ["a"], leaves = [["1"], ["2"]] }`."""
        return cls(spec["levels"], spec["leaves"])


def _read_level_names(levels: Any) -> tuple[str, ...]:
    if isinstance(levels, str) or not isinstance(levels, (Sequence, Mapping)):
        raise DomainError(
            "levels must be a list of names, the coarsest first, or a table of names and "
            f"lengths of prefixes, not {levels!r}"
        )
    if not levels:
        raise DomainError("a hierarchy needs levels; name at least one")
    names = tuple(levels)
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise DomainError(f"level {name!r} must be a non-empty string")
        if name in _KINDS_OF_QUERIES:
            raise DomainError(f"level {name!r} has the name of a kind of query; rename the level")
    if (twice := _find_repeated(names)) is not None:
        raise DomainError(f"level {twice!r} is named twice; give each level its own name")
    return names


def _split_codes(levels: Mapping[str, Any], codes: Sequence[Any]) -> list[Path]:
    """Split codes into their prefixes of the levels' lengths, which are their paths."""
    lengths = list(levels.values())
    for length, before in zip(lengths, [0, *lengths], strict=False):
        if type(length) is not int or length <= before:
            raise DomainError(
                f"levels have prefixes of lengths {lengths}; give integers that increase from 1"
            )
    for code in codes:
        if not isinstance(code, str):
            raise DomainError(f"leaf {code!r} must be a string, as levels are lengths of prefixes")
        if len(code) != lengths[-1]:
            raise DomainError(
                f"leaf {code!r} has {len(code)} characters, but the codes of level "
                f"{list(levels)[-1]!r} have {lengths[-1]}"
            )
    return [tuple(code[:length] for length in lengths) for code in codes]


def _read_paths(levels: tuple[str, ...], leaves: Sequence[Any]) -> list[Path]:
    paths: list[Path] = []
    for leaf in leaves:
        if not isinstance(leaf, (list, tuple)):
            raise DomainError(f"leaf {leaf!r} must be a list of labels, one per level: {levels}")
        if len(leaf) != len(levels):
            raise DomainError(
                f"leaf {list(leaf)} has {len(leaf)} label(s) for {len(levels)} level(s); "
                "give one per level, and repeat a label to skip one"
            )
        for label in leaf:
            if type(label) not in (str, int):
                raise DomainError(
                    f"label {label!r} must be a string or an integer, not {type(label).__name__}"
                )
        paths.append(tuple(leaf))
    for level, labels in zip(levels, zip(*paths, strict=True), strict=True):
        if len(set(map(type, labels))) > 1:
            raise DomainError(f"level {level!r} has strings and integers; label it with one kind")
    if (twice := _find_repeated(path[-1] for path in paths)) is not None:
        raise DomainError(f"leaf {twice!r} is listed twice; a record's code must name one leaf")
    return paths


def _group_leaves(paths: list[Path]) -> tuple[Path, ...]:
    """Sort paths so that the leaves of every node stand together, each node where it is first."""
    rank: dict[Path, int] = {}
    ranks = []
    for path in paths:
        nodes = itertools.accumulate((label,) for label in path)
        ranks.append([rank.setdefault(node, len(rank)) for node in nodes])
    return tuple(path for _, path in sorted(zip(ranks, paths, strict=True), key=lambda p: p[0]))


def _find_repeated(values: Iterable[Any]) -> Any:
    """Find the first value that was there before; None if all are different."""
    seen = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
