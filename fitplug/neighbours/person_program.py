"""The records of a person as a linear program, whose bounds are proven in integers.

A difference has a variable x_i for each dense cell i, 1 if a record is there. For each pair of
cells of different periods and each set D of symmetric attributes it has a variable p_D(i, j), 1 if
there are records in both that differ in D. The cost of the difference is linear in them. For a set
B of attributes let y_B(i, j) be the sum of p_D over all D without an attribute of B: it is 1 if
both records are there and are equal in B. All differences satisfy the inequalities (N10):

    sum over the cells i of a period of x_i <= 1,          sum of all x_i <= k
    sum over the cells j of a period of y_0(i, j) <= x_i,  sum over j of y_0(i, j) <= (k - 1) x_i
    sum over i in t of x_i + sum over j in u of x_j - sum of y_0(i, j) <= 1
    y_B(i, j) + y_B(j, m) - y_B(i, m) <= x_j
    sum over i in U of x_i - sum over pairs in U of y_a(i, j) <= n_a   for n_a + 1 cells U

Here y_0 is that of the empty set, where both records are there. The last line but one says that to
be equal is transitive, the last one that an attribute has n_a cells. These two kinds are many, so
they are added where a solution violates them.

The solver works with floats and is not trusted: any multipliers >= 0 of the inequalities prove a
bound, which is computed from rounded multipliers in integers (docs/theory/persons.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, vstack

from fitplug.neighbours.person_records import PersonRecords
from fitplug.numeric import BoolArray, FloatArray, IntArray

_DIGITS = 20
"""Multipliers are rounded to multiples of 2^-20."""

_VIOLATED = 1e-6
"""By how much a solution violates an inequality that is added."""


@dataclass(frozen=True, eq=False)
class Inequalities:
    """Inequalities matrix @ z <= limits between the variables z, with integers.

    Attributes:
        matrix: Shape (rows, variables), int64.
        limits: Shape (rows,), int64.
    """

    matrix: csr_matrix
    limits: IntArray

    def __len__(self) -> int:
        return len(self.limits)

    def append(self, others: Inequalities) -> Inequalities:
        """Append other inequalities."""
        matrix = vstack([self.matrix, others.matrix], format="csr")
        return Inequalities(matrix, np.concatenate([self.limits, others.limits]))

    def take(self, index: BoolArray) -> Inequalities:
        """Take some of the inequalities."""
        return Inequalities(self.matrix[np.flatnonzero(index)], self.limits[index])


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A solution of the linear program, and what its multipliers prove.

    Attributes:
        z: The variables, shape (variables,), as the solver found them.
        bound: No difference of the program costs more.
        binding: Which inequalities have a multiplier > 0, shape (rows,).
    """

    z: FloatArray
    bound: int
    binding: BoolArray


@dataclass(frozen=True, eq=False)
class PersonProgram:
    """The linear program of a person.

    Attributes:
        person: Which records a person may have.
        products: The products of records, integers of at most about 30 bits, shape (2^m, D, D), as
            in `RecordProducts`.
    """

    person: PersonRecords
    products: IntArray

    @cached_property
    def sets(self) -> IntArray:
        """The sets D of attributes in which two records may differ, the empty one first."""
        return np.concatenate([[0], self.person.differing_sets])

    @cached_property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """The pairs i < j of cells of different periods, two arrays (pairs,)."""
        periods = self.person.periods
        first, second = np.triu_indices(len(periods), 1)
        apart = periods[first] != periods[second]
        return first[apart], second[apart]

    @cached_property
    def pair_numbers(self) -> IntArray:
        """The number of the pair of two cells, shape (D, D); -1 for cells of one period."""
        d, (first, second) = len(self.person.periods), self.pairs
        numbers = np.full((d, d), -1, dtype=np.int64)
        numbers[first, second] = numbers[second, first] = np.arange(len(first))
        return numbers

    @property
    def size(self) -> int:
        """The number of variables: x of each cell, then p of each pair with its sets D in order."""
        return len(self.person.periods) + len(self.pairs[0]) * len(self.sets)

    @cached_property
    def weights(self) -> IntArray:
        """What each variable costs, shape (variables,)."""
        first, second = self.pairs
        crossing = 2 * self.products[self.sets][:, first, second].T
        return np.concatenate([np.diagonal(self.products[0]), crossing.ravel()])

    def find_equal(self, kind: int) -> IntArray:
        """Find which of the sets D have no attribute of a set B, as positions in `sets`."""
        return np.flatnonzero(self.sets & kind == 0)

    def locate(self, pairs: IntArray, kind: int) -> IntArray:
        """Find the variables that sum to y_B of pairs, shape (..., sets without B)."""
        at = len(self.person.periods) + pairs * len(self.sets)
        return np.asarray(at[..., None] + self.find_equal(kind))

    def sum_equal(self, z: FloatArray, kind: int) -> FloatArray:
        """Compute y_B of all pairs of cells, shape (D, D); zero for cells of one period."""
        d, (first, second) = len(self.person.periods), self.pairs
        own = z[d:].reshape(len(first), -1)[:, self.find_equal(kind)].sum(axis=1)
        y = np.zeros((d, d))
        y[first, second] = y[second, first] = own
        return y

    def build_rows(
        self, columns: Sequence[IntArray], values: Sequence[int], limits: IntArray | int
    ) -> Inequalities:
        """Build inequalities from columns (rows, n) that have one coefficient each."""
        rows = len(columns[0])
        flat = np.concatenate([own.reshape(rows, -1) for own in columns], axis=1)
        widths = [own.reshape(rows, -1).shape[1] for own in columns]
        filled = np.broadcast_to(np.repeat(np.array(values, dtype=np.int64), widths), flat.shape)
        starts = np.arange(rows + 1) * flat.shape[1]
        matrix = csr_matrix((filled.ravel(), flat.ravel(), starts), shape=(rows, self.size))
        return Inequalities(matrix, np.broadcast_to(np.asarray(limits), rows).astype(np.int64))

    @cached_property
    def first_rows(self) -> Inequalities:
        """The inequalities that are not added later: (N10) but for its last two lines."""
        person, periods = self.person, self.person.periods
        d, T, k = len(periods), person.period_count, person.most
        first, second = self.pairs
        both = self.locate(np.arange(len(first)), 0)
        cells = np.arange(d)
        # Row i T + u is about cell i and period u. That of its own period stays empty.
        at_first, at_second = first * T + periods[second], second * T + periods[first]
        others = np.flatnonzero((np.arange(T) != periods[:, None]).ravel())
        near = self._gather_rows(
            d * T,
            [(at_first, both, 1), (at_second, both, 1), (others, others // T, -1)],
            0,
        )
        number = np.zeros((T, T), dtype=np.int64)
        t, u = np.triu_indices(T, 1)
        number[t, u] = number[u, t] = np.arange(len(t))
        crossing = self._gather_rows(
            len(t),
            [
                (number[periods[first], periods[second]], both, -1),
                (
                    number[periods[:, None], np.arange(T)].ravel()[others],
                    np.repeat(cells, T)[others],
                    1,
                ),
            ],
            1,
        )
        found = near.append(crossing).append(self._gather_rows(T, [(periods, cells, 1)], 1))
        if k < T:
            found = found.append(self._gather_rows(1, [(cells * 0, cells, 1)], k))
            found = found.append(
                self._gather_rows(
                    d, [(first, both, 1), (second, both, 1), (cells, cells, 1 - k)], 0
                )
            )
        return found

    def _gather_rows(
        self, rows: int, terms: Sequence[tuple[IntArray, IntArray, int]], limit: int
    ) -> Inequalities:
        """Build inequalities from terms: rows (n,), their variables (n,) or (n, s), coefficient."""
        at = [
            np.broadcast_to(r.reshape(len(r), -1), v.reshape(len(r), -1).shape) for r, v, _ in terms
        ]
        row = np.concatenate([own.ravel() for own in at])
        column = np.concatenate([v.ravel() for _, v, _ in terms])
        value = np.repeat([c for _, _, c in terms], [own.size for own in at])
        matrix = csr_matrix((value, (row, column)), shape=(rows, self.size))
        return Inequalities(matrix, np.full(rows, limit, dtype=np.int64))

    def find_violated(self, z: FloatArray) -> Inequalities | None:
        """Find inequalities that a solution violates, the most violated ones; None if none is."""
        d = len(self.person.periods)
        most = max(64, len(self.pairs[0]))
        found = []
        for kind in self.sets.tolist():
            y = self.sum_equal(z, kind)
            if own := self._find_intransitive(z[:d], y, kind, most):
                found.append(own)
        for a, size in enumerate(self.person.sizes):
            y = self.sum_equal(z, 1 << a)
            if size > 1 and (own := self._find_crowded(z[:d], y, a)):
                found.append(own)
        if not found:
            return None
        joined = found[0]
        for own in found[1:]:
            joined = joined.append(own)
        return joined

    def _find_intransitive(
        self, x: FloatArray, y: FloatArray, kind: int, most: int
    ) -> Inequalities | None:
        """Find i, j, m with y(i, j) + y(j, m) - y(i, m) > x_j."""
        numbers, d = self.pair_numbers, len(x)
        triples, excesses = [], []
        each = max(2, 4 * most // d)
        for j in range(d):
            near = np.flatnonzero((numbers[j] >= 0) & (y[j] > _VIOLATED))
            excess = y[j, near][:, None] + y[j, near] - y[np.ix_(near, near)] - x[j]
            excess[(numbers[np.ix_(near, near)] < 0) | np.tri(len(near), dtype=bool)] = -1
            flat = excess.ravel()
            own = np.flatnonzero(flat > _VIOLATED)
            own = own[np.argsort(-flat[own], kind="stable")[:each]]
            first, last = np.divmod(own, max(len(near), 1))
            triples.append(np.column_stack([near[first], np.full(len(own), j), near[last]]))
            excesses.append(flat[own])
        chosen = np.argsort(-np.concatenate(excesses), kind="stable")[:most]
        if not len(chosen):
            return None
        i, j, m = np.concatenate(triples)[chosen].T
        located = [self.locate(numbers[one, two], kind) for one, two in ((i, j), (j, m), (i, m))]
        return self.build_rows([*located, j[:, None]], [1, 1, -1, -1], 0)

    def _find_crowded(self, x: FloatArray, y: FloatArray, a: int) -> Inequalities | None:
        """Find n_a + 1 cells whose records seem to be there and to differ in attribute a.

        From each cell on, the cell that adds the most to the left side comes next.
        """
        size, numbers = self.person.sizes[a], self.pair_numbers
        if size >= self.person.most:
            return None
        found: dict[tuple[int, ...], None] = {}
        for start in np.flatnonzero(x > _VIOLATED).tolist():
            members, gain, total = [start], x - y[start], float(x[start])
            open_cells = numbers[start] >= 0
            while len(members) <= size and open_cells.any():
                best = int(np.argmax(np.where(open_cells, gain, -np.inf)))
                members.append(best)
                total += float(gain[best])
                gain = gain - y[best]
                open_cells = open_cells & (numbers[best] >= 0)
            if len(members) > size and total > size + _VIOLATED:
                found[tuple(sorted(members))] = None
        if not found:
            return None
        cells = np.array(list(found))
        first, second = np.triu_indices(size + 1, 1)
        both = self.locate(numbers[cells[:, first], cells[:, second]], 1 << a)
        return self.build_rows([cells, both], [1, -1], size)

    def solve(self, rows: Inequalities, lower: FloatArray, upper: FloatArray) -> Relaxation | None:
        """Maximise the cost within bounds 0 or 1 on each variable.

        Returns:
            What was found; None if the solver found nothing.
        """
        # The solver's tolerances are absolute, so the largest cost is about 2^10.
        scale = 2.0 ** (10 - int(np.abs(self.weights).max()).bit_length())
        cost = np.asarray(-self.weights * scale, dtype=np.float64)
        bounds = np.column_stack([lower, upper])
        found = _run_solver(cost, rows.matrix, rows.limits, bounds)
        if found is None:
            # Bounds that no difference meets. What it takes to relax the inequalities is added.
            slack = vstack([rows.matrix.T, csr_matrix(-np.ones((1, len(rows))))]).T.tocsr()
            penalty = 4 * float(np.abs(cost).sum())
            found = _run_solver(
                np.append(cost, penalty), slack, rows.limits, np.vstack([bounds, [0, np.inf]])
            )
        if found is None:
            return None
        z, multipliers = found
        rounded = np.rint(np.maximum(multipliers, 0.0) / scale * 2.0**_DIGITS)
        proven = self._prove_bound(rows, rounded, lower, upper)
        return None if proven is None else Relaxation(z[: self.size], proven, rounded > 0)

    def _prove_bound(
        self, rows: Inequalities, multipliers: FloatArray, lower: FloatArray, upper: FloatArray
    ) -> int | None:
        """Compute the bound of multipliers u >= 0, which are integers, without rounding: (N11).

        If matrix @ z <= limits, then weights' z <= u' limits + (weights - matrix' u)' z, and z is
        within its bounds.
        """
        if (
            not np.isfinite(multipliers).all()
            or float(multipliers.sum()) * self.person.most >= 2**60
        ):
            return None  # the sums might leave 64 bits
        u = multipliers.astype(np.int64)
        left = self.weights * 2**_DIGITS - rows.matrix.T @ u
        best = np.where(left > 0, left * upper.astype(np.int64), left * lower.astype(np.int64))
        total = int((u * rows.limits).astype(object).sum()) + int(best.astype(object).sum())
        return total >> _DIGITS  # costs are integers


def _run_solver(
    cost: FloatArray, matrix: csr_matrix, limits: IntArray, bounds: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Minimise cost @ z; returns z and the multipliers of the inequalities, (rows,)."""
    found = linprog(
        cost,
        A_ub=matrix.astype(np.float64),
        b_ub=limits.astype(np.float64),
        bounds=bounds,
        method="highs-ds",
        options={"dual_feasibility_tolerance": 1e-9},
    )
    if found.status != 0:
        return None
    return np.asarray(found.x), -np.asarray(found.ineqlin.marginals)
