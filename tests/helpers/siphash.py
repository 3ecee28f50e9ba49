"""A second implementation of SipHash."""

from __future__ import annotations


def scalar_siphash128(key: bytes, message: bytes) -> tuple[int, int]:
    """SipHash-2-4 with 128 bits of output, on Python integers: a second implementation."""
    mask = 2**64 - 1

    def rotated(x: int, b: int) -> int:
        return ((x << b) | (x >> (64 - b))) & mask

    def mixed(v: list[int]) -> list[int]:
        a, b, c, d = v
        a = (a + b) & mask
        c = (c + d) & mask
        b, d = rotated(b, 13) ^ a, rotated(d, 16) ^ c
        a = rotated(a, 32)
        c = (c + b) & mask
        a = (a + d) & mask
        b, d = rotated(b, 17) ^ c, rotated(d, 21) ^ a
        return [a, b, rotated(c, 32), d]

    k = [int.from_bytes(key[i : i + 8], "little") for i in (0, 8)]
    v = [
        int.from_bytes(b"somepseudorandomlygeneratedbytes"[i : i + 8], "big")
        for i in range(0, 32, 8)
    ]
    v = [x ^ k[i % 2] for i, x in enumerate(v)]
    v[1] ^= 0xEE
    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for i in range(0, len(padded), 8):
        word = int.from_bytes(padded[i : i + 8], "little")
        v[3] ^= word
        v = mixed(mixed(v))
        v[0] ^= word
    out = []
    for which, mark in ((2, 0xEE), (1, 0xDD)):
        v[which] ^= mark
        v = mixed(mixed(mixed(mixed(v))))
        out.append(v[0] ^ v[1] ^ v[2] ^ v[3])
    return out[0], out[1]
