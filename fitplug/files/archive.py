"""Archives of arrays: NumPy's .npz, read without trust in what it says of its own size.

A kilobyte of a zip file may unpack to a megabyte, so a small file could fill the memory. Nothing is
unpacked that the archive does not have room for, by the sizes in its directory and by the shape and
type in front of each array; and no array is read beyond these.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.lib import format as npy

from fitplug.numeric import AnyArray

Arrays: TypeAlias = dict[str, AnyArray]
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

ROOM, GROWTH = 2**29, 64
"""What is unpacked of a file, at most: so many bytes, or so many times its own size."""

_HEADER = "header"
_HEADER_ROOM = 2**24
_CHUNK = 2**20
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def write_archive(file: IO[bytes], arrays: Mapping[str, AnyArray]) -> None:
    """Write arrays, compressed if `read_archive` has room for what they are packed to. Raises OSError."""
    fits = sum(array.nbytes for array in arrays.values()) <= ROOM
    save = np.savez_compressed if fits else np.savez
    save(file, allow_pickle=False, **arrays)


def read_archive(
    file: IO[bytes], expected: Callable[[dict[str, Any]], Shapes] | None = None
) -> tuple[dict[str, Any], Arrays]:
    """The header, an object of JSON, and the other arrays of a file that `write_archive` wrote, read-only.

    expected: gives, of the header, the shapes of int64 arrays: those are read without a bound of
    their own, and no other than those. Raises ValueError for what is no such file or would unpack
    to more than there is room for, and whatever zip, zlib, NumPy and JSON do on damage.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if len(members) != len(archive.infolist()):
            raise ValueError("two arrays of one name")
        held = members.pop(_HEADER)
        text = _read(archive, held, max(_HEADER_ROOM, GROWTH * held.compress_size))
        header = json.loads(text.tobytes())
        if not isinstance(header, dict):
            raise ValueError("the header is no object")
        if expected is None:
            room = max(ROOM, GROWTH * size) - held.file_size
            if sum(info.file_size for info in members.values()) > room:
                raise ValueError("more than there is room for")
            return header, {n: _read(archive, info, room) for n, info in members.items()}
        shapes = expected(header)
        return header, {n: _read_counts(archive, members[n], shapes[n]) for n in shapes}


def _read_counts(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, shape: tuple[int, ...]
) -> AnyArray:
    return _read(archive, info, 8 * math.prod(shape), shape)


def _read(
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    room: int,
    shape: tuple[int, ...] | None = None,
) -> AnyArray:
    """One array of at most `room` bytes, or none of another shape. The file's directory is not
    believed: zipfile reads no more than it says, and this no more than the array's own header.
    """
    if info.compress_type not in _COMPRESSIONS:
        raise ValueError("a compression that fitplug does not use")
    with archive.open(info) as stream:
        # Of this version alone is the length of the header bounded, by 2^16.
        if npy.read_magic(stream) != (1, 0):
            raise ValueError("another version of NumPy's format")
        own, columns_first, dtype = npy.read_array_header_1_0(stream)
        if dtype.kind not in "biufSU" or min(own, default=0) < 0:
            raise ValueError("not an array of numbers")
        if shape is not None and own != shape:
            raise ValueError("an array of another shape")
        size = math.prod(own) * dtype.itemsize
        if size > room or size > info.file_size:
            raise ValueError("more than there is room for")
        content = np.empty(size, dtype=np.uint8)
        at = 0
        while at < size:
            part = stream.read(min(_CHUNK, size - at))
            if not part:
                raise ValueError("the array ends early")
            content[at : at + len(part)] = np.frombuffer(part, dtype=np.uint8)
            at += len(part)
        if stream.read(1):  # which checks the sum of a whole member, too
            raise ValueError("more than the array")
    content.setflags(write=False)
    array = content.view(dtype) if dtype.itemsize else np.zeros(own, dtype)
    return array.reshape(own[::-1]).T if columns_first else array.reshape(own)
