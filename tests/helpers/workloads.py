"""Workloads that the tests share, with the optimal squared privacy cost where it is known."""

from __future__ import annotations

import itertools

import numpy as np

PREFIX = {
    2: 4 / 3, 4: 1.758601327, 8: 2.281560588, 16: 2.905252903, 32: 3.63072336,
    64: 4.45786915, 128: 5.38608654, 256: 6.414651,
}  # fmt: skip
"""alpha of prefix(d) at equal targets 1, by an independent solver to 1e-6 or better."""


def prefix(d):
    return np.tri(d)


def identity_and_sum(d):
    return np.vstack([np.eye(d), np.ones(d)])


def all_ranges(d):
    return np.array([[float(a <= i <= b) for i in range(d)] for a in range(d) for b in range(a, d)])


def kron(*factors):
    product = np.ones((1, 1))
    for factor in factors:
        product = np.kron(product, factor)
    return product


def marginals(sizes, ways):
    """All marginals over at most `ways` attributes, the total included."""
    rows = []
    for k in range(ways + 1):
        for chosen in itertools.combinations(range(len(sizes)), k):
            rows.append(
                kron(*[np.eye(n) if i in chosen else np.ones((1, n)) for i, n in enumerate(sizes)])
            )
    return np.vstack(rows)


def small():
    """(name, W, c): every shape of trouble in at most 8 x 12, for exact arithmetic."""
    rng = np.random.default_rng(20261120)
    duplicated = np.repeat(prefix(3), 2, axis=1)
    with_zero_cells = np.hstack([prefix(4), np.zeros((4, 2))])
    return [
        ("one cell", np.array([[1.0]]), np.array([2.0])),
        ("identity", np.eye(3), np.array([1.0, 2.0, 3.0])),
        ("total only", np.ones((1, 5)), np.array([4.0])),
        ("prefix", prefix(6), np.ones(6)),
        ("identity and sum", identity_and_sum(5), np.array([1.0, 1, 1, 1, 1, 2.5])),
        ("two marginals, rank deficient", marginals([2, 3], 1)[1:], np.arange(1.0, 6)),
        ("fewer queries than cells", np.array([[1.0, 1, 0, 0], [0, 1, 1, 0]]), np.ones(2)),
        ("more queries than cells", all_ranges(3), np.linspace(1, 2, 6)),
        ("cells no query tells apart", duplicated, np.ones(3)),
        ("cells never queried", with_zero_cells, np.ones(4)),
        ("a zero query", np.vstack([np.eye(3), np.zeros(3)]), np.ones(4)),
        ("repeated queries", np.vstack([prefix(3), prefix(3)]), np.array([1.0, 2, 3, 3, 2, 1])),
        ("halves and quarters", marginals([2, 2], 1) * 0.25, np.ones(5)),
        ("negative", np.array([[1.0, -1, 0], [0, 1, -1]]), np.ones(2)),
        ("real, m < d", rng.normal(size=(3, 6)), np.ones(3)),
        ("real, m > d", rng.normal(size=(7, 4)), rng.uniform(0.5, 2, 7)),
        ("targets far apart", prefix(5), 10.0 ** np.array([-6.0, -3, 0, 3, 6])),
        ("rows of all sizes", prefix(5) * (10.0 ** np.arange(-6, 9, 3))[:, None], np.ones(5)),
    ]
