"""Archives that carry a digest: a JSON header and arrays in one NumPy .npz file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fitplug.files.archive import Arrays, read_archive, write_archive
from fitplug.numeric import AnyArray

Header: TypeAlias = dict[str, Any]


def compute_digest(header: Header, arrays: Mapping[str, AnyArray]) -> str:
    """SHA-256, in hex, of a header and arrays, the same on every machine."""
    whole = hashlib.sha256(_json(header))
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        whole.update(f"\0{name} {little.dtype.str} {array.shape}\0".encode())
        whole.update(little.tobytes())
    return whole.hexdigest()


def write_with_digest(
    path: str | PathLike[str], header: Header, arrays: Arrays, mode: int = 0o666
) -> str:
    """Write the file whole or not at all; returns the digest in it. mode: its permissions. Raises
    OSError.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    text = np.frombuffer(_json(header), dtype=np.uint8)
    own = compute_digest(header, arrays)
    mark = np.frombuffer(own.encode(), dtype=np.uint8)
    try:
        number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(number, "wb") as file:
            write_archive(file, {"header": text, "digest": mark} | arrays)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return own


def read_with_digest(path: str | PathLike[str]) -> tuple[Header, Arrays, bool]:
    """Header and arrays, read-only, of a file that `write_with_digest` wrote, and whether they are those that
    it marked. Raises whatever zip, NumPy and JSON do on damage, and ValueError for a file that
    would unpack to more than `fitplug.files.archive` has room for.
    """
    with Path(path).open("rb") as file:
        header, arrays = read_archive(file)
    mark = arrays.pop("digest").tobytes().decode()
    return header, arrays, compute_digest(header, arrays) == mark


def _json(header: Header) -> bytes:
    return json.dumps(header, sort_keys=True, ensure_ascii=True).encode()
