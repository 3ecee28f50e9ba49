"""Categories: named values, one cell each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.domain.attribute import OUTSIDE, Category, Codes, as_int64, wrong_type
from fitplug.errors import DataError, DomainError
from fitplug.numeric import AnyArray


@dataclass(frozen=True, init=False)
class Categories:
    """Named values, one cell each in the order given, all str, all int or all bool.

    other: label of one further cell, the last, that takes every other value and null.
    """

    values: tuple[Category, ...]
    other: str | None

    def __init__(self, values: Sequence[Category], other: str | None = None) -> None:
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise DomainError(f"categories must be a list of values, not {values!r}")
        if not values and other is None:
            raise DomainError("a list of categories is empty; give at least one value")
        kinds = {type(v) for v in values}
        if len(kinds) > 1 or not kinds <= {str, int, bool}:
            raise DomainError(
                "categories must be all strings, all integers or all booleans, not "
                + ", ".join(sorted(k.__name__ for k in kinds))
            )
        seen: set[Category] = set()
        for value in values:
            if value in seen:
                raise DomainError(f"category {value!r} is listed twice; list each value once")
            if type(value) is int and abs(value) >= 2**62:
                raise DomainError(f"category {value!r} must be below 2**62 in size, to fit 64 bits")
            seen.add(value)
        if other is not None and (not isinstance(other, str) or other in {str(v) for v in values}):
            raise DomainError(
                f"the label {other!r} of all other values must be a string that is not a category"
            )
        object.__setattr__(self, "values", tuple(values))
        object.__setattr__(self, "other", other)

    @property
    def size(self) -> int:
        return len(self.values) + (self.other is not None)

    @property
    def labels(self) -> tuple[str, ...]:
        return (*map(str, self.values), *(() if self.other is None else (self.other,)))

    @property
    def value_type(self) -> type:
        """str, int or bool: what a column of this attribute must hold."""
        return type(self.values[0]) if self.values else str

    @property
    def null_code(self) -> int:
        return OUTSIDE if self.other is None else self.size - 1

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Cells (n,) of `values` (n,), -1 for those that have none.

        Raises DataError if a value is neither null nor of `value_type`.
        """
        array = np.asarray(values)
        if not array.size:
            return np.zeros(0, dtype=np.int64)
        if array.dtype.kind in "OUT":
            return self._codes_of_objects(array)
        kinds = {bool: "b", int: "iu"}.get(self.value_type, "")
        if array.dtype.kind not in kinds:
            raise DataError(wrong_type(self.value_type, str(array.dtype)))
        known = np.array([int(v) for v in self.values], dtype=np.int64)
        order = np.argsort(known)
        wide = as_int64(array)
        at = np.searchsorted(known[order], wide)
        found = order[np.minimum(at, len(known) - 1)]
        return np.where(known[found] == wide, found, self.null_code).astype(np.int64)

    @cached_property
    def _cell_of(self) -> dict[Any, int]:
        return {value: cell for cell, value in enumerate(self.values)}

    def _codes_of_objects(self, array: AnyArray) -> Codes:
        codes = np.full(array.shape, self.null_code, dtype=np.int64)
        for i, value in enumerate(array.tolist()):
            if value is None or value != value:
                continue
            if type(value) is not self.value_type:
                raise DataError(wrong_type(self.value_type, type(value).__name__))
            codes[i] = self._cell_of.get(value, self.null_code)
        return codes

    def position(self, value: Any) -> int | None:
        """The cell of a value as a range names it, or None."""
        if type(value) is self.value_type and value in self._cell_of:
            return self._cell_of[value]
        return self.size - 1 if self.other is not None and value == self.other else None

    def spec(self) -> Any:
        """As a spec file writes it."""
        if self.other is None:
            return list(self.values)
        return {"categories": list(self.values), "other": self.other}
