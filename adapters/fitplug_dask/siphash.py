"""SipHash-2-4 of many messages at once, a keyed pseudo-random function with 128 bits of output.

Aumasson, Bernstein, "SipHash: a fast short-input PRF" (2012); the output of 128 bits is that of
the authors' reference code. Without the key its outputs are not told from random ones.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]

KEY_BYTES = 16

_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def siphash128(key: bytes, messages: npt.NDArray[np.uint8]) -> Words:
    """Hashes (n, 2) of n messages of equal length, bytes (n, length). key: 16 bytes."""
    n, length = messages.shape
    first, second = np.frombuffer(key, dtype="<u8")
    state = [np.full(n, start, dtype=np.uint64) for start in _START]
    for i, part in enumerate((first, second, first, second)):
        state[i] ^= part
    state[1] ^= np.uint64(0xEE)  # the variant of 128 bits
    spare = np.empty(n, dtype=np.uint64)
    for word in _words(messages, length):
        state[3] ^= word
        _rounds(state, spare, 2)
        state[0] ^= word
    out = np.empty((n, 2), dtype=np.uint64)
    for half, (which, mark) in enumerate(((2, 0xEE), (1, 0xDD))):
        state[which] ^= np.uint64(mark)
        _rounds(state, spare, 4)
        out[:, half] = state[0] ^ state[1] ^ state[2] ^ state[3]
    return out


def _words(messages: npt.NDArray[np.uint8], length: int) -> list[Words]:
    """The 64-bit words of each message, its length in the last byte of the last."""
    padded = np.zeros((len(messages), 8 * (length // 8 + 1)), dtype=np.uint8)
    padded[:, :length] = messages
    padded[:, -1] = length & 0xFF
    return [np.ascontiguousarray(word) for word in padded.view("<u8").T]


def _rounds(state: list[Words], spare: Words, rounds: int) -> None:
    a, b, c, d = state
    for _ in range(rounds):
        a += b
        _rotate(b, 13, spare)
        b ^= a
        _rotate(a, 32, spare)
        c += d
        _rotate(d, 16, spare)
        d ^= c
        a += d
        _rotate(d, 21, spare)
        d ^= a
        c += b
        _rotate(b, 17, spare)
        b ^= c
        _rotate(c, 32, spare)


def _rotate(words: Words, bits: int, spare: Words) -> None:
    """Rotates each word to the left, in place."""
    np.right_shift(words, np.uint64(64 - bits), out=spare)
    words <<= np.uint64(bits)
    words |= spare
