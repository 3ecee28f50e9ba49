"""Hierarchies: attributes whose cells are the leaves of a tree with named levels.

Its cells are the leaves, so that records hold the leaf's code and all else treats a hierarchy as
categories; a level is one row per node, an interval of leaves.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fitplug.domain.attribute import Category
from fitplug.domain.categories import Categories
from fitplug.errors import DomainError, suggest_nearest
from fitplug.numeric import IntArray

Path: TypeAlias = tuple[Category, ...]

RESERVED = ("identity", "prefix", "all_ranges", "total", "ranges", "matrix")
"""What a query calls something else than a level."""


@dataclass(frozen=True, init=False, repr=False)
class Hierarchy(Categories):
    """Leaves of a tree, one cell each. A query may ask for any level by its name.

    levels: names, the coarsest first, and leaves: a path of labels each, one per level; the last
    label is the leaf's code, which the column of the records holds. Or, for strings that start
    with the codes of what they lie in, levels: {name: length of its prefix}, and leaves: codes.

    The labels of a level are all str or all int. A node is its path: labels may repeat under
    different parents, leaf codes may not. Nodes may have any number of children; a leaf that
    skips levels repeats its label on them. Cells are in the order of `leaves`, but a node's
    leaves follow each other: each node stands where it is first named. Raises DomainError.
    """

    levels: tuple[str, ...]
    leaves: tuple[Path, ...]

    def __init__(self, levels: Sequence[str] | Mapping[str, int], leaves: Sequence[Any]) -> None:
        names = _level_names(levels)
        if isinstance(leaves, str) or not isinstance(leaves, Sequence):
            raise DomainError(f"leaves must be a list, not {type(leaves).__name__}")
        if not leaves:
            raise DomainError("the hierarchy has no leaves; give at least one")
        if isinstance(levels, Mapping):
            leaves = _split(levels, leaves)
        paths = _grouped(_checked(names, leaves))
        super().__init__([path[-1] for path in paths])
        object.__setattr__(self, "levels", names)
        object.__setattr__(self, "leaves", paths)
        for level in names:
            if (twice := _repeated(self.labels_at(level))) is not None:
                raise DomainError(
                    f"two nodes of level {level!r} would both be shown as {twice!r}; "
                    "use labels without '/'"
                )

    def __repr__(self) -> str:
        return f"Hierarchy({' > '.join(self.levels)}, {self.size} leaves)"

    def intervals(self, level: str) -> IntArray:
        """First and last cell of each node of a level, shape (nodes, 2)."""
        depth = self._depth(level)
        paths = [leaf[:depth] for leaf in self.leaves]
        first = [0, *(i for i, (a, b) in enumerate(itertools.pairwise(paths), 1) if a != b)]
        return np.stack([first, np.append(first[1:], self.size) - 1], axis=1).astype(np.int64)

    def labels_at(self, level: str) -> tuple[str, ...]:
        """What each node of a level is called: its label, or if another has that too, its path."""
        return tuple(map(str, self.named_at(level)))

    def named_at(self, level: str) -> tuple[Category, ...]:
        """`labels_at`, with integers as integers if no node of the level needs its path."""
        depth = self._depth(level)
        nodes = [self.leaves[first][:depth] for first, _ in self.intervals(level)]
        named = Counter(node[-1] for node in nodes)
        if len(named) == len(nodes):
            return tuple(node[-1] for node in nodes)
        return tuple(
            str(node[-1]) if named[node[-1]] == 1 else "/".join(map(str, node)) for node in nodes
        )

    def with_level(self, level: str, region_of: Mapping[Any, Category]) -> Hierarchy:
        """The tree with one level more, whose nodes are regions. It goes where each region is made
        up of whole nodes of the finer levels and lies within one node of each coarser level; there
        must be such a place. Cells move so that a region's leaves follow each other.

        region_of: {leaf's code: label of its region}, with every leaf. Raises DomainError.
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
            whole = len(finer) == len({path for path, _ in finer})
            if whole and len(coarser) == len({label for _, label in coarser}):
                levels = [*self.levels[:place], level, *self.levels[place:]]
                paths = zip(self.leaves, labels, strict=True)
                leaves = [(*path[:place], label, *path[place:]) for path, label in paths]
                return Hierarchy(levels, leaves)
        raise DomainError(
            f"the nodes of {level!r} do not nest with the levels {', '.join(self.levels)}: each "
            "must be made up of whole nodes, or lie within one node, of every level"
        )

    def _depth(self, level: str) -> int:
        if level not in self.levels:
            raise DomainError(f"there is no level {level!r}; {suggest_nearest(level, self.levels)}")
        return self.levels.index(level) + 1

    def spec(self) -> Any:
        """As a spec file writes it."""
        return {"levels": list(self.levels), "leaves": [list(leaf) for leaf in self.leaves]}


def _level_names(levels: Any) -> tuple[str, ...]:
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
        if name in RESERVED:
            raise DomainError(f"level {name!r} has the name of a kind of query; rename the level")
    if (twice := _repeated(names)) is not None:
        raise DomainError(f"level {twice!r} is named twice; give each level its own name")
    return names


def _split(levels: Mapping[str, Any], codes: Sequence[Any]) -> list[Path]:
    """The paths of codes by the lengths of their prefixes."""
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


def _checked(levels: tuple[str, ...], leaves: Sequence[Any]) -> list[Path]:
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
    if (twice := _repeated(path[-1] for path in paths)) is not None:
        raise DomainError(f"leaf {twice!r} is listed twice; a record's code must name one leaf")
    return paths


def _grouped(paths: list[Path]) -> tuple[Path, ...]:
    """The paths with the leaves of every node side by side."""
    first: dict[Path, int] = {}
    places = []
    for path in paths:
        nodes = itertools.accumulate((label,) for label in path)
        places.append([first.setdefault(node, len(first)) for node in nodes])
    return tuple(path for _, path in sorted(zip(places, paths, strict=True), key=lambda p: p[0]))


def _repeated(values: Iterable[Any]) -> Any:
    """The first value that is there before, or None."""
    seen = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
