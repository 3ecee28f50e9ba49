"""SipHash-2-4 of many messages at once, a keyed pseudo-random function with 128 bits of output.

Aumasson, Bernstein, "SipHash: a fast short-input PRF" (2012). The output of 128 bits is that of
the authors' reference code. Without the key its outputs cannot be distinguished from random ones.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug_dask import loops

Words: TypeAlias = npt.NDArray[np.uint64]

KEY_BYTES = 16


def siphash128(key: bytes, messages: npt.NDArray[np.uint8]) -> Words:
    """Hash n messages of equal length.

    Args:
        key: 16 secret bytes.
        messages: The bytes of the messages (n, length).

    Returns:
        The hashes (n, 2), each as two words of 64 bits.
    """
    tags = np.empty((len(messages), 2), dtype=np.uint64)
    loops.hash_messages(*halve_key(key), np.ascontiguousarray(messages), tags)
    return tags


def halve_key(key: bytes) -> tuple[int, int]:
    """Return a key of 16 bytes as the two numbers that the loops take."""
    return int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
