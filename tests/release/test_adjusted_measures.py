"""Tables without negative counts, whose sums are between the bounds, by CVXPY on the estimates."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import fitplug as fp

LOW, HIGH = 2, 10
DOMAIN = fp.Domain({"g": ["a", "b", "c"], "y": fp.Measure(LOW, HIGH, unit=0.5)})
GROUPS = [
    fp.queries({"g": "identity"}, std=6.0, name="people"),
    fp.queries({"g": "identity", "y": "sum"}, std=40.0, name="money"),
]


def noisy(seed):
    plan = fp.design(fp.Workload(DOMAIN, GROUPS))
    rng = np.random.default_rng(seed)
    answers = np.rint(rng.normal(size=plan.strategy.size) * plan.noise_std).astype(np.int64)
    return fp.Release(plan=plan, answers=answers, rho=plan.rho)


def nearest(release, total=None):
    """Counts and sums that records can have, nearest in the covariance of the estimates."""
    cells = [f"{name}[g={g}]" for name in ("people", "money") for g in "abc"]
    found = release.combine_all(cells)
    n, s = cp.Variable(3), cp.Variable(3)
    inverse = np.linalg.inv(found.covariance)
    objective = cp.quad_form(cp.hstack([n, s]) - found.values, cp.psd_wrap(inverse))
    held = [n >= 0, s >= LOW * n, s <= HIGH * n]
    if total is not None:
        held.append(cp.sum(s) == total)
    cp.Problem(cp.Minimize(objective), held).solve(solver=cp.CLARABEL)
    return n.value, s.value


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("total", [None, 60.0])
def test_counts_and_sums_are_those_that_records_can_have(seed, total):
    release = noisy(seed)
    totals = {} if total is None else {"money[g in [a, b, c]]": total}
    found = release.nonnegative(totals=totals)
    n, s = (found.estimates[name].ravel() for name in ("people", "money"))
    assert (n >= 0).all()
    assert (s >= LOW * n - 1e-9).all()
    assert (s <= HIGH * n + 1e-9).all()
    expected = nearest(release, total)
    np.testing.assert_allclose(n, expected[0], atol=1e-3)
    np.testing.assert_allclose(s, expected[1], atol=1e-2)
    raw = release.estimates["money"].ravel(), release.estimates["people"].ravel()
    assert ((raw[0] < LOW * raw[1]) | (raw[0] > HIGH * raw[1])).any()


def test_integers_are_refused():
    with pytest.raises(fp.WorkloadError, match=r"not made beside sums of y, .* nonnegative"):
        noisy(0).integers()
