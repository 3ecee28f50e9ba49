"""Depot: one process's store of pieces until they are gathered, in memory and then on disk.

When the pieces in memory exceed a limit, all of them are written to a file, ordered by output, so
that gathering an output takes few long reads. The file is gone when the process ends, and is
encrypted if the pieces are confidential.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from fitplug_dask.encryption import KEY_BYTES, decrypt_long, encrypt_blocks

Ends: TypeAlias = npt.NDArray[np.int64]

_PLAIN, _PICKLED = b"\0", b"\1"


def pack_pieces(pieces: Mapping[int, Any], outputs: int) -> tuple[memoryview, Ends]:
    """Pack the pieces of one input.

    Pieces of bytes are packed as they are, so that large ones are copied only once; all other
    objects are pickled.

    Args:
        pieces: The pieces by the number of their output.
        outputs: The number of outputs.

    Returns:
        The packed pieces in the order of the outputs, and where they begin and end (outputs + 1,).
        A missing piece takes no bytes; an empty one takes one byte.
    """
    stretches: list[Any] = []
    lengths = np.zeros(outputs, dtype=np.int64)
    for output in sorted(pieces):
        piece = pieces[output]
        plain = isinstance(piece, bytes | bytearray | memoryview)
        kind = _PLAIN if plain else _PICKLED
        content = memoryview(piece if plain else pickle.dumps(piece, protocol=5)).cast("B")
        lengths[output] = 1 + content.nbytes
        stretches += [kind, content]
    return memoryview(b"".join(stretches)), np.append(np.int64(0), np.cumsum(lengths))


def unpack_piece(packed: memoryview) -> Any:
    """Unpack a piece: return a memoryview if it was bytes, and otherwise the pickled object."""
    return packed[1:] if packed[:1] == _PLAIN else pickle.loads(packed[1:])


class Place(NamedTuple):
    """The place of a message in the file.

    Attributes:
        position: Where it begins.
        size: Its size in bytes.
    """

    position: int
    size: int


class SpillFile:
    """A file without a name, which is gone when the process ends, however it ends.

    Only its owner may read it. Confidential data are encrypted under a key that is drawn for this
    file and exists only in memory. The file is closed only when nothing refers to it any more, so
    that its descriptor cannot mean another file while a thread still reads.
    """

    def __init__(self, folder: str | None, confidential: bool) -> None:
        """Open an empty file.

        Args:
            folder: The folder on whose disk the file is; None for the folder of temporary files.
            confidential: Whether the file is encrypted.

        Raises:
            OSError: No file can be written there.
        """
        self._descriptor: int | None = None
        self._key = secrets.token_bytes(KEY_BYTES) if confidential else None
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            self._descriptor = os.dup(file.fileno())
        self._access = threading.Lock()
        self.size = 0

    def __del__(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)

    def append(self, message: bytes, context: bytes) -> Place:
        """Append a message; only one thread may do so at a time.

        Args:
            message: The message.
            context: A name of the message, so that no other message can be read in its place.

        Raises:
            OSError: The file cannot be written, for instance because the disk is full.
            EncryptionMissingError: The package cryptography is not installed.
        """
        start, blocks = self.size, iter([message])
        if self._key is not None and message:
            blocks = encrypt_blocks(self._key, message, context)
        for block in blocks:
            content = memoryview(block)
            while content:
                written = self._write_at(self.size, content)
                self.size += written
                content = content[written:]
        return Place(start, self.size - start)

    def read(self, place: Place, context: bytes) -> memoryview:
        """Read a message; any thread may do so at any time.

        Raises:
            OSError: The file cannot be read.
            ValueError: It was changed.
        """
        content = self._read_fully(*place)
        if self._key is not None:
            content = decrypt_long(self._key, content, context)
        return memoryview(content)

    def _read_fully(self, position: int, size: int) -> bytes:
        stretches = []
        while size:
            content = self._read_at(position, size)
            if not content:
                raise OSError("the file is shorter than expected")
            stretches.append(content)
            size, position = size - len(content), position + len(content)
        return b"".join(stretches)

    # Windows has no os.pread and os.pwrite, so a lock keeps other threads from moving the position.

    def _read_at(self, position: int, size: int) -> bytes:
        with self._access:
            return os.read(self._seek(position), size)

    def _write_at(self, position: int, content: memoryview) -> int:
        with self._access:
            return os.write(self._seek(position), content)

    def _seek(self, position: int) -> int:
        """Move to a position of the file, and return its descriptor."""
        assert self._descriptor is not None
        os.lseek(self._descriptor, position, os.SEEK_SET)
        return self._descriptor


Stretches: TypeAlias = list[tuple[int, memoryview]]
"""The packed pieces of one output, each with the number of its deposit."""


@dataclass(frozen=True, repr=False)
class _Deposit:
    """The packed pieces of one input, in memory."""

    number: int
    packed: memoryview
    ends: Ends


@dataclass(frozen=True, repr=False)
class _Generation:
    """Deposits that were written to the file together.

    Attributes:
        file: The file.
        numbers: The numbers (d,) of the deposits.
        ends: Where the piece of each deposit ends among those of its output (d, outputs).
        places: Where the pieces of each output are in the file (outputs, 2).
    """

    file: SpillFile
    numbers: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]


class Depot:
    """One process's pieces of one exchange. They are confidential.

    Attributes:
        name: A unique name, also among the depots of earlier processes.
        dropped: Set when nobody will read the depot any more.
    """

    def __init__(self, outputs: int, memory: int, folder: str | None, confidential: bool) -> None:
        """Open an empty depot.

        Args:
            outputs: The number of outputs.
            memory: The most bytes of pieces in memory.
            folder: Where a file may be written; None for this process's folder of temporary files.
            confidential: Whether the file is encrypted.
        """
        self.name = uuid4().hex
        self.dropped = threading.Event()
        self._outputs, self._memory, self._folder = outputs, memory, folder
        self._confidential = confidential
        self._lock = threading.Lock()
        self._deposits = 0
        self._in_memory: list[_Deposit] = []
        self._bytes_in_memory = 0
        self._generations: list[_Generation] = []
        self._file: SpillFile | None = None

    def __repr__(self) -> str:
        return "Depot(pieces confidential)"

    @property
    def spilled_bytes(self) -> int:
        """The number of bytes in the file."""
        return 0 if self._file is None else self._file.size

    def deposit(self, pieces: Mapping[int, Any]) -> int:
        """Store the pieces of one input, all or none of them.

        Returns:
            The number of the deposit.

        Raises:
            OSError: The file cannot be written.
            EncryptionMissingError: The file would be confidential and cannot be encrypted.
        """
        packed, ends = pack_pieces(pieces, self._outputs)
        with self._lock:  # other threads wait until earlier pieces are written
            if self._in_memory and self._bytes_in_memory + packed.nbytes > self._memory:
                self._spill()
            number = self._deposits
            self._deposits += 1
            self._in_memory.append(_Deposit(number, packed, ends))
            self._bytes_in_memory += packed.nbytes
        return number

    def collect(self, output: int) -> Stretches:
        """Return the packed pieces of one output.

        Raises:
            OSError: The file cannot be read.
            ValueError: The file was changed.
        """
        with self._lock:
            deposits, generations = list(self._in_memory), list(self._generations)
        pieces: Stretches = []
        for one in generations:
            ends = one.ends[:, output]
            if not ends[-1]:
                continue
            content = one.file.read(Place(*one.places[output].tolist()), _name(output))
            starts = np.append(0, ends[:-1])
            for i in np.flatnonzero(ends > starts):
                pieces.append((int(one.numbers[i]), content[starts[i] : ends[i]]))
        for deposit in deposits:
            start, end = deposit.ends[output], deposit.ends[output + 1]
            if end > start:
                pieces.append((deposit.number, deposit.packed[start:end]))
        return pieces

    def _spill(self) -> None:
        """Write all pieces in memory to the file."""
        if self._file is None:
            self._file = SpillFile(self._folder, self._confidential)
        places = np.zeros((self._outputs, 2), dtype=np.int64)
        for output in range(self._outputs):
            run = b"".join(
                one.packed[one.ends[output] : one.ends[output + 1]] for one in self._in_memory
            )
            places[output] = self._file.append(run, _name(output))
        numbers = np.array([one.number for one in self._in_memory], dtype=np.int64)
        ends = np.cumsum([np.diff(one.ends) for one in self._in_memory], axis=0)
        self._generations.append(_Generation(self._file, numbers, ends, places))
        self._in_memory, self._bytes_in_memory = [], 0


def _name(output: int) -> bytes:
    """Return the encryption context of an output, so that no other can be read in its place."""
    return output.to_bytes(8, "big")
