"""Label arrays: the labels of cells or nodes, as an array of integers, truth values or texts.

Equal labels are found by sorting. Texts are sorted by a hash of 64 bits; texts with equal hashes
are then compared, so that no result depends on the hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from fitplug.domain.texts import Texts, Words
from fitplug.numeric import BoolArray, IndexArray, IntArray, freeze

LabelArray: TypeAlias = Texts | IntArray | BoolArray
"""Labels of one type; all of them have `take`, `tolist` and a length."""

Keys: TypeAlias = IntArray | Words


def make_label_array(values: Sequence[Any]) -> LabelArray:
    """Make a read-only array of labels.

    Args:
        values: All str, all bool, or all int and below 2**63 in size.
    """
    if not values or type(values[0]) is str:
        return freeze(Texts.from_list(values))
    return freeze(np.array(values, dtype=bool if type(values[0]) is bool else np.int64))


def are_equal(labels: LabelArray, others: LabelArray) -> bool:
    """Return whether two arrays hold the same labels of the same type."""
    if isinstance(labels, Texts) or isinstance(others, Texts):
        return isinstance(labels, Texts) and labels == others
    return labels.dtype.kind == others.dtype.kind and np.array_equal(labels, others)


def compute_checksum(labels: LabelArray) -> int:
    """Compute a number that is equal for equal arrays, and almost never for different ones."""
    return hash(labels) if isinstance(labels, Texts) else hash(labels.tobytes())


def find_changes(labels: LabelArray) -> BoolArray:
    """Find where a label differs from the one before, shape (n,); the first counts as different."""
    changes = np.ones(len(labels), dtype=bool)
    if isinstance(labels, Texts):
        last = len(labels)
        changes[1:] = labels.view(1, last).differ(labels.view(0, last - 1))
    else:
        changes[1:] = labels[1:] != labels[:-1]
    return changes


def find_first_equal(labels: LabelArray) -> IndexArray:
    """Find for each label the first row that has the same label.

    Args:
        labels: Shape (n,).

    Returns:
        Rows (n,): a label's own row if it did not occur before.
    """
    keys, order = _sort(labels)
    sorted_keys = keys[order]
    starts = np.flatnonzero(np.append(True, sorted_keys[1:] != sorted_keys[:-1]))
    first = np.empty(len(labels), dtype=np.intp)
    # Rows with equal keys stay in order, so the first row of a group comes first.
    first[order] = np.repeat(order[starts], np.diff(np.append(starts, len(labels))))
    return first


def _sort(labels: LabelArray) -> tuple[Keys, IndexArray]:
    """Sort labels by keys that are equal exactly where the labels are equal.

    Returns:
        The key of each label, and the order of the keys; rows with equal keys stay in order.
    """
    if not isinstance(labels, Texts):
        keys = labels.astype(np.int64)
        return keys, np.argsort(keys, kind="stable")
    seed = 0
    while True:
        hashes = labels.hash_words(seed)
        order = np.argsort(hashes, kind="stable")
        same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        if not labels.take(order[same + 1]).differ(labels.take(order[same])).any():
            return hashes, order
        seed += 1


class LabelIndex:
    """An index that finds the rows of labels, which are all different."""

    def __init__(self, labels: LabelArray) -> None:
        """Sort the labels.

        Args:
            labels: Labels (n,), n > 0, all different.
        """
        self._labels = labels
        self._seed = 0
        if isinstance(labels, Texts):
            self._sort_texts(labels)
        else:
            keys, self._order = _sort(labels)
            self._keys: Keys = keys[self._order]
        freeze([self._keys, self._order])

    def _sort_texts(self, texts: Texts) -> None:
        """Sort texts by hashes that are all different; few seeds give two texts the same hash."""
        while True:
            hashes = texts.hash_words(self._seed)
            self._order = np.argsort(hashes)
            self._keys = hashes[self._order]
            if not (self._keys[1:] == self._keys[:-1]).any():
                return
            self._seed += 1

    def find(self, values: LabelArray) -> IntArray:
        """Find the rows of values.

        Args:
            values: Values (m,) of the type of the labels.

        Returns:
            The rows (m,), -1 for values that are not labels.
        """
        if isinstance(values, Texts):
            assert isinstance(self._labels, Texts)
            rows, equal = self._find_keys(values.hash_words(self._seed))
            candidates = np.flatnonzero(equal)
            equal[candidates] = ~values.take(candidates).differ(self._labels.take(rows[candidates]))
        else:
            rows, equal = self._find_keys(values.astype(np.int64))
        return np.where(equal, np.asarray(rows, dtype=np.int64), -1)

    def _find_keys(self, keys: Keys) -> tuple[IndexArray, BoolArray]:
        """Find for each key the row of the nearest key not below it, and whether it is equal."""
        # Searching for sorted keys uses the cache: it is four times as fast in a large index.
        order = np.argsort(keys)
        at: IndexArray = np.empty(len(keys), dtype=np.intp)
        at[order] = np.searchsorted(self._keys, keys[order])
        np.minimum(at, len(self._keys) - 1, out=at)
        return self._order[at], self._keys[at] == keys
