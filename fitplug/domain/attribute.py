"""Attributes: the protocol that every kind of attribute follows.

An attribute divides values into cells. Null, and every value outside the domain, has no cell (code
-1), unless the attribute has `other`: then one more cell, the last, takes all of them.

A new kind of attribute is a subclass of `Attribute` with an entry in `domain.KINDS`.
"""

from __future__ import annotations

import datetime
import math
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.domain.spec_form import SpecForm
from fitplug.errors import DataError, DomainError, quote, suggest_nearest
from fitplug.numeric import AnyArray, FloatArray, IntArray

OUTSIDE = -1
"""The code of a value that has no cell."""

TYPE_NAMES: dict[type, str] = {
    str: "strings",
    int: "integers",
    bool: "booleans",
    float: "numbers",
    datetime.date: "dates",
}
"""How messages call the values of each type that an attribute may expect."""

MOST_NUMBER = 2**53
"""Edges and bounds are below this, and up to it floats hold all integers."""

_MOST_NAMES = 8

Codes: TypeAlias = IntArray

Category: TypeAlias = str | int | bool


class Encoder(Protocol):
    """What turns the values of a column into codes: every attribute, and the weights of rows."""

    @property
    def code_count(self) -> int:
        """Number of different codes from 0 that values may have."""

    @property
    def value_type(self) -> type:
        """Type of the values that a column must hold, one of TYPE_NAMES."""

    @property
    def null_code(self) -> int:
        """Code of null."""

    @property
    def integer_span(self) -> tuple[int, int] | None:
        """See `Attribute.integer_span`."""

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute the codes (n,) of `values` (n,)."""

    def codes_of_numbers(self, numbers: AnyArray) -> Codes:
        """Compute the codes (n,) of `numbers` (n,), as columns of files store the values."""


class AttributeType(ABCMeta):
    """The type of kinds of attributes: completion shows what users need, as for their instances."""

    offered: tuple[str, ...]

    def __dir__(cls) -> list[str]:
        return [*(name for name in super().__dir__() if name.startswith("__")), *cls.offered]


class Attribute(metaclass=AttributeType):
    """One attribute of a domain: its cells, and the values that they stand for.

    Kinds of attributes are frozen dataclasses, so that two attributes with the same content are
    equal and have the same hash. The methods below are what other rooms ask of an attribute; none
    of them asks for its kind.

    Attributes:
        _spec_form: How a spec file writes attributes of this kind.
        is_ordered: Whether neighbouring cells hold neighbouring values, so that sums over
            neighbours are of use. Categories are not ordered, although ranges may name them.
        is_half_open: Whether ranges and comparisons name edges between cells rather than cells.
            The upper edge of a range is then outside it.
        levels: Names of the levels of a tree, the coarsest first. Other attributes have none.
        other: Label of the last cell, which takes null and all values that have no cell, or None.
        offered: What completion shows. The other names are for the rooms of fitplug.
    """

    offered: ClassVar[tuple[str, ...]] = ("labels", "other", "size")

    _spec_form: ClassVar[SpecForm]
    is_ordered: ClassVar[bool] = False
    is_half_open: ClassVar[bool] = False
    levels: tuple[str, ...] = ()
    other: str | None = None

    def __dir__(self) -> list[str]:
        return dir(type(self))

    @property
    @abstractmethod
    def values(self) -> Sequence[Any]:
        """What a column of a table shows for each cell that stands for values, (value_count,)."""

    @property
    def value_count(self) -> int:
        """Number of cells that stand for values: all cells but that of `other`."""
        return len(self.values)

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.value_count + (self.other is not None)

    @property
    def labels(self) -> tuple[str, ...]:
        """The text that stands for each cell, in the order of the cells; `other` is the last."""
        return (*map(str, self.values), *(() if self.other is None else (self.other,)))

    @property
    @abstractmethod
    def value_type(self) -> type:
        """Type of the values that a column must hold: str, int, bool, float or datetime.date."""

    @property
    def code_count(self) -> int:
        """Number of codes from 0. Codes are cells, except those of measures."""
        return self.size

    @property
    def null_code(self) -> int:
        """Code of null, and of values that have no cell: -1, or the last cell if it has `other`."""
        return OUTSIDE if self.other is None else self.size - 1

    @property
    def shares(self) -> int:
        """Number of shares that a record is divided into: 1, except those of measures, whose
        records are divided between cells.
        """
        return 1

    @property
    def quantities(self) -> Mapping[str, FloatArray]:
        """What queries may ask of a measure, and its coefficient for each cell (size,), by name.
        Other attributes have none.
        """
        return {}

    @property
    def rule(self) -> str:
        """What counting does to a value before it counts it, as a sentence without its subject;
        empty if cells stand for values as they are.
        """
        return ""

    @property
    def integer_span(self) -> tuple[int, int] | None:
        """Integers (low, high) such that every integer below `low` has the code of `low`, and
        every integer above `high` the code of `high`. None if there are no such integers. Integers
        are what `codes_of_numbers` takes, for instance days for dates.
        """
        return None

    @abstractmethod
    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute the codes of values.

        Args:
            values: Values of `value_type` and nulls, shape (n,).

        Returns:
            The cells (n,), `null_code` for null and for values that have none.

        Raises:
            DataError: If a value has another type. The message names types and no value.
        """

    def codes_of_numbers(self, numbers: AnyArray) -> Codes:
        """Compute the codes of values that a file stores as numbers.

        Args:
            numbers: Numbers or booleans, shape (n,); for dates, days since 1970-01-01.

        Returns:
            The cells (n,), `null_code` for numbers that have none.
        """
        return self.codes(numbers)

    @abstractmethod
    def find_end(self, value: Any) -> int | None:
        """Find the cell that an end of a range names.

        Args:
            value: A value of the attribute. If the attribute is half open, one of its edges.

        Returns:
            The cell of the value, or the cell that starts at the edge; `value_count` for the last
            edge. None if there is no such value or edge, also for `other`.
        """

    def _find_cell(self, value: Any) -> int | None:
        """Find the cell that a value, the text that tables show for it, or `other` names.

        Args:
            value: A value of the attribute, or text.

        Returns:
            The cell, or None if the attribute has no such value.
        """
        return self.size - 1 if self.is_other(value) else self._find_value(value)

    def is_other(self, value: Any) -> bool:
        """Tell whether a value of a query is the label `other`."""
        return self.other is not None and type(value) is str and value == self.other

    def _find_value(self, value: Any) -> int | None:
        """Find the cell of a value, which is not `other`; see `_find_cell`."""
        return self.find_end(self._parse(str(value)) if isinstance(value, str) else value)

    def _parse(self, text: str) -> Any:
        """Convert the text of an expression to the value that it spells, as `find_end` takes it.

        Args:
            text: What stands after a comparison, such as the 18 of `age < 18`.

        Returns:
            The value, or None if the text spells no value of this kind.
        """
        return text

    def _suggest(self, value: Any, *, end: bool = False) -> str:
        """Suggest a value that exists, after one that does not.

        Args:
            value: The value that the attribute does not have.
            end: Whether it was an end of a range or comparison.

        Returns:
            The end of a sentence, such as "Did you mean '01'?".
        """
        return suggest_name(value, self.labels)

    def count_shares(self, codes: Codes) -> IntArray:
        """Count the shares that records have in each cell.

        Args:
            codes: Codes (n,), none of them -1.

        Returns:
            Shape (n, size). Each row sums to `shares`.
        """
        return np.asarray(codes[:, None] == np.arange(self.size), dtype=np.int64)

    @property
    def ends(self) -> tuple[Any, Any]:
        """The first and the last value, or edge, that a range may name."""
        named = self.values or (self.other,)
        return named[0], named[-1]

    def column_values(self) -> Sequence[Any]:
        """List what a column of a table shows for each cell.

        Returns:
            The values themselves for integers and booleans, if there is no `other`, so that the
            column has one type; otherwise text, shape (size,).
        """
        return self.values if self.other is None else self.labels

    def label_runs(self, intervals: IntArray) -> list[str]:
        """Name runs of neighbouring cells.

        Args:
            intervals: First and last cell of each run, shape (n, 2).

        Returns:
            A label for each run, such as "18..64", or "65..99 or missing".
        """
        last = self.value_count - 1
        named = []
        for a, b in intervals.tolist():
            parts = [self._label_run(a, min(b, last))] if a <= last else []
            parts += [str(self.other)] if b > last else []
            named.append(" or ".join(parts))
        return named

    def _label_run(self, first: int, last: int) -> str:
        """Name a run of neighbouring cells that stand for values."""
        values = self.values
        return f"{values[first]}" if first == last else f"{values[first]}..{values[last]}"

    def intervals(self, level: str) -> IntArray:
        """Compute the first and last cell of each node of a level, shape (nodes, 2).

        Args:
            level: One of `levels`.

        Raises:
            DomainError: If there is no such level.
        """
        raise make_level_error(level, self.levels)

    def labels_at(self, level: str) -> tuple[str, ...]:
        """List the label of each node of a level, shape (nodes,).

        Args:
            level: One of `levels`.

        Raises:
            DomainError: If there is no such level.
        """
        return tuple(map(str, self.named_at(level)))

    def named_at(self, level: str) -> tuple[Category, ...]:
        """List what a column of a table shows for each node of a level, shape (nodes,).

        Args:
            level: One of `levels`.

        Raises:
            DomainError: If there is no such level.
        """
        raise make_level_error(level, self.levels)

    def named_between(self, level: str, start: int, stop: int) -> list[Any]:
        """List what a column of a table shows for the nodes of a level from `start` to `stop`."""
        return list(self.named_at(level)[start:stop])

    @abstractmethod
    def remedy(self, names: str) -> str:
        """Say what gives the attribute fewer cells.

        Args:
            names: The attribute's name, or a list of names of attributes with the same remedy.

        Returns:
            A noun phrase, such as "coarser bins of AGE, INCOME".
        """

    @abstractmethod
    def spec(self) -> Any:
        """Describe the attribute as a spec file writes it; plans and their digests hold this."""

    def _spec_of_other(self) -> dict[str, str]:
        return {} if self.other is None else {"other": self.other}

    def _check_other(self) -> None:
        """Raise DomainError unless `other` is None or a text that names no value."""
        if self.other is None:
            return
        if type(self.other) is not str or self._names_value(self.other):
            raise DomainError(f"other = {self.other!r} must be a string that is not a value")

    def _names_value(self, text: str) -> bool:
        """Tell whether a text names a value or an end of a range."""
        return self._find_value(text) is not None or self.find_end(self._parse(text)) is not None

    @classmethod
    @abstractmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Attribute:
        """Make the attribute that a table of a spec file describes.

        Args:
            spec: A table that has the keys which `_spec_form` requires, and no unknown key.

        Raises:
            DomainError: If the table describes no attribute.
        """


def make_level_error(level: str, levels: Sequence[str]) -> DomainError:
    """Make the error for a level that a tree does not have."""
    return DomainError(f"there is no level {level!r}. {suggest_nearest(level, levels)}")


def suggest_name(value: Any, names: Sequence[str]) -> str:
    """Name what is nearest to `value` among `names`, or the first of them if nothing is near."""
    hint = suggest_nearest(str(value), names)
    if hint.startswith("Known") and len(names) > _MOST_NAMES:
        shown = ", ".join(map(quote, names[:_MOST_NAMES]))
        return f"Known: {shown} and {len(names) - _MOST_NAMES} more."
    return hint


def widen_to_int64(array: AnyArray) -> Codes:
    """Convert integers to int64; integers that do not fit become the largest one that does."""
    # Comparing or subtracting narrow or unsigned integers wraps silently.
    if array.dtype == np.uint64:
        return np.minimum(array, np.uint64(2**63 - 1)).astype(np.int64)
    return array.astype(np.int64)


def to_float(value: Any) -> float:
    """Convert a number or null; larger integers become MOST_NUMBER, which is beyond all bounds.

    Raises:
        DataError: The value has another type.
    """
    if value is None or value != value:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise DataError(describe_wrong_type(float, type(value).__name__))
    if isinstance(value, np.floating):
        return float(value)
    return float(max(-MOST_NUMBER, min(MOST_NUMBER, value)))


def describe_wrong_type(expected: type, actual: str) -> str:
    """Say why a column cannot be coded, without a word about its values."""
    return f"the domain expects {TYPE_NAMES[expected]}, but the column has {actual}"
