"""Packed trees: the nodes of a large tree as JSON holds them in few and long values.

A level is described by the labels of its nodes and by how many leaves each node has. Labels that
are texts are one text, without anything between them, and their lengths. Compared with a list of
paths, this needs no label twice, and a million texts are one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fitplug.domain.label_array import LabelArray, make_label_array
from fitplug.domain.texts import Texts
from fitplug.domain.tree_nodes import LevelNodes
from fitplug.errors import DomainError
from fitplug.numeric import IndexArray


def pack_tree(levels: Sequence[LevelNodes], leaves: int) -> list[dict[str, Any]]:
    """Describe the nodes of all levels, the coarsest first; the nodes of the last are the leaves.

    Args:
        levels: The nodes.
        leaves: The number of leaves.
    """
    packed = [_pack_labels(level.labels) for level in levels]
    for own, level in zip(packed[:-1], levels, strict=False):
        own["leaves"] = np.diff(np.append(level.first, leaves)).tolist()
    return packed


def _pack_labels(labels: LabelArray) -> dict[str, Any]:
    """Describe labels by one text and its lengths; list them if they are no text of UTF-8."""
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
        Runs of leaves, as `fitplug.domain.tree_nodes.find_runs` finds them.

    Raises:
        DomainError: If it describes no levels, or they do not nest.
    """
    if not isinstance(packed, list) or len(packed) != levels:
        raise DomainError(f"nodes must be a list of {levels} tables, one per level")
    labels = [_unpack_labels(own) for own in packed]
    leaves = len(labels[-1])
    runs: list[LevelNodes] = []
    begins = np.zeros(1, dtype=np.intp)
    for own, held in zip(packed, labels, strict=True):
        first = np.arange(leaves)
        if len(runs) < levels - 1:
            first = _find_first(own, len(held), leaves)
        at = np.searchsorted(first, begins)
        if (at == len(first)).any() or (first[at] != begins).any():
            raise DomainError("the nodes of a level do not lie in those of the level above")
        runs.append(LevelNodes(first, held))
        begins = first
    return runs


def _find_first(packed: dict[str, Any], nodes: int, leaves: int) -> IndexArray:
    """Find the first leaf of each node from how many leaves the nodes have."""
    counts = packed.get("leaves")
    if not isinstance(counts, list) or set(map(type, counts)) != {int} or min(counts) < 1:
        raise DomainError("each node must have a number of leaves, an integer from 1")
    if len(counts) != nodes or sum(counts) != leaves:
        raise DomainError("the nodes of a level must have all leaves, each of them once")
    return np.cumsum([0, *counts[:-1]], dtype=np.intp)


def _unpack_labels(packed: Any) -> LabelArray:
    """Read labels, or raise DomainError."""
    held = packed.get("labels") if isinstance(packed, dict) else None
    if isinstance(held, list) and held:
        kinds = set(map(type, held))
        if kinds == {str} or (kinds == {int} and max(map(abs, held)) < 2**62):
            return make_label_array(held)
    elif isinstance(held, str):
        lengths = packed.get("lengths")
        if type(lengths) is int and lengths > 0:
            lengths = [lengths] * (len(held) // lengths)
        integers = isinstance(lengths, list) and set(map(type, lengths)) == {int}
        if integers and min(lengths) >= 0 and sum(lengths) == len(held):
            return Texts.from_list([held]).split(np.array(lengths, dtype=np.int64))
    raise DomainError("the labels of a level must be one text with lengths, or a list")
