"""Chains where a record is replaced: cost, bound and plans against what is written out."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest

import fitplug as fp
from fitplug import errors
from fitplug.errors import PlanError, WorkloadError
from fitplug.families import Objective, analyse_structure, build_dense_strategy, certify_bound
from fitplug.families.base.family import NO_FRAME, Duals
from fitplug.families.blocks.shape import pairs as pair_blocks
from fitplug.families.blocks.shape.pairs import PairStructure
from fitplug.families.chain.certificate.pairs import PairWeights
from fitplug.families.chain.design.pairs import _evaluate
from fitplug.families.chain.shape.pairs import ChainPairStructure
from fitplug.families.chain.strategy import pairs
from fitplug.families.chain.strategy.chains import place_chain
from fitplug.families.chain.strategy.pairs import find_costliest_pair
from fitplug.workload import Factor, build_rows
from tests.helpers.chains import (
    analyse_chain,
    ask_chain,
    draft_chain,
    invert_triangle,
    make_nested,
    write_out,
)

REPLACED, WITHIN = fp.ReplaceOne(), fp.ReplaceOne(within=("s",))
PREFIX = fp.queries({"x": "prefix"}, variance=1.0)
BY_STATE = fp.queries({"s": "identity", "x": "prefix"}, variance=2.0)
CASES = [(2, 1, 1), (5, 1, 1), (16, 4, 2), (17, 8, 2), (23, 8, 3), (90, 16, 4)]
"""Cells, leaves and sums."""


@pytest.mark.parametrize("case", CASES)
def test_the_cost_of_all_pairs_is_exact(case: tuple[int, int, int]) -> None:
    whole = make_nested(*case, grounded=(1, 0))
    n = whole.n
    assert whole.has_form(n)
    chains, same = [whole.of_block(0), whole.of_block(1)], [7, 12]
    # The second block has a contrast of five cells.
    others = np.array([[7, 12], [7, -3]], dtype=object)
    grams = [A.T @ A for A in map(write_out, chains)]
    costs = [
        sum(
            h * (G[i, i] + G[j, j]) - 2 * f * G[i, j]
            for h, f, G in zip(same, row, grams, strict=True)
        )
        for row in others.tolist()
        for i, j in itertools.product(range(n), repeat=2)
    ]
    assert find_costliest_pair(chains, same, others) == (max(costs), max(costs))


def test_many_pairs_of_equal_cost_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "_MOST_KEPT", 4)
    chain = make_nested(24, 4, 2, grounded=(1,)).of_block(0)
    chain.triangles[:] = np.eye(6, dtype=np.int64)
    chain.weights[:] = 0
    h = 10**12
    upper, attained = find_costliest_pair([chain], [h], np.array([[h]], dtype=object))
    assert attained == 2 * h < upper <= 2 * h * (1 + 1e-9)


@pytest.mark.parametrize("case", CASES)
def test_estimates_and_variances_where_the_total_is_public(case: tuple[int, int, int]) -> None:
    chain = make_nested(*case, grounded=(1,)).of_block(0)
    n = chain.n
    A = write_out(chain)[: n - 1, : n - 1]
    E = invert_triangle(A) if n <= 24 else np.linalg.inv(A.astype(np.float64))
    E = np.concatenate([E, -E.sum(axis=0, keepdims=True)])
    x = np.random.default_rng(1).integers(0, 10**6, n)
    answers = chain.apply(x, 0)
    assert (answers[:-1] == A @ x[:-1]).all()
    assert answers[-1] == 0
    answers[-1] = 999  # noise alone
    estimates = chain.invert(answers.astype(np.float64), 0) + chain.compute_reference() * x.sum()
    assert estimates == pytest.approx(x, abs=1e-5)
    for kind, rows in (("prefix", np.cumsum(E, axis=0)), ("identity", E)):
        exact = [sum(e * e for e in row) for row in rows.tolist()]
        if kind == "prefix":
            exact[-1] = 0
        found = chain.upper_variance_parts(Factor("x", kind, n))[:, 1]
        for upper, least in zip(found.tolist(), exact, strict=True):
            slack = 0 if n <= 24 else 1e-12
            assert least * (1 - slack) <= Fraction(upper) <= least * (1 + Fraction(1, 10**9))
    w = np.random.default_rng(2).normal(size=n)
    exact = w @ E.astype(np.float64)
    found, error = chain.adjoint(w, 0), chain.upper_adjoint_error(w, 0)
    assert np.abs(found[:-1] - exact).max() <= error + 1e-14 * np.abs(exact).max()
    assert found[-1] == 0


def draw_weights(n: int, seed: int) -> np.ndarray:
    """Weights of several orders of magnitude, some of them zero, and of pairs on a side."""
    rng = np.random.default_rng(seed)
    drawn = 10.0 ** (seed % 4 * rng.normal(size=n)) * (rng.random(n) < 0.8)
    drawn[0] = drawn[-1] = 1.0
    is_first = np.arange(n) < rng.integers(1, n)
    same = (0.0, 0.1, 0.7)[seed % 3]
    return np.concatenate([drawn * is_first, drawn * ~is_first, [3 * same, 3 * (1 - same)]])


def list_pairs(p: np.ndarray) -> list[tuple[int, int, float]]:
    """The weights of the pairs of cells i <= j."""
    a, b = p[:-2].reshape(2, -1)
    a, b, (same, across) = a / a.sum(), b / b.sum(), p[-2:] / p[-2:].sum()
    pairs = itertools.combinations_with_replacement(range(len(a)), 2)
    return [
        (i, j, (same * (a[i] * a[j] + b[i] * b[j]) + across * a[i] * b[j]) / (1 + (i == j)))
        for i, j in pairs
    ]


def compute_norm(workload: fp.Workload, kept: bool, p: np.ndarray, q: np.ndarray) -> float:
    """The nuclear norm of the queries on the differences, one after another, over the masses.

    The attribute of the fewest values changes, and others get any value; or all are kept.
    """
    names = workload.attributes
    assert names[-1] == "x"
    sizes = [workload.domain[name].size for name in names]
    others = list(itertools.product(*map(range, sizes[:-1])))
    changed = int(np.argmin(sizes[:-1])) if others != [()] else None
    P = np.zeros((len(others), sizes[-1]) * 2)
    for i, j, weight in list_pairs(p):
        for s, t in itertools.product(range(len(others)), repeat=2):
            if s != t if kept else changed is not None and others[s][changed] == others[t][changed]:
                continue
            pairs = len(others) * (1 if kept or changed is None else 1 - 1 / sizes[changed])
            share = weight / (pairs if kept else pairs * len(others))
            P[s, i, s, i] += share
            P[t, j, t, j] += share
            P[s, i, t, j] -= share
            P[t, j, s, i] -= share
    rows = np.concatenate([build_rows(workload, g, names) for g in workload.groups])
    targets = np.concatenate([g.variances.ravel() for g in workload.groups])
    P = P.reshape(len(others) * sizes[-1], -1)
    root = np.linalg.cholesky(P + 1e-13 * P.trace() * np.eye(len(P)))
    values = np.linalg.svd(np.sqrt(q / targets)[:, None] * rows @ root, compute_uv=False)
    mass = sum(weight for _, _, weight in list_pairs(p))
    return float(values.sum() / np.sqrt(mass * q.sum()))


BOUNDS = {
    "alone": (ask_chain(9, fp.queries({"x": "prefix"}, variance=np.arange(1.0, 10))), REPLACED),
    "two": (ask_chain(2, PREFIX), REPLACED),
    "within": (ask_chain(7, BY_STATE, PREFIX, s=["a", "b", "c"]), WITHIN),
    "moved": (ask_chain(7, BY_STATE, PREFIX, s=["a", "b", "c"]), REPLACED),
    "moved between two": (ask_chain(23, BY_STATE, PREFIX, s=["a", "b"]), REPLACED),
    "moved, by state alone": (
        ask_chain(5, BY_STATE, fp.queries({"s": "identity"}, variance=3.0), s=["a", "b"]),
        REPLACED,
    ),
    "two moved": (
        ask_chain(
            5,
            BY_STATE,
            fp.queries({"r": "identity", "s": "identity", "x": "prefix"}, variance=3.0),
            r=["a", "b", "c"],
            s=["a", "b"],
        ),
        REPLACED,
    ),
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", BOUNDS)
def test_the_bound_is_the_norm_of_all_differences(name: str, seed: int) -> None:
    workload, unit = BOUNDS[name]
    structure = analyse_chain(workload, unit)
    assert isinstance(structure, ChainPairStructure)
    p = draw_weights(structure.n, seed)
    q = np.random.default_rng(seed).uniform(0.1, 1, structure.rows)
    # A row's weight is divided evenly among the queries that it stands for.
    by_group = structure.group_values(q / structure.repeats)
    spread = np.concatenate([by_group[group.name].ravel() for group in workload.groups])
    exact = compute_norm(workload, unit == WITHIN, p, spread)
    found = certify_bound(structure, Objective(), 1.0, Duals(p, q, NO_FRAME))
    # Pairs of a side with more than half of the weight are bounded with less of their effect.
    slack = 0.05 if p[-2] > p[-1] and "moved" in name else 2e-3
    assert exact * (1 - slack) <= found <= exact * (1 + 1e-6)


def test_weights_that_overlap_are_refused() -> None:
    structure = analyse_chain(*BOUNDS["alone"])
    p = np.ones(structure.differences)
    with pytest.raises(ValueError, match=errors.BAD_PROOF):
        certify_bound(structure, Objective(), 1.0, Duals(p, np.ones(structure.rows), NO_FRAME))


@pytest.mark.parametrize("same", [Fraction(0), Fraction(1, 5)])
def test_prefixes_have_the_covariance_of_a_walk_in_rational_arithmetic(same: Fraction) -> None:
    rng = np.random.default_rng(3)
    n, split = 8, 3
    c = [Fraction(int(x), 8) for x in rng.integers(1, 9, n)]
    sides = [sum(c[:split]), sum(c[split:])]
    c = [x / sides[i >= split] for i, x in enumerate(c)]
    d = np.array([x if i < split else -x for i, x in enumerate(c)], dtype=object)
    M = np.zeros((n, n), dtype=object)
    for i, j in itertools.product(range(n), repeat=2):
        M[i, j] = c[i] * c[j] * (same if (i < split) == (j < split) else 1 - same)
    W = np.tril(np.ones((n, n), dtype=object))
    weights = PairWeights.split(
        *(np.where((np.arange(n) < split) == side, np.array(c, dtype=float), 0) for side in (1, 0)),
        float(same),
    )
    for ratio in (Fraction(1), Fraction(0), Fraction(-1, 2), Fraction(-1)):
        P = np.diag(np.array(c, dtype=object)) - ratio * M
        if ratio < 1:
            P = P - ratio * (1 - 2 * same) / 2 * np.outer(d, d)
        steps, V = weights.find_walk(float(ratio))
        k = len(V)
        U = np.cumsum(steps) * V
        walk = [[U[min(i, j)] * V[max(i, j)] for j in range(k)] for i in range(k)]
        exact = (W @ P @ W.T).astype(np.float64)
        assert np.abs(exact[k:]).max(initial=0) < 1e-12
        assert np.array(walk) == pytest.approx(exact[:k, :k], rel=1e-12)


@pytest.mark.parametrize("name", ["alone", "within", "moved"])
def test_the_mean_costs_are_the_derivatives(name: str) -> None:
    workload, unit = BOUNDS[name]
    structure = analyse_chain(workload, unit)
    assert isinstance(structure, ChainPairStructure)
    n, rng = structure.n, np.random.default_rng(4)
    p, q = rng.uniform(0.5, 1, 2 * n), rng.uniform(0.5, 1, structure.rows)

    def sum_up(p: np.ndarray) -> PairWeights:
        return PairWeights.sum_up(*p.reshape(2, -1))

    def compute_square(p: np.ndarray, q: np.ndarray) -> float:
        weights = sum_up(p)
        return _evaluate(structure, weights, q, 0.0).value ** 2 * (weights.alpha @ weights.V)

    dual, found = _evaluate(structure, sum_up(p), q, 0.0), sum_up(p)
    for k, count in enumerate([*found.V[:-1], 0, 0, *found.U[:-1]]):
        if count == 0:
            continue
        step = 1e-4 * np.eye(2 * n)[k]
        slope = (compute_square(p + step, q) - compute_square(p - step, q)) / 2e-4
        assert dual.profile[k] * dual.value == pytest.approx(slope / count, rel=2e-3)
    for k in range(0, structure.rows, 3):
        step = 1e-4 * np.eye(structure.rows)[k]
        slope = (compute_square(p, q + step) - compute_square(p, q - step)) / 2e-4
        mass = found.alpha @ found.V
        assert dual.ratios[k] * dual.value == pytest.approx(slope / mass, rel=2e-3, abs=1e-9)


TIGHT = np.where(np.arange(80) % 10 == 9, 1.0, 100.0)
STATES = [str(i) for i in range(51)]
PLANS = {
    "equal": (ask_chain(80, PREFIX), REPLACED, 0.03),
    "tight": (ask_chain(80, fp.queries({"x": "prefix"}, variance=TIGHT)), REPLACED, 0.03),
    "within": (ask_chain(80, BY_STATE, PREFIX, s=STATES), WITHIN, 0.03),
    "moved": (ask_chain(80, BY_STATE, PREFIX, s=STATES), REPLACED, 0.03),
    "moved between two": (ask_chain(80, BY_STATE, PREFIX, s=["a", "b"]), REPLACED, 0.03),
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.slow
def test_plans_are_between_the_dense_optimum_and_a_little_more(name: str) -> None:
    workload, unit, gap = PLANS[name]
    strategy, cost, bound = draft_chain(workload, unit)
    assert isinstance(analyse_structure(workload, unit=unit), PairStructure)
    dense = fp.design(workload, rho=0.5, unit=unit)
    optimum, above = dense.lower_bound * dense.scale**0.5, dense.privacy_cost * dense.scale**0.5
    assert bound <= above
    assert optimum <= cost <= bound * (1 + gap)
    if strategy.structure.symmetric and workload.domain["s"].size > 2:
        return
    # The integers say the same when they are written out.
    A = build_dense_strategy(strategy)
    G = A.T @ A
    costs = np.add.outer(G.diagonal(), G.diagonal()) - 2 * G
    assert costs.max() == pytest.approx(strategy.sensitivity_squared, rel=1e-12)


@pytest.fixture(scope="module")
def plan() -> fp.Plan:
    rough = fp.queries({"s": "identity", "x": "prefix"}, variance=1e4, name="prefixes")
    total = fp.queries({"s": "identity"}, variance=1e4, name="states")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_blocks, "MOST_PAIR_CELLS", 1)
        workload = ask_chain(300, rough, total, fp.total(variance=1e4), s=["a", "b"])
        return fp.design(workload, unit=WITHIN)


@pytest.mark.slow
def test_a_plan_is_saved_loaded_and_proven(plan: fp.Plan, tmp_path) -> None:
    assert isinstance(plan.strategy.structure, ChainPairStructure)
    assert plan.gap < 0.05
    assert "300 cells of x in a chain" in str(plan.strategy.structure)
    plan.verify()
    plan.save(tmp_path / "plan.npz")
    again = fp.Plan.load(tmp_path / "plan.npz")
    assert again.digest == plan.digest
    again.verify()
    assert not plan.variances["states"].any()
    assert not plan.variances["prefixes"][:, -1].any()
    assert (plan.variances["prefixes"] <= 1e4).all()


@pytest.mark.slow
def test_a_block_that_does_not_measure_what_it_should_is_refused(plan: fp.Plan) -> None:
    strategy = plan.strategy
    strategy.check_form()
    matrix = dataclasses.replace(strategy.chain_matrix, grounded=np.array([1, 0]))
    matrices = place_chain(strategy.structure, matrix)
    with pytest.raises(PlanError, match=r"noisy answers do not fit its queries"):
        dataclasses.replace(strategy, attribute_matrices=matrices).check_form()


@pytest.mark.slow
def test_estimates_are_as_accurate_as_stated_and_totals_exact(plan: fp.Plan) -> None:
    counts = np.random.default_rng(1).integers(0, 100, (2, 300))
    release = fp.release(plan, fp.Tables(plan.domain, {("s", "x"): counts}))
    truth = np.cumsum(counts, axis=1)
    errors = (release.estimates["prefixes"] - truth)[:, :-1]
    stds = np.sqrt(plan.variances["prefixes"][:, :-1])
    assert np.abs(errors / stds).max() < 6
    assert np.abs(errors).max() > 0.5 * stds.max()
    assert release.estimates["states"] == pytest.approx(counts.sum(axis=1))
    assert release.estimates["prefixes"][:, -1] == pytest.approx(counts.sum(axis=1), abs=1e-3)
    # What is above a cell, from the public total.
    above = np.zeros((2, 300))
    above[0, 150] = -1
    found = release.estimate({"prefixes": above, "states": np.array([1.0, 0.0])})
    assert found.std**2 == pytest.approx(plan.variances["prefixes"][0, 150], rel=1e-6)
    assert abs(found.value - counts[0, 151:].sum()) < 6 * found.std


@pytest.mark.parametrize("unit", [REPLACED, WITHIN])
def test_other_values_are_counted_where_they_are_asked(
    unit: fp.ReplaceOne, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_blocks, "MOST_PAIR_CELLS", 1)
    domain = fp.Domain({"s": ["a", "b", "c"], "x": fp.Integers(0, 19, "missing")})
    plan = fp.design(fp.Workload(domain, [PREFIX, BY_STATE, fp.total(variance=1.0)]), unit=unit)
    assert isinstance(plan.strategy.structure, ChainPairStructure)
    plan.verify()
    cells = np.random.default_rng(7).poisson(5.0, (3, 21))
    tables = fp.Tables(domain, {("s", "x"): cells})
    answers = plan.strategy.answer_exactly(tables.marginal)
    release = fp.Release(plan=plan, answers=answers, rho=plan.rho)
    by_state = cells[:, :20].cumsum(axis=1)
    first, second, third = (release.estimates[group.name] for group in plan.workload.groups)
    np.testing.assert_allclose(first, by_state.sum(axis=0), atol=1e-5)
    np.testing.assert_allclose(second, by_state, atol=1e-5)
    np.testing.assert_allclose(third, cells.sum(), atol=1e-5)


def test_which_workloads_are_chains() -> None:
    def choose(*groups, n=3000, unit=REPLACED, **others):
        return type(analyse_structure(ask_chain(n, *groups, **others), unit=unit))

    assert choose(PREFIX) is ChainPairStructure
    assert choose(PREFIX, BY_STATE, s=STATES) is ChainPairStructure
    assert choose(PREFIX, BY_STATE, s=STATES, unit=WITHIN) is ChainPairStructure
    assert choose(PREFIX, n=1000) is PairStructure
    # Single cells are not of the form of the bound.
    with pytest.raises(WorkloadError):
        choose(PREFIX, fp.marginal("x", variance=1.0))
    with pytest.raises(WorkloadError, match=r"limit of ReplaceOne is 63,245"):
        choose(PREFIX, n=70_000)


@pytest.mark.long
@pytest.mark.parametrize("rough", [1.0, 100.0])
def test_ten_thousand_cells(rough: float) -> None:
    variances = 1e6 * np.where(np.arange(10_000) % 10 == 9, 1.0, rough)
    workload = ask_chain(10_000, fp.queries({"x": "prefix"}, variance=variances))
    plan = fp.design(workload, unit=REPLACED)
    assert (1 + plan.gap) ** 0.5 < 1.02
    plan.verify()
