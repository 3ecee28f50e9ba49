"""Local reads: bytes of an open local file, by as few calls of the operating system as can be."""

from __future__ import annotations

import os

_READ_ONLY = os.O_RDONLY | getattr(os, "O_BINARY", 0)


def open_local(path: str) -> int:
    """Open a file for reading, and return its descriptor. A file object would take far longer."""
    return os.open(path, _READ_ONLY)


def read_at(descriptor: int, length: int, start: int) -> bytes:
    """Read up to `length` bytes from a position on; fewer at the end of the file."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, length, start)
    os.lseek(descriptor, start, os.SEEK_SET)
    return os.read(descriptor, length)
