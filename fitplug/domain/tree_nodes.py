"""Tree nodes: which leaves lie in each node of a tree, level by level, as arrays and as JSON.

A level is a list of nodes with the first leaf of each. The leaves of a node stand together, so a
node ends where the next one begins. In the JSON of a large tree, a level has the labels of its
nodes and their numbers of leaves. Text labels are concatenated into one text, with a list of their
lengths. So no label is repeated, as it would be in a list of paths, and a million texts are one
value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitplug.domain.label_array import LabelArray, find_changes, find_first_equal, make_label_array
from fitplug.domain.texts import Texts, join_texts
from fitplug.errors import DomainError
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
    """Find runs of adjacent leaves with the same path.

    Args:
        columns: For each level, the coarsest first, the label of every leaf, (leaves,).

    Returns:
        The runs of each level. They are its nodes if the leaves of every node stand together.
    """
    begins: BoolArray = np.zeros(len(columns[0]), dtype=bool)
    runs = []
    for labels in columns:
        begins |= find_changes(labels)
        first = np.flatnonzero(begins)
        runs.append(LevelNodes(first, labels.take(first)))
    return runs


def group_runs(runs: Sequence[LevelNodes]) -> tuple[LevelNodes, ...]:
    """Put the leaves of every node together, each node where it first occurs.

    Args:
        runs: The runs of each level. Where a run begins, a run of each finer level begins too. The
            runs of the finest level are the leaves, which have different labels.

    Returns:
        The nodes of each level.
    """
    nodes = [np.zeros(1, dtype=np.intp)]
    above = runs[0].first[:1]
    for level in runs[:-1]:
        nodes.append(_find_nodes(level, above, nodes[-1]))
        above = level.first
    node_of_run = [*nodes[1:], np.arange(len(runs[-1].first))]
    if all(np.array_equal(node, np.arange(len(node))) for node in node_of_run):
        return tuple(runs)
    rows = np.arange(len(runs[-1].first))
    node_of_leaf = [
        node[np.searchsorted(level.first, rows, side="right") - 1]
        for level, node in zip(runs, node_of_run, strict=True)
    ]
    # A node has the number of its first run, so nodes are sorted by first occurrence.
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
    # Both numbers are below 2^31, because no tree has more leaves.
    return find_first_equal(parents.astype(np.int64) * len(labels) + labels)


def name_nodes(levels: Sequence[LevelNodes]) -> LabelArray:
    """Name the nodes of the finest of some levels.

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


def pack_tree(levels: Sequence[LevelNodes], leaves: int) -> list[dict[str, Any]]:
    """Describe the nodes of all levels, the coarsest first; the last level has the leaves.

    Args:
        levels: The nodes.
        leaves: The number of leaves.
    """
    packed = [_pack_labels(level.labels) for level in levels]
    for description, level in zip(packed[:-1], levels, strict=False):
        description["leaves"] = np.diff(np.append(level.first, leaves)).tolist()
    return packed


def _pack_labels(labels: LabelArray) -> dict[str, Any]:
    """Describe labels as one text and lengths; list them if they are not valid UTF-8 text."""
    if not isinstance(labels, Texts) or not labels.is_valid:
        return {"labels": labels.tolist()}
    lengths = labels.count_characters()
    same = lengths[0] > 0 and (lengths == lengths[0]).all()
    return {
        "labels": str(labels.content, "utf-8"),
        "lengths": int(lengths[0]) if same else lengths.tolist(),
    }


def unpack_tree(packed: Any, levels: int) -> list[LevelNodes]:
    """Read the nodes that `pack_tree` described.

    Args:
        packed: The description, of any type.
        levels: The number of levels.

    Returns:
        Runs of leaves, as from `find_runs`.

    Raises:
        DomainError: If it does not describe these levels, or they do not nest.
    """
    if not isinstance(packed, list) or len(packed) != levels:
        raise DomainError(f"'nodes' must be a list of {levels} tables, one per level")
    labels = [_unpack_labels(description) for description in packed]
    leaves = len(labels[-1])
    runs: list[LevelNodes] = []
    begins = np.zeros(1, dtype=np.intp)
    for description, level_labels in zip(packed, labels, strict=True):
        first = np.arange(leaves)
        if len(runs) < levels - 1:
            first = _find_first(description, len(level_labels), leaves)
        at = np.searchsorted(first, begins)
        if (at == len(first)).any() or (first[at] != begins).any():
            raise DomainError("in 'nodes', each node must lie within one node of the level above")
        runs.append(LevelNodes(first, level_labels))
        begins = first
    return runs


def _find_first(packed: dict[str, Any], nodes: int, leaves: int) -> IndexArray:
    """Find the first leaf of each node from the nodes' numbers of leaves."""
    given = packed.get("leaves")
    counts = given if isinstance(given, list) and set(map(type, given)) == {int} else [0]
    if min(counts) < 1 or len(counts) != nodes or sum(counts) != leaves:
        raise DomainError(
            "in 'nodes', 'leaves' must list the number of leaves of each node of the level"
        )
    return np.cumsum([0, *counts[:-1]], dtype=np.intp)


def _unpack_labels(packed: Any) -> LabelArray:
    """Read labels, or raise DomainError."""
    labels = packed.get("labels") if isinstance(packed, dict) else None
    if isinstance(labels, list) and labels:
        kinds = set(map(type, labels))
        if kinds == {str} or (kinds == {int} and max(map(abs, labels)) < 2**62):
            return make_label_array(labels)
    elif isinstance(labels, str):
        lengths = packed.get("lengths")
        if type(lengths) is int and lengths > 0:
            lengths = [lengths] * (len(labels) // lengths)
        integers = isinstance(lengths, list) and set(map(type, lengths)) == {int}
        if integers and min(lengths) >= 0 and sum(lengths) == len(labels):
            return Texts.from_list([labels]).split(np.array(lengths, dtype=np.int64))
    raise DomainError("in 'nodes', 'labels' must be a list, or one text with 'lengths'")
