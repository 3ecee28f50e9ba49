"""Binding: from the groups that a user gives to the columns of a workload on a domain."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fitplug.domain import Domain
from fitplug.errors import WorkloadError, suggest_nearest
from fitplug.numeric import FloatArray
from fitplug.workload.factors import Factor, build_factor
from fitplug.workload.query_group import UnboundMarginals, UnboundQueryGroup
from fitplug.workload.query_groups import QueryGroups
from fitplug.workload.targets import Target, TargetForm

_MOST_QUERIES = (sys.maxsize + 1) // 16
"""NumPy cannot index more queries of one group: 2^59, or 2^27 where an address has 32 bits."""

_IndexedFactor = tuple[int, str]
"""The index of a factor, and its words in the derived name of a group."""


def bind_groups(
    domain: Domain, groups: Sequence[UnboundQueryGroup | UnboundMarginals]
) -> QueryGroups:
    """Bind query groups to a domain.

    Args:
        domain: The domain.
        groups: The groups.

    Raises:
        WorkloadError: A group does not fit the domain, or a name is taken.
    """
    binder = _Binder(domain)
    for group in groups:
        if isinstance(group, UnboundQueryGroup):
            binder.add(group)
        elif isinstance(group, UnboundMarginals):
            binder.add_marginals(group)
        else:
            raise WorkloadError(
                f"{group!r} is not a query group. Use queries, marginal, marginals or total."
            )
    return binder.finish()


class _Binder:
    """Columns of the groups so far. A million groups may be added, so each takes a microsecond."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._factors: list[Factor] = []
        self._known: dict[tuple[str, Any], _IndexedFactor] = {}
        self._names: dict[str, None] = {}
        self._counts: list[int] = []
        self._indices: list[int] = []
        self._forms: dict[TargetForm, int] = {}
        self._form_indices: list[int] = []
        self._values: list[float] = []  # 0.0 for a target that is in _arrays
        self._arrays: dict[int, tuple[FloatArray, FloatArray]] = {}

    def add(self, group: UnboundQueryGroup) -> None:
        """Add a group."""
        try:
            indexed = [self._known[pair] for pair in group.factors]
        except (KeyError, TypeError):  # a query that is new, or that cannot be hashed
            indexed = [self._find_factor(pair, group.name) for pair in group.factors]
        name = group.name
        if name is None:
            name = " x ".join([words for _, words in indexed]) or "total"
            if name in self._names:
                name = self._number(name)
        elif name in self._names:
            raise WorkloadError(
                f"two query groups are named {name!r}. Give each group a different name."
            )
        if group.target.value.ndim:
            shape = tuple(self._factors[f].rows for f, _ in indexed)
            self._arrays[len(self._values)] = _convert_array(name, group.target, shape)
            self._values.append(0.0)
        else:
            self._values.append(group.target.value.item())
        self._names[name] = None
        self._counts.append(len(indexed))
        self._indices.extend([f for f, _ in indexed])
        self._form_indices.append(self._find_form(group.target.form))

    def add_marginals(self, marginals: UnboundMarginals) -> None:
        """Add a set of marginals."""
        # If there are only tables of no attribute, no attribute is used; otherwise each is.
        used = marginals.attributes if any(marginals.ways) else ()
        pairs = [(name, "identity") for name in used]
        indices = np.array([self._find_factor(pair, None)[0] for pair in pairs], dtype=np.int64)
        names = marginals.names
        if not self._names.keys().isdisjoint(names) or len(set(names)) < len(names):
            names = []
            for name in marginals.names:
                names.append(name if name not in self._names else self._number(name))
                self._names[names[-1]] = None
        form = self._find_form(marginals.target.form._replace(shape=()))
        values = np.broadcast_to(marginals.target.value, (len(names),)).tolist()
        self._names.update(dict.fromkeys(names))
        self._counts.extend(marginals.attribute_counts.tolist())
        self._indices.extend(indices[marginals.attribute_indices].tolist())
        self._form_indices.extend([form] * len(names))
        self._values.extend(values)

    def finish(self) -> QueryGroups:
        """Make the groups."""
        values = np.array(self._values)
        groups = QueryGroups(
            names=tuple(self._names),
            factors=tuple(self._factors),
            factor_counts=np.array(self._counts, dtype=np.int64),
            factor_indices=np.array(self._indices, dtype=np.int64),
            forms=tuple(self._forms),
            form_indices=np.array(self._form_indices, dtype=np.int64),
            values=values,
            variances=values,
        )
        _check_sizes(groups)
        return _fill_targets(groups, self._arrays)

    def _find_factor(self, pair: tuple[str, Any], group: str | None) -> _IndexedFactor:
        """Find a group's factor on an attribute, or build it."""
        name, query = pair
        if isinstance(query, str) and pair in self._known:
            return self._known[pair]
        label = f"query {group!r}" if group else "query"
        if name not in self._domain:
            hint = suggest_nearest(name, self._domain.names)
            raise WorkloadError(f"{label}: the domain has no attribute {name!r}. {hint}")
        try:
            factor = build_factor(name, self._domain[name], query)
        except WorkloadError as error:
            raise WorkloadError(f"{label}: {error}") from None
        # The user's own word, because the finest level of a hierarchy has the kind "identity".
        kind = factor.kind if factor.names is None else "rows"
        kind = query if isinstance(query, str) else kind
        words = name if kind == "identity" else f"{name} {kind.replace('_', ' ')}"
        self._factors.append(factor)
        indexed = (len(self._factors) - 1, words)
        if isinstance(query, str):
            self._known[pair] = indexed
        return indexed

    def _find_form(self, form: TargetForm) -> int:
        """Find the index of a form of targets, or add it."""
        return self._forms.setdefault(form, len(self._forms))

    def _number(self, base: str) -> str:
        """Derive a free name from a taken one."""
        number = 2
        while f"{base} {number}" in self._names:
            number += 1
        return f"{base} {number}"


def _convert_array(
    name: str, target: Target, shape: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Return the values of a target and their variances, in the given shape of the target."""
    try:
        target.variance(shape)
    except WorkloadError as error:
        raise WorkloadError(f"query {name!r}: {error}") from None
    return target.value, target.form.convert_to_variances(target.value, math.prod(shape))


def _check_sizes(groups: QueryGroups) -> None:
    """Check that NumPy can index the queries of each group."""
    rows = np.array([float(f.rows) for f in groups.factors])
    is_large = groups.multiply(rows) >= _MOST_QUERIES
    if is_large.any():
        g = int(np.argmax(is_large))
        indices = groups.factor_indices[groups.factor_starts[g] : groups.factor_starts[g + 1]]
        factors = [groups.factors[f] for f in indices]
        sizes = " x ".join(f"{f.attribute} {f.rows}" for f in factors)
        name = groups.names[g]
        raise WorkloadError(
            f"query {name!r} has too many answers: {sizes}. Use fewer or coarser attributes."
        )


def _fill_targets(
    groups: QueryGroups, arrays: Mapping[int, tuple[FloatArray, FloatArray]]
) -> QueryGroups:
    """Fill in the targets of groups.

    Args:
        groups: The groups; the values of their targets are one number for each group.
        arrays: By group, the values and variances of targets that are given as arrays.

    Returns:
        The groups, with the values and the variances of all targets.
    """
    starts = groups.value_starts
    values, variances = np.empty(starts[-1]), np.empty(starts[-1])
    for i, form in enumerate(groups.forms):
        if not form.shape:
            with_form = np.flatnonzero(groups.form_indices == i)
            values[starts[with_form]] = given = groups.values[with_form]
            variances[starts[with_form]] = form.convert_to_variances(given, groups.sizes[with_form])
    for g, (given, allowed) in arrays.items():
        place = groups.find_values(g)
        values[place], variances[place] = given.ravel(), allowed.ravel()
    return replace(groups, values=values, variances=variances)
