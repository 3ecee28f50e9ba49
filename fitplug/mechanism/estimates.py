"""Reconstruction: every group's estimates from the noisy answers of the blocks it is made of.

Group t is the sum over blocks A in A_t of L M^-1 of A's answers, without what their margins say,
spread over the cells of the attributes in A_t - A: evenly, or as the references u of ordered ones
say. Blocks have independent noise, so the variance of any combination is a sum over them too.
Nothing of the size of the domain is formed.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from scipy.linalg import solve_triangular

from fitplug.errors import TablesError
from fitplug.mechanism.answers import list_blocks, residuals
from fitplug.mechanism.strategy import Strategy
from fitplug.numeric import AnyArray, FloatArray, IntArray, bound_solution_norms
from fitplug.structure import Structure, listed
from fitplug.workload import Factor, QueryGroup

_InBlocks: TypeAlias = tuple[dict[int, FloatArray], dict[int, FloatArray]]
"""Of each block that a sum uses, its rows in the block's basis, and bounds on their errors."""

_KEPT = 2**27
"""Bytes of estimates and of blocks that are kept for the next reading, of each."""


class Estimates(Mapping[str, AnyArray]):
    """Unbiased estimates by group, each computed when it is read; the latest are kept."""

    def __init__(self, strategy: Strategy, answers: IntArray) -> None:
        if answers.shape != (strategy.size,):
            raise TablesError(
                f"the plan measures {strategy.size} answers, but {answers.size} were given; "
                "they are of another plan"
            )
        self._strategy = strategy
        self._answers = answers
        self._places = {
            int(block_set.blocks[i]): (block_set, i, shape, start)
            for block_set, i, shape, start in list_blocks(strategy)
        }
        self._residuals = _Latest(self._residual)
        self._done = _Latest(self._estimated)
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

    def __getitem__(self, name: str) -> FloatArray:
        return self._done[self._workload.position(name)]

    def _estimated(self, g: int) -> FloatArray:
        structure = self._strategy.structure
        asked = _asked(structure, g)
        means = {
            a: np.full(1, 1 / structure.sizes[a])
            if factor is None
            else factor.apply(self._strategy.attribute_matrices[a].mean(), 0)
            for a, factor in asked.items()
        }
        total: FloatArray | float = 0.0
        for block in structure.blocks_of(g):
            (members,) = structure.members([block])
            part = self._residuals[block] @ _representation(self._strategy, block, g)[0].T
            for axis, (a, factor) in enumerate(asked.items()):
                if a not in members:
                    later = (1,) * (part.ndim - axis)
                    part = np.expand_dims(part, axis) * means[a].reshape(-1, *later)
                elif factor is not None:
                    part = factor.apply(part, axis)
            total = total + part
        return _as_group(structure, g, np.asarray(total))

    def _residual(self, block: int) -> FloatArray:
        block_set, i, shape, start = self._places[block]
        answers = self._answers[start : start + math.prod(shape)].reshape(shape)
        return residuals(self._strategy, block_set, i, answers)


class _Latest(OrderedDict[int, FloatArray]):
    """Arrays by number, made when they are missing; the oldest go beyond _KEPT bytes."""

    def __init__(self, make: Callable[[int], FloatArray]) -> None:
        super().__init__()
        self._make = make
        self._bytes = 0

    def __missing__(self, number: int) -> FloatArray:
        made = self._make(number)
        made.setflags(write=False)
        self._bytes += made.nbytes
        while self and self._bytes > _KEPT:
            self._bytes -= self.popitem(last=False)[1].nbytes
        self[number] = made
        return made


def combined_norms(strategy: Strategy, several: Sequence[Mapping[str, FloatArray]]) -> FloatArray:
    """Upper bounds (k,) on the stds, at noise variance 1, of k sums over groups of coefficients (of
    the group's shape) times estimates. The blocks that the sums share are inverted once.
    """
    return _norms(strategy, [_weights(strategy, coefficients) for coefficients in several])


def _norms(strategy: Strategy, several: Sequence[_InBlocks]) -> FloatArray:
    parts: dict[int, list[int]] = {}
    for k, (rows, _) in enumerate(several):
        for block in rows:
            parts.setdefault(block, []).append(k)
    squares = np.zeros(len(several))
    for block, those in parts.items():
        block_set, i = strategy.places[block]
        M = block_set.M[i].astype(np.float64)
        together = np.concatenate([several[k][0][block] for k in those])
        errors = np.concatenate([several[k][1][block] for k in those])
        norms = bound_solution_norms(together, M, L_error=errors)
        squares[those] += (norms * norms).reshape(len(those), -1).sum(axis=1)
    return np.asarray(np.sqrt(squares) * (1 + 1e-12))


def combined_covariance(
    strategy: Strategy, combinations: Sequence[Mapping[str, FloatArray]]
) -> FloatArray:
    """The covariance (k, k), at noise variance 1, of k such sums; positive semidefinite, with
    upper bounds on the variances on the diagonal.
    """
    several = [_weights(strategy, coefficients) for coefficients in combinations]
    parts: dict[int, list[tuple[int, FloatArray]]] = {}
    for j, (in_blocks, _) in enumerate(several):
        for block, rows in in_blocks.items():
            parts.setdefault(block, []).append((j, rows))
    covariance = np.zeros((len(combinations), len(combinations)))
    for block, held in parts.items():
        block_set, i = strategy.places[block]
        M = block_set.M[i].astype(np.float64)
        # What each answer of the block weighs in each sum: the block's noise is independent of
        # that of others, and its answers' of each other's.
        weights = [solve_triangular(M, rows.T, trans="T").ravel() for _, rows in held]
        at = [j for j, _ in held]
        covariance[np.ix_(at, at)] += np.stack(weights) @ np.stack(weights).T
    above = _norms(strategy, several) ** 2
    covariance[np.diag_indices_from(covariance)] = np.maximum(np.diag(covariance), above)
    return covariance


def _weights(strategy: Strategy, coefficients: Mapping[str, FloatArray]) -> _InBlocks:
    """Of each block that a sum uses, its rows in the block's basis, and bounds on their errors."""
    structure = strategy.structure
    number = structure.workload.positions
    rows: dict[int, FloatArray] = {}
    errors: dict[int, FloatArray] = {}
    for name, given in coefficients.items():
        g = number[name]
        weights = _as_block(structure, g, given)
        asked = _asked(structure, g)
        for axis, factor in enumerate(asked.values()):
            weights = weights if factor is None else factor.adjoint(weights, axis)
        for block in structure.blocks_of(g):
            (members,) = structure.members([block])
            part = weights
            for axis, a in reversed(list(enumerate(asked))):
                if a in members:
                    part = strategy.attribute_matrices[a].adjoint(part, axis)
                else:
                    # tensordot puts the axis in order first: matmul strides through it, slowly.
                    part = np.tensordot(part, strategy.attribute_matrices[a].mean(), (axis, 0))
            L, L_error = _representation(strategy, block, g)
            flat = part.reshape(-1, part.shape[-1])
            rows[block] = rows.get(block, 0.0) + flat @ L
            errors[block] = errors.get(block, 0.0) + np.abs(flat) @ L_error
    return rows, errors


def _representation(strategy: Strategy, block: int, g: int) -> tuple[FloatArray, FloatArray]:
    """L (r, n) of a group's rows in a block's basis, and bounds (r,) on their errors."""
    structure = strategy.structure
    if structure.scalar:
        return np.ones((1, 1)), np.zeros(1)
    L, error = strategy.representation(block)
    mine = structure.rows_in(block, g)
    return L[mine], error[mine]


def _asked(structure: Structure, g: int) -> dict[int, Factor | None]:
    """What a group asks of each attribute of A_t: None for a symmetric one, the identity."""
    factors = {f.attribute: f for f in structure.workload.groups[g].factors}
    names = [(a, structure.split[a]) for a in structure.used[g]]
    return {a: factors[name] if name in structure.ordered else None for a, name in names}


def _as_group(structure: Structure, g: int, values: FloatArray) -> FloatArray:
    """Values with an axis for each attribute of A_t, and one of the rows, in the group's shape."""
    group = structure.workload.groups[g]
    names, shape = _axes(structure, group, g)
    order = [names.index(f.attribute) for f in group.factors]
    return np.array(np.broadcast_to(values.reshape(shape).transpose(order), group.shape))


def _as_block(structure: Structure, g: int, values: FloatArray) -> FloatArray:
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
    alike = structure.symmetric
    rows = {f.attribute: f.rows for f in group.factors if f.attribute not in alike}
    sizes = [structure.sizes[a] for a in structure.used[g]]
    used = [rows.get(name, size) for name, size in zip(own, sizes, strict=True)]
    return [*own, *rest], [*used, *(rows.get(name, 1) for name in rest)]
