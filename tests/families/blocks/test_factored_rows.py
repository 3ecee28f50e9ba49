"""Rows that are Kronecker products, against their matrix written out."""

from __future__ import annotations

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import analyse_structure
from fitplug.families.blocks.design import factored_rows, optimum
from fitplug.families.blocks.design.factored_rows import FactoredRows
from fitplug.families.blocks.shape.matrices import MatrixStructure

DOMAIN = fp.Domain(
    {"x": fp.Integers(0, 3), "s": ["1", "2", "3"], "y": fp.Integers(0, 4), "z": fp.Integers(0, 1)}
)
VARIANCES = np.random.default_rng(0).uniform(1.0, 10.0, (5, 4))


@pytest.fixture
def workload():
    groups = [
        # The factors are in another order than the domain's attributes.
        fp.queries({"y": "prefix", "x": "identity"}, variance=VARIANCES, name="varying"),
        fp.queries({"z": "prefix", "s": "identity", "x": "prefix"}, variance=2.0),
        fp.queries({"y": fp.ranges([(0, 1), (1, 3)])}, variance=1.0),
        fp.total(variance=1.0),
    ]
    return fp.Workload(DOMAIN, groups)


def test_moments_and_profiles_are_those_of_the_matrix(workload):
    structure, rng = analyse_structure(workload), np.random.default_rng(1)
    assert isinstance(structure, MatrixStructure)
    assert len(structure.blocks) == 2
    for block in range(2):
        N, rows = structure.build_block_matrix(block), FactoredRows.of_block(structure, block)
        p, Y = rng.random(structure.cells), rng.normal(size=(len(N), len(N)))
        np.testing.assert_allclose(rows.build_moment(p), N * p @ N.T, rtol=1e-13)
        expected = ((Y + Y.T) @ N * N).sum(axis=0)
        np.testing.assert_allclose(rows.compute_profile(Y + Y.T), expected, atol=1e-12)


@pytest.mark.parametrize("most_groups", [factored_rows._MOST_GROUPS, 1])
def test_the_optimum_is_the_same_with_and_without_factors(monkeypatch, workload, most_groups):
    expected = fp.design(workload)
    monkeypatch.setattr(optimum, "_MANY_CELLS", 1)
    monkeypatch.setattr(factored_rows, "_MOST_GROUPS", most_groups)
    plan = fp.design(workload)
    plan.verify()
    assert plan.privacy_cost == pytest.approx(expected.privacy_cost, rel=2e-4)
    assert plan.privacy_cost <= plan.lower_bound * (1 + 2e-4)
