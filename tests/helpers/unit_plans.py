"""Plans of small domains for every unit of privacy, over the structures that they lead to."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

import fitplug as fp
from fitplug.families import analysis
from fitplug.families.base import tree_shape
from tests.helpers.plans import geography

A, B = fp.Integers(1, 3), ["x", "y", "z", "w"]
DOMAIN = fp.Domain({"M": A, "R": B})
TABLES = [fp.marginal("M", "R", std=3.0), fp.marginal("R", std=5.0), fp.total(std=4.0)]
PREFIXES = [fp.queries({"M": "prefix", "R": "identity"}, std=3.0), fp.total(std=2.0)]
PLACES = fp.Hierarchy(["county", "tract"], [("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1")])


def plan_for(unit, groups=PREFIXES, domain=DOMAIN, **options):
    return fp.design(fp.Workload(domain, groups), unit=unit, **options)


def plan_with_measure():
    domain = fp.Domain({"M": A, "pay": fp.Measure(0, 10)})
    groups = [fp.queries({"M": "prefix", "pay": "sum"}, std=20.0), fp.marginal("M", std=3.0)]
    return plan_for(fp.AddRemove(), groups, domain)


def plan_of_tree(unit):
    groups = [fp.queries({"place": "tract", "R": "identity"}, std=3.0), fp.total(std=2.0)]
    return plan_for(unit, groups, fp.Domain({"place": PLACES, "R": B[:2]}))


UNITS = {
    "one record": fp.AddRemove(),
    "three records": fp.AddRemove(records=3),
    "distinct": fp.AddRemove(records=2, distinct=True),
    "once per M": fp.AddRemove(records=3, once_per="M"),
    "once per M, two": fp.AddRemove(records=2, once_per="M"),
    "replaced": fp.ReplaceOne(),
    "replaced within R": fp.ReplaceOne(within=("R",)),
    "replaced within M": fp.ReplaceOne(within=("M",)),
}
BLOCKS = [
    fp.queries({"M": "prefix", "R": "identity"}, std=3.0),
    fp.marginal("S", "R", std=4.0),
    fp.queries({"M": "identity", "S": "identity"}, std=5.0),
    fp.total(std=2.0),
]
BLOCK_DOMAIN = fp.Domain({"M": A, "R": B, "S": ["1", "2", "3"]})
CASES = {
    **{f"prefixes, {name}": (plan_for, unit) for name, unit in UNITS.items()},
    **{f"tables, {name}": (plan_for, unit, TABLES) for name, unit in UNITS.items()},
    "blocks, replaced": (plan_for, fp.ReplaceOne(), BLOCKS, BLOCK_DOMAIN),
    "blocks, replaced within S": (plan_for, fp.ReplaceOne(within=("S",)), BLOCKS, BLOCK_DOMAIN),
    "total alone": (plan_for, fp.AddRemove(), [fp.total(std=1.0)]),
    "a measure": (plan_with_measure,),
    "a tree": (plan_of_tree, fp.AddRemove()),
    "a tree, replaced": (plan_of_tree, fp.ReplaceOne()),
    "product, with a tree": (lambda: fp.design(geography()),),
}
SMALL = ("a tree", "a tree, replaced", "product, with a tree")
"""Plans of structures that are for larger workloads."""


@contextmanager
def make_small_plan(name):
    """Make the plan of a case, with the limits of structures for large workloads lowered."""
    with pytest.MonkeyPatch.context() as patch:
        if name in SMALL:
            patch.setattr(analysis, "MOST_CELLS", 1)
            patch.setattr(analysis, "MOST_DENSE", 0)
            patch.setattr(tree_shape, "LEAST_TREE", 1)
        make, *arguments = CASES[name]
        yield make(*arguments)
