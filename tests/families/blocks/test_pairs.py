"""Neighbours that replace a record: the differences are pairs of cells of one region."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.families import (
    Duals,
    Objective,
    analyse_structure,
    build_dense_strategy,
    certify_bound,
)
from fitplug.families.base.basis import Basis
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.family import NO_FRAME, build_strategy
from fitplug.families.base.workload_subsets import find_workload_subsets
from fitplug.families.blocks.design import pairs as pairs_design
from fitplug.families.blocks.design.pairs import PairProblem
from fitplug.families.blocks.shape import pairs as shape
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.designs import find_design
from fitplug.families.product.shape.products import ProductPairStructure
from fitplug.plan import price_groups
from fitplug.sensitivity import AnswerPath, check_sensitivity
from fitplug.solve import Options
from fitplug.testing.plans import find_least_cost, measure_cost
from fitplug.workload import classify_cells
from tests.helpers.dense_pairs import (
    draw_workload,
    list_differences,
    list_ends,
    list_pairs,
    number_classes,
    spread_weights,
    tell_all_cells_apart,
    write_out_strategy,
)

REPLACE = fp.ReplaceOne()


def prefixes(d: int) -> fp.Workload:
    return fp.Workload.from_matrix(np.tri(d), variance=1.0)


def analyse(workload: fp.Workload, unit: fp.ReplaceOne = REPLACE) -> PairStructure:
    structure = analyse_structure(workload, unit=unit)
    assert isinstance(structure, PairStructure)
    return structure


class TestTheOptimum:
    @pytest.mark.parametrize(
        ("d", "alpha"), [(2, 1.0), (4, 1.666667), (8, 2.515058), (12, 3.095298)]
    )
    def test_prefixes_cost_what_an_independent_program_found(self, d, alpha):
        plan = fp.design(prefixes(d), unit=REPLACE, tolerance=1e-5)
        assert plan.privacy_cost**2 == pytest.approx(alpha, rel=2e-5)
        assert plan.lower_bound**2 == pytest.approx(alpha, rel=2e-5)
        assert plan.gap <= 1e-5
        assert plan.variances["queries"][-1] == 0
        plan.verify()

    @pytest.mark.parametrize("d", [2, 5, 9])
    def test_single_cells_cost_what_symmetry_says(self, d):
        workload = fp.Workload.from_matrix(np.eye(d), variance=1.0)
        plan = fp.design(workload, unit=REPLACE, tolerance=1e-5)
        assert plan.privacy_cost**2 == pytest.approx(2 * (1 - 1 / d), rel=2e-5)
        plan.verify()

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("symmetric", [0, 1])
    def test_an_interior_point_solver_finds_no_less(self, symmetric, seed):
        rng = np.random.default_rng(seed)
        workload, unit, _ = draw_workload(rng, symmetric)
        while workload.cell_count > 24:
            workload, unit, _ = draw_workload(rng, symmetric)
        plan = fp.design(workload, unit=unit)
        W, V = workload.matrix(), list_differences(workload, unit)
        least = find_least_cost(W, workload.targets(), V.T)
        assert plan.privacy_cost**2 == pytest.approx(least, rel=1e-3)
        assert plan.lower_bound**2 <= least * (1 + 1e-5)
        assert plan.gap <= plan.tolerance

    @pytest.mark.parametrize("seed", range(6))
    def test_it_is_that_of_all_cells_told_apart(self, seed):
        """One block over all cells is the same problem, and the same weights prove its bound."""
        workload, unit, structure = draw_workload(np.random.default_rng(300 + seed), 2)
        plan = fp.design(workload, unit=unit)
        plan.verify()
        assert plan.gap <= plan.tolerance
        dense = tell_all_cells_apart(workload, unit)
        design = find_design(dense, Objective(), Options("dual", 1e-3, 300, False, None), 1e-4)
        bound = certify_bound(dense, Objective(), 1.0, design.duals)
        strategy = design.strategy
        noise = np.sqrt(1 / (strategy.unit_variances / dense.targets).max())
        assert bound <= plan.privacy_cost
        assert plan.lower_bound <= strategy.sensitivity / noise <= bound * 1.002
        duals = Duals(
            *spread_weights(structure, dense, plan.proof.duals.p, plan.proof.duals.q), NO_FRAME
        )
        spread = certify_bound(dense, Objective(), 1.0, duals)
        assert spread == pytest.approx(plan.lower_bound, rel=1e-6)

    @pytest.mark.parametrize(
        ("unit", "rho"), [(REPLACE, 0.0494), (fp.ReplaceOne(within=("area",)), 0.0472)]
    )
    def test_many_cells_of_symmetric_attributes_beside_ages(self, unit, rho):
        """All cells together are 179,712; the product family costs 0.071."""
        sizes = {"sex": 2, "race": 9, "origin": 2, "area": 52}
        symmetric = {name: [str(i) for i in range(n)] for name, n in sizes.items()}
        bands = fp.ranges([(0, 17), (18, 39), (40, 64), (65, 95)])
        workload = fp.Workload(
            fp.Domain({"age": fp.Integers(0, 95), **symmetric}),
            [
                fp.queries({"sex": "identity", "age": "prefix"}, std=12.0),
                fp.marginal("race", "origin", "area", std=10.0),
                fp.queries({"area": "identity", "age": bands}, std=10.0),
                fp.total(std=5.0),
            ],
        )
        plan = fp.design(workload, unit=unit, tolerance=2e-3)
        plan.verify()
        assert plan.gap <= 0.004
        assert plan.rho < rho
        found = check_sensitivity(AnswerPath.in_memory(plan))
        assert 0.99 < found.largest_squared / plan.strategy.sensitivity_squared <= 1

    @pytest.mark.parametrize("within", [(), ("one",), ("s",), ("one", "a")])
    def test_an_attribute_of_one_cell_changes_nothing(self, within):
        groups = [
            fp.queries({"a": "prefix", "s": "identity", "one": "identity"}, std=1.0),
            fp.queries({"s": "identity", "one": "identity"}, std=2.0),
        ]
        domain = fp.Domain({"one": ["1"], "a": fp.Integers(0, 3), "s": ["1", "2", "3"]})
        plan = fp.design(fp.Workload(domain, groups), unit=fp.ReplaceOne(within=within))
        plan.verify()
        without = [fp.queries({"a": "prefix", "s": "identity"}, std=1.0), fp.marginal("s", std=2.0)]
        kept = tuple(name for name in within if name != "one")
        other = fp.design(fp.Workload(domain, without), unit=fp.ReplaceOne(within=kept))
        assert plan.rho == pytest.approx(other.rho, rel=1e-3)
        found = check_sensitivity(AnswerPath.in_memory(plan))
        assert found.is_complete
        assert found.largest_squared == plan.strategy.sensitivity_squared


class TestTheNodes:
    def test_the_fewest_are_no_more_than_there_are(self):
        """They are counted from the kinds of factors; the nodes are those of different columns."""
        rng = np.random.default_rng(8)
        paths = [("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1"), ("c", "c2"), ("c", "c3")]
        exact = 0
        for _ in range(150):
            other = "other" if rng.random() < 0.5 else None
            domain = fp.Domain(
                {
                    "tree": fp.Hierarchy(["state", "county"], paths, other=other),
                    "age": fp.Integers(0, 4, other=other),
                    "size": fp.Integers(0, 2),
                }
            )
            bands = fp.ranges([(0, 1), (3, 4)])
            kinds = {
                "tree": ["state", "county", "prefix", "total"],
                "age": ["prefix", "identity", "all_ranges", bands, "total"],
                "size": ["prefix", rng.integers(0, 2, (2, 3)) + np.eye(2, 3)],
            }
            groups = []
            for k in range(int(rng.integers(1, 4))):
                names = [name for name in kinds if rng.random() < 0.6] or ["size"]
                asked = {name: kinds[name][rng.integers(len(kinds[name]))] for name in names}
                groups.append(fp.queries(asked, variance=1.0, name=f"{k}"))
            workload = fp.Workload(domain, groups)
            unit = fp.ReplaceOne(within=[(), ("age",), ("size",)][rng.integers(3)])
            subsets = find_workload_subsets(workload, ())
            structure = PairStructure(workload, unit, (), subsets)
            nodes = int(structure.pairs.region_sizes.max())
            assert 1 <= structure.least_nodes <= nodes
            exact += structure.least_nodes == nodes > 1
        assert exact > 20


class TestTheCost:
    @pytest.mark.parametrize("symmetric", [0, 1, 2, 3])
    def test_it_is_that_of_the_costliest_of_all_pairs(self, symmetric):
        """Over hundreds of random integer strategies, compared with all pairs in exact integers."""
        rng = np.random.default_rng(5 + symmetric)
        for _ in range(60 if symmetric < 2 else 12):
            workload, unit, structure = draw_workload(rng, symmetric)
            first, second = list_pairs(workload, unit).T
            for bits in (2, 20, 45):
                block_sets = []
                for block in structure.noisy_blocks:
                    classes = classify_cells(structure.build_block_matrix(block))
                    n = int(classes.max()) + 1
                    M = np.triu(rng.integers(-(2**bits), 2**bits, (n, n)))
                    M[np.diag_indices(n)] = np.abs(M.diagonal()) + 1
                    basis = Basis("cells", classes, np.ones(n))
                    block_sets.append(BlockSet(np.array([block]), basis, M[None]))
                contrasts = make_contrasts(structure)
                found = build_strategy(structure, contrasts, tuple(block_sets)).compute_cost()
                A = write_out_strategy(structure, tuple(block_sets))
                gram = A.T @ A
                own = gram.diagonal()
                squares = own[first] + own[second] - 2 * gram[first, second]
                assert found.sensitivity_squared == max(squares)
                worst = np.zeros(len(own), dtype=object)
                np.maximum.at(worst, first, squares)
                np.maximum.at(worst, second, squares)
                names = workload.attributes
                axes = tuple(i for i, name in enumerate(names) if name in structure.symmetric)
                worst = worst.reshape(get_shape(workload.domain, names)).max(axis=axes).ravel()
                assert all(a >= w for a, w in zip(found.column_squares, worst, strict=True))
                np.testing.assert_allclose(found.column_squares, worst.astype(float), 1e-14)

    @pytest.mark.parametrize("seed", range(20))
    def test_neighbours_answered_by_the_release_differ_by_no_more(self, seed):
        """And the costliest differ by as much."""
        workload, unit, _ = draw_workload(np.random.default_rng(400 + seed), 2)
        plan = fp.design(workload, unit=unit, tolerance=0.02)
        found = check_sensitivity(AnswerPath.in_memory(plan))
        assert found.is_complete
        assert found.largest_squared == plan.strategy.sensitivity_squared

    def test_a_plan_claims_the_cost_of_its_worst_pair(self):
        domain = fp.Domain({"state": ["1", "2", "3"], "age": fp.Integers(0, 4)})
        workload = fp.Workload(
            domain,
            [
                fp.queries({"state": "identity", "age": "prefix"}, std=2.0, name="by state"),
                fp.queries({"age": "identity"}, std=1.0, name="ages"),
            ],
        )
        everywhere, inside = (
            fp.design(workload, unit=unit) for unit in (REPLACE, fp.ReplaceOne(within=("state",)))
        )
        assert inside.privacy_cost < everywhere.privacy_cost
        for plan in (everywhere, inside):
            A = build_dense_strategy(plan.strategy)
            squares = ((A @ list_differences(workload, plan.unit)) ** 2).sum(axis=0)
            assert plan.strategy.sensitivity_squared == squares.max()
            profile = plan.profile()
            assert profile.size == 5
            assert profile.max() == pytest.approx(plan.privacy_cost**2, rel=1e-12)
            plan.verify()
        # The totals of states are public, and so is their sum.
        assert (inside.variances["by state"][:, -1] == 0).all()
        assert (everywhere.variances["by state"][:, -1] > 0).all()


class TestTheEstimates:
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("symmetric", [0, 2])
    def test_they_are_those_of_least_squares_with_the_totals_known(self, symmetric, seed):
        rng = np.random.default_rng(100 + seed)
        workload, unit, structure = draw_workload(rng, symmetric)
        plan = fp.design(workload, unit=unit)
        A, W = build_dense_strategy(plan.strategy), workload.matrix()
        V = list_differences(workload, unit)
        # On the differences the strategy is one to one as far as the queries go.
        X = np.linalg.lstsq((A @ V).T, (W @ V).T, rcond=1e-10)[0].T
        covariance = X @ X.T
        found = workload.split(covariance.diagonal())
        unit_variances = plan.strategy.upper_unit_variances()
        for name, values in structure.group_values(unit_variances).items():
            scale = covariance.max()
            np.testing.assert_allclose(values / scale, found[name] / scale, rtol=1e-5, atol=1e-7)
        x = rng.integers(0, 40, workload.cell_count)
        names = workload.attributes
        counts = x.reshape(get_shape(workload.domain, names))
        tables = {}
        for own in plan.tables:
            out = tuple(i for i, name in enumerate(names) if name not in own)
            tables[own] = counts.sum(axis=out)
        exact = AnswerPath.in_memory(plan).answer_in_chunks(fp.Tables(plan.domain, tables))
        ((_, answers),) = exact
        truth = workload.split(W @ x)
        noise = np.rint(plan.noise_std * rng.standard_normal(len(answers))).astype(np.int64)
        noise[plan.strategy.size :] = 0
        noisy = workload.split(W @ x + X @ noise[: plan.strategy.size])
        for added, expected in ((0 * noise, truth), (noise, noisy)):
            release = fp.Release(plan=plan, answers=answers + added, rho=plan.rho)
            for name, values in expected.items():
                np.testing.assert_allclose(
                    release.estimates[name], values, rtol=1e-6, atol=1e-6 * max(x.sum(), 1)
                )
        weights = {g.name: rng.standard_normal(g.shape) for g in workload.groups}
        flat = np.concatenate([weights[g.name].ravel() for g in workload.groups])
        std = plan.noise_std * np.sqrt(flat @ covariance @ flat)
        assert release.estimate(weights).std == pytest.approx(std, rel=1e-5)


class TestTheCertificate:
    @pytest.mark.parametrize("seed", range(8))
    @pytest.mark.parametrize("symmetric", [0, 2])
    def test_it_is_below_the_nuclear_norm_for_any_weights(self, symmetric, seed):
        rng = np.random.default_rng(200 + seed)
        workload, unit, structure = draw_workload(rng, symmetric)
        dense = tell_all_cells_apart(workload, unit)
        first, second = list_ends(dense.pairs)
        W, c = workload.matrix(), workload.targets()
        for sparse in (False, True):
            p = rng.exponential(size=structure.differences) ** 3
            q = rng.exponential(size=structure.rows)
            if sparse:
                p[rng.random(len(p)) < 0.6] = 0.0
                p[0] = 1.0
            norms = []
            # Weights that leave cells unconnected are mixed with uniform ones.
            for weights in (p, p + 1e-6 * p.mean()):
                own, rows = spread_weights(structure, dense, weights, q)
                X = np.sqrt(rows / c)[:, None] * (W[:, first] - W[:, second]) * np.sqrt(own)
                mass = weights.sum() * rows.sum()
                norms.append(np.linalg.svd(X, compute_uv=False).sum() / np.sqrt(mass))
            bound = certify_bound(structure, Objective(), 1.0, Duals(p, q, NO_FRAME))
            assert bound <= max(norms)
            assert bound >= norms[0] * (1 - (1e-9 if not sparse else 0.05))

    def test_a_bound_claimed_too_high_is_refused(self):
        plan = fp.design(prefixes(5), unit=REPLACE)
        forged = replace(plan, lower_bound=plan.lower_bound * (1 + 1e-6))
        with pytest.raises(fp.PlanError, match="lower bound"):
            forged.verify()


def design_some(workload: fp.Workload, unit: fp.ReplaceOne) -> fp.Plan:
    """Design as if all classes of pairs were too many to have weights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shape, "MOST_PAIRS", 0)
        plan = fp.design(workload, unit=unit)
    assert plan.strategy.structure.named is not None
    return plan


class TestSomePairs:
    """Pairs that are named, where all classes are too many."""

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("symmetric", [0, 1, 2])
    def test_they_reach_the_optimum_of_all_pairs(self, symmetric, seed):
        rng = np.random.default_rng(500 + seed)
        workload, unit, _ = draw_workload(rng, symmetric)
        plan, whole = design_some(workload, unit), fp.design(workload, unit=unit)
        plan.verify()
        assert plan.lower_bound <= whole.privacy_cost
        assert whole.lower_bound <= plan.privacy_cost
        assert plan.gap <= plan.tolerance
        found = check_sensitivity(AnswerPath.in_memory(plan))
        assert found.largest_squared == plan.strategy.sensitivity_squared

    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("symmetric", [0, 2])
    def test_any_weights_prove_what_they_do_among_all_classes(self, symmetric, seed):
        rng = np.random.default_rng(600 + seed)
        workload, unit, structure = draw_workload(rng, symmetric)
        plan, pairs = design_some(workload, unit), structure.pairs
        ends = pairs.find_ends(plan.strategy.structure.named)
        numbers = number_classes(pairs)
        for _ in range(4):
            p, q = (
                rng.exponential(size=len(plan.proof.duals.p)) ** 3,
                rng.exponential(size=len(plan.proof.duals.q)),
            )
            at = numbers[ends.moves, ends.first, ends.second]
            spread = np.bincount(at, p, pairs.count)
            some, every = (
                certify_bound(own, Objective(), 1.0, Duals(weights, q, NO_FRAME))
                for own, weights in ((plan.strategy.structure, p), (structure, spread))
            )
            assert some == pytest.approx(every, rel=1e-3)
            assert every <= some * (1 + 1e-9)

    @pytest.mark.parametrize(
        "edit",
        [
            lambda s: replace(s, cells=s.cells - 1),
            lambda s: replace(s, cells=s.cells[:, :1]),
            lambda s: replace(s, cells=np.stack([s.cells[:, 0], s.cells[:, 0] ^ 1], axis=1)),
            lambda s: replace(s, labels=s.labels[:, :1]),
            lambda s: s.take(np.arange(0)),
        ],
    )
    def test_what_are_no_neighbours_is_refused(self, edit):
        domain = fp.Domain({"age": fp.Integers(0, 4), "state": ["1", "2"]})
        groups = [fp.queries({"state": "prefix", "age": "prefix"}, std=2.0)]
        plan = design_some(fp.Workload(domain, groups), fp.ReplaceOne(within=("state",)))
        structure = replace(plan.strategy.structure, named=edit(plan.strategy.structure.named))
        forged = replace(plan, strategy=replace(plan.strategy, structure=structure))
        with pytest.raises(fp.PlanError):
            forged.verify()

    def test_a_product_is_taken_where_their_design_fails(self, monkeypatch):
        def fail(*_):
            raise fp.DesignError("no room")

        monkeypatch.setattr(shape, "MOST_PAIRS", 0)
        monkeypatch.setattr(pairs_design, "design_columns", fail)
        domain = fp.Domain({"age": fp.Integers(0, 4), "state": ["1", "2"]})
        groups = [fp.queries({"state": "prefix", "age": "prefix"}, std=2.0), fp.total(std=1.0)]
        plan = fp.design(fp.Workload(domain, groups), unit=REPLACE, tolerance=0.05)
        assert type(plan.strategy.structure) is ProductPairStructure
        plan.verify()
        with pytest.raises(fp.DesignError, match="no room"):
            fp.design(prefixes(5), unit=REPLACE)  # one attribute is not a product

    def test_work_grows_with_pairs_and_ends(self, monkeypatch):
        workload, unit, _ = draw_workload(np.random.default_rng(500), 1)
        whole = design_some(workload, unit)
        solve, done = PairProblem.solve, []

        def count(problem, sets, options, start):
            solution = solve(problem, sets, options, start)
            done.append((problem.estimate_work(sets), problem.search_work, solution.iterations))
            few = sets.take(np.arange(len(sets) // 2))
            assert problem.estimate_work(few) < done[-1][0]
            return solution

        monkeypatch.setattr(PairProblem, "solve", count)
        design_some(workload, unit)
        total = sum(each * iterations + search for each, search, iterations in done)
        done.clear()
        monkeypatch.setattr(PairProblem, "work_per_iteration", total / 4 / 2000)
        plan = design_some(workload, unit)
        work = [each * iterations + search for each, search, iterations in done]
        each, search, _ = done[-1]
        assert sum(work[:-1]) < total / 4
        assert sum(work) <= total / 4 + each + search
        assert plan.proof.iterations < whole.proof.iterations
        assert (plan.proof.ended, "raise max_iterations" in plan.status) == ("exhausted", True)
        assert plan.lower_bound <= whole.privacy_cost <= plan.privacy_cost * (1 + 1e-3)
        plan.verify()

    @pytest.mark.long
    def test_targets_by_cell_of_thousands_of_cells(self):
        domain = fp.Domain(
            {"a": fp.Integers(0, 19), "b": fp.Integers(0, 11), "c": fp.Integers(0, 9)}
        )
        rng = np.random.default_rng(0)
        groups = [
            fp.queries({"a": "prefix", "b": "prefix"}, variance=rng.lognormal(size=(20, 12))),
            fp.queries({"c": "prefix", "b": "identity"}, variance=rng.lognormal(size=(10, 12))),
        ]
        plan = fp.design(fp.Workload(domain, groups), unit=REPLACE, tolerance=0.02)
        plan.verify()
        assert plan.gap <= 0.02


class TestPlans:
    def test_a_file_is_read_back(self, tmp_path):
        domain = fp.Domain({"state": ["1", "2"], "age": fp.Integers(0, 4)})
        groups = [fp.queries({"state": "identity", "age": "prefix"}, std=2.0)]
        unit = fp.ReplaceOne(within=("state",))
        plan = fp.design(fp.Workload(domain, groups), unit=unit)
        plan.save(tmp_path / "plan.npz")
        again = fp.Plan.load(tmp_path / "plan.npz")
        again.verify()
        assert (again.unit, again.digest) == (unit, plan.digest)
        assert "one row replaced by another of the same state" in plan.summary()
        assert plan.tiers[0].level == pytest.approx(plan.privacy_cost**2, rel=1e-12)
        assert sum(price_groups(plan).values()) == pytest.approx(1.0)

    def test_a_basis_of_other_classes_is_refused(self):
        """Cells of different columns in one class would hide what a record's move changes."""
        plan = fp.design(prefixes(4), unit=REPLACE)
        (block_set,) = plan.strategy.block_sets
        index = block_set.basis.index.copy()
        index[0] = index[1]
        other = BlockSet(
            block_set.blocks, Basis("cells", index, block_set.basis.scale), block_set.M
        )
        forged = replace(plan, strategy=replace(plan.strategy, block_sets=(other,)))
        with pytest.raises(fp.PlanError, match="noisy answers do not fit its queries"):
            forged.verify()

    def test_a_budget_is_kept(self):
        plan = fp.design(prefixes(6), unit=REPLACE, rho=0.25)
        assert 0.25 * (1 - 1e-9) < plan.rho <= 0.25
        plan.verify()

    def test_cells_that_no_query_tells_apart_are_one(self):
        W = np.zeros((1, 40))
        W[0, :20] = 1
        structure = analyse(fp.Workload.from_matrix(W, variance=1.0))
        assert (structure.pairs.nodes, structure.differences) == (2, 1)
        plan = fp.design(structure.workload, unit=REPLACE)
        assert plan.privacy_cost**2 == pytest.approx(1.0, rel=1e-4)


class TestRegionsThatNoQueryTellsApart:
    """Their differences are the same, so that they are one region."""

    UNIT = fp.ReplaceOne(within=("year",))

    @staticmethod
    def ask(years, halves):
        domain = fp.Domain(
            {"age": fp.Integers(0, 3), "year": fp.Integers(0, years - 1), "sex": ["f", "m"]}
        )
        asked = {"age": "prefix", "year": fp.ranges(halves)}
        return fp.Workload(
            domain,
            [fp.queries(asked, std=2.0), fp.queries({"age": "identity", "sex": "identity"}, std=3)],
        )

    def test_they_have_the_pairs_and_the_cost_of_one(self):
        structure = analyse(self.ask(9, [(0, 5), (6, 8)]), self.UNIT)
        assert (
            structure.pairs.count == analyse(self.ask(2, [(0, 0), (1, 1)]), self.UNIT).pairs.count
        )
        few = fp.design(self.ask(2, [(0, 0), (1, 1)]), unit=self.UNIT)
        many = fp.design(self.ask(9, [(0, 5), (6, 8)]), unit=self.UNIT)
        many.verify()
        assert many.rho == pytest.approx(few.rho, rel=3e-4)
        assert many.strategy.sensitivity_squared == measure_cost(many)

    def test_pairs_that_are_named_are_of_one_region(self, monkeypatch):
        monkeypatch.setattr(shape, "MOST_PAIRS", 1)
        plan = fp.design(self.ask(9, [(0, 5), (6, 8)]), unit=self.UNIT)
        assert isinstance(plan.strategy.structure, PairStructure)
        years = plan.strategy.structure.regions[plan.strategy.structure.named.cells]
        assert (years[:, 0] == years[:, 1]).all()
        assert plan.strategy.sensitivity_squared == measure_cost(plan)
        plan.verify()

    def test_many_of_them_have_the_optimum(self):
        plan = fp.design(self.ask(10_000, [(0, 4_999), (5_000, 9_999)]), unit=self.UNIT)
        few = fp.design(self.ask(2, [(0, 0), (1, 1)]), unit=self.UNIT)
        assert isinstance(plan.strategy.structure, PairStructure)
        assert plan.rho == pytest.approx(few.rho, rel=3e-4)


class TestRefusals:
    def test_what_public_totals_answer_needs_no_design(self):
        domain = fp.Domain({"state": ["1", "2"], "age": fp.Integers(0, 4)})
        workload = fp.Workload(domain, [fp.marginal("state", std=2.0), fp.total(std=1.0)])
        with pytest.raises(fp.WorkloadError, match="all queries ask for totals"):
            fp.design(workload, unit=fp.ReplaceOne(within=("state",)))
        fp.design(workload, unit=REPLACE).verify()

    @pytest.mark.parametrize(
        ("keywords", "name"),
        [
            ({"cell_budgets": np.ones(5)}, "cell_budgets"),
            ({"total_error_weight": 0.1}, "total_error_weight"),
            ({"solver": "sm2"}, "sm2"),
        ],
    )
    def test_objectives_of_cells_are_refused(self, keywords, name):
        with pytest.raises(fp.BudgetError, match=f"{name}.*ReplaceOne"):
            fp.design(prefixes(5), unit=REPLACE, **keywords)

    def test_too_many_cells_are_refused(self):
        with pytest.raises(fp.WorkloadError, match="AddRemove"):
            fp.design(self.make_ordered(40_000), unit=REPLACE)

    def test_too_many_pairs_are_refused(self):
        with pytest.raises(fp.WorkloadError, match="pairs"):
            fp.design(self.make_ordered(4096), unit=REPLACE)

    def make_ordered(self, cells):
        """Make a workload that has no chain where records move, as it asks for single cells."""
        groups = [fp.queries({"a": kind}, std=2.0) for kind in ("prefix", "identity")]
        return fp.Workload(fp.Domain({"a": fp.Integers(0, cells - 1)}), groups)
