"""Loops: what is done for every row, compiled from `compiled_loops.pyx`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Lookup(NamedTuple):
    """What a column adds to its rows' cells: terms[value - low], or the last term for a null.

    Attributes:
        values: The values (n,), integers of up to 32 bits, or int64.
        low: The value of the first term, from -2^62 to 2^62.
        terms: The terms (m,), int64, of values and, if there are bits, of null behind them.
        strict: Whether values beyond the terms are refused. Otherwise they take the first or the
            last of the values' terms.
        doubtful: Whether a term may be negative.
        valid: Bits, lowest first, of which the one at start + i says whether value i is there; None
            if all are.
        start: The position of the first bit.
    """

    values: Array
    low: int
    terms: Array
    strict: bool
    doubtful: bool
    valid: npt.NDArray[np.uint8] | None = None
    start: int = 0


try:
    from fitplug_dask.compiled_loops import (
        add_shares,
        add_weights,
        add_weights_of_pairs,
        encode_numbers,
        hash_integers,
        hash_messages,
        hash_stretches,
        increment,
        increment_pairs,
        locate,
        select_rows,
        sort_records,
    )
except ImportError:
    raise ImportError(
        "the compiled loops of fitplug_dask are missing. Install fitplug again, from a wheel "
        "or with a C compiler."
    ) from None

__all__ = [
    "Lookup",
    "add_shares",
    "add_weights",
    "add_weights_of_pairs",
    "encode_numbers",
    "hash_integers",
    "hash_messages",
    "hash_stretches",
    "increment",
    "increment_pairs",
    "locate",
    "select_rows",
    "sort_records",
]
