"""The loops over rows in NumPy, to which the tests hold the compiled ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug_dask.encoding.column_encoder import Lookup

Array: TypeAlias = npt.NDArray[Any]
Words: TypeAlias = npt.NDArray[np.uint64]

_INITIAL_STATE = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def locate(columns: Sequence[Lookup], shared: int, cells: Array) -> None:
    """Find the cells of rows: the sum of what all rows share and of the terms of all columns."""
    cells.fill(shared)
    if not len(cells):
        return
    for values, low, terms, strict, _, valid, start in columns:
        kind = values.dtype
        if kind.kind not in "iu" or kind == np.uint64 or not kind.isnative:
            raise TypeError("values must be integers of up to 32 bits, or int64")
        if len(values) != len(cells) or not len(terms):
            raise ValueError("there must be a term, and a value for each cell")
        indices, there = values.astype(np.int64), np.ones(len(values), dtype=bool)
        if valid is not None:
            if start < 0 or 8 * len(valid) < start + len(values):
                raise ValueError("each value must have a bit that says whether it is there")
            there = np.unpackbits(valid, bitorder="little")[start:][: len(values)].astype(bool)
        count = len(terms) - (valid is not None)
        if strict and not ((indices >= low) & (indices - low < count))[there].all():
            raise IndexError("an index points nowhere")
        indices = np.clip(indices, low, low + max(count - 1, 0)) - low
        cells += terms[np.where(there, indices, count)]


def increment(counter: Array, cells: Array) -> None:
    """Count each row in its cell."""
    if len(cells) and cells.min() < 0:
        cells = cells[cells >= 0]
    # A Python number instead would take 50 times as long with narrow counters.
    np.add.at(counter, cells, counter.dtype.type(1))


def increment_pairs(counter: Array, high: Array, size: int, low: Array) -> None:
    """Count each row in the cell high * size + low."""
    if len(high) != len(low):
        raise ValueError("each row must have both digits")
    if len(low) and (high.min() < 0 or low.min() < 0):
        raise IndexError("a cell lies beyond the table")
    np.add.at(counter, high * size + low, counter.dtype.type(1))


def add_weights(counter: Array, cells: Array, weights: Array) -> None:
    """Add the weight of each row to its cell."""
    if len(cells) != len(weights):
        raise ValueError("each row must have a weight")
    if len(cells) and cells.min() < 0:
        inside = cells >= 0
        cells, weights = cells[inside], weights[inside]
    np.add.at(counter, cells, weights)


def add_weights_of_pairs(
    counter: Array, high: Array, size: int, low: Array, weights: Array
) -> None:
    """Add the weight of each row to the cell high * size + low."""
    if len(high) != len(low):
        raise ValueError("each row must have both digits")
    if len(high) != len(weights):
        raise ValueError("each row must have a weight")
    if len(low) and (high.min() < 0 or low.min() < 0):
        raise IndexError("a cell lies beyond the table")
    np.add.at(counter, high * size + low, weights)


def add_shares(
    counter: Array, cells: Array, codes: Array, shares: int, size: int, weights: Array | None
) -> int:
    """Divide the record of each row between the cells of a measure."""
    if len(cells) != len(codes) or (weights is not None and len(cells) != len(weights)):
        raise ValueError("each row must have a cell, a code and a weight")
    inside = (cells >= 0) & (codes >= 0)
    if not inside.all():
        cells, codes = cells[inside], codes[inside]
        weights = None if weights is None else weights[inside]
    beyond = len(cells) and (cells.max() >= len(counter) // size or codes.max() > shares + size - 2)
    if beyond:
        raise IndexError("a cell lies beyond the table")
    records = 1 if weights is None else weights
    valued = codes <= shares
    np.add.at(counter, cells * size, np.where(valued, shares - codes, 0) * records)
    np.add.at(counter, cells * size + 1, np.where(valued, codes, 0) * records)
    if size == 3:
        np.add.at(counter, cells * size + 2, np.where(valued, 0, shares) * records)
    return len(cells)


def encode_numbers(
    values: Array,
    valid: Array | None,
    start: int,
    first: float,
    last: float,
    unit: float,
    shares: int,
    null_code: int,
    codes: Array,
) -> None:
    """Encode numbers as their distances from the lower bound of a measure, in units."""
    missing_bits = valid is not None and 8 * len(valid) < start + len(values)
    if len(codes) != len(values) or missing_bits or start < 0:
        raise ValueError("each value must have a code, and a bit that says whether it is there")
    if values.dtype.kind == "f" or not all(float(v).is_integer() for v in (first, last, unit)):
        floats = values.astype(np.float64)
        missing = np.isnan(floats)
        near = (np.clip(np.where(missing, first, floats), first, last) - first) / unit + 0.5
        codes[:] = np.where(missing, null_code, np.minimum(near.astype(np.int64), shares))
    else:
        step = int(unit)
        above = np.clip(values.astype(np.int64), int(first), int(last)) - int(first)
        codes[:] = (2 * above + step) // (2 * step)
    if valid is not None:
        bits = valid[start >> 3 : start + len(values) + 7 >> 3]
        is_valid = np.unpackbits(bits, bitorder="little")[start & 7 :][: len(values)]
        codes[is_valid == 0] = null_code


def hash_messages(first: int, second: int, messages: npt.NDArray[np.uint8], tags: Words) -> None:
    """Hash n messages of equal length."""
    n, length = messages.shape
    if tags.shape != (n, 2):
        raise ValueError("each message must have a tag of two words")
    state = [np.full(n, initial, dtype=np.uint64) for initial in _INITIAL_STATE]
    for i, half in enumerate((first, second, first, second)):
        state[i] ^= np.uint64(half)
    state[1] ^= np.uint64(0xEE)  # the variant of 128 bits
    spare = np.empty(n, dtype=np.uint64)
    for word in _split_into_words(messages, length):
        state[3] ^= word
        _mix(state, spare, 2)
        state[0] ^= word
    for half, (index, constant) in enumerate(((2, 0xEE), (1, 0xDD))):
        state[index] ^= np.uint64(constant)
        _mix(state, spare, 4)
        tags[:, half] = state[0] ^ state[1] ^ state[2] ^ state[3]


def hash_stretches(
    first: int,
    second: int,
    content: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    tags: Words,
) -> None:
    """Hash n stretches of bytes, all of one length together."""
    # A hash that is not written would be that of one person, whose rows then were of many.
    if len(offsets) != len(tags) + 1 or tags.shape[1] != 2:
        raise ValueError("each stretch must have an end and a tag of two words")
    lengths = np.diff(offsets)
    if len(lengths) and (lengths.min() < 0 or offsets[0] < 0 or offsets[-1] > len(content)):
        raise IndexError("a stretch lies beyond the content")
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        hashed = np.empty((len(rows), 2), dtype=np.uint64)
        positions = offsets[rows][:, None] + np.arange(length)
        hash_messages(first, second, content[positions], hashed)
        tags[rows] = hashed


def hash_integers(first: int, second: int, values: npt.NDArray[np.int64], tags: Words) -> None:
    """Hash n integers by their eight bytes and a ninth for their sign."""
    if tags.shape != (len(values), 2):
        raise ValueError("each value must have a tag of two words")
    messages = np.empty((len(values), 9), dtype=np.uint8)
    messages[:, :8] = values.astype("<i8", copy=False).view(np.uint8).reshape(-1, 8)
    messages[:, 8] = np.where(values < 0, 0xFF, 0)
    hash_messages(first, second, messages, tags)


def select_rows(
    first: int,
    second: int,
    tags: Words,
    words: Words,
    limit: int,
    selected: npt.NDArray[np.int64],
) -> int:
    """Select the rows of lowest priority of each person."""
    if tags.shape != (len(words), 2) or len(selected) != len(words):
        raise ValueError("each row must have a tag of two words, and room among those kept")
    order = np.argsort(tags[:, 0])
    starts = _find_runs(tags[order, 0])
    # Only persons that may have too many rows need priorities.
    lengths = np.diff(np.append(starts, len(order)))
    crowded = np.repeat(lengths > limit, lengths)
    candidates = order[crowded]
    among = np.hstack([tags[candidates], words[candidates]])
    priorities = np.empty((len(among), 2), dtype=np.uint64)
    hash_messages(first, second, among.astype("<u8", copy=False).view(np.uint8), priorities)
    ranked = np.lexsort((*among.T[2:], priorities[:, 0], among[:, 1], among[:, 0]))
    runs = _find_runs(among[ranked, :2])
    rank = np.arange(len(ranked)) - np.repeat(runs, np.diff(np.append(runs, len(ranked))))
    positions = np.concatenate([order[~crowded], candidates[ranked[rank < limit]]])
    selected[: len(positions)] = positions
    return len(positions)


def sort_records(
    records: npt.NDArray[np.uint8],
    buckets: npt.NDArray[np.uint16],
    ends: npt.NDArray[np.int64],
    ordered: npt.NDArray[np.uint8],
) -> None:
    """Sort records by their bucket; those of one bucket stay in their order."""
    if len(buckets) != len(records) or ordered.shape != records.shape:
        raise ValueError("each record must have a bucket and a place")
    sizes = np.bincount(buckets, minlength=len(ends))
    if len(sizes) > len(ends) or not np.array_equal(ends, np.cumsum(sizes) - sizes):
        raise IndexError("a bucket lies beyond the records")
    # The sort of numbers of 16 bits is linear in their number.
    np.take(records, np.argsort(buckets, kind="stable"), axis=0, out=ordered)
    ends += sizes


def _find_runs(values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return where runs of equal values (n,) or equal rows (n, m) begin."""
    if not len(values):
        return np.zeros(0, dtype=np.intp)
    changed = values[1:] != values[:-1]
    if changed.ndim == 2:
        changed = changed.any(axis=1)
    return np.append(0, np.flatnonzero(changed) + 1)


def _split_into_words(messages: npt.NDArray[np.uint8], length: int) -> list[Words]:
    """Return the 64-bit words of each message, with its length in the last byte of the last."""
    padded = np.zeros((len(messages), 8 * (length // 8 + 1)), dtype=np.uint8)
    padded[:, :length] = messages
    padded[:, -1] = length & 0xFF
    return [np.ascontiguousarray(word) for word in padded.view("<u8").T]


def _mix(state: list[Words], spare: Words, rounds: int) -> None:
    """Mix the four words of the state in place, in some SipRounds."""
    a, b, c, d = state
    for _ in range(rounds):
        a += b
        _rotate(b, 13, spare)
        b ^= a
        _rotate(a, 32, spare)
        c += d
        _rotate(d, 16, spare)
        d ^= c
        a += d
        _rotate(d, 21, spare)
        d ^= a
        c += b
        _rotate(b, 17, spare)
        b ^= c
        _rotate(c, 32, spare)


def _rotate(words: Words, bits: int, spare: Words) -> None:
    """Rotate each word to the left, in place."""
    np.right_shift(words, np.uint64(64 - bits), out=spare)
    words <<= np.uint64(bits)
    words |= spare
