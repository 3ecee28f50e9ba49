"""Every unit of privacy on every family, from one table: a pair that is missing fails.

The cost of each plan is compared with brute force over all differences between neighbours, and
both its cost and its lower bound with the optimum that an interior-point solver finds.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import analysis
from fitplug.families.base import tree_shape
from fitplug.families.blocks.shape import pairs
from tests.helpers.brute_force import cost_by_brute_force, list_neighbours
from tests.helpers.least_cost import find_least_cost

MONTHS, NUMBERS = ["1", "2", "3"], fp.Integers(1, 3)
VALUES, REGIONS = fp.Integers(0, 4), ["x", "y", "z"]
TARGETS = np.random.default_rng(1).lognormal(size=(3, 5))
PLACES = fp.Hierarchy(
    ["county", "tract"], [("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1"), ("c", "c2")]
)
JOBS = fp.Hierarchy(
    ["sector", "industry"], [("f", "f1"), ("f", "f2"), ("f", "f3"), ("g", "g1"), ("g", "g2")]
)
UNITS = {
    "one record": fp.AddRemove(),
    "three records": fp.AddRemove(records=3),
    "distinct": fp.AddRemove(records=2, distinct=True),
    "once per M": fp.AddRemove(records=3, once_per="M"),
    "once per M, two": fp.AddRemove(records=2, once_per="M"),
    "replaced": fp.ReplaceOne(),
    "replaced within M": fp.ReplaceOne(within=("M",)),
}
WORKLOADS = {
    "numbers": (
        {"M": MONTHS, "R": REGIONS},
        [fp.marginal("M", "R", std=3.0), fp.marginal("R", std=5.0), fp.total(std=4.0)],
    ),
    "matrices": (
        {"M": NUMBERS, "R": REGIONS, "S": ["1", "2"]},
        [
            fp.queries({"M": "prefix", "R": "identity"}, std=3.0),
            fp.marginal("S", "R", std=4.0),
            fp.total(std=2.0),
        ],
    ),
    "product": (
        {"M": NUMBERS, "X": VALUES},
        [
            fp.queries({"M": "prefix", "X": "prefix"}, std=3.0),
            fp.queries({"X": "prefix"}, std=2.0),
        ],
    ),
    "some pairs": (
        {"M": NUMBERS, "R": REGIONS, "X": VALUES},
        [
            fp.queries({"M": "prefix", "X": "prefix"}, variance=TARGETS),
            fp.queries({"X": fp.ranges([(0, 2), (1, 3)]), "R": "identity"}, std=2.0),
            fp.queries({"M": "identity"}, std=3.0),
        ],
    ),
    "nested": (
        {"M": NUMBERS, "X": VALUES},
        [
            fp.queries({"M": "prefix", "X": fp.ranges([(0, 1), (2, 4)])}, std=2.0),
            fp.queries({"X": "prefix"}, std=3.0),
            fp.total(std=1.0),
        ],
    ),
    "three trees": (
        {"P": PLACES, "W": JOBS, "V": JOBS},
        [
            fp.queries({"P": "tract", "W": "sector"}, std=3.0),
            fp.queries({"W": "industry", "V": "sector"}, std=2.0),
            fp.queries({"P": "county", "V": "industry"}, std=2.0),
            fp.total(std=1.0),
        ],
    ),
    "two trees": (
        {"M": MONTHS, "P": PLACES, "W": JOBS},
        [
            fp.queries({"P": "tract", "W": "industry"}, std=3.0),
            fp.queries({"P": "county", "W": "sector", "M": "identity"}, std=2.0),
            fp.queries({"P": "tract"}, std=2.0),
            fp.total(std=1.0),
        ],
    ),
    "crossed levels": (
        {"P": PLACES, "W": JOBS},
        [
            fp.queries({"P": "tract", "W": "sector"}, std=6.0),
            fp.queries({"P": "county", "W": "industry"}, std=2.0),
            fp.total(std=2.0),
        ],
    ),
    "tree": (
        {"M": MONTHS, "P": PLACES},
        [
            fp.queries({"P": "tract", "M": "identity"}, std=3.0),
            fp.queries({"P": "county"}, std=2.0),
            fp.total(std=2.0),
        ],
    ),
    "tree and dense cells": (
        {"M": NUMBERS, "P": PLACES},
        [
            fp.queries({"P": "tract", "M": "prefix"}, std=3.0),
            fp.queries({"P": "county"}, std=2.0),
            fp.total(std=2.0),
        ],
    ),
    "chain": (
        {"M": MONTHS, "X": VALUES},
        [
            fp.queries({"X": "prefix", "M": "identity"}, std=3.0),
            fp.queries({"X": "prefix"}, std=3.0),
        ],
    ),
}
CROSSED = (analysis, "MOST_CELLS"), (tree_shape, "LEAST_TREE"), (analysis, "MOST_TREE_WORK")
LIMITS = {
    "product": ((analysis, "MOST_CELLS"), (pairs, "MOST_PAIR_CELLS")),
    "some pairs": ((pairs, "MOST_PAIRS"),),
    "two trees": CROSSED,
    "three trees": CROSSED,
    "crossed levels": CROSSED[:2],
    "tree": ((analysis, "MOST_CELLS"), (pairs, "MOST_PAIR_CELLS"), (tree_shape, "LEAST_TREE")),
    "chain": ((analysis, "LEAST_CHAIN"), (pairs, "MOST_PAIR_CELLS")),
}
"""Limits that are 1 here, so that small workloads have the structures of large ones."""

FAMILIES = {
    "nested": "product",
    "two trees": "product",
    "three trees": "product",
    "crossed levels": "tree",
    "numbers": "blocks",
    "matrices": "blocks",
    "some pairs": "blocks",
    "tree and dense cells": "tree",
}
ELSEWHERE = {
    **{("product", unit): "blocks" for unit in UNITS if "once" in unit or unit == "distinct"},
    **{("chain", unit): "blocks" for unit in UNITS if "once" in unit or unit == "distinct"},
    **{("chain", unit): "product" for unit in UNITS if "replaced" in unit},
    **{("nested", unit): "blocks" for unit in UNITS if "once" in unit or unit == "distinct"},
}
"""Pairs that do not exist: the family that is taken for small workloads instead of them."""

REFUSED = {
    (workload, "distinct"): "Use AddRemove with once_per"
    for workload in ("tree", "tree and dense cells")
}
CASES = [
    pair
    for workload in WORKLOADS
    for unit in UNITS
    if (pair := (workload, unit)) not in REFUSED
    # The neighbours of other units are too many for the solver.
    and (workload not in ("two trees", "three trees", "crossed levels") or "record" in unit)
]
SOLVED = [(workload, unit) for workload, unit in CASES if "trees" not in workload]
"""Crossed trees have too many cells for the solver: test_several_rests.py has smaller ones."""


@functools.cache
def design(workload, unit):
    """Design the plan of a pair, in the family of large workloads."""
    attributes, groups = WORKLOADS[workload]
    with pytest.MonkeyPatch.context() as patch:
        for module, name in LIMITS.get(workload, LIMITS.get(FAMILIES.get(workload), ())):
            patch.setattr(module, name, 1)
        return fp.design(fp.Workload(fp.Domain(attributes), groups), unit=UNITS[unit])


def find_least(workload, unit):
    """The least Delta of a pair, by an interior-point solver."""
    attributes, groups = WORKLOADS[workload]
    whole = fp.Workload(fp.Domain(attributes), groups)
    differences = []
    for difference in list_neighbours(whole, UNITS[unit]):
        v = np.zeros(whole.shape)
        for cell, times in difference:
            v[cell] += times
        differences.append(v.ravel())
    return np.sqrt(find_least_cost(whole.matrix(), whole.targets(), np.array(differences)))


@pytest.mark.parametrize(("workload", "unit"), CASES)
def test_each_pair_exists(workload, unit):
    expected = ELSEWHERE.get((workload, unit), FAMILIES.get(workload, workload))
    assert type(design(workload, unit).structure).__module__.split(".")[2] == expected


@pytest.mark.parametrize(("workload", "unit"), REFUSED)
def test_what_is_refused_says_what_to_do(workload, unit):
    with pytest.raises(fp.WorkloadError, match=REFUSED[workload, unit]):
        design(workload, unit)


@pytest.mark.parametrize(("workload", "unit"), CASES)
def test_no_difference_costs_more_than_is_stated(workload, unit):
    plan = design(workload, unit)
    plan.verify()
    most = cost_by_brute_force(plan)
    stated = plan.strategy.sensitivity_squared
    assert most <= stated
    assert stated <= most * (1 + plan.overstatement) ** 2 * (1 + 1e-12)
    if not plan.overstatement:
        assert stated == most


@pytest.mark.slow
@pytest.mark.parametrize(("workload", "unit"), SOLVED)
def test_the_least_is_between_the_bound_and_the_cost(workload, unit):
    plan, least = design(workload, unit), find_least(workload, unit)
    assert plan.lower_bound <= least * (1 + 1e-5)
    assert least <= plan.privacy_cost * (1 + 1e-5)
