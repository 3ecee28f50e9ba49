"""Workloads: query groups with their targets, bound to a domain.

W stacks the groups' rows, over the cells of the attributes that any group uses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from fitplug.domain import Domain, Integers
from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.numeric import AnyArray, FloatArray, freeze
from fitplug.workload.factors import read_matrix
from fitplug.workload.notebook import show_workload
from fitplug.workload.query_group import QueryGroup, UnboundQueryGroup, bind, queries


class Workload:
    """Query groups with targets on a domain. Immutable.

    Raises WorkloadError for an unknown attribute, a name used twice, a group that is no
    Kronecker product of known factors, or targets that do not fit its shape.
    """

    def __init__(self, domain: Domain, groups: Sequence[UnboundQueryGroup]) -> None:
        if not isinstance(domain, Domain):
            raise WorkloadError("a workload needs a Domain first")
        if isinstance(groups, UnboundQueryGroup) or not groups:
            raise WorkloadError("a workload needs a list of at least one query group")
        bound: dict[str, QueryGroup] = {}
        for group in groups:
            if not isinstance(group, UnboundQueryGroup):
                raise WorkloadError(f"{group!r} is no query group; use queries, marginal or total")
            one = bind(domain, group, taken=bound)
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
        matrix = read_matrix("W", W)
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
            raise KeyError(f"no query group {name!r}; {suggest_nearest(name, self.names)}")
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
        return select_largest_sets(self.domain.ordered(group.attributes) for group in self.groups)

    def matrix(self) -> FloatArray:
        """W, shape (m, d): groups one after another, each in C order of its own shape; columns
        in C order of the used attributes. Raises MemoryError-sized arrays if you ask for them.
        """
        return np.concatenate([self.rows(group, self.attributes) for group in self.groups])

    def targets(self) -> FloatArray:
        """c, shape (m,): the largest variance allowed for each row of W."""
        return np.concatenate([group.variances.ravel() for group in self.groups])

    def split(self, values: AnyArray) -> Mapping[str, AnyArray]:
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
        return show_workload(self.groups)

    def __repr__(self) -> str:
        return f"Workload({self.query_count} queries in groups {', '.join(self.names)})"

    def rows(self, group: QueryGroup, attributes: Sequence[str]) -> FloatArray:
        """A group's rows over the cells of `attributes`, which hold all that the group uses;
        shape (group.size, cells), in C order of the group's shape and of the attributes.
        """
        own = {f.attribute: f for f in group.factors}
        rows: FloatArray = np.ones((1, 1))
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


def select_largest_sets(sets: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
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
