"""Persons on chains with equal periods, against all persons and the dense optimum."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import fitplug as fp
from fitplug.errors import PlanError
from fitplug.families import analysis
from fitplug.families.base.contrasts import build_contrasts
from fitplug.families.base.family import build_strategy
from fitplug.families.chain.certificate.chains import lower_chain_trace
from fitplug.families.chain.shape.chains import ChainPersonStructure
from fitplug.families.chain.strategy.chains import place_chain
from fitplug.families.chain.strategy.period_chains import PeriodChain


def design(n, periods, k, *, sums=False, sex=False):
    """Design for prefixes of n cells in each period by the family of long chains."""
    cells = {"x": fp.Integers(0, n - 1), "m": fp.Integers(1, periods)}
    tables = [fp.queries({"x": "prefix", "m": "identity"}, std=3.0)]
    if sums:
        tables.append(fp.queries({"x": "prefix"}, std=9.0))
    if sex:
        cells["sex"] = fp.Integers(0, 1)
        tables.append(fp.queries({"x": "prefix", "sex": "identity", "m": "identity"}, std=4.0))
    workload = fp.Workload(fp.Domain(cells), tables)
    unit = fp.AddRemove(records=k, once_per="m")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(analysis, "MOST_CELLS", 1)
        plan = fp.design(workload, unit=unit)
    assert isinstance(plan.strategy.structure, ChainPersonStructure)
    return plan


def write_out(strategy):
    """Write out the integer strategy's answers to each record (period, cell), as Python integers.

    All records have the same label of other attributes.
    """
    structure, matrix = strategy.structure, strategy.chain_matrix
    (blocks,) = strategy.block_sets
    others = {
        name: build_contrasts(size)
        for name, size in zip(structure.block_attributes, structure.sizes, strict=True)
        if name != structure.chain
    }
    T, parts = structure.periods.n, []
    for block, multiple in zip(blocks.blocks.tolist(), blocks.M[:, 0, 0].tolist(), strict=True):
        answers = matrix.of_block(block).apply(np.eye(structure.n, dtype=object).astype(object), 0)
        answers = multiple * answers.astype(object)
        names = [a for a in structure.name_attributes(block) if a != structure.chain]
        rows = np.array([1] * T, dtype=object)[None]
        if structure.periods.name in names:
            contrasts = others[structure.periods.name]
            rows = contrasts.apply(np.eye(T, dtype=np.int64), 0).astype(object)
        part = np.einsum("rt,ax->ratx", rows, answers).reshape(-1, T, structure.n)
        for name in names:
            if name != structure.periods.name:
                column = others[name].apply(np.eye(others[name].n, dtype=np.int64), 0)[:, 0]
                part = np.concatenate([int(c) * part for c in column])
        parts.append(part)
    return np.concatenate(parts)


def measure_all_persons(strategy):
    """Compute the largest cost of a person whose records have equal labels elsewhere."""
    A = write_out(strategy)
    periods, n = strategy.structure.periods, strategy.structure.n
    largest = 0
    for r in range(1, periods.most + 1):
        # Periods may be permuted.
        for cells in itertools.combinations_with_replacement(range(n), r):
            column = sum(A[:, t, x] for t, x in enumerate(cells))
            largest = max(largest, int(column @ column))
    return largest


def change_totals(strategy, h):
    """Return the strategy with another further row, proven again."""
    matrix, structure = strategy.chain_matrix, strategy.structure
    totals = np.zeros((len(matrix.triangles), matrix.n), dtype=np.int64)
    totals[structure.periods.partners[0]] = h
    arrays = {k: v for k, v in matrix.arrays_in_file.items() if k != "totals"}
    changed = PeriodChain(**arrays, totals=totals)
    matrices = place_chain(structure, changed)
    return build_strategy(structure, matrices, strategy.block_sets)


@pytest.mark.parametrize(
    ("n", "periods", "k", "options"),
    [
        (9, 2, 2, {}),
        (7, 4, 4, {}),
        (7, 4, 3, {}),
        (6, 5, 2, {"sums": True}),
        (7, 3, 3, {"sex": True}),
    ],
)
def test_no_person_costs_more(n, periods, k, options):
    plan = design(n, periods, k, **options)
    strategy = plan.strategy
    truth = measure_all_persons(strategy)
    assert truth <= strategy.record_square <= truth * (1.1 if periods == 2 else 1.05)
    attained = strategy.compute_attained_square()
    assert attained is None or attained <= truth


def test_no_person_costs_more_for_any_further_row():
    rng = np.random.default_rng(5)
    for periods, k in ((2, 2), (3, 3), (4, 2), (4, 4)):
        strategy = design(6, periods, k).strategy
        size = strategy.chain_matrix.largest_entry
        for h in (
            *(rng.integers(-size, size + 1, (3, 6))),
            *(rng.integers(size // 2, 2 * size, (3, 6))),
            np.full(6, size),
            np.full(6, 3 * size),
            np.eye(6, dtype=np.int64)[2] * size,
        ):
            changed = change_totals(strategy, h)
            truth = measure_all_persons(changed)
            attained = changed.compute_attained_square()
            assert truth <= changed.record_square
            assert attained is None or attained <= truth


def test_a_constant_row_costs_what_its_costliest_number_of_records_does():
    strategy = design(6, 4, 4).strategy
    size = 3 * strategy.chain_matrix.largest_entry
    changed = change_totals(strategy, np.full(6, size))
    assert changed.record_square == pytest.approx(measure_all_persons(changed), rel=1e-4)


@pytest.mark.parametrize(("n", "periods", "k"), [(9, 3, 3), (60, 4, 4), (100, 3, 2)])
def test_variances_are_those_of_the_estimates(n, periods, k):
    strategy = design(n, periods, k).strategy
    matrix = strategy.chain_matrix
    assert isinstance(matrix, PeriodChain)
    block = int(strategy.structure.periods.partners[0])
    view = matrix.of_block(block)
    A = view.apply(np.eye(n, dtype=np.int64), 0).astype(np.float64)
    E = view.invert(np.eye(n + 1), 0)
    assert pytest.approx(np.eye(n), abs=1e-8) == E @ A
    assert pytest.approx(E.T, rel=1e-9, abs=1e-12 * np.abs(E).max()) == view.adjoint(np.eye(n), 0)
    factor = strategy.structure.workload.groups[0].factors[0]
    found = view.upper_variance_parts(factor)[:, 1]
    truth = np.square(np.tril(np.ones((n, n))) @ E).sum(axis=1)
    assert (found >= truth * (1 - 1e-12)).all()
    assert found == pytest.approx(truth, rel=1e-7)
    best = np.tril(np.ones((n, n))) @ np.linalg.inv(A.T @ A) @ np.tril(np.ones((n, n))).T
    assert truth == pytest.approx(np.diag(best), rel=1e-6)


@pytest.mark.parametrize("mean", [1e-3, 0.4, 1.0, 2.0, 40.0])
def test_the_norm_has_any_moment_of_the_total(mean):
    rng = np.random.default_rng(3)
    for n in (1, 2, 6, 50):
        p = rng.random(n) ** 3
        p[rng.random(n) < 0.1] = 0
        p[0] = 1.0
        w, c = rng.random(n) * (rng.random(n) < 0.7), rng.random(n) * (rng.random(n) < 0.3)
        w[-1] = 0.2
        W = np.tril(np.ones((n, n)))
        P = np.diag(p) + (mean - 1) * np.outer(p, p) / p.sum()
        half = np.linalg.cholesky(P + 1e-15 * np.eye(n))
        N = half.T @ (W.T @ (w[:, None] * W) + np.diag(c)) @ half
        truth = np.sqrt(np.maximum(np.linalg.eigvalsh(N), 0)).sum()
        found = lower_chain_trace(p, w, c, mean)
        assert truth * (1 - 1e-3) <= found <= truth * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "periods", "k", "options", "most"),
    [
        (16, 2, 2, {}, 0.06),
        (16, 6, 6, {}, 0.05),
        (16, 5, 3, {}, 0.05),
        (16, 4, 4, {"sums": True}, 0.05),
    ],
)
def test_plan_and_bound_are_near_the_dense_optimum(n, periods, k, options, most):
    plan = design(n, periods, k, **options)
    unit = fp.AddRemove(records=k, once_per="m")
    dense = fp.design(plan.workload, unit=unit)
    assert not isinstance(dense.strategy.structure, ChainPersonStructure)
    assert plan.rho / (1 + plan.gap) <= dense.rho * (1 + 1e-6)
    assert dense.rho / (1 + dense.gap) <= plan.rho <= dense.rho * (1 + most)
    assert plan.gap <= 2 * most


def test_only_the_contrasts_of_periods_have_a_further_row():
    strategy = design(6, 3, 3).strategy
    matrix = strategy.chain_matrix
    for changed in (
        replace(matrix, totals=matrix.totals[::-1].copy()),
        replace(
            matrix,
            sums=matrix.sums,
            triangles=matrix.triangles * np.array([1, 2])[:, None, None, None],
        ),
    ):
        matrices = place_chain(strategy.structure, changed)
        with pytest.raises(PlanError, match="noisy answers do not fit its queries"):
            replace(strategy, attribute_matrices=matrices).check_form()
    for h in (matrix.totals.astype(np.int32), matrix.totals[:1], matrix.totals + 2**41):
        assert not replace(matrix, totals=h).has_form(matrix.n)


@pytest.mark.slow
def test_sums_that_leave_no_common_noise_have_the_plain_plan() -> None:
    domain = fp.Domain({"x": fp.Integers(0, 1499), "m": fp.Integers(1, 5), "s": ["0", "1"]})
    groups = [
        fp.queries({"x": "prefix", "m": "identity"}, std=10.0),
        fp.queries({"x": "prefix", "s": "identity"}, std=20.0),
    ]
    plan = fp.design(fp.Workload(domain, groups), unit=fp.AddRemove(records=3, once_per="m"))
    assert type(plan.strategy.structure).__name__ == "ChainPersonStructure"
    plan.verify()
