"""Attributes: the protocol that every kind of attribute follows.

An attribute divides values into cells. Null and every value outside the domain have no cell (code
-1), unless the attribute has `other`: then one more cell, the last, takes all of them.

A new kind of attribute is a subclass of `Attribute`, which users see, and a subclass of `Codec`,
which names that kind and which the rest of fitplug uses.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.domain.encoder import OUTSIDE, Codes
from fitplug.domain.spec_form import SpecForm
from fitplug.errors import DomainError, quote, suggest_nearest
from fitplug.numeric import AnyArray, FloatArray, IntArray

_MOST_NAMES = 8

Category: TypeAlias = str | int | bool


class Attribute(ABC):
    """One attribute of a domain: its cells, and the values that they stand for.

    Kinds of attributes are frozen dataclasses, so that two attributes with the same content are
    equal and have the same hash. They hold what users give and read. Everything else that fitplug
    needs is in their codec.

    Attributes:
        other: Label of the last cell, which takes null and all values that have no cell, or None.
    """

    other: str | None

    @property
    @abstractmethod
    def values(self) -> Sequence[Any]:
        """The value that a column of a table shows for each cell except `other`."""

    @property
    def size(self) -> int:
        """Number of cells."""
        return self._value_count + (self.other is not None)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each cell, in the order of the cells; `other` is the last."""
        return (*map(str, self.values), *(() if self.other is None else (self.other,)))

    @property
    def _value_count(self) -> int:
        return len(self.values)

    @cached_property
    def _codec(self) -> Codec:
        return CODECS[type(self)](self)

    def _check_other(self) -> None:
        """Raise DomainError unless `other` is None or a text that names no value."""
        if self.other is None:
            return
        if type(self.other) is not str:
            raise DomainError(f"other must be a string, not {self.other!r}")
        if self._codec.names_value(self.other):
            raise DomainError(f"other = {self.other!r} is also a listed value. Use another name.")

    def __getstate__(self) -> dict[str, Any]:
        # Only the fields: values computed from them take more room, and are recomputed.
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


def get_codec(attribute: Attribute) -> Codec:
    """Return the codec of an attribute, which is made once per attribute."""
    return attribute._codec


class Codec(ABC):
    """Encodes the values of an attribute as cells, and names cells by values.

    The rest of fitplug works with these methods, whatever the kind of the attribute.

    Attributes:
        attribute: The attribute.
        other: See `Attribute`.
        spec_form: The form of attributes of this kind in a spec file.
        is_ordered: Whether adjacent cells have adjacent values, so that sums over adjacent cells
            are useful. Categories are not ordered, although ranges may name them.
        is_half_open: Whether ranges and comparisons name edges between cells instead of cells.
            The upper edge of a range is then outside it.
    """

    spec_form: ClassVar[SpecForm]
    is_ordered: ClassVar[bool] = False
    is_half_open: ClassVar[bool] = False

    def __init_subclass__(cls, *, kind: type[Attribute]) -> None:
        CODECS[kind] = cls

    def __init__(self, attribute: Attribute) -> None:
        self.attribute, self.other = attribute, attribute.other

    def __reduce__(self) -> tuple[Any, ...]:
        return get_codec, (self.attribute,)

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels of a tree, the coarsest first. Other attributes have none."""
        return ()

    @property
    def values(self) -> Sequence[Any]:
        """The value that a column of a table shows for each cell except `other`, (value_count,)."""
        return self.attribute.values

    @property
    def value_count(self) -> int:
        """Number of cells except `other`."""
        return self.attribute._value_count

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.attribute.size

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each cell, in the order of the cells; `other` is the last."""
        return self.attribute.labels

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
        """Number of shares into which a record is divided: 1, except for measures, which divide
        records between cells.
        """
        return 1

    @property
    def quantities(self) -> Mapping[str, FloatArray]:
        """The quantities that queries may ask of a measure, by name, with a coefficient for each
        cell (size,). Other attributes have none.
        """
        return {}

    @property
    def rule(self) -> str:
        """The rule by which a value is changed before it is counted, as a sentence without its
        subject; empty if values are counted as they are.
        """
        return ""

    @property
    def integer_span(self) -> tuple[int, int] | None:
        """Integers (low, high) such that every integer below `low` has the code of `low`, and
        every integer above `high` the code of `high`; None if there are none. The integers are in
        the unit of `codes_of_numbers`, for instance days for dates.
        """
        return None

    @abstractmethod
    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute the codes of values.

        Args:
            values: Values of `value_type` and nulls, shape (n,).

        Returns:
            The cells (n,), `null_code` for null and for values without a cell.

        Raises:
            DataError: If a value has another type. The message names only types.
        """

    def codes_of_numbers(self, numbers: AnyArray) -> Codes:
        """Compute the codes of values that a file stores as numbers.

        Args:
            numbers: Numbers or booleans, shape (n,); for dates, days since 1970-01-01.

        Returns:
            The cells (n,), `null_code` for numbers without a cell.
        """
        return self.codes(numbers)

    @abstractmethod
    def find_end(self, value: Any) -> int | None:
        """Find the cell that an end of a range names.

        Args:
            value: A value of the attribute. If the attribute is half open, one of its edges.

        Returns:
            The cell of the value, or the cell that starts at the edge; `value_count` for the last
            edge. None for `other`, and if there is no such value or edge.
        """

    def find_cell(self, value: Any) -> int | None:
        """Find the cell that a value, the text that tables show for it, or `other` names.

        Args:
            value: A value of the attribute, or text.

        Returns:
            The cell, or None if the attribute has no such value.
        """
        return self.size - 1 if self.is_other(value) else self.find_value(value)

    def is_other(self, value: Any) -> bool:
        """Tell whether a value of a query is the label `other`."""
        return self.other is not None and type(value) is str and value == self.other

    def find_value(self, value: Any) -> int | None:
        """Find the cell of a value, which is not `other`; see `find_cell`."""
        return self.find_end(self.parse(str(value)) if isinstance(value, str) else value)

    def parse(self, text: str) -> Any:
        """Convert the text of an expression to the value that it spells, as `find_end` takes it.

        Args:
            text: The text after a comparison, such as the 18 of `age < 18`.

        Returns:
            The value, or None if the text does not spell a value of this kind.
        """
        return text

    def suggest(self, value: Any, *, end: bool = False) -> str:
        """Suggest a value in place of an unknown one.

        Args:
            value: The unknown value.
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

    @cached_property
    def digest(self) -> str:
        """The SHA-256, in hex, of the attribute's public description, without its name.

        Equal attributes have the same digest. Attributes with different digests may have different
        cells, even if they have the same name and number of cells.
        """
        spec = json.dumps(_write_integers(self.spec()), ensure_ascii=True)
        return hashlib.sha256(spec.encode()).hexdigest()

    @property
    def ends(self) -> tuple[Any, Any]:
        """The first and the last value, or edge, that a range may name."""
        named = self.values or (self.other,)
        return named[0], named[-1]

    def column_values(self) -> Sequence[Any]:
        """List the values that a column of a table shows for each cell.

        Returns:
            The values themselves for integers and booleans, if there is no `other`, so that the
            column has one type; otherwise text, shape (size,).
        """
        return self.values if self.other is None else self.labels

    def label_runs(self, intervals: IntArray) -> list[str]:
        """Name runs of adjacent cells.

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
        """Name a run of adjacent cells without `other`."""
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
        """List the values that a column of a table shows for each node of a level, shape (nodes,).

        Args:
            level: One of `levels`.

        Raises:
            DomainError: If there is no such level.
        """
        raise make_level_error(level, self.levels)

    def named_between(self, level: str, start: int, stop: int) -> list[Any]:
        """List the values that a column shows for the nodes `start` to `stop` - 1 of a level."""
        return list(self.named_at(level)[start:stop])

    @abstractmethod
    def remedy(self, names: str) -> str:
        """Name a change that gives the attribute fewer cells.

        Args:
            names: The attribute's name, or a list of names of attributes with the same remedy.

        Returns:
            A noun phrase, such as "coarser bins of AGE, INCOME".
        """

    @abstractmethod
    def spec(self) -> Any:
        """Describe the attribute as in a spec file; plans and their digests contain this."""

    def _spec_of_other(self) -> dict[str, str]:
        return {} if self.other is None else {"other": self.other}

    def names_value(self, text: str) -> bool:
        """Tell whether a text names a value or an end of a range."""
        return self.find_value(text) is not None or self.find_end(self.parse(text)) is not None

    @classmethod
    @abstractmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Attribute:
        """Make the attribute that a table of a spec file describes.

        Args:
            spec: A table with the keys that `spec_form` requires and no unknown key.

        Raises:
            DomainError: If the table does not describe an attribute.
        """


CODECS: dict[type[Attribute], type[Codec]] = {}
"""The codec of each kind of attribute, a subclass after its base."""


def make_level_error(level: str, levels: Sequence[str]) -> DomainError:
    """Make the error for a level that a tree does not have."""
    return DomainError(f"unknown level {level!r}. {suggest_nearest(level, levels)}")


def suggest_name(value: Any, names: Sequence[str]) -> str:
    """Suggest the nearest of `names` to `value`, or list the first of them if none is near."""
    hint = suggest_nearest(str(value), names)
    if hint.startswith("Known") and len(names) > _MOST_NAMES:
        shown = ", ".join(map(quote, names[:_MOST_NAMES]))
        return f"Known: {shown} and {len(names) - _MOST_NAMES} more."
    return hint


def _write_integers(spec: Any) -> Any:
    """Write whole floats as integers, because 1.0 and 1 make equal attributes."""
    if isinstance(spec, Mapping):
        return {key: _write_integers(value) for key, value in spec.items()}
    if isinstance(spec, list | tuple):
        return [_write_integers(value) for value in spec]
    return int(spec) if isinstance(spec, float) and spec.is_integer() else spec
