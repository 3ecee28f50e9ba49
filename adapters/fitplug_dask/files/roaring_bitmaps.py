"""Roaring bitmaps: the positions of deleted rows, as lakes store them.

Delta and Iceberg store deletion vectors in the same form: sorted positions of 64 bits, as bitmaps
of 32 bits each below one upper half.
https://github.com/RoaringBitmap/RoaringFormatSpec
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]

MAGIC = struct.pack("<I", 1681511377)
"""What begins a deletion vector of either lake."""

_PLAIN_COOKIE, _RUN_COOKIE = 12346, 12347
_OFFSETS_FROM = 4  # containers: with runs, fewer have no table of offsets
_LONGEST_ARRAY = 4096


def read_framed_positions(blob: bytes) -> Positions:
    """Read the positions of a deletion vector between its length and its checksum.

    Raises:
        ValueError: The blob is damaged.
    """
    length, checksum = blob[:4], blob[-4:]
    vector = blob[4:-4]
    if int.from_bytes(length, "big") != len(vector):
        raise ValueError("the deletion vector has another length")
    if int.from_bytes(checksum, "big") != zlib.crc32(vector):
        raise ValueError("the deletion vector has another checksum")
    return read_positions(vector)


def read_positions(vector: bytes) -> Positions:
    """Read the sorted positions (n,) of a deletion vector that begins with its magic number.

    Raises:
        Exception: The vector is damaged.
    """
    if vector[:4] != MAGIC:
        raise ValueError("no deletion vector")
    (bitmaps,) = struct.unpack_from("<Q", vector, 4)
    offset, groups, last = 12, [], -1
    for _ in range(bitmaps):
        (upper,) = struct.unpack_from("<I", vector, offset)
        if upper <= last:
            raise ValueError("the bitmaps are not sorted")
        last = upper
        lower, offset = _read_bitmap(vector, offset + 4)
        groups.append(lower + (upper << 32))
    positions = np.concatenate(groups) if groups else np.zeros(0, dtype=np.int64)
    if offset != len(vector) or (np.diff(positions) <= 0).any():
        raise ValueError("the deletion vector is damaged")
    return positions


def _read_bitmap(data: bytes, offset: int) -> tuple[Positions, int]:
    """Read one bitmap of 32 bits. Return its positions (n,) and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, offset)
    offset += 4
    has_runs = cookie & 0xFFFF == _RUN_COOKIE
    if has_runs:
        size = (cookie >> 16) + 1
        flags = np.unpackbits(_view(data, "u1", (size + 7) // 8, offset), bitorder="little")[:size]
        offset += (size + 7) // 8
    elif cookie == _PLAIN_COOKIE:
        (size,) = struct.unpack_from("<I", data, offset)
        offset += 4
        if size > 2**16:
            raise ValueError("a bitmap has too many containers")
        flags = np.zeros(size, dtype=np.uint8)
    else:
        raise ValueError("no roaring bitmap")
    header = _view(data, "<u2", 2 * size, offset).reshape(size, 2).astype(np.int64)
    offset += 4 * size
    if not has_runs or size >= _OFFSETS_FROM:
        offset += 4 * size  # containers follow each other, so their offsets are not needed
    groups = []
    for (key, cardinality), is_run in zip(header.tolist(), flags.tolist(), strict=True):
        low, offset = _read_container(data, offset, cardinality + 1, is_run=bool(is_run))
        groups.append(low + (key << 16))
    return (np.concatenate(groups) if groups else np.zeros(0, dtype=np.int64)), offset


def _read_container(
    data: bytes, offset: int, cardinality: int, *, is_run: bool
) -> tuple[Positions, int]:
    """Read the values of 16 bits of one container. Return them (n,) and where it ends."""
    if is_run:
        (count,) = struct.unpack_from("<H", data, offset)
        runs = _view(data, "<u2", 2 * count, offset + 2).reshape(count, 2).astype(np.int64)
        held = [np.arange(start, start + length + 1) for start, length in runs.tolist()]
        values = np.concatenate(held) if held else np.zeros(0, dtype=np.int64)
        end = offset + 2 + 4 * count
    elif cardinality <= _LONGEST_ARRAY:
        values = _view(data, "<u2", cardinality, offset).astype(np.int64)
        end = offset + 2 * cardinality
    else:
        bits = np.unpackbits(_view(data, "u1", 2**13, offset), bitorder="little")
        values = np.flatnonzero(bits).astype(np.int64)
        end = offset + 2**13
    if len(values) != cardinality or (len(values) and values[-1] >= 2**16):
        raise ValueError("a container does not hold as many values as it says")
    return values, end


def _view(data: bytes, dtype: str, count: int, offset: int) -> npt.NDArray[Any]:
    """Return `count` numbers of the data. Raise ValueError if it ends before."""
    return np.frombuffer(data, dtype, count, offset)
