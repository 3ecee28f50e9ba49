"""Workloads: query groups with their targets, bound to a domain.

The workload matrix W stacks the rows of all groups. Its columns are the cells of the attributes
that at least one group uses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from fitplug.domain import Domain, Integers, describe_measures, get_shape
from fitplug.errors import WorkloadError
from fitplug.numeric import AnyArray, FloatArray
from fitplug.workload.binding import bind_groups
from fitplug.workload.factors import read_matrix
from fitplug.workload.query_group import QueryGroup, UnboundMarginals, UnboundQueryGroup, queries
from fitplug.workload.query_groups import QueryGroups, gather_groups, show_workload

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fitplug.workload.targets import TargetKeywords

_MOST_NAMES = 20
"""The most names of groups that are printed."""


class Workload:
    """The queries to answer and their targets. A workload cannot be changed.

    Args:
        domain: The domain.
        groups: Query groups from `queries`, `marginal`, `marginals` and `total`.

    Attributes:
        domain: The domain.
        groups: The query groups, with their attributes and targets checked.
        attributes: The attributes that at least one group uses, in the order of the domain. Queries
            count rows whatever their values of the other attributes.

    Raises:
        WorkloadError: An attribute is unknown, a name is used twice, the queries for an attribute
            are invalid, or a target does not fit the shape of its group.

    Example:
        >>> fp.Workload(domain, [fp.marginal("sex", std=5.0), fp.total(std=1.0)]).query_count
        3
    """

    def __init__(
        self, domain: Domain, groups: Sequence[UnboundQueryGroup | UnboundMarginals]
    ) -> None:
        if not isinstance(domain, Domain):
            raise WorkloadError("a workload needs a Domain as its first argument")
        if isinstance(groups, (UnboundQueryGroup, UnboundMarginals)) or not groups:
            raise WorkloadError("a workload needs a list of at least one query group")
        self._set(domain, bind_groups(domain, groups))

    def _set(self, domain: Domain, groups: QueryGroups) -> None:
        """Set the attributes."""
        used = {factor.attribute for factor in groups.factors if factor.kind != "total"}
        self.domain = domain
        self.groups = groups
        self.attributes = tuple(name for name in domain.names if name in used)

    @classmethod
    def from_matrix(
        cls, W: Any, *, name: str | None = "queries", **target: Unpack[TargetKeywords]
    ) -> Workload:
        """Make a workload of one group from a matrix of queries (the paper's W).

        Args:
            W: Shape (m, d): an array, or a SciPy sparse matrix or linear operator, which
                becomes an array. The domain has one attribute named "cell", with d cells.
            name: The name of the group.
            target: One of `variance`, `std` and `moe`, as for `queries`; arrays have the shape
                (m,). With `moe` you may also give `confidence` and `simultaneous`.

        Raises:
            WorkloadError: The matrix or the target is invalid.

        Example:
            >>> fp.Workload.from_matrix([[1, 0], [1, 1]], std=5.0).cell_count
            2
        """
        matrix = read_matrix("W", W)
        domain = Domain({"cell": Integers(0, matrix.shape[1] - 1)})
        return cls(domain, [queries({"cell": matrix}, name=name, **target)])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the groups."""
        return self.groups.names

    def __getitem__(self, name: str) -> QueryGroup:
        return self.groups[self.groups.find_position(name)]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells of each of `attributes`."""
        return get_shape(self.domain, self.attributes)

    @property
    def cell_count(self) -> int:
        """d, the number of combinations of the cells of all `attributes`, a Python int."""
        return math.prod(self.shape)

    @property
    def query_count(self) -> int:
        """m, the number of queries of all groups together."""
        return sum(self.groups.sizes.tolist())

    @property
    def tables(self) -> tuple[tuple[str, ...], ...]:
        """The sets of attributes whose tables are enough to answer every query."""
        names, groups = self.domain.names, self.groups
        position = {name: i for i, name in enumerate(names)}
        members = [position[f.attribute] if f.kind != "total" else -1 for f in groups.factors]
        counts, sets = groups.gather_sets(np.array(members, dtype=np.int64))
        left = map(names.__getitem__, sets.tolist())
        return select_largest_sets(tuple(itertools.islice(left, n)) for n in counts.tolist())

    def matrix(self) -> FloatArray:
        """Build W, shape (m, d), as a dense array, even if it is large.

        The rows are ordered by group, and within a group in C order (the last axis changes
        fastest). The columns are the cells of `attributes` in C order.

        Example:
            >>> workload.matrix().shape
            (9, 8)
        """
        return np.concatenate([build_rows(self, group, self.attributes) for group in self.groups])

    def targets(self) -> FloatArray:
        """Build c, shape (m,): the largest variance allowed for each row of W.

        Example:
            >>> workload.targets().shape
            (9,)
        """
        return np.concatenate([group.variances.ravel() for group in self.groups])

    def split(self, values: AnyArray) -> Mapping[str, AnyArray]:
        """Split an array of one value per query into an array for each group.

        Args:
            values: Shape (m,), one per row of W.

        Returns:
            A mapping from the name of each group to a read-only array of the group's shape.
        """
        ends = np.cumsum([group.size for group in self.groups])[:-1]
        arrays = {
            group.name: array.reshape(group.shape)
            for group, array in zip(self.groups, np.split(values, ends), strict=True)
        }
        for array in arrays.values():
            array.setflags(write=False)
        return MappingProxyType(arrays)

    def _repr_html_(self) -> str:
        return show_workload(self.groups)

    def __repr__(self) -> str:
        named = ", ".join(self.names[:_MOST_NAMES])
        more = len(self.names) - _MOST_NAMES
        named += f" and {more} more" if more > 0 else ""
        return f"Workload({self.query_count} queries in groups {named})"


def make_bound_workload(domain: Domain, groups: Iterable[QueryGroup]) -> Workload:
    """Make a workload of groups that are already bound to the domain, as in a plan file."""
    workload = Workload.__new__(Workload)
    bound = groups if isinstance(groups, QueryGroups) else gather_groups(groups)
    workload._set(domain, bound)
    return workload


def list_measure_rules(workload: Workload) -> tuple[str, ...]:
    """List sentences that state how values of measures are clamped and rounded, and that no std
    covers this; empty without measures.
    """
    return describe_measures(workload.domain, workload.attributes)


def build_rows(workload: Workload, group: QueryGroup, attributes: Sequence[str]) -> FloatArray:
    """Build the rows of a group over the cells of some attributes.

    Args:
        workload: The workload.
        group: The group.
        attributes: Attributes in the domain's order, which include all those of the group.

    Returns:
        Shape (group.size, cells): rows in C order of the group's shape, columns in C order of
        the attributes.
    """
    factors = {f.attribute: f for f in group.factors}
    rows: FloatArray = np.ones((1, 1))
    order = [n for n in attributes if n in factors]
    for name in attributes:
        size = workload.domain[name].size
        matrix = factors[name].matrix() if name in factors else np.ones((1, size))
        rows = np.asarray(np.kron(rows, matrix), dtype=np.float64)
    # The factors were multiplied in the order of `attributes`, which may not be the group's.
    order += [f.attribute for f in group.factors if f.attribute not in order]
    shaped = rows.reshape([factors[name].rows for name in order] + [rows.shape[1]])
    axes = [order.index(f.attribute) for f in group.factors]
    # + 0.0 turns a product's -0.0 into 0.0, so that equal columns are equal bytes.
    return shaped.transpose([*axes, len(order)]).reshape(group.size, rows.shape[1]) + 0.0


def select_largest_sets(sets: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Select the sets that are not subsets of others, without repetitions, in the given order.

    Args:
        sets: Sets of attributes, with their names in one common order.
    """
    given = list(dict.fromkeys(sets))
    holding: dict[str, set[int]] = {}
    largest: set[int] = set()
    larger = sorted(range(len(given)), key=lambda i: -len(given[i]))
    for _, same_size in itertools.groupby(larger, key=lambda i: len(given[i])):
        new = [i for i in same_size if not _is_in_another(given[i], holding, bool(largest))]
        largest.update(new)
        for i in new:
            for name in given[i]:
                holding.setdefault(name, set()).add(i)
    return tuple(given[i] for i in sorted(largest))


def _is_in_another(names: tuple[str, ...], holding: Mapping[str, set[int]], any_set: bool) -> bool:
    """Return whether a set is a subset of a larger one.

    Args:
        names: The set.
        holding: By name, the indices of the larger sets that contain it.
        any_set: Whether there is a larger set.
    """
    if not names:
        return any_set
    return bool(set.intersection(*(holding.get(name, set()) for name in names)))


class ArraysByGroup(Mapping[str, AnyArray]):
    """An array of each group, by name.

    Args:
        workload: The workload.
        read: Returns the array of the group at a position, read-only.
    """

    def __init__(self, workload: Workload, read: Callable[[int], AnyArray]) -> None:
        self._workload, self._read = workload, read

    def __getitem__(self, name: str) -> AnyArray:
        return self._read(self._workload.groups.find_position(name))

    def __contains__(self, name: object) -> bool:
        return name in self._workload.groups.positions

    def __iter__(self) -> Iterator[str]:
        return iter(self._workload.names)

    def __len__(self) -> int:
        return len(self._workload.names)

    def __repr__(self) -> str:
        return f"<arrays of {len(self)} groups>"
