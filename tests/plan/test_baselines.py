"""Baselines: closed forms, strategy matrices by brute force, and who wins at which measure."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import minimize

import fitplug as fp
from fitplug import baselines
from fitplug.solve.sm2 import minimise_total_error
from tests.helpers.workloads import all_ranges, identity_and_sum, kron, marginals, prefix, small

WEIGHTS = {"none": 0.0, "inverse": -1.0, "inverse_sqrt": -0.5, "inverse_squared": -2.0}
ALL = {
    "IP": baselines.input_perturbation,
    "GM": baselines.gaussian,
    "HM": baselines.hierarchical,
    **{
        f"CA {weights}": lambda w, cost, weights=weights: baselines.matrix_mechanism(
            w, cost, weights=weights
        )
        for weights in WEIGHTS
    },
}
SMALL = pytest.mark.parametrize(("name", "W", "c"), small(), ids=[s[0] for s in small()])


def dense(W, c=1.0):
    return fp.Workload.from_matrix(W, variance=c)


def of_strategy(W, A, cost=1.0):
    """Variances (m,) of least-squares answers to W from A x + noise, by the pseudo-inverse."""
    R = W @ np.linalg.pinv(A)
    assert np.allclose(R @ A, W), "the strategy does not answer the workload"
    return (A**2).sum(axis=0).max() / cost**2 * (R**2).sum(axis=1)


def tree(n, b):
    """Level by level from the top, the root left out; a list of 0/1 rows (nodes, n)."""
    size = 1
    while size < n:
        size *= b
    rows = []
    while size > 1:
        size //= b
        rows += [[float(a <= i < a + size) for i in range(n)] for a in range(0, n, size)]
    return np.array(rows or np.eye(1))


def flat(variances):
    return np.concatenate([part.ravel() for part in variances.values()])


def pl94():
    """The paper's PL94 workload: 2 voting ages x 2 ethnicities x 63 sets of races."""
    two, races, one = np.eye(2), np.eye(63), np.ones
    return np.vstack(
        [
            kron(two, one((1, 2)), one((1, 63))),
            kron(one((1, 2)), two, one((1, 63))),
            kron(one((1, 2)), one((1, 2)), races),
            np.eye(252),
        ]
    )


def age_pyramid():
    """The paper's age workload: prefixes of 0..115 and 18 or over; by sex and for all."""
    ranges = np.vstack([prefix(116), np.arange(116) >= 18])
    return np.vstack([kron(np.eye(2), ranges), kron(np.ones((1, 2)), ranges)])


def people():
    """Several attributes of every kind, one named first though last, one used by no group."""
    domain = fp.Domain(
        {
            "sex": ["1", "2"],
            "age": fp.Integers(0, 10),
            "income": fp.Bins([0, 10, 20, 50, 100, 1000, 5000, 10000]),
            "state": ["a", "b", "c"],
        }
    )
    return fp.Workload(
        domain,
        [
            fp.queries({"age": "prefix", "sex": "identity"}, std=5.0, name="pyramid"),
            fp.marginal("sex", "income", std=2.0),
            fp.queries(
                {"income": "all_ranges", "state": "total", "sex": [[1.0, -1.0]]}, variance=9.0
            ),
            fp.queries({"age": fp.ranges([(5, 10), (0, 3)]), "income": "total"}, std=3.0),
            fp.total(variance=4.0),
        ],
    )


class TestClosedForms:
    @SMALL
    def test_input_perturbation_has_the_norms_of_rows(self, name, W, c):
        found = baselines.input_perturbation(dense(W, c), 0.5)["queries"]
        assert found == pytest.approx((W**2).sum(axis=1) / 0.25)

    @SMALL
    def test_gaussian_has_the_largest_norm_of_a_column(self, name, W, c):
        found = baselines.gaussian(dense(W, c), 0.5)["queries"]
        assert found == pytest.approx(np.full(len(W), (W**2).sum(axis=0).max() / 0.25))

    @pytest.mark.parametrize("d", [5, 6, 20, 256])
    def test_total_error_of_identity_and_sum(self, d):
        """The paper's theorem on eqn:sum, a and b as they stand there."""
        cost, root = 0.7, math.sqrt(1 + d)
        a = (d - 3) / (d - 1 - root) / cost**2
        b = (d - 3) * (2 - root) / ((d - 1 - root) * (-1 - d + (d - 1) * root)) / cost**2
        workload = dense(identity_and_sum(d))
        value, bound = baselines.total_error_optimum(workload)
        assert value / cost**2 == pytest.approx(d * (a + b) + d * a + d**2 * b, rel=2e-6)
        assert bound <= value <= bound * (1 + 1e-6)
        found = baselines.matrix_mechanism(workload, cost)["queries"]
        assert found[:d] == pytest.approx(np.full(d, a + b), rel=1e-3)
        assert found[d] == pytest.approx(d * a + d**2 * b, rel=1e-3)

    @pytest.mark.parametrize(("d", "k"), [(5, 4.0), (64, 4.0), (256, 9.0)])
    @pytest.mark.parametrize(
        ("weights", "power"), [("inverse_squared", 2.0), ("inverse", 1.0), ("inverse_sqrt", 0.5)]
    )
    def test_weighted_total_error_of_identity_and_sum(self, d, k, weights, power):
        """The appendix's theorem: the sum's target is k, the weight of its variance 1 / w^2."""
        w = math.sqrt(k**power)
        root = w * math.sqrt(d + w**2)
        a = (-1 + (d - 2) * w**2) / ((d - 1) * w**2 - root)
        b = (1 + w**2 - root) / (-d - w**2 + (d - 1) * root) * a
        value, _ = baselines.total_error_optimum(dense(identity_and_sum(d), [1] * d + [k]), weights)
        assert value == pytest.approx(d * (a + b) + (d * a + d**2 * b) / w**2, rel=2e-6)

    def test_total_error_of_a_circulant(self):
        """Symmetry makes p uniform: E = |W|_*^2 / d."""
        W = np.array([np.roll([3.0, 1, 0, 0, 2, 0, 1], i) for i in range(7)])
        nuclear = np.linalg.svd(W, compute_uv=False).sum()
        assert baselines.total_error_optimum(dense(W))[0] == pytest.approx(nuclear**2 / 7)

    def test_total_error_of_two_prefixes(self):
        # T(p)^2 = |W D|_F^2 + 2 |det W D| = 1 + p_1 + 2 sqrt(p_1 p_2): the golden ratio squared.
        value, bound = baselines.total_error_optimum(dense(prefix(2)))
        golden = (3 + math.sqrt(5)) / 2
        assert golden * (1 - 1e-6) <= bound <= golden * (1 + 1e-12)
        assert golden * (1 - 1e-12) <= value <= golden * (1 + 1e-6)

    @pytest.mark.parametrize("W", [prefix(6), all_ranges(4), marginals([2, 3], 1)[1:]])
    def test_total_error_against_a_method_of_scipy_s(self, W):
        def bound(z):
            p = np.exp(z) / np.exp(z).sum()
            return -(np.linalg.svd(W * np.sqrt(p), compute_uv=False).sum() ** 2)

        best = minimize(bound, np.zeros(W.shape[1]), method="BFGS", options={"gtol": 1e-9})
        assert baselines.total_error_optimum(dense(W))[0] == pytest.approx(-best.fun, rel=2e-6)

    def test_everything_goes_with_the_inverse_square_of_the_privacy_cost(self):
        workload = people()
        for mechanism in ALL.values():
            one, three = flat(mechanism(workload, 1.0)), flat(mechanism(workload, 3))
            assert one == pytest.approx(9 * three)


class TestHierarchical:
    def test_branching_factor(self):
        # The formula in floats over every b, read off once; no tree pays for few cells.
        assert [baselines.choose_branching_factor(n) for n in (1, 2, 10, 30)] == [2, 2, 10, 30]
        assert [baselines.choose_branching_factor(n) for n in (64, 116, 256, 1024)] == [8, 5, 4, 4]
        for n in range(2, 200):
            b = baselines.choose_branching_factor(n)
            cost = {}
            for other in range(2, n + 1):
                h = next(h for h in itertools.count(1) if other**h >= n)
                cost[other] = h * ((other - 1) * h - 2 * (other + 1) / 3)
            assert cost[b] <= min(cost.values()) + 1e-9

    @pytest.mark.parametrize("n", [1, 2, 9, 64, 100, 128])
    def test_against_its_strategy_matrix(self, n):
        A = tree(n, baselines.choose_branching_factor(n))
        assert len(set((A**2).sum(axis=0))) == 1, "every cell is in every level"
        for W in (prefix(n), np.eye(n), np.ones((1, n))):
            found = baselines.hierarchical(dense(W), 2.0)["queries"]
            assert found == pytest.approx(of_strategy(W, A, 2.0))

    def test_several_attributes_against_the_kronecker_product_of_trees(self):
        domain = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 99), "n": fp.Integers(1, 3)})
        workload = fp.Workload(
            domain,
            [
                fp.queries({"n": "prefix", "age": fp.ranges([(0, 7), (3, 48)])}, std=1.0),
                fp.marginal("sex", std=1.0),
                fp.queries({"age": "prefix", "sex": "identity"}, std=1.0),
            ],
        )
        A = kron(np.eye(2), tree(100, baselines.choose_branching_factor(100)), tree(3, 3))
        assert len(A) > workload.cell_count
        found = flat(baselines.hierarchical(workload, 1.0))
        assert found == pytest.approx(of_strategy(workload.matrix(), A))

    def test_categories_have_no_tree(self):
        domain = fp.Domain({"state": [str(i) for i in range(60)]})
        workload = fp.Workload(domain, [fp.queries({"state": "prefix"}, std=1.0)])
        assert flat(baselines.hierarchical(workload, 1.0)) == pytest.approx(
            flat(baselines.input_perturbation(workload, 1.0))
        )

    def test_beats_input_perturbation_on_long_ranges(self):
        workload = dense(prefix(256))
        worst = [flat(f(workload, 1.0)).max() for f in (ALL["HM"], ALL["IP"])]
        assert worst[0] < worst[1] / 5


class TestMatrixMechanism:
    @pytest.mark.slow
    @SMALL
    def test_certified_and_never_worse_in_its_total_than_any_other(self, name, W, c):
        workload, plan = dense(W, c), fp.design(dense(W, c))
        found = {name: mechanism(workload, 1.0)["queries"] for name, mechanism in ALL.items()}
        found["plan"] = plan.variances["queries"] * plan.privacy_cost**2
        for weights, power in WEIGHTS.items():
            w = c**power
            value, bound = baselines.total_error_optimum(workload, weights)
            assert 0 < bound <= value <= bound * (1 + 1e-6)
            assert w @ found[f"CA {weights}"] == pytest.approx(value)
            assert all(w @ variances >= bound * (1 - 1e-9) for variances in found.values())

    @SMALL
    def test_its_bound_goes_to_the_paper_s_optimum(self, name, W, c):
        """min over S of a maximum is at least that of any mean: E*(1/c) <= m alpha*."""
        _, bound = baselines.total_error_optimum(dense(W, c), "inverse")
        assert bound <= len(W) * fp.design(dense(W, c)).privacy_cost ** 2

    @given(seed=st.integers(0, 2**32), m=st.integers(1, 6), d=st.integers(1, 6))
    def test_bound_is_below_every_strategy(self, seed, m, d):
        rng = np.random.default_rng(seed)
        W = rng.integers(-2, 3, (m, d)) * 10.0 ** rng.integers(-2, 3, (m, 1))
        W[0, 0] += 10.0
        w = 10.0 ** rng.uniform(-3, 3, m)
        found = minimise_total_error(W, w, tolerance=1e-6, max_iterations=300)
        assert found.gap <= 1e-6
        for spread in (0.1, 1.0, 10.0):
            A = np.vstack([np.eye(d), spread * rng.normal(size=(3, d))])
            assert w @ of_strategy(W, A) >= found.lower_bound * (1 - 1e-9)
            # and below those near its own, where it is tight
            p = found.p * np.exp(0.01 * spread * rng.normal(size=d)) + 1e-12
            S = _optimal_inverse(W, w, p)
            near = w @ np.einsum("ij,jk,ik->i", W, np.linalg.pinv(S, hermitian=True), W)
            assert near * np.diag(S).max() >= found.lower_bound * (1 - 1e-6)

    def test_iterations_do_not_regress(self):
        rng = np.random.default_rng(4)
        for W, w, most in [
            (prefix(64), np.ones(64), 25),
            (all_ranges(16), np.ones(136), 12),
            (all_ranges(16), rng.uniform(0.1, 1, 136), 25),
            (prefix(5) * (10.0 ** np.arange(-6, 9, 3))[:, None], np.ones(5), 80),
        ]:
            found = minimise_total_error(W, w, tolerance=1e-6, max_iterations=300)
            assert found.gap <= 1e-6
            assert found.iterations <= most

    @pytest.mark.parametrize("seed", [655, 1078, 1094, 1234])
    def test_acceleration_held_by_residuals_alone_fails_here(self, seed):
        """It shrank the residual where the weights had all gone to few cells."""
        rng = np.random.default_rng(seed)
        m, d = rng.integers(1, 9, 2)
        W = (
            rng.integers(-2, 3, (m, d)).astype(float)
            if seed % 2
            else rng.normal(size=(m, d)) * 10.0 ** rng.uniform(-2, 2, (m, 1))
        )
        found = minimise_total_error(
            W, 10.0 ** rng.uniform(-3, 3, m), tolerance=1e-6, max_iterations=100
        )
        assert found.gap <= 1e-6

    def test_stopping_early_gives_a_valid_bound_and_a_refusal(self, monkeypatch):
        found = minimise_total_error(prefix(16), np.ones(16), tolerance=1e-6, max_iterations=2)
        assert found.iterations == 2
        assert found.gap > 1e-6
        monkeypatch.setattr(baselines, "_MAX_ITERATIONS", 2)
        with pytest.raises(fp.DesignError, match="1e-06"):
            baselines.matrix_mechanism(dense(prefix(16)), 1.0)

    def test_equal_targets_make_all_weightings_equal(self):
        workload = dense(all_ranges(6), 7.0)
        first, *others = (
            baselines.matrix_mechanism(workload, 1.0, weights=w)["queries"] for w in WEIGHTS
        )
        for other in others:
            assert other == pytest.approx(first, rel=1e-9)


def _optimal_inverse(W, w, p):
    """S^-1 over the cells for S = P # Q^-1: D^-1/2 (D^1/2 W' w W D^1/2)^1/2 D^-1/2, D = diag(p)."""
    root = np.sqrt(p)
    values, vectors = np.linalg.eigh(root[:, None] * ((W.T * w) @ W) * root)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T / root[:, None] / root


@SMALL
def test_the_plan_has_the_least_worst_ratio_of_all(name, W, c):
    workload = dense(W, c)
    plan = fp.design(workload)
    for mechanism in ALL.values():
        worst = (mechanism(workload, plan.privacy_cost)["queries"] / c).max()
        assert worst >= (plan.lower_bound / plan.privacy_cost) ** 2 * (1 - 1e-9)


class TestSeveralAttributes:
    workload = people()

    @pytest.mark.parametrize("mechanism", ALL)
    def test_names_and_shapes_are_those_of_the_workload(self, mechanism):
        found = ALL[mechanism](self.workload, 1.0)
        assert list(found) == list(self.workload.names)
        for group in self.workload.groups:
            assert found[group.name].shape == group.shape
            assert found[group.name].dtype == np.float64
            assert (found[group.name] > 0).all()
            with pytest.raises(ValueError, match="read-only"):
                found[group.name][...] = 0.0
        with pytest.raises(TypeError):
            found["pyramid"] = found["pyramid"]

    @pytest.mark.parametrize("mechanism", ["IP", "GM", "CA none", "CA inverse"])
    def test_equal_to_the_same_workload_as_one_matrix(self, mechanism):
        one = dense(self.workload.matrix(), self.workload.targets())
        assert flat(ALL[mechanism](self.workload, 0.3)) == pytest.approx(
            ALL[mechanism](one, 0.3)["queries"], rel=1e-6
        )

    def test_hierarchical_against_pseudo_inverse(self):
        A = kron(np.eye(2), tree(11, 11), tree(7, 7))
        found = flat(baselines.hierarchical(self.workload, 0.3))
        assert found == pytest.approx(of_strategy(self.workload.matrix(), A, 0.3))

    @pytest.mark.parametrize("mechanism", ALL)
    def test_the_total_alone_needs_no_cells(self, mechanism):
        domain = fp.Domain({"sex": ["1", "2"]})
        found = ALL[mechanism](fp.Workload(domain, [fp.total(std=1.0)]), 0.5)
        assert found["total"] == pytest.approx(4.0)

    def test_domains_that_no_array_holds_do_not_stop_products(self):
        domain = fp.Domain({f"a{i}": fp.Integers(0, 99) for i in range(30)})
        workload = fp.Workload(domain, [fp.marginal(f"a{i}", std=1.0) for i in range(30)])
        assert flat(baselines.input_perturbation(workload, 1.0)) == pytest.approx(
            np.full(3000, 100.0**29)
        )
        assert np.isfinite(flat(baselines.hierarchical(workload, 1.0))).all()


class TestPaperTables:
    """Squared privacy cost times the paper's ratios, whatever cost its optimizer had found."""

    @pytest.mark.parametrize(
        ("W", "ip", "hm", "ca"),
        [
            (pl94(), 36.56, 13.93, 3.99),
            (age_pyramid(), 32.49, 6.2, None),
            (marginals([2] * 3, 2)[1:], 1.82, 3.02, 1.14),
            (marginals([4] * 3, 2)[1:], 4.55, 10.28, None),
            (marginals([8] * 3, 2)[1:], 14.03, 36.72, None),
        ],
    )
    def test_ratios_to_input_perturbation(self, W, ip, hm, ca):
        """The paper's HM is another tree: over the flat cells, the root, floor(sqrt d) blocks of
        as many cells (the last cells in none), and the cells.
        """
        worst = baselines.input_perturbation(dense(W), 1.0)["queries"].max()
        d = W.shape[1]
        k = math.isqrt(d)
        blocks = np.hstack([kron(np.eye(k), np.ones((1, k))), np.zeros((k, d - k * k))])
        tree_of_paper = np.vstack([np.ones((1, d)), blocks, np.eye(d)])
        assert of_strategy(W, tree_of_paper).max() / worst == pytest.approx(hm / ip, rel=5e-3)
        if ca is not None:
            found = baselines.matrix_mechanism(dense(W), 1.0)["queries"].max()
            assert found / worst == pytest.approx(ca / ip, rel=5e-3)

    def test_sum_squared_error_of_pl94(self):
        # To five digits from this solver alone; the paper's 2.07 is at its own, larger cost.
        value, _ = baselines.total_error_optimum(dense(pl94()))
        assert value == pytest.approx(526.374, rel=1e-5)


class TestRefusals:
    @pytest.mark.parametrize("mechanism", ALL)
    @pytest.mark.parametrize(
        "cost", [0, 0.0, -1.0, math.nan, math.inf, True, None, "1", 1j, 1e-101, 10**400]
    )
    def test_privacy_cost(self, mechanism, cost):
        with pytest.raises(
            fp.BudgetError, match="privacy_cost must be a number from 1e-100 to 1e100"
        ):
            ALL[mechanism](dense(prefix(3)), cost)

    @pytest.mark.parametrize("weights", ["inverse sqrt", "", None, 1])
    def test_weights(self, weights):
        for call in (
            lambda: baselines.matrix_mechanism(dense(prefix(3)), 1.0, weights=weights),
            lambda: baselines.total_error_optimum(dense(prefix(3)), weights),
        ):
            with pytest.raises(fp.WorkloadError, match="unknown weights "):
                call()

    def test_sizes(self):
        wide = fp.Domain({"id": fp.Integers(0, 2**45)})
        with pytest.raises(fp.WorkloadError, match="pairs of cells of id"):
            baselines.hierarchical(fp.Workload(wide, [fp.marginal("id", std=1.0)]), 1.0)
        many = fp.Workload(wide, [fp.marginal("id", std=1.0)])
        for name, says in {
            "IP": "35184372088833 queries",
            "GM": "35184372088833 cells",
            "CA none": r"coefficients \(queries x cells\); the limit is",
        }.items():
            with pytest.raises(fp.WorkloadError, match=says):
                ALL[name](many, 1.0)

    def test_rank_that_cannot_be_decided(self):
        with pytest.raises(fp.WorkloadError, match="not exactly, linear combinations"):
            baselines.matrix_mechanism(dense([[1.0, 1.0], [1.0, 1.0 + 1e-11]]), 1.0)
