"""Categories: a cell for each of several named values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fitplug.domain.attribute import (
    OUTSIDE,
    Attribute,
    Category,
    Codes,
    describe_wrong_type,
    widen_to_int64,
)
from fitplug.domain.spec_form import SpecForm
from fitplug.errors import DataError, DomainError
from fitplug.numeric import AnyArray

_BOOLEANS = {"True": True, "False": False}


@dataclass(frozen=True, init=False)
class Categories(Attribute):
    """Named values, with a cell for each of them in the order given.

        fp.Categories(["1", "2", "9"], other="Other")

    In `fp.Domain`, a plain list of values is short for categories without `other`.

    Args:
        values: The values, all str, all int or all bool, each once.
        other: Label of one more cell, the last, which takes every other value and null. Without
            it, these are outside.

    Raises:
        DomainError: If there is no value, or one is listed twice, or their types differ.
    """

    values: tuple[Category, ...]
    other: str | None
    spec_form: ClassVar[SpecForm] = SpecForm(
        "{ categories = [...], other = '...' }", names=("categories",), optional=("other",)
    )

    def __init__(self, values: Sequence[Category], other: str | None = None) -> None:
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise DomainError(f"categories must be a list of values, not {values!r}")
        if not values and other is None:
            raise DomainError("a list of categories is empty; give at least one value")
        types = {type(v) for v in values}
        if len(types) > 1 or not types <= {str, int, bool}:
            raise DomainError(
                "categories must be all strings, all integers or all booleans, not "
                + ", ".join(sorted(t.__name__ for t in types))
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
        """Number of cells."""
        return len(self.values) + (self.other is not None)

    @property
    def labels(self) -> tuple[str, ...]:
        """The values as text, in the order given, and `other` after them."""
        return (*map(str, self.values), *(() if self.other is None else (self.other,)))

    @property
    def value_type(self) -> type:
        """Type of the values that a column must hold: str, int or bool."""
        return type(self.values[0]) if self.values else str

    @property
    def null_code(self) -> int:
        """Code of null: the last cell if there is one for other values, otherwise -1."""
        return OUTSIDE if self.other is None else self.size - 1

    @property
    def integer_span(self) -> tuple[int, int] | None:
        """The integers beside the smallest and the largest category, if these are integers."""
        if self.value_type is not int:
            return None
        known = [int(value) for value in self.values]
        return min(known) - 1, max(known) + 1

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute the codes of values.

        Args:
            values: Values of `value_type` and nulls, shape (n,).

        Returns:
            The cells (n,). A value that is no category, and null, has the last cell if there is
            one for other values, otherwise -1.

        Raises:
            DataError: If a value has another type and is not null.
        """
        array = np.asarray(values)
        if not array.size:
            return np.zeros(0, dtype=np.int64)
        if array.dtype.kind in "OUT":
            return self._codes_of_objects(array)
        kinds = {bool: "b", int: "iu"}.get(self.value_type, "")
        if array.dtype.kind not in kinds:
            raise DataError(describe_wrong_type(self.value_type, str(array.dtype)))
        known = np.array([int(v) for v in self.values], dtype=np.int64)
        order = np.argsort(known)
        wide = widen_to_int64(array)
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
                raise DataError(describe_wrong_type(self.value_type, type(value).__name__))
            codes[i] = self._cell_of.get(value, self.null_code)
        return codes

    def find_end(self, value: Any) -> int | None:
        """Find the cell of a value, or of the label of other values; None for anything else."""
        if type(value) is self.value_type and value in self._cell_of:
            return self._cell_of[value]
        return self.size - 1 if self.other is not None and value == self.other else None

    def parse(self, text: str) -> Any:
        """Convert a label to the value that it stands for. Booleans may be written in any case, as
        other programs write "true".
        """
        if text == self.other:
            return text
        if self.value_type is int and re.fullmatch(r"-?\d{1,20}", text):
            number = int(text)
            return number if str(number) == text else text
        if self.value_type is bool:
            value = _BOOLEANS.get(text.title())
            return text.title() if value not in self.values else value
        return text

    @property
    def ends(self) -> tuple[Category, Category]:
        """The value or label of the first and of the last cell."""
        named = self.values if self.other is None else (*self.values, self.other)
        return named[0], named[-1]

    def column_values(self) -> Sequence[Any]:
        """List what a column of a table shows for each cell: the values or, if `other` is one of
        the cells, the labels, so that the column has one type.
        """
        return self.values if self.other is None else self.labels

    def remedy(self, names: str) -> str:
        """Say that fewer categories are fewer cells."""
        return f"fewer categories of {names}"

    def spec(self) -> Any:
        """Describe the attribute as a spec file writes it."""
        if self.other is None:
            return list(self.values)
        return {"categories": list(self.values), "other": self.other}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Categories:
        """Make the attribute of a table such as `{ categories = ["1", "2"], other = "Other" }`."""
        return cls(spec["categories"], other=spec.get("other"))
