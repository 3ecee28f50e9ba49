"""Positions: integers that index arrays, in the type that NumPy wants them in.

NumPy takes positions, numbers of repetitions and bins as integers of the size of a memory address.
These have 64 bits on most machines, and 32 bits in a browser, where NumPy refuses integers of 64
bits in their place. Numbers that are stored, multiplied or added up have 64 bits everywhere.
"""

from __future__ import annotations

import numpy as np

from fitplug.numeric.arrays import IndexArray, IntArray


def to_positions(numbers: IntArray | IndexArray) -> IndexArray:
    """Convert integers to positions. Where an address has 64 bits, they are not copied.

    Args:
        numbers: Positions, numbers of repetitions, or bins, of any shape.

    Returns:
        The same numbers.

    Raises:
        OverflowError: If an array on this machine cannot have such a position.
    """
    if not np.can_cast(numbers.dtype, np.intp) and numbers.size:
        limits = np.iinfo(np.intp)
        if not limits.min <= int(numbers.min()) <= int(numbers.max()) <= limits.max:
            # The position is not named: it may be the cell of a person's record.
            raise OverflowError(
                f"a position is beyond the arrays of this machine, whose addresses have "
                f"{limits.bits} bits; use a machine with addresses of 64 bits"
            )
    return np.asarray(numbers, dtype=np.intp)
