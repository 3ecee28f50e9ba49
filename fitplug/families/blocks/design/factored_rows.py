"""Moments and profiles of rows that are Kronecker products, without the matrix of the rows.

Where N stacks the rows of groups (x)_a F_ta over the cells of several attributes,

    N_t diag(p) N_u'             is p contracted with K_a = F_ta[i, x] F_ua[j, x], one attribute
                                 after another
    sum_(t, u) diag(N_t' Y N_u)  is Y contracted with the same K_a

which takes about r^2 n operations for r rows, where n is the size of an attribute and not of their
product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fitplug.domain import get_shape
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.numeric import FloatArray, IndexArray

_MOST_GROUPS, _MOST_ENTRIES = 12, 20_000_000
"""The most groups of a block, and the most entries of one K_a."""


@dataclass(frozen=True, eq=False)
class FactoredRows:
    """The rows of several groups.

    Attributes:
        shape: The sizes n_a of the attributes.
        factors: For each group, F_a of each attribute, shape (r_a, n_a).
        places: For each group, the row of each tuple of rows of its factors, flattened.
    """

    shape: tuple[int, ...]
    factors: tuple[tuple[FloatArray, ...], ...]
    places: tuple[IndexArray, ...]

    @classmethod
    def of_block(cls, structure: MatrixStructure, block: int) -> FactoredRows | None:
        """Find the rows of a block, in the order of its matrix; None if they are too many."""
        names, groups = structure.dense, structure.workload.groups
        shape = get_shape(structure.workload.domain, names)
        numbers, _ = structure.subsets.find_groups(block)
        if len(numbers) > _MOST_GROUPS:
            return None
        factors, places, start = [], [], 0
        for number in numbers.tolist():
            asked = [f for f in groups[number].factors if f.attribute in names]
            counts = [factor.rows for factor in asked]
            by_name = {factor.attribute: factor.matrix() for factor in asked}
            of_group = [by_name.get(name, np.ones((1, n))) for name, n in zip(names, shape)]  # noqa: B905
            if max(len(F) ** 2 * F.shape[1] for F in of_group) > _MOST_ENTRIES:
                return None
            order = np.argsort([names.index(factor.attribute) for factor in asked])
            rows = np.arange(math.prod(counts)).reshape(counts).transpose(order)
            factors.append(tuple(of_group))
            places.append(start + rows.ravel())
            start += rows.size
        return cls(shape, tuple(factors), tuple(places))

    @property
    def count(self) -> int:
        """r, the number of rows."""
        return sum(map(len, self.places))

    def build_moment(self, p: FloatArray) -> FloatArray:
        """Build N diag(p) N', shape (r, r), for weights p of the cells."""
        moment = np.empty((self.count, self.count))
        for t, u in self._list_pairs():
            pairs = list(zip(self.factors[t], self.factors[u], strict=True))
            # Contract first along the attributes that shrink the array most.
            growth = [len(F) * len(G) / n for (F, G), n in zip(pairs, self.shape, strict=True)]
            order = np.argsort(growth, kind="stable")
            x = p.reshape(self.shape).transpose(order)
            for a in order:
                x = np.moveaxis(np.tensordot(_multiply(*pairs[a]), x, (2, 0)), (0, 1), (-2, -1))
            place = np.argsort(order)
            x = x.transpose([*(2 * place), *(2 * place + 1)])
            rows, columns = self.places[t], self.places[u]
            moment[np.ix_(rows, columns)] = x.reshape(len(rows), len(columns))
            if t != u:
                moment[np.ix_(columns, rows)] = moment[np.ix_(rows, columns)].T
        return moment

    def compute_profile(self, Y: FloatArray) -> FloatArray:
        """Compute the diagonal of N'Y N, shape (d,), for a symmetric Y (r, r)."""
        profile, m = np.zeros(self.shape), len(self.shape)
        for t, u in self._list_pairs():
            lengths = [len(F) for F in (*self.factors[t], *self.factors[u])]
            x = Y[np.ix_(self.places[t], self.places[u])].reshape(lengths)
            x = x.transpose([a for pair in zip(range(m), range(m, 2 * m)) for a in pair])  # noqa: B905
            for first, second in zip(self.factors[t], self.factors[u], strict=True):
                x = np.moveaxis(np.tensordot(_multiply(first, second), x, ((0, 1), (0, 1))), 0, -1)
            profile += x if t == u else 2 * x
        return profile.ravel()

    def _list_pairs(self) -> Sequence[tuple[int, int]]:
        """List the pairs of groups t <= u."""
        numbers = range(len(self.factors))
        return [(t, u) for t in numbers for u in numbers if t <= u]


def _multiply(first: FloatArray, second: FloatArray) -> FloatArray:
    """Multiply rows (r, n) and (s, n) entry by entry, shape (r, s, n)."""
    return np.asarray(first[:, None] * second)
