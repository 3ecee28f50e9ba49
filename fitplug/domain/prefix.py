"""Prefixes: categories that are the first characters of longer codes, such as codes of areas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fitplug.domain.attribute import Codes
from fitplug.domain.categories import Categories
from fitplug.domain.spec_form import SpecForm
from fitplug.domain.texts import Texts
from fitplug.errors import DomainError


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Prefix(Categories):
    """The first characters of strings, with a cell for each different prefix.

        fp.Prefix(["01001", "01003", "02001"], 2)    # "01999" lies in the cell "01"

    A value that is shorter than `length`, or has another prefix, is outside.

    Args:
        codes: A public list of strings: the prefixes, or the longer codes that have them. The
            cells stand in the order in which the list has the prefixes first.
        length: Number of characters of a prefix, at least 1.
        other: Label of one more cell, the last, which takes every other value and null.

    Raises:
        DomainError: If there is no code, or a code is no string or shorter than `length`.
    """

    length: int
    spec_form: ClassVar[SpecForm] = SpecForm(
        "{ prefix = length, categories = [...] }",
        names=("prefix",),
        required=("categories",),
        optional=("other",),
    )

    def __init__(self, codes: Sequence[str], length: int, other: str | None = None) -> None:
        if type(length) is not int or length < 1:
            raise DomainError(f"the length of a prefix must be an integer from 1, not {length!r}")
        if isinstance(codes, str) or not isinstance(codes, Sequence):
            raise DomainError(f"codes must be a list of strings, not {codes!r}")
        for code in codes:
            if not isinstance(code, str):
                raise DomainError(f"code {code!r} must be a string to have a prefix")
            if len(code) < length:
                raise DomainError(f"code {code!r} is shorter than its prefix of {length}")
        super().__init__(list(dict.fromkeys(code[:length] for code in codes)), other)
        object.__setattr__(self, "length", length)

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute the codes of strings by their first characters.

        Args:
            values: Strings and nulls, shape (n,).

        Returns:
            The cells (n,). A string with another prefix, and null, has the last cell if there is
            one for other values, otherwise -1.

        Raises:
            DataError: If a value is neither null nor a string.
        """
        array = np.asarray(values)
        if array.dtype.kind not in "OUT":
            return super().codes(array)
        cut = np.empty(array.shape, dtype=object)
        cut[:] = [v[: self.length] if isinstance(v, str) else v for v in array.tolist()]
        return super().codes(cut)

    def codes_of_texts(self, texts: Texts) -> Codes:
        """Compute the codes of texts as files hold them, by their first characters."""
        if not texts.is_valid:  # characters of damaged texts cannot be told from their bytes
            return self.codes(np.array([*texts.tolist("surrogateescape"), None], dtype=object)[:-1])
        return super().codes_of_texts(texts.cut_prefixes(self.length))

    def _describe_rest(self) -> Any:
        return self.length

    def remedy(self, names: str) -> str:
        """Say that shorter prefixes are fewer, as long as there are shorter ones."""
        return f"{'shorter' if self.length > 1 else 'fewer'} prefixes of {names}"

    def spec(self) -> Any:
        """Describe the attribute as a spec file writes it."""
        categories: dict[str, Any] = {"prefix": self.length, "categories": list(self.values)}
        return categories if self.other is None else {**categories, "other": self.other}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Prefix:
        """Make the attribute of a table such as `{ prefix = 2, categories = ["01", "02"] }`."""
        return cls(spec["categories"], spec["prefix"], other=spec.get("other"))
