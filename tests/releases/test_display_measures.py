"""Tables without negative counts, whose sums are between the bounds, by CVXPY on the estimates."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import fitplug as fp
from fitplug.releases import display
from fitplug_opendp.noise_source import compute_exact_answers

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
    found = release.estimate_all(cells)
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


def test_large_releases_are_adjusted_from_the_total_down(monkeypatch):
    """Without noise they are the release; with noise, counts and sums that records can have."""
    leaves = [("1", "11"), ("1", "12"), ("2", "21")]
    domain = fp.Domain(
        {
            "y": fp.Measure(LOW, HIGH, unit=0.5),
            "sex": ["f", "m"],
            "place": fp.Hierarchy(["state", "county"], leaves),
        }
    )
    groups = [
        fp.queries({"place": "county", "y": "sum", "sex": "identity"}, std=9.0, name="money"),
        fp.queries({"sex": "identity", "place": "county"}, std=1.0, name="people"),
        fp.queries({"place": "state", "y": "sum"}, std=9.0, name="money by state"),
        fp.total(std=1.0),
    ]
    plan = fp.design(fp.Workload(domain, groups))
    rng = np.random.default_rng(7)
    records = {
        "y": rng.uniform(1, 11, 40),
        "sex": rng.choice(["f", "m"], 40),
        "place": rng.choice(["11", "12"], 40),
    }
    exact = compute_exact_answers(plan, fp.Tables.from_records(domain, records, plan.tables))
    noise = np.rint(rng.normal(size=len(exact)) * plan.noise_std).astype(np.int64)
    monkeypatch.setattr(display, "MOST_ENTRIES", 0)
    for added in (0, noise):
        release = fp.Release(plan=plan, answers=exact + added, rho=plan.rho)
        found = release.nonnegative(totals={"total": 40})
        assert found.display.is_by_steps
        n, s = found.estimates["people"].T, found.estimates["money"][:, 0]
        assert (n >= 0).all()
        assert (s >= LOW * n - 1e-9).all()
        assert (s <= HIGH * n + 1e-9).all()
        assert n.sum() == pytest.approx(40)
        by_state = [s[:2].sum(), s[2].sum()]
        np.testing.assert_allclose(found.estimates["money by state"].ravel(), by_state)
        if added is not noise:
            for name in plan.workload.names:
                estimates = release.estimates[name]
                np.testing.assert_allclose(found.estimates[name], estimates, atol=1e-6)
        else:
            assert (release.estimates["people"] < 0).any()


def test_integers_are_refused():
    with pytest.raises(
        fp.WorkloadError, match=r"cannot have sums of the measure y. .* nonnegative"
    ):
        noisy(0).integers()
