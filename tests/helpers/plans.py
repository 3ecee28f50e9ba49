"""Workloads and plans of every structure that several test modules share."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import analysis as symmetry
from fitplug.families.base import tree_shape
from fitplug.families.product.shape.products import ProductStructure
from fitplug.plan.plan_file import describe_plan


def dense(workload):
    """The same queries with their cells enumerated."""
    return fp.Workload.from_matrix(workload.matrix(), variance=workload.targets())


def replace_duals(plan, **duals):
    """The plan with other dual weights."""
    return replace(plan, proof=replace(plan.proof, duals=plan.proof.duals._replace(**duals)))


def describe(plan):
    """What a plan file holds of a plan: a header as JSON reads it, and arrays."""
    header, arrays = describe_plan(plan)
    return header | {"groups": header["groups"].decode()}, arrays


def all_marginals(sizes, ways, variance=1.0):
    names = [f"a{i}" for i in range(len(sizes))]
    domain = fp.Domain({name: fp.Integers(0, n - 1) for name, n in zip(names, sizes, strict=True)})
    groups = [
        fp.queries(dict.fromkeys(chosen, "identity"), variance=variance, name="+".join(chosen))
        for k in range(ways + 1)
        for chosen in itertools.combinations(names, k)
        if chosen
    ]
    return fp.Workload(domain, [*groups, fp.total(variance=variance)])


MIXED = {
    "marginals": lambda: all_marginals([3, 4, 2], 2),
    "three binary": lambda: all_marginals([2, 2, 2], 3),
    "pyramid": lambda: fp.Workload(
        fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 9), "race": fp.Integers(0, 2)}),
        [
            fp.queries({"sex": "identity", "age": "prefix"}, std=2.0),
            fp.queries({"age": "prefix"}, std=1.0),
            fp.marginal("race", "sex", std=3.0),
            fp.marginal("age", std=5.0),
        ],
    ),
    "targets that vary": lambda: fp.Workload(
        fp.Domain({"a": fp.Integers(0, 2), "b": fp.Integers(0, 3), "c": ["x", "y"]}),
        [
            fp.marginal("a", "b", variance=np.arange(1.0, 4)[:, None]),
            fp.marginal("c", "a", variance=2.0),
            fp.total(variance=0.5),
        ],
    ),
    "sizes 1 and 2": lambda: fp.Workload(
        fp.Domain({"one": ["x"], "two": ["x", "y"], "p": fp.Integers(0, 3), "solo": ["z"]}),
        [
            fp.marginal("one", "two", variance=1.0),
            fp.queries({"p": "all_ranges", "solo": "identity"}, variance=3.0),
            fp.queries({"one": "total", "two": "identity", "p": "total"}, variance=2.0, name="t"),
        ],
    ),
    "order of its own": lambda: fp.Workload(
        fp.Domain({"p": fp.Integers(0, 3), "a": ["x", "y", "z"], "q": fp.Integers(0, 1)}),
        [
            fp.queries(
                {"a": "identity", "q": "prefix", "p": "prefix"}, variance=np.ones((1, 2, 4))
            ),
            fp.queries({"q": "identity", "a": "identity"}, variance=2.0),
        ],
    ),
}


def ordered_workload(sizes, ways, variance=1.0, kind="prefix"):
    """All prefix tables of at most `ways` attributes, and the total."""
    names = [f"a{i}" for i in range(len(sizes))]
    domain = fp.Domain({name: fp.Integers(0, n - 1) for name, n in zip(names, sizes, strict=True)})
    groups = [
        fp.queries(dict.fromkeys(chosen, kind), variance=variance, name="+".join(chosen))
        for k in range(1, ways + 1)
        for chosen in itertools.combinations(names, k)
    ]
    return fp.Workload(domain, [*groups, fp.total(variance=variance)])


def product_workload():
    domain = fp.Domain(
        {
            "sex": ["1", "2"],
            "age": fp.Integers(0, 2),
            "one": fp.Integers(7, 7),
            "income": fp.Integers(0, 2),
            "race": fp.Integers(0, 1),
        }
    )
    return fp.Workload(
        domain,
        [
            fp.queries({"income": "prefix", "sex": "identity", "age": "identity"}, std=2.0),
            fp.queries({"age": "prefix"}, std=1.0),
            fp.marginal("race", "sex", std=3.0),
            fp.queries({"age": fp.ranges([(1, 2)]), "income": "all_ranges"}, variance=4.0),
            fp.queries({"one": np.array([[2.0]]), "income": "total", "race": "identity"}, std=1.5),
            fp.queries(
                {"race": "identity", "income": "identity"},
                variance=np.arange(1.0, 4)[None, :],
                name="varies",
            ),
        ],
    )


def draw_product_workload(rng, sizes=(1, 1, 1), most=5):
    """Draw a workload of ordered attributes of random sizes, from their least to below `most`."""
    sizes = {name: int(rng.integers(n, most)) for name, n in zip("abc", sizes, strict=False)}
    domain = fp.Domain({name: fp.Integers(0, n - 1) for name, n in sizes.items()})
    groups = []
    for i in range(int(rng.integers(1, 5))):
        chosen = [name for name in sizes if rng.random() < 0.7]
        factors = {}
        for name in rng.permutation(chosen).tolist():
            n = sizes[name]
            factors[name] = [
                "identity", "prefix", "all_ranges", "total",
                fp.ranges([(0, n - 1), (n - 1, n - 1)]),
                rng.integers(-2, 3, (2, n)) + 0.5,
            ][int(rng.integers(0, 6))]  # fmt: skip
        shape = fp.Workload(domain, [fp.queries(factors, variance=1.0)]).groups[0].shape
        target = rng.uniform(1, 4, shape) if rng.random() < 0.2 else float(rng.uniform(1, 4))
        groups.append(fp.queries(factors, variance=target, name=f"g{i}"))
    return fp.Workload(domain, groups)


def rows_of_numbers():
    rng = np.random.default_rng(4)
    domain = fp.Domain({"x": fp.Integers(0, 3), "y": fp.Integers(0, 2), "z": ["u", "v"]})
    return fp.Workload(
        domain,
        [
            fp.queries({"x": rng.normal(size=(3, 4)), "y": "prefix"}, variance=1.0),
            fp.queries({"y": np.array([[1.0, -1.0, 0.0]]), "z": "identity"}, variance=2.0),
            fp.queries({"x": np.zeros((2, 4)), "z": "identity"}, variance=1.0, name="nothing"),
        ],
    )


def geography():
    """Three levels and children of unequal number, with ages and sexes."""
    leaves = [
        (f"s{s}", f"s{s}c{c}", f"s{s}c{c}t{t}")
        for s, counties in enumerate([[1, 3], [2]])
        for c, tracts in enumerate(counties)
        for t in range(tracts)
    ]
    domain = fp.Domain(
        {
            "age": fp.Integers(0, 1),
            "place": fp.Hierarchy(["state", "county", "tract"], leaves),
            "sex": ["1", "2"],
        }
    )
    return fp.Workload(
        domain,
        [
            fp.queries({"place": "tract", "sex": "identity"}, variance=4.0, name="tracts"),
            fp.queries({"age": "prefix", "place": "county"}, variance=2.0),
            fp.queries({"place": "state", "sex": "identity", "age": "prefix"}, variance=2.0),
            fp.queries({"place": "state"}, variance=1.0, name="states"),
            fp.total(variance=0.5),
        ],
    )


def places_alone():
    workload = geography()
    groups = [
        fp.queries({"place": "tract"}, variance=1.0),
        fp.queries({"place": "state"}, variance=2.0, name="states"),
        fp.total(variance=3.0),
    ]
    return fp.Workload(workload.domain, groups)


def two_trees():
    """Homes by industries, with ages that are asked as groups and as prefixes."""
    places = [("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1")]
    jobs = [("f", "f1"), ("f", "f2"), ("g", "g1"), ("g", "g2")]
    domain = fp.Domain(
        {
            "place": fp.Hierarchy(["state", "tract"], places),
            "age": fp.Integers(0, 2),
            "job": fp.Hierarchy(["sector", "industry"], jobs),
        }
    )
    return fp.Workload(
        domain,
        [
            fp.queries({"place": "tract", "job": "industry"}, variance=4.0),
            fp.queries({"place": "state", "job": "sector"}, variance=1.0),
            fp.queries({"place": "state", "age": fp.ranges([(0, 1), (2, 2)])}, variance=1.0),
            fp.queries({"job": "sector", "age": "prefix"}, variance=1.0),
            fp.total(variance=0.5),
        ],
    )


def days_by_hours():
    """Attributes of which groups ask different factors, so that blocks have variants of them."""
    domain = fp.Domain({"day": fp.Integers(0, 3), "hour": fp.Integers(0, 2), "zone": ["a", "b"]})
    weeks = fp.ranges([(0, 1), (2, 3)])
    return fp.Workload(
        domain,
        [
            fp.queries({"day": "prefix", "zone": "identity"}, std=20.0),
            fp.queries({"hour": "all_ranges", "zone": "identity"}, std=20.0),
            fp.queries({"day": "identity", "hour": "identity"}, std=20.0),
            fp.queries({"day": weeks, "hour": "prefix"}, std=15.0),
            fp.total(std=5.0),
        ],
    )


PRODUCTS = {
    "prefixes": lambda: ordered_workload([4, 3, 2], 2),
    "ranges of sizes 1 and 2": lambda: ordered_workload([3, 1, 2], 2, kind="all_ranges"),
    "mixed": product_workload,
    "numbers": rows_of_numbers,
    "geography": geography,
    "places alone": places_alone,
    "places undivided": places_alone,
    "two trees": two_trees,
    "days by hours": days_by_hours,
}


def people_plan():
    domain = fp.Domain(
        {
            "sex": ["1", "2"],
            "age": fp.Integers(0, 5),
            "income": fp.Bins([0, 1.5, 7]),
            "race": fp.Categories(["a", "b"], other="Other"),
        }
    )
    return fp.design(
        fp.Workload(
            domain,
            [
                fp.queries({"sex": "identity", "age": "prefix"}, std=5.0, name="pyramid"),
                fp.queries({"age": fp.ranges([(2, 5)])}, moe=3.0, confidence=0.9),
                fp.marginal("race", "income", variance=np.arange(1.0, 7).reshape(3, 2)),
                fp.queries({"sex": [[1.0, -1.0]]}, std=2.0, name="difference"),
                fp.total(variance=4.0),
            ],
        )
    )


def symmetric_workload():
    """All attributes are symmetric: each block is a number."""
    domain = fp.Domain({"a": ["1", "2", "3"], "b": ["x", "y"], "only": ["z"]})
    groups = [
        fp.marginal("b", "a", std=2.0, name="both"),
        fp.marginal("a", "only", moe=3.0),
        fp.total(variance=0.5),
    ]
    return fp.Workload(domain, groups)


def mixed_workload():
    """One attribute is dense, the others symmetric."""
    domain = fp.Domain({"a": ["1", "2", "3"], "b": ["x", "y"], "c": fp.Integers(0, 2)})
    groups = [
        fp.queries({"b": "identity", "a": "prefix"}, std=2.0, name="first"),
        fp.marginal("c", "b", std=3.0, name="second"),
        fp.queries({"a": fp.ranges([("1", "2")])}, moe=3.0, confidence=0.9, name="third"),
    ]
    return fp.Workload(domain, groups)


def symmetric_plan():
    domain = fp.Domain({"a": ["x", "y", "z"], "b": [str(i) for i in range(5)], "c": ["u", "v"]})
    groups = [fp.marginal("b", "a", std=3.0, name="ba"), fp.marginal("c", "b", std=2.0, name="cb")]
    return fp.design(fp.Workload(domain, [*groups, fp.total(std=1.0)]))


def two_trees_plan():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symmetry, "MOST_CELLS", 4)
        patch.setattr(tree_shape, "LEAST_TREE", 1)
        plan = fp.design(two_trees(), tolerance=0.05)
    assert len(plan.strategy.structure.batched.scales.divided) == 3
    return plan


def product_plan():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symmetry, "MOST_CELLS", 4)
        plan = fp.design(product_workload(), tolerance=0.05)
    assert isinstance(plan.strategy.structure, ProductStructure)
    return plan
