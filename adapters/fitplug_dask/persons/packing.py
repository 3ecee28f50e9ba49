"""Packing: the rows of persons as keyed hashes and packed cells, to save memory.

**Hashes.** Persons are hashed with SipHash-2-4, a keyed pseudo-random function: without the key its
outputs cannot be distinguished from random ones. The output of 128 bits is that of the authors'
reference code. Aumasson, Bernstein, "SipHash: a fast short-input PRF" (2012).

**Spelling.** Before it is hashed, an identifier is rewritten in a standard form, because programs
write one number in several ways: 7 and, in a column with nulls, 7.0; 007 where leading zeros were
kept; 1e+05 for 100000 in R. If each were another person, one person could keep several times as
many rows as the unit of privacy allows. So an integer is the same identifier however it is written,
and blanks at either end are ignored. Text that is empty, blank, or a common way to write null
identifies nobody: otherwise all these rows, of many people, would count as one person. All other
text is compared byte by byte: A7 and a7 are two persons.

Most identifiers are in the standard form. Those that may not be are found by their first and last
bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from fitplug.domain import BLANKS, NULLS, get_codec
from fitplug_dask import compiled_loops as loops
from fitplug_dask.encoding import classify_person_type, view_numbers, view_stretches
from fitplug_dask.kernel import Job

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
        """Hash persons that `columns` columns identify together, under a secret key of 16 bytes."""
        self._key = key
        self._hashers = [_ColumnHasher(key) for _ in range(columns)]

    def hash_persons(self, columns: Sequence[Any]) -> tuple[Words, Known]:
        """Hash the persons that compact Arrow arrays (n,), or slices of them, identify together.

        The hash of a string depends only on its bytes in the standard form of `spell_identifiers`,
        and the hash of an integer only on its value, not on the types in which they are stored. If
        there are several columns, their hashes are hashed together, in the order of the columns.

        Returns:
            The hashes (n, 2), and whether all columns identify the person (n,).

        Raises:
            CheckError: An array is not compact, or has a type that cannot identify persons.
            IndexError: An index is outside its dictionary.
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
    """Hashes one column of batches; a dictionary that several batches share is hashed once."""

    def __init__(self, key: bytes) -> None:
        self._key = halve_key(key)
        self._entries: Any = None
        self._hashes_of_entries: tuple[Words, Known] | None = None

    def hash_column(self, column: Any) -> tuple[Words, Known]:
        """Return the hashes (n, 2) of an array (n,), and whether each value identifies somebody."""
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
        if indices.min() < 0:  # NumPy would count it from the end
            raise IndexError("an index of a dictionary is below 0")
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
            # The ninth byte distinguishes the largest unsigned integers from negative ones.
            # Otherwise two persons with one hash would share k rows.
            messages = np.zeros((len(values), 9), dtype=np.uint8)
            messages[:, :8] = values.astype("<u8").view(np.uint8).reshape(-1, 8)
            loops.hash_messages(*self._key, messages, tags)
        else:
            loops.hash_integers(*self._key, values.astype(np.int64, copy=False), tags)
        return tags, known

    def _hash_unusual(self, column: Any, tags: Words, known: Known) -> None:
        """Replace the hashes of texts that may not be in the standard form."""
        unusual = find_unusual(column)
        if not len(unusual):
            return
        spelled = spell_identifiers(column.take(pa.array(unusual)))
        hashes = np.zeros((len(unusual), 2), dtype=np.uint64)
        loops.hash_stretches(*self._key, *view_stretches(spelled), hashes)
        tags[unusual] = hashes
        known[unusual] = spelled.is_valid().to_numpy(zero_copy_only=False)


_WORD = 2**63


class Rows(NamedTuple):
    """Rows inside the domain. They are confidential, and the repr hides them.

    Attributes:
        tags: For each row, the hash of its person, as two 64-bit words (n, 2).
        words: For each row, its codes for all attributes, packed into w 64-bit words by `Packing`
            (n, w).
    """

    tags: Words
    words: Words

    def __repr__(self) -> str:
        return "Rows(confidential)"

    def take(self, positions: Any) -> Rows:
        """Return the rows at these positions."""
        return Rows(self.tags[positions], self.words[positions])


def concatenate_rows(groups: Sequence[Rows]) -> Rows:
    """Concatenate groups of rows, at least one."""
    if len(groups) == 1:
        return groups[0]
    return Rows(*(np.concatenate(arrays) for arrays in zip(*groups, strict=True)))


class Field(NamedTuple):
    """The place of one attribute's code in the packed words.

    Attributes:
        word: The number of the word.
        step: The difference in the word between consecutive codes of the attribute.
        size: The number of codes of the attribute.
    """

    word: int
    step: int
    size: int

    def read(self, words: Words) -> Words:
        """Return the codes (n,) of the attribute from words (n, w)."""
        codes: Words = words[:, self.word] // np.uint64(self.step) % np.uint64(self.size)
        return codes


class Packing:
    """Packs the codes of a row for all attributes into a few 64-bit words.

    Attributes:
        words: The attributes in each word.
        record: The NumPy type of a row as it is sent: without gaps, and with each word in the
            narrowest possible type.
    """

    def __init__(self, job: Job) -> None:
        self._sizes = {name: get_codec(one).code_count for name, one in job.attributes.items()}
        self.words: list[list[str]] = []
        room = 0
        for name, size in self._sizes.items():
            room //= size
            if not room:
                self.words.append([])
                room = _WORD // size
            self.words[-1].append(name)

        sizes = [math.prod(self._sizes[name] for name in names) for names in self.words]
        fields: list[Any] = [("tags", "<u8", (2,))]
        fields += [(f"word {w}", _choose_type(size), ()) for w, size in enumerate(sizes)]
        self.record = np.dtype(fields)

    @property
    def row_bytes(self) -> int:
        """The bytes of a row in `Rows`."""
        return 16 + 8 * len(self.words)

    def find_field(self, name: str) -> Field:
        """Return the place of an attribute of the job in the packed words."""
        w, names = next((w, names) for w, names in enumerate(self.words) if name in names)
        after = names[names.index(name) + 1 :]
        return Field(w, math.prod(self._sizes[other] for other in after), self._sizes[name])

    def make_records(self, rows: Rows) -> npt.NDArray[np.void]:
        """Return rows (n,) as records (n,)."""
        records = np.empty(len(rows.tags), dtype=self.record)
        records["tags"] = rows.tags
        for w, word in enumerate(rows.words.T):
            records[f"word {w}"] = word
        return records

    def read_records(self, pieces: Iterable[memoryview]) -> Rows:
        """Return the rows of all records in pieces of bytes."""
        records = np.frombuffer(b"".join(pieces), dtype=self.record)
        words = np.empty((len(records), len(self.words)), dtype=np.uint64)
        for w in range(len(self.words)):
            words[:, w] = records[f"word {w}"]
        return Rows(np.ascontiguousarray(records["tags"], dtype=np.uint64), words)

    def pack(self, codes: Mapping[str, Any], rows: int) -> Words:
        """Pack codes.

        Args:
            codes: The codes (n,) of each attribute, or one code for all rows.
            rows: The number of rows n.

        Returns:
            The words (n, w).
        """
        words = np.zeros((rows, len(self.words)), dtype=np.uint64)
        for w, names in enumerate(self.words):
            cell = np.zeros(rows, dtype=np.int64)
            for name in names:
                cell *= self._sizes[name]
                cell += codes[name]
            words[:, w] = cell
        return words

    def unpack(self, words: Words) -> dict[str, npt.NDArray[np.int64]]:
        """Return the codes (n,) of each attribute from words (n, w)."""
        codes: dict[str, npt.NDArray[np.int64]] = {}
        for w, names in enumerate(self.words):
            cell = words[:, w].astype(np.int64)
            for name in reversed(names[1:]):
                # In NumPy, division by a scalar is fast, but `divmod` is not.
                rest = cell // self._sizes[name]
                codes[name] = cell - rest * self._sizes[name]
                cell = rest
            codes[names[0]] = cell
        return codes


def _choose_type(size: int) -> str:
    """Return the narrowest type for numbers below `size`."""
    return next(f"<u{width}" for width in (1, 2, 4, 8) if size <= 2 ** (8 * width))


_WHOLE = r"^[+-]?[0-9]+(\.0*)?$"
_POWER = r"^\+?[0-9](\.[0-9]+)?e\+[0-9]{2}$"
"""How R and Python write large numbers. The plus sign is required: 1e5 may be a code."""


def _mark(characters: str) -> npt.NDArray[np.bool_]:
    marked = np.zeros(256, dtype=bool)
    marked[list(characters.encode())] = True
    return marked


_FIRST, _LAST, _PLUS = _mark(f"{BLANKS}+-0"), _mark(f"{BLANKS}.0"), _mark("+")
_NULL = _mark("".join({text[0] for text in NULLS}))


def find_unusual(column: Any) -> npt.NDArray[np.int64]:
    """Find the texts that `spell_identifiers` changes.

    Args:
        column: A compact Arrow array (n,) of text.

    Returns:
        The positions of these texts, and possibly of others.
    """
    content, places = view_stretches(column)
    if not len(content):
        return np.arange(len(column))
    starts, ends = places[:-1], places[1:]
    first = content.take(starts, mode="clip")
    last, third = (content.take(ends - back, mode="clip") for back in (1, 3))
    may_be_null = _NULL[first] & (ends - starts <= max(map(len, NULLS)))
    is_empty = starts == ends
    return np.flatnonzero(_FIRST[first] | _LAST[last] | _PLUS[third] | may_be_null | is_empty)


def spell_identifiers(column: Any) -> Any:
    """Rewrite identifiers (n,) in the standard form; those that identify nobody become null."""
    # The functions for ASCII do not change other bytes, whether or not they are UTF-8.
    texts = column.cast(pa.large_binary()).view(pa.large_string())
    texts = _replace(pc.ascii_trim(texts, characters=BLANKS), _WHOLE, _spell_whole)
    texts = _replace(texts, _POWER, _spell_powers)
    nobody = pa.array(["", *NULLS], texts.type)
    return pc.if_else(pc.is_in(texts, nobody), None, texts)


def _replace(texts: Any, pattern: str, spell: Callable[[Any], Any]) -> Any:
    """Replace the texts (n,) that match a pattern by `spell` of them."""
    matches = pc.match_substring_regex(texts, pattern).fill_null(False)
    if not pc.any(matches).as_py():
        return texts
    return pc.replace_with_mask(texts, matches, spell(texts.filter(matches)))


def _spell_whole(texts: Any) -> Any:
    """Rewrite integers without a plus sign, a point, and leading zeros."""
    texts = pc.if_else(
        pc.match_substring(texts, "."),
        pc.ascii_rtrim(pc.ascii_rtrim(texts, characters="0"), characters="."),
        texts,
    )
    digits = pc.ascii_ltrim(pc.ascii_ltrim(texts, characters="+-"), characters="0")
    is_zero = pc.equal(pc.binary_length(digits), 0)
    signs = pc.if_else(pc.starts_with(texts, "-"), "-", "").cast(digits.type)
    signed = pc.binary_join_element_wise(signs, digits, pa.scalar("", digits.type))
    return pc.if_else(is_zero, "0", signed)


def _spell_powers(texts: Any) -> Any:
    """Rewrite integers such as 1e+05 by their digits, and leave fractions as they are."""
    numbers = {text: Decimal(text) for text in texts.to_pylist()}
    spelled = [str(int(n)) if n == int(n) else text for text, n in numbers.items()]
    return pc.take(
        pa.array(spelled, texts.type), pc.index_in(texts, pa.array(list(numbers), texts.type))
    )
