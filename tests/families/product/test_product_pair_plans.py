"""Plans of the product family where a record is replaced: their claims, and forged ones."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
from fitplug.families import Objective, analyse_structure, analysis, certify_bound
from fitplug.families.base import tree_shape
from fitplug.families.blocks.shape import pairs as pair_blocks
from fitplug.families.product.certificate.products import ProductPairCertifier, pack_duals
from fitplug.families.product.shape import batches, products
from fitplug.families.product.shape.grades import find_tree
from fitplug.families.product.shape.products import ProductPairStructure
from fitplug.files import write_with_digest
from fitplug.testing.plans import find_least_cost, measure_cost
from tests.helpers.dense_pairs import list_differences, list_pairs
from tests.helpers.exact import full_strategy, least_variance, rationals
from tests.helpers.plans import describe, draw_product_workload, replace_duals

ACCURACY = 1e-6
"""Relative, of the interior-point solver."""


def design_pairs(workload, unit, **keywords):
    """Design as if there were too many cells to consider all pairs of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_blocks, "MOST_PAIR_CELLS", 0)
        for name in ("build_chain_pairs", "_find_tree", "_unfold"):
            patch.setattr(analysis, name, lambda *given: None)
        plan = fp.design(workload, unit=unit, **keywords)
    assert isinstance(plan.strategy.structure, ProductPairStructure)
    return plan


def draw_pairs(rng, most):
    """Draw a workload of at most so many cells, and a unit that keeps some of its attributes."""
    while True:
        workload = draw_product_workload(rng, (2,) * int(rng.integers(2, 4)))
        within = tuple(name for name in workload.attributes if rng.random() < 0.3)
        unit = fp.ReplaceOne(within=within)
        try:
            structure = analyse_structure(workload, family=True, unit=unit)
        except fp.WorkloadError:  # public totals answer it
            continue
        if isinstance(structure, ProductPairStructure) and workload.cell_count <= most:
            return workload, unit


@pytest.mark.slow
def test_every_scale_costs_a_pair_that_the_search_tries():
    """A scale that no pair cost anything was measured without noise: 19 times the least cost."""
    domain = fp.Domain({"a": ["x", "y", "z"], "b": fp.Integers(0, 4)})
    groups = [
        fp.marginal("a", variance=0.7),
        fp.total(variance=1.22),
        fp.queries({"b": "prefix", "a": "identity"}, variance=0.69),
        fp.queries({"b": fp.ranges([(0, 3), (4, 4)])}, variance=2.19),
    ]
    plan = design_pairs(fp.Workload(domain, groups), fp.ReplaceOne())
    assert plan.gap < 0.02


@pytest.mark.slow
def test_prefixes_that_share_a_kept_attribute_are_near_the_optimum():
    """Covariances follow each step of the weights; in every third step the plan was 0.3% above."""
    domain = fp.Domain({"a": fp.Integers(0, 9), "b": fp.Integers(0, 19), "c": list("wxyz")})
    groups = [
        fp.queries({"a": "prefix", "c": "identity"}, std=11.88),
        fp.queries({"b": "prefix", "c": "identity"}, std=2.65),
        fp.queries({"a": "identity", "b": "prefix"}, std=3.77),
    ]
    workload, unit = fp.Workload(domain, groups), fp.ReplaceOne(within=("c",))
    optimum, plan = fp.design(workload, unit=unit), design_pairs(workload, unit)
    assert optimum.rho_lower_bound <= plan.rho <= optimum.rho * 1.0023
    assert optimum.rho * 0.99 <= plan.rho_lower_bound <= optimum.rho


def check_claims(workload, unit, rng):
    plan = design_pairs(workload, unit)
    plan.verify()
    check_cost(plan)
    check_variances(plan)
    W, V = workload.matrix(), list_differences(workload, unit)
    least = np.sqrt(find_least_cost(W, workload.targets(), V.T))
    assert plan.lower_bound <= least * (1 + ACCURACY)
    assert plan.privacy_cost >= least * (1 - ACCURACY)
    for _ in range(10):
        duals = pack_duals(draw_duals(plan, rng))
        assert certify_bound(plan.strategy.structure, Objective(), 1.0, duals) <= least * (
            1 + ACCURACY
        )


def check_cost(plan):
    """The cost is that of the costliest pair of cells, but for what floats cost."""
    truth, stated = measure_cost(plan), plan.strategy.sensitivity_squared
    assert truth <= stated <= truth * (1 + Fraction(1, 10**12))
    assert plan.rho >= plan.rho_exact == Fraction(stated) / (2 * Fraction(plan.noise_std) ** 2)


def check_variances(plan):
    """Variances are those of the best estimates from the integers and the public totals."""
    pairs = list_pairs(plan.workload, plan.unit)
    # Cells without the first ones of those between which a record may move.
    basis = ~np.isin(pairs[:, 0], pairs[:, 1])
    D = list_differences(plan.workload, plan.unit)[:, basis].astype(object)
    A = (np.array(full_strategy(plan), dtype=object) @ D).tolist()
    rows = (np.array(rationals(plan.workload.matrix()), dtype=object) @ D).tolist()
    noise = Fraction(plan.noise_std) ** 2
    claimed = np.concatenate([v.ravel() for v in plan.variances.values()])
    for row, bound, target in zip(rows, claimed, plan.workload.targets(), strict=True):
        unit = least_variance(A, row)
        assert unit is not None, "not in the row space: estimates would be biased"
        assert noise * unit <= Fraction(float(bound)) <= Fraction(float(target))
        # Public totals answer some queries, for which floats leave next to nothing.
        rounding = Fraction(1, 10**9) * noise * unit + Fraction(1, 10**20) * Fraction(target)
        assert Fraction(float(bound)) <= noise * unit + rounding


def draw_duals(plan, rng):
    """Change a plan's dual weights at random: any of them prove a bound."""
    found = ProductPairCertifier().unpack(plan.strategy.structure, plan.proof.duals)
    power = rng.choice([0.3, 3.0])
    p, y = (
        tuple(own * rng.exponential(size=len(own)) ** power for own in all_of)
        for all_of in (found.p, found.y)
    )
    sides = tuple(own + rng.normal(size=len(own)) * 10.0**-power for own in found.pairs.sides)
    shares = rng.dirichlet(np.full(len(found.pairs.shares), 0.5))
    pairs = replace(found.pairs, shares=shares, sides=sides)
    return type(found)(p, y, found.w, found.t, found.rests, float(rng.uniform(0.01, 1)), pairs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_plans_of_random_workloads_claim_what_is_true(seed):
    rng = np.random.default_rng(seed)
    check_claims(*draw_pairs(rng, 9), rng)


@pytest.mark.long
@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_plans_of_many_random_workloads_claim_what_is_true(seed):
    rng = np.random.default_rng(seed)
    check_claims(*draw_pairs(rng, 18), rng)


def draw_trees(rng, most, second):
    """Draw a workload of a hierarchy and a second attribute, of few cells, and a unit."""
    while True:
        p = draw_hierarchy(rng)
        w = fp.Integers(0, 2) if second == "ages" else draw_hierarchy(rng)
        domain = fp.Domain({"p": p, "w": w, "s": ["x", "y"]})
        ages = ["prefix", "identity", fp.ranges([(0, 0), (1, 2)])]
        levels = {
            "p": [None, *p.levels],
            "w": [None, *(getattr(w, "levels", ()) or ages)],
            "s": [None, "identity"],
        }
        groups = []
        for _ in range(int(rng.integers(2, 5))):
            asked = {name: ways[int(rng.integers(len(ways)))] for name, ways in levels.items()}
            asked = {name: level for name, level in asked.items() if level is not None}
            groups.append(fp.queries(asked, variance=float(np.exp(rng.normal()))))
        workload = fp.Workload(domain, groups)
        unit = fp.ReplaceOne(within=tuple(n for n in workload.attributes if rng.random() < 0.2))
        try:
            structure = analyse_structure(workload, family=True, unit=unit)
        except fp.WorkloadError:  # public totals answer it
            continue
        if workload.cell_count <= most and any(getattr(structure, "trees", ())):
            return workload, unit


def draw_hierarchy(rng):
    paths = [()]
    for _ in range(int(rng.integers(2, 4))):
        paths = [(*path, str(i)) for path in paths for i in range(int(rng.integers(1, 4)))]
    levels = [f"level {depth}" for depth in range(len(paths[0]))]
    labels = [["/".join(path[: depth + 1]) for depth in range(len(path))] for path in paths]
    return fp.Hierarchy(levels, [tuple(path) for path in labels])


@pytest.mark.slow
@pytest.mark.parametrize("has_grades", [True, False], ids=["by node", "one scale"])
@pytest.mark.parametrize("top", [1, 2, 600])
@pytest.mark.parametrize(
    ("seed", "second"),
    [
        *((i, "hierarchy") for i in range(3)),
        (9, "ages"),
        *(pytest.param(i, "hierarchy", marks=pytest.mark.long) for i in range(3, 6)),
        pytest.param(15, "ages", marks=pytest.mark.long),
    ],
)
def test_hierarchies_claim_what_is_true(seed, second, top, has_grades, monkeypatch):
    """A hierarchy is divided below its top level, which has at most so many nodes."""
    monkeypatch.setattr(tree_shape, "LEAST_TREE", 1)
    monkeypatch.setattr(batches, "find_tree", partial(find_tree, most=top))
    if not has_grades:
        monkeypatch.setattr(products, "MOST_PAIRS", 0)
    rng = np.random.default_rng(seed)
    check_claims(*draw_trees(rng, 36, second), rng)


def raise_bound(factor):
    return lambda h, _: h.update(lower_bound=(float.fromhex(h["lower_bound"]) * factor).hex())


def lower_cost(header, arrays):
    header.update(sensitivity_squared=str(int(header["sensitivity_squared"]) * 999 // 1000))
    arrays.update(column_squares=arrays["column_squares"] * 0.999)


def scale_noise(factor):
    return lambda h, _: h.update(noise_std=(float.fromhex(h["noise_std"]) * factor).hex())


def change(name, edit):
    """Change one array of a plan file."""
    return lambda _, arrays: arrays.update({name: edit(arrays[name].copy())})


def put(name, at, value):
    """Put another value into an array, or the values' negatives."""

    def edit(array):
        array[at] = -array[at] if value is None else value
        return array

    return change(name, edit)


FIRST_SIDE = 4 + 3 + 1
"""Where the sides of the ages are among the dual weights: after those of all cells."""

FORGED = {
    "a bound above what is proven": raise_bound(1 + 1e-8),
    "a bound above the truth": raise_bound(1.1),
    "a bound above the cost": raise_bound(2.0),
    "a cost below that of a pair": lower_cost,
    "a cost below that of a pair by 1": lambda h, _: h.update(
        sensitivity_squared=str(int(h["sensitivity_squared"]) - 1)
    ),
    "more noise": scale_noise(1.001),
    "less noise": scale_noise(0.999),
    "fewer neighbours": lambda h, _: h.update(unit={"replace_one": ["size", "sex"]}),
    "more neighbours": lambda h, _: h.update(unit={"replace_one": []}),
    "lower variances": change("unit_variances", lambda v: v * (1 - 1e-9)),
    "higher targets": change("targets", lambda c: c * 0.999),
    "shares of other moves": change("p", lambda p: np.append(p[:-3], p[:-4:-1])),
    "a share below zero": put("p", -1, None),
    "no shares": put("p", slice(-3, None), 0.0),
    "a value on the other side": put("p", FIRST_SIDE, None),
    "all values on one side": put("p", slice(FIRST_SIDE, FIRST_SIDE + 4), 1.0),
    "a side that is no number": put("p", FIRST_SIDE, np.nan),
    "weights of other cells": change("p", lambda p: np.append(np.roll(p[:4], 1), p[4:])),
    "weights of other queries": change("q", lambda q: q[::-1].copy()),
    "no weights of a group": put("q", 0, 0.0),
    "a larger multiple": change("family0.multiples5", lambda m: m * 2),
    "variants exchanged": change("split1.matrices", lambda A: A[::-1].copy()),
    "a longer row of a variant": put("split0.matrices", (0, 0), (1, 0, 0, -1)),
    "another reference": change("split1.reference", lambda u: u[::-1] + 1),
    "other grades": change("split0.grades", lambda k: k * 0),
    "squares beyond 64 bits": change("split1.matrices", lambda A: A * 2**20),
}


@pytest.fixture(scope="module")
def graded():
    """What the file of a plan with grades and variants holds."""
    domain = fp.Domain({"age": fp.Integers(0, 3), "size": fp.Integers(0, 2), "sex": ["1", "2"]})
    halves = fp.ranges([(0, 1), (2, 3)])
    groups = [
        fp.queries({"age": halves, "size": "prefix"}, std=2.0),
        fp.queries({"age": "prefix"}, std=3.0),
        fp.queries({"size": "identity", "sex": "identity"}, std=2.0),
    ]
    unit = fp.ReplaceOne(within=("size",))
    plan = design_pairs(fp.Workload(domain, groups), unit, tolerance=0.05)
    grades = plan.strategy.structure.batched.grades
    assert [own.count for own in grades] == [3, 3, 1]
    assert [len(own.starts) - 1 for own in grades] == [2, 3, 1]
    return describe(plan)


def load(graded, folder, forge):
    header, arrays = json.loads(json.dumps(graded[0])), dict(graded[1])
    forge(header, arrays)
    write_with_digest(folder / "plan.npz", header, arrays)
    return fp.Plan.load(folder / "plan.npz")


def test_the_honest_file_is_not_refused(graded, tmp_path):
    plan = load(graded, tmp_path, lambda _header, _arrays: None)
    plan.verify()
    check_cost(plan)


def test_shares_whose_sum_overflows_prove_what_their_ratios_do(graded, tmp_path):
    plan = load(graded, tmp_path, lambda _header, _arrays: None)
    p = plan.proof.duals.p.copy()
    p[-3:] *= 1.7e308 / p[-3:].max()
    replace_duals(plan, p=p).verify()


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_forged_claims_are_refused(graded, tmp_path, forge):
    with pytest.raises(fp.PlanError):
        load(graded, tmp_path, forge).verify()
