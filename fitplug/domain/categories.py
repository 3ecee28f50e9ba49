"""Categories: a cell for each of several named values, or for each prefix of longer codes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fitplug.domain.attribute import Attribute, Category, Codec
from fitplug.domain.encoder import Codes, describe_wrong_type, widen_to_int64
from fitplug.domain.label_array import (
    LabelArray,
    LabelIndex,
    are_equal,
    compute_checksum,
    make_label_array,
)
from fitplug.domain.spec_form import SpecForm
from fitplug.domain.texts import Texts
from fitplug.errors import DataError, DomainError
from fitplug.numeric import AnyArray, freeze

_BOOLEANS = {"True": True, "False": False}


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Categories(Attribute):
    """A list of values: each is a cell, and the cells keep the order of the list.

        fp.Categories(["1", "2", "9"], other="Other")

    In `fp.Domain`, a plain list of values means `fp.Categories` without `other`.

    Args:
        values: A list or an array (n,) of different values: all str, all int or all bool.
        other: Label of an extra last cell for null and all values that are not listed. Without
            `other`, these are outside the domain.

    Raises:
        DomainError: If no value is given, a value is listed twice, or the types differ.

    Attributes:
        other: The label of the cell that takes all other values, or None.
    """

    _value_array: LabelArray
    other: str | None

    def __init__(self, values: Sequence[Category] | AnyArray, other: str | None = None) -> None:
        if isinstance(values, np.ndarray) and values.ndim == 1:
            values = values.tolist()
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise DomainError(f"categories must be a list of values, not {values!r}")
        if not values and other is None:
            raise DomainError("the list of categories is empty. Give at least one value.")
        types = set(map(type, values))
        if len(types) > 1 or not types <= {str, int, bool}:
            raise DomainError(
                "categories must be all strings, all integers or all booleans, not "
                + ", ".join(sorted(t.__name__ for t in types))
            )
        _check_values(values)
        self._set_values(make_label_array(values), other)
        self._check_other()

    def _set_values(self, values: LabelArray, other: str | None = None) -> None:
        """Set the fields to checked values."""
        object.__setattr__(self, "_value_array", values)
        object.__setattr__(self, "other", other)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        freeze(self._value_array)  # unpickled arrays may be written to

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        same = self.other == other.other and are_equal(self._value_array, other._value_array)
        return same and self._describe_rest() == other._describe_rest()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.other, self._checksum, self._describe_rest()))

    def _describe_rest(self) -> Any:
        """Describe what a kind of categories has besides values and `other`, for comparisons."""
        return None

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)[1:]
        rest = "".join(f", {field.name}={getattr(self, field.name)!r}" for field in fields)
        return f"{type(self).__name__}(values={self.values!r}{rest})"

    @cached_property
    def _checksum(self) -> int:
        return compute_checksum(self._value_array)

    @cached_property
    def values(self) -> tuple[Category, ...]:
        """The values, without `other`."""
        return tuple(self._value_array.tolist())

    @property
    def _value_count(self) -> int:
        """Number of values."""
        return len(self._value_array)


class CategoriesCodec(Codec, kind=Categories):
    """The codec of `Categories`."""

    attribute: Categories
    spec_form: ClassVar[SpecForm] = SpecForm(
        "{ categories = [...], other = '...' }", names=("categories",)
    )

    @property
    def value_type(self) -> type:
        """Type of the values that a column must hold: str, int or bool."""
        if isinstance(self.attribute._value_array, Texts):
            return str
        return bool if self.attribute._value_array.dtype.kind == "b" else int

    @property
    def integer_span(self) -> tuple[int, int] | None:
        """The integers just outside the smallest and largest category, if these are integers."""
        if self.value_type is not int or isinstance(self.attribute._value_array, Texts):
            return None
        return int(self.attribute._value_array.min()) - 1, int(
            self.attribute._value_array.max()
        ) + 1

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute the codes of values.

        Args:
            values: Values of `value_type` and nulls, shape (n,).

        Returns:
            The cells (n,), `null_code` for a value that is not a category and for null.

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
        return self._find(widen_to_int64(array).ravel()).reshape(array.shape)

    def codes_of_texts(self, texts: Texts) -> Codes:
        """Compute the codes of a file's texts, if the values are strings.

        Args:
            texts: Bytes of n texts. Bytes that are not UTF-8 are values outside the domain.

        Returns:
            The cells (n,), as `codes` returns them.
        """
        # Values with surrogates have no bytes in UTF-8, but bytes that are damaged decode to some.
        if not self._has_valid_texts:
            return self.codes(np.array([*texts.tolist("surrogateescape"), None], dtype=object)[:-1])
        return self._find(texts)

    @cached_property
    def _has_valid_texts(self) -> bool:
        return (
            isinstance(self.attribute._value_array, Texts) and self.attribute._value_array.is_valid
        )

    @cached_property
    def _index(self) -> LabelIndex:
        return LabelIndex(self.attribute._value_array)

    @cached_property
    def _cell_of(self) -> dict[Any, int]:
        return {value: cell for cell, value in enumerate(self.attribute._value_array.tolist())}

    def _find(self, values: LabelArray) -> Codes:
        """Find the codes (n,) of values (n,) of the attribute's own type."""
        if not len(self.attribute._value_array):
            return np.full(len(values), self.null_code, dtype=np.int64)
        cells = self._index.find(values)
        return cells if self.other is None else np.where(cells < 0, self.null_code, cells)

    def _codes_of_objects(self, array: AnyArray) -> Codes:
        """Compute the codes of values and nulls (n,), or refuse values of another type."""
        values = array.tolist()
        if set(map(type, values)) == {self.value_type}:
            return self._find_objects(values)
        rows = [row for row, value in enumerate(values) if value is not None and value == value]
        present = [values[row] for row in rows]
        for value in present:
            if type(value) is not self.value_type:
                raise DataError(describe_wrong_type(self.value_type, type(value).__name__))
        codes = np.full(array.shape, self.null_code, dtype=np.int64)
        if present:
            codes[rows] = self._find_objects(present)
        return codes

    def _find_objects(self, values: Sequence[Any]) -> Codes:
        """Find the codes (n,) of values (n,), n > 0, of the attribute's own type."""
        if self.value_type is int:  # integers beyond 62 bits are never categories
            values = [max(-(2**62), min(value, 2**62)) for value in values]
        return self._find(make_label_array(values))

    def find_end(self, value: Any) -> int | None:
        """Find the cell of a value; None for anything else."""
        return self._cell_of.get(value) if type(value) is self.value_type else None

    def parse(self, text: str) -> Any:
        """Convert a label to the value that it stands for. Booleans may be written in any case, as
        other programs write "true".
        """
        if self.value_type is int and re.fullmatch(r"-?\d{1,20}", text):
            number = int(text)
            return number if str(number) == text else text
        if self.value_type is bool:
            value = _BOOLEANS.get(text.title())
            return text.title() if value not in self._cell_of else value
        return text

    def remedy(self, names: str) -> str:
        """Suggest fewer categories."""
        return f"fewer categories of {names}"

    def spec(self) -> Any:
        """Describe the attribute as a spec file writes it."""
        if self.other is None:
            return list(self.values)
        return {"categories": list(self.values), **self._spec_of_other()}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Categories:
        """Make the attribute of a table such as `{ categories = ["1", "2"], other = "Other" }`."""
        return Categories(spec["categories"], other=spec.get("other"))


def _check_values(values: Sequence[Category]) -> None:
    """Raise DomainError for a value that is listed twice, or an integer that is too large."""
    integers = type(values[0]) is int if values else False
    fit = not integers or max(map(abs, map(int, values))) < 2**62
    if fit and len(set(values)) == len(values):
        return
    seen: set[Category] = set()
    for value in values:
        if value in seen:
            raise DomainError(f"category {value!r} is listed twice. List each value once.")
        if type(value) is int and abs(value) >= 2**62:
            raise DomainError(f"category {value!r} must be between -2**62 and 2**62")
        seen.add(value)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class CodePrefix(Categories):
    """Strings that are grouped by their first characters, with a cell for each prefix.

        fp.CodePrefix(["01001", "01003", "02001"], 2)    # "01999" lies in the cell "01"

    Without `other`, a value that is shorter than `length`, or whose prefix is not among those of
    `codes`, is outside the domain.

    Args:
        codes: A public list of strings: the prefixes, or longer codes that begin with them. The
            cells are in the order in which the prefixes first occur in the list.
        length: Number of characters of a prefix, at least 1.
        other: Label of an extra last cell for null and all other values.

    Raises:
        DomainError: If there is no code, or a code is not a string or shorter than `length`.
    """

    length: int

    def __init__(self, codes: Sequence[str], length: int, other: str | None = None) -> None:
        if type(length) is not int or length < 1:
            raise DomainError(f"the prefix length must be an integer of at least 1, not {length!r}")
        if isinstance(codes, str) or not isinstance(codes, Sequence):
            raise DomainError(f"codes must be a list of strings, not {codes!r}")
        for code in codes:
            if not isinstance(code, str):
                raise DomainError(f"code {code!r} must be a string")
            if len(code) < length:
                raise DomainError(
                    f"code {code!r} is shorter than the prefix length {length}. Use a smaller "
                    "length."
                )
        object.__setattr__(self, "length", length)
        super().__init__(list(dict.fromkeys(code[:length] for code in codes)), other)

    def _describe_rest(self) -> Any:
        return self.length


class CodePrefixCodec(CategoriesCodec, kind=CodePrefix):
    """The codec of `CodePrefix`."""

    attribute: CodePrefix
    spec_form: ClassVar[SpecForm] = SpecForm(
        "{ prefix = length, categories = [...] }",
        names=("prefix",),
        required=("categories",),
    )

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute the codes of strings by their first characters.

        Args:
            values: Strings and nulls, shape (n,).

        Returns:
            The cells (n,), `null_code` for a string with another prefix and for null.

        Raises:
            DataError: If a value is neither null nor a string.
        """
        array = np.asarray(values)
        if array.dtype.kind not in "OUT":
            return super().codes(array)
        cut = np.empty(array.shape, dtype=object)
        cut[:] = [v[: self.attribute.length] if isinstance(v, str) else v for v in array.tolist()]
        return super().codes(cut)

    def codes_of_texts(self, texts: Texts) -> Codes:
        """Compute the codes of a file's texts by their first characters."""
        if not texts.is_valid:  # bytes that are not UTF-8 have no characters to count
            return self.codes(np.array([*texts.tolist("surrogateescape"), None], dtype=object)[:-1])
        return super().codes_of_texts(texts.cut_prefixes(self.attribute.length))

    def remedy(self, names: str) -> str:
        """Suggest shorter prefixes, or fewer if there are no shorter ones."""
        return f"{'shorter' if self.attribute.length > 1 else 'fewer'} prefixes of {names}"

    def spec(self) -> Any:
        """Describe the attribute as a spec file writes it."""
        categories = list(self.values)
        return {"prefix": self.attribute.length, "categories": categories, **self._spec_of_other()}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> CodePrefix:
        """Make the attribute of a table such as `{ prefix = 2, categories = ["01", "02"] }`."""
        return CodePrefix(spec["categories"], spec["prefix"], other=spec.get("other"))
