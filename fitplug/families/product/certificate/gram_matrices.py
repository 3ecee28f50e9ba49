"""The Gram matrices of pinched products, and the traces of their square roots, rounded down.

    Gamma_b = sum_{S >= B} w_S (x)_{a in B} nu_(a, b_a)^2 (x)_{a in S - B} G_a (x)_{a not in S} E

for `fitplug.families.product.certificate.product_bound`, where b chooses one of its rests for each
attribute of a set B. A column has a state for every attribute: 0 for e, then the other columns of
the frame, then the rests. The non-zero states, in the attributes' order, are its digits; those of
rests are b. Only columns of groups with positive weight are listed.

Nothing is assumed about the computed eigenvalues. With d_i^2 = Gamma_ii, the entries of the
computed Gamma are off by at most gamma d_i d_j, by Cauchy's inequality in every Gram matrix and in
the sum over S, so Gamma is off by at most gamma tr Gamma in norm. For any values s and any U, Gamma
is U diag(s) U' plus a residual, which is computed. The eigenvalues of U diag(s) U' are at least s
times 1 - |U'U - I| (Ostrowski), and the eigenvalues of Gamma are lower by at most the norms of the
residual and of both roundings (Weyl). See docs/theory/product-bound.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitplug.errors import BAD_PROOF
from fitplug.families.product.certificate.factor_pinching import UNDERFLOW
from fitplug.families.product.certificate.product_duals import Split
from fitplug.families.product.shape.batches import BatchedGroups
from fitplug.numeric import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    gamma,
    to_positions,
    upper_norm,
)

MAX_WORK = 4e9
"""The largest sum of the Gram matrices' sizes cubed: eigenvalues take about a second."""

MAX_ENTRIES = 5_000_000
"""The most terms of all Gamma_b together, before terms of the same entry are added up."""

MAX_BUFFER = 10_000_000
"""The most entries of all Gamma_b together."""

_END_OF_INT64 = 2**63
"""Larger state numbers are Python integers, which are 20 times as slow."""

_CHUNK = 64
"""The terms per chunk of a product: errors grow with this number, and with that of chunks."""


@dataclass(frozen=True, eq=False)
class StateColumns:
    """The columns of all Gamma_b.

    Attributes:
        states: The columns' numbers, ascending, shape (n,). Their digits are the attributes'
            states.
        base: The base of the digits.
        before: The number after which each attribute's digits start, shape (attributes,).
        first: The index in the buffer of the first entry of each column's row, shape (n,).
        position: The position of each column in its matrix, shape (n,).
    """

    states: AnyArray
    base: int
    before: IntArray
    first: IntArray
    position: IntArray

    def multiply(self, numbers: FloatArray) -> FloatArray:
        """Multiply, per column, the numbers (base,) of its digits; numbers[0] is 1."""
        left, product = self.states, np.ones(len(self.states))
        while left.any():
            product *= numbers[(left % self.base).astype(np.int64)]
            left = left // self.base
        return product

    def find_totals(self, attribute: int, t: int) -> tuple[IntArray, IntArray]:
        """Find the entries between columns that differ only in one attribute, 0 in one of them.

        Args:
            attribute: The attribute.
            t: The number of columns of its frame.

        Returns:
            The other column's state of the attribute, from 1 to t - 1, and the index in the buffer,
            each of shape (n',).
        """
        before = int(self.before[attribute])
        left, others, power = self.states, 0 * self.states, 0 * self.states + 1
        state = np.zeros(len(left), dtype=np.int64)
        while left.any():
            digit = left % self.base
            mine = (before < digit) & (digit < before + t)
            state[mine] = digit[mine] - before
            others = np.where(mine, others, others + digit * power)
            power = np.where(mine, power, power * self.base)
            left = left // self.base
        at = np.searchsorted(self.states, others[state > 0])
        return state[state > 0], self.first[at] + self.position[state > 0]


@dataclass(frozen=True, eq=False)
class GramTerms:
    """The positions of the terms of all Gamma_b in a buffer of these matrices, sorted by size.

    Attributes:
        parts: For each set of groups with equal shapes of frames and rests: the groups' indices in
            the workload (g,), their factors (g, m), and the positions of their terms in the buffer
            (g, t_1^2 + K_1, ..., t_m^2 + K_m).
        sizes: The sizes of the matrices, ascending, and the number of matrices of each size.
        roundings: The most roundings in an entry of the buffer.
        columns: The columns of all Gamma_b.
    """

    parts: tuple[tuple[IntArray, IntArray, IntArray], ...]
    sizes: tuple[tuple[int, int], ...]
    roundings: int
    columns: StateColumns | None = None

    @property
    def work(self) -> float:
        """The sum of the cubes of the matrices' sizes."""
        return sum(float(size) ** 3 * number for size, number in self.sizes)

    @property
    def length(self) -> int:
        """The length of the buffer."""
        return sum(size**2 * number for size, number in self.sizes)

    def fill(self, w: FloatArray, tables: Mapping[int, FloatArray]) -> FloatArray:
        """Fill the buffer with all Gamma_b.

        Args:
            w: The weights of the groups, in [0, 1].
            tables: By factor, the entries of G and all nu^2, in [0, 1], shape (t^2 + K,).

        Returns:
            The buffer, shape (length,).
        """
        buffer = np.zeros(self.length)
        for groups, factors, positions in self.parts:
            value = w[groups, None]
            for axis in factors.T:
                table = np.stack([tables[f] for f in axis])
                value = (value[:, :, None] * table[:, None, :]).reshape(len(groups), -1)
            places = to_positions(positions.ravel())
            buffer += np.bincount(places, value.ravel(), minlength=len(buffer))
        return buffer

    def multiply_columns(self, buffer: FloatArray, numbers: FloatArray) -> FloatArray:
        """Multiply the columns of all Y_b by numbers (n,): rows and columns of Gamma_b."""
        assert self.columns is not None
        arranged, start = numbers[np.argsort(self.columns.first)], 0
        parts = []
        for stack in self.split_by_size(buffer):
            factors = arranged[start : start + stack[:, :, 0].size].reshape(stack.shape[:2])
            start += factors.size
            parts.append((stack * factors[:, :, None] * factors[:, None, :]).ravel())
        return np.concatenate(parts)

    def split_by_size(self, buffer: FloatArray) -> list[FloatArray]:
        """Split a buffer into views, one per size, of shape (number, size, size)."""
        ends = np.cumsum([size**2 * number for size, number in self.sizes])[:-1]
        return [
            part.reshape(number, size, size)
            for part, (size, number) in zip(np.split(buffer, ends), self.sizes, strict=True)
        ]

    def lower_square_roots(self, buffer: FloatArray) -> float:
        """Bound sum_b tr Gamma_b^1/2 from below."""
        return sum(_lower_stack(stack, self.roundings) for stack in self.split_by_size(buffer)) * (
            1 - gamma(len(self.sizes))
        )


def decompose_symmetric(stack: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Compute np.linalg.eigh of symmetric matrices, without its overhead for 1 x 1 matrices."""
    if stack.shape[-1] == 1:
        return stack[:, :, 0], np.ones_like(stack)
    values, U = np.linalg.eigh(stack)
    return values, U


def _lower_stack(stack: FloatArray, roundings: int) -> float:
    """Bound the sum of tr Gamma^1/2 of matrices (number, size, size) from below."""
    number, size, _ = stack.shape
    s, U = decompose_symmetric(stack)
    residual, off = stack.copy(), np.broadcast_to(-np.eye(size), stack.shape).copy()
    starts = range(0, size, _CHUNK)
    for start in starts:
        some = slice(start, start + _CHUNK)
        residual -= (U[:, :, some] * s[:, None, some]) @ U[:, :, some].transpose(0, 2, 1)
        off += U[:, some, :].transpose(0, 2, 1) @ U[:, some, :]
    # Errors of the chunks' products, and of their summation: partial sums are entrywise at most
    # |stack| + |U||s||U|' and I + |U|'|U|, whose Frobenius norms are at most trace + mass and 2
    # size, up to a factor that 1.1 covers.
    product, sums = gamma(min(size, _CHUNK) + 4), gamma(len(starts))
    departure = 1.01 * _upper_norms(off) + 1.1 * (product + 2 * sums) * size
    trace, mass = stack.trace(axis1=1, axis2=2), np.abs(s).sum(axis=1)
    if not (departure < 1e-3).all():
        raise np.linalg.LinAlgError(BAD_PROOF)
    error = 1.01 * _upper_norms(residual) + 1.1 * (product + sums) * mass
    error += 1.1 * (sums + gamma(roundings)) * trace
    below = s * (1 - departure)[:, None] - (error + UNDERFLOW)[:, None]
    return float(np.sqrt(np.maximum(below, 0.0)).sum()) * (1 - gamma(number * size + 4))


def _upper_norms(stack: FloatArray) -> FloatArray:
    """Bound the Frobenius norms of matrices (number, n, n) from above."""
    return upper_norm(stack.reshape(len(stack), -1), axis=1)


def place_terms(
    batched: BatchedGroups, splits: Sequence[Split], used: BoolArray
) -> GramTerms | None:
    """Assign the terms of all Gamma_b to positions in a buffer.

    Args:
        batched: The groups.
        splits: The split of each attribute's columns.
        used: Whether each group has positive weight, shape (groups,).

    Returns:
        The positions, or None if they exceed the limits above.
    """
    split = np.array([(one.columns, one.rests) for one in splits], dtype=np.int64).reshape(-1, 2)
    # Without columns, the first rest has no digit.
    digits = split.sum(axis=1) - 1
    before = np.cumsum(digits) - digits
    shapes = [(batch, split[batch.attributes], used[batch.groups]) for batch in batched.batches]
    deepest = max(shapes_of_batch.shape[1] for _, shapes_of_batch, here in shapes if here.any())
    base = int(digits.sum()) + 1
    kind: Any = np.int64 if base**deepest < _END_OF_INT64 else object
    limit = MAX_ENTRIES if kind is np.int64 else MAX_ENTRIES // 20
    placed, entries = [], 0
    for batch, shapes_of_batch, counted in shapes:
        for shape in np.unique(shapes_of_batch[counted], axis=0):
            here = np.flatnonzero((shapes_of_batch == shape).all(axis=(1, 2)) & counted)
            shaped = (len(here), *(int(size) ** 2 + int(rests) for size, rests in shape))
            entries += math.prod(shaped)
            placed.append((batch, here, shape, shaped))
    if entries > limit:
        return None
    rows, columns, sets = np.concatenate(
        [
            _number_states(before[b.attributes[here]], shape, base, kind)
            for b, here, shape, _ in placed
        ],
        axis=1,
    )
    states, at, row = np.unique(rows, return_index=True, return_inverse=True)
    column = np.searchsorted(states, columns)
    _, block = np.unique(sets[at], return_inverse=True)
    size = np.bincount(block)
    different, number = np.unique(size, return_counts=True)
    position = np.empty_like(block)
    position[np.argsort(block, kind="stable")] = np.concatenate([np.arange(n) for n in size])
    order = np.argsort(size, kind="stable")
    start = np.empty_like(size)
    start[order] = np.cumsum(size[order] ** 2) - size[order] ** 2
    mine = block[row]
    place = start[mine] + position[row] * size[mine] + position[column]
    cuts = np.cumsum([math.prod(shaped) for _, _, _, shaped in placed])[:-1]
    widest = int(split[:, 0].max(initial=0))
    terms = GramTerms(
        tuple(
            (batch.groups[here], batch.factors[here], positions.reshape(shaped))
            for (batch, here, _, shaped), positions in zip(
                placed, np.split(place, cuts), strict=True
            )
        ),
        tuple(zip(different.tolist(), number.tolist(), strict=True)),
        int(used.sum()) + len(placed) + deepest * (widest + 4) + 4,
        StateColumns(states, base, before, start[block] + position * size[block], position),
    )
    fits = terms.work <= MAX_WORK and terms.length <= MAX_BUFFER
    return terms if fits else None


def _number_states(before: IntArray, shape: IntArray, base: int, kind: Any) -> AnyArray:
    """Number the row, the column and the rests b of each of g groups' E entries, (3, g E).

    Args:
        before: The numbers after which the digits of each group's attributes start, shape (g, m).
        shape: The numbers of columns of the frame and of rests of each attribute, shape (m, 2).
        base: The base of the digits.
        kind: The type of the numbers.
    """
    key = np.zeros((3, len(before), 1), dtype=kind)
    for first, (t, rests) in zip(before.T, shape, strict=True):
        i, j = np.divmod(np.arange(t * t), t)
        rest = np.arange(t, t + rests)
        states = np.stack([np.append(part, rest) for part in (i, j, 0 * i)])[:, None, None]
        digit = np.where(states > 0, first[:, None, None] + states, 0).astype(kind)
        key = np.where(digit > 0, key[..., None] * base + digit, key[..., None])
        key = key.reshape(3, len(before), -1)
    return key.reshape(3, -1)
