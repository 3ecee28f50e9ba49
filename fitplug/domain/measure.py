"""Measures: a bounded quantity of each record, divided between two cells.

A record with the value y of a measure from low to high counts (high - y) / (high - low) in the cell
"low" and (y - low) / (high - low) in the cell "high". So the number of records is the sum of both
cells, and the sum of the values is low times the first plus high times the second: both are linear
queries. To stay within integers, tables count shares: each record has (high - low) / unit shares
(docs/theory/measures.md).
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.domain.attribute import Attribute, Codec
from fitplug.domain.dates import Dates, DatesCodec
from fitplug.domain.days import EPOCH
from fitplug.domain.encoder import (
    MOST_NUMBER,
    OUTSIDE,
    Codes,
    describe_wrong_type,
    to_float,
    widen_to_int64,
)
from fitplug.domain.spec_form import SpecForm, read_ends
from fitplug.errors import DataError, DomainError
from fitplug.numeric import AnyArray, FloatArray, IntArray

MOST_SHARES = 2**25
"""The most units between the bounds of a measure. With more, 64 bits might not hold the shares of
all people on earth."""

Bound: TypeAlias = int | float | datetime.date


@dataclass(frozen=True, init=False)
class Measure(Attribute):
    """A number in each row, such as an income, that is limited to a range and that queries can sum.

        fp.Measure(0, 200_000, unit=100)

    Values below `low` count as `low`, and values above `high` as `high`. Values are then rounded to
    `low` plus a multiple of `unit`; halves are rounded up. Both rules are public. Margins of error
    do not include the effect of these limits and of rounding.

    A query with "sum" asks for the sum of the values. A query with "total", or without the measure,
    counts rows. If the bounds are dates, the values are days since 1970-01-01, and `unit` is a
    number of days.

    Args:
        low: The least value: a number, or a date or its text, "2020-12-31".
        high: The largest value, in the same forms.
        unit: The step of rounding; high - low must be a multiple of `unit`. A float is read as the
            decimal that Python prints.
        other: Label of an extra cell for rows whose value is null or not a number. Such a row adds
            0 to "sum" and 1 to "total"; "count" counts only rows that have a value. Without
            `other`, such rows are outside the domain.

    Raises:
        DomainError: `low` is not below `high`, a bound is neither a date nor a finite number with
            absolute value below 2**53, or `high` - `low` is not a multiple of `unit` or exceeds
            2**25 times `unit`.
    """

    low: Bound
    high: Bound
    unit: int | float
    other: str | None

    def __init__(
        self, low: Bound | str, high: Bound | str, unit: int | float = 1, other: str | None = None
    ) -> None:
        ends = _read_bounds(low, high)
        if type(unit) not in (int, float) or not 0 < unit < MOST_NUMBER:
            raise DomainError(f"unit must be a positive number below 2**53, not {unit!r}")
        object.__setattr__(self, "low", ends[0])
        object.__setattr__(self, "high", ends[1])
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "other", other)
        self._check_other()
        first, last = _read_number(ends[0]), _read_number(ends[1])
        if last <= first:
            raise DomainError(
                f"the measure's lower bound {low} must be below its upper bound {high}"
            )
        shares = (last - first) / _read_exactly(unit)
        if shares.denominator != 1 or shares > MOST_SHARES:
            raise DomainError(
                f"the bounds {low} and {high} must differ by a multiple of the unit {unit}, "
                f"at most {MOST_SHARES:,} units"
            )

    @property
    def values(self) -> Sequence[str]:
        """Both bounds as text."""
        return str(self.low), str(self.high)


class MeasureCodec(Codec, kind=Measure):
    """The codec of `Measure`."""

    attribute: Measure
    spec_form: ClassVar[SpecForm] = SpecForm(
        "{ measure = [low, high], unit = 1 }", names=("measure",), optional=("unit",)
    )

    @cached_property
    def bounds(self) -> tuple[Fraction, Fraction]:
        """Both bounds as exact numbers; dates as days since 1970-01-01."""
        return _read_number(self.attribute.low), _read_number(self.attribute.high)

    @property
    def scale(self) -> tuple[Fraction, Fraction, Fraction]:
        """Both bounds and the unit as exact numbers; dates as days since 1970-01-01."""
        return (*self.bounds, _read_exactly(self.attribute.unit))

    @property
    def value_type(self) -> type:
        """Type of the values that a column must hold: dates or numbers, like the bounds."""
        return datetime.date if isinstance(self.attribute.low, datetime.date) else float

    @cached_property
    def shares(self) -> int:
        """The number of units between the bounds: the shares into which a record is divided."""
        first, last = self.bounds
        return int((last - first) / _read_exactly(self.attribute.unit))

    @property
    def code_count(self) -> int:
        """Number of codes: one for each distance from `low` in units, and one more with `other`."""
        return self.shares + 1 + (self.other is not None)

    @property
    def null_code(self) -> int:
        """Code of null: -1, unless records without a value have a cell."""
        return OUTSIDE if self.other is None else self.shares + 1

    @property
    def integer_span(self) -> tuple[int, int]:
        """The integers at or just beyond both bounds: all values beyond them are clamped."""
        first, last = self.bounds
        return math.floor(first), math.ceil(last)

    @property
    def quantities(self) -> Mapping[str, FloatArray]:
        """The quantities that queries may ask for: "sum", and "count" with `other`."""
        first, last = map(float, self.bounds)
        if self.other is None:
            return {"sum": np.array([first, last])}
        return {"sum": np.array([first, last, 0.0]), "count": np.array([1.0, 1.0, 0.0])}

    @property
    def rule(self) -> str:
        """How values are clamped and rounded, and what happens to records without a value."""
        measure, is_date = self.attribute, isinstance(self.attribute.low, datetime.date)
        low, high = (str(end) if is_date else f"{end:,}" for end in (measure.low, measure.high))
        sums = "sums are in days since 1970-01-01" if is_date else ""
        unit = f"{measure.unit:,} day{'s'[: measure.unit != 1]}" if is_date else f"{measure.unit:,}"
        missing = (
            "rows without a value are not counted"
            if self.other is None
            else "rows without a value are counted and add nothing to sums"
        )
        said = (
            f"values below {low} count as {low}, values above {high} as {high}, and all are "
            f"rounded to steps of {unit} from {low}",
            sums,
            missing,
        )
        return "; ".join(filter(None, said))

    def codes(self, values: npt.ArrayLike) -> Codes:
        """Compute the distances of values from `low`, in units.

        Args:
            values: Numbers, or dates if the bounds are dates, and nulls, shape (n,).

        Returns:
            Integers (n,) from 0 to `shares` for values; `null_code` for nulls and NaN.

        Raises:
            DataError: If a value has another type.
        """
        if isinstance(self.attribute.low, datetime.date):
            return self._encode_dates(values)
        array = np.asarray(values)
        if array.dtype.kind == "O":
            return self.codes_of_numbers(
                np.array([to_float(v) for v in array.tolist()], dtype=np.float64)
            )
        if array.dtype.kind not in "iuf":
            if not array.size:
                return np.zeros(0, dtype=np.int64)
            raise DataError(describe_wrong_type(float, str(array.dtype)))
        return self.codes_of_numbers(array)

    def codes_of_numbers(self, numbers: AnyArray) -> Codes:
        """Compute the distances from `low`, in units, of values that a file stores as numbers.

        Args:
            numbers: Integers or floats (n,); for dates, days since 1970-01-01 from `find_days`.

        Returns:
            As for `codes`.
        """
        first, last = self.bounds
        unit = _read_exactly(self.attribute.unit)
        if numbers.dtype.kind in "iu":
            numbers = np.clip(widen_to_int64(numbers), -MOST_NUMBER, MOST_NUMBER)
            if first.denominator == last.denominator == unit.denominator == 1:
                above = np.clip(numbers, int(first), int(last)) - int(first)
                return np.asarray((2 * above + int(unit)) // (2 * int(unit)))
        floats = numbers.astype(np.float64)
        missing = np.isnan(floats)
        above = np.clip(np.where(missing, float(first), floats), float(first), float(last))
        near = np.floor((above - float(first)) / float(unit) + 0.5)
        # Rounding may leave a value next to a bound beyond it.
        codes = np.clip(near, 0, self.shares).astype(np.int64)
        return np.where(missing, self.null_code, codes)

    def _encode_dates(self, values: npt.ArrayLike) -> Codes:
        """Compute the distances of dates from `low`."""
        wide = DatesCodec(Dates(datetime.date.min, datetime.date.max))
        cells = wide.codes(values)
        codes = self.codes_of_numbers(cells + wide.days[0])
        return np.where(cells < 0, self.null_code, codes)

    def count_shares(self, codes: Codes) -> IntArray:
        """Count the shares that records have in each cell.

        Args:
            codes: Codes (n,), none of them -1.

        Returns:
            Shape (n, size). Each row sums to `shares`.
        """
        valued = codes <= self.shares
        above = np.where(valued, codes, 0)
        cells = [np.where(valued, self.shares - above, 0), above]
        if self.other is not None:
            cells.append(np.where(valued, 0, self.shares))
        return np.stack(cells, axis=1)

    def find_end(self, value: Any) -> int | None:
        """Return None: queries cannot use ranges or comparisons of a measure."""
        return None

    def find_value(self, value: Any) -> int | None:
        """Find the cell of a bound by its text."""
        return self.values.index(value) if value in self.values else None

    def suggest(self, value: Any, *, end: bool = False) -> str:
        """Name the quantity that queries may ask for."""
        return "A measure has no values to select. Queries can ask for its 'sum'."

    def remedy(self, names: str) -> str:
        """Suggest fewer measures in one table."""
        return f"fewer measures in one table than {names}"

    def spec(self) -> Any:
        """Describe the attribute as a spec file writes it."""
        measure = self.attribute
        ends = [
            end.isoformat() if isinstance(end, datetime.date) else end
            for end in (measure.low, measure.high)
        ]
        return {"measure": ends, "unit": measure.unit, **self._spec_of_other()}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Measure:
        """Make the attribute of a table such as `{ measure = [0, 200000], unit = 100 }`."""
        low, high = read_ends(spec, "measure", "numbers or dates, [low, high]")
        return Measure(low, high, unit=spec.get("unit", 1), other=spec.get("other"))


def _read_bounds(low: Any, high: Any) -> tuple[Any, Any]:
    """Read both bounds: two numbers or two dates."""
    if any(isinstance(end, (str, datetime.date)) for end in (low, high)):
        try:
            return Dates(low, low).first, Dates(high, high).first
        except DomainError:
            raise DomainError(
                f"the measure's bounds {low!r} and {high!r} must be two numbers, or two dates such "
                "as '2020-12-31'"
            ) from None
    for end in (low, high):
        if type(end) not in (int, float) or not math.isfinite(end) or abs(end) >= MOST_NUMBER:
            raise DomainError(
                f"the measure's bound {end!r} must be a number between -2**53 and 2**53"
            )
    return low, high


def _read_number(bound: Bound) -> Fraction:
    """Return a bound as an exact number; a date as days since 1970-01-01."""
    if isinstance(bound, datetime.date):
        return Fraction(bound.toordinal() - EPOCH)
    return _read_exactly(bound)


def _read_exactly(number: int | float) -> Fraction:
    """Read a number as the decimal that Python shows for it: 0.1 as one tenth."""
    return Fraction(repr(number))
