"""Reconstruction: every group's estimates from the noisy answers of the blocks it is made of.

Group t is the sum over blocks A in A_t of L M^-1 of A's answers, without what their margins say,
spread evenly over the cells of the attributes in A_t - A. Blocks have independent noise, so the
variance of any combination is a sum over them too. Nothing of the size of the domain is formed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fitplug.answers import layout, residuals
from fitplug.errors import TablesError
from fitplug.rounding import inverse_norms_above
from fitplug.strategy import Strategy, products
from fitplug.structure import Structure, listed
from fitplug.workload import QueryGroup

Array: TypeAlias = npt.NDArray[np.float64]


class Estimates(Mapping[str, npt.NDArray[Any]]):
    """Unbiased estimates by group, each computed when it is first read."""

    def __init__(self, strategy: Strategy, answers: npt.NDArray[np.int64]) -> None:
        if answers.shape != (strategy.size,):
            raise TablesError(
                f"the plan measures {strategy.size} answers, but {answers.size} were given; "
                "they are of another plan"
            )
        self._strategy = strategy
        self._answers = answers
        self._places = {
            int(family.blocks[i]): (family, i, shape, start)
            for family, i, shape, start in layout(strategy)
        }
        self._residuals: dict[int, Array] = {}
        self._done: dict[str, Array] = {}
        self._workload = strategy.structure.workload

    def __contains__(self, name: object) -> bool:
        return name in self._workload.positions

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"Estimates({listed(self._workload.names)})"

    def __iter__(self) -> Iterator[str]:
        return iter(self._workload.names)

    def __len__(self) -> int:
        return len(self._workload.names)

    def __getitem__(self, name: str) -> Array:
        if name not in self._done:
            self._done[name] = self._estimated(self._workload.position(name))
            self._done[name].setflags(write=False)
        return self._done[name]

    def _estimated(self, g: int) -> Array:
        structure = self._strategy.structure
        own = structure.used[g]
        rows = int(structure.starts[g + 1] - structure.starts[g])
        total = np.zeros((*(structure.sizes[a] for a in own), rows))
        for block in structure.blocks_of(g):
            (members,) = structure.members([block])
            part = self._residual(block) @ _representation(self._strategy, block, g)[0].T
            spread = [structure.sizes[a] for a in own if a not in members]
            shape = [structure.sizes[a] if a in members else 1 for a in own]
            total += part.reshape(*shape, rows) / math.prod(spread)
        return _as_group(structure, g, total)

    def _residual(self, block: int) -> Array:
        if block not in self._residuals:
            family, i, shape, start = self._places[block]
            answers = self._answers[start : start + math.prod(shape)].reshape(shape)
            self._residuals[block] = residuals(self._strategy, family, i, answers)
        return self._residuals[block]


def combined_norm(strategy: Strategy, coefficients: Mapping[str, Array]) -> float:
    """An upper bound on the std, at noise variance 1, of the sum over groups of coefficients (of
    the group's shape) times estimates.
    """
    structure = strategy.structure
    number = structure.workload.positions
    rows: dict[int, Array] = {}
    errors: dict[int, Array] = {}
    for name, given in coefficients.items():
        g = number[name]
        weights = _as_block(structure, g, given)
        own = structure.used[g]
        for block in structure.blocks_of(g):
            (members,) = structure.members([block])
            out = tuple(axis for axis, a in enumerate(own) if a not in members)
            spread = math.prod(structure.sizes[a] for a in own if a not in members)
            part = weights.sum(axis=out) / spread
            for axis in range(len(members)):
                part = part - part.mean(axis=axis, keepdims=True)
            L, L_error = _representation(strategy, block, g)
            flat = part.reshape(-1, part.shape[-1])
            rows[block] = rows.get(block, 0.0) + flat @ L
            errors[block] = errors.get(block, 0.0) + np.abs(flat) @ L_error
    square = 0.0
    for block, combined in rows.items():
        family, i = strategy.places[block]
        M = family.M[i].astype(np.float64)
        norms = inverse_norms_above(combined, M, L_error=errors[block])
        precision = products(structure, np.array([block]), "precision")[0]
        square += float((norms * norms).sum()) / float(precision)
    return math.sqrt(square) * (1 + 1e-12)


def _representation(strategy: Strategy, block: int, g: int) -> tuple[Array, Array]:
    """L (r, n) of a group's rows in a block's basis, and bounds (r,) on their errors."""
    structure = strategy.structure
    if structure.scalar:
        return np.ones((1, 1)), np.zeros(1)
    L, error = strategy.representation(block)
    mine = structure.rows_in(block, g)
    return L[mine], error[mine]


def _as_group(structure: Structure, g: int, values: Array) -> Array:
    """Values with an axis for each attribute of A_t, and one of the rows, in the group's shape."""
    group = structure.workload.groups[g]
    names, shape = _axes(structure, group, g)
    order = [names.index(f.attribute) for f in group.factors]
    return np.array(np.broadcast_to(values.reshape(shape).transpose(order), group.shape))


def _as_block(structure: Structure, g: int, values: Array) -> Array:
    """The inverse of `_as_group`."""
    group = structure.workload.groups[g]
    names, shape = _axes(structure, group, g)
    given = [f.attribute for f in group.factors]
    own = len(structure.used[g])
    ordered = values.transpose([given.index(name) for name in names])
    alike = tuple(i for i, n in enumerate(shape) if n < ordered.shape[i])
    return ordered.sum(axis=alike, keepdims=True).reshape(*shape[:own], -1)


def _axes(structure: Structure, group: QueryGroup, g: int) -> tuple[list[str], list[int]]:
    own = [structure.split[a] for a in structure.used[g]]
    rest = [f.attribute for f in group.factors if f.attribute not in own]
    # Symmetric attributes that are not in A_t have one cell, or queries of nothing.
    rows = {f.attribute: f.rows for f in group.factors if f.attribute in structure.dense}
    sizes = [*(structure.sizes[a] for a in structure.used[g]), *(rows.get(n, 1) for n in rest)]
    return [*own, *rest], sizes
