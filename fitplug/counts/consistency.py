"""Consistency: a check that tables are marginals of one histogram.

Estimates from tables of different records would be biased.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from fitplug.domain import Domain, count_shares, get_shape
from fitplug.errors import TablesError
from fitplug.numeric import AnyArray, IntArray

AttributeSet: TypeAlias = tuple[str, ...]
"""Names of different attributes: the axes of a table, in this order."""

Counts: TypeAlias = IntArray
"""The exact numbers of records in the cells of a table, or of shares of records if measures are
among its attributes. They are confidential."""

MAX_RECORDS = 2**53
"""Largest total of a table; far above any count of people, far below the limit of int64."""

MAX_SHARES = 2**58
"""Largest number of shares of records that a table with measures counts."""


def check_counts(domain: Domain, names: AttributeSet, array: AnyArray) -> Counts:
    """Convert an array to a table of counts, or refuse it.

    Args:
        domain: The domain.
        names: The axes of the table.
        array: The table.

    Returns:
        The table as int64.

    Raises:
        TablesError: If it has another shape, does not have integers, or counts too many records.
    """
    shape = get_shape(domain, names)
    if array.shape != shape:
        raise TablesError(f"table {names} must have the shape {shape}, not {array.shape}")
    if array.dtype.kind not in "iu" or (array.size and int(array.min()) < 0):
        raise TablesError(f"the counts of table {names} must be integers of at least 0")
    # Summed in floating point, which cannot wrap and is exact enough for this bound.
    total, shares = float(array.sum(dtype=np.float64)), count_shares(domain, names)
    most = MAX_RECORDS if shares == 1 else MAX_SHARES
    if total > most:
        raise TablesError(
            f"table {names} counts more than {most // shares:,} rows. Count fewer rows."
        )
    return array.astype(np.int64, copy=False)


def check_shares(domain: Domain, names: AttributeSet, records: int) -> None:
    """Refuse to count too many shares in a table.

    Args:
        domain: The domain.
        names: The axes of the table.
        records: The number of records.

    Raises:
        TablesError: If all records together have more than 2**58 shares of the table's measures.
    """
    shares = count_shares(domain, names)
    if shares > 1 and records * shares > MAX_SHARES:
        raise TablesError(
            f"the measures of table {names} allow at most {MAX_SHARES // shares:,} rows. Give the "
            "measures larger units."
        )


def sum_out(domain: Domain, axes: AttributeSet, counts: Counts, names: AttributeSet) -> Counts:
    """Sum a table with these axes over all attributes that are not in `names`.

    Raises:
        TablesError: If the sums over a measure are not whole records.
    """
    out = tuple(axis for axis, name in enumerate(axes) if name not in names)
    sums = np.asarray(counts.sum(axis=out, dtype=np.int64))
    shares = count_shares(domain, (axes[axis] for axis in out))
    if shares == 1:
        return sums
    if (sums % shares).any():
        raise TablesError(f"the counts of table {axes} do not add up to whole rows. Count again.")
    return np.asarray(sums // shares)


def check_one_histogram(domain: Domain, tables: Mapping[AttributeSet, Counts]) -> None:
    """Refuse tables whose shared marginals differ.

    Args:
        domain: The domain.
        tables: The tables, with axes in the order of the domain.

    Raises:
        TablesError: If two tables disagree over their common attributes.
    """
    pairs = len(tables) * (len(tables) - 1) // 2
    if pairs <= sum(2 ** len(names) for names in tables):
        for (first, a), (second, b) in itertools.combinations(tables.items(), 2):
            shared = tuple(name for name in first if name in second)
            _check_equal(domain, shared, (first, sum_out(domain, first, a, shared)), second, b)
        return
    # There are fewer subsets than pairs of tables, and any two tables share a subset of both.
    seen: dict[AttributeSet, tuple[AttributeSet, Counts]] = {}
    for names, counts in tables.items():
        for size in range(len(names) + 1):
            for shared in itertools.combinations(names, size):
                if shared in seen:
                    _check_equal(domain, shared, seen[shared], names, counts)
                else:
                    seen[shared] = names, sum_out(domain, names, counts, shared)


def _check_equal(
    domain: Domain,
    shared: AttributeSet,
    first: tuple[AttributeSet, Counts],
    second: AttributeSet,
    counts: Counts,
) -> None:
    """Compare a marginal of the table `first` with the same marginal of the table `second`."""
    if not np.array_equal(first[1], sum_out(domain, second, counts, shared)):
        over = f"over {shared}" if shared else "in total"
        raise TablesError(
            f"tables {first[0]} and {second} disagree {over}. Count both from the same rows."
        )
