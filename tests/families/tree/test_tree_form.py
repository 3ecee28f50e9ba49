"""Strategies of trees against the matrix that they measure, written out by its definition."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import build_dense_covariance, build_dense_strategy
from fitplug.families.base.contrasts import make_contrasts
from fitplug.families.base.family import build_strategy
from fitplug.families.tree.shape import node_tree as node_tree
from fitplug.families.tree.strategy.blocks import TreeBlock
from fitplug.families.tree.strategy.child_matrices import StepMatrices
from fitplug.files import compute_digest, read_with_digest, write_with_digest
from fitplug.plan.plan_file import (
    describe_strategy,
    describe_workload,
    read_strategy,
    read_workload,
)
from tests.helpers.tree_strategies import (
    find_structure,
    make_reader,
    random_place,
    random_strategy,
    random_workload,
    wide_workload,
    write_out,
)

KINDS = [
    {"symmetric": symmetric, "dense": dense, "varying": varying}
    for symmetric in (False, True)
    for dense in (False, True)
    for varying in (False, True)
]
KINDS.append({"wide": True})


def make(seed, kind, most=5):
    rng = np.random.default_rng(seed)
    if "wide" in kind:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(node_tree, "MOST_CHILDREN", 16)
            structure = find_structure(wide_workload(rng))
        assert structure.tree.size > 2 + 40 + 3
    else:
        structure = find_structure(random_workload(rng, **kind))
    return rng, random_strategy(rng, structure, most)


cases = pytest.mark.parametrize("kind", KINDS)
seeds = pytest.mark.parametrize("seed", range(2))


@cases
@seeds
def test_cost_and_variances(kind, seed) -> None:
    _, strategy = make(seed, kind)
    strategy.check_form()
    structure, workload = strategy.structure, strategy.structure.workload
    A = write_out(strategy)
    assert strategy.size == len(A)
    np.testing.assert_array_equal(build_dense_strategy(strategy), A.astype(float))
    squares = (A * A).sum(axis=0)
    assert strategy.sensitivity_squared == max(squares)
    assert strategy.max_records == 2**62 // max(abs(a) for a in A.ravel())
    axes = [workload.attributes.index(name) for name in structure.asymmetric]
    rest = [i for i in range(len(workload.shape)) if i not in axes]
    by_cell = squares.reshape(workload.shape).transpose(*axes, *rest)
    by_cell = by_cell.reshape(*by_cell.shape[: len(axes)], -1)
    above = structure.arrange_by_cell(strategy.column_squares)[..., None]
    assert (above >= by_cell).all()
    assert (above <= by_cell.astype(float) * (1 + 1e-12)).all()

    W, numbers = workload.matrix(), A.astype(float)
    weights = W @ np.linalg.pinv(numbers, rcond=1e-13)
    exact = (weights**2).sum(axis=1)
    bound = structure.group_values(strategy.unit_variances)
    bound = np.concatenate([bound[name].ravel() for name in workload.names])
    np.testing.assert_allclose(weights @ numbers, W, atol=1e-7)
    assert (bound >= exact * (1 - 1e-9)).all()
    np.testing.assert_allclose(bound, exact, rtol=1e-7)
    (mechanism,) = strategy.list_mechanisms(2.0)
    assert mechanism.dimension == len(A)


@cases
@seeds
def test_answers_and_estimates(kind, seed) -> None:
    rng, strategy = make(seed, kind)
    workload = strategy.structure.workload
    A, W = write_out(strategy), workload.matrix()
    x = rng.integers(-50, 1000, workload.shape)
    y = strategy.answer_exactly(make_reader(strategy, x))
    np.testing.assert_array_equal(y, (A @ x.ravel().astype(object)).astype(np.int64))
    estimates = strategy.make_estimates(y)
    found = np.concatenate([estimates[name].ravel() for name in workload.names])
    np.testing.assert_allclose(found, W @ x.ravel(), atol=1e-6 * np.abs(W @ x.ravel()).max())
    noisy = y + rng.integers(-100, 100, len(y))
    estimates = strategy.make_estimates(noisy)
    found = np.concatenate([estimates[name].ravel() for name in workload.names])
    expected = W @ np.linalg.lstsq(A.astype(float), noisy.astype(float), rcond=1e-12)[0]
    np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())
    assert all(estimates[group.name].shape == group.shape for group in workload.groups)


@pytest.mark.parametrize("asked", [("age", "place"), ("place", "age")])
def test_a_group_may_name_the_tree_before_or_after_the_dense_attributes(asked) -> None:
    rng = np.random.default_rng(8)
    kinds = {"age": "prefix", "place": "identity"}
    domain = fp.Domain({"age": fp.Integers(0, 4), "place": random_place(rng)})
    groups = [
        fp.queries({name: kinds[name] for name in asked}, variance=1.0, name="asked"),
        fp.queries({"place": "county"}, variance=3.0),
    ]
    strategy = random_strategy(rng, find_structure(fp.Workload(domain, groups)))
    workload = strategy.structure.workload
    x = rng.integers(0, 100, workload.shape)
    estimates = strategy.make_estimates(strategy.answer_exactly(make_reader(strategy, x)))
    group = workload.groups[0]
    expected = (workload.matrix()[: group.size] @ x.ravel()).reshape(group.shape)
    np.testing.assert_allclose(estimates["asked"], expected, atol=1e-6)
    A, c = write_out(strategy).astype(float), rng.normal(size=group.shape)
    weights = c.ravel() @ workload.matrix()[: group.size] @ np.linalg.pinv(A, rcond=1e-13)
    (found,) = strategy.combine([{"asked": c}]).upper_stds()
    np.testing.assert_allclose(found, np.linalg.norm(weights), rtol=1e-7)


@cases
@seeds
def test_combinations(kind, seed) -> None:
    rng, strategy = make(seed, kind)
    workload = strategy.structure.workload
    A, W = write_out(strategy).astype(float), workload.matrix()
    weights = W @ np.linalg.pinv(A, rcond=1e-13)
    covariance = weights @ weights.T
    combinations, rows = [], []
    for size in (1, 2, len(workload.groups)):
        one = {}
        for g in rng.choice(len(workload.groups), size, replace=False).tolist():
            group = workload.groups[g]
            sparse = rng.random(group.shape) < rng.choice([0.1, 1.0])
            one[group.name] = rng.normal(size=group.shape) * sparse
        combinations.append(one)
        rows.append(
            np.concatenate([one.get(g.name, np.zeros(g.shape)).ravel() for g in workload.groups])
        )
    c = np.array(rows)
    expected = c @ covariance @ c.T
    stds = np.sqrt(np.diag(expected))
    found = strategy.combine(combinations).upper_stds()
    np.testing.assert_allclose(found, stds, rtol=1e-7, atol=1e-9)
    assert (found >= stds * (1 - 1e-9)).all()
    together = strategy.combine(combinations).compute_covariance()
    np.testing.assert_allclose(together, expected, atol=1e-7 * stds.max() ** 2)


@pytest.mark.parametrize("kind", KINDS[::3])
def test_the_covariance_is_written_out(kind) -> None:
    _, strategy = make(5, kind)
    A = write_out(strategy).astype(float)
    covariance, basis = build_dense_covariance(strategy, 3.0)
    assert np.linalg.matrix_rank(basis) == len(basis)
    weights = 3 * basis @ np.linalg.pinv(A, rcond=1e-13)
    np.testing.assert_allclose(
        weights @ weights.T, covariance, atol=1e-7 * np.abs(covariance).max()
    )
    np.testing.assert_allclose(A @ np.linalg.pinv(basis) @ basis, A, atol=1e-6)


@pytest.mark.parametrize("most", [2**20, 2**51])
@pytest.mark.parametrize("kind", KINDS[::3])
def test_answers_are_exact_for_every_integer(kind, most) -> None:
    rng, strategy = make(2, kind, most)
    A, shape = write_out(strategy), strategy.structure.workload.shape
    assert strategy.sensitivity_squared == max((A * A).sum(axis=0))
    for largest in (2**20, (2**63 - 1) // int(np.prod(shape))):
        x = rng.integers(-largest, largest, shape, endpoint=True)
        expected = np.clip(A @ x.ravel().astype(object), -(2**62), 2**62).astype(np.int64)
        np.testing.assert_array_equal(strategy.answer_exactly(make_reader(strategy, x)), expected)
    one = np.zeros(shape, dtype=np.int64)
    one.flat[0] = -(2**63)
    expected = np.clip(A[:, 0] * -(2**63), -(2**62), 2**62).astype(np.int64)
    np.testing.assert_array_equal(strategy.answer_exactly(make_reader(strategy, one)), expected)


def test_no_answer_is_clamped_with_as_many_records_as_it_holds() -> None:
    rng, strategy = make(1, KINDS[-2], 2**15)
    A, shape = write_out(strategy), strategy.structure.workload.shape
    assert max(abs(a) for a in A.ravel()) * strategy.max_records <= 2**62
    x = np.zeros(shape, dtype=np.int64)
    x.flat[rng.integers(x.size)] = strategy.max_records
    expected = (A @ x.ravel().astype(object)).astype(np.int64)
    np.testing.assert_array_equal(strategy.answer_exactly(make_reader(strategy, x)), expected)


def test_tables_hold_what_the_blocks_ask_for() -> None:
    for seed in range(5):
        _, strategy = make(seed, KINDS[-3])
        structure = strategy.structure
        for block, names in enumerate(strategy.list_tables()):
            assert set(structure.name_attributes(block)) <= set(names)
            assert ("place" in names) == (structure.find_block_depth(block) > 0)


def test_equal_columns_are_summed_exactly() -> None:
    """All leaves cost the same, so integers have to tell that none costs more."""
    place = fp.Hierarchy(("state", "county"), [(f"s{s}", f"c{s}{c}") for s in "ab" for c in "xyz"])
    groups = [fp.queries({"place": level}, variance=1.0) for level in ("state", "county")]
    structure = find_structure(fp.Workload(fp.Domain({"place": place}), groups))
    steps = []
    for step in structure.tree.steps:
        b, k = step.children.shape
        rows = np.array([[2**51 - 1, -(2**51 - 1), 0], [0, 2**51 - 1, 2**51 - 1]])[: k - 1, :k]
        steps.append(StepMatrices(np.tile(rows, (b, 1, 1)), np.full((b, 1, 1), 2**51 - 3)))
    block = TreeBlock(0, np.full((1, 1), 2**51 - 5), tuple(steps))
    strategy = build_strategy(structure, make_contrasts(structure), (block,))
    A = write_out(strategy)
    assert strategy.sensitivity_squared == max((A * A).sum(axis=0))


def forge(strategy, change):
    """The strategy with the matrices of its last block changed."""
    last = strategy.tree_blocks[-1]
    return dataclasses.replace(
        strategy, tree_blocks=(*strategy.tree_blocks[:-1], change(last, last.steps[-1]))
    )


FORGED = {
    "another block": lambda own, _: dataclasses.replace(own, block=0),
    "a root of floats": lambda own, _: dataclasses.replace(own, root=own.root.astype(float)),
    "a root that is not invertible": lambda own, _: dataclasses.replace(own, root=own.root * 0),
    "a negative root": lambda own, _: dataclasses.replace(own, root=-own.root),
    "a large root": lambda own, _: dataclasses.replace(own, root=own.root * 2**52),
    "fewer steps": lambda own, _: dataclasses.replace(own, steps=own.steps[:-1]),
    "more steps": lambda own, step: dataclasses.replace(own, steps=(*own.steps, step)),
    "fewer nodes": lambda own, step: replace_last(own, children=step.children[1:]),
    "children of floats": lambda own, step: replace_last(own, children=step.children * 1.0),
    "no children": lambda own, step: replace_last(own, children=step.children * 0),
    "large children": lambda own, step: replace_last(own, children=step.children * 2**52),
    "a smaller matrix": lambda own, step: replace_last(own, dense=step.dense[:, 1:, 1:]),
    "a lower matrix": lambda own, step: replace_last(
        own, dense=step.dense + np.tri(2, k=-1, dtype=int)
    ),
    "large matrices": lambda own, step: replace_last(own, dense=step.dense * 2**52),
    "a matrix of 32 bits": lambda own, step: replace_last(own, dense=step.dense.astype(np.int32)),
}


def replace_last(own, **changes):
    """A block with other matrices of its last step."""
    last = dataclasses.replace(own.steps[-1], **changes)
    return dataclasses.replace(own, steps=(*own.steps[:-1], last))


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_forged_integers_are_refused(change) -> None:
    """Seven counties of two tracts each, by two ages and sex."""
    leaves = [(f"c{c}", f"c{c}t{t}") for c in range(7) for t in range(2)]
    domain = fp.Domain(
        {
            "place": fp.Hierarchy(("county", "tract"), leaves),
            "age": fp.Integers(0, 1),
            "sex": ["1", "2"],
        }
    )
    asked = {"age": "prefix", "sex": "identity"}
    groups = [fp.queries({"place": level, **asked}, variance=1.0) for level in ("county", "tract")]
    strategy = random_strategy(
        np.random.default_rng(1), find_structure(fp.Workload(domain, groups))
    )
    assert strategy.tree_blocks[-1].steps[-1].children.ndim == 1
    strategy.check_form()
    with pytest.raises(fp.PlanError):
        forge(strategy, change).check_form()


def test_queries_of_nothing_are_measured_by_nothing() -> None:
    rng = np.random.default_rng(2)
    leaves = [(f"c{c}", f"c{c}t{t}") for c in range(3) for t in range(3 + 4 * c)]
    place = fp.Hierarchy(("county", "tract"), leaves)
    domain = fp.Domain({"place": place, "age": fp.Integers(0, 2), "sex": ["1", "2"]})
    groups = [
        fp.queries({"place": "county", "age": "identity", "sex": "identity"}, variance=2.0),
        fp.queries({"place": "tract", "age": np.zeros((2, 3))}, variance=1.0, name="nothing"),
    ]
    strategy = random_strategy(rng, find_structure(fp.Workload(domain, groups)))
    strategy.check_form()
    A = write_out(strategy)
    assert strategy.sensitivity_squared == max((A * A).sum(axis=0))
    x = rng.integers(0, 9, strategy.structure.workload.shape)
    y = strategy.answer_exactly(make_reader(strategy, x))
    np.testing.assert_array_equal(y, A @ x.ravel())
    variances = strategy.structure.group_values(strategy.unit_variances)
    assert not variances["nothing"].any()
    estimates = strategy.make_estimates(y)
    assert not estimates["nothing"].any()
    asked = {"nothing": np.ones(estimates["nothing"].shape)}
    assert strategy.combine([asked, asked]).upper_stds().tolist() == [0.0, 0.0]


def test_workloads_of_nothing_are_refused() -> None:
    place = fp.Hierarchy(("county", "tract"), [("a", "1"), ("a", "2"), ("b", "3")])
    domain = fp.Domain({"place": place, "age": fp.Integers(0, 2)})
    nothing = {"place": "county", "age": np.zeros((2, 3))}
    structure = find_structure(fp.Workload(domain, [fp.queries(nothing, variance=1.0)]))
    with pytest.raises(fp.WorkloadError, match="every query is zero"):
        structure.build_block_matrix(0)


def test_children_that_cannot_be_told_from_their_sum_are_refused() -> None:
    rng = np.random.default_rng(4)
    strategy = random_strategy(rng, find_structure(wide_workload(rng)))
    for number, step in enumerate(strategy.tree_blocks[0].steps):
        if step.children.ndim == 3:
            steps = list(strategy.tree_blocks[0].steps)
            steps[number] = dataclasses.replace(step, children=step.children * 0 + 1)
            forged = dataclasses.replace(strategy.tree_blocks[0], steps=tuple(steps))
            with pytest.raises(fp.DesignError):
                dataclasses.replace(
                    strategy, tree_blocks=(forged, *strategy.tree_blocks[1:])
                ).prove()


@pytest.mark.parametrize("kind", KINDS[::3])
def test_a_file_holds_the_integers(kind, tmp_path) -> None:
    _, strategy = make(3, kind)
    workload = strategy.structure.workload
    described = describe_workload(workload), describe_strategy(strategy)
    write_with_digest(tmp_path / "plan", *(a | b for a, b in zip(*described, strict=True)))
    header, arrays, _ = read_with_digest(tmp_path / "plan")
    again = read_strategy(read_workload(header, arrays), header, arrays)
    again.check_form()
    assert compute_digest(*describe_strategy(again)) == compute_digest(*described[1])
    np.testing.assert_array_equal(write_out(again), write_out(strategy))
