"""Domains: which attributes there are and which cells each has. Public, never read from rows.

An attribute maps a value to a cell 0..size-1. A value outside the domain, or null, has no cell
(code -1) unless the attribute says which cell takes every other value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.errors import DataError, DomainError, nearest

OUTSIDE = -1
"""The code of a value that has no cell."""

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
            raise DataError(_wrong_type(self.value_type, str(array.dtype)))
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
                raise DataError(_wrong_type(self.value_type, type(value).__name__))
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
                    raise DataError(_wrong_type(int, type(value).__name__))
            codes = np.full(array.shape, OUTSIDE, dtype=np.int64)
            codes[~null] = [
                v - self.low if self.low <= v <= self.high else OUTSIDE for v in map(int, present)
            ]
            return codes
        if array.dtype.kind not in "iu":
            if not array.size:
                return np.zeros(0, dtype=np.int64)
            raise DataError(_wrong_type(int, str(array.dtype)))
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
            raise DataError(_wrong_type(float, str(array.dtype)))
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


Attribute: TypeAlias = Categories | Integers | Bins


@dataclass(frozen=True, init=False)
class Domain:
    """Named attributes in a fixed order; its cells are all combinations, in C order.

    Raises DomainError for anything that leaves a value without one well-defined cell.
    """

    attributes: tuple[tuple[str, Attribute], ...]

    def __init__(self, attributes: Mapping[str, Attribute | Sequence[Category]]) -> None:
        if not isinstance(attributes, Mapping):
            raise DomainError(
                f"a domain is a mapping of names to attributes, not {type(attributes).__name__}"
            )
        if not attributes:
            raise DomainError("the domain is empty; name at least one attribute")
        pairs: list[tuple[str, Attribute]] = []
        for name, given in attributes.items():
            if not isinstance(name, str) or not name:
                raise DomainError(f"attribute name {name!r} must be a non-empty string")
            try:
                attribute = (
                    given if isinstance(given, (Categories, Integers, Bins)) else Categories(given)
                )
            except DomainError as error:
                raise DomainError(f"attribute {name!r}: {error}") from None
            pairs.append((name, attribute))
        object.__setattr__(self, "attributes", tuple(pairs))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.attributes)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(attribute.size for _, attribute in self.attributes)

    @property
    def size(self) -> int:
        """Number of cells, a Python int (it may exceed 10**100)."""
        return math.prod(self.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._position

    def __getitem__(self, name: str) -> Attribute:
        if name not in self._position:
            raise DomainError(f"the domain has no attribute {name!r}; {nearest(name, self.names)}")
        return self.attributes[self._position[name]][1]

    def ordered(self, names: Sequence[str]) -> tuple[str, ...]:
        """`names` in the domain's own order."""
        for name in names:
            self[name]
        return tuple(sorted(set(names), key=self._position.__getitem__))

    def shape_of(self, names: Sequence[str]) -> tuple[int, ...]:
        """Sizes of the attributes named, in the order named."""
        return tuple(self[name].size for name in names)

    def spec(self) -> dict[str, Any]:
        """As the [domain] table of a spec file writes it; `from_spec` reads it back."""
        return {name: attribute.spec() for name, attribute in self.attributes}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Domain:
        """The domain that a spec file's [domain] table describes. Raises DomainError."""
        attributes: dict[str, Attribute] = {}
        for name, value in spec.items():
            try:
                attributes[name] = _attribute_from_spec(value)
            except DomainError as error:
                raise DomainError(f"attribute {name!r}: {error}") from None
        return cls(attributes)


_SPEC_KEYS = {
    "integers": {"integers"},
    "bins": {"bins"},
    "categories": {"categories", "other"},
    "levels": {"levels", "leaves"},
    "leaves": {"levels", "leaves"},
}


def _attribute_from_spec(value: Any) -> Attribute:
    if isinstance(value, list):
        return Categories(value)
    if not isinstance(value, Mapping):
        raise DomainError(
            f"{value!r} is no attribute; write a list of categories, "
            "{ integers = [low, high] }, { bins = [...] }, { categories = [...], other = '...' } "
            "or { levels = [...], leaves = [...] }"
        )
    for kind, allowed in _SPEC_KEYS.items():
        if kind in value:
            for key in value:
                if key not in allowed:
                    raise DomainError(f"unknown key {key!r}; {nearest(key, sorted(allowed))}")
            if kind == "integers":
                ends = value["integers"]
                if not isinstance(ends, list) or len(ends) != 2:
                    raise DomainError(f"integers = {ends!r} must be two numbers, [low, high]")
                return Integers(ends[0], ends[1])
            if kind == "bins":
                return Bins(value["bins"])
            if kind == "categories":
                return Categories(value["categories"], other=value.get("other"))
            return _hierarchy_from_spec(value)
    key = next(iter(value), "")
    raise DomainError(f"unknown key {key!r}; {nearest(key, _SPEC_KEYS)}")


def _hierarchy_from_spec(value: Mapping[str, Any]) -> Attribute:
    from fitplug.hierarchy import Hierarchy  # here, as it builds on Categories

    for key in ("levels", "leaves"):
        if key not in value:
            raise DomainError(f"{key!r} is missing; write {{ levels = [...], leaves = [...] }}")
    return Hierarchy(value["levels"], value["leaves"])


def _number(value: Any) -> float:
    """A number or null as a float; integers beyond any edge stay beyond it."""
    if value is None or value != value:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(_wrong_type(float, type(value).__name__))
    return float(max(-(2**53), min(2**53, value)))


def _as_int64(array: npt.NDArray[Any]) -> Codes:
    # Widen first: comparing or offsetting narrow or unsigned integers wraps silently.
    if array.dtype == np.uint64:
        return np.minimum(array, np.uint64(2**63 - 1)).astype(np.int64)
    return array.astype(np.int64)


def _wrong_type(wanted: type, found: str) -> str:
    name = {str: "strings", int: "integers", bool: "booleans", float: "numbers"}[wanted]
    return f"the domain expects {name}, but the column holds {found}"
