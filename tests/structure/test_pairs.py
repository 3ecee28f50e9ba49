"""Neighbours that replace a record: the differences are pairs of cells of one region."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import fitplug as fp
from fitplug.mechanism import (
    Basis,
    BlockSet,
    bound_unit_variances,
    build_dense_strategy,
    compute_exact_cost,
)
from fitplug.plan import price_groups
from fitplug.proof import NO_FRAME, Duals, certify_bound
from fitplug.structure import Objective, PairStructure, analyse_structure

REPLACE = fp.ReplaceOne()


def prefixes(d: int) -> fp.Workload:
    return fp.Workload.from_matrix(np.tri(d), variance=1.0)


def analyse(workload: fp.Workload, unit: fp.ReplaceOne = REPLACE) -> PairStructure:
    structure = analyse_structure(workload, unit=unit)
    assert isinstance(structure, PairStructure)
    return structure


def list_differences(regions: np.ndarray) -> np.ndarray:
    """All e_i - e_j of cells of one region, as columns, written out one by one."""
    d = len(regions)
    return np.array(
        [
            np.eye(d, dtype=np.int64)[i] - np.eye(d, dtype=np.int64)[j]
            for i, j in itertools.permutations(range(d), 2)
            if regions[i] == regions[j]
        ]
    ).T


def random_workload(rng: np.random.Generator) -> tuple[fp.Workload, fp.ReplaceOne]:
    """Two attributes, queries with few different columns, and regions half of the time."""
    domain = fp.Domain({"a": fp.Integers(1, int(rng.integers(1, 4))), "b": fp.Integers(0, 3)})
    n = domain["a"].size
    groups = [
        fp.queries(
            {"a": rng.integers(-2, 3, (2, n)), "b": rng.integers(-1, 2, (2, 4))},
            variance=float(rng.uniform(0.5, 2.0)),
            name="first",
        ),
        fp.queries({"b": "prefix"}, variance=float(rng.uniform(0.5, 4.0)), name="second"),
    ]
    unit = fp.ReplaceOne(within=("a",)) if rng.random() < 0.5 else fp.ReplaceOne()
    return fp.Workload(domain, groups), unit


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
    def test_an_interior_point_solver_finds_no_less(self, seed):
        cvxpy = pytest.importorskip("cvxpy")
        workload, unit = random_workload(np.random.default_rng(seed))
        plan = fp.design(workload, unit=unit)
        structure = plan.structure
        W, V = structure.queries, list_differences(structure.regions)
        # Coordinates of the span of W V: any orthonormal basis of its column space.
        U, s, _ = np.linalg.svd(W @ V)
        U = U[:, : int((s > 1e-9 * s[0]).sum())]
        Y = cvxpy.Variable((U.shape[1],) * 2, PSD=True)
        alpha = cvxpy.Variable()
        within = [
            cvxpy.sum(cvxpy.multiply(np.outer(v, v), Y)) <= alpha
            for v in np.unique((U.T @ W @ V).round(12), axis=1).T
        ]
        within += [
            cvxpy.matrix_frac(row, Y) <= c
            for row, c in zip(U, structure.targets, strict=True)
            if np.abs(row).max() > 1e-9
        ]
        least = cvxpy.Problem(cvxpy.Minimize(alpha), within).solve()
        assert plan.privacy_cost**2 == pytest.approx(least, rel=1e-3)
        assert plan.lower_bound**2 <= least * (1 + 1e-5)
        assert plan.gap <= plan.tolerance


class TestTheCost:
    def test_it_is_that_of_the_costliest_of_all_pairs(self):
        """Over a thousand random integer strategies, compared with all of V written out."""
        rng = np.random.default_rng(5)
        compared = 0
        while compared < 1000:
            workload, unit = random_workload(rng)
            structure = analyse(workload, unit)
            V = list_differences(structure.regions).astype(object)
            n = int(structure.pairs.classes.max()) + 1
            for bits in (2, 20, 45):
                M = np.triu(rng.integers(-(2**bits), 2**bits, (n, n)))
                M[np.diag_indices(n)] = np.abs(M.diagonal()) + 1
                basis = Basis("cells", structure.pairs.classes, np.ones(n))
                block_set = BlockSet(np.zeros(1, dtype=np.int64), basis, M[None])
                found = compute_exact_cost(structure, (block_set,), ())
                B = basis.build_matrix(structure.pairs.grounded).astype(object)
                squares = ((M.astype(object) @ B @ V) ** 2).sum(axis=0)
                assert found.sensitivity_squared == max(squares)
                worst = [max([*squares[V[i] != 0], 0]) for i in range(len(V))]
                assert all(a >= w for a, w in zip(found.column_squares, worst, strict=True))
                np.testing.assert_allclose(found.column_squares, np.array(worst, float), 1e-14)
                compared += 1

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
            squares = ((A @ list_differences(plan.structure.regions)) ** 2).sum(axis=0)
            assert plan.strategy.sensitivity_squared == squares.max()
            profile = plan.profile()
            assert profile.shape == (3, 5)
            assert profile.max() == pytest.approx(plan.privacy_cost**2, rel=1e-12)
            plan.verify()
        # The totals of states are public, and so is their sum.
        assert (inside.variances["by state"][:, -1] == 0).all()
        assert (everywhere.variances["by state"][:, -1] > 0).all()


class TestTheVariances:
    @pytest.mark.parametrize("seed", range(5))
    def test_they_are_those_of_least_squares_with_the_totals_known(self, seed):
        workload, unit = random_workload(np.random.default_rng(100 + seed))
        plan = fp.design(workload, unit=unit)
        structure, strategy = plan.structure, plan.strategy
        (block_set,) = strategy.block_sets
        A = block_set.M[0] @ block_set.basis.build_matrix(structure.pairs.grounded)
        T = np.eye(structure.regions.max() + 1)[structure.regions].T
        # Weighted least squares where the totals are measured without noise.
        measured = np.vstack([A * 1.0, T * 1e9])
        expected = np.einsum(
            "ij,jk,ik->i",
            structure.queries,
            np.linalg.pinv(measured.T @ measured),
            structure.queries,
        )
        found = bound_unit_variances(structure, *strategy.integers)
        scale = expected.max()
        np.testing.assert_allclose(found / scale, expected / scale, rtol=1e-6, atol=1e-6)


class TestTheCertificate:
    @pytest.mark.parametrize("seed", range(8))
    def test_it_is_below_the_nuclear_norm_for_any_weights(self, seed):
        rng = np.random.default_rng(200 + seed)
        workload, unit = random_workload(rng)
        structure = analyse(workload, unit)
        pairs = structure.pairs
        first, second = pairs.cells[pairs.ends[0]], pairs.cells[pairs.ends[1]]
        W, c = structure.queries, structure.targets
        for sparse in (False, True):
            p, q = rng.exponential(size=pairs.count) ** 3, rng.exponential(size=structure.rows)
            if sparse:
                p[rng.random(len(p)) < 0.6] = 0.0
                p[0] = 1.0
            X = np.sqrt(q / c)[:, None] * (W[:, first] - W[:, second]) * np.sqrt(p)
            norm = np.linalg.svd(X, compute_uv=False).sum() / np.sqrt(p.sum() * q.sum())
            bound = certify_bound(structure, Objective(), 1.0, Duals(p, q, NO_FRAME))
            assert bound <= norm
            assert bound >= norm * (1 - (1e-9 if not sparse else 0.05))

    def test_a_bound_claimed_too_high_is_refused(self):
        plan = fp.design(prefixes(5), unit=REPLACE)
        forged = replace(plan, lower_bound=plan.lower_bound * (1 + 1e-6))
        with pytest.raises(fp.PlanError, match="lower bound"):
            forged.verify()


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
        assert "one record replaced by another of the same state" in plan.summary()
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
        with pytest.raises(fp.PlanError, match="classes"):
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


class TestRefusals:
    def test_what_public_totals_answer_needs_no_design(self):
        domain = fp.Domain({"state": ["1", "2"], "age": fp.Integers(0, 4)})
        workload = fp.Workload(domain, [fp.marginal("state", std=2.0), fp.total(std=1.0)])
        with pytest.raises(fp.WorkloadError, match="nothing to design"):
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
        domain = fp.Domain({"a": fp.Integers(0, 39_999)})
        workload = fp.Workload(domain, [fp.queries({"a": "prefix"}, std=2.0)])
        with pytest.raises(fp.WorkloadError, match="AddRemove"):
            fp.design(workload, unit=REPLACE)

    def test_too_many_pairs_are_refused(self):
        with pytest.raises(fp.WorkloadError, match="pairs"):
            fp.design(
                fp.Workload(
                    fp.Domain({"a": fp.Integers(0, 4095)}), [fp.queries({"a": "prefix"}, std=2.0)]
                ),
                unit=REPLACE,
            )
