"""Selection check: a test of hashing and selection that each process runs before it counts persons.

The limit on the rows of a person depends on PyArrow, NumPy and the compiled loops of this process,
and no count would reveal a fault there. So the process hashes and selects a few known rows, in
slices of arrays of all types that may identify persons. The selected rows must be those of plain
Python: a second SipHash on Python integers, itself tested with the vectors of its authors, and a
loop over the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from fitplug.domain import Integers
from fitplug_dask.encoding import compact_batch
from fitplug_dask.kernel import Job
from fitplug_dask.persons.packing import Packing, siphash128
from fitplug_dask.persons.selection import RecordGroups, RowCollector, Selection
from fitplug_dask.workers import CheckError

Person: TypeAlias = str | int | None
SelectedRows: TypeAlias = list[tuple[int, int, int]]
"""For each selected row, the two words of its person's hash and its cell; sorted."""

_KEY = bytes(range(16))
_OTHER_KEY = bytes(range(16, 32))
_VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    63: "5150d1772f50834a503e069a973fbd7c",
}
"""By n, the hash of the bytes 0..n-1 under the key of the bytes 0..15, from SipHash's authors."""

_SIZE, _YEARS = 12, 3
_JOB = Job({"value": Integers(0, _SIZE // _YEARS - 1), "year": Integers(1, _YEARS)}, ())
_LIMIT = 2
_FIRST = 3
"""The first row of the slices."""

_TEXTS: list[Person] = [*"xyz", "", "a", None, "person 8", " a", "1e+02", "100.0", None, "0100 "]
_NUMBERS: list[Person] = [5, 6, 7, 0, -1, None, 100, -1, 7, -1, None, -1]
_CELLS = [0, 5, 3, 7, 7, 2, 9, 4, 11, 7, 10, 1]


@lru_cache(maxsize=1)
def check_selection_once() -> None:
    """Test the hashes of persons and the selection of rows, until a test passes in this process.

    Raises:
        CheckError: They differ from those of plain Python. Nothing was counted.
    """
    try:
        fault = _find_fault()
    except (CheckError, MemoryError):
        raise
    except Exception as error:
        fault = f"it failed with {type(error).__name__}"
    if fault is not None:
        raise CheckError(
            f"the limit on rows per person failed a test with PyArrow {pa.__version__} and NumPy "
            f"{np.__version__}: {fault}. Install other versions of PyArrow and NumPy."
        )


def _find_fault() -> str | None:
    """Return what differs from plain Python, or None."""
    for length, expected in _VECTORS.items():
        message = bytes(range(length))
        for low, high in (
            _hash_plainly(_KEY, message),
            siphash128(_KEY, np.frombuffer(message, np.uint8).reshape(1, -1))[0].tolist(),
        ):
            if (low.to_bytes(8, "little") + high.to_bytes(8, "little")).hex() != expected:
                return "SipHash does not give the published test values"
    by_year = RecordGroups(Packing(_JOB).find_field("year"))
    cases: list[tuple[int, RecordGroups | None]]
    cases = [(1, None), (2, None), (1, RecordGroups()), (1, by_year)]
    for parts, groups in cases:
        names = tuple(f"person {part}" for part in range(parts))
        selection = Selection(names, _LIMIT, _KEY, _OTHER_KEY, groups)
        for persons, arrays in ((_TEXTS, _store_texts()), (_NUMBERS, _store_numbers())):
            expected_rows = _select_plainly(persons[_FIRST:], _CELLS[_FIRST:], parts, groups)
            for kind, column in arrays:
                if _select(selection, column) != expected_rows:
                    return f"it chose wrong rows of persons stored as {kind}"
    return None


def _store_texts() -> Iterator[tuple[str, Any]]:
    """Yield the texts in every type in which Arrow stores them, each with the name of the type."""
    plain = pa.array(_TEXTS, pa.string())
    for kind in (pa.string(), pa.large_binary(), pa.string_view()):
        yield str(kind), plain.cast(kind)
    entries = pa.array(["no person", None, *dict.fromkeys(filter(None, _TEXTS)), ""]).slice(1)
    indices = pa.array([entries.to_pylist().index(text) for text in _TEXTS], pa.int8())
    yield "a dictionary", pa.DictionaryArray.from_arrays(indices, entries)


def _store_numbers() -> Iterator[tuple[str, Any]]:
    """Yield the integers in a narrow and in a wide type, as `_store_texts` does."""
    for kind in (pa.int8(), pa.int64()):
        yield str(kind), pa.array(_NUMBERS, kind)


def _select(selection: Selection, persons: Any) -> SelectedRows:
    """Return the kept rows as a count selects them.

    The rows are read twice: as a compacted slice, and as a slice of a compact batch.
    """
    cells = np.array(_CELLS, dtype=np.int64)
    columns = [pa.array(cells // _YEARS), pa.array(cells % _YEARS + 1)]
    columns = [*[persons] * len(selection.person), *columns]
    batch = pa.RecordBatch.from_arrays(columns, names=[*selection.person, *_JOB.attributes])
    selected: list[SelectedRows] = []
    for one in (compact_batch(batch.slice(_FIRST)), compact_batch(batch).slice(_FIRST)):
        collector = RowCollector(_JOB, selection)
        collector.take_batch(one, list(_JOB.attributes), {})
        rows = collector.collect()
        rows = rows.take(selection.select_rows(rows))
        hashed = zip(rows.tags.tolist(), rows.words.tolist(), strict=True)
        selected.append(sorted((*tag, *words) for tag, words in hashed))
    return selected[1] if selected[0] == selected[1] else []


def _select_plainly(
    persons: list[Person], cells: list[int], parts: int, groups: RecordGroups | None
) -> SelectedRows:
    """Return the rows that should be kept, by a loop in the order of their priorities.

    `parts` columns, all with the same values, identify the persons.
    """
    ranked = []
    for person, cell in zip(persons, cells, strict=True):
        if person is None:
            continue
        if isinstance(person, str):
            text = _spell_plainly(person)
            if not text:
                continue
            tag = _hash_plainly(_KEY, text.encode())
        else:
            tag = _hash_plainly(_KEY, person.to_bytes(9, "little", signed=True))
        if parts > 1:
            tag = _hash_plainly(_KEY, _write_words(tag * parts))
        message = _write_words((*tag, cell))
        ranked.append((_hash_plainly(_OTHER_KEY, message)[0], tag, cell))
    selected: SelectedRows = []
    seen = set()
    for number, (_, tag, cell) in enumerate(sorted(ranked)):
        group = number
        if groups is not None:
            group = cell if groups.field is None else cell % _YEARS
        count = sum(row[:2] == tag for row in selected)
        if (tag, group) not in seen and count < _LIMIT:
            seen.add((tag, group))
            selected.append((*tag, cell))
    return sorted(selected)


def _write_words(words: tuple[int, ...]) -> bytes:
    return b"".join(word.to_bytes(8, "little") for word in words)


def _spell_plainly(text: str) -> str:
    """Return the digits of an integer, and other text without the blanks around it."""
    text = text.strip()
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    return str(int(number)) if number == int(number) else text


def _hash_plainly(key: bytes, message: bytes) -> tuple[int, int]:
    """Hash a message with SipHash-2-4 and 128 bits of output, on Python integers."""
    mask = 2**64 - 1
    halves = [int.from_bytes(key[i : i + 8], "little") for i in (0, 8)]
    initial = b"somepseudorandomlygeneratedbytes"
    v = [int.from_bytes(initial[8 * i : 8 * i + 8], "big") ^ halves[i % 2] for i in range(4)]
    v[1] ^= 0xEE

    def rotate(number: int, bits: int) -> int:
        return (number << bits | number >> 64 - bits) & mask

    def mix(rounds: int) -> None:
        for _ in range(rounds):
            for a, b, c, d, left, right in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
                v[a] = (v[a] + v[b]) & mask
                v[c] = (v[c] + v[d]) & mask
                v[b], v[d] = rotate(v[b], left) ^ v[a], rotate(v[d], right) ^ v[c]
                v[a] = rotate(v[a], 32)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for i in range(0, len(padded), 8):
        word = int.from_bytes(padded[i : i + 8], "little")
        v[3] ^= word
        mix(2)
        v[0] ^= word
    digest = []
    for which, mark in ((2, 0xEE), (1, 0xDD)):
        v[which] ^= mark
        mix(4)
        digest.append(v[0] ^ v[1] ^ v[2] ^ v[3])
    return digest[0], digest[1]
