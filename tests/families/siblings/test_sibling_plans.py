"""Hierarchies whose finest nodes are alike: their plans are those of the dense optimum."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import Product, analysis, build_dense_covariance, build_dense_strategy
from fitplug.families.base.strategy import cut_into_wholes
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.product.shape.products import ProductPairStructure
from fitplug.families.siblings import design as siblings_design
from fitplug.families.siblings.shape import SiblingStructure, UnfoldedPairs
from fitplug.neighbours import cell_pairs
from fitplug.plan import design_request
from fitplug.testing.plans import check_plan
from fitplug.workload import build_rows


def make_tree(sizes):
    paths = [(f"{s}", f"{s}.{c}") for s, k in enumerate(sizes) for c in range(k)]
    return fp.Hierarchy(["state", "county"], paths)


def make_workload(*groups):
    domain = fp.Domain(
        {
            "home": make_tree([2, 1, 3]),
            "work": make_tree([3, 2]),
            "age": fp.Integers(0, 2),
            "sex": ["1", "2"],
        }
    )
    return fp.Workload(domain, list(groups))


WORKLOADS = {
    "counties by counties": make_workload(
        fp.queries({"work": "county", "sex": "identity", "home": "county"}, std=6.0),
        fp.queries({"home": "state", "age": "prefix"}, variance=np.arange(4.0, 13.0).reshape(3, 3)),
        fp.queries({"work": "identity"}, std=2.0),
        fp.queries({"work": "total", "sex": "identity"}, std=3.0),
    ),
    "ages": make_workload(
        fp.queries({"home": "county", "age": "prefix"}, std=[[3.0]] * 3 + [[5.0]] * 3),
        fp.queries({"home": "state", "work": "county", "sex": "identity"}, std=4.0),
        fp.queries({"home": "state", "age": fp.ranges([(0, 1), (1, 2)])}, std=2.0),
        fp.total(std=1.0),
    ),
    "one level": make_workload(
        fp.queries({"home": "county", "age": "prefix", "sex": "identity"}, std=4.0),
        fp.queries({"age": "prefix", "work": "state"}, std=3.0),
        fp.total(std=2.0),
    ),
}


UNITS = {
    "added": fp.AddRemove(),
    "replaced": fp.ReplaceOne(),
    "replaced within sex": fp.ReplaceOne(within=("sex",)),
    "replaced within home": fp.ReplaceOne(within=("home",)),
    "replaced within both": fp.ReplaceOne(within=("work", "home")),
    "replaced within work, age": fp.ReplaceOne(within=("age", "work")),
    "replaced within sex, work": fp.ReplaceOne(within=("sex", "work")),
    # The unfolded workload has its symmetric attributes first.
    "replaced within age, sex": fp.ReplaceOne(within=("age", "sex")),
}


def shape_by_name(workload):
    return list(zip(workload.attributes, workload.shape, strict=True))


REPLACED = ["replaced", "replaced within home", "replaced within sex, work"]
CASES = [*itertools.product(WORKLOADS, UNITS, [""]), *itertools.product(WORKLOADS, REPLACED, ["+"])]
"""With "+", pairs have independent weights."""


def is_independent(plan):
    unfolded = plan.strategy.structure.unfolded
    return isinstance(unfolded, UnfoldedPairs) and unfolded.is_independent


@pytest.fixture(scope="module", params=CASES, ids=" ".join)
def plans(request):
    """The plan of siblings, and that of the dense optimum."""
    name, unit, weights = request.param
    workload = WORKLOADS[name]
    dense = fp.design(workload, unit=UNITS[unit])
    with pytest.MonkeyPatch.context() as patch:
        unfold = functools.partial(analysis.analyse_structure, siblings=True)
        patch.setattr(design_request, "analyse_structure", unfold)
        if weights:
            patch.setattr(UnfoldedPairs, "most_classes", 0)
        plan = fp.design(workload, unit=UNITS[unit])
    assert isinstance(plan.strategy.structure, SiblingStructure)
    assert is_independent(plan) == bool(weights)
    assert not isinstance(dense.strategy.structure, SiblingStructure)
    return plan, dense


def test_they_cost_what_the_dense_optimum_costs(plans):
    plan, dense = plans
    plan.verify()
    # The ends of independent pairs are often the same cell, where there are so few.
    most_gap, most_above = (1.0, 0.15) if is_independent(plan) else (2e-4, 2e-4)
    assert plan.gap < most_gap
    assert plan.rho == pytest.approx(dense.rho, rel=most_above)
    # The dense optimum's bound is another proof of the same number.
    assert plan.rho >= dense.rho_lower_bound
    assert dense.rho >= plan.rho_lower_bound


def test_no_cell_costs_more_than_is_claimed(plans):
    plan, _ = plans
    A = build_dense_strategy(plan.strategy)
    squares = (A * A).sum(axis=0)
    unit, domain = plan.unit, plan.domain
    if isinstance(unit, fp.ReplaceOne):
        at = np.indices(domain.shape).reshape(len(domain.shape), -1)
        kept = at[[domain.names.index(name) for name in unit.within]]
        are_neighbours = (kept[:, :, None] == kept[:, None, :]).all(axis=0)
        costs = squares[:, None] + squares - 2 * (A.T @ A)
        squares = np.where(are_neighbours, costs, 0).max(axis=1)
    assert squares.max() == plan.strategy.sensitivity_squared
    # In tiles of a few pairs it is the same.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell_pairs, "TILE", 10)
        assert plan.strategy.compute_record_cost()[0] == squares.max()
    profile = np.broadcast_to(plan.profile(), plan.domain.shape).ravel()
    np.testing.assert_allclose(profile, squares / plan.noise_std**2, rtol=1e-9)


def test_answers_are_those_of_the_matrix(plans):
    plan, _ = plans
    workload, rng = plan.workload, np.random.default_rng(0)
    x = rng.integers(0, 50, workload.shape)
    names = workload.attributes

    def read(wanted):
        rest = tuple(i for i, name in enumerate(names) if name not in wanted)
        left = [name for name in names if name in wanted]
        return x.sum(axis=rest).transpose([left.index(name) for name in wanted])

    answers = plan.strategy.answer_exactly(read)
    noisy = build_dense_strategy(plan.strategy) @ x.ravel()
    np.testing.assert_array_equal(answers[: len(noisy)], noisy)
    estimates = plan.strategy.make_estimates(answers)
    for group in workload.groups:
        exact = build_rows(workload, group, names) @ x.ravel()
        np.testing.assert_allclose(estimates[group.name].ravel(), exact, rtol=1e-9, atol=1e-6)

    # Slabs, parts and outputs of a few numbers give the same answers and estimates.
    parted = plan.strategy.cut(8)
    assert len(parted.slabs) > len(cut_into_wholes(plan.strategy).slabs)
    assert parted.noisy_parts > 1
    np.testing.assert_array_equal(parted.answer(read), answers)
    splits = [
        parted.split_answers(part, answers[parted.place(part)]) for part in range(len(parted.sizes))
    ]
    for number, output in enumerate(parted.outputs):
        pieces = {part: splits[part][number] for part in parted.list_parts(number)}
        given = parted.estimate(number, pieces)
        np.testing.assert_array_equal(given, estimates[output.group][output.index])


def test_variances_are_those_of_the_written_out_covariance(plans):
    plan, _ = plans
    strategy, workload = plan.strategy, plan.workload
    covariance, basis = build_dense_covariance(strategy, plan.noise_std)
    public = strategy.structure.public_attributes
    if public is not None:
        # Public totals are measured without noise.
        axes = [np.eye(n) if a in public else np.ones((1, n)) for a, n in shape_by_name(workload)]
        totals = functools.reduce(np.kron, axes)
        basis = np.vstack([basis, totals])
        covariance = np.pad(covariance, (0, len(totals)))
    rng = np.random.default_rng(1)
    claimed = plan.variances if not callable(plan.variances) else plan.variances()
    for group in workload.groups:
        W = build_rows(workload, group, workload.attributes)
        L = np.linalg.lstsq(basis.T.astype(float), W.T, rcond=None)[0].T
        np.testing.assert_allclose(L @ basis, W, atol=1e-8)
        variances = np.einsum("ij,jk,ik->i", L, covariance, L)
        np.testing.assert_allclose(claimed[group.name].ravel(), variances, rtol=1e-6, atol=1e-20)
        factors = [rng.normal(size=n) for n in group.shape]
        product = Product(2.0, tuple((np.arange(len(f)), f) for f in factors))
        array = np.full(group.shape, 2.0)
        for axis, f in enumerate(factors):
            array = array * f.reshape(-1, *(1,) * (len(group.shape) - axis - 1))
        expected = np.sqrt(array.ravel() @ L @ covariance @ L.T @ array.ravel())
        for combined in (
            strategy.combine([{group.name: array}]),
            strategy.combine_products([{group.name: [product]}]),
        ):
            assert combined.upper_stds()[0] * plan.noise_std == pytest.approx(
                expected, rel=1e-6, abs=1e-10
            )


def test_sums_of_a_measure_are_estimated():
    domain = fp.Domain({"home": make_tree([2, 3]), "pay": fp.Measure(0, 10)})
    asked = [fp.queries({"home": "county", "pay": "sum"}, std=20.0)]
    asked += [fp.queries({"home": "state"}, std=3.0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "MOST_CELLS", 9)
        patch.setattr(analysis, "_find_tree", lambda *_: None)
        plan = fp.design(fp.Workload(domain, asked), unit=fp.AddRemove(records=2))
    assert isinstance(plan.strategy.structure, SiblingStructure)
    plan.verify()
    check_plan(plan)


def test_cells_that_are_not_alike_stay_apart():
    targets = np.array([[3.0], [3.0], [3.0], [4.0], [5.0], [5.0]])
    workload = make_workload(
        fp.queries({"home": "county", "work": "state"}, std=targets),
        fp.queries({"work": "county", "age": "prefix"}, std=3.0),
    )
    structure = analysis.analyse_structure(workload, siblings=True)
    assert isinstance(structure, SiblingStructure)
    assert [one.name for one in structure.siblings] == ["work"]


def test_hierarchies_unfold_where_their_cells_would_take_longer():
    """Over all cells, diagnoses by prefixes of months took a minute; over parents, a second."""
    domain = fp.Domain({"diagnosis": make_tree([8] * 20), "month": fp.Integers(1, 12)})
    asked = [
        fp.queries({"diagnosis": "county", "month": "prefix"}, std=5.0),
        fp.queries({"diagnosis": "state", "month": "identity"}, std=3.0),
    ]
    workload = fp.Workload(domain, asked)
    assert isinstance(analysis.analyse_structure(workload), SiblingStructure)
    assert not isinstance(analysis.analyse_structure(workload, family=False), SiblingStructure)
    few = fp.Domain({"diagnosis": make_tree([8] * 3), "month": fp.Integers(1, 12)})
    assert not isinstance(analysis.analyse_structure(fp.Workload(few, asked)), SiblingStructure)


def test_large_hierarchies_that_the_unit_keeps_unfold():
    domain = fp.Domain({"school": make_tree([20] * 30), "grade": fp.Integers(1, 12)})
    unit = fp.ReplaceOne(within=("school",))

    def ask(std):
        asked = [fp.queries({"school": "county", "grade": "prefix"}, std=std), fp.total(std=3.0)]
        return fp.Workload(domain, [*asked, fp.queries({"school": "state"}, std=2.0)])

    assert isinstance(analysis.analyse_structure(ask(5.0), unit=unit), SiblingStructure)
    # What neither siblings nor trees can have is left to products.
    apart = ask(np.arange(1.0, 601.0)[:, None])
    assert isinstance(analysis.analyse_structure(apart, unit=unit), ProductPairStructure)
    with pytest.raises(fp.WorkloadError, match="'within' cannot name the large hierarchy"):
        analysis.analyse_structure(apart, unit=unit, tree=("school", "merged"))


def make_flows(sizes, symmetric=()):
    domain = fp.Domain(
        {"home": make_tree(sizes), "work": make_tree(sizes), **{a: ["a", "b"] for a in symmetric}}
    )
    asked = [
        fp.queries({"home": "county", "work": "county"}, std=20.0),
        fp.queries({"home": "state", "work": "state"}, std=8.0),
        fp.queries({"home": "county"}, std=6.0),
        *(fp.queries({name: "identity"}, std=3.0) for name in symmetric),
    ]
    return fp.Workload(domain, asked)


def test_tables_of_independent_pairs_fit_in_memory():
    """With nine attributes of two cells, each table of 400 cells would take half a gigabyte."""
    unit = fp.ReplaceOne()
    for symmetric, fits in (([], True), ([f"s{i}" for i in range(9)], False)):
        workload = make_flows([3] * 20, symmetric)
        structure = analysis.analyse_structure(workload, unit=unit, family=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(UnfoldedPairs, "most_classes", 0)
            assert (analysis.find_nearer_structure(structure, 0.03) is not None) == fits


def test_a_costlier_way_that_has_no_room_leaves_the_plan(monkeypatch):
    """Unequal states are tried again with independent pairs, here with too little memory."""
    monkeypatch.setattr(analysis, "MOST_SMALL_CELLS", 0)
    monkeypatch.setattr(UnfoldedPairs, "most_classes", 0)
    monkeypatch.setattr(PairStructure, "fits", False)
    monkeypatch.setattr(PairStructure, "fits_named", False)
    workload = make_flows([1] * 8 + [2, 4, 20, 40])
    nearer = fp.design(workload, unit=fp.ReplaceOne())
    assert is_independent(nearer)
    assert nearer.proof.ended == "apart"
    assert "for the optimum, use" in nearer.status
    monkeypatch.setattr(siblings_design, "design_pairs", fail)
    plan = fp.design(workload, unit=fp.ReplaceOne())
    assert isinstance(plan.strategy.structure, ProductPairStructure)
    assert plan.rho > nearer.rho


def fail(*_):
    raise MemoryError
