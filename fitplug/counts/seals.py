"""Seals: what tells one count from every other, and tells nobody what was counted.

A seal is a commitment: SHA-256 over a secret random nonce, what was counted and the exact counts.
Nobody finds other counts with the same seal, so two tables of one seal are of one count. And the
seal may be published, in a ledger for instance: without the 256 random bits of the nonce nobody
can hold a guess of the counts against it, as they could against a digest of the counts alone.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

from fitplug.numeric import IntArray

NONCE_BYTES = 32


def draw_nonce() -> bytes:
    """A nonce, from the operating system's random numbers."""
    return secrets.token_bytes(NONCE_BYTES)


def seal_counts(
    nonce: bytes,
    said: Mapping[str, Any],
    counts: Mapping[tuple[str, ...], IntArray],
) -> str:
    """The seal, in hex, of counts: the same on every machine and in every order of the tables.

    nonce: of NONCE_BYTES, as secret as the counts. said: what is said of all counts, as JSON has
    it. counts: {attribute names: the table over them}.
    """
    keys = sorted(counts)
    shapes = [[list(names), list(counts[names].shape)] for names in keys]
    header = json.dumps({"said": said, "tables": shapes}, sort_keys=True).encode()
    commitment = hashlib.sha256(nonce)
    # With its length, so that no part of the header can be read as counts, or the other way.
    commitment.update(len(header).to_bytes(8, "little") + header)
    for names in keys:
        commitment.update(np.ascontiguousarray(counts[names], dtype="<i8").data)
    return commitment.hexdigest()
