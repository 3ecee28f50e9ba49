"""Workloads: query groups with their targets, bound to a domain.

A group is a Kronecker product of one factor per named attribute; W stacks the groups' rows, over
the cells of the attributes that any group uses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug import notebook
from fitplug.domain import Domain, Integers
from fitplug.errors import WorkloadError, nearest
from fitplug.factors import Factor, factor, query_matrix
from fitplug.frozen import freeze
from fitplug.targets import Target, target

Array: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Queries:
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
) -> Queries:
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
        asked = target(
            variance=variance,
            std=std,
            moe=moe,
            confidence=confidence,
            simultaneous=simultaneous,
        )
    except WorkloadError as error:
        raise WorkloadError(f"query {name or list(factors)}: {error}") from None
    return Queries(tuple(factors.items()), asked, name)


def marginal(
    *attributes: str,
    variance: Any = None,
    std: Any = None,
    moe: Any = None,
    confidence: float | None = None,
    simultaneous: bool = False,
    name: str | None = None,
) -> Queries:
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
) -> Queries:
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
    variances: Array

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


class Workload:
    """Query groups with targets on a domain. Immutable.

    Raises WorkloadError for an unknown attribute, a name used twice, a group that is no
    Kronecker product of known factors, or targets that do not fit its shape.
    """

    def __init__(self, domain: Domain, groups: Sequence[Queries]) -> None:
        if not isinstance(domain, Domain):
            raise WorkloadError("a workload needs a Domain first")
        if isinstance(groups, Queries) or not groups:
            raise WorkloadError("a workload needs a list of at least one query group")
        bound: dict[str, QueryGroup] = {}
        for group in groups:
            if not isinstance(group, Queries):
                raise WorkloadError(f"{group!r} is no query group; use queries, marginal or total")
            one = _bind(domain, group, taken=bound)
            bound[one.name] = one
        self._set(domain, tuple(bound.values()))

    @classmethod
    def of_groups(cls, domain: Domain, groups: Sequence[QueryGroup]) -> Workload:
        """A workload of groups that are already bound to the domain, as plan files hold them."""
        self = cls.__new__(cls)
        self._set(domain, tuple(groups))
        return self

    def _set(self, domain: Domain, groups: tuple[QueryGroup, ...]) -> None:
        used = {name for group in groups for name in group.attributes}
        self.domain = domain
        self.groups = freeze(groups)
        self.attributes = tuple(name for name in domain.names if name in used)
        """Attributes that some group uses, in the domain's order. The others are summed out."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        freeze(self.groups)  # unpickled arrays may be written to

    @classmethod
    def from_matrix(
        cls, W: Any, *, variance: Any = None, std: Any = None, moe: Any = None, **kwargs: Any
    ) -> Workload:
        """The paper's setting: any W (m, d), dense or a sparse one of SciPy, with one target per
        row, over a domain of d cells named "cell". The one group is named "queries". Raises
        WorkloadError.
        """
        matrix = query_matrix("W", W)
        domain = Domain({"cell": Integers(0, matrix.shape[1] - 1)})
        kwargs.setdefault("name", "queries")
        group = queries({"cell": matrix}, variance=variance, std=std, moe=moe, **kwargs)
        return cls(domain, [group])

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(group.name for group in self.groups)

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """The place of each group among `groups`."""
        return {name: g for g, name in enumerate(self.names)}

    def position(self, name: str) -> int:
        """The place of a group among `groups`. Raises KeyError, with a hint."""
        if name not in self.positions:
            raise KeyError(f"no query group {name!r}; {nearest(name, self.names)}")
        return self.positions[name]

    def __getitem__(self, name: str) -> QueryGroup:
        return self.groups[self.position(name)]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the used attributes."""
        return self.domain.shape_of(self.attributes)

    @property
    def cell_count(self) -> int:
        """d: cells of the used attributes together, a Python int."""
        return math.prod(self.shape)

    @property
    def query_count(self) -> int:
        """m: queries of all groups together."""
        return sum(group.size for group in self.groups)

    @property
    def tables(self) -> tuple[tuple[str, ...], ...]:
        """The largest attribute sets that groups use: counts over these answer every query."""
        return largest_sets(self.domain.ordered(group.attributes) for group in self.groups)

    def matrix(self) -> Array:
        """W, shape (m, d): groups one after another, each in C order of its own shape; columns
        in C order of the used attributes. Raises MemoryError-sized arrays if you ask for them.
        """
        return np.concatenate([self.rows(group, self.attributes) for group in self.groups])

    def targets(self) -> Array:
        """c, shape (m,): the largest variance allowed for each row of W."""
        return np.concatenate([group.variances.ravel() for group in self.groups])

    def split(self, values: npt.NDArray[Any]) -> Mapping[str, npt.NDArray[Any]]:
        """Values (m,) by group, each of the group's shape; read-only."""
        ends = np.cumsum([group.size for group in self.groups])[:-1]
        parts = {
            group.name: part.reshape(group.shape)
            for group, part in zip(self.groups, np.split(values, ends), strict=True)
        }
        for part in parts.values():
            part.setflags(write=False)
        return MappingProxyType(parts)

    def _repr_html_(self) -> str:
        return notebook.workload_html(self)

    def __repr__(self) -> str:
        return f"Workload({self.query_count} queries in groups {', '.join(self.names)})"

    def rows(self, group: QueryGroup, attributes: Sequence[str]) -> Array:
        """A group's rows over the cells of `attributes`, which hold all that the group uses;
        shape (group.size, cells), in C order of the group's shape and of the attributes.
        """
        own = {f.attribute: f for f in group.factors}
        rows: Array = np.ones((1, 1))
        order = [n for n in attributes if n in own]
        for name in attributes:
            size = self.domain[name].size
            mine = own[name].matrix() if name in own else np.ones((1, size))
            rows = np.asarray(np.kron(rows, mine), dtype=np.float64)
        # The Kronecker product ran in the domain's order; the group's shape is in its own.
        order += [f.attribute for f in group.factors if f.attribute not in order]
        shaped = rows.reshape([own[name].rows for name in order] + [rows.shape[1]])
        axes = [order.index(f.attribute) for f in group.factors]
        # + 0.0 turns a product's -0.0 into 0.0, so that equal columns are equal bytes.
        return shaped.transpose([*axes, len(order)]).reshape(group.size, rows.shape[1]) + 0.0


def largest_sets(sets: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """The attribute sets, each in one common order of names, that are in no other."""
    given = list(dict.fromkeys(sets))
    holding: dict[str, set[int]] = {}
    found: set[int] = set()
    larger = sorted(range(len(given)), key=lambda i: -len(given[i]))
    for _, same_size in itertools.groupby(larger, key=lambda i: len(given[i])):
        new = [i for i in same_size if not _held(given[i], holding, bool(found))]
        found.update(new)
        for i in new:
            for name in given[i]:
                holding.setdefault(name, set()).add(i)
    return tuple(given[i] for i in sorted(found))


def _held(names: tuple[str, ...], holding: Mapping[str, set[int]], any_set: bool) -> bool:
    if not names:
        return any_set
    return bool(set.intersection(*(holding.get(name, set()) for name in names)))


def _bind(domain: Domain, group: Queries, taken: Mapping[str, QueryGroup]) -> QueryGroup:
    label = f"query {group.name!r}" if group.name else "query"
    factors: list[Factor] = []
    for name, asked in group.factors:
        if name not in domain:
            hint = nearest(name, domain.names)
            raise WorkloadError(f"{label}: the domain has no attribute {name!r}; {hint}")
        try:
            factors.append(factor(name, domain[name], asked))
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
    group: Queries, factors: Sequence[Factor], taken: Mapping[str, QueryGroup]
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
