"""The loops of `fitplug_dask.loops` in NumPy, where the compiled ones were not built.

They do the same in about twice the time, and hold Python's lock while they count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Lookup(NamedTuple):
    """What a column adds to its rows' cells: terms[value - low].

    values: (n,) integers up to 32 bits, or int64; low: from -2^62 to 2^62; terms: int64. Values
    beyond the terms take the first or the last one, unless `strict`; doubtful: whether a term may
    be negative.
    """

    values: Array
    low: int
    terms: Array
    strict: bool
    doubtful: bool


def locate(columns: Sequence[Lookup], shared: int, cells: Array) -> None:
    """Write to `cells`, int64 (n,), what all rows share and the terms of all columns.

    Raises IndexError for a value of a strict column beyond its terms.
    """
    cells.fill(shared)
    for values, low, terms, strict, _ in columns:
        at = values.astype(np.int64)
        high = low + len(terms) - 1
        if len(at) and not (at.min() >= low and at.max() <= high):
            if strict:
                raise IndexError("an index points nowhere")
            np.clip(at, low, high, out=at)
        at -= low
        cells += terms[at]


def increment(counter: Array, cells: Array) -> None:
    """Count each of `cells` (n,) in `counter`, uint32 or int64; negative ones are left out.

    Raises IndexError for a cell beyond the counter; what is counted then means nothing.
    """
    if len(cells) and cells.min() < 0:
        cells = cells[cells >= 0]
    # A Python number instead would take 50 times as long with narrow counters.
    np.add.at(counter, cells, counter.dtype.type(1))


def increment_pairs(counter: Array, high: Array, size: int, low: Array) -> None:
    """Count each cell high * size + low of digits (n,).

    Raises IndexError for a digit that is negative or a cell beyond the counter; likewise.
    """
    if len(low) and (high.min() < 0 or low.min() < 0):
        raise IndexError("a cell lies beyond the table")
    np.add.at(counter, high * size + low, counter.dtype.type(1))


def add_weights(counter: Array, cells: Array, weights: Array) -> None:
    """Add the weights, int64 (n,), of the rows in each of `cells` (n,) to `counter`, int64;
    negative cells are left out.

    Raises IndexError for a cell beyond the counter; what is counted then means nothing. The
    caller sees to it that no sum exceeds what int64 holds.
    """
    if len(cells) != len(weights):
        raise ValueError("each row must have a weight")
    if len(cells) and cells.min() < 0:
        inside = cells >= 0
        cells, weights = cells[inside], weights[inside]
    np.add.at(counter, cells, weights)


def add_weights_of_pairs(
    counter: Array, high: Array, size: int, low: Array, weights: Array
) -> None:
    """Add the weights (n,) of the rows in each cell high * size + low of digits (n,).

    Raises IndexError for a digit that is negative or a cell beyond the counter; likewise.
    """
    if len(high) != len(weights):
        raise ValueError("each row must have a weight")
    if len(low) and (high.min() < 0 or low.min() < 0):
        raise IndexError("a cell lies beyond the table")
    np.add.at(counter, high * size + low, weights)
