"""Data and plans that the tests of the OpenDP adapter share."""

from __future__ import annotations

import numpy as np
import opendp.prelude as dp
import pytest
from opendp.mod import GLOBAL_FEATURES

import fitplug as fp

FEATURES = ("contrib", "honest-but-curious")

DOMAIN = fp.Domain({"sex": ["f", "m"], "age": fp.Bins([0, 18, 65]), "note": ["a", "b"]})
PLAN = fp.design(
    fp.Workload(
        DOMAIN,
        [fp.queries({"sex": "identity", "age": "prefix"}, std=3.0, name="both"), fp.total(std=2.0)],
    )
)
EXACT = fp.design(
    fp.Workload(DOMAIN, [fp.marginal("sex", "age", std=1e-5, name="both"), fp.total(std=1e-5)])
)
"""So accurate that its estimates show the exact counts."""

SEX = fp.design(fp.Workload(DOMAIN, [fp.marginal("sex", std=2.0)]))

RECORDS = {
    "sex": ["f", "m", "m", "f", "x", None, "m"],
    "age": [3, 17, 18, 64, 20, 20, 65],
    "id": [1, 1, 2, 2, 2, 3, 4],
}
COUNTS = np.array([1, 1, 1, 1])
"""Of sex and age in RECORDS: an unknown sex, a null and an age beyond the bins are left out."""


def zcdp(space, plan_scale):
    """OpenDP's own Laplace noise on a vector of counts, in zCDP."""
    return dp.c.make_pureDP_to_zCDP(space >> dp.m.then_laplace(plan_scale))


@pytest.fixture(autouse=True)
def features():
    before = set(GLOBAL_FEATURES)
    dp.enable_features(*FEATURES)
    yield
    GLOBAL_FEATURES.clear()
    GLOBAL_FEATURES.update(before)
