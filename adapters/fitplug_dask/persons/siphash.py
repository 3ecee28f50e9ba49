"""SipHash-2-4 of many messages at once, a keyed pseudo-random function with 128 bits of output.

Aumasson, Bernstein, "SipHash: a fast short-input PRF" (2012). The output of 128 bits is that of
the authors' reference code. Without the key its outputs cannot be distinguished from random ones.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]

KEY_BYTES = 16

_INITIAL_STATE = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def siphash128(key: bytes, messages: npt.NDArray[np.uint8]) -> Words:
    """Hash n messages of equal length.

    Args:
        key: 16 secret bytes.
        messages: The bytes of the messages (n, length).

    Returns:
        The hashes (n, 2), each as two words of 64 bits.
    """
    n, length = messages.shape
    first, second = np.frombuffer(key, dtype="<u8")
    state = [np.full(n, initial, dtype=np.uint64) for initial in _INITIAL_STATE]
    for i, half in enumerate((first, second, first, second)):
        state[i] ^= half
    state[1] ^= np.uint64(0xEE)  # the variant of 128 bits
    spare = np.empty(n, dtype=np.uint64)
    for word in _split_into_words(messages, length):
        state[3] ^= word
        _mix(state, spare, 2)
        state[0] ^= word
    hashes = np.empty((n, 2), dtype=np.uint64)
    for half, (index, constant) in enumerate(((2, 0xEE), (1, 0xDD))):
        state[index] ^= np.uint64(constant)
        _mix(state, spare, 4)
        hashes[:, half] = state[0] ^ state[1] ^ state[2] ^ state[3]
    return hashes


def _split_into_words(messages: npt.NDArray[np.uint8], length: int) -> list[Words]:
    """Return the 64-bit words of each message, with its length in the last byte of the last."""
    padded = np.zeros((len(messages), 8 * (length // 8 + 1)), dtype=np.uint8)
    padded[:, :length] = messages
    padded[:, -1] = length & 0xFF
    return [np.ascontiguousarray(word) for word in padded.view("<u8").T]


def _mix(state: list[Words], spare: Words, rounds: int) -> None:
    """Mix the four words of the state in place, in some SipRounds."""
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
    """Rotate each word to the left, in place."""
    np.right_shift(words, np.uint64(64 - bits), out=spare)
    words <<= np.uint64(bits)
    words |= spare
