"""Integers: an ordered cell for each integer of a range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fitplug.domain.attribute import OUTSIDE, Codes, as_int64, wrong_type
from fitplug.errors import DataError, DomainError


@dataclass(frozen=True)
class Integers:
    """The integers low..high, both ends in: one ordered cell each."""

    low: int
    high: int
    value_type: ClassVar[type] = int
    null_code: ClassVar[int] = OUTSIDE

    def __post_init__(self) -> None:
        for end in (self.low, self.high):
            if type(end) is not int or abs(end) >= 2**62:
                raise DomainError(f"the ends of an integer range must be integers, not {end!r}")
        if self.high < self.low:
            raise DomainError(
                f"the integer range {self.low}..{self.high} is empty; give the lower end first"
            )

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(str(v) for v in range(self.low, self.high + 1))

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Cells (n,) of `values` (n,), -1 for those that have none.

        Raises DataError on anything but integers and nulls: no float becomes a cell silently.
        """
        array = np.asarray(values)
        if array.dtype.kind == "O":
            null = np.array([v is None or v != v for v in array.tolist()], dtype=bool)
            present = array[~null].tolist()
            for value in present:
                if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
                    raise DataError(wrong_type(int, type(value).__name__))
            codes = np.full(array.shape, OUTSIDE, dtype=np.int64)
            codes[~null] = [
                v - self.low if self.low <= v <= self.high else OUTSIDE for v in map(int, present)
            ]
            return codes
        if array.dtype.kind not in "iu":
            if not array.size:
                return np.zeros(0, dtype=np.int64)
            raise DataError(wrong_type(int, str(array.dtype)))
        wide = as_int64(array)
        inside = (wide >= self.low) & (wide <= self.high)
        return np.where(inside, np.where(inside, wide, self.low) - self.low, OUTSIDE)

    def position(self, value: Any) -> int | None:
        """The cell of a value as a range names it, or None."""
        if type(value) is int and self.low <= value <= self.high:
            return value - self.low
        return None

    def spec(self) -> Any:
        """As a spec file writes it."""
        return {"integers": [self.low, self.high]}
