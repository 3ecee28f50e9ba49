"""Persons: who a row belongs to, by the column that identifies persons, as a keyed hash."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from fitplug_dask.codes import kind
from fitplug_dask.siphash import Words, siphash128

Known: TypeAlias = npt.NDArray[np.bool_]


def person_kind(arrow_type: Any) -> str | None:
    """What a column that identifies persons holds: strings, integers, bytes of some fixed width or
    (only) null; else None.
    """
    if isinstance(arrow_type, pa.UuidType):
        arrow_type = arrow_type.storage_type
    if pt.is_fixed_size_binary(arrow_type):
        # Not strings: as text the same identifier has other bytes, and would be another person.
        return f"bytes of width {arrow_type.byte_width}"
    held = kind(arrow_type)
    return held if held in ("strings", "integers", "null") else None


class Hasher:
    """Hashes the persons of batches of rows; a dictionary is hashed once, not with every batch."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._entries: Any = None
        self._of_entries: tuple[Words, Known] | None = None

    def tags(self, column: Any) -> tuple[Words, Known]:
        """Hashes (n, 2) of an Arrow array (n,), and where there is a person: null is none.

        Strings are hashed by their bytes in whichever type they are stored, integers by their
        value, whatever their width.
        """
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        if not pt.is_dictionary(column.type):
            return self._plain(column)
        entries = column.dictionary
        if self._of_entries is None or not entries.equals(self._entries):
            self._entries, self._of_entries = entries, self._plain(entries)
        tags, known = self._of_entries
        here = column.is_valid().to_numpy(zero_copy_only=False)
        at = column.indices.cast(pa.int64()).fill_null(0).to_numpy()
        if not len(entries):
            return np.zeros((len(column), 2), dtype=np.uint64), np.zeros(len(column), dtype=bool)
        return tags[at], known[at] & here

    def _plain(self, column: Any) -> tuple[Words, Known]:
        known = column.is_valid().to_numpy(zero_copy_only=False)
        held = person_kind(column.type)
        if held is not None and held.startswith(("strings", "bytes")):
            return self._of_bytes(column.cast(pa.large_binary())), known
        if held == "integers":
            values = column.fill_null(pa.scalar(0).cast(column.type)).to_numpy()
            # The ninth byte tells the largest unsigned integers from negative ones: persons that
            # were taken for one would share what is kept.
            signed = np.zeros((len(values), 9), dtype=np.uint8)
            wide = values.astype("<u8" if values.dtype.kind == "u" else "<i8")
            signed[:, :8] = wide.view(np.uint8).reshape(-1, 8)
            signed[:, 8] = np.where(values < 0, 0xFF, 0)
            return siphash128(self._key, signed), known
        return np.zeros((len(column), 2), dtype=np.uint64), np.zeros(len(column), dtype=bool)

    def _of_bytes(self, column: Any) -> Words:
        """Hashes (n, 2) of a large_binary array (n,), all values of one length together."""
        _, ends, content = column.buffers()
        tags = np.zeros((len(column), 2), dtype=np.uint64)
        if not len(column):
            return tags
        offsets = np.frombuffer(ends, dtype=np.int64)[column.offset :][: len(column) + 1]
        held = np.frombuffer(content, dtype=np.uint8) if content else np.zeros(0, dtype=np.uint8)
        lengths = np.diff(offsets)
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            at = offsets[rows][:, None] + np.arange(length)
            tags[rows] = siphash128(self._key, held[at])
        return tags
