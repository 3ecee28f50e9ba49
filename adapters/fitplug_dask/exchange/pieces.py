"""Pieces: what one input sends to each output, as one stretch of bytes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ends: TypeAlias = npt.NDArray[np.int64]

_PLAIN, _PICKLED = b"\0", b"\1"


def pack_pieces(pieces: Mapping[int, Any], outputs: int) -> tuple[memoryview, Ends]:
    """Pack the pieces of one input.

    A piece of bytes stays as it is, so that large ones cost one copy; any other object is pickled.

    Args:
        pieces: The pieces by the number of their output.
        outputs: The number of outputs.

    Returns:
        The packed pieces in the order of the outputs, and where they begin and end (outputs + 1,).
        A piece that is missing takes no bytes; one that is empty takes one.
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
    """Return a piece: a memoryview of a piece of bytes, or the object that was pickled."""
    return packed[1:] if packed[:1] == _PLAIN else pickle.loads(packed[1:])
