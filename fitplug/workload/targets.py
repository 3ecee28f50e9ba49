"""Targets: how accurate answers must be, as a variance, a std or a margin of error (moe)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

import numpy as np
from scipy.special import erfinv, ndtri

from fitplug.errors import WorkloadError
from fitplug.numeric import AnyArray, FloatArray, IntArray, read_array

Kind: TypeAlias = Literal["variance", "std", "moe"]

DEFAULT_CONFIDENCE = 0.95
LEAST_CONFIDENCE = 1e-6

LARGEST_VARIANCE, LARGEST_STD = 1e60, 1e30
"""Targets lie between these and their reciprocals."""

_NUMBERS = (float, int, np.float64)


class TargetKeywords(TypedDict, total=False):
    """The keywords by which `queries`, `marginal` and `total` take a target.

    Attributes:
        variance: The largest variance of each answer: a number, or an array that broadcasts to the
            group's shape.
        std: The largest standard deviation of each answer, in the same forms.
        moe: The largest margin of error of each answer at `confidence`, in the same forms.
        confidence: Strictly between 0 and 1, only with `moe`; 0.95 by default.
        simultaneous: Whether the margins of error of all answers of the group hold together with
            that confidence, only with `moe`; False by default.
    """

    variance: Any
    std: Any
    moe: Any
    confidence: float | None
    simultaneous: bool


class TargetForm(NamedTuple):
    """A target without its numbers; see `Target`.

    Attributes:
        kind: What the numbers limit.
        confidence: The confidence of a margin of error; None for the other kinds.
        simultaneous: Whether all margins of error of the group hold together.
        shape: The shape of the numbers.
    """

    kind: Kind
    confidence: float | None
    simultaneous: bool
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many numbers the target has."""
        return math.prod(self.shape)

    def convert_to_variances(self, values: FloatArray, queries: int | IntArray) -> FloatArray:
        """Convert numbers to variances that are never larger than what was asked for.

        Args:
            values: The numbers, of any shape.
            queries: The number of queries of the group, or of the group of each number.

        Returns:
            Variances of the shape of `values`, rounded down.
        """
        if self.kind == "variance":
            return values
        if self.kind == "std":
            return _square_down(values)
        assert self.confidence is not None
        z = np.asarray(find_quantile(self.confidence))
        if self.simultaneous:
            counts, where = np.unique(queries, return_inverse=True)
            z = np.array([find_quantile(self.confidence, count) for count in counts.tolist()])
            z = z[where].reshape(np.shape(queries))
        squares = np.asarray(_square(values / z, is_alone=not self.shape))
        # The quantile, the division and the square each have an error of a few units in the last
        # place. The factor is smaller than 1 by more than that.
        return np.asarray(squares * (1 - 2.0**-49))


@dataclass(frozen=True, eq=False)
class Target:
    """A target in the form in which the user gave it.

    Attributes:
        kind: What `value` limits.
        value: A scalar, or an array that broadcasts to the group's shape.
        confidence: The confidence of a margin of error; None for the other kinds.
        simultaneous: Whether all margins of error of the group hold together with that confidence,
            rather than each one separately.
    """

    kind: Kind
    value: FloatArray
    confidence: float | None = None
    simultaneous: bool = False

    def variance(self, shape: tuple[int, ...]) -> FloatArray:
        """Compute the largest variance allowed for each query, never rounded up.

        Args:
            shape: The group's shape.

        Returns:
            Variances of this shape. The array may be a view, and must not be written to.

        Raises:
            WorkloadError: The value does not broadcast to the shape.
        """
        allowed = self.form.convert_to_variances(self.value, math.prod(shape))
        try:
            # A view: a scalar target takes no memory, however many queries share it.
            return np.broadcast_to(allowed, shape)
        except ValueError:
            raise WorkloadError(
                f"{self.kind} has shape {self.value.shape}, which does not broadcast to the "
                f"group's shape {shape}"
            ) from None

    @property
    def form(self) -> TargetForm:
        """The target without its numbers."""
        return TargetForm(self.kind, self.confidence, self.simultaneous, self.value.shape)

    def describe(self) -> str:
        """Describe the target for people, an array by its range.

        Examples are "std 5", "moe 30 at 90%" and "moe 30 at 90% simultaneous".
        """
        low, high = float(self.value.min()), float(self.value.max())
        amount = f"{low:,.10g}" if low == high else f"{low:,.10g} to {high:,.10g}"
        if self.confidence is None:
            return f"{self.kind} {amount}"
        together = " simultaneous" if self.simultaneous else ""
        return f"moe {amount} at {100 * self.confidence:g}%{together}"


def read_target(
    *,
    variance: Any = None,
    std: Any = None,
    moe: Any = None,
    confidence: float | None = None,
    simultaneous: bool = False,
) -> Target:
    """Read the keywords of a target; see `TargetKeywords`.

    Raises:
        WorkloadError: Not exactly one of `variance`, `std` and `moe` is given, or it is not made of
            positive finite numbers, or a keyword belongs to another kind of target.
    """
    kind, amount = _find_kind(variance, std, moe)
    if not isinstance(simultaneous, bool):
        raise WorkloadError(f"simultaneous must be True or False, not {simultaneous!r}")
    for name, is_given in (("confidence", confidence is not None), ("simultaneous", simultaneous)):
        if kind != "moe" and is_given:
            raise WorkloadError(f"{name!r} needs the target 'moe', not {kind!r}. Remove {name!r}.")
    if kind == "moe":
        confidence = DEFAULT_CONFIDENCE if confidence is None else confidence
        check_confidence(confidence)
    largest = LARGEST_VARIANCE if kind == "variance" else LARGEST_STD
    if type(amount) in _NUMBERS and 1 / largest <= amount <= largest:
        return _make_scalar_target(kind, float(amount), confidence, simultaneous)
    value = _read_numbers(kind, amount)
    for wrong, text in ((~np.isfinite(value), "finite"), (value <= 0, "greater than zero")):
        if wrong.any():
            at = [int(i) for i in np.argwhere(wrong)[0]]
            place = f"{kind}{at}" if at else kind
            raise WorkloadError(f"{place} must be {text}, not {value[tuple(at)]:g}")
    if value.size == 0:
        raise WorkloadError(f"{kind} is an empty array. Give one target per query.")
    if not 1 / largest <= float(value.min()) <= float(value.max()) <= largest:
        raise WorkloadError(f"{kind} must lie between {1 / largest:g} and {largest:g}")
    return Target(kind, value, confidence, simultaneous)


def _find_kind(variance: Any, std: Any, moe: Any) -> tuple[Kind, Any]:
    """Find the kind and the value of the only given target, or raise WorkloadError."""
    if variance is not None and std is None and moe is None:
        return "variance", variance
    if std is not None and variance is None and moe is None:
        return "std", std
    if moe is not None and variance is None and std is None:
        return "moe", moe
    given = {"variance": variance, "std": std, "moe": moe}
    named = [kind for kind, value in given.items() if value is not None]
    given_kinds = "none was given" if not named else " and ".join(named) + " were given"
    raise WorkloadError(f"give exactly one target: variance, std or moe ({given_kinds})")


@lru_cache(maxsize=1024)
def _make_scalar_target(
    kind: Kind, value: float, confidence: float | None, simultaneous: bool
) -> Target:
    """Make a target of one number. A million tables may share it."""
    number = np.array(value)
    number.setflags(write=False)
    return Target(kind, number, confidence, simultaneous)


def _read_numbers(kind: str, given: Any) -> FloatArray:
    """Convert a number or an array of numbers, and refuse booleans."""
    array = read_array(given)
    mixed = isinstance(given, (list, tuple)) and any(
        isinstance(v, bool) for v in np.asarray(given, dtype=object).flat
    )
    if array.dtype.kind not in "iuf" or mixed:
        raise WorkloadError(f"{kind} = {given!r} is not a number or an array of numbers")
    return array.astype(np.float64)


def check_confidence(confidence: float) -> None:
    """Check that 1e-6 <= confidence < 1.

    Raises:
        WorkloadError: `confidence` is not such a number.
    """
    if not isinstance(confidence, (int, float)) or not LEAST_CONFIDENCE <= confidence < 1:
        raise WorkloadError(
            f"confidence must be at least {LEAST_CONFIDENCE:g} and below 1, not {confidence!r}"
        )


def two_sided_quantile(confidence: float) -> float:
    """Compute z with P(|N(0, 1)| <= z) = confidence, so that a margin of error is z times the std.

    docs/theory/post-processing.md shows why intervals of this half-width hold.
    """
    # Each form keeps its digits: the first if the confidence is close to 1, the second near 0.
    if confidence > 0.5:
        return float(-ndtri((1 - confidence) / 2))
    return math.sqrt(2) * float(erfinv(confidence))


def find_quantile(confidence: float, queries: int = 1) -> float:
    """Compute z with P(|N_i| <= z for all i) >= confidence, for standard normal N_i.

    This is Sidak's inequality (1967). It holds for every correlation of the N_i, and is an equality
    if they are independent.

    Args:
        confidence: From 1e-6 to less than 1.
        queries: The number of the N_i; with one, this is `two_sided_quantile`.

    Raises:
        WorkloadError: The confidence is out of range.
    """
    check_confidence(confidence)
    if queries <= 1:
        return two_sided_quantile(confidence)
    each = math.log(confidence) / queries
    # This is 1 - confidence^(1/queries), computed so that it keeps its digits if it is small.
    tail = -math.expm1(each)
    if tail < 0.5:
        return float(-ndtri(tail / 2))
    return math.sqrt(2) * float(erfinv(math.exp(each)))


def _square(numbers: AnyArray, *, is_alone: bool) -> FloatArray:
    """Square numbers, to within a unit in the last place.

    Args:
        numbers: The numbers.
        is_alone: Whether each number is the only one of its target. The C library's pow squares
            such numbers, which rounds one in a thousand squares differently: plan files hold these
            variances, and are compared with the queries of a spec.
    """
    if not is_alone:
        return np.asarray(numbers * numbers)
    squares = [number**2 for number in np.ravel(numbers).tolist()]
    return np.array(squares).reshape(np.shape(numbers))


def _square_down(value: FloatArray) -> FloatArray:
    """Square each number, which lies between 1e-30 and 1e30, rounded down."""
    squares = np.asarray(value * value)
    # The exact error of each square (Dekker 1971, A floating-point technique for extending the
    # available precision, section 5): all values are normal floats.
    shifted = value * (2.0**27 + 1)
    high = shifted - (shifted - value)
    low = value - high
    error = ((high * high - squares) + 2 * high * low) + low * low
    return np.asarray(np.where(error < 0, np.nextafter(squares, 0), squares))
