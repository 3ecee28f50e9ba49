"""The loops of `fitplug_dask.loops` over rows of persons, in NumPy.

They are used where the compiled loops were not built. SipHash-2-4 is a keyed pseudo-random
function, here of many messages at once. Aumasson, Bernstein, "SipHash: a fast short-input PRF"
(2012). The output of 128 bits is that of the authors' reference code. Without the key its outputs
cannot be distinguished from random ones.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]

_INITIAL_STATE = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def hash_messages(first: int, second: int, messages: npt.NDArray[np.uint8], tags: Words) -> None:
    """Hash n messages of equal length.

    Args:
        first: The first half of the key.
        second: The second half of the key.
        messages: The bytes of the messages (n, length).
        tags: The hashes (n, 2), each as two words of 64 bits, which are overwritten.

    Raises:
        ValueError: There are more or fewer hashes than messages.
    """
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
    """Hash n stretches of bytes, all of one length together.

    Args:
        first: The first half of the key.
        second: The second half of the key.
        content: The bytes.
        offsets: Where each stretch begins, and where the last one ends (n + 1,).
        tags: The hashes (n, 2), which are overwritten.

    Raises:
        IndexError: A stretch lies beyond the content.
        ValueError: There are more or fewer hashes than stretches.
    """
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
    """Hash n integers by their eight bytes and a ninth for their sign.

    Args:
        first: The first half of the key.
        second: The second half of the key.
        values: The integers (n,).
        tags: The hashes (n, 2), which are overwritten.

    Raises:
        ValueError: There are more or fewer hashes than integers.
    """
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
    kept: npt.NDArray[np.int64],
) -> int:
    """Select the rows of lowest priority of each person.

    The priority of a row is the first half of the hash of its tag and its words. Rows of equal
    priority are ranked by their words, the last one first, so that only equal rows are
    interchangeable.

    Args:
        first: The first half of the key of priorities.
        second: The second half of that key.
        tags: The hashes (n, 2) of the rows' persons.
        words: The cells (n, w) of the rows.
        limit: The most rows that a person keeps.
        kept: The positions of the rows that are kept (n,), which are overwritten from the first.

    Returns:
        The number of rows that are kept.

    Raises:
        ValueError: The arrays differ in their number of rows.
    """
    if tags.shape != (len(words), 2) or len(kept) != len(words):
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
    found = np.concatenate([order[~crowded], candidates[ranked[rank < limit]]])
    kept[: len(found)] = found
    return len(found)


def sort_records(
    records: npt.NDArray[np.uint8],
    buckets: npt.NDArray[np.uint16],
    ends: npt.NDArray[np.int64],
    ordered: npt.NDArray[np.uint8],
) -> None:
    """Sort records by their bucket; those of one bucket stay in their order.

    Args:
        records: The bytes of the records (n, width).
        buckets: The bucket of each record (n,).
        ends: Where the records of each bucket begin (m,), which become where they end.
        ordered: The sorted records (n, width), which are overwritten.

    Raises:
        IndexError: A bucket is beyond those given, or a record beyond the room for its bucket.
        ValueError: The arrays differ in their number of records, or in the width of these.
    """
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
