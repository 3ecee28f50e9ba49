"""The optimum: closed forms, published values, invariances, and the certificate."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import minimize

import fitplug as fp
from fitplug import errors
from fitplug.certify import certify_dense_bound
from fitplug.solve import dual
from fitplug.solve.problem import reduce_matrix
from tests.helpers.workloads import (
    PREFIX,
    all_ranges,
    identity_and_sum,
    kron,
    marginals,
    prefix,
    small,
)


def alpha(W, c=1.0, tolerance=1e-6):
    plan = fp.design(fp.Workload.from_matrix(W, variance=c), tolerance=tolerance)
    assert plan.gap <= tolerance
    return plan.privacy_cost**2


def close(value, expected, tolerance=3e-6):
    # privacy_cost is above the optimum by at most the gap in Delta, twice that in alpha.
    return expected * (1 - 1e-8) <= value <= expected * (1 + tolerance)


@pytest.mark.parametrize("d", [2, 4, 8, 16, 32, 64, 128])
def test_prefix(d):
    # The values themselves are given to 10 digits.
    assert alpha(prefix(d)) == pytest.approx(PREFIX[d], rel=3e-6)


@pytest.mark.parametrize("d", [2, 5, 20])
def test_identity_and_sum_at_equal_targets(d):
    assert close(alpha(identity_and_sum(d)), 2 * d / (1 + d))


@pytest.mark.parametrize(("d", "k"), [(5, 0.5), (6, 3.0), (20, 7.0)])
def test_identity_and_sum_at_another_target(d, k):
    targets = np.append(np.ones(d), k)
    expected = (2 * k * d - d**2 - k * d**2) / (k * (k - d**2))
    assert close(alpha(identity_and_sum(d), targets), expected)


def test_circulant():
    row = np.array([3.0, 1, 0, 0, 2, 0, 1])
    W = np.array([np.roll(row, i) for i in range(len(row))])
    nuclear = np.linalg.svd(W, compute_uv=False).sum()
    assert close(alpha(W), (nuclear / len(row)) ** 2)


def test_kronecker_product_multiplies():
    assert alpha(kron(prefix(6), prefix(6))) == pytest.approx(alpha(prefix(6)) ** 2, rel=4e-6)


@pytest.mark.parametrize(
    ("t", "expected"),
    [
        (2, 2.182453),
        (4, 3.471896),
        (8, 4.504425),
        pytest.param(16, 5.178935, marks=pytest.mark.long),
    ],
)
def test_marginals_of_the_paper(t, expected):
    """One- and two-way marginals of t x t x t."""
    assert alpha(marginals([t] * 3, 2)[1:], tolerance=1e-5) == pytest.approx(expected, rel=3e-5)


@pytest.mark.parametrize(
    ("sizes", "ways"), [([2] * 3, 2), ([2, 3], 1), ([4, 2, 3], 2), ([10, 10], 1)]
)
def test_marginals_against_the_dual_that_symmetry_leaves(sizes, ways):
    """With symmetric attributes the dual has one weight per table and T = sum_A |A| sqrt(Q_A);
    maximised here by a method of SciPy's.
    """
    n = np.array(sizes)
    tables = [t for k in range(ways + 1) for t in itertools.combinations(range(len(n)), k)]
    held = np.array([[set(A) <= set(t) for t in tables] for A in tables])
    summed = np.array([n.prod() / n[list(t)].prod() ** 2 for t in tables])
    dimensions = np.array([(n[list(A)] - 1).prod() for A in tables])

    def bound(z):
        q = np.exp(z) / np.exp(z).sum()
        return -float((dimensions * np.sqrt(held @ (q * summed) / n.prod())).sum())

    best = minimize(bound, np.zeros(len(tables)), method="BFGS", options={"gtol": 1e-10})
    assert alpha(marginals(sizes, ways)) == pytest.approx(best.fun**2, rel=4e-6)


def test_all_ranges_with_many_idle_queries():
    assert alpha(all_ranges(32), tolerance=1e-5) == pytest.approx(
        alpha(all_ranges(32)[::-1], tolerance=1e-5), rel=4e-5
    )


@pytest.mark.long
def test_published_values_of_larger_workloads():
    three_ordered = [np.ones((1, 1000))]
    P, one = prefix(10), np.ones((1, 10))
    for chosen in [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]:
        three_ordered.append(kron(*[P if i in chosen else one for i in range(3)]))
    assert alpha(np.vstack(three_ordered[1:]), tolerance=1e-5) == pytest.approx(11.706866, rel=3e-5)
    assert alpha(all_ranges(64), tolerance=1e-5) == pytest.approx(6.19328, rel=3e-5)
    assert alpha(prefix(256)) == pytest.approx(PREFIX[256], rel=3e-6)


@pytest.mark.parametrize("W", [prefix(64), all_ranges(32), identity_and_sum(40)])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6, 1e-8])
def test_every_tolerance_is_reached(W, tolerance):
    plan = fp.design(fp.Workload.from_matrix(W, variance=1.0), tolerance=tolerance)
    assert plan.gap <= tolerance
    plan.verify()


@pytest.mark.parametrize(("name", "W", "c"), small(), ids=[s[0] for s in small()])
def test_default_gap_is_reached_and_every_claim_verifies(name, W, c):
    plan = fp.design(fp.Workload.from_matrix(W, variance=c))
    assert plan.gap <= 2e-4
    assert plan.scale == 1.0
    assert (plan.variances["queries"] <= c).all()
    plan.verify()


def test_scaling_queries_and_targets_together_changes_nothing():
    base = alpha(prefix(12))
    for factor in (1e-6, 1e6):
        assert alpha(prefix(12) * factor, factor**2) == pytest.approx(base, rel=3e-6)


def test_order_of_rows_and_cells_does_not_matter():
    rng = np.random.default_rng(1)
    W, c = all_ranges(6), rng.uniform(1, 3, 21)
    rows, cells = rng.permutation(21), rng.permutation(6)
    assert alpha(W[rows][:, cells], c[rows]) == pytest.approx(alpha(W, c), rel=4e-6)


def _random_ranges(d):
    rng = np.random.default_rng(20261120)
    ends, cell = np.sort(rng.integers(0, d, (2 * d, 2)), axis=1), np.arange(d)
    W = ((ends[:, :1] <= cell) & (cell <= ends[:, 1:])).astype(float)
    return W, rng.uniform(1, 10, 2 * d)


def _two_way_prefixes():
    """One- and two-way prefixes of three attributes of ten, with the total: 331 x 1000."""
    P, one = prefix(10), np.ones((1, 10))
    chosen = [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    W = np.vstack([kron(*[P if i in ways else one for i in range(3)]) for ways in chosen])
    return W, np.ones(len(W))


FIXED = {
    "prefix 64": lambda: (prefix(64), np.ones(64)),
    "prefix 256": lambda: (prefix(256), np.ones(256)),
    "identity and sum 64": lambda: (identity_and_sum(64), np.ones(65)),
    "all ranges 32": lambda: (all_ranges(32), np.ones(528)),
    "all ranges 64": lambda: (all_ranges(64), np.ones(2080)),
    "marginals 8": lambda: (marginals([8] * 3, 2)[1:], np.ones(216)),
    "random ranges 64": lambda: _random_ranges(64),
    "random ranges 256": lambda: _random_ranges(256),
    "two-way prefixes": _two_way_prefixes,
}


@pytest.mark.parametrize(
    ("name", "tolerance", "most"),
    [
        ("prefix 64", 1e-4, 15),
        ("prefix 64", 1e-8, 28),
        ("prefix 256", 1e-4, 19),
        ("identity and sum 64", 1e-4, 8),
        ("all ranges 32", 1e-4, 60),
        ("all ranges 64", 1e-6, 240),
        pytest.param("all ranges 64", 1e-8, 540, marks=pytest.mark.slow),
        ("marginals 8", 1e-4, 6),
        ("random ranges 64", 1e-4, 28),
        ("random ranges 256", 1e-4, 29),
        pytest.param("two-way prefixes", 1e-6, 115, marks=pytest.mark.slow),
        pytest.param("two-way prefixes", 1e-8, 290, marks=pytest.mark.long),
    ],
)
def test_iterations_do_not_regress(name, tolerance, most):
    """Iterations repeat where seconds do not; rounding may move them by a sixth."""
    problem, _ = reduce_matrix(*FIXED[name]())
    found = dual.solve_dual(problem, tolerance=tolerance, max_iterations=most)
    assert found.gap <= tolerance


def test_extrapolation_that_leads_astray_is_taken_back():
    """A plain workload on which unguarded Anderson acceleration cycles for ever."""
    W = np.array(
        [
            [0, 0, 0, 0, 0, 0],
            [0, 0.75, 0.875, 0.375, -0.75, 0.375],
            [0, 0.125, 0.125, -0.875, -0.125, -0.125],
            [0, 0.125, -1, -0.125, 0.25, -0.875],
        ]
    )
    c = np.array([3.3692685053429288, 1.3159497724275155, 4.981022955736772, 6.138100409312066])
    for tolerance in (1e-3, 1e-4, 1e-6, 1e-7):
        plan = fp.design(fp.Workload.from_matrix(W, variance=c), tolerance=tolerance, refine=False)
        assert plan.gap <= tolerance
        assert plan.proof.iterations <= 60


@pytest.mark.parametrize("factor", [1e-29, 1e-9, 1.0, 1e6, 1e29])
def test_extreme_targets_are_designed_or_refused_but_never_hang(factor):
    for budget in ({}, {"rho": 1e-30}, {"rho": 1e12}):
        workload = fp.Workload.from_matrix(prefix(3), variance=factor**2)
        if budget or not 1e-5 < factor < 1e9:
            with pytest.raises(fp.BudgetError, match="noise"):
                fp.design(workload, **budget)
        else:
            plan = fp.design(workload)
            plan.verify()
            weak = (factor < 1, factor < 1)
            assert ("warning" in plan.summary(), "warning" in plan._repr_html_()) == weak


@pytest.mark.parametrize(
    ("W", "c", "budget"),
    [
        ([[3e10, 0, 2e10, 1e10], [-2e10, -2e10, -3e10, 1e10]], [1e6, 1e-59], {}),
        ([[1e30, 1e-30], [1e-30, 1e30]], [1e-60, 1e60], {}),
    ],
)
def test_what_floats_cannot_hold_is_said_so(W, c, budget):
    with pytest.raises(fp.FitplugError):
        fp.design(fp.Workload.from_matrix(W, variance=c), tolerance=0.99, **budget)


def test_coefficients_fifty_orders_apart_are_designed_all_the_same():
    W = np.array([[-1e10, 0, -1e-20], [-3e10, -3e29, -3e-20]])
    fp.design(fp.Workload.from_matrix(W, variance=[1e60, 1.0]), rho=1.2e-4).verify()


def test_same_input_gives_the_same_plan():
    workload = fp.Workload.from_matrix(all_ranges(8), std=2.0)
    assert fp.design(workload).digest == fp.design(workload).digest


def test_stopping_early_still_gives_a_valid_plan_that_says_so():
    plan = fp.design(fp.Workload.from_matrix(all_ranges(16), variance=1.0), max_iterations=2)
    assert plan.gap > 2e-4
    assert "max_iterations" in plan.status
    plan.verify()


def test_the_certificate_speaks_of_gaussian_noise():
    workload = fp.Workload.from_matrix(prefix(8), variance=1.0)
    plain, hybrid = fp.design(workload), fp.design(workload, total_error_weight=0.1)
    start = "no mechanism with Gaussian noise that meets these targets has a rho below "
    assert plain.certificate.startswith(start)
    assert float(plain.certificate.removeprefix(start)) <= plain.rho_lower_bound
    assert "no mechanism with Gaussian noise is below" in hybrid.certificate


def test_progress_is_reported():
    seen = []
    fp.design(
        fp.Workload.from_matrix(prefix(8), variance=1.0),
        progress=lambda iteration, gap: seen.append((iteration, gap)),
    )
    assert [i for i, _ in seen] == list(range(1, len(seen) + 1))
    assert seen[-1][1] <= 2e-4


@pytest.mark.parametrize("W", [prefix(8), identity_and_sum(6), marginals([2, 3], 1)])
def test_the_papers_solver_makes_plans_that_verify_too(W):
    workload = fp.Workload.from_matrix(W, std=2.0)
    theirs, ours = fp.design(workload, solver="sm2"), fp.design(workload)
    theirs.verify()
    assert theirs.gap <= 2e-4
    assert theirs.lower_bound <= ours.privacy_cost
    assert ours.lower_bound <= theirs.privacy_cost


def test_an_unknown_solver_is_named():
    with pytest.raises(fp.InputError, match="Did you mean 'sm2'"):
        fp.design(fp.Workload.from_matrix(prefix(2), std=1.0), solver="sm3")


class TestBudget:
    W = identity_and_sum(6)

    @pytest.mark.parametrize("rho", [1e-6, 0.1, 0.5, 20.0])
    def test_rho_is_spent_and_never_exceeded(self, rho):
        free = fp.design(fp.Workload.from_matrix(self.W, variance=3.0))
        plan = fp.design(fp.Workload.from_matrix(self.W, variance=3.0), rho=rho)
        assert rho * (1 - 1e-12) <= plan.rho <= rho
        assert plan.scale == pytest.approx(free.rho / rho, rel=1e-3)
        assert (plan.variances["queries"] <= plan.scale * 3.0).all()
        plan.verify()

    def test_epsilon_and_delta(self):
        plan = fp.design(fp.Workload.from_matrix(self.W, variance=3.0), epsilon=1.0, delta=1e-9)
        assert plan.epsilon(1e-9) == pytest.approx(1.0, rel=1e-9)
        assert plan.epsilon(1e-9) <= 1.0
        assert plan.delta(1.0) <= 1e-9

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"rho": 0.0}, "rho must be a number .* not 0.0"),
            ({"rho": math.nan}, "rho must be a number .* not nan"),
            ({"rho": math.inf}, "rho must be a number .* not inf"),
            ({"epsilon": 1.0}, "epsilon and delta must be given together"),
            ({"delta": 1e-9}, "epsilon and delta must be given together"),
            ({"rho": 1.0, "epsilon": 1.0, "delta": 1e-9}, "not both"),
            ({"epsilon": 1.0, "delta": 0.0}, "delta must be above 0 and below 1, not 0.0"),
            ({"epsilon": 1.0, "delta": 1.0}, "delta must be above 0 and below 1, not 1.0"),
            ({"epsilon": -1.0, "delta": 0.1}, "epsilon must be a number .* not -1.0"),
            ({"tolerance": 0.0}, "tolerance"),
            ({"tolerance": "small"}, "tolerance"),
            ({"max_iterations": 0}, "max_iterations"),
            ({"rho": 10**400}, "rho"),
            ({"epsilon": 1e308, "delta": 0.1}, "epsilon"),
            ({"epsilon": 1.0, "delta": 5e-324}, "delta"),
        ],
    )
    def test_bad_budgets(self, given, says):
        with pytest.raises(fp.BudgetError, match=says):
            fp.design(fp.Workload.from_matrix(self.W, variance=3.0), **given)


class TestCertificate:
    @given(seed=st.integers(0, 2**32), m=st.integers(1, 6), d=st.integers(1, 6))
    def test_never_above_the_cost_of_any_mechanism(self, seed, m, d):
        """Weak duality: any (p, q) against any covariance, neither of them good."""
        rng = np.random.default_rng(seed)
        W = rng.integers(-2, 3, (m, d)).astype(float) * 10.0 ** rng.integers(-6, 7)
        c = 10.0 ** rng.uniform(-3, 3, m)
        p, q = rng.exponential(size=d) ** 3, rng.exponential(size=m) ** 3
        root = rng.normal(size=(d, d)) + 2 * np.eye(d)
        covariance = root @ root.T
        cost = math.sqrt(
            np.diag(np.linalg.inv(covariance)).max()
            * (np.einsum("ij,jk,ik->i", W, covariance, W) / c).max()
        )
        assert certify_dense_bound(W, c, p, q) <= cost * (1 + 1e-9)

    @pytest.mark.parametrize("factor", [1 / 3, 1e-200, 1e-308, 1e200])
    def test_scale_of_the_weights_does_not_matter(self, factor):
        W, c = prefix(5), np.ones(5)
        p, q = np.linspace(1, 2, 5), np.linspace(2, 1, 5)
        scaled = certify_dense_bound(W, c, p * factor, q * factor)
        assert scaled == pytest.approx(certify_dense_bound(W, c, p, q))

    @pytest.mark.parametrize("bad", [np.array([-1.0, 2.0]), np.array([np.nan, 1.0]), np.zeros(2)])
    def test_refuses_weights_that_prove_nothing(self, bad):
        with pytest.raises(ValueError, match=errors.BAD_PROOF):
            certify_dense_bound(np.eye(2), np.ones(2), bad, np.ones(2))


class TestRefusals:
    def test_rank_that_cannot_be_decided(self):
        almost_equal = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-11]])
        with pytest.raises(fp.WorkloadError, match="not exactly, linear combinations"):
            fp.design(fp.Workload.from_matrix(almost_equal, std=1.0))

    @pytest.mark.parametrize("size", [1e-200, 1e-31, 1e31, 1e200])
    def test_coefficients_out_of_range(self, size):
        with pytest.raises(fp.WorkloadError, match="coefficients"):
            fp.design(fp.Workload.from_matrix([[1.0, size]], std=1.0))

    @pytest.mark.parametrize("variance", [1e-320, 1e-61, 1e61, 1e300])
    def test_targets_out_of_range(self, variance):
        with pytest.raises(fp.WorkloadError, match="variance must lie between"):
            fp.Workload.from_matrix([[1.0]], variance=variance)

    @pytest.mark.parametrize(
        ("asked", "says"),
        [
            ("identity", "'id' has 35,184,372,088,833 answers; .* coarser bins"),
            ("prefix", "'id prefix' has 35,184,372,088,833 answers; .* coarser bins"),
            (fp.ranges([(5, 7)]), "queries on id need 35,184,372,088,833 coeff.* coarser bins"),
        ],
    )
    @pytest.mark.parametrize("solver", ["dual", "sm2"])
    def test_a_domain_that_no_array_holds_is_refused_before_memory_is_asked_for(
        self, asked, says, solver
    ):
        domain = fp.Domain({"id": fp.Integers(0, 2**45)})
        workload = fp.Workload(domain, [fp.queries({"id": asked}, std=1.0)])
        with pytest.raises(fp.WorkloadError, match=says):
            fp.design(workload, solver=solver)

    def test_a_workload_of_zeros(self):
        with pytest.raises(fp.WorkloadError, match="zero"):
            fp.design(fp.Workload.from_matrix(np.zeros((2, 3)), std=1.0))

    FOUR = fp.Domain({f"a{i}": fp.Integers(0, 999) for i in range(4)})

    @pytest.mark.parametrize(
        ("asked", "told_apart"),
        [
            ({"kind": "prefix", "budgets": np.ones((1, 1, 1, 1))}, "a0, a1, a2, a3"),
            ({"budgets": np.linspace(1, 2, 1000)[:, None, None, None], "solver": "sm2"},
             "a0, a1, a2, a3"),
        ],
    )  # fmt: skip
    def test_too_many_cells_that_are_told_apart(self, asked, told_apart):
        kind, std = asked.get("kind", "identity"), asked.get("std", 1.0)
        groups = [fp.queries({f"a{i}": kind}, std=std, name=f"g{i}") for i in range(4)]
        with pytest.raises(
            fp.WorkloadError, match=f"{told_apart} (would take|need) .*; the limit is"
        ):
            fp.design(
                fp.Workload(self.FOUR, groups),
                cell_budgets=asked.get("budgets"),
                solver=asked.get("solver", "dual"),
            )

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            ({"cell_budgets": np.ones((1, 1, 1, 1))}, "cell_budgets"),
            ({"total_error_weight": 0.5}, "total_error_weight"),
            ({"solver": "sm2"}, 'solver="sm2"'),
            ({"solver": "sm2", "total_error_weight": 0.5}, 'solver="sm2" and total_error_weight'),
        ],
    )
    def test_arguments_that_make_a_workload_too_large_are_named(self, arguments, named):
        workload = fp.Workload(
            self.FOUR, [fp.queries({f"a{i}": "prefix"}, std=1.0, name=f"g{i}") for i in range(4)]
        )
        with pytest.raises(fp.WorkloadError, match=rf", or remove {named}\."):
            fp.design(workload, **arguments)

    def test_an_argument_is_not_named_where_it_does_not_matter(self):
        workload = fp.Workload(
            fp.Domain({"id": fp.Integers(0, 2**45)}), [fp.queries({"id": "prefix"}, std=1.0)]
        )
        with pytest.raises(fp.WorkloadError) as raised:
            fp.design(workload, solver="sm2")
        assert "leave out" not in str(raised.value)

    def test_cells_that_symmetry_makes_alike_are_never_too_many(self):
        workload = fp.Workload(self.FOUR, [fp.marginal(f"a{i}", std=1.0) for i in range(4)])
        plan = fp.design(workload)
        plan.verify()
        assert plan.gap <= 2e-4
        # The share of the total that each table tells, and the contrasts of four.
        assert plan.strategy.size == 1 + 4 * 1000

    def test_tables_within_a_table_beyond_count(self):
        domain = fp.Domain({f"a{i}": ["x", "y"] for i in range(30)})
        workload = fp.Workload(domain, [fp.marginal(*domain.names, std=1.0, name="all")])
        with pytest.raises(
            fp.WorkloadError, match=r"'all' has 30 attributes.* Use fewer attributes"
        ):
            fp.design(workload)


@pytest.mark.parametrize("W", [prefix(192), all_ranges(40), marginals([8] * 3, 2)[1:]])
def test_memory_is_a_small_multiple_of_what_the_problem_holds(W):
    """Of (m + d) k + k^2 numbers; NumPy tells tracemalloc of its arrays."""
    workload = fp.Workload.from_matrix(W, variance=1.0)
    k = np.linalg.matrix_rank(W)
    tracemalloc.start()
    try:
        fp.design(workload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * 8 * (sum(W.shape) * k + k * k)
