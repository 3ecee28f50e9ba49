"""An attack on what is really released: the best test between neighbouring tables.

For noise of the size that is claimed, the likelihood ratio test between x and x + e_i looks at the
answers along A e_i. Its error rates, over many releases, bound Delta of that cell from below
(Dong, Roth, Su 2022: Gaussian differential privacy): a mechanism of privacy cost Delta cannot be
attacked with errors a and b unless Phi^-1(1 - a) - Phi^-1(b) <= Delta.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, norm

import fitplug as fp
from fitplug_opendp import gaussian
from fitplug_opendp.noise_source import compute_exact_answers
from tests.helpers.exact import full_strategy
from tests.helpers.opendp_spaces import features  # noqa: F401
from tests.helpers.workloads import marginals, prefix

CONFIDENCE = 1 - 1e-6
RELEASES = 12_000


def prefixes():
    return fp.design(fp.Workload.from_matrix(prefix(3), variance=0.4))


def releases(plan, x, count, factor=1.0):
    """Answers (count, n) of that many releases of a table, drawn at once by the plan's sampler."""
    names = plan.workload.attributes
    tables = fp.Tables(plan.domain, {names: x.reshape(plan.workload.shape)})
    exact = compute_exact_answers(plan, tables)
    draw = gaussian.make_sampler(count * exact.size, plan.noise_std * factor)
    return draw(np.tile(exact, count)).reshape(count, -1)


def above(errors, count):
    """An upper confidence bound on a rate (Clopper and Pearson 1934)."""
    return float(beta.ppf(1 - (1 - CONFIDENCE) / 2, errors + 1, count - errors))


def attacked(plan, x, cell, released, count, factor=1.0):
    """A lower confidence bound on Delta at a cell, from the releases of x and as many of x + e."""
    A = np.array(full_strategy(plan), dtype=float)
    neighbour = x.copy()
    neighbour[cell] += 1
    direction = A[:, cell] / np.linalg.norm(A[:, cell])
    middle = (A @ x + A[:, cell] / 2) @ direction
    false_alarms = int((released @ direction > middle).sum())
    misses = int((releases(plan, neighbour, count, factor) @ direction <= middle).sum())
    return norm.isf(above(false_alarms, count)) - norm.ppf(above(misses, count))


def audit(plan, x, count, factor=1.0, cells=None):
    """The attack on every cell: no bound is above the claim, and the best is close to it."""
    released = releases(plan, x, count, factor)
    claim = np.sqrt(np.broadcast_to(plan.profile(), plan.domain.shape).ravel())
    best = 0.0
    for cell in range(x.size) if cells is None else cells:
        bound = attacked(plan, x, cell, released, count, factor)
        assert bound <= claim[cell] * (1 + 1e-9), "an attack beats the claim"
        best = max(best, bound)
    assert best >= 0.8 * plan.privacy_cost, "the attack is too weak to tell"


def test_no_attack_beats_the_claim_and_one_comes_close():
    audit(prefixes(), np.array([5, 0, 12]), RELEASES)


def test_the_audit_fails_on_too_little_noise():
    plan = prefixes()
    tight = int(plan.profile().argmax())
    with pytest.raises(AssertionError, match="beats the claim"):
        audit(plan, np.array([5, 0, 12]), RELEASES, factor=0.8, cells=[tight])


@pytest.mark.long
@pytest.mark.parametrize("symmetric", [False, True])
def test_longer_on_larger_plans(symmetric):
    domain = fp.Domain({"a": fp.Integers(0, 2), "b": ["x", "y"]})
    workload = (
        fp.Workload(domain, [fp.marginal("a", "b", variance=0.5), fp.total(variance=0.2)])
        if symmetric
        else fp.Workload.from_matrix(marginals([2, 3], 1), variance=0.5)
    )
    plan = fp.design(workload)
    x = np.arange(plan.workload.cell_count)
    audit(plan, x, 2 * RELEASES)
    with pytest.raises(AssertionError, match="beats the claim"):
        audit(plan, x, 2 * RELEASES, factor=0.8, cells=[0])
