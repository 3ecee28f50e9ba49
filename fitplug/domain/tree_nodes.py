"""Tree nodes: which leaves lie in each node of a tree, level by level, as arrays.

A level is a list of nodes with the first leaf of each. The leaves of a node stand together, so that
a node ends where the next one begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.domain.label_array import LabelArray, find_changes, find_first_equal
from fitplug.domain.texts import Texts, join_texts
from fitplug.numeric import BoolArray, IndexArray


@dataclass(frozen=True, eq=False)
class LevelNodes:
    """The nodes of one level.

    Attributes:
        first: The first leaf of each node, ascending from 0, shape (nodes,).
        labels: The label of each node, (nodes,).
    """

    first: IndexArray
    labels: LabelArray


def find_runs(columns: Sequence[LabelArray]) -> list[LevelNodes]:
    """Find runs of neighbouring leaves with the same path.

    Args:
        columns: For each level, the coarsest first, the label of every leaf, (leaves,).

    Returns:
        The runs of each level. If the leaves of every node stand together, these are its nodes.
    """
    begins: BoolArray = np.zeros(len(columns[0]), dtype=bool)
    runs = []
    for labels in columns:
        begins |= find_changes(labels)
        first = np.flatnonzero(begins)
        runs.append(LevelNodes(first, labels.take(first)))
    return runs


def group_runs(runs: Sequence[LevelNodes]) -> tuple[LevelNodes, ...]:
    """Put the leaves of every node together, each node where it is first.

    Args:
        runs: The runs of each level. Those of a level begin where runs of the finer levels begin,
            too. Those of the finest level are the leaves, which have different labels.

    Returns:
        The nodes of each level.
    """
    nodes = [np.zeros(1, dtype=np.intp)]
    above = runs[0].first[:1]
    for level in runs[:-1]:
        nodes.append(_find_nodes(level, above, nodes[-1]))
        above = level.first
    own = [*nodes[1:], np.arange(len(runs[-1].first))]
    if all(np.array_equal(node, np.arange(len(node))) for node in own):
        return tuple(runs)
    rows = np.arange(len(runs[-1].first))
    node_of_leaf = [
        node[np.searchsorted(level.first, rows, side="right") - 1]
        for level, node in zip(runs, own, strict=True)
    ]
    # The first run of a node has the node's number, so that nodes are sorted as they come first.
    order = np.lexsort(node_of_leaf[::-1])
    grouped = []
    for level, node in zip(runs, node_of_leaf, strict=True):
        sorted_nodes = node[order]
        first = np.flatnonzero(np.append(True, sorted_nodes[1:] != sorted_nodes[:-1]))
        grouped.append(LevelNodes(first, level.labels.take(sorted_nodes[first])))
    return tuple(grouped)


def _find_nodes(level: LevelNodes, above: IndexArray, nodes_above: IndexArray) -> IndexArray:
    """Find the node of each run of a level, named by its first run.

    Args:
        level: The runs.
        above: Where the runs of the coarser level begin.
        nodes_above: The node of each of those runs, named by its first run.

    Returns:
        The first run of the node that each run belongs to, shape (runs,).
    """
    parents = nodes_above[np.searchsorted(above, level.first, side="right") - 1]
    labels = find_first_equal(level.labels)
    # Both numbers are below 2^31, as no tree has more leaves.
    return find_first_equal(parents.astype(np.int64) * len(labels) + labels)


def name_nodes(levels: Sequence[LevelNodes]) -> LabelArray:
    """Name the nodes of the last of some levels.

    Args:
        levels: The nodes of a level and of all coarser ones, the coarsest first.

    Returns:
        The label of each node or, if another node of the level has the same label, its path, such
        as "01/001". Integers stay integers if no node needs its path.
    """
    labels = levels[-1].labels
    equal = find_first_equal(labels)
    repeated = np.bincount(equal, minlength=len(labels))[equal] > 1
    if not repeated.any():
        return labels
    rows = np.flatnonzero(repeated)
    first = levels[-1].first[rows]
    path = [
        spell(level.labels.take(np.searchsorted(level.first, first, side="right") - 1))
        for level in levels
    ]
    names = spell(labels)
    both = Texts.from_parts([names, join_texts(path, "/")])
    place = np.arange(len(labels))
    place[rows] = len(labels) + np.arange(len(rows))
    return both.take(place)


def spell(labels: LabelArray) -> Texts:
    """Write labels as texts."""
    return labels if isinstance(labels, Texts) else Texts.from_list(list(map(str, labels.tolist())))
