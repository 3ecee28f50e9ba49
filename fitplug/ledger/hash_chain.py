"""Hash chains: each row of a table holds the hash of itself and of the row before it.

The number of rows and the hash of the last one are kept elsewhere, in the budget's row. So an edit,
or a row that is missing anywhere, is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


class DamagedError(Exception):
    """The rows of a ledger are not as they were written."""


def hash_values(*values: str | float | None) -> str:
    """Compute the SHA-256, in hex, of a sequence of values."""
    return hashlib.sha256(json.dumps(values, ensure_ascii=True).encode()).hexdigest()


def verify_chain(
    rows: Iterable[tuple[Any, ...]],
    parse: Callable[..., T],
    hash_item: Callable[[str, int, T], str],
    *,
    start: int,
    first_hash: str,
    count: int,
    last_hash: str,
) -> list[T]:
    """Read the rows of a hash chain from a given row to the last one, and verify their hashes.

    Args:
        rows: The rows, in order. The first value of a row is its number, the last value its hash.
        parse: Makes an item of the values of a row without its hash.
        hash_item: Computes the hash of an item from the hash before it, its number and itself.
        start: The number of the first row given. The hash of that row is verified only if it is
            row 1, as the hash before it is not known otherwise.
        first_hash: The hash that row 1 follows.
        count: The number of rows in the entire chain.
        last_hash: The hash of the last row; `first_hash` if there is no row.

    Returns:
        The items of the rows.

    Raises:
        DamagedError: A row is missing or was edited.
    """
    before = first_hash if start == 1 else None
    number = start
    items = []
    for position, *values, own_hash in rows:
        item = parse(position, *values)
        follows = before is None or hash_item(before, position, item) == own_hash
        if not follows or position != number:
            raise DamagedError
        items.append(item)
        before, number = str(own_hash), number + 1
    if before != last_hash or number != count + 1:
        raise DamagedError
    return items


def find_newest(count: int) -> int:
    """Return the number of the first of the newest rows, those that each charge verifies."""
    return max(1, count - 1)
