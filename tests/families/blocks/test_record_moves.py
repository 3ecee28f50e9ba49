"""Records replaced along too many attributes to try all sets of them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.families import (
    Duals,
    IntegerStrategy,
    Objective,
    analyse_structure,
    certify_bound,
)
from fitplug.families.base.basis import Basis
from fitplug.families.base.block_sets import BlockSet
from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.family import build_strategy
from fitplug.families.blocks.shape import moves as shape
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.blocks.strategy import differences
from fitplug.families.designs import find_design
from fitplug.neighbours import move_bound, move_costs
from fitplug.solve import Options

OPTIONS = Options("dual", 1e-4, 2000, refine=True, progress=None)


def build_domain(sizes) -> fp.Domain:
    return fp.Domain({f"x{i}": fp.Integers(0, int(n) - 1) for i, n in enumerate(sizes)})


def ask(domain: fp.Domain, tables, variances) -> fp.Workload:
    groups = [
        fp.queries(dict.fromkeys(names, "identity"), variance=float(variance), name="+".join(names))
        for names, variance in zip(tables, variances, strict=True)
    ]
    return fp.Workload(domain, groups)


def draw_workload(rng: np.random.Generator, most: int = 8) -> tuple[fp.Workload, fp.ReplaceOne]:
    """Some or all tables of up to four attributes, some of which the unit may keep."""
    m = int(rng.integers(2, most + 1))
    domain = build_domain(rng.integers(2, 8, m))
    ways = int(rng.integers(1, min(m, 4) + 1))
    part = 1.0 if rng.random() < 0.5 else 0.4
    tables = [
        names
        for k in range(1, ways + 1)
        for names in itertools.combinations(domain.names, k)
        if rng.random() < part
    ]
    within = tuple(name for name in domain.names[1:] if rng.random() < 0.15)
    tables.append(domain.names[:2])
    workload = ask(domain, dict.fromkeys(tables), [1.0] * len(set(tables)))
    return workload, fp.ReplaceOne(within=within)


def analyse(workload: fp.Workload, unit: fp.ReplaceOne) -> MoveStructure:
    structure = analyse_structure(workload, unit=unit)
    assert type(structure) is MoveStructure
    return structure


@contextlib.contextmanager
def too_many_to_list() -> Iterator[None]:
    """All moves are tried for no number of attributes, and none has a weight unless it is named."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (move_costs, move_bound, shape, differences):
            patch.setattr(module, "MOST_LISTED", 0)
        patch.setattr(shape, "MOST_FREE", 0)
        yield


def draw_integers(rng: np.random.Generator, count: int) -> np.ndarray:
    """Numbers of one size, of some sizes or of very different sizes."""
    kind = int(rng.integers(3))
    if kind == 0:
        return rng.integers(1, 2 ** int(rng.integers(1, 30)), count)
    if kind == 1:
        return np.exp(rng.normal(10, 4 * rng.random(), count)).astype(np.int64) + 1
    return np.rint(2**15 * (1 + 0.2 * rng.random(count))).astype(np.int64)


def build(structure, numbers) -> IntegerStrategy:
    cell = Basis("cells", np.zeros(1, dtype=np.int64), np.ones(1))
    own = BlockSet(structure.noisy_blocks, cell, numbers[:, None, None])
    return build_strategy(structure, make_contrasts(structure), (own,))


def compare_costs(seed: int, strategies: int) -> list[float]:
    """Compare the bound with the costliest of all moves, for random integers."""
    rng, ratios = np.random.default_rng(seed), []
    while len(ratios) < strategies:
        structure = analyse(*draw_workload(rng))
        for _ in range(5):
            numbers = draw_integers(rng, len(structure.noisy_blocks))
            truth = build(structure, numbers)
            with too_many_to_list():
                strategy = build(structure, numbers)
                overstatement = strategy.upper_overstatement()
            above = strategy.sensitivity_squared / truth.sensitivity_squared
            assert strategy.sensitivity_squared >= truth.sensitivity_squared
            assert strategy.max_records == truth.max_records
            assert strategy.column_squares[0] >= strategy.sensitivity_squared
            # What it may be above the truth by is stated for the sensitivity.
            assert (1 + overstatement) ** 2 >= above * (1 - 1e-15)
            assert truth.upper_overstatement() == 0
            ratios.append(above - 1)
    return ratios


@pytest.mark.slow
def test_the_cost_is_never_below_that_of_any_move():
    ratios = compare_costs(5, 30)
    assert np.median(ratios) < 0.05


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_the_cost_is_never_below_that_of_any_move_of_a_thousand_strategies(seed):
    ratios = compare_costs(seed, 200)
    assert np.median(ratios) < 0.05


def test_equal_targets_lose_next_to_nothing():
    """Where integers are equal by symmetry, or nearly so, the bound is nearly the cost."""
    rng = np.random.default_rng(3)
    domain = build_domain([2, 3, 3, 5, 8, 9, 12, 20, 20])
    tables = [t for k in (1, 2, 3) for t in itertools.combinations(domain.names, k)]
    structure = analyse(ask(domain, tables, [4.0] * len(tables)), fp.ReplaceOne())
    blocks = structure.blocks[structure.noisy_blocks]
    counts = (blocks >= 0).sum(axis=1)
    numbers = (
        2**20 * np.array([0, 9, 3, 1])[counts] * (1 + 1e-3 * rng.random(len(counts)))
    ).astype(np.int64)
    truth = build(structure, numbers).sensitivity_squared
    with too_many_to_list():
        bound = build(structure, numbers).sensitivity_squared
    assert truth <= bound <= truth * 1.002


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_that_of_all_moves(seed):
    rng = np.random.default_rng(seed)
    workload, unit = draw_workload(rng, 6)
    names = [group.attributes for group in workload.groups]
    workload = ask(workload.domain, names, rng.uniform(0.3, 3, len(names)))
    listed = analyse(workload, unit)
    exact = find_design(listed, Objective(), OPTIONS, 1e-6)
    with too_many_to_list():
        found = find_design(analyse(workload, unit), Objective(), OPTIONS, 1e-6)
    structure = found.strategy.structure
    assert len(structure.named) < listed.differences or listed.differences < 8
    bounds = [
        certify_bound(own, Objective(), 1.0, design.duals)
        for own, design in ((listed, exact), (structure, found))
    ]
    assert bounds[1] == pytest.approx(bounds[0], rel=2e-4)
    # Weights of named moves are weights of all of them, and prove the same.
    p = np.zeros(listed.differences)
    p[structure.moves @ (1 << np.arange(len(listed.free))) - 1] = found.duals.p
    spread = certify_bound(listed, Objective(), 1.0, Duals(p, found.duals.q, found.duals.frame))
    assert spread == pytest.approx(bounds[1], rel=1e-12)
    # The covariance that was found is nearly the best for all moves too.
    truth = replace(found.strategy, structure=listed).compute_cost().sensitivity_squared
    variances = found.strategy.unit_variances / listed.targets
    assert bounds[0] <= np.sqrt(truth * variances.max()) <= bounds[0] * (1 + 5e-4)


def test_thirty_attributes_are_designed_for(tmp_path):
    rng = np.random.default_rng(0)
    domain = build_domain(rng.integers(2, 21, 30))
    workload = fp.Workload(domain, [fp.marginals(domain, ways=2, std=3.0)])
    unit = fp.ReplaceOne(within=("x0",))
    plan = fp.design(workload, unit=unit)
    plan.verify()
    assert plan.strategy.structure.public_attributes == ("x0",)
    assert plan.gap < 0.004
    assert plan.overstatement < plan.gap
    assert plan.rho < fp.design(workload, unit=fp.AddRemove(records=2)).rho * 0.52
    path = tmp_path / "plan.npz"
    plan.save(path)
    again = fp.Plan.load(path)
    again.verify()
    assert again.digest == plan.digest
    assert again.gap == plan.gap
    np.testing.assert_array_equal(again.strategy.structure.moves, plan.strategy.structure.moves)
    sets = plan.strategy.structure.named
    for labels in (sets.labels[:, :, 1:], sets.labels * 2):
        structure = replace(plan.strategy.structure, named=replace(sets, labels=labels))
        changed = replace(plan, strategy=replace(plan.strategy, structure=structure))
        with pytest.raises(fp.PlanError, match="prove the plan's lower bound do not fit"):
            changed.verify()
    claimed = replace(plan.strategy, sensitivity_squared=plan.strategy.sensitivity_squared - 1)
    with pytest.raises(fp.PlanError, match="privacy cost"):
        replace(plan, strategy=claimed).verify()


def test_moves_along_eighteen_attributes_are_tried():
    """No bound is needed, and the plan is as near to the least cost as with all weights."""
    domain = build_domain([2, 3, 4] * 6)
    workload = ask(
        domain, list(itertools.combinations(domain.names, 2)), itertools.repeat(9.0, 153)
    )
    plan = fp.design(workload, unit=fp.ReplaceOne())
    plan.verify()
    assert plan.overstatement == 0
    assert plan.gap <= plan.tolerance
    structure = plan.strategy.structure
    assert isinstance(structure, MoveStructure)
    assert len(structure.moves) < 1000
    # The costliest is none of those that the design has tried.
    (block_set,) = plan.strategy.block_sets
    M = block_set.M[:, 0, 0].astype(object)
    contrasts = make_contrasts(structure)
    rng, costs = np.random.default_rng(0), []
    for move in [np.ones(18, dtype=bool), *(rng.random((200, 18)) < 0.5)]:
        cost = 0
        for m, names in zip(M, structure.blocks[block_set.blocks].tolist(), strict=True):
            square, product = 1, 1
            for a in (a for a in names if a >= 0):
                square *= contrasts[a].column_square
                other = -(contrasts[a].precision // contrasts[a].n)
                product *= other if move[a] else contrasts[a].column_square
            cost += 2 * (square - product) * m * m
        costs.append(cost)
    assert max(costs) <= plan.strategy.sensitivity_squared


def test_releases_keep_the_public_totals():
    domain = build_domain([2, 3] * 8)
    workload = fp.Workload(domain, [fp.marginals(domain, ways=2, std=2.0)])
    plan = fp.design(workload, unit=fp.ReplaceOne(within=("x1",)), tolerance=0.05)
    assert isinstance(plan.strategy.structure, MoveStructure)
    cells = np.random.default_rng(2).integers(0, domain.shape, (4000, 16))
    tables = {
        names: np.histogramdd(
            cells[:, [domain.names.index(name) for name in names]],
            [np.arange(n + 1) - 0.5 for n in get_shape(domain, names)],
        )[0].astype(np.int64)
        for names in plan.tables
    }
    release = fp.release(plan, fp.Tables(domain, tables))
    own = np.bincount(cells[:, 1], minlength=3)
    np.testing.assert_array_equal(release.public_totals, own)
    np.testing.assert_allclose(release.estimates["x1"], own, atol=1e-6)
    errors = release.estimates["x0 x x2"] - tables["x0", "x2"]
    assert np.abs(errors).max() < 6 * 2.0
    np.testing.assert_allclose(release.estimates["x0 x x1"].sum(axis=0), own, atol=1e-6)


def test_queries_that_public_totals_answer_are_refused_alone():
    domain = build_domain([2] * 20)
    workload = fp.Workload(domain, [fp.marginal("x0", std=1.0)])
    with pytest.raises(fp.WorkloadError, match="all queries ask for totals"):
        fp.design(workload, unit=fp.ReplaceOne(within=("x0",)))
