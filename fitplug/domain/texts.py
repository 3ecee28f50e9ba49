"""Texts: many texts in two arrays, concatenated as UTF-8.

A million Python strings take 64 MB or more, and copying or comparing them takes a loop in Python.
The arrays take only the room of the characters, and all methods here are array operations.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.numeric import BoolArray, IntArray, to_positions

Bytes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]

_WORD = 8
_BLOCK_ROWS = 2**17
"""The most texts of different lengths to copy at once; their indices take 8 bytes per byte."""

_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


@dataclass(frozen=True, eq=False, repr=False)
class Texts:
    """Texts in a fixed order.

    Attributes:
        buffer: The bytes of the texts, uint8, and 8 unused bytes, so that the last bytes of a text
            can be read as one 8-byte word.
        offsets: Where each text begins in the buffer, and where the last ends, int64 (n + 1,).
    """

    buffer: Bytes
    offsets: IntArray

    @classmethod
    def from_list(cls, texts: Sequence[str]) -> Texts:
        """Make an array of texts. Unpaired surrogates are kept, although UTF-8 has none."""
        joined = "".join(texts)
        if joined.isascii():
            lengths = np.fromiter(map(len, texts), np.int64, len(texts))
            return cls.from_lengths(joined.encode("ascii"), lengths)
        # Texts are encoded one by one, so that halves of a surrogate pair are not joined.
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return cls.from_lengths(b"".join(encoded), lengths)

    @classmethod
    def from_lengths(cls, content: bytes, lengths: IntArray) -> Texts:
        """Make an array of texts from all their bytes and the number of bytes of each, (n,)."""
        return cls.from_buffer(np.frombuffer(content, dtype=np.uint8), _add_up(lengths))

    @classmethod
    def from_buffer(cls, content: Bytes, offsets: IntArray) -> Texts:
        """Make an array of texts from their bytes, and where each begins and the last ends.

        Args:
            content: The bytes, which are copied.
            offsets: Shape (n + 1,). Bytes before the first and after the last are left out.

        Raises:
            ValueError: A text ends before it begins, or after the last byte.
        """
        first, last = int(offsets[0]), int(offsets[-1])
        if first < 0 or last > len(content) or (np.diff(offsets) < 0).any():
            raise ValueError("the stored lengths of texts do not fit the stored texts")
        buffer = np.zeros(last - first + _WORD, dtype=np.uint8)
        buffer[: last - first] = content[first:last]
        return cls(buffer, np.asarray(offsets - first, dtype=np.int64))

    @classmethod
    def from_parts(cls, parts: Sequence[Texts]) -> Texts:
        """Make an array of the texts of several arrays, one array after another."""
        content = np.concatenate([np.frombuffer(part.content, dtype=np.uint8) for part in parts])
        lengths = np.concatenate([part.lengths for part in parts])
        return cls.from_buffer(content, _add_up(lengths))

    @classmethod
    def _restore(cls, buffer: Bytes, lengths: IntArray | int, rows: int) -> Texts:
        """Make the texts that `__reduce__` described."""
        same = np.full(rows, lengths, dtype=np.int64) if isinstance(lengths, int) else lengths
        return cls(buffer, _add_up(same))

    def __reduce__(self) -> Any:
        # Most codes all have the same length, which is then pickled in place of all lengths.
        whole = self.take(np.arange(len(self))) if self.offsets[0] else self
        lengths = self.lengths
        width = int(lengths[0]) if len(self) and (lengths == lengths[0]).all() else lengths
        return Texts._restore, (whole.buffer, width, len(self))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> str:
        first, last = self.offsets[row], self.offsets[row + 1]
        return self.buffer[first:last].tobytes().decode("utf-8", "surrogatepass")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Texts):
            return NotImplemented
        return np.array_equal(self.lengths, other.lengths) and self.content == other.content

    def __hash__(self) -> int:
        return hash((len(self), zlib.crc32(self.content)))

    def __repr__(self) -> str:
        return f"Texts({len(self)} texts)"

    @property
    def lengths(self) -> IntArray:
        """The number of bytes of each text, shape (n,)."""
        return np.diff(self.offsets)

    @property
    def content(self) -> memoryview:
        """The bytes of all texts."""
        return self.buffer[self.offsets[0] : self.offsets[-1]].data

    @property
    def is_ascii(self) -> bool:
        """Whether every character takes one byte."""
        return bytes(self.content).isascii()

    @property
    def is_valid(self) -> bool:
        """Whether the bytes are UTF-8, which has no surrogates."""
        try:
            str(self.content, "utf-8")
        except UnicodeDecodeError:
            return False
        return True

    def tolist(self, errors: str = "surrogatepass") -> list[str]:
        """List the texts.

        Args:
            errors: How bytes that are not UTF-8 are decoded, as for `bytes.decode`.
        """
        raw, ends = bytes(self.content), (self.offsets - self.offsets[0]).tolist()
        if raw.isascii():
            text = raw.decode("ascii")
            return [text[a:b] for a, b in itertools.pairwise(ends)]
        return [raw[a:b].decode("utf-8", errors) for a, b in itertools.pairwise(ends)]

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> Texts:
        """Copy the texts of these rows, in their order.

        Args:
            rows: Shape (m,), from 0 to n - 1.
        """
        return self._copy(self.offsets[rows], self.offsets[np.add(rows, 1)] - self.offsets[rows])

    def view(self, first: int, end: int) -> Texts:
        """Return the texts of the rows `first` to `end` - 1 without copying their bytes."""
        return Texts(self.buffer, self.offsets[first : end + 1])

    def count_characters(self) -> IntArray:
        """Count the characters of each text, shape (n,)."""
        if self.is_ascii:
            return self.lengths
        return np.diff(self._count_starts()[self.offsets])

    def cut_prefixes(self, length: int) -> Texts:
        """Copy the first `length` characters of each text; shorter texts are kept whole."""
        starts = self.offsets[:-1]
        if self.is_ascii:
            return self._copy(starts, np.minimum(self.lengths, length))
        before = self._count_starts()
        # The byte at which each character of the buffer begins, and the end of the last one.
        begins = np.append(np.flatnonzero(np.diff(before)), self.offsets[-1])
        ends = begins[np.minimum(before[starts] + length, before[self.offsets[1:]])]
        return self._copy(starts, np.minimum(ends, self.offsets[1:]) - starts)

    def differ(self, other: Texts) -> BoolArray:
        """Return whether each text differs from the other text of its row, shape (n,)."""
        lengths = self.lengths
        different = lengths != other.lengths
        for at in range(0, int(lengths.max(initial=0)), _WORD):
            rows = np.flatnonzero(~different & (lengths > at))
            different[rows] = self._read_words(rows, at) != other._read_words(rows, at)
        return different

    def hash_words(self, seed: int) -> Words:
        """Hash each text to 64 bits, shape (n,).

        Different texts may have the same hash, but only for few seeds.
        """
        lengths = self.lengths
        hashes = (lengths.astype(np.uint64) + np.uint64(seed)) * np.uint64(_ODD[0])
        for at in range(0, int(lengths.max(initial=0)), _WORD):
            rows = np.flatnonzero(lengths > at)
            mixed = hashes[rows] ^ self._read_words(rows, at)
            mixed *= np.uint64(_ODD[1])
            mixed ^= mixed >> np.uint64(29)
            mixed *= np.uint64(_ODD[2])
            mixed ^= mixed >> np.uint64(32)
            hashes[rows] = mixed
        return hashes

    def split(self, counts: IntArray) -> Texts:
        """Split the characters of all texts into texts with `counts` (n,) characters each."""
        ends = _add_up(counts)
        if not self.is_ascii:
            before = self._count_starts()
            begins = np.append(np.flatnonzero(np.diff(before)), self.offsets[-1])
            ends = begins[before[self.offsets[0]] + ends]
        else:
            ends = ends + self.offsets[0]
        return Texts(self.buffer, ends)

    def _read_words(self, rows: npt.NDArray[np.integer[Any]], at: int) -> Words:
        """Read 8 bytes from byte `at` of texts longer than that; bytes after their ends are 0."""
        starts = self.offsets[rows] + at
        overlapping = np.ndarray(
            (len(self.buffer) - _WORD + 1,), dtype="<u8", buffer=self.buffer, strides=(1,)
        )
        words = overlapping[starts].astype(np.uint64, copy=False)
        beyond = np.maximum(starts + _WORD - self.offsets[np.add(rows, 1)], 0)
        shift = (8 * beyond).astype(np.uint64)
        words <<= shift
        words >>= shift
        return words

    def _count_starts(self) -> IntArray:
        """Count the characters that begin before each byte of the buffer."""
        content = self.buffer[: self.offsets[-1]]
        return _add_up(((content & 0xC0) != 0x80).astype(np.int64))

    def _copy(self, starts: IntArray, lengths: IntArray) -> Texts:
        """Copy `lengths` (m,) bytes from `starts` (m,) each."""
        offsets = _add_up(lengths)
        buffer = np.zeros(int(offsets[-1]) + _WORD, dtype=np.uint8)
        width = int(lengths.max(initial=0))
        if width and int(lengths.min()) == width:
            shape = (len(self.buffer) - width + 1, width)
            windows = np.ndarray(shape, dtype=np.uint8, buffer=self.buffer, strides=(1, 1))
            buffer[:-_WORD].reshape(-1, width)[:] = windows[starts]
            return Texts(buffer, offsets)
        for first in range(0, len(lengths), _BLOCK_ROWS):
            block = slice(first, first + _BLOCK_ROWS)
            begin, end = int(offsets[first]), int(offsets[min(first + _BLOCK_ROWS, len(lengths))])
            moved = np.repeat(starts[block] - offsets[:-1][block], to_positions(lengths[block]))
            buffer[begin:end] = self.buffer[moved + np.arange(begin, end)]
        return Texts(buffer, offsets)


def join_texts(columns: Sequence[Texts], separator: str) -> Texts:
    """Join the texts of each row, with a separator between columns.

    Args:
        columns: At least one array of n texts each.
        separator: The text between two columns.

    Returns:
        The n joined texts.
    """
    rows, parts = len(columns[0]), 2 * len(columns) - 1
    texts = Texts.from_parts([*columns, Texts.from_list([separator])])
    order = np.full((rows, parts), len(texts) - 1)
    order[:, ::2] = np.arange(rows)[:, None] + rows * np.arange(len(columns))
    pieces = texts.take(order.ravel())
    return Texts(pieces.buffer, pieces.offsets[::parts])


def _add_up(numbers: IntArray) -> IntArray:
    """Compute the running sums of numbers (n,), from 0 to the sum of all, shape (n + 1,)."""
    sums = np.zeros(len(numbers) + 1, dtype=np.int64)
    np.cumsum(numbers, out=sums[1:])
    return sums
