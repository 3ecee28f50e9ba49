"""Depot: the pieces that one process keeps until they are gathered, in memory and then on disk.

Pieces in memory take a bounded number of bytes. Beyond that all of them are written to a file, the
pieces of each output together, so that an output is gathered by few long reads.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from fitplug_dask.exchange.pieces import Ends, pack_pieces
from fitplug_dask.exchange.spill_file import Place, SpillFile

Stretches: TypeAlias = list[tuple[int, memoryview]]
"""Packed pieces of one output, each with the number of its deposit."""


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
        places: Where the pieces of each output are in the file (outputs, 3).
    """

    file: SpillFile
    numbers: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]


class Depot:
    """The pieces that one process keeps of one exchange. They are confidential.

    Attributes:
        name: What distinguishes this depot from all others, also from those of earlier processes.
    """

    def __init__(self, outputs: int, memory: int, folder: str | None, confidential: bool) -> None:
        """Open an empty depot.

        Args:
            outputs: The number of outputs.
            memory: The most bytes of pieces in memory.
            folder: Where a file may be written; None for where this process keeps temporary files.
            confidential: Whether the file is encrypted.
        """
        self.name = uuid4().hex
        self._outputs, self._memory, self._folder = outputs, memory, folder
        self._confidential = confidential
        self._lock = threading.Lock()
        self._deposits = 0
        self._held: list[_Deposit] = []
        self._held_bytes = 0
        self._generations: list[_Generation] = []
        self._file: SpillFile | None = None

    def __repr__(self) -> str:
        return "Depot(pieces confidential)"

    @property
    def spilled_bytes(self) -> int:
        """The number of bytes in the file."""
        return 0 if self._file is None else self._file.size

    def deposit(self, pieces: Mapping[int, Any]) -> int:
        """Keep the pieces of one input, all or none of them.

        Returns:
            The number of the deposit.

        Raises:
            OSError: The file cannot be written.
            EncryptionMissingError: The file would be confidential and cannot be encrypted.
        """
        packed, ends = pack_pieces(pieces, self._outputs)
        with self._lock:  # whoever deposits waits until the pieces before are written
            if self._held and self._held_bytes + packed.nbytes > self._memory:
                self._spill()
            number = self._deposits
            self._deposits += 1
            self._held.append(_Deposit(number, packed, ends))
            self._held_bytes += packed.nbytes
        return number

    def collect(self, output: int) -> Stretches:
        """Return the packed pieces of one output.

        Raises:
            OSError: The file cannot be read.
            ValueError: The file was changed.
        """
        with self._lock:
            held, generations = list(self._held), list(self._generations)
        found: Stretches = []
        for one in generations:
            ends = one.ends[:, output]
            if not ends[-1]:
                continue
            content = one.file.read(Place(*one.places[output].tolist()), _name(output))
            starts = np.append(0, ends[:-1])
            for i in np.flatnonzero(ends > starts):
                found.append((int(one.numbers[i]), content[starts[i] : ends[i]]))
        for deposit in held:
            start, end = deposit.ends[output], deposit.ends[output + 1]
            if end > start:
                found.append((deposit.number, deposit.packed[start:end]))
        return found

    def _spill(self) -> None:
        """Write all pieces in memory to the file."""
        if self._file is None:
            self._file = SpillFile(self._folder, self._confidential)
        places = np.zeros((self._outputs, 3), dtype=np.int64)
        for output in range(self._outputs):
            run = b"".join(
                one.packed[one.ends[output] : one.ends[output + 1]] for one in self._held
            )
            places[output] = self._file.append(run, _name(output))
        numbers = np.array([one.number for one in self._held], dtype=np.int64)
        ends = np.cumsum([np.diff(one.ends) for one in self._held], axis=0)
        self._generations.append(_Generation(self._file, numbers, ends, places))
        self._held, self._held_bytes = [], 0


def _name(output: int) -> bytes:
    """Return the context of the pieces of an output, so that no other output is read as it."""
    return output.to_bytes(8, "big")
