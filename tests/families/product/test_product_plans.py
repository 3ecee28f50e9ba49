"""Plans of the product family: several ordered attributes whose product is too large.

Small ones are made by lowering the limit from which on attributes are split.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
from fitplug import errors
from fitplug.domain import get_shape
from fitplug.families import analysis as symmetry
from fitplug.families.base import tree_shape
from fitplug.families.base.attribute_matrices import DenseMatrix
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.product.shape import grades
from fitplug.families.product.shape.products import ProductStructure
from fitplug.families.product.strategy.trees import TreeMatrix
from fitplug.families.tree.shape.blocks import TreeStructure
from fitplug.testing import check_plan
from tests.helpers.exact import assert_exact, full_strategy, least_variance, rationals
from tests.helpers.many_releases import release_often
from tests.helpers.plans import (
    PRODUCTS,
    dense,
    draw_product_workload,
    ordered_workload,
    product_workload,
    replace_duals,
)


@pytest.fixture
def apart(monkeypatch):
    monkeypatch.setattr(symmetry, "MOST_CELLS", 1)
    monkeypatch.setattr(symmetry, "MOST_DENSE", 0)


@pytest.fixture(scope="module", params=PRODUCTS)
def plan(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symmetry, "MOST_CELLS", 1)
        patch.setattr(symmetry, "MOST_DENSE", 0)
        patch.setattr(tree_shape, "LEAST_TREE", 1)
        if request.param == "places undivided":
            patch.setattr(grades, "MOST_ENTRIES", 0)
        made = fp.design(PRODUCTS[request.param](), tolerance=0.01)
    assert isinstance(made.strategy.structure, ProductStructure)
    return made


class TestAgainstExactRationals:
    @pytest.mark.slow
    def test_answers_rho_and_estimates(self, plan):
        assert_exact(plan)

    @pytest.mark.slow
    def test_variances_and_targets(self, plan):
        A = full_strategy(plan)
        noise = Fraction(plan.noise_std) ** 2
        claimed = np.concatenate([v.ravel() for v in plan.variances.values()])
        for row, bound, target in zip(
            rationals(plan.workload.matrix()), claimed, plan.workload.targets(), strict=True
        ):
            unit = least_variance(A, row)
            assert unit is not None, "not in the row space: estimates would be biased"
            exact = noise * unit
            assert exact <= Fraction(float(bound)) <= Fraction(float(target))
            assert Fraction(float(bound)) <= exact * (1 + Fraction(1, 10**9))

    def test_all_claims_hold_for_all_neighbours(self, plan):
        check_plan(plan)

    def test_no_answer_leaves_64_bits_with_as_many_records_as_it_holds(self, plan):
        largest = max(abs(v) for row in full_strategy(plan) for v in row)
        assert plan.strategy.max_records * largest <= 2**62
        assert plan.strategy.max_records >= 10**9 // 2

    def test_the_bound_is_below_the_optimum_and_the_plan_above(self, plan):
        optimum = fp.design(dense(plan.workload), tolerance=1e-6)
        assert plan.lower_bound <= optimum.privacy_cost
        assert (
            optimum.lower_bound
            <= plan.privacy_cost
            <= plan.lower_bound * (1 + plan.gap + 1e-12) ** 0.5
        )
        assert plan.gap < 0.5


@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1))
@pytest.mark.long
def test_any_plan_of_the_product_family_is_exact(seed):
    check_any_workload(seed)


@pytest.mark.long
@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1))
def test_many_plans_of_the_product_family_are_exact(seed):
    check_any_workload(seed)


def check_any_workload(seed):
    workload = draw_product_workload(np.random.default_rng(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symmetry, "MOST_CELLS", 0)
        patch.setattr(symmetry, "MOST_DENSE", 0)
        plan = fp.design(workload)
        optimum = fp.design(dense(workload), tolerance=1e-5)
    assert plan.lower_bound <= optimum.privacy_cost
    assert plan.privacy_cost >= optimum.lower_bound
    plan.verify()
    assert_exact(plan)


class TestReleases:
    @pytest.mark.slow
    def test_the_noise_has_the_variances_claimed(self, apart):
        """500 releases; at 0.8 times the noise the mean is off by 0.36."""
        plan = fp.design(product_workload())
        tables = fp.Tables(
            plan.domain, {t: np.zeros(get_shape(plan.domain, t), np.int64) for t in plan.tables}
        )
        squares = {name: [] for name in plan.workload.names}
        for released in release_often(plan, tables, 500):
            estimates = released.estimates
            for name in squares:
                squares[name].append((estimates[name] ** 2 / plan.variances[name]).mean())
        for means in squares.values():
            spread = np.std(means) / math.sqrt(len(means))
            assert abs(np.mean(means) - 1) < 5 * spread < 0.2 * 0.36 * 5

    def test_combinations_have_the_std_that_the_covariance_gives(self, plan):
        covariance, B = plan.sigma()
        release = fp.Release(plan=plan, answers=np.zeros(plan.strategy.size, np.int64), rho=1.0)
        rng = np.random.default_rng(3)
        given = {g.name: rng.normal(size=g.shape) for g in plan.workload.groups}
        row = np.concatenate([c.ravel() for c in given.values()]) @ plan.workload.matrix()
        size = np.linalg.norm(B.astype(float), axis=1)
        L = np.linalg.lstsq((B.T / size).astype(float), row, rcond=None)[0] / size
        L += np.linalg.lstsq((B.T / size).astype(float), row - L @ B, rcond=None)[0] / size
        np.testing.assert_allclose(L @ B, row, atol=1e-7)
        assert release.estimate(given).std == pytest.approx(math.sqrt(L @ covariance @ L), rel=1e-6)
        for group in plan.workload.groups:
            first = np.zeros(group.shape)
            first.flat[-1] = 1
            variance = plan.variances[group.name].flat[-1]
            std = release.estimate({group.name: first}).std
            assert std**2 == pytest.approx(variance, rel=1e-6)


class TestPlanFiles:
    def test_round_trip(self, plan, tmp_path, monkeypatch):
        monkeypatch.setattr(tree_shape, "LEAST_TREE", 1)
        if not len(plan.strategy.structure.batched.scales.divided):
            monkeypatch.setattr(grades, "MOST_ENTRIES", 0)
        plan.save(tmp_path / "plan")
        read = fp.Plan.load(tmp_path / "plan")
        read.verify()
        assert read.digest == plan.digest
        assert read.summary() == plan.summary()
        assert read.profile().max() == pytest.approx(plan.privacy_cost**2)
        assert not read.unused_budget().any()
        (tier,) = read.tiers
        assert tier.lower_bound <= plan.lower_bound**2 <= tier.level

    def refused(self, plan, says, **changed):
        with pytest.raises(fp.PlanError, match=says):
            dataclasses.replace(plan, **changed).verify()

    def refused_duals(self, plan, says, **changed):
        with pytest.raises(fp.PlanError, match=says):
            replace_duals(plan, **changed).verify()

    def with_split(self, plan, change):
        splits = list(plan.strategy.attribute_matrices)
        at = next(
            (
                i
                for i, s in enumerate(splits)
                if (isinstance(s, DenseMatrix) and s.matrix.any()) or type(s) is TreeMatrix
            ),
            None,
        )
        if at is None:
            pytest.skip("no matrix is free to change")
        own = splits[at]
        splits[at] = (
            DenseMatrix(change(own.matrix), own.row_grades)
            if isinstance(own, DenseMatrix)
            else dataclasses.replace(own, top=DenseMatrix(change(own.top.matrix)))
        )
        return dataclasses.replace(plan.strategy, attribute_matrices=tuple(splits))

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda A: A * 2, "privacy cost"),
            (lambda A: np.vstack([A[1:], A[-1:]]) if len(A) > 1 else A * 0, "."),
            (lambda A: A.astype(float), errors.BAD_INTEGERS),
            (lambda A: A[:, 1:], errors.BAD_INTEGERS),
            (lambda A: np.vstack([A, A[:1]]), errors.BAD_INTEGERS),
            (lambda A: A + 2**53, errors.BAD_INTEGERS),
        ],
    )
    def test_another_matrix_is_refused(self, plan, change, says):
        self.refused(plan, says, strategy=self.with_split(plan, change))

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda m: m * 2, "privacy cost"),
            (lambda m: m * 0, errors.BAD_INTEGERS),
            (lambda m: m + 2**53, errors.BAD_INTEGERS),
            (lambda m: m * 1.0, errors.BAD_INTEGERS),
            (lambda m: m[..., None], errors.BAD_INTEGERS),
        ],
    )
    def test_other_multiples_are_refused(self, plan, change, says):
        (own,) = plan.strategy.block_sets
        changed = dataclasses.replace(own, multiples=tuple(change(m) for m in own.multiples))
        if not own.multiples:
            changed = dataclasses.replace(own, multiples=(np.ones(1, dtype=np.int64),))
            says = errors.BAD_INTEGERS
        strategy = dataclasses.replace(plan.strategy, block_sets=(changed,))
        self.refused(plan, says, strategy=strategy)
        if own.multiples:
            none = dataclasses.replace(own, multiples=())
            strategy = dataclasses.replace(plan.strategy, block_sets=(none,))
            self.refused(plan, errors.BAD_INTEGERS, strategy=strategy)

    def test_a_matrix_that_lost_a_contrast_is_refused_however_its_cost_is_claimed(self, plan):

        def singular(A):
            changed = A.copy()
            changed[0] = 3  # a multiple of the total
            return changed

        strategy = self.with_split(plan, singular)
        claims = strategy.compute_cost()._asdict()
        self.refused(
            plan, "ill-conditioned|variances", strategy=dataclasses.replace(strategy, **claims)
        )

    def test_claims_are_checked(self, plan):
        def strategy(**changed):
            return dataclasses.replace(plan.strategy, **changed)

        unit = plan.strategy.unit_variances
        cost = plan.strategy.sensitivity_squared
        self.refused(plan, "variances", strategy=strategy(unit_variances=unit * 0.999))
        self.refused(plan, "privacy cost", strategy=strategy(sensitivity_squared=cost - 1))
        self.refused(plan, "lower bound", lower_bound=plan.lower_bound * 1.001)
        self.refused(plan, "target", noise_std=plan.noise_std * 1.001)
        p, q, frame = plan.proof.duals
        self.refused_duals(
            plan, errors.BAD_PROOF, frame=frame._replace(columns=0, rests=0, tilt=0.0)
        )
        self.refused_duals(plan, errors.BAD_PROOF, frame=frame._replace(columns=10**6))
        self.refused_duals(plan, errors.BAD_PROOF, q=-q)
        self.refused_duals(plan, errors.BAD_PROOF, p=p[1:])


class TestWhichWay:
    def test_the_product_while_it_fits(self):
        small = fp.design(ordered_workload([5, 4], 2))
        assert small.strategy.structure.dense == ("a0", "a1")
        assert small.gap <= 2e-4

    def test_one_attribute_is_never_split(self, apart):
        assert fp.design(ordered_workload([6], 1)).strategy.structure.dense == ("a0",)

    def test_other_objectives_take_the_product(self, apart):
        workload = ordered_workload([3, 3], 2)
        budgets = fp.design(workload, cell_budgets=np.ones(()))
        hybrid = fp.design(workload, total_error_weight=0.1)
        paper = fp.design(workload, solver="sm2", tolerance=0.05)
        for plan in (budgets, hybrid, paper):
            assert plan.strategy.structure.dense == ("a0", "a1")

    def test_a_budget_scales_the_targets(self, apart):
        workload = ordered_workload([4, 3], 2)
        plain, scaled = fp.design(workload), fp.design(workload, rho=0.01)
        assert scaled.rho <= 0.01
        assert scaled.scale * 0.01 == pytest.approx(plain.rho, rel=1e-6)
        assert scaled.gap == pytest.approx(plain.gap, rel=1e-3)
        scaled.verify()

    @pytest.mark.slow
    def test_the_status_says_why_the_gap_is_what_it_is(self, apart):
        plan = fp.design(ordered_workload([5, 4, 3], 2))
        assert plan.gap > 2e-4
        assert "ask for fewer of a0, a1, a2 together, or use coarser bins of a0, a1" in plan.status
        assert "product family" in str(plan.strategy.structure)

    @pytest.mark.slow
    def test_progress_may_stop_it(self, apart):
        calls = []
        plan = fp.design(
            ordered_workload([5, 4, 3], 2), progress=lambda *now: calls.append(now) is None or True
        )
        assert len(calls) == 1
        assert plan.proof.ended == "stopped"
        plan.verify()

    @pytest.mark.parametrize(
        ("sizes", "says"),
        [
            ([6000, 6000], "36,012,001 queries on a0, a1"),
            ([3000, 2, 2], "design for a0, a1, a2 would take"),
        ],
    )
    def test_too_much_is_refused_before_anything_is_made(self, sizes, says):
        with pytest.raises(fp.WorkloadError, match=f"{says}.* coarser bins"):
            fp.design(ordered_workload(sizes, 2))


class TestKnownValues:
    """alpha of prefixes of ten, and what the certified gap comes to."""

    @pytest.mark.parametrize(
        ("d", "ways", "alpha", "gap"),
        [
            (4, 3, 32.7, 0.024),
            pytest.param(6, 2, 40.45, 0.044, marks=pytest.mark.slow),
        ],
    )
    @pytest.mark.slow
    def test_small(self, d, ways, alpha, gap):
        plan = fp.design(ordered_workload([10] * d, ways))
        assert plan.privacy_cost**2 < alpha
        assert plan.gap < gap

    def test_three_attributes_through_the_family(self, apart):
        assert fp.design(ordered_workload([10] * 3, 2)).privacy_cost ** 2 <= 11.91

    @pytest.mark.long
    def test_three_attributes_through_the_product(self):
        plan = fp.design(ordered_workload([10] * 3, 2), tolerance=1e-5)
        assert plan.privacy_cost**2 == pytest.approx(11.7069, abs=5e-4)

    @pytest.mark.slow
    def test_all_of_three(self):
        plan = fp.design(ordered_workload([10] * 3, 3))
        assert plan.privacy_cost**2 == pytest.approx(15.09244, rel=2e-4)

    @pytest.mark.long
    def test_ten_attributes(self):
        plan = fp.design(ordered_workload([10] * 10, 3))
        assert plan.privacy_cost**2 < 429
        assert plan.gap < 0.062
        plan.verify()


class TestQueriesOfNothing:
    DOMAIN = fp.Domain({"a": fp.Integers(0, 3), "b": fp.Integers(0, 2)})

    def test_all_of_them_are_refused(self, apart):
        asked = {"a": "prefix", "b": np.zeros((1, 3))}
        with pytest.raises(fp.WorkloadError, match="every query is zero"):
            fp.design(fp.Workload(self.DOMAIN, [fp.queries(asked, variance=1.0)]))

    def test_products_of_coefficients_out_of_range_are_refused(self, apart):
        asked = {"a": np.full((1, 4), 1e20), "b": np.array([[1e20, 0.0, 1.0]])}
        with pytest.raises(fp.WorkloadError, match="between 1e-30 and 1e30"):
            fp.design(fp.Workload(self.DOMAIN, [fp.queries(asked, variance=1.0)]))

    def test_some_of_them_cost_nothing(self, apart, monkeypatch):
        monkeypatch.setattr(tree_shape, "LEAST_TREE", 1)
        places = fp.Hierarchy(["b", "c"], [("x", "1"), ("x", "2"), ("y", "3"), ("y", "4")])
        domain = fp.Domain({"a": fp.Integers(0, 3), "place": places})
        groups = [
            fp.queries({"place": "b", "a": "identity"}, variance=50.0, name="asked"),
            fp.queries({"place": "c", "a": np.zeros((1, 4))}, variance=50.0, name="nothing"),
        ]
        plan = fp.design(fp.Workload(domain, groups))
        plan.verify()
        assert not plan.variances["nothing"].any()
        assert_exact(plan)


def test_contrasts_that_nothing_asks_for_survive_few_bits(apart: None) -> None:
    """Three attributes leave each of them few bits, and variants share one vector of integers."""
    attributes = {"a": fp.Integers(0, 3), "b": ["1", "2"], "c": ["1", "2"], "d": fp.Integers(0, 2)}
    groups = [
        fp.queries({"a": "prefix", "b": "identity", "d": "prefix"}, variance=35.08),
        fp.queries({"c": "identity"}, variance=8.229),
        fp.queries(
            {"a": [[2.0, 0, -2, -1]], "c": [[1.0, 2], [0, 2]], "d": "identity"}, variance=25.24
        ),
        fp.total(variance=30.5),
    ]
    workload = fp.Workload(fp.Domain(attributes), groups)
    plan = fp.design(workload, unit=fp.AddRemove(records=2), tolerance=0.05)
    plan.verify()
    assert isinstance(plan.strategy.structure, ProductStructure)
    assert plan.gap < 0.4


class TestOptimumInPlaceOfAProduct:
    """Targets that vary from cell to cell are far from the product family."""

    VARIANCES = np.random.default_rng(0).uniform(1.0, 10.0, (6, 5))
    ASKED = (
        fp.queries({"X": "prefix", "Y": "identity"}, variance=VARIANCES, name="varying"),
        fp.queries({"X": "prefix"}, variance=1.0),
        fp.queries({"Z": "prefix"}, variance=1.0),
    )
    DOMAIN = fp.Domain({"X": fp.Integers(0, 5), "Y": fp.Integers(0, 4), "Z": fp.Integers(0, 2)})

    @pytest.mark.parametrize("most_wide", [symmetry.MOST_WIDE_WORK, 0])
    def test_few_dimensions_over_many_cells_have_their_optimum(self, monkeypatch, most_wide):
        workload = fp.Workload(self.DOMAIN, self.ASKED)
        expected = fp.design(workload)
        monkeypatch.setattr(symmetry, "MANY_CELLS", 1)
        monkeypatch.setattr(symmetry, "MOST_WIDE_WORK", most_wide)
        plan = fp.design(workload, unit=fp.AddRemove(records=3))
        assert isinstance(plan.strategy.structure, MatrixStructure)
        assert plan.privacy_cost == pytest.approx(3 * expected.privacy_cost, rel=2e-4)
        plan.verify()

    @pytest.mark.slow
    def test_levels_of_two_hierarchies_have_one_as_a_tree(self, monkeypatch):
        places = [
            (f"{name}{i}", f"{name}{i}.{j}")
            for name, sizes in (("a", (2, 9, 3)), ("b", (8, 2)))
            for i, size in enumerate(sizes)
            for j in range(size)
        ]
        domain = fp.Domain(
            {
                "H": fp.Hierarchy(["H1", "H2"], [one for one in places if one[0][0] == "a"]),
                "W": fp.Hierarchy(["W1", "W2"], [one for one in places if one[0][0] == "b"]),
            }
        )
        asked = [
            fp.queries({"H": "H2", "W": "W1"}, std=12.0),
            fp.queries({"H": "H1", "W": "W2"}, std=3.0),
            fp.total(std=5.0),
        ]
        workload = fp.Workload(domain, asked)
        optimum = fp.design(workload)
        monkeypatch.setattr(symmetry, "MOST_CELLS", 1)
        plan = fp.design(workload)
        assert isinstance(plan.strategy.structure, TreeStructure)
        plan.verify()
        assert optimum.rho_lower_bound <= plan.rho <= optimum.rho * 1.01
        assert optimum.rho * 0.999 <= plan.rho_lower_bound <= optimum.rho
        monkeypatch.setattr(symmetry, "MOST_TREE_WORK", 0)
        product = fp.design(workload)
        assert isinstance(product.strategy.structure, ProductStructure)
        assert product.gap > 0.03

    def test_the_product_is_taken_where_the_optimum_takes_too_long(self, monkeypatch):
        workload = fp.Workload(self.DOMAIN, self.ASKED)
        for name in ("MANY_CELLS", "MOST_WIDE_WORK", "MOST_AGAIN", "MOST_TREE_WORK"):
            monkeypatch.setattr(symmetry, name, 0)
        assert isinstance(fp.design(workload).strategy.structure, ProductStructure)


def test_levels_of_one_node_each_are_totals(apart: None) -> None:
    paths = [("w", "c", f"s{i}", f"s{i}.{j}") for i in range(10) for j in range(7 + i)]
    place = fp.Hierarchy(["world", "country", "state", "county"], paths)
    domain = fp.Domain({"p": place, "a": fp.Integers(0, 29), "b": fp.Integers(0, 19)})
    groups = [
        fp.queries({"p": "county", "a": "prefix"}, std=10.0),
        fp.queries({"p": "state", "b": "prefix"}, std=10.0),
        fp.queries({"p": "world", "a": "prefix", "b": "identity"}, std=10.0),
    ]
    plan = fp.design(fp.Workload(domain, groups), tolerance=0.05)
    assert any(grades.tree for grades in plan.strategy.structure.batched.grades)
