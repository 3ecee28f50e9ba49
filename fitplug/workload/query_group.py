"""Query groups: Kronecker products of one factor per named attribute, with their targets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fitplug.errors import WorkloadError
from fitplug.numeric import FloatArray
from fitplug.workload.factors import Factor
from fitplug.workload.targets import Target, TargetKeywords, read_target

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, eq=False, slots=True)
class UnboundQueryGroup:
    """A query group that is not yet bound to a domain.

    Attributes:
        factors: The attributes and what was given for each, in order.
        target: The target.
        name: The name that was given, or None if it is to be derived.
    """

    factors: tuple[tuple[str, Any], ...]
    target: Target
    name: str | None


def queries(
    factors: Mapping[str, Any],
    *,
    variance: Any = None,
    std: Any = None,
    moe: Any = None,
    confidence: float | None = None,
    simultaneous: bool = False,
    name: str | None = None,
) -> UnboundQueryGroup:
    """Ask for a group of queries: a Kronecker product of one factor per attribute.

    The group's shape has one axis per named attribute, in the order of their names. Attributes
    that are not named are summed out. Exactly one of `variance`, `std` and `moe` is needed.

    Args:
        factors: By attribute, one of "identity", "prefix", "all_ranges", "total", `ranges(...)`,
            `rows(...)`, the name of a level of a Hierarchy, or a matrix: an array or a sparse
            matrix of SciPy, of shape (rows, cells). Of a Measure "sum", in its own units.
        variance: The largest variance of each answer: a number, or an array that broadcasts to the
            group's shape.
        std: The largest standard deviation of each answer, in the same forms.
        moe: The largest margin of error of each answer at `confidence`, in the same forms.
        confidence: The confidence of `moe`, strictly between 0 and 1; 0.95 by default.
        simultaneous: Whether the margins of error of all answers of the group hold together with
            that confidence, rather than each one separately.
        name: The name of the group; by default it is derived from the factors.

    Raises:
        WorkloadError: The factors are no mapping, or the target or the name is not well formed.
    """
    if not isinstance(factors, Mapping):
        raise WorkloadError(f"queries need a mapping of attributes, not {type(factors).__name__}")
    target = {
        "variance": variance,
        "std": std,
        "moe": moe,
        "confidence": confidence,
        "simultaneous": simultaneous,
    }
    return _make_group(tuple(factors.items()), name, target)


def marginal(
    *attributes: str, name: str | None = None, **target: Unpack[TargetKeywords]
) -> UnboundQueryGroup:
    """Ask for the marginal table of some attributes: the identity on each.

    Args:
        attributes: The names of the attributes.
        name: The name of the group; by default it is derived from the attributes.
        target: `variance`, `std` or `moe`, and for the latter `confidence` and `simultaneous`, as
            for `queries`.

    Raises:
        WorkloadError: An attribute is named twice, or the target or the name is not well formed.
    """
    if len(set(attributes)) != len(attributes):
        raise WorkloadError(f"marginal {attributes} names an attribute twice")
    return _make_group(tuple(map(_ask_identity, attributes)), name, target)


def total(*, name: str = "total", **target: Unpack[TargetKeywords]) -> UnboundQueryGroup:
    """Ask for the number of all records, a group of shape ().

    Args:
        name: The name of the group.
        target: `variance`, `std` or `moe`, and for the latter `confidence` and `simultaneous`, as
            for `queries`.

    Raises:
        WorkloadError: The target or the name is not well formed.
    """
    return queries({}, name=name, **target)


def _make_group(
    factors: tuple[tuple[str, Any], ...], name: str | None, target: Mapping[str, Any]
) -> UnboundQueryGroup:
    """Make a group of what was given for its attributes, and the keywords of its target."""
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise WorkloadError(f"name = {name!r} must be a non-empty string")
    try:
        read = read_target(**target)
    except WorkloadError as error:
        attributes = [attribute for attribute, _ in factors]
        raise WorkloadError(f"query {repr(name) if name else attributes}: {error}") from None
    return UnboundQueryGroup(factors, read, name)


@lru_cache(maxsize=4096, typed=True)
def _ask_identity(attribute: str) -> tuple[str, str]:
    """Ask for each cell of an attribute. A million tables may share a few such pairs."""
    return attribute, "identity"


@dataclass(frozen=True, eq=False)
class QueryGroup:
    """A query group that is bound to a domain.

    Attributes:
        name: The name of the group, which is unique in a workload.
        factors: One factor per named attribute, in the order of their names.
        target: The target, in the form in which the user gave it.
        variances: The target of each query as a variance, of shape `shape`.
    """

    name: str
    factors: tuple[Factor, ...]
    target: Target
    variances: FloatArray

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows of each factor."""
        return tuple(f.rows for f in self.factors)

    @property
    def size(self) -> int:
        """The number of queries."""
        return math.prod(self.shape)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that are not summed out."""
        return tuple(f.attribute for f in self.factors if f.kind != "total")

    @property
    def quantity(self) -> str:
        """What the answers and their standard deviations are numbers of: "records", or for instance
        "sum of INCOME", in the measure's own units.
        """
        measures = [f.attribute for f in self.factors if f.kind == "sum" and f.array is not None]
        return f"sum of {' x '.join(measures)}" if measures else "records"
