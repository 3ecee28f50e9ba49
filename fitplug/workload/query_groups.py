"""Query groups in columns: a workload may have a million of them.

A group is one row of each column, and `QueryGroups` makes the `QueryGroup` of a row on access.
Whatever concerns all groups at once is computed from the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, overload

import numpy as np

from fitplug.display import MOST_GROUPS, make_section, make_table
from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.numeric import (
    AnyArray,
    BoolArray,
    FloatArray,
    IndexArray,
    IntArray,
    freeze,
    frozen_property,
    to_positions,
)
from fitplug.workload.factors import Factor
from fitplug.workload.query_group import QueryGroup
from fitplug.workload.targets import Target, TargetForm

_MOST_MADE_ONCE = 4096
"""Up to this many groups are made once and cached. More are made anew on each access, because each
takes a kilobyte."""


@dataclass(frozen=True, eq=False, repr=False)
class QueryGroups(Sequence[QueryGroup]):
    """The query groups of a workload, g of them.

    Attributes:
        names: The names of the groups.
        factors: The distinct factors of all groups.
        factor_counts: The number of factors of each group, shape (g,).
        factor_indices: The factors of one group after another, as indices into `factors`.
        forms: The distinct forms of the targets.
        form_indices: The form of each group's target, shape (g,).
        values: The values of one group's target after another, in C order of their shapes.
        variances: The same targets as variances, of the shape of `values`.
    """

    names: tuple[str, ...]
    factors: tuple[Factor, ...]
    factor_counts: IntArray
    factor_indices: IntArray
    forms: tuple[TargetForm, ...]
    form_indices: IntArray
    values: FloatArray
    variances: FloatArray

    def __post_init__(self) -> None:
        self._freeze()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._freeze()  # pickle restores arrays that can be written to

    def _freeze(self) -> None:
        """Make all arrays read-only. The names are skipped: there may be a million."""
        freeze([value for name, value in vars(self).items() if name != "names"])

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<{len(self)} query groups>"

    def __dir__(self) -> list[str]:
        """List only what users need: the columns of all groups are for this package."""
        return ["count", "index", "names", "sizes", "variances"]

    def __iter__(self) -> Iterator[QueryGroup]:
        return (
            iter(self._made_once)
            if len(self) <= _MOST_MADE_ONCE
            else map(self._make, range(len(self)))
        )

    @overload
    def __getitem__(self, index: int) -> QueryGroup: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[QueryGroup, ...]: ...
    def __getitem__(self, index: int | slice) -> QueryGroup | tuple[QueryGroup, ...]:
        if len(self) <= _MOST_MADE_ONCE:
            return self._made_once[index]
        rows = range(len(self))[index]
        return self._make(rows) if isinstance(rows, int) else tuple(map(self._make, rows))

    @cached_property
    def _made_once(self) -> tuple[QueryGroup, ...]:
        return tuple(map(self._make, range(len(self))))

    def _make(self, g: int) -> QueryGroup:
        """Make the group of row g."""
        indices = self.factor_indices[self.factor_starts[g] : self.factor_starts[g + 1]]
        factors = tuple(self.factors[f] for f in indices.tolist())
        target = self._make_target(g)
        variances = self.variances[self.find_values(g)].reshape(target.value.shape)
        return QueryGroup(
            name=self.names[g],
            factors=factors,
            target=target,
            # A view: a scalar target takes no memory, however many queries share it.
            variances=np.broadcast_to(variances, tuple(f.rows for f in factors)),
        )

    def _make_target(self, g: int) -> Target:
        """Make the target of row g."""
        form = self.forms[self.form_indices[g]]
        value = self.values[self.find_values(g)].reshape(form.shape)
        return Target(form.kind, value, form.confidence, form.simultaneous)

    def describe_targets(self) -> list[str]:
        """Describe the target of each group for people; see `Target.describe`."""
        scalars: dict[tuple[int, float], str] = {}
        described = []
        firsts = self.values[self.value_starts[:-1]].tolist()
        for g, (form, value) in enumerate(zip(self.form_indices.tolist(), firsts, strict=True)):
            if self.forms[form].shape:
                described.append(self._make_target(g).describe())
                continue
            if (form, value) not in scalars:
                scalars[form, value] = self._make_target(g).describe()
            described.append(scalars[form, value])
        return described

    def list_quantities(self) -> list[str]:
        """List the quantity of each group; see `QueryGroup.quantity`."""
        if not any(factor.kind == "sum" for factor in self.factors):
            return ["rows"] * len(self)
        return [group.quantity for group in self]

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each group, by name."""
        return {name: g for g, name in enumerate(self.names)}

    def find_position(self, name: str) -> int:
        """Return the position of a group.

        Raises:
            KeyError: There is no such group; the message has a hint.
        """
        if name not in self.positions:
            raise KeyError(f"no query group {name!r}. {suggest_nearest(name, self.names)}")
        return self.positions[name]

    @frozen_property
    def factor_starts(self) -> IndexArray:
        """Where the factors of each group begin, and the number of all, shape (g + 1,)."""
        return to_positions(np.append(0, np.cumsum(self.factor_counts, dtype=np.int64)))

    @frozen_property
    def value_starts(self) -> IndexArray:
        """Where the values of each group's target begin, and the number of all, shape (g + 1,)."""
        counts = np.array([form.size for form in self.forms], dtype=np.int64)
        ends = np.cumsum(counts[self.form_indices], dtype=np.int64)
        return to_positions(np.append(0, ends))

    def find_values(self, g: int) -> slice:
        """Find where the values of a group's target are."""
        return slice(int(self.value_starts[g]), int(self.value_starts[g + 1]))

    @frozen_property
    def first_variances(self) -> FloatArray:
        """The first variance of each group's target, shape (g,): the only one if it is a scalar."""
        return self.variances[self.value_starts[:-1]]

    @frozen_property
    def with_arrays(self) -> IndexArray:
        """The groups whose targets are given as arrays, ascending."""
        has_axes = np.array([bool(form.shape) for form in self.forms])
        return np.flatnonzero(has_axes[self.form_indices])

    @cached_property
    def with_labels(self) -> bool:
        """Whether the rows of some factor have labels."""
        return any(factor.names is not None for factor in self.factors)

    @frozen_property
    def sizes(self) -> IntArray:
        """The number of queries of each group, shape (g,)."""
        return self.multiply(np.array([f.rows for f in self.factors], dtype=np.int64))

    def multiply(self, numbers: AnyArray) -> AnyArray:
        """Multiply one number for each factor of a group.

        Args:
            numbers: One for each of the distinct `factors`, shape (f,).

        Returns:
            The products, shape (g,).
        """
        products = np.ones(len(self), dtype=numbers.dtype)
        has_factors = self.factor_counts > 0
        if has_factors.any():
            starts = self.factor_starts[:-1][has_factors]
            products[has_factors] = np.multiply.reduceat(numbers[self.factor_indices], starts)
        return products

    def find_any(self, marks: BoolArray) -> BoolArray:
        """Find the groups that have at least one of some factors.

        Args:
            marks: Whether each of the distinct `factors` is one of them, shape (f,).

        Returns:
            Whether each group has one, shape (g,).
        """
        return np.asarray(self.multiply((~marks).astype(np.int64)) == 0)

    def gather_sets(self, members: IntArray) -> tuple[IntArray, IntArray]:
        """Gather one number for each factor of a group as a set.

        Args:
            members: A number >= 0 for each of the distinct `factors`, or -1 for a factor that adds
                nothing to the sets, shape (f,).

        Returns:
            The size of each group's set, shape (g,), and the sets, ascending and one after another.
        """
        of_group = np.repeat(np.arange(len(self)), np.diff(self.factor_starts))
        sets = members[self.factor_indices]
        of_group, sets = of_group[sets >= 0], sets[sets >= 0]
        # Sort by group and member together, because a group's factors may be in any order.
        keys = of_group.astype(np.int64) * (int(members.max(initial=0)) + 1) + sets
        if (keys[1:] < keys[:-1]).any():
            sets = sets[np.argsort(keys, kind="stable")]
        return np.bincount(of_group, minlength=len(self)).astype(np.int64), sets

    def rescale(self, multiples: FloatArray) -> QueryGroups:
        """Multiply the target variances of each group.

        Args:
            multiples: The factor of each group, shape (g,).

        Returns:
            Groups with other variances only: each `Target` stays as the user gave it.
        """
        repeated = np.repeat(multiples, np.diff(self.value_starts))
        return replace(self, variances=self.variances * repeated)


def gather_groups(groups: Iterable[QueryGroup]) -> QueryGroups:
    """Gather groups that are bound to a domain in columns.

    Args:
        groups: The groups. Along axes where a target has one number, its variances must be equal.
    """
    gathered = tuple(groups)
    factors = list({id(f): f for group in gathered for f in group.factors}.values())
    index = {id(f): i for i, f in enumerate(factors)}
    forms: dict[TargetForm, int] = {}
    return QueryGroups(
        names=tuple(group.name for group in gathered),
        factors=tuple(factors),
        factor_counts=np.array([len(group.factors) for group in gathered], dtype=np.int64),
        factor_indices=np.array(
            [index[id(f)] for g in gathered for f in g.factors], dtype=np.int64
        ),
        form_indices=np.array(
            [forms.setdefault(group.target.form, len(forms)) for group in gathered], dtype=np.int64
        ),
        forms=tuple(forms),
        values=np.concatenate([group.target.value.ravel() for group in gathered]),
        variances=np.concatenate([_read_given_variances(group).ravel() for group in gathered]),
    )


def _read_given_variances(group: QueryGroup) -> FloatArray:
    """Return a group's variances in the given shape of its target.

    Raises:
        ValueError: The variances differ along an axis along which the target has one number.
    """
    given = group.target.value.shape
    first = (0,) * (len(group.shape) - len(given))
    variances = group.variances[(*first, *(slice(0, 1) if n == 1 else slice(None) for n in given))]
    # Along axes with a stride of 0, whose entries are all the same, one entry is compared.
    seen = group.variances[tuple(slice(None if step else 1) for step in group.variances.strides)]
    if not (seen == variances).all():
        raise ValueError(
            f"the stored variances of {group.name!r} do not fit the shape of its target"
        )
    return variances


LEAST_COEFFICIENT, LARGEST_COEFFICIENT = 1e-30, 1e30
"""The range of the absolute values of nonzero coefficients."""

_ALL_ZERO = "every query is zero. Give at least one non-zero coefficient."
_OUT_OF_RANGE = "non-zero coefficients must lie between 1e-30 and 1e30 in absolute value"


def check_coefficients(matrices: Sequence[FloatArray]) -> None:
    """Check that some coefficient is not zero, and that the nonzero ones are in range.

    Raises:
        WorkloadError: Otherwise.
    """
    sizes = np.abs(np.concatenate([matrix[matrix != 0] for matrix in matrices]))
    if not sizes.size:
        raise WorkloadError(_ALL_ZERO)
    if not LEAST_COEFFICIENT <= sizes.min() <= sizes.max() <= LARGEST_COEFFICIENT:
        raise WorkloadError(_OUT_OF_RANGE)


def check_products(groups: QueryGroups) -> None:
    """Check the coefficients of groups as `check_coefficients`, without building their matrices.

    Raises:
        WorkloadError: Otherwise.
    """
    arrays = [np.ones(1) if f.array is None else f.array for f in groups.factors]
    sizes = [np.abs(array[array != 0]) for array in arrays]
    with np.errstate(over="ignore", under="ignore"):
        least = groups.multiply(np.array([size.min(initial=1.0) for size in sizes]))
        most = groups.multiply(np.array([size.max(initial=1.0) for size in sizes]))
    if not LEAST_COEFFICIENT <= least.min() <= most.max() <= LARGEST_COEFFICIENT:
        raise WorkloadError(_OUT_OF_RANGE)
    if groups.find_any(np.array([not size.size for size in sizes], dtype=bool)).all():
        raise WorkloadError(_ALL_ZERO)


def show_workload(groups: QueryGroups) -> str:
    """Make a table of query groups, their factors and their targets."""
    rows = [
        (g.name, " x ".join(f"{f.attribute} {f.kind}" for f in g.factors) or "total",
         f"{g.size:,}", g.target.describe())
        for g in groups[: MOST_GROUPS + 1]
    ]  # fmt: skip
    headings = ("group", "asks", "queries", "target")
    listed = make_table("groups of queries", headings, rows, MOST_GROUPS, len(groups))
    return make_section("Workload", [f"{sum(groups.sizes.tolist()):,} queries"], listed)
