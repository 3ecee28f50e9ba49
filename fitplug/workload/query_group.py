"""Query groups: Kronecker products of one factor per named attribute, with their targets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fitplug.domain import Domain
from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.numeric import FloatArray
from fitplug.workload.factors import Factor, build_factor
from fitplug.workload.targets import Target, TargetKeywords, read_target

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, eq=False)
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
            matrix of SciPy, of shape (rows, cells).
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
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise WorkloadError(f"name = {name!r} must be a non-empty string")
    try:
        target = read_target(
            variance=variance,
            std=std,
            moe=moe,
            confidence=confidence,
            simultaneous=simultaneous,
        )
    except WorkloadError as error:
        raise WorkloadError(f"query {name or list(factors)}: {error}") from None
    return UnboundQueryGroup(tuple(factors.items()), target, name)


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
    return queries(dict.fromkeys(attributes, "identity"), name=name, **target)


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


def bind(domain: Domain, group: UnboundQueryGroup, taken: Mapping[str, QueryGroup]) -> QueryGroup:
    """Bind a query group to a domain.

    Args:
        domain: The domain.
        group: The group.
        taken: The groups that are already bound, by name.

    Raises:
        WorkloadError: The group does not fit the domain, or its name is taken.
    """
    label = f"query {group.name!r}" if group.name else "query"
    factors: list[Factor] = []
    for name, query in group.factors:
        if name not in domain:
            hint = suggest_nearest(name, domain.names)
            raise WorkloadError(f"{label}: the domain has no attribute {name!r}; {hint}")
        try:
            factors.append(build_factor(name, domain[name], query))
        except WorkloadError as error:
            raise WorkloadError(f"{label}: {error}") from None
    name = group.name or _derive_name(group, factors, taken)
    if name in taken:
        raise WorkloadError(f"two query groups are named {name!r}; give each its own name")
    shape = tuple(f.rows for f in factors)
    if math.prod(shape) >= 2**59:  # NumPy cannot index more
        sizes = " x ".join(f"{f.attribute} {f.rows}" for f in factors)
        raise WorkloadError(f"query {name!r} has too many answers to number, {sizes}; use fewer")
    try:
        variances = group.target.variance(shape)
    except WorkloadError as error:
        raise WorkloadError(f"query {name!r}: {error}") from None
    return QueryGroup(name, tuple(factors), group.target, variances)


def _derive_name(
    group: UnboundQueryGroup, factors: Sequence[Factor], taken: Mapping[str, QueryGroup]
) -> str:
    """Derive a name that is not taken from the attributes and the kinds of their factors."""
    words = []
    for f, (_, query) in zip(factors, group.factors, strict=True):
        # The user's own word, because the finest level of a hierarchy has the kind "identity".
        kind = query if isinstance(query, str) else f.kind if f.names is None else "rows"
        words.append(f.attribute + ("" if kind == "identity" else f" {kind.replace('_', ' ')}"))
    base = " x ".join(words) or "total"
    name, number = base, 2
    while name in taken:
        name, number = f"{base} {number}", number + 1
    return name
