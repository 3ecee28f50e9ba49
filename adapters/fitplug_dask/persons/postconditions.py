"""Postconditions: what must hold of the rows that a selection kept, checked after each selection.

The privacy cost rests on it, so it is not left to the loops that select. The check shares no code
with these. Kept rows are counted by the first bits of the
hashes of their persons, and only those in counts above the limit are sorted and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from fitplug_dask.persons.packing import Rows
from fitplug_dask.persons.record_groups import RecordGroups, mix_words
from fitplug_dask.persons.siphash import Words
from fitplug_dask.workers import CheckError

_MOST_BITS = 20
"""Of the numbers by which rows are counted; the counts then take 8 MB."""


def check_rows(rows: Rows) -> None:
    """Check that every row has the hash of a person, and cells.

    Raises:
        CheckError: There are more or fewer hashes than rows.
    """
    if rows.tags.ndim != 2 or rows.words.ndim != 2 or rows.tags.shape != (len(rows.words), 2):
        _refuse("rows and the hashes of their persons differ in number")


def check_selection(
    rows: Rows, kept: npt.NDArray[np.int64], limit: int, groups: RecordGroups | None
) -> None:
    """Check that the rows that were kept are within the limits.

    Args:
        rows: The rows (n,) that were selected from.
        kept: The positions (m,) of the rows that were kept.
        limit: The most rows of a person.
        groups: The rows of a person of which at most one is kept; None if there is no such limit.

    Raises:
        CheckError: A position is none of the rows, or there twice; a person has more rows than the
            limit, or more than one in a group.
    """
    check_rows(rows)
    is_kept = np.zeros(len(rows.tags), dtype=bool)
    if len(kept) and (kept.min() < 0 or kept.max() >= len(is_kept)):
        _refuse("a row was kept that there is not")
    is_kept[kept] = True
    if np.count_nonzero(is_kept) != len(kept):
        _refuse("a row was kept twice")
    tags = rows.tags.compress(is_kept, axis=0)  # several times as fast as an index
    if _repeats(tags[:, 0], [tags], limit):
        _refuse("a person keeps more rows than the limit")
    if groups is not None:
        identities = groups.identify_groups(rows.words.compress(is_kept, axis=0))
        if _repeats(mix_words(tags[:, 0], identities), [tags, identities], 1):
            _refuse("a person keeps more than one row of a group")


def _repeats(numbers: npt.NDArray[np.uint64], keys: Sequence[Words], limit: int) -> bool:
    """Return whether any key is there more often than the limit.

    Args:
        numbers: A number (m,) for each key, the same for the same keys, whose first bits are spread
            evenly.
        keys: The keys, in arrays (m, w).
        limit: How often a key may be there.
    """
    if limit >= len(numbers):
        return False
    bits = min(len(numbers).bit_length() + 2, _MOST_BITS)
    bucket = (numbers >> np.uint64(64 - bits)).astype(np.int64)
    crowded = np.flatnonzero(np.bincount(bucket).take(bucket) > limit)
    ordered = np.sort(numbers[crowded])
    if not (ordered[limit:] == ordered[:-limit]).any():
        return False
    among = np.hstack([columns[crowded] for columns in keys])
    among = among[np.lexsort(among.T)]
    return bool((among[limit:] == among[:-limit]).all(axis=1).any())


def _refuse(what: str) -> NoReturn:
    raise CheckError(
        f"the selection of each person's rows fails its own check: {what}; nothing was counted; "
        "install fitplug and NumPy again, and report this if it remains"
    )
