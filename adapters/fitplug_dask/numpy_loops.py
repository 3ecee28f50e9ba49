"""The loops of `fitplug_dask.loops` in NumPy, for where the compiled loops were not built.

They return the same in about twice the time, and hold Python's lock while they count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Lookup(NamedTuple):
    """What a column adds to its rows' cells: terms[value - low].

    Attributes:
        values: The values (n,), integers of up to 32 bits, or int64.
        low: The value of the first term, from -2^62 to 2^62.
        terms: The terms (m,), int64.
        strict: Whether values beyond the terms are refused. Otherwise they take the first or the
            last term.
        doubtful: Whether a term may be negative.
    """

    values: Array
    low: int
    terms: Array
    strict: bool
    doubtful: bool


def locate(columns: Sequence[Lookup], shared: int, cells: Array) -> None:
    """Find the cells of rows: the sum of what all rows share and of the terms of all columns.

    Args:
        columns: The lookups of the columns, each with values (n,).
        shared: What all rows share.
        cells: The cells (n,), int64, which are overwritten.

    Raises:
        IndexError: A value of a strict column is beyond its terms.
        TypeError: Values have another type.
        ValueError: A column has more or fewer values than there are cells, or no term.
    """
    cells.fill(shared)
    if not len(cells):
        return
    for values, low, terms, strict, _ in columns:
        kind = values.dtype
        if kind.kind not in "iu" or kind == np.uint64 or not kind.isnative:
            raise TypeError("values must be integers of up to 32 bits, or int64")
        if len(values) != len(cells) or not len(terms):
            raise ValueError("there must be a term, and a value for each cell")
        indices = values.astype(np.int64)
        high = low + len(terms) - 1
        if not (indices.min() >= low and indices.max() <= high):
            if strict:
                raise IndexError("an index points nowhere")
            np.clip(indices, low, high, out=indices)
        indices -= low
        cells += terms[indices]


def increment(counter: Array, cells: Array) -> None:
    """Count each row in its cell.

    Args:
        counter: The counts of all cells, uint32 or int64, which are increased.
        cells: The cells (n,) of the rows. Negative cells are left out.

    Raises:
        IndexError: A cell is beyond the counter. The counts then mean nothing.
    """
    if len(cells) and cells.min() < 0:
        cells = cells[cells >= 0]
    # A Python number instead would take 50 times as long with narrow counters.
    np.add.at(counter, cells, counter.dtype.type(1))


def increment_pairs(counter: Array, high: Array, size: int, low: Array) -> None:
    """Count each row in the cell high * size + low.

    Args:
        counter: The counts of all cells, uint32 or int64, which are increased.
        high: The higher digits (n,) of the cells.
        size: The number of values of the lower digit.
        low: The lower digits (n,) of the cells.

    Raises:
        IndexError: A digit is negative, or a cell is beyond the counter. The counts then mean
            nothing.
        ValueError: A row lacks a digit.
    """
    if len(high) != len(low):
        raise ValueError("each row must have both digits")
    if len(low) and (high.min() < 0 or low.min() < 0):
        raise IndexError("a cell lies beyond the table")
    np.add.at(counter, high * size + low, counter.dtype.type(1))


def add_weights(counter: Array, cells: Array, weights: Array) -> None:
    """Add the weight of each row to its cell.

    The caller ensures that no sum exceeds what int64 holds.

    Args:
        counter: The sums of all cells, int64, which are increased.
        cells: The cells (n,) of the rows. Negative cells are left out.
        weights: The weights (n,) of the rows, int64.

    Raises:
        IndexError: A cell is beyond the counter. The sums then mean nothing.
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
    """Add the weight of each row to the cell high * size + low.

    The caller ensures that no sum exceeds what int64 holds.

    Args:
        counter: The sums of all cells, int64, which are increased.
        high: The higher digits (n,) of the cells.
        size: The number of values of the lower digit.
        low: The lower digits (n,) of the cells.
        weights: The weights (n,) of the rows, int64.

    Raises:
        IndexError: A digit is negative, or a cell is beyond the counter. The sums then mean
            nothing.
    """
    if len(high) != len(low):
        raise ValueError("each row must have both digits")
    if len(high) != len(weights):
        raise ValueError("each row must have a weight")
    if len(low) and (high.min() < 0 or low.min() < 0):
        raise IndexError("a cell lies beyond the table")
    np.add.at(counter, high * size + low, weights)


def add_shares(
    counter: Array, cells: Array, codes: Array, shares: int, size: int, weights: Array | None
) -> int:
    """Divide the record of each row between the cells of a measure.

    A row with the code a has shares - a in the first cell of the measure and a in the second; all
    are in the third if the code is shares + 1 and there is a third. The caller ensures that no sum
    exceeds what int64 holds.

    Args:
        counter: The sums of all cells, int64, those of a measure next to each other. They are
            increased.
        cells: The cells (n,) of the rows on all other attributes.
        codes: The codes (n,) of the rows on the measure. Rows with a negative cell or code are left
            out.
        shares: The number of shares of a record.
        size: The number of cells of the measure, 2 or 3.
        weights: The number of records (n,) of the rows, int64; None if each is one.

    Returns:
        The number of rows that were counted.

    Raises:
        IndexError: A cell or a code is beyond the table. The sums then mean nothing.
    """
    if len(cells) != len(codes) or (weights is not None and len(cells) != len(weights)):
        raise ValueError("each row must have a cell, a code and a weight")
    inside = (cells >= 0) & (codes >= 0)
    if not inside.all():
        cells, codes = cells[inside], codes[inside]
        weights = None if weights is None else weights[inside]
    beyond = len(cells) and (cells.max() >= len(counter) // size or codes.max() > shares + size - 2)
    if beyond:
        raise IndexError("a cell lies beyond the table")
    records = 1 if weights is None else weights
    valued = codes <= shares
    np.add.at(counter, cells * size, np.where(valued, shares - codes, 0) * records)
    np.add.at(counter, cells * size + 1, np.where(valued, codes, 0) * records)
    if size == 3:
        np.add.at(counter, cells * size + 2, np.where(valued, 0, shares) * records)
    return len(cells)


def encode_numbers(
    values: Array,
    valid: Array | None,
    start: int,
    first: float,
    last: float,
    unit: float,
    shares: int,
    null_code: int,
    codes: Array,
) -> None:
    """Encode numbers as their distances from the lower bound of a measure, in units.

    They are clamped to the bounds, and rounded to the nearest unit, halves upwards.

    Args:
        values: The numbers (n,), integers of up to 32 bits, int64, or floats of 32 or 64 bits.
        valid: Bits, lowest first, of which the one at start + i says whether value i is there;
            None if all are.
        start: The position of the first bit.
        first: The lower bound.
        last: The upper bound.
        unit: The unit.
        shares: The units between the bounds.
        null_code: The code of numbers that are not there, or NaN.
        codes: The codes (n,), int64, which are overwritten.
    """
    missing_bits = valid is not None and 8 * len(valid) < start + len(values)
    if len(codes) != len(values) or missing_bits or start < 0:
        raise ValueError("each value must have a code, and a bit that says whether it is there")
    if values.dtype.kind == "f" or not all(float(v).is_integer() for v in (first, last, unit)):
        floats = values.astype(np.float64)
        missing = np.isnan(floats)
        near = (np.clip(np.where(missing, first, floats), first, last) - first) / unit + 0.5
        codes[:] = np.where(missing, null_code, np.minimum(near.astype(np.int64), shares))
    else:
        step = int(unit)
        above = np.clip(values.astype(np.int64), int(first), int(last)) - int(first)
        codes[:] = (2 * above + step) // (2 * step)
    if valid is not None:
        own = valid[start >> 3 : start + len(values) + 7 >> 3]
        held = np.unpackbits(own, bitorder="little")[start & 7 :][: len(values)]
        codes[held == 0] = null_code
