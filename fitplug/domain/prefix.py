"""Prefixes: categories that are the first characters of longer codes, as of areas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fitplug.domain.attribute import Codes
from fitplug.domain.categories import Categories
from fitplug.errors import DomainError


@dataclass(frozen=True, init=False)
class Prefix(Categories):
    """The first `length` characters of strings, one cell each: "01001" lies in the cell "01".

    codes: a public list of strings, whose distinct prefixes are the cells, in the order they are
    first met; the prefixes themselves, or the longer codes. A value shorter than `length`, or with
    a prefix that is not among them, is outside. other: as for Categories. Raises DomainError.
    """

    length: int

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
        """Cells (n,) of `values` (n,), -1 for those that have none.

        Raises DataError if a value is neither null nor a string.
        """
        array = np.asarray(values)
        if array.dtype.kind not in "OUT":
            return super().codes(array)
        cut = np.empty(array.shape, dtype=object)
        cut[:] = [v[: self.length] if isinstance(v, str) else v for v in array.tolist()]
        return super().codes(cut)

    def spec(self) -> Any:
        """As a spec file writes it."""
        categories: dict[str, Any] = {"prefix": self.length, "categories": list(self.values)}
        return categories if self.other is None else {**categories, "other": self.other}
