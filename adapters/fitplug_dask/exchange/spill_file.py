"""Spill file: bytes on disk that end with the process, encrypted if they are confidential."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Any, NamedTuple

from fitplug_dask.encryption import TAG_BYTES, Cipher

_BLOCK_BYTES = 2**26
"""The most bytes that are encrypted at once; AES-GCM takes fewer than 2^31."""


class Place(NamedTuple):
    """Where a message is in the file.

    Attributes:
        position: Where it begins.
        block: The number of its first block among all blocks of the file.
        size: The bytes of the message.
    """

    position: int
    block: int
    size: int


class SpillFile:
    """A file without a name, which is gone when the process ends, however it ends.

    Only its owner may read it. What is confidential is written under a key that is drawn for this
    file and lives in memory only. The file is closed when nothing refers to it any more, so that
    nobody who still reads finds another file under its descriptor.
    """

    def __init__(self, folder: str | None, confidential: bool) -> None:
        """Open an empty file.

        Args:
            folder: The folder whose disk holds it; None for that of temporary files.
            confidential: Whether it is encrypted.

        Raises:
            OSError: No file can be written there.
            EncryptionMissingError: The package cryptography is not installed.
        """
        self._descriptor: int | None = None
        self._cipher = Cipher() if confidential else None
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            self._descriptor = os.dup(file.fileno())
        self._blocks = 0
        self.size = 0

    def __del__(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)

    def append(self, message: bytes, context: bytes) -> Place:
        """Append a message; only one thread may do so at a time.

        Args:
            message: The message.
            context: What names the message, so that no other can be read in its place.

        Raises:
            OSError: The file cannot be written, for instance as the disk is full.
        """
        assert self._descriptor is not None
        place = Place(self.size, self._blocks, len(message))
        rest = memoryview(message)
        while rest:
            content: Any = rest[:_BLOCK_BYTES]
            if self._cipher is not None:
                content = memoryview(self._cipher.encrypt(self._blocks, content, context))
            # The number is used up even if writing fails: no nonce may serve two blocks.
            self._blocks += 1
            while content:
                written = os.pwrite(self._descriptor, content, self.size)
                self.size += written
                content = content[written:]
            rest = rest[_BLOCK_BYTES:]
        return place

    def read(self, place: Place, context: bytes) -> memoryview:
        """Read a message; any thread may do so at any time.

        Raises:
            OSError: The file cannot be read.
            ValueError: It was changed.
        """
        assert self._descriptor is not None
        position, block, _ = place
        found = []
        for start in range(0, place.size, _BLOCK_BYTES):
            size = min(_BLOCK_BYTES, place.size - start)
            stored = size if self._cipher is None else size + TAG_BYTES
            content = _read_fully(self._descriptor, stored, position)
            if self._cipher is not None:
                content = self._cipher.decrypt(block, content, context)
            found.append(content)
            position, block = position + stored, block + 1
        return memoryview(found[0] if len(found) == 1 else b"".join(found))


def _read_fully(descriptor: int, size: int, position: int) -> bytes:
    stretches = []
    while size:
        content = os.pread(descriptor, size, position)
        if not content:
            raise OSError("the file ends early")
        stretches.append(content)
        size, position = size - len(content), position + len(content)
    return stretches[0] if len(stretches) == 1 else b"".join(stretches)
