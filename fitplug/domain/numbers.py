"""Numbers: an ordered cell for each integer of a range, or for each of several intervals."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fitplug.domain.attribute import Attribute, Codec, suggest_name
from fitplug.domain.encoder import Codes, describe_wrong_type, to_float, widen_to_int64
from fitplug.domain.spec_form import SpecForm, read_ends
from fitplug.errors import DataError, DomainError


@dataclass(frozen=True)
class Integers(Attribute):
    """The integers from `low` to `high`. Each integer is a cell.

        fp.Integers(0, 115)
        fp.Integers(0, 115, other="missing")

    Args:
        low: The smallest integer of the domain.
        high: The largest integer of the domain; it is included.
        other: Label of an extra last cell for null and all other values, which are outside the
            domain without `other`. "prefix" counts leave this cell out, and a range includes it
            only if the upper end of the range is this label.

    Raises:
        DomainError: If the range is empty, an end is not an integer with absolute value below
            2**62, or `other` is also the text of a value.
    """

    low: int
    high: int
    other: str | None = None

    def __post_init__(self) -> None:
        for end in (self.low, self.high):
            if type(end) is not int or abs(end) >= 2**62:
                raise DomainError(
                    "the ends of an integer range must be integers between -2**62 and 2**62, not "
                    f"{end!r}"
                )
        if self.high < self.low:
            raise DomainError(
                f"the integer range {self.low}..{self.high} is empty. Give the lower end first."
            )
        self._check_other()

    @property
    def _value_count(self) -> int:
        """Number of integers."""
        return self.high - self.low + 1

    @property
    def values(self) -> Sequence[int]:
        """The integers, in increasing order."""
        return range(self.low, self.high + 1)


class IntegersCodec(Codec, kind=Integers):
    """The codec of `Integers`."""

    attribute: Integers
    spec_form: ClassVar[SpecForm] = SpecForm("{ integers = [low, high] }", names=("integers",))
    value_type: ClassVar[type] = int
    is_ordered: ClassVar[bool] = True

    @property
    def integer_span(self) -> tuple[int, int] | None:
        """The integers just outside both ends, which stand for all values beyond them."""
        return self.attribute.low - 1, self.attribute.high + 1

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute the codes of integers.

        Args:
            values: Integers and nulls, shape (n,). Floats are refused, so that none silently gets a
                cell.

        Returns:
            The cells (n,), `null_code` for integers outside the range and for null.

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
            outside = self.null_code
            codes = np.full(array.shape, outside, dtype=np.int64)
            codes[~null] = [
                v - self.attribute.low
                if self.attribute.low <= v <= self.attribute.high
                else outside
                for v in map(int, present)
            ]
            return codes
        if array.dtype.kind not in "iu":
            if not array.size:
                return np.zeros(0, dtype=np.int64)
            raise DataError(describe_wrong_type(int, str(array.dtype)))
        wide = widen_to_int64(array)
        inside = (wide >= self.attribute.low) & (wide <= self.attribute.high)
        return np.where(
            inside, np.where(inside, wide, self.attribute.low) - self.attribute.low, self.null_code
        )

    def find_end(self, value: Any) -> int | None:
        """Find the cell of an integer; None for anything else, and for integers outside."""
        if type(value) is int and self.attribute.low <= value <= self.attribute.high:
            return value - self.attribute.low
        return None

    def parse(self, text: str) -> Any:
        """Convert decimal digits with an optional minus sign to an integer."""
        return int(text) if re.fullmatch(r"-?\d{1,20}", text) else None

    def suggest(self, value: Any, *, end: bool = False) -> str:
        """Name the two ends of the range."""
        return f"Its values are {self.attribute.low} to {self.attribute.high}."

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest integer."""
        return self.attribute.low, self.attribute.high

    def remedy(self, names: str) -> str:
        """Suggest bins in place of integers."""
        return f"coarser bins of {names}"

    def spec(self) -> Any:
        """Describe the attribute as a spec file writes it."""
        return {"integers": [self.attribute.low, self.attribute.high], **self._spec_of_other()}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Integers:
        """Make the attribute of a table such as `{ integers = [0, 115] }`."""
        return Integers(
            *read_ends(spec, "integers", "numbers, [low, high]"), other=spec.get("other")
        )


@dataclass(frozen=True, init=False)
class Bins(Attribute):
    """Intervals of numbers. Each is a cell, and includes its lower but not its upper edge.

    Numbers below the first edge, numbers from the last edge on and NaN are outside the domain. In
    queries, write edges in ranges and comparisons: the range (0, 10_000) counts all bins between
    these two edges.

        fp.Bins([0, 10_000, 50_000, 1_000_000])

    Args:
        edges: At least two finite numbers with absolute value below 2**53, in increasing order.
        other: Label of an extra last cell for null, NaN and all other numbers. A range includes
            this cell only if the upper end of the range is this label.

    Raises:
        DomainError: If the edges are not finite numbers in increasing order, or `other` is also the
            text of an edge or of an interval.
    """

    edges: tuple[float, ...]
    other: str | None

    def __init__(self, edges: Sequence[float], other: str | None = None) -> None:
        if isinstance(edges, str) or not isinstance(edges, Sequence):
            raise DomainError(f"bins must be a list of edges, not {edges!r}")
        for edge in edges:
            if type(edge) not in (int, float) or not math.isfinite(edge) or abs(edge) >= 2**53:
                raise DomainError(f"bin edge {edge!r} must be a number between -2**53 and 2**53")
        if len(edges) < 2:
            raise DomainError("bins need at least two edges")
        for low, high in itertools.pairwise(edges):
            if high <= low:
                raise DomainError(f"bin edges must increase, but {high!r} follows {low!r}")
        object.__setattr__(self, "edges", tuple(edges))
        object.__setattr__(self, "other", other)
        self._check_other()

    @property
    def _value_count(self) -> int:
        """Number of intervals."""
        return len(self.edges) - 1

    @property
    def values(self) -> Sequence[str]:
        """The intervals as text, such as "[0, 10000)", in increasing order."""
        return tuple(f"[{a}, {b})" for a, b in itertools.pairwise(self.edges))


class BinsCodec(Codec, kind=Bins):
    """The codec of `Bins`."""

    attribute: Bins
    spec_form: ClassVar[SpecForm] = SpecForm("{ bins = [...] }", names=("bins",))
    value_type: ClassVar[type] = float
    is_ordered: ClassVar[bool] = True
    is_half_open: ClassVar[bool] = True

    @cached_property
    def _cell_of_label(self) -> dict[str, int]:
        return {label: cell for cell, label in enumerate(self.values)}

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute the codes of numbers.

        Args:
            values: Integers or floats, and nulls, shape (n,).

        Returns:
            The cells (n,), `null_code` for numbers in no interval and for null.

        Raises:
            DataError: If a value is neither a number nor null.
        """
        array = np.asarray(values)
        if array.dtype.kind == "O":
            return self.codes(np.array([to_float(v) for v in array.tolist()], dtype=np.float64))
        if array.dtype.kind not in "iuf":
            if not array.size:
                return np.zeros(0, dtype=np.int64)
            raise DataError(describe_wrong_type(float, str(array.dtype)))
        # Edges are below 2**53 in size, so clipping wide integers there moves none across an edge
        # and makes their conversion to float exact.
        if array.dtype.kind in "iu":
            numbers = np.clip(widen_to_int64(array), -(2**53), 2**53).astype(np.float64)
        else:
            numbers = array.astype(np.float64)
        cell = (
            np.searchsorted(
                np.asarray(self.attribute.edges, dtype=np.float64), numbers, side="right"
            )
            - 1
        )
        # NaN sorts last, so it lies beyond the last edge, as large values do.
        inside = (cell >= 0) & (cell < self.value_count)
        return np.where(inside, cell, self.null_code).astype(np.int64)

    def find_end(self, value: Any) -> int | None:
        """Find the cell that starts at an edge; `value_count` for the last edge, or None."""
        return self.attribute.edges.index(value) if value in self.attribute.edges else None

    def find_value(self, value: Any) -> int | None:
        """Find the cell with a label such as "[0, 10000)"; numbers name edges, not cells."""
        return self._cell_of_label.get(value) if isinstance(value, str) else None

    def parse(self, text: str) -> Any:
        """Convert text to a number, which may be an edge."""
        try:
            return float(text)
        except ValueError:
            return None

    def suggest(self, value: Any, *, end: bool = False) -> str:
        """Suggest the nearest label, or the nearest edge for an end of a range."""
        return suggest_name(
            value, [f"{edge:g}" for edge in self.attribute.edges] if end else self.labels
        )

    @property
    def ends(self) -> tuple[float, float]:
        """The first and the last edge."""
        return self.attribute.edges[0], self.attribute.edges[-1]

    def _label_run(self, first: int, last: int) -> str:
        """Name a run of adjacent cells by its outer edges, as one interval."""
        return f"[{self.attribute.edges[first]}, {self.attribute.edges[last + 1]})"

    def remedy(self, names: str) -> str:
        """Suggest coarser bins."""
        return f"coarser bins of {names}"

    def spec(self) -> Any:
        """Describe the attribute as a spec file writes it."""
        return {"bins": list(self.attribute.edges), **self._spec_of_other()}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Bins:
        """Make the attribute of a table such as `{ bins = [0, 10000, 50000] }`."""
        return Bins(spec["bins"], other=spec.get("other"))
