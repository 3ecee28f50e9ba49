"""Records replaced in the product family, whose cells are too many to consider all pairs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.families import Objective, analyse_structure, build_dense_strategy, certify_bound
from fitplug.families.base.attribute_matrices import DenseMatrix
from fitplug.families.base.family import build_strategy
from fitplug.families.blocks.shape import pairs as blocks
from fitplug.families.designs import find_design
from fitplug.families.product.certificate.product_bound import lower_product_cost
from fitplug.families.product.certificate.products import ProductPairCertifier
from fitplug.families.product.shape import products as shape
from fitplug.families.product.shape.products import ProductPairStructure
from fitplug.families.product.strategy import pairs as strategies
from fitplug.families.product.strategy.pairs import cover_triples
from fitplug.families.product.strategy.variants import VariantMatrix
from fitplug.solve import Options

OPTIONS = Options("dual", 1e-3, 100, refine=True, progress=None)

DOMAIN = fp.Domain(
    {"age": fp.Integers(0, 5), "sex": ["1", "2"], "size": fp.Integers(0, 3), "st": ["1", "2", "3"]}
)
WORKLOAD = fp.Workload(
    DOMAIN,
    [
        fp.queries({"age": "prefix", "sex": "identity"}, std=2.0),
        fp.queries({"size": "prefix", "st": "identity"}, std=3.0),
        fp.queries({"age": "prefix", "size": "identity"}, std=5.0),
        fp.marginal("st", std=2.0),
    ],
)
UNITS = [
    fp.ReplaceOne(),
    fp.ReplaceOne(within=("st",)),
    fp.ReplaceOne(within=("age",)),
    fp.ReplaceOne(within=("sex", "size")),
]


def split(workload: fp.Workload, unit: fp.ReplaceOne) -> ProductPairStructure:
    found = analyse_structure(workload, family=True, unit=unit)
    assert isinstance(found, ProductPairStructure)
    return found


@cache
def draft_for(unit: fp.ReplaceOne):
    """The structure of the workload, and its draft."""
    structure = split(WORKLOAD, unit)
    return structure, find_design(structure, Objective(), OPTIONS, 1e-2)


def find_costliest_pair(A: np.ndarray, unit: fp.ReplaceOne) -> float:
    """The largest |a_i - a_j|^2 of all pairs of cells between which a record may move."""
    cells = np.array(list(itertools.product(*map(range, DOMAIN.shape))))
    kept = [i for i, name in enumerate(DOMAIN.names) if name in unit.within]
    gram = A.T @ A
    squares = np.diag(gram)
    costs = squares[:, None] + squares[None, :] - 2 * gram
    return float(costs[(cells[:, None, kept] == cells[None, :, kept]).all(axis=2)].max())


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_the_cost_is_not_below_that_of_any_pair(unit):
    compare_costs(unit, 8, 26)


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_the_cost_is_not_below_that_of_any_pair_for_a_thousand_strategies(unit):
    compare_costs(unit, 9, 260)


def compare_costs(unit: fp.ReplaceOne, seed: int, strategies: int) -> None:
    """Compare the costs of random strategies with those of all pairs of cells."""
    structure, draft = draft_for(unit)
    rng = np.random.default_rng(seed)
    (own,) = draft.strategy.block_sets
    matrices = draft.strategy.attribute_matrices
    assert any(isinstance(one, VariantMatrix) for one in matrices)
    for trial in range(strategies):
        strategy = draft.strategy
        if trial:
            most = 2 ** int(rng.integers(2, 12))
            multiples = tuple(rng.integers(1, most, one.shape) for one in own.multiples)
            size = trial % 40 + 1
            changed = tuple(
                replace(one, matrices=tuple(change(part, rng, size) for part in one.matrices))
                if isinstance(one, VariantMatrix)
                else change(one, rng, size)
                for one in matrices
            )
            strategy = build_strategy(structure, changed, (replace(own, multiples=multiples),))
        truth = find_costliest_pair(build_dense_strategy(strategy), unit)
        assert strategy.sensitivity_squared >= truth * (1 - 1e-12)
        above = (1 + strategy.upper_overstatement()) ** 2
        assert strategy.sensitivity_squared <= truth * above * (1 + 1e-12)
        assert (strategy.column_squares >= strategy.sensitivity_squared).all()


def change(matrix, rng: np.random.Generator, size: int):
    """Change the entries of a matrix at random, unless all cells are alike."""
    if not isinstance(matrix, DenseMatrix):
        return matrix
    return replace(matrix, matrix=matrix.matrix + rng.integers(-size, size, matrix.matrix.shape))


@pytest.mark.parametrize("unit", UNITS[::2], ids=str)
def test_few_triples_stand_for_those_of_all_pairs(unit, monkeypatch):
    monkeypatch.setattr(shape, "MOST_PAIRS", 0)
    draft = find_design(split(WORKLOAD, unit), Objective(), OPTIONS, 1e-2)
    assert not any(matrix.grades for matrix in draft.strategy.attribute_matrices)
    stated, truth = draft.strategy.sensitivity_squared, draft.strategy.upper_overstatement()
    assert truth < 1e-12
    monkeypatch.setattr(strategies, "_MOST_COVERED", 5000)
    strategy = replace(draft.strategy)
    assert stated <= strategy.sensitivity_squared <= 1.01 * stated
    above = (1 + strategy.upper_overstatement()) ** 2
    assert strategy.sensitivity_squared <= stated * above
    # Without covers the cost is bounded as that of moves.
    monkeypatch.setattr(strategies, "MOST_ATTRIBUTES", 0)
    assert stated <= replace(draft.strategy).sensitivity_squared <= 1.6 * stated


@pytest.mark.parametrize("most", [16, 40, 200])
@pytest.mark.parametrize("size", [1, 2**40], ids=["int64", "python integers"])
def test_covers_are_above_all_triples(size, most):
    """For random coefficients the costliest triple of a cover costs at least that of any pair."""
    rng = np.random.default_rng(most)
    columns = rng.integers(-900, 900, (3, 40)) * size
    triples = np.column_stack(strategies.list_triples(DenseMatrix(columns), True))
    cover = cover_triples(triples, most)
    assert len(cover.triples) <= most
    assert np.isin(cover.origins, np.arange(len(triples))).all()
    u = np.concatenate([rng.uniform(0, 1, (2000, 2)), rng.normal(size=(2000, 1))], axis=1)
    truth, above = (u @ triples.T).max(axis=1), (u @ cover.triples.T).max(axis=1)
    assert (above >= truth).all()
    assert np.median(above / truth) < 1.2


def weigh_pairs(structure, duals):
    """The weights of all pairs of cells that product weights mean, twice for each pair."""
    weights = []
    for n, symmetric, p, sides in zip(
        structure.sizes, structure.batched.symmetric, duals.p, duals.pairs.sides, strict=True
    ):
        if symmetric:
            weights.append((np.eye(n) / n, (1 - np.eye(n)) / (n * (n - 1))))
            continue
        p = p / p.sum()
        apart = np.outer(p, p)
        if len(sides):
            v = np.sqrt(p) * (sides - p @ sides)
            v /= np.linalg.norm(v)
            root = np.sqrt(p) * v
            apart = apart - (p / v**2).min() * np.outer(root, root)
        weights.append((np.diag(p), apart))
    shares = duals.pairs.shares / duals.pairs.shares.sum()
    total = 0.0
    for move, share in zip(duals.pairs.moves, shares, strict=True):
        product = np.ones((1, 1))
        for own, moved in zip(weights, move, strict=True):
            product = np.kron(product, own[int(moved)])
        total = total + share * product
    assert total.min() > -1e-15
    np.fill_diagonal(total, 0.0)
    return total


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_the_bound_is_that_of_the_pairs_it_means(unit):
    """Frames of all columns leave nothing out: compare with the Laplacian of all pairs."""
    structure, draft = draft_for(unit)
    rng = np.random.default_rng(5)
    found = ProductPairCertifier().unpack(structure, draft.duals)
    for trial in range(2):
        duals = replace(found, t=6, rests=1)
        if trial:
            pairs = replace(
                found.pairs,
                shares=rng.dirichlet(np.ones(len(found.pairs.shares))),
                sides=tuple(rng.normal(size=len(s)) for s in found.pairs.sides),
            )
            p = tuple(rng.uniform(0.2, 1, len(p)) for p in found.p)
            duals = replace(duals, p=p, pairs=pairs)
        weights = weigh_pairs(structure, duals)
        values, U = np.linalg.eigh(np.diag(weights.sum(axis=1)) - weights)
        q = []
        for batch in structure.batched.batches:
            for group, factors in zip(batch.groups, batch.factors, strict=True):
                y = np.ones(1)
                for factor in factors:
                    rows, own = WORKLOAD.groups[group], duals.y[factor]
                    n = structure.sizes[structure.batched.factors[factor].attribute]
                    y = np.kron(y, own if len(own) > 1 else np.full(n, own[0] / n))
                q.append((group, duals.w[group] * y, rows))
        q = np.concatenate([y for _, y, _ in sorted(q, key=lambda one: one[0])])
        X = np.sqrt(q)[:, None] * (WORKLOAD.matrix() @ (U * np.sqrt(np.maximum(values, 0.0))))
        norm = np.linalg.svd(X, compute_uv=False).sum()
        mass = q @ WORKLOAD.targets() * weights.sum() / 2
        truth = norm / np.sqrt(mass)
        assert lower_product_cost(structure.batched, duals) == pytest.approx(truth, rel=1e-5)
        assert lower_product_cost(structure.batched, duals) <= truth * (1 + 1e-9)


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_the_bound_is_not_above_the_optimum(unit):
    """The optimum over all pairs of cells is known where the cells are few."""
    best = fp.design(WORKLOAD, unit=unit)
    structure, draft = draft_for(unit)
    assert best.privacy_cost / 1.005 < certify_bound(structure, Objective(), 1.0, draft.duals)
    rng = np.random.default_rng(4)
    for _ in range(10):
        duals = draft.duals._replace(
            p=draft.duals.p * rng.uniform(0.2, 2, len(draft.duals.p)),
            q=draft.duals.q * rng.uniform(0.2, 2, len(draft.duals.q)),
        )
        for own in (draft.duals, duals):
            assert certify_bound(structure, Objective(), 1.0, own) <= best.privacy_cost
    noise = np.sqrt(1 / (draft.strategy.unit_variances / structure.targets).max())
    assert best.lower_bound <= draft.strategy.sensitivity / noise <= 1.004 * best.privacy_cost


def test_a_large_workload_is_designed_and_released(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MOST_PAIR_CELLS", 0)
    domain = fp.Domain(
        {
            "age": fp.Integers(0, 39),
            "size": fp.Integers(0, 49),
            "st": [str(i) for i in range(30)],
            "sex": ["1", "2"],
        }
    )
    workload = fp.Workload(
        domain,
        [
            fp.queries({"age": "prefix", "st": "identity"}, std=5.0, name="ages"),
            fp.queries({"size": "prefix", "st": "identity"}, std=5.0, name="sizes"),
            fp.marginal("sex", "st", std=5.0, name="sexes"),
            fp.marginal("st", std=3.0, name="states"),
            fp.total(std=3.0, name="all"),
        ],
    )
    plan = fp.design(workload, unit=fp.ReplaceOne(), tolerance=0.05)
    assert isinstance(plan.strategy.structure, ProductPairStructure)
    plan.verify()
    assert plan.gap < 0.3
    assert plan.overstatement < plan.gap
    changes = fp.design(workload, unit=fp.AddRemove(records=2), tolerance=0.05)
    assert plan.rho < 0.65 * changes.rho
    plan.save(tmp_path / "plan.npz")
    again = fp.Plan.load(tmp_path / "plan.npz")
    again.verify()
    assert again.digest == plan.digest
    cells = np.random.default_rng(2).integers(0, domain.shape, (3000, 4))
    tables = {}
    for names in plan.tables:
        at = [domain.names.index(name) for name in names]
        counts = np.zeros(get_shape(domain, names), dtype=np.int64)
        np.add.at(counts, tuple(cells[:, at].T), 1)
        tables[names] = counts
    release = fp.release(again, fp.Tables(domain, tables))
    assert release.public_totals == 3000
    assert release.estimates["all"] == pytest.approx(3000, abs=1e-6)
    assert (plan.variances["all"] == 0).all()
    assert release.estimates["states"].sum() == pytest.approx(3000, abs=1e-6)
    truth = np.bincount(cells[:, 2], minlength=30)
    z = (release.estimates["states"] - truth) / np.sqrt(plan.variances["states"])
    assert np.abs(z).max() < 5
    assert release.estimates["ages"][-1] == pytest.approx(release.estimates["states"], abs=1e-6)


def test_a_hierarchy_beside_many_cells_is_refused():
    leaves = [(f"r{i}", f"{i}.{j}") for i in range(2001) for j in range(2)]
    place = fp.Hierarchy(["region", "city"], leaves)
    domain = fp.Domain({"place": place, "age": fp.Integers(0, 699)})
    workload = fp.Workload(
        domain,
        [
            fp.queries({"place": "region", "age": "prefix"}, std=5.0),
            fp.queries({"place": "city"}, std=5.0),
        ],
    )
    with pytest.raises(fp.WorkloadError, match=r"divide 2,001 nodes .* ReplaceOne is 2,000"):
        fp.design(workload, unit=fp.ReplaceOne())


@pytest.mark.slow
def test_rows_that_say_little_of_an_attribute_leave_its_covariance_a_rank(monkeypatch):
    """Directions that hardly any row pulls were lost, and the reference went anywhere."""
    monkeypatch.setattr(blocks, "MOST_PAIR_CELLS", 0)
    codes = fp.Integers(0, 44)
    attributes = {"a": ["1", "2", "3"], "b": ["1", "2"], "c": codes, "d": codes, "e": ["1", "2"]}
    few = np.arange(45)[None] % 3 - 1.0
    groups = [
        fp.queries({"c": "prefix"}, std=4.94),
        fp.queries({"b": "identity", "c": few, "e": "identity"}, std=5.58),
        fp.queries({"d": "prefix", "e": "identity"}, std=3.0),
    ]
    workload = fp.Workload(fp.Domain(attributes), groups)
    plan = fp.design(workload, unit=fp.ReplaceOne(within=("c",)), tolerance=1e-2)
    plan.verify()
    assert isinstance(plan.strategy.structure, ProductPairStructure)
    assert plan.gap < 0.4


def test_an_attribute_of_one_cell_has_one_triple() -> None:
    domain = fp.Domain({"one": ["x"], "age": fp.Integers(0, 5), "size": fp.Integers(0, 4)})
    groups = [
        fp.queries({"one": np.array([[1.0], [-1.0]]), "age": "prefix"}, std=2.0),
        fp.queries({"age": "prefix", "size": "prefix"}, std=3.0),
    ]
    structure = split(fp.Workload(domain, groups), fp.ReplaceOne())
    strategy = find_design(structure, Objective(), OPTIONS, 1e-3).strategy
    A = build_dense_strategy(strategy)
    pairs = itertools.combinations(range(A.shape[1]), 2)
    assert strategy.sensitivity_squared >= max(
        int(((A[:, i] - A[:, j]) ** 2).sum()) for i, j in pairs
    )


def test_squares_beyond_64_bits_are_listed() -> None:
    """They are Python integers, also where a record keeps its value."""
    columns = np.array([[3, -1, 1], [0, 2, -2]]) * 2**40
    triples = np.column_stack(strategies.list_triples(DenseMatrix(columns), False))
    assert triples.tolist() == [[square * 2**80] * 3 for square in (5, 9)]


def test_columns_of_zeros_have_one_triple() -> None:
    cover = cover_triples(np.zeros((50, 3), dtype=np.int64), 8)
    assert cover is not None
    assert not cover.triples.any()
