"""Record groups: the records of a person of which at most one is kept.

A unit of privacy may say that each record of a person is in another cell, over all attributes that
are counted or of one attribute. The records of one person in one cell are then a group, and the one
of lowest priority stands for it. As in `Selection`, which one that is depends on the records of
that person alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fitplug_dask import loops
from fitplug_dask.persons.packing import Field, Rows
from fitplug_dask.persons.siphash import Words, halve_key

_ODD = np.uint64(0x9E3779B97F4A7C15)


class RecordGroups(Protocol):
    """Says which rows of one person belong together."""

    def identify_groups(self, words: Words) -> Words:
        """Return what identifies the group of each row among those of its person.

        Args:
            words: The cells (n, w) of the rows, as `Packing` packs them.

        Returns:
            Numbers (n, g), which are equal for rows of one group.
        """


@dataclass(frozen=True)
class CellGroups:
    """A group is the rows in one cell, over all attributes that are counted together."""

    def identify_groups(self, words: Words) -> Words:
        return words


@dataclass(frozen=True)
class AttributeGroups:
    """A group is the rows in one cell of an attribute, which may be that of all other values.

    Attributes:
        field: Where the packed cells have the attribute.
    """

    field: Field

    def identify_groups(self, words: Words) -> Words:
        return self.field.read(words)[:, None]


def select_one_of_each_group(key: bytes, rows: Rows, groups: RecordGroups) -> npt.NDArray[np.int64]:
    """Select the row of lowest priority in each group of each person.

    The order is that of `loops.select_rows`. It must be: the k rows of lowest priority among those
    selected here are then the same, whether this is done once, or for parts of the rows first. For
    a group whose best row is missing from a part has a worse row there, which pushes no row out
    that the best one would not.

    Args:
        key: The key of priorities, 16 bytes.
        rows: Rows of some persons.
        groups: Which rows belong together.

    Returns:
        The positions of the rows, in no particular order.
    """
    identities = groups.identify_groups(rows.words)
    is_crowded = _find_repeated(rows.tags[:, 0], identities)
    candidates = np.flatnonzero(is_crowded)
    among, identities = rows.take(candidates), identities[candidates]
    messages = np.hstack([among.tags, among.words]).astype("<u8", copy=False)
    priorities = np.empty((len(candidates), 2), dtype=np.uint64)
    loops.hash_messages(*halve_key(key), messages.view(np.uint8), priorities)
    persons_groups = np.hstack([among.tags, identities])
    ranked = np.lexsort((*among.words.T, priorities[:, 0], *persons_groups.T))
    ordered = persons_groups[ranked]
    is_first = np.ones(len(ranked), dtype=bool)
    is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return np.concatenate([np.flatnonzero(~is_crowded), candidates[ranked[is_first]]])


def mix_words(tags: npt.NDArray[np.uint64], identities: Words) -> npt.NDArray[np.uint64]:
    """Mix the hash (n,) of a row's person and its group (n, g) to one number (n,)."""
    mixed = tags.copy()
    for column in identities.T:
        mixed ^= column
        mixed *= _ODD
        mixed ^= mixed >> np.uint64(32)
    return mixed


def _find_repeated(tags: npt.NDArray[np.uint64], identities: Words) -> npt.NDArray[np.bool_]:
    """Find rows that may be in one group of one person with another row.

    Every such row is found. A few others may be, as 64 bits stand for a person and a group here.

    Args:
        tags: The first half (n,) of the hash of each row's person.
        identities: The group of each row (n, g).
    """
    mixed = mix_words(tags, identities)
    order = np.argsort(mixed)
    ordered = mixed[order]
    is_as_before = np.zeros(len(order) + 1, dtype=bool)
    is_as_before[1:-1] = ordered[1:] == ordered[:-1]
    found = np.empty(len(order), dtype=bool)
    found[order] = is_as_before[1:] | is_as_before[:-1]
    return found
