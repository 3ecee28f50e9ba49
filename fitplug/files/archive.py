"""Archives of a JSON header and arrays: NumPy's .npz, with a digest, and read without trust.

A kilobyte of a zip file may unpack to a megabyte, so a small file could fill the memory. Before an
array is unpacked, the sizes in the archive's directory and the shape and type in front of the array
are compared with the room that there is, and nothing is read beyond these sizes.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.lib import format as npy

from fitplug.files.folders import replace_file
from fitplug.numeric import AnyArray

Arrays: TypeAlias = dict[str, AnyArray]
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

ROOM, GROWTH = 2**29, 64
"""A file is unpacked to at most ROOM bytes, or GROWTH times its own size if that is more."""

_HEADER = "header"
_HEADER_ROOM = 2**24
_CHUNK = 2**20
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def select_prefixed(arrays: Mapping[str, AnyArray], prefix: str) -> Arrays:
    """Select the arrays whose names begin with a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def write_archive(file: IO[bytes], arrays: Mapping[str, AnyArray]) -> None:
    """Write arrays, compressed if `read_archive` has room for them however small they become.

    Raises:
        OSError: The file cannot be written.
    """
    fits = sum(array.nbytes for array in arrays.values()) <= ROOM
    save = np.savez_compressed if fits else np.savez
    save(file, allow_pickle=False, **arrays)


def read_archive(
    file: IO[bytes], expected: Callable[[dict[str, Any]], Shapes] | None = None
) -> tuple[dict[str, Any], Arrays]:
    """Read a file that `write_archive` wrote, with a header.

    Args:
        file: Open for reading, and seekable.
        expected: Computes from the header the shapes of int64 arrays. Only these arrays are then
            read, of any size, and only with these shapes.

    Returns:
        The header, a JSON object, and the other arrays, read-only.

    Raises:
        ValueError: The file is not such an archive, or would unpack to more than there is room for.
        Exception: The file is damaged; the error comes from zipfile, zlib, NumPy or JSON.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if len(members) != len(archive.infolist()):
            raise ValueError("two arrays have the same name")
        info = members.pop(_HEADER)
        text = _read_array(archive, info, max(_HEADER_ROOM, GROWTH * info.compress_size))
        header = json.loads(text.tobytes())
        if not isinstance(header, dict):
            raise ValueError("the header is not a JSON object")
        if expected is None:
            room = max(ROOM, GROWTH * size) - info.file_size
            if sum(member.file_size for member in members.values()) > room:
                raise ValueError("the arrays together are larger than allowed")
            return header, {n: _read_array(archive, member, room) for n, member in members.items()}
        shapes = expected(header)
        return header, {n: _read_counts(archive, members[n], shapes[n]) for n in shapes}


def _read_counts(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, shape: tuple[int, ...]
) -> AnyArray:
    """Read an array of int64 whose shape is known."""
    return _read_array(archive, info, 8 * math.prod(shape), shape)


def _read_array(
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    room: int,
    shape: tuple[int, ...] | None = None,
) -> AnyArray:
    """Read one array of at most `room` bytes, and of the shape given if one is given.

    The sizes in the archive's directory may be false: zipfile reads no more than the directory
    says, and this function no more than the array's own header says.
    """
    if info.compress_type not in _COMPRESSIONS:
        raise ValueError("the array has a kind of compression that fitplug does not use")
    with archive.open(info) as stream:
        # Only in this version is the length of the header bounded, by 2^16.
        if npy.read_magic(stream) != (1, 0):
            raise ValueError("the array has an unknown version of NumPy's format")
        claimed, columns_first, dtype = npy.read_array_header_1_0(stream)
        if dtype.kind not in "biufSU" or min(claimed, default=0) < 0:
            raise ValueError("the array does not consist of numbers or texts")
        if shape is not None and claimed != shape:
            raise ValueError("the array does not have the expected shape")
        size = math.prod(claimed) * dtype.itemsize
        if size > room or size > info.file_size:
            raise ValueError("the array is larger than allowed")
        content = np.empty(size, dtype=np.uint8)
        at = 0
        while at < size:
            chunk = stream.read(min(_CHUNK, size - at))
            if not chunk:
                raise ValueError("the array ends early")
            content[at : at + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
            at += len(chunk)
        if stream.read(1):  # At the end of a member, zipfile also checks its checksum.
            raise ValueError("the file has more data after the end of the array")
    content.setflags(write=False)
    array = content.view(dtype) if dtype.itemsize else np.zeros(claimed, dtype)
    return array.reshape(claimed[::-1]).T if columns_first else array.reshape(claimed)


Header: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class EncodedJson:
    """A value of a header that is encoded already, as `json.dumps` does with sorted keys.

    Attributes:
        text: The value in ASCII.
    """

    text: str

    def decode(self) -> Any:
        """Decode the value."""
        return json.loads(self.text)


def compute_digest(header: Header, arrays: Mapping[str, AnyArray]) -> str:
    """Compute the SHA-256, in hex, of a header and arrays; it is the same on every machine."""
    digest = hashlib.sha256(_encode_json(header))
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(f"\0{name} {little.dtype.str} {array.shape}\0".encode())
        digest.update(little.tobytes())
    return digest.hexdigest()


def write_with_digest(
    path: str | PathLike[str], header: Header, arrays: Arrays, mode: int = 0o666
) -> str:
    """Write a file with a digest of its content, completely or not at all.

    Args:
        path: Where the file goes; a file that is there is replaced.
        header: What JSON can hold; a value may be `EncodedJson`.
        arrays: Arrays by name, neither "header" nor "digest".
        mode: The permissions of the file, less those that the umask takes away.

    Returns:
        The digest.

    Raises:
        OSError: The file cannot be written.
    """
    text = np.frombuffer(_encode_json(header), dtype=np.uint8)
    digest = compute_digest(header, arrays)
    stored = np.frombuffer(digest.encode(), dtype=np.uint8)
    with replace_file(path, mode=mode) as partial, partial.open("wb") as file:
        write_archive(file, {"header": text, "digest": stored} | arrays)
    return digest


def read_with_digest(path: str | PathLike[str]) -> tuple[Header, Arrays, str | None]:
    """Read a file that `write_with_digest` wrote, and check its digest.

    Returns:
        The header; the arrays, read-only; their digest, or None if the file holds another one.

    Raises:
        ValueError: The file would unpack to more than `fitplug.files.archive` has room for.
        Exception: The file is damaged; the error comes from zipfile, NumPy or JSON.
    """
    with Path(path).open("rb") as file:
        header, arrays = read_archive(file)
    stored = arrays.pop("digest").tobytes().decode()
    digest = compute_digest(header, arrays)
    return header, arrays, digest if digest == stored else None


def _encode_json(header: Header) -> bytes:
    """Encode a header as JSON with sorted keys, in ASCII."""
    members = [f"{_encode_value(name)}: {_encode_value(header[name])}" for name in sorted(header)]
    return f"{{{', '.join(members)}}}".encode("ascii")


def _encode_value(value: Any) -> str:
    """Encode a value, unless that was done before."""
    if isinstance(value, EncodedJson):
        return value.text
    return json.dumps(value, sort_keys=True, ensure_ascii=True)
