"""The compiled loops, and what each does: they run without Python's lock.

Stubs have no bodies, so the tests hold each loop to one in NumPy (`tests/helpers`).
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug_dask.encoding.column_encoder import Lookup

Array: TypeAlias = npt.NDArray[Any]
Words: TypeAlias = npt.NDArray[np.uint64]

def locate(columns: list[Lookup], shared: int, cells: Array) -> None:
    """Find the cells of rows: the sum of what all rows share and of the terms of all columns.

    Args:
        columns: The lookups of the columns, each with values (n,).
        shared: What all rows share.
        cells: The cells (n,), int64, which are overwritten.

    Raises:
        IndexError: A value of a strict column is beyond its terms.
        TypeError: Values have another type.
        ValueError: A column has no term, too few bits, or more or fewer values than cells.
    """

def increment(counter: Array, cells: Array) -> None:
    """Count each row in its cell.

    Args:
        counter: The counts of all cells, uint32 or int64, which are increased.
        cells: The cells (n,) of the rows. Negative cells are left out.

    Raises:
        IndexError: A cell is beyond the counter. The counts then mean nothing.
    """

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

def hash_messages(first: int, second: int, messages: npt.NDArray[np.uint8], tags: Words) -> None:
    """Hash n messages of equal length.

    Args:
        first: The first half of the key.
        second: The second half of the key.
        messages: The bytes of the messages (n, length).
        tags: The hashes (n, 2), each as two words of 64 bits, which are overwritten.

    Raises:
        ValueError: There are more or fewer hashes than messages.
    """

def hash_stretches(
    first: int,
    second: int,
    content: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    tags: Words,
) -> None:
    """Hash n stretches of bytes, all of one length together.

    Args:
        first: The first half of the key.
        second: The second half of the key.
        content: The bytes.
        offsets: Where each stretch begins, and where the last one ends (n + 1,).
        tags: The hashes (n, 2), which are overwritten.

    Raises:
        IndexError: A stretch lies beyond the content.
        ValueError: There are more or fewer hashes than stretches.
    """

def hash_integers(first: int, second: int, values: npt.NDArray[np.int64], tags: Words) -> None:
    """Hash n integers by their eight bytes and a ninth for their sign.

    Args:
        first: The first half of the key.
        second: The second half of the key.
        values: The integers (n,).
        tags: The hashes (n, 2), which are overwritten.

    Raises:
        ValueError: There are more or fewer hashes than integers.
    """

def select_rows(
    first: int,
    second: int,
    tags: Words,
    words: Words,
    limit: int,
    selected: npt.NDArray[np.int64],
) -> int:
    """Select the rows of lowest priority of each person.

    The priority of a row is the first half of the hash of its tag and its words. Rows of equal
    priority are ranked by their words, the last one first, so that only equal rows are
    interchangeable.

    Args:
        first: The first half of the key of priorities.
        second: The second half of that key.
        tags: The hashes (n, 2) of the rows' persons.
        words: The cells (n, w) of the rows.
        limit: The most rows that a person keeps.
        selected: The positions of the selected rows (n,), which are overwritten from the first.

    Returns:
        The number of selected rows.

    Raises:
        ValueError: The arrays differ in their number of rows.
    """

def sort_records(
    records: npt.NDArray[np.uint8],
    buckets: npt.NDArray[np.uint16],
    ends: npt.NDArray[np.int64],
    ordered: npt.NDArray[np.uint8],
) -> None:
    """Sort records by their bucket; those of one bucket stay in their order.

    Args:
        records: The bytes of the records (n, width).
        buckets: The bucket of each record (n,).
        ends: Where the records of each bucket begin (m,), which become where they end.
        ordered: The sorted records (n, width), which are overwritten.

    Raises:
        IndexError: A bucket is beyond those given, or a record beyond the room for its bucket.
        ValueError: The arrays differ in their number of records, or in the width of these.
    """
