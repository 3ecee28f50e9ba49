"""Archives with a digest: a JSON header and arrays in one NumPy .npz file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fitplug.files.archive import Arrays, read_archive, write_archive
from fitplug.files.replacement import replace_file
from fitplug.numeric import AnyArray

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
        Exception: The file is damaged; the error is that of zipfile, NumPy or JSON.
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
