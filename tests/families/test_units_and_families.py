"""Every unit of privacy on every family, by `fitplug.testing`: a pair that is missing fails."""

from __future__ import annotations

import functools
from contextlib import contextmanager

import pytest

import fitplug as fp
from fitplug.families import analysis
from fitplug.families.base import tree_shape
from fitplug.families.blocks.shape import pairs
from fitplug.families.chain.shape import bins
from fitplug.testing import check_family, list_family_cases
from fitplug.testing.families import UNITS, make_workloads
from fitplug.testing.plans import check_bound

UNFOLDED = (analysis, "MOST_AGAIN"), (analysis, "MOST_SIBLING_WORK"), (pairs, "MOST_PAIR_CELLS")
CROSSED = (
    (analysis, "MOST_CELLS"),
    (tree_shape, "LEAST_TREE"),
    *UNFOLDED,
    (analysis, "MOST_TREE_WORK"),
)
LIMITS = {
    "product": ((analysis, "MOST_CELLS"), (pairs, "MOST_PAIR_CELLS")),
    "some pairs": ((pairs, "MOST_PAIRS"),),
    "crossed trees": CROSSED[:-1],
    "two trees": CROSSED,
    "three trees": CROSSED,
    "siblings": ((analysis, "MOST_CELLS", 8), (analysis, "MOST_SMALL_CELLS")),
    "tree": ((analysis, "MOST_CELLS"), (pairs, "MOST_PAIR_CELLS"), (tree_shape, "LEAST_TREE")),
    "chain": ((analysis, "LEAST_CHAIN"), (analysis, "MOST_CELLS"), (pairs, "MOST_PAIR_CELLS")),
    "bins": ((analysis, "LEAST_CHAIN"), (analysis, "MOST_AGAIN"), (bins, "MOST_CLASSES", 5)),
}
"""Limits that are 1 here, or the number after them, so that small workloads have the structures of
large ones."""

FAMILIES = {
    "nested": "product",
    "bins": "chain",
    "periods": "product",
    "two trees": "product",
    "three trees": "product",
    "crossed trees": "tree",
    "unfolded trees": "siblings",
    "unfolded trees and cells": "siblings",
    "numbers": "blocks",
    "matrices": "blocks",
    "sums": "blocks",
    "some pairs": "blocks",
    "tree and dense cells": "tree",
    "cells apart": "tree",
}
ELSEWHERE = {
    **{("product", unit): "blocks" for unit in UNITS if "once" in unit or unit == "distinct"},
    **{("crossed trees", unit): "product" for unit in UNITS if "replaced" in unit},
    **{(name, "distinct"): "blocks" for name in ("chain", "periods")},
    **{("bins", unit): "blocks" for unit in UNITS if "row" not in unit},
    **{("nested", unit): "blocks" for unit in UNITS if "once" in unit or unit == "distinct"},
}
"""Pairs that do not exist: the family that is taken for small workloads instead of them."""

REFUSED = {
    ("tree", "distinct"): "too large for the setting 'distinct'",
    ("cells apart", "distinct"): "too large for the setting 'distinct'",
    ("tree and dense cells", "distinct"): "too large for the setting 'distinct'",
    ("sums", "distinct"): "Use once_per= instead",
}
TOLERANCES = {"crossed trees": 0.01}  # the product family is near enough otherwise
CASES = [case for case in list_family_cases() if case not in REFUSED]


@contextmanager
def lower_limits(workload):
    with pytest.MonkeyPatch.context() as patch:
        for module, name, *value in LIMITS.get(workload, LIMITS.get(FAMILIES.get(workload), ())):
            patch.setattr(module, name, *(value or [1]))
        yield


@functools.cache
def design(case):
    """Design the plan of a case, in the family of large workloads."""
    workload, unit = case
    with lower_limits(workload):
        tolerance = TOLERANCES.get(workload, 0.05)
        return fp.design(make_workloads()[workload], unit=UNITS[unit], tolerance=tolerance)


@pytest.mark.parametrize("case", REFUSED, ids=" and ".join)
def test_what_is_refused_says_what_to_do(case):
    with pytest.raises(fp.WorkloadError, match=REFUSED[case]):
        design(case)


@pytest.mark.parametrize("case", CASES, ids=" and ".join)
def test_each_pair_exists_and_conforms(case):
    plan = design(case)
    expected = ELSEWHERE.get(case, FAMILIES.get(case[0], case[0]))
    assert type(plan.strategy.structure).__module__.split(".")[2] == expected
    with lower_limits(case[0]):
        check_family(lambda workload, *, unit: plan, case, solves=False)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if c[1] != "three rows"], ids=" and ".join)
def test_the_optimum_lies_between_bound_and_cost(case):
    """The optimum of three rows is three times the optimum of one, as their costs are above."""
    plan = design(case)
    with lower_limits(case[0]):
        check_bound(plan)
