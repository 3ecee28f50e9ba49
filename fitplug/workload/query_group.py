"""Query groups: Kronecker products of one factor per named attribute, with their targets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fitplug.domain import Domain
from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.numeric import FloatArray
from fitplug.workload.factors import Factor, build_factor
from fitplug.workload.targets import Target, read_target


@dataclass(frozen=True, eq=False)
class UnboundQueryGroup:
    """A query group before it is bound to a domain."""

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
    """A group: per attribute "identity", "prefix", "all_ranges", "total", `ranges(...)`,
    `rows(...)`, a 2-d array or sparse matrix of SciPy (rows x cells) or, for a Hierarchy, the name
    of a level. Attributes not named are summed out; the group's shape has one axis per attribute
    named, in the order named.

    Exactly one of variance, std, moe (margin of error at `confidence`, 0.95 if not given): a
    scalar or an array that broadcasts to the group's shape. simultaneous: the margins of error of
    all the group's answers hold together with that confidence. Raises WorkloadError.
    """
    if not isinstance(factors, Mapping):
        raise WorkloadError(f"queries need a mapping of attributes, not {type(factors).__name__}")
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise WorkloadError(f"name = {name!r} must be a non-empty string")
    try:
        asked = read_target(
            variance=variance,
            std=std,
            moe=moe,
            confidence=confidence,
            simultaneous=simultaneous,
        )
    except WorkloadError as error:
        raise WorkloadError(f"query {name or list(factors)}: {error}") from None
    return UnboundQueryGroup(tuple(factors.items()), asked, name)


def marginal(
    *attributes: str,
    variance: Any = None,
    std: Any = None,
    moe: Any = None,
    confidence: float | None = None,
    simultaneous: bool = False,
    name: str | None = None,
) -> UnboundQueryGroup:
    """The marginal table of the attributes: identity on each. See `queries`."""
    if len(set(attributes)) != len(attributes):
        raise WorkloadError(f"marginal {attributes} names an attribute twice")
    return queries(
        dict.fromkeys(attributes, "identity"),
        variance=variance,
        std=std,
        moe=moe,
        confidence=confidence,
        simultaneous=simultaneous,
        name=name,
    )


def total(
    *,
    variance: Any = None,
    std: Any = None,
    moe: Any = None,
    confidence: float | None = None,
    simultaneous: bool = False,
    name: str = "total",
) -> UnboundQueryGroup:
    """The number of all records, a group of shape (). See `queries`."""
    return queries(
        {},
        variance=variance,
        std=std,
        moe=moe,
        confidence=confidence,
        simultaneous=simultaneous,
        name=name,
    )


@dataclass(frozen=True, eq=False)
class QueryGroup:
    """A query group on a domain.

    factors: one per named attribute, in the order named.
    variances: the targets, shape `shape`.
    """

    name: str
    factors: tuple[Factor, ...]
    target: Target
    variances: FloatArray

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(f.rows for f in self.factors)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes whose values matter; those named only to be summed out are not here."""
        return tuple(f.attribute for f in self.factors if f.kind != "total")


def bind(domain: Domain, group: UnboundQueryGroup, taken: Mapping[str, QueryGroup]) -> QueryGroup:
    label = f"query {group.name!r}" if group.name else "query"
    factors: list[Factor] = []
    for name, asked in group.factors:
        if name not in domain:
            hint = suggest_nearest(name, domain.names)
            raise WorkloadError(f"{label}: the domain has no attribute {name!r}; {hint}")
        try:
            factors.append(build_factor(name, domain[name], asked))
        except WorkloadError as error:
            raise WorkloadError(f"{label}: {error}") from None
    name = group.name or _derived_name(group, factors, taken)
    if name in taken:
        raise WorkloadError(f"two query groups are named {name!r}; give each its own name")
    shape = tuple(f.rows for f in factors)
    if math.prod(shape) >= 2**59:  # more than any array library can index
        sizes = " x ".join(f"{f.attribute} {f.rows}" for f in factors)
        raise WorkloadError(f"query {name!r} has too many answers to number, {sizes}; use fewer")
    try:
        variances = group.target.variance(shape)
    except WorkloadError as error:
        raise WorkloadError(f"query {name!r}: {error}") from None
    return QueryGroup(name, tuple(factors), group.target, variances)


def _derived_name(
    group: UnboundQueryGroup, factors: Sequence[Factor], taken: Mapping[str, QueryGroup]
) -> str:
    parts = []
    for f, (_, asked) in zip(factors, group.factors, strict=True):
        # As asked: the finest level of a hierarchy is its identity, but has a name of its own.
        kind = asked if isinstance(asked, str) else f.kind if f.names is None else "rows"
        parts.append(f.attribute + ("" if kind == "identity" else f" {kind.replace('_', ' ')}"))
    base = " x ".join(parts) or "total"
    name, number = base, 2
    while name in taken:
        name, number = f"{base} {number}", number + 1
    return name
