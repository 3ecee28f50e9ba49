"""Unbiasedness: without noise, a plan's estimates are the true answers.

Costs, variances and bounds are proven from the integers of a strategy. That its estimates belong to
these integers is not: a release computes them by code of its own. So counts are made up, answered
without noise and estimated, and the estimates are compared with the queries' answers to the same
counts. The counts are a sum of products, with a random vector of integers for each attribute:

    x = w_1 ⊗ ... ⊗ w_n + w'_1 ⊗ ... ⊗ w'_n,  where the entries of each vector sum to 1.

So the sum over an attribute leaves the products of the others, and the marginals, and the answer
(F_1 ⊗ ... ⊗ F_n) x of a group, need nothing of the size of the domain. Estimates that mistake one
cell, axis or total for another differ at such counts, except by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from fitplug.domain import count_shares, get_shape
from fitplug.errors import PlanError
from fitplug.families import IntegerStrategy, Structure
from fitplug.numeric import AnyArray, FloatArray, IntArray
from fitplug.workload import QueryGroup

_PRODUCTS = 2

_MOST_NUMBERS = 2**22
"""The most cells of all tables and answers together. The code for larger plans is the same."""

_MOST_GROUPS, _MOST_QUERIES = 500, 2**20
"""About the most groups, drawn at random, and queries whose estimates are compared."""

_OF_ANSWER, _OF_COUNTS = 1e-6, 1e-10
"""By how much an estimate may be off, of the answers and standard deviations, and of all counts."""


def check_unbiasedness(strategy: IntegerStrategy[Structure], variances: FloatArray) -> None:
    """Check that estimates of answers without noise are the queries' answers.

    Plans with more than `_MOST_NUMBERS` cells and answers are not checked.

    Args:
        strategy: The strategy.
        variances: The variances of the structure's rows, shape (rows,).

    Raises:
        PlanError: An estimate is another number.
    """
    structure = strategy.structure
    workload, domain = structure.workload, structure.workload.domain
    cells = sum(math.prod(get_shape(domain, names)) for names in strategy.list_tables())
    if cells + strategy.released_size > _MOST_NUMBERS:
        return
    rng = np.random.default_rng(0)
    vectors = [
        {name: _draw_vector(rng, domain[name].size) for name in workload.attributes}
        for _ in range(_PRODUCTS)
    ]
    largest = 0

    def read_counts(names: tuple[str, ...]) -> IntArray:
        nonlocal largest
        counts = sum(_multiply([vector[name] for name in names]) for vector in vectors)
        counts = np.asarray(counts, dtype=np.int64) * count_shares(domain, names)
        largest = max(largest, int(np.abs(counts).sum()))
        return counts

    estimates = strategy.make_estimates(strategy.answer_exactly(read_counts))
    stds = structure.group_values(np.sqrt(variances))
    queries = 0
    for g in rng.permutation(len(workload.groups))[:_MOST_GROUPS]:
        group = workload.groups[int(g)]
        size = math.prod(group.shape)
        if queries + size > _MOST_QUERIES:
            continue
        queries += size
        answers = sum(_answer(group, vector) for vector in vectors)
        scale = np.abs(answers).max(initial=0.0) + stds[group.name].min(initial=math.inf)
        off = np.abs(estimates[group.name] - answers).max(initial=0.0)
        if not off <= _OF_ANSWER * scale + _OF_COUNTS * largest:
            raise PlanError(f"the estimates of {group.name!r} are biased")


def _draw_vector(rng: np.random.Generator, size: int) -> IntArray:
    """Draw integers (size,) that sum to 1."""
    vector = rng.integers(-1, 2, size)
    vector[rng.integers(size)] += 1 - vector.sum()
    return vector


def _multiply(vectors: Sequence[AnyArray]) -> AnyArray:
    """Multiply vectors to an array with an axis for each."""
    return reduce(np.multiply.outer, vectors, np.ones((), dtype=np.int64))


def _answer(group: QueryGroup, vector: dict[str, IntArray]) -> FloatArray:
    """Answer the queries of a group at a product of vectors, in the group's shape."""
    parts = [
        # The vector sums to 1, and there is none of an attribute that is only summed out.
        np.ones(1) if factor.kind == "total" else factor.apply(vector[factor.attribute], 0)
        for factor in group.factors
    ]
    return np.asarray(_multiply(parts), dtype=float)
