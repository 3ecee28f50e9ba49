"""The bound of trees: against singular values in extended precision, and an independent optimum."""

from __future__ import annotations

import warnings

import cvxpy as cp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
from fitplug import errors
from fitplug.certify.nuclear_norms import factor_precision, factor_sum, invert_lower
from fitplug.certify.quadratures import build_quadrature, lower_determinant_scale, lower_trace
from fitplug.families import Objective, analyse_structure
from fitplug.families.base.family import NO_FRAME, Duals, certify_bound
from fitplug.families.tree.certificate import dense_trees, scalar_trees, trees as tree_certifier
from fitplug.families.tree.certificate.block_weights import BlockWeights, average_weights
from fitplug.numeric.rounding import UNIT_ROUNDOFF
from tests.helpers.tree_weights import (
    PLAIN,
    exact,
    random_place,
    random_structure,
    random_weights,
)

EXACT = 1 + 1e-17
STEPS = (2, 3, 4, 5, 6)


def bound(structure, p, q, objective=PLAIN):
    return certify_bound(structure, objective, 1.0, Duals(p, q, NO_FRAME))


def check(rng, *, dense, loss=1e-7, orders=1.0, zeros=0.0, **sizes):
    structure = random_structure(rng, dense=dense, **sizes)
    p = random_weights(rng, structure.differences, orders, zeros)
    q = random_weights(rng, structure.rows, orders, zeros)
    if dense and rng.random() < 0.5:
        p = average_weights(structure, p)
    found, true = bound(structure, p, q), exact(structure, p, q)
    assert true * (1 - loss) <= found <= true * EXACT


@pytest.fixture
def precisely():
    """What mpmath computes has 40 digits."""
    with mpmath.workdps(40):
        yield


@pytest.mark.usefixtures("precisely")
class TestQuadrature:
    @pytest.mark.parametrize("step", STEPS)
    def test_the_scale_is_below_that_of_the_exact_error(self, step):
        h = mpmath.log(2) * step / 2
        excess = 2 * mpmath.nsum(
            lambda k: (
                mpmath.sech(2 * mpmath.pi**2 * k / h)
                / mpmath.sqrt(1 + (4 * mpmath.pi * k / h) ** 2)
            ),
            [1, mpmath.inf],
        )
        true = h / (2 * mpmath.pi) / (1 + excess)
        assert true * (1 - 1e-11 - 1e-3 * excess) <= lower_determinant_scale(step) <= true

    @pytest.mark.parametrize("step", STEPS)
    def test_any_eigenvalue_has_no_more_than_its_square_root(self, step):
        rule = build_quadrature(-12, 12, step)
        assert (rule.weights >= 0).all()
        exponents = step * np.arange(-12, 13)
        for k, pole in zip(exponents.tolist(), rule.poles.tolist(), strict=True):
            assert abs(mpmath.mpf(pole) / mpmath.mpf(2) ** (mpmath.mpf(k) / 2) - 1) <= UNIT_ROUNDOFF
        # Also those far outside of the poles.
        for x in mpmath.mpf(10) ** np.arange(-25, 25):
            terms = zip(rule.weights.tolist(), rule.poles.tolist(), strict=True)
            found = sum(w * mpmath.log1p(x / t) for w, t in terms)
            assert found <= mpmath.sqrt(x)
            if rule.poles[0] * 1e6 < x < rule.poles[-1] / 1e6:
                excess = (
                    float(step * mpmath.log(2) / (4 * mpmath.pi)) / lower_determinant_scale(step)
                    - 1
                )
                assert found >= mpmath.sqrt(x) * (1 - 2 * excess - 3e-9)

    @pytest.mark.parametrize(("step", "tolerance", "most"), [(3, 1e-9, 60), (5, 1e-6, 32)])
    def test_as_many_poles_are_taken_as_are_needed(self, step, tolerance, most):
        x = 10.0 ** np.random.default_rng(0).uniform(-9, 0, 100)

        def evaluate(poles):
            return np.log1p(x / poles[:, None]).sum(axis=1)

        norm = np.sqrt(x).sum()
        given = {"rank": 100.0, "trace": float(x.sum()), "largest": 1.0}
        found, rule = lower_trace(evaluate, **given, tolerance=tolerance, step=step)
        assert len(rule.poles) <= most
        assert norm * (1 - tolerance - 13e-6 * (step == 5) - 4e-9) <= found <= norm

    def test_a_quadrature_that_is_told_wrong_numbers_gives_a_lower_bound(self):
        x = np.array([1e-6, 1e-3, 1.0])
        for rank, trace, largest in [(1.0, 1e-3, 1e-9), (1e9, 1e9, 1e9), (1e-9, 1.0, 1.0)]:
            found, _ = lower_trace(
                lambda t: np.log1p(x / t[:, None]).sum(axis=1),
                rank=rank, trace=trace, largest=largest, tolerance=1e-9,
            )  # fmt: skip
            assert 0 < found <= np.sqrt(x).sum()

    def test_logarithms_are_within_what_is_allowed(self):
        for x in 10.0 ** np.arange(-300, 301, 7.3):
            for found, true in ((np.log1p(x), mpmath.log1p(x)), (np.log(x), mpmath.log(x))):
                assert abs(float(found) - true) <= 8 * UNIT_ROUNDOFF * abs(true)


class TestTreesOfNumbers:
    @settings(max_examples=40)
    @given(st.integers(0, 2**32))
    def test_random_trees(self, seed):
        check(np.random.default_rng(seed), dense=False)

    @settings(max_examples=20)
    @given(st.integers(0, 2**32))
    def test_weights_of_many_orders_of_magnitude_some_of_them_zero(self, seed):
        rng = np.random.default_rng(seed)
        check(rng, dense=False, orders=rng.choice([6.0, 30.0]), zeros=0.3)

    @pytest.mark.long
    @settings(max_examples=500)
    @given(st.integers(0, 2**32), st.booleans())
    def test_500_random_trees(self, seed, dense):
        rng = np.random.default_rng(seed)
        check(rng, dense=dense, most=30, orders=rng.choice([0.1, 1, 3]), zeros=rng.choice([0, 0.2]))

    def test_the_smallest_numbers_do_not_underflow(self):
        rng = np.random.default_rng(0)
        structure = random_structure(rng, dense=False)
        p, q = np.ones(structure.differences), np.ones(structure.rows)
        true = exact(structure, p, q)
        for scale in (1e-300, 1e300):
            assert bound(structure, p * scale, q / scale) == pytest.approx(float(true), rel=1e-8)

    def test_lapack_is_not_asked(self, monkeypatch):
        monkeypatch.setattr(np, "linalg", None)
        rng = np.random.default_rng(1)
        structure = random_structure(rng, dense=False)
        assert bound(structure, np.ones(structure.differences), np.ones(structure.rows)) > 0


class TestTreesOfMatrices:
    @pytest.mark.slow
    @settings(max_examples=15)
    @given(st.integers(0, 2**32))
    def test_random_trees(self, seed):
        check(np.random.default_rng(seed), dense=True, most=8)

    @settings(max_examples=10)
    @given(st.integers(0, 2**32))
    def test_weights_of_many_orders_of_magnitude_some_of_them_zero(self, seed):
        rng = np.random.default_rng(seed)
        check(rng, dense=True, most=8, orders=rng.choice([4.0, 20.0]), zeros=0.3, loss=1e-4)

    def test_totals_below_are_numbers(self):
        """A county's ages, and totals of its tracts: the tracts need no matrices."""
        rng = np.random.default_rng(2)
        leaves = [(f"c{c}", f"c{c}t{t}") for c in range(3) for t in range(3 + c)]
        domain = fp.Domain(
            {"place": fp.Hierarchy(["county", "tract"], leaves), "age": fp.Integers(0, 4)}
        )
        varied = rng.uniform(1, 2, (len(leaves),))
        workload = fp.Workload(domain, [
            fp.queries({"place": "county", "age": "prefix"}, variance=1.0),
            fp.queries({"place": "tract", "age": fp.ranges([(0, 3)])}, variance=varied[:, None]),
            fp.queries({"age": "identity"}, variance=2.0),
        ])  # fmt: skip
        structure = analyse_structure(workload, tree=("place", "merged"))
        p, q = (rng.exponential(size=n) for n in (structure.differences, structure.rows))
        averaged = average_weights(structure, p)
        assert averaged.sum() == pytest.approx(p.sum(), rel=1e-14)
        for own, depth in ((p, 3), (averaged, 2)):
            found = BlockWeights(structure, 0, own.reshape(-1, 5), q / structure.targets)
            assert found.find_totals().depth == depth
            true = exact(structure, own, q)
            assert true * (1 - 1e-7) <= bound(structure, own, q) <= true * EXACT
        # A little less than a product costs a little, and no more.
        less = averaged * (1 - 1e-10 * rng.random(p.shape))
        true = exact(structure, less, q)
        assert true * (1 - 1e-7) <= bound(structure, less, q) <= true * EXACT

    def test_coarse_poles_where_they_are_costly(self, monkeypatch):
        monkeypatch.setattr(tree_certifier, "LARGE_WORK", 0.0)
        for seed in range(5):
            check(np.random.default_rng(seed), dense=True, most=8, loss=2e-5)

    def test_too_many_matrices_are_refused(self, monkeypatch):
        monkeypatch.setattr(tree_certifier, "MOST_WORK", 1.0)
        with pytest.raises(ValueError, match="too much work to check"):
            check(np.random.default_rng(0), dense=True)

    def test_small_stacks_are_the_same(self, monkeypatch):
        rng = np.random.default_rng(3)
        structure = random_structure(rng, dense=True)
        p, q = (random_weights(rng, n) for n in (structure.differences, structure.rows))
        whole = bound(structure, p, q)
        monkeypatch.setattr(dense_trees, "_MOST_NUMBERS", 1)
        assert bound(structure, p, q) == pytest.approx(whole, rel=1e-12)


class TestFactors:
    @settings(max_examples=30)
    @given(st.integers(0, 2**32), st.sampled_from([0.0, 2.0, 5.0]))
    def test_what_they_prove_is_true(self, seed, orders):
        rng = np.random.default_rng(seed)
        r, n, m = rng.integers(1, 5), rng.integers(1, 9), rng.integers(1, 5)
        S = rng.standard_normal((2, r, n)) * 10 ** rng.uniform(-orders, orders, (2, 1, n))
        counts = rng.integers(1, 4, 2).astype(float)
        F = rng.standard_normal((2, m, r))
        with np.errstate(all="ignore"):
            Zt, departure = factor_sum(S, counts)
            P, proven, asked = factor_precision(Zt, F, m)
        for i in np.flatnonzero(np.isfinite(departure)):
            with mpmath.workdps(60):
                Z, own = mpmath.matrix(Zt[i].tolist()).T, mpmath.matrix(S[i].tolist())
                G = float(counts[i]) * ((Z.T * own) * (Z.T * own).T) - mpmath.eye(int(r))
                assert mpmath.norm(G) <= departure[i]
                if not np.isfinite(proven.departure[i]):
                    continue
                factor, rows = mpmath.matrix(P[i].tolist()), mpmath.matrix(F[i].tolist())
                E = factor.T * (Z * Z.T + rows.T * rows) * factor - mpmath.eye(int(r))
                assert mpmath.norm(E) <= proven.departure[i]
                assert sum(E[k, k] for k in range(int(r))) >= proven.trace[i]
                assert mpmath.norm(rows * factor) ** 2 >= asked[i]
                assert float(asked[i]) == pytest.approx(float(mpmath.norm(rows * factor) ** 2))

    def test_a_factor_of_an_indefinite_or_infinite_matrix_proves_nothing(self):
        F = np.array([[[1.0, 0.0], [0.0, 1.0]], [[np.inf, 0.0], [0.0, 1.0]]])
        with np.errstate(all="ignore"):
            _, proven, _ = factor_precision(np.tile(np.eye(2), (2, 1, 1)), F, 2)
            _, departure = factor_sum(np.array([[[1.0, 1.0], [1.0, 1.0]]]), np.ones(1))
        assert np.isfinite(proven.departure).tolist() == [True, False]
        assert np.isinf(departure).all()

    def test_wrong_factors_are_found_out(self, monkeypatch):
        """Whatever LAPACK returns, the bound is no larger."""
        rng = np.random.default_rng(4)
        structure = random_structure(rng, dense=True)
        p, q = (random_weights(rng, n) for n in (structure.differences, structure.rows))
        true = exact(structure, p, q)
        inverse = np.linalg.inv
        for error in (1e-9, 1e-3, 0.5, np.nan):
            monkeypatch.setattr(np.linalg, "inv", lambda x, e=error: inverse(x) * (1 + e))
            assert 0 <= bound(structure, p, q) <= true * EXACT

    @pytest.mark.parametrize("r", [1, 24, 25, 70])
    def test_inverses_of_triangles(self, r):
        rng = np.random.default_rng(r)
        L = np.tril(rng.uniform(-1, 1, (3, r, r))) / r + np.eye(r)
        inverse = invert_lower(L)
        np.testing.assert_allclose(L @ inverse, np.tile(np.eye(r), (3, 1, 1)), atol=1e-12)
        assert (np.triu(inverse, 1) == 0).all()


class TestCertificates:
    @settings(max_examples=8)
    @given(st.integers(0, 2**32), st.booleans())
    def test_budgets_and_the_total_error(self, seed, dense):
        rng = np.random.default_rng(seed)
        structure = random_structure(rng, dense=dense, most=8)
        p, q = (random_weights(rng, n) for n in (structure.differences, structure.rows))
        budgets = rng.uniform(0.5, 2, structure.differences)
        for objective in (Objective(budgets, 0.0), Objective(None, 0.3), Objective(budgets, 2.0)):
            found, true = bound(structure, p, q, objective), exact(structure, p, q, objective)
            assert true * (1 - 1e-7) <= found <= true * EXACT

    @pytest.mark.parametrize("seed", range(4))
    def test_it_is_never_above_an_independent_optimum(self, seed):
        """At the best weights of the dense problem it is the optimum that CVXPY finds."""
        rng = np.random.default_rng(seed)
        place = random_place(rng, 7)
        attributes, asked = {"place": place}, {}
        if seed % 2:
            attributes["age"], asked = fp.Integers(0, 2), {"age": "prefix"}
        groups = [
            fp.queries({"place": level, **(asked if i == 0 else {})}, variance=float(2**i))
            for i, level in enumerate(place.levels)
        ]
        groups.append(fp.total(variance=1.0))
        workload = fp.Workload(fp.Domain(attributes), groups)
        dense = fp.design(workload, tolerance=1e-7, refine=False)
        unmerged = analyse_structure(workload, ("place",), tree=("place",))
        p = np.zeros((unmerged.tree.size, unmerged.cells))
        np.add.at(p, unmerged.tree.leaf_nodes, dense.proof.duals.p.reshape(place.size, -1))
        q = [
            own.reshape(len(level.positions), -1)[level.first].ravel()
            for level, own in zip(
                map(unmerged.find_level, range(len(groups))),
                np.split(dense.proof.duals.q, dense.strategy.structure.row_starts[1:-1]),
                strict=True,
            )
        ]
        found = bound(unmerged, p[unmerged.tree.leaves].ravel(), np.concatenate(q))
        V = workload.matrix() / np.sqrt(workload.targets())[:, None]
        m, d = V.shape
        Z, t = cp.Variable((m + d, m + d), PSD=True), cp.Variable()
        problem = cp.Problem(cp.Minimize(t), [Z[:m, m:] == V, cp.diag(Z) <= t])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate")
            problem.solve(solver=cp.CLARABEL)
        assert float(t.value) * (1 - 1e-6) <= found <= float(t.value) * (1 + 2e-7)

    @pytest.mark.parametrize("wrong", ["nan", "negative", "zero", "short"])
    def test_weights_that_are_none_are_refused(self, wrong):
        structure = random_structure(np.random.default_rng(5), dense=True)
        p, q = np.ones(structure.differences), np.ones(structure.rows)
        bad = {"nan": q * np.nan, "negative": -q, "zero": 0 * q, "short": q[1:]}[wrong]
        with pytest.raises(ValueError, match=errors.BAD_PROOF):
            bound(structure, p, bad)

    def test_the_order_of_a_sweep_covers_the_tree(self):
        for seed in range(20):
            rng = np.random.default_rng(seed)
            tree = random_structure(rng, dense=False, most=40).tree
            order = scalar_trees.order_nodes(tree, np.zeros(1, np.int64), 0, 99)
            assert sorted(order.nodes.tolist()) == list(range(tree.size))
            ones = np.where(np.isin(order.nodes, tree.leaves), order.multiplicities, 0.0)
            cells = sum(len(level) for level in [tree.starts])
            for step in reversed(order.steps):
                ones[step.parents] += ones[step.children].reshape(step.k, -1).sum(axis=0)
            assert ones[0] == cells
