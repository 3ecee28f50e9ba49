"""Records replaced where all attributes are symmetric: moves are sets of attributes."""

from __future__ import annotations

import itertools
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
from fitplug.families.base.family import NO_FRAME
from fitplug.families.blocks.shape.moves import MoveStructure
from fitplug.families.designs import find_design
from fitplug.solve import Options
from fitplug_opendp.noise_source import NoiseSource, compute_exact_answers
from tests.helpers.dense_pairs import list_ends, tell_all_cells_apart

DOMAIN = fp.Domain(
    {"a": ["1", "2"], "b": ["1", "2", "3"], "c": ["1", "2", "3", "4"], "d": ["1", "2"]}
)
UNITS = [
    fp.ReplaceOne(),
    fp.ReplaceOne(within=("b",)),
    fp.ReplaceOne(within=("a", "b")),
    fp.ReplaceOne(within=("d",)),
]


def random_workload(rng: np.random.Generator) -> fp.Workload:
    """Two or three tables, which always use the attributes c and a."""
    tables = [("a", "c")]
    tables += [
        names
        for size in (0, 1, 2, 3)
        for names in itertools.combinations("abc", size)
        if names != ("a", "c") and rng.random() < 0.3
    ]
    groups = [
        fp.queries(
            dict.fromkeys(names, "identity"), variance=float(rng.uniform(0.3, 3)), name=str(names)
        )
        for names in tables
    ]
    return fp.Workload(DOMAIN, groups)


def analyse(workload: fp.Workload, unit: fp.ReplaceOne) -> MoveStructure:
    structure = analyse_structure(workload, unit=unit)
    assert isinstance(structure, MoveStructure)
    return structure


def list_moves(workload: fp.Workload, unit: fp.ReplaceOne) -> np.ndarray:
    """All e_i - e_j of cells with the same values of what the unit keeps, as columns."""
    names = workload.attributes
    cells = list(itertools.product(*(range(n) for n in get_shape(DOMAIN, names))))
    kept = [i for i, name in enumerate(names) if name in unit.within]
    moves = []
    for (i, x), (j, y) in itertools.permutations(enumerate(cells), 2):
        if all(x[k] == y[k] for k in kept):
            v = np.zeros(len(cells))
            v[i], v[j] = 1, -1
            moves.append(v)
    return np.array(moves).T


@pytest.mark.slow
def test_the_cost_is_that_of_the_costliest_of_all_pairs():
    """Over a thousand random strategies, written out and compared with all pairs of cells."""
    rng = np.random.default_rng(11)
    compared = 0
    while compared < 1000:
        workload, unit = random_workload(rng), UNITS[int(rng.integers(len(UNITS)))]
        structure = analyse(workload, unit)
        moves = list_moves(workload, unit)
        options = Options("dual", 1e-2, 20, refine=False, progress=None)
        strategy = find_design(structure, Objective(), options, 1e-1).strategy
        for _ in range(20):
            (block_set,) = strategy.block_sets
            M = rng.integers(1, 2 ** int(rng.integers(2, 20)), block_set.M.shape)
            drawn = replace(strategy, block_sets=(replace(block_set, M=M),))
            A = build_dense_strategy(drawn)
            squares = ((A @ moves) ** 2).sum(axis=0)
            found = drawn.compute_cost()
            assert found.sensitivity_squared == int(squares.max())
            assert found.column_squares[0] >= found.sensitivity_squared
            compared += 1


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_that_of_all_pairs_of_cells(unit, seed):
    workload = random_workload(np.random.default_rng(seed))
    plan = fp.design(workload, unit=unit)
    plan.verify()
    assert plan.gap <= plan.tolerance
    names = workload.attributes
    symmetric = plan.strategy.structure
    dense = tell_all_cells_apart(workload, unit)
    # The same bound, with the weight of each set of attributes spread over its pairs of cells.
    pairs = dense.pairs
    cells = np.array(list(itertools.product(*(range(n) for n in get_shape(DOMAIN, names)))))
    first, second = list_ends(pairs)
    differ = cells[first] != cells[second]
    position = {int(a): bit for bit, a in enumerate(symmetric.free)}
    number = sum(differ[:, a].astype(int) << bit for a, bit in position.items()) - 1
    p = plan.proof.duals.p[number] / np.bincount(number, minlength=len(plan.proof.duals.p))[number]
    q = np.repeat(plan.proof.duals.q / symmetric.repeats, symmetric.repeats.astype(int))
    spread = certify_bound(dense, Objective(), 1.0, Duals(p, q, NO_FRAME))
    assert spread == pytest.approx(plan.lower_bound, rel=1e-6)
    assert plan.lower_bound <= plan.privacy_cost


def test_one_table_costs_what_single_cells_do():
    """Its cells are d single cells: alpha = 2 (1 - 1/d)."""
    workload = fp.Workload(DOMAIN, [fp.marginal("a", "b", "c", variance=1.0)])
    plan = fp.design(workload, unit=fp.ReplaceOne(), tolerance=1e-5)
    assert plan.privacy_cost**2 == pytest.approx(2 * (1 - 1 / 24), rel=2e-5)
    inside = fp.design(workload, unit=fp.ReplaceOne(within=("b",)), tolerance=1e-5)
    assert inside.privacy_cost**2 == pytest.approx(2 * (1 - 1 / 8), rel=2e-5)


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.slow
def test_releases_are_exact_where_totals_answer_and_unbiased_elsewhere(unit, tmp_path):
    workload = fp.Workload(
        DOMAIN,
        [
            fp.marginal("a", "b", std=2.0, name="ab"),
            fp.marginal("b", "c", std=3.0, name="bc"),
            fp.marginal("b", std=1.0, name="b"),
            fp.total(std=1.0, name="all"),
        ],
    )
    plan = fp.design(workload, unit=unit)
    x = np.random.default_rng(1).integers(0, 500, (2, 3, 4))
    exact = {"ab": x.sum(axis=2), "bc": x.sum(axis=0), "b": x.sum(axis=(0, 2)), "all": x.sum()}
    tables = fp.Tables(DOMAIN, {("a", "b", "c"): x})
    # The sampler is tested once, and not before each draw.
    source, answers = NoiseSource.from_plan(plan), compute_exact_answers(plan, tables)
    drawn = [source.draw(tables, answers, None) for _ in range(200)]
    assert fp.release(plan, tables).rho == drawn[0].rho
    keeps_b = "b" in unit.within
    assert (plan.variances["all"] == 0).all()
    assert (plan.variances["b"] == 0).all() == keeps_b
    assert (plan.variances["ab"] == 0).all() == (unit.within == ("a", "b"))
    for name, truth in exact.items():
        errors = np.array([one.estimates[name] - truth for one in drawn])
        variance = plan.variances[name]
        if not variance.any():
            assert np.abs(errors).max() < 1e-6
            continue
        z = errors.mean(axis=0) / np.sqrt(variance / len(drawn))
        assert np.abs(z).max() < 5
        assert (np.abs(errors.var(axis=0) / variance - 1) < 0.6).all()
    release = drawn[0]
    assert release.estimates["bc"].sum() == pytest.approx(x.sum(), abs=1e-6)
    ones = {"bc": np.ones((3, 4)), "all": np.array(-1.0)}
    assert release.estimate(ones).std == pytest.approx(0, abs=1e-6)
    part = release.estimate({"bc": np.eye(3, 4)})
    spread = np.std([one.estimate({"bc": np.eye(3, 4)}).value for one in drawn])
    assert part.std == pytest.approx(spread, rel=0.25)
    totals = {(): x.sum(), ("b",): x.sum(axis=(0, 2)), ("a", "b"): x.sum(axis=2)}
    public = plan.strategy.structure.public_attributes
    assert public == tuple(name for name in ("a", "b") if name in unit.within)
    np.testing.assert_array_equal(release.public_totals, totals[public])
    plan.save(tmp_path / "plan.npz")
    again = fp.Plan.load(tmp_path / "plan.npz")
    again.verify()
    assert again.digest == plan.digest


def test_ten_attributes_are_designed_for():
    domain = fp.Domain({f"x{i}": [str(j) for j in range(i + 2)] for i in range(10)})
    plan = fp.design(fp.Workload(domain, [fp.marginals(domain, ways=2, std=3.0)]), unit=UNITS[0])
    assert plan.gap <= plan.tolerance
    plan.verify()
