"""Hashing: which person a row belongs to, as a keyed hash of the columns of persons.

SipHash-2-4 is a keyed pseudo-random function. Aumasson, Bernstein, "SipHash: a fast short-input
PRF" (2012). The output of 128 bits is that of the authors' reference code. Without the key its
outputs cannot be distinguished from random ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from fitplug_dask import loops
from fitplug_dask.encoding import classify_person_type, view_numbers, view_stretches
from fitplug_dask.persons.identifiers import find_unusual, spell_identifiers

Words: TypeAlias = npt.NDArray[np.uint64]

KEY_BYTES = 16


def siphash128(key: bytes, messages: npt.NDArray[np.uint8]) -> Words:
    """Hash n messages of equal length.

    Args:
        key: 16 secret bytes.
        messages: The bytes of the messages (n, length).

    Returns:
        The hashes (n, 2), each as two words of 64 bits.
    """
    tags = np.empty((len(messages), 2), dtype=np.uint64)
    loops.hash_messages(*halve_key(key), np.ascontiguousarray(messages), tags)
    return tags


def halve_key(key: bytes) -> tuple[int, int]:
    """Return a key of 16 bytes as the two numbers that the loops take."""
    return int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")


Known: TypeAlias = npt.NDArray[np.bool_]


class PersonHasher:
    """Hashes the persons of batches of rows."""

    def __init__(self, key: bytes, columns: int) -> None:
        """Keep the secret key of 16 bytes, for persons identified by so many columns."""
        self._key = key
        self._hashers = [_ColumnHasher(key) for _ in range(columns)]

    def hash_persons(self, columns: Sequence[Any]) -> tuple[Words, Known]:
        """Hash the persons that compact Arrow arrays (n,), or slices of these, identify together.

        Strings are hashed by their bytes in whichever type they are stored, as `spell_identifiers`
        spells them, and integers by their value in whichever width. Of several columns, their
        hashes are hashed in the order of the columns.

        Returns:
            The hashes (n, 2), and whether there is a person (n,), with every part of its key.

        Raises:
            CheckError: An array is not compact, or holds what cannot identify persons.
            IndexError: An index is beyond its dictionary.
        """
        hashed = [
            hasher.hash_column(column)
            for hasher, column in zip(self._hashers, columns, strict=True)
        ]
        if len(hashed) == 1:
            return hashed[0]
        messages = np.hstack([tags for tags, _ in hashed]).astype("<u8", copy=False)
        known: Known = np.logical_and.reduce([known for _, known in hashed])
        return siphash128(self._key, messages.view(np.uint8)), known


class _ColumnHasher:
    """Hashes one column of batches; a dictionary is hashed once, not with every batch."""

    def __init__(self, key: bytes) -> None:
        self._key = halve_key(key)
        self._entries: Any = None
        self._hashes_of_entries: tuple[Words, Known] | None = None

    def hash_column(self, column: Any) -> tuple[Words, Known]:
        """Hash an array (n,) to hashes (n, 2), and return which values identify somebody (n,)."""
        if not pt.is_dictionary(column.type):
            return self._hash_values(column)
        entries = column.dictionary
        if self._hashes_of_entries is None or not entries.equals(self._entries):
            self._entries, self._hashes_of_entries = entries, self._hash_values(entries)
        tags, known = self._hashes_of_entries
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        indices = column.indices.cast(pa.int64()).fill_null(0).to_numpy()
        if not valid.any():
            return np.zeros((len(column), 2), dtype=np.uint64), valid
        if indices.min() < 0:  # which NumPy would count from the end
            raise IndexError("an index is below its dictionary")
        return tags[indices], known[indices] & valid

    def _hash_values(self, column: Any) -> tuple[Words, Known]:
        """Hash a column without a dictionary, as `hash_column` does."""
        known = column.is_valid().to_numpy(zero_copy_only=False)
        tags = np.zeros((len(column), 2), dtype=np.uint64)
        person_type = classify_person_type(column.type)
        if person_type == "null":
            return tags, known
        if person_type != "integers":
            loops.hash_stretches(*self._key, *view_stretches(column), tags)
            if person_type == "strings":
                self._hash_unusual(column, tags, known)
            return tags, known
        values = view_numbers(column)
        if values.dtype.kind == "u" and values.max(initial=0) >= 2**63:
            # The ninth byte distinguishes the largest unsigned integers from negative ones:
            # persons that were taken for one would share the rows that are kept.
            messages = np.zeros((len(values), 9), dtype=np.uint8)
            messages[:, :8] = values.astype("<u8").view(np.uint8).reshape(-1, 8)
            loops.hash_messages(*self._key, messages, tags)
        else:
            loops.hash_integers(*self._key, values.astype(np.int64, copy=False), tags)
        return tags, known

    def _hash_unusual(self, column: Any, tags: Words, known: Known) -> None:
        """Correct what was found for the texts that are spelled in another way than usual."""
        unusual = find_unusual(column)
        if not len(unusual):
            return
        spelled = spell_identifiers(column.take(pa.array(unusual)))
        hashes = np.zeros((len(unusual), 2), dtype=np.uint64)
        loops.hash_stretches(*self._key, *view_stretches(spelled), hashes)
        tags[unusual] = hashes
        known[unusual] = spelled.is_valid().to_numpy(zero_copy_only=False)
