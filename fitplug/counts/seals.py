"""Seals: commitments that identify a count without revealing anything about it.

A seal is SHA-256 over a secret random nonce, a description of the count and the exact counts.
Nobody can find other counts with the same seal, so tables with equal seals are from one count. The
seal may be published, for instance in a ledger: nobody can test a guess of the counts against it
without the 256 random bits of the nonce. A digest of the counts alone would allow that test.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fitplug.numeric import IntArray

NONCE_BYTES = 32


def draw_nonce() -> bytes:
    """Draw a secret nonce from the operating system's random numbers."""
    return secrets.token_bytes(NONCE_BYTES)


def seal_counts(
    nonce: bytes,
    description: Mapping[str, Any],
    counts: Mapping[tuple[str, ...], IntArray],
) -> str:
    """Compute the seal of counts, which depends neither on the machine nor on the tables' order.

    Args:
        nonce: NONCE_BYTES bytes, as secret as the counts.
        description: The description of the count, in types that JSON has.
        counts: The table over each set of attributes.

    Returns:
        64 hexadecimal digits.
    """
    keys = sorted(counts)
    shapes = [[list(names), list(counts[names].shape)] for names in keys]
    header = json.dumps({"said": description, "tables": shapes}, sort_keys=True).encode()
    commitment = hashlib.sha256(nonce)
    # The length comes first, so that no header can be read as counts, or counts as a header.
    commitment.update(len(header).to_bytes(8, "little") + header)
    for names in keys:
        commitment.update(np.ascontiguousarray(counts[names], dtype="<i8").data)
    return commitment.hexdigest()


def seal_slab(nonce: bytes, slab: int, counts: IntArray) -> str:
    """Compute the seal of one slab of counts, in a process that has no other slab.

    Args:
        nonce: NONCE_BYTES bytes, as secret as the counts.
        slab: The number of the slab.
        counts: Its counts, in their order.

    Returns:
        64 hexadecimal digits.
    """
    commitment = hmac.new(nonce, f"slab {slab} of {counts.size}:".encode(), hashlib.sha256)
    commitment.update(np.ascontiguousarray(counts, dtype="<i8").data)
    return commitment.hexdigest()


def seal_slabs(nonce: bytes, description: Mapping[str, Any], seals: Sequence[str]) -> str:
    """Compute the seal of counts in slabs from the seals of all slabs.

    Args:
        nonce: The nonce of the slabs.
        description: The description of the count, in types that JSON has.
        seals: The seal of each slab.

    Returns:
        64 hexadecimal digits. The same counts in one process have a different seal.
    """
    said = json.dumps({"said": description, "slabs": list(seals)}, sort_keys=True)
    return hmac.new(nonce, said.encode(), hashlib.sha256).hexdigest()
