"""Integers: an ordered cell for each integer of a range."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fitplug.domain.attribute import (
    OUTSIDE,
    Attribute,
    Codes,
    describe_wrong_type,
    widen_to_int64,
)
from fitplug.domain.spec_form import SpecForm, read_ends
from fitplug.errors import DataError, DomainError


@dataclass(frozen=True)
class Integers(Attribute):
    """The integers low..high, with a cell for each of them. Other integers are outside.

        fp.Integers(0, 115)

    Args:
        low: The smallest integer of the domain.
        high: The largest integer of the domain; it is inside.

    Raises:
        DomainError: If the range is empty, or an end is no integer below 2**62 in size.
    """

    low: int
    high: int
    spec_form: ClassVar[SpecForm] = SpecForm("{ integers = [low, high] }", names=("integers",))
    value_type: ClassVar[type] = int
    is_ordered: ClassVar[bool] = True

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
        """Number of cells."""
        return self.high - self.low + 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The integers as text, in increasing order."""
        return tuple(str(v) for v in range(self.low, self.high + 1))

    @property
    def integer_span(self) -> tuple[int, int] | None:
        """The integers beside both ends, which are outside as all beyond them are."""
        return self.low - 1, self.high + 1

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute the codes of integers.

        Args:
            values: Integers and nulls, shape (n,). Floats are refused, as none of them should
                become a cell silently.

        Returns:
            The cells (n,), -1 for integers outside the range and for null.

        Raises:
            DataError: If a value is neither an integer nor null.
        """
        array = np.asarray(values)
        if array.dtype.kind == "O":
            null = np.array([v is None or v != v for v in array.tolist()], dtype=bool)
            present = array[~null].tolist()
            for value in present:
                if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
                    raise DataError(describe_wrong_type(int, type(value).__name__))
            codes = np.full(array.shape, OUTSIDE, dtype=np.int64)
            codes[~null] = [
                v - self.low if self.low <= v <= self.high else OUTSIDE for v in map(int, present)
            ]
            return codes
        if array.dtype.kind not in "iu":
            if not array.size:
                return np.zeros(0, dtype=np.int64)
            raise DataError(describe_wrong_type(int, str(array.dtype)))
        wide = widen_to_int64(array)
        inside = (wide >= self.low) & (wide <= self.high)
        return np.where(inside, np.where(inside, wide, self.low) - self.low, OUTSIDE)

    def find_end(self, value: Any) -> int | None:
        """Find the cell of an integer; None for anything else, and for integers outside."""
        if type(value) is int and self.low <= value <= self.high:
            return value - self.low
        return None

    def parse(self, text: str) -> Any:
        """Convert decimal digits, after a minus sign or none, to an integer."""
        return int(text) if re.fullmatch(r"-?\d{1,20}", text) else None

    def suggest(self, value: Any, *, end: bool = False) -> str:
        """Name the two ends of the range, after an integer outside it."""
        return f"they are {self.low} to {self.high}"

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest integer."""
        return self.low, self.high

    def column_values(self) -> Sequence[int]:
        """List the integers of all cells, in increasing order."""
        return range(self.low, self.high + 1)

    def remedy(self, names: str) -> str:
        """Say that bins instead of integers have fewer cells."""
        return f"coarser bins of {names}"

    def spec(self) -> Any:
        """Describe the attribute as a spec file writes it."""
        return {"integers": [self.low, self.high]}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Integers:
        """Make the attribute of a table such as `{ integers = [0, 115] }`."""
        return cls(*read_ends(spec, "integers", "numbers, [low, high]"))
