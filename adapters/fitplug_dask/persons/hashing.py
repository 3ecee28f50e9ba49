"""Hashing: which person a row belongs to, as a keyed hash of the column of persons.

SipHash-2-4 is a keyed pseudo-random function. Aumasson, Bernstein, "SipHash: a fast short-input
PRF" (2012). The output of 128 bits is that of the authors' reference code. Without the key its
outputs cannot be distinguished from random ones.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from fitplug_dask import loops
from fitplug_dask.encoding import classify_person_type, view_numbers, view_stretches

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
    """Hashes the persons of batches of rows; a dictionary is hashed once, not with every batch."""

    def __init__(self, key: bytes) -> None:
        """Keep the secret key of 16 bytes."""
        self._key = halve_key(key)
        self._entries: Any = None
        self._hashes_of_entries: tuple[Words, Known] | None = None

    def hash_persons(self, column: Any) -> tuple[Words, Known]:
        """Hash the persons of a compact Arrow array (n,), or of a slice of one.

        Strings are hashed by their bytes in whichever type they are stored, integers by their
        value in whichever width.

        Returns:
            The hashes (n, 2), and whether there is a person (n,): null is none.

        Raises:
            CheckError: The array is not compact, or holds what cannot identify persons.
            IndexError: An index is beyond its dictionary.
        """
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
        """Hash a column without a dictionary, as `hash_persons` does."""
        known = column.is_valid().to_numpy(zero_copy_only=False)
        tags = np.zeros((len(column), 2), dtype=np.uint64)
        person_type = classify_person_type(column.type)
        if person_type == "null":
            return tags, known
        if person_type != "integers":
            loops.hash_stretches(*self._key, *view_stretches(column), tags)
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
