"""Attributes: the cells that the values of one column have.

An attribute maps a value to a cell 0..size-1. A value outside the domain, or null, has no cell
(code -1) unless the attribute says which cell takes every other value.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.errors import DataError, DomainError

OUTSIDE = -1
"""The code of a value that has no cell."""

NAMES: dict[type, str] = {
    str: "strings",
    int: "integers",
    bool: "booleans",
    float: "numbers",
    datetime.date: "dates",
}
"""What values of each type an attribute may expect are called."""

Codes: TypeAlias = npt.NDArray[np.int64]
Category: TypeAlias = str | int | bool


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
        wide = _as_int64(array)
        at = np.searchsorted(known[order], wide)
        found = order[np.minimum(at, len(known) - 1)]
        return np.where(known[found] == wide, found, self.null_code).astype(np.int64)

    @cached_property
    def _cell_of(self) -> dict[Any, int]:
        return {value: cell for cell, value in enumerate(self.values)}

    def _codes_of_objects(self, array: npt.NDArray[Any]) -> Codes:
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
        wide = _as_int64(array)
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


@dataclass(frozen=True, init=False)
class Bins:
    """Half-open intervals [edges[i], edges[i+1]), one ordered cell each."""

    edges: tuple[float, ...]
    value_type: ClassVar[type] = float
    null_code: ClassVar[int] = OUTSIDE

    def __init__(self, edges: Sequence[float]) -> None:
        if isinstance(edges, str) or not isinstance(edges, Sequence):
            raise DomainError(f"bins must be a list of edges, not {edges!r}")
        for edge in edges:
            if type(edge) not in (int, float) or not math.isfinite(edge) or abs(edge) >= 2**53:
                raise DomainError(f"bin edge {edge!r} must be a finite number below 2**53 in size")
        if len(edges) < 2:
            raise DomainError("bins need at least two edges")
        for low, high in itertools.pairwise(edges):
            if high <= low:
                raise DomainError(
                    f"bin edges must increase, but {high!r} follows {low!r}: "
                    "bins would overlap or be empty"
                )
        object.__setattr__(self, "edges", tuple(edges))

    @property
    def size(self) -> int:
        return len(self.edges) - 1

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"[{a}, {b})" for a, b in itertools.pairwise(self.edges))

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Cells (n,) of `values` (n,), -1 for those that have none.

        Raises DataError on anything but numbers and nulls.
        """
        array = np.asarray(values)
        if array.dtype.kind == "O":
            return self.codes(np.array([_number(v) for v in array.tolist()], dtype=np.float64))
        if array.dtype.kind not in "iuf":
            if not array.size:
                return np.zeros(0, dtype=np.int64)
            raise DataError(wrong_type(float, str(array.dtype)))
        # Edges are below 2**53 in size, so clipping wide integers there moves none across an edge
        # and makes their conversion to float exact.
        if array.dtype.kind in "iu":
            numbers = np.clip(_as_int64(array), -(2**53), 2**53).astype(np.float64)
        else:
            numbers = array.astype(np.float64)
        cell = np.searchsorted(np.asarray(self.edges, dtype=np.float64), numbers, side="right") - 1
        # NaN sorts last, so it falls into the same "beyond the last edge" as large values.
        return np.where((cell >= 0) & (cell < self.size), cell, OUTSIDE).astype(np.int64)

    def position(self, value: Any) -> int | None:
        """The cell that starts at `value`; the last edge gives `size`. None for no edge."""
        return self.edges.index(value) if value in self.edges else None

    def spec(self) -> Any:
        """As a spec file writes it."""
        return {"bins": list(self.edges)}


def _number(value: Any) -> float:
    """A number or null as a float; integers beyond any edge stay beyond it."""
    if value is None or value != value:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(wrong_type(float, type(value).__name__))
    return float(max(-(2**53), min(2**53, value)))


def _as_int64(array: npt.NDArray[Any]) -> Codes:
    # Widen first: comparing or offsetting narrow or unsigned integers wraps silently.
    if array.dtype == np.uint64:
        return np.minimum(array, np.uint64(2**63 - 1)).astype(np.int64)
    return array.astype(np.int64)


def wrong_type(wanted: type, found: str) -> str:
    """Why a column cannot be coded; says nothing of its values."""
    return f"the domain expects {NAMES[wanted]}, but the column holds {found}"
