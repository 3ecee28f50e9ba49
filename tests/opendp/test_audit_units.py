"""The attack of test_audit on the costliest difference of each unit of privacy.

The difference is found by listing all of V, so the attack also tells whether the cost of a plan is
that of the costliest person, or of the costliest pair of cells.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import beta, norm

import fitplug as fp
from fitplug.families import build_dense_strategy
from fitplug_opendp import gaussian
from fitplug_opendp.noise_source import compute_exact_answers
from tests.helpers.opendp_spaces import features  # noqa: F401
from tests.helpers.persons import list_persons

CONFIDENCE = 1 - 1e-6
RELEASES = 20_000
"""So many that a bound is 7 standard deviations above 0.8 times the cost, by all units here."""
DOMAIN = fp.Domain({"month": fp.Integers(1, 3), "place": ["x", "y"]})
WORKLOAD = fp.Workload(
    DOMAIN,
    [
        fp.marginal("month", "place", variance=2.0),
        fp.queries({"month": "prefix"}, variance=5.0, name="so far"),
    ],
)
UNITS = [
    fp.AddRemove(records=3, once_per="month"),
    fp.ReplaceOne(),
    pytest.param(fp.AddRemove(records=2), marks=pytest.mark.long),
    pytest.param(fp.AddRemove(records=3, distinct=True), marks=pytest.mark.long),
    pytest.param(fp.ReplaceOne(within=("place",)), marks=pytest.mark.long),
]
HISTOGRAM = np.array([5, 0, 12, 3, 1, 7])


def list_differences(unit):
    """All of V, shape (|V|, cells)."""
    cells = list(itertools.product(range(3), range(2)))
    if isinstance(unit, fp.ReplaceOne):
        axes = [DOMAIN.names.index(name) for name in unit.within]
        pairs = [
            (i, j)
            for i, j in itertools.permutations(range(6), 2)
            if all(cells[i][a] == cells[j][a] for a in axes)
        ]
        return np.array([np.eye(6)[i] - np.eye(6)[j] for i, j in pairs])
    if not unit.distinct and unit.once_per is None:
        sums = itertools.combinations_with_replacement(np.eye(6), unit.records)
        return np.array([sum(some) for some in sums])
    return np.asarray(list_persons(DOMAIN, unit), dtype=float)


def release_often(plan, x, factor):
    """The noisy answers of RELEASES releases of a histogram, shape (RELEASES, n)."""
    tables = fp.Tables(DOMAIN, {("month", "place"): x.reshape(3, 2)})
    size = plan.strategy.size
    exact = compute_exact_answers(plan, tables)[:size]  # public totals come after these
    draw = gaussian.make_sampler(RELEASES * size, plan.noise_std * factor)
    return draw(np.tile(exact, RELEASES)).reshape(RELEASES, -1)


def bound_rate(errors):
    """An upper confidence bound on a rate (Clopper and Pearson 1934)."""
    return float(beta.ppf(1 - (1 - CONFIDENCE) / 2, errors + 1, RELEASES - errors))


def attack(plan, factor=1.0):
    """A lower confidence bound on the privacy cost: the best test at the costliest difference."""
    A = build_dense_strategy(plan.strategy).astype(float)
    V = list_differences(plan.unit)
    change = (A @ V.T).T
    worst = int((change * change).sum(axis=1).argmax())
    # Both data sets are histograms: the one that has what a replacement takes away, and the other.
    x = HISTOGRAM + np.maximum(-V[worst], 0).astype(int)
    neighbour = (x + V[worst]).astype(int)
    direction = change[worst] / np.linalg.norm(change[worst])
    middle = (A @ x + change[worst] / 2) @ direction
    false_alarms = int((release_often(plan, x, factor) @ direction > middle).sum())
    misses = int((release_often(plan, neighbour, factor) @ direction <= middle).sum())
    return norm.isf(bound_rate(false_alarms)) - norm.ppf(bound_rate(misses))


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.slow
def test_no_attack_on_a_person_beats_the_claim_and_one_comes_close(unit):
    plan = fp.design(WORKLOAD, unit=unit)
    bound = attack(plan)
    assert 0.8 * plan.privacy_cost <= bound <= plan.privacy_cost
    assert attack(plan, factor=0.8) > plan.privacy_cost  # too little noise would be noticed
