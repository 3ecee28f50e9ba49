"""What is handed to mbi against dense least squares, and what mbi makes of it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fitplug as fp
import fitplug_export as fpe
from fitplug.families import list_measured_tables
from fitplug_export.mbi_measurements import list_measurements
from tests.helpers import people
from tests.helpers.exact import full_strategy
from tests.helpers.places import ROOT
from tests.helpers.plans import mixed_workload, product_plan, symmetric_plan, two_trees_plan
from tests.helpers.tree_plans import design_tree, people_by_place

pytestmark = pytest.mark.filterwarnings("error")


def replace_one(*groups: Any) -> fp.Plan:
    domain = fp.Domain({"a": fp.Integers(0, 3), "b": ["x", "y", "z"]})
    return fp.design(fp.Workload(domain, list(groups)), unit=fp.ReplaceOne())


PLANS = {
    "dense": people.plan,
    "symmetric": symmetric_plan,
    "symmetric and dense": lambda: fp.design(mixed_workload()),
    "product": product_plan,
    "two trees": two_trees_plan,
    "tree": lambda: design_tree(people_by_place(ages=True), tolerance=0.1),
    "replaced, dense": lambda: replace_one(
        fp.queries({"a": "prefix", "b": "identity"}, std=2.0, name="both")
    ),
    "replaced, symmetric": lambda: replace_one(fp.marginal("a", "b", std=2.0, name="both")),
}


@cache
def make_release(kind: str, noise_scale: float = 1.0) -> fp.Release:
    plan = PLANS[kind]()
    rng = np.random.default_rng(5)
    x = rng.poisson(3.0, plan.workload.shape)
    counted = fp.Tables(plan.workload.domain, make_tables(plan, x))
    answers = plan.strategy.answer_exactly(counted.marginal)
    noise = rng.normal(size=plan.strategy.size) * plan.noise_std * noise_scale
    answers[: plan.strategy.size] += np.rint(noise).astype(np.int64)
    return fp.Release(plan=plan, answers=answers, rho=plan.rho, noise_scale=noise_scale)


def make_tables(plan: fp.Plan, x: np.ndarray) -> dict[tuple[str, ...], np.ndarray]:
    """The counts that a plan needs, of a histogram over the workload's attributes."""
    names = plan.workload.attributes
    found = {}
    for table in plan.tables:
        summed = x.sum(axis=tuple(i for i, name in enumerate(names) if name not in table))
        left = [name for name in names if name in table]
        found[table] = summed.transpose([left.index(name) for name in table])
    return found


class Marginal:
    """What a query reads of an mbi.Factor."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def datavector(self) -> np.ndarray:
        return self._values.ravel()


def write_out(release: fp.Release) -> tuple[np.ndarray, np.ndarray]:
    """The queries handed over as a matrix over the workload's cells, and the values."""
    workload = release.plan.workload
    names, shape = workload.attributes, workload.shape
    measurements = list_measurements(release)
    columns = []
    for cell in np.eye(workload.cell_count):
        answers = []
        for own in measurements:
            x = cell.reshape(shape)
            x = x.sum(axis=tuple(i for i, n in enumerate(names) if n not in own.attributes))
            left = [n for n in names if n in own.attributes]
            x = x.transpose([left.index(n) for n in own.attributes])
            answers.append(own.query(Marginal(x)))
        columns.append(np.concatenate(answers))
    return np.array(columns).T, np.concatenate([own.values for own in measurements])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "noise_scale"), [*((kind, 1.0) for kind in PLANS), ("symmetric", 2.0)]
)
def test_the_likelihood_is_that_of_the_release(kind: str, noise_scale: float) -> None:
    """The least squares of what is handed over have the release's estimates and covariance."""
    release = make_release(kind, noise_scale)
    workload = release.plan.workload
    Q, y = write_out(release)
    W = workload.matrix()
    start, free = np.zeros(Q.shape[1]), np.eye(Q.shape[1])
    if release.public_totals is not None:
        # The number of records is known exactly: the histogram moves where the total stays.
        start[0] = release.public_totals.sum()
        free = np.linalg.svd(np.ones((1, Q.shape[1])))[2][1:].T
    inverse = free @ np.linalg.pinv(free.T @ Q.T @ Q @ free, rcond=1e-10, hermitian=True) @ free.T
    estimates = W @ (start + inverse @ Q.T @ (y - Q @ start))
    own = np.concatenate([release.estimates[name].ravel() for name in workload.names])
    std = np.sqrt(np.concatenate([release.variances[name].ravel() for name in workload.names]))
    np.testing.assert_allclose(estimates / std, own / std, atol=1e-6)
    units = {
        f"{name} {i}": {name: unit.reshape(workload[name].shape)}
        for name in workload.names
        for i, unit in enumerate(np.eye(workload[name].size))
    }
    joint = release.estimate_all(units).covariance
    scale = np.outer(std, std)
    np.testing.assert_allclose(W @ inverse @ W.T / scale, joint / scale, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLANS)
def test_noise_is_independent_and_queries_are_those_of_the_strategy(kind: str) -> None:
    """Multiplied by the noise's std, they are the strategy's rows: the noise of these is drawn
    independently for each.
    """
    release = make_release(kind)
    Q, y = write_out(release)
    A = np.array(full_strategy(release.plan), dtype=np.float64)
    np.testing.assert_allclose(Q * release.noise_std, A, atol=1e-9 * np.abs(A).max())
    answers = np.asarray(release.answers)[: release.plan.strategy.size]
    np.testing.assert_allclose(y * release.noise_std, answers, rtol=1e-12)


@pytest.mark.parametrize("kind", PLANS)
def test_norms_of_queries(kind: str) -> None:
    for own in list_measurements(make_release(kind)):
        product = np.ones((1, 1))
        for matrix in own.query.matrices:
            product = np.kron(product, matrix)
        if own.query.multiples is not None:
            product = product * own.query.multiples[:, None]
        largest = np.linalg.norm(product, 2) if product.size else 0.0
        if own.query.multiples is None:
            assert own.query.op_norm_sq() == pytest.approx(largest**2)
        else:
            assert own.query.op_norm_sq() >= largest**2 * (1 - 1e-9)


def test_tables_are_no_larger_than_what_is_measured() -> None:
    """Attributes that a block sums out are not in its table, also dense ones."""
    symmetric = [own.attributes for own in list_measurements(make_release("symmetric"))]
    assert symmetric == [(), ("a",), ("b",), ("c",), ("a", "b"), ("b", "c")]
    domain = fp.Domain({"a": fp.Integers(0, 3), "b": fp.Integers(0, 1), "c": ["x", "y"]})
    asked = [fp.queries({"a": "prefix", "c": "identity"}, std=1.0), fp.total(std=1.0)]
    plan = fp.design(fp.Workload(domain, asked))
    assert {own.attributes for own in list_measured_tables(plan.strategy)} <= {("c", "a"), ("a",)}


LIBRARY = SimpleNamespace(
    Domain=lambda *given: given,
    LinearMeasurement=lambda values, clique, *, stddev, query: (values, clique, stddev, query),
)
"""A stand-in for mbi that keeps what it is given."""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mbi", LIBRARY)


@pytest.mark.usefixtures("stand_in")
def test_what_mbi_is_given() -> None:
    release = make_release("dense")
    domain, measurements, total = fpe.to_mbi(release)
    assert domain[0] == ("sex", "age", "income", "place")
    assert domain[1] == (2, 6, 2, 3)
    assert domain[2] == tuple(people.DOMAIN[name].labels for name in domain[0])
    assert total == pytest.approx(float(release.estimates["total"]))
    assert {stddev for _, _, stddev, _ in measurements} == {1.0}
    assert sum(len(values) for values, *_ in measurements) == release.plan.strategy.size
    assert fpe.to_mbi(release, total=70).total == 70.0
    replaced = make_release("replaced, dense")
    assert replaced.public_totals is not None
    assert fpe.to_mbi(replaced).total == replaced.public_totals.sum()


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    "asked",
    [
        {"a": "identity"},
        {"a": "prefix"},
        {"a": "all_ranges"},
        {"a": fp.ranges([(2, 3), (0, 1)])},
        {"a": fp.ranges([(1, 2), (0, 3)])},
        {"a": [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 2.0]], "b": "total"},
        {"a": "total", "b": "identity"},
    ],
)
def test_the_number_of_records(asked: dict[str, Any]) -> None:
    """Any group that counts everybody gives the estimate of all records."""
    domain = fp.Domain({"a": fp.Integers(0, 3), "b": ["x", "y"]})
    plan = fp.design(fp.Workload(domain, [fp.queries(asked, std=1.0, name="one")]))
    x = np.arange(8).reshape(4, 2) + 1
    answers = plan.strategy.answer_exactly(fp.Tables(domain, {("a", "b"): x}).marginal)
    release = fp.Release(plan=plan, answers=answers, rho=plan.rho)
    assert fpe.to_mbi(release).total == pytest.approx(36.0)


@pytest.mark.usefixtures("stand_in")
def test_without_the_number_of_records() -> None:
    domain = fp.Domain({"a": fp.Integers(0, 3)})
    for kind in ([[1.0, 2.0, 3.0, 4.0]], fp.ranges([(1, 3)]), fp.ranges([(0, 1), (1, 3)])):
        plan = fp.design(fp.Workload(domain, [fp.queries({"a": kind}, std=1.0)]))
        answers = np.zeros(plan.strategy.size, dtype=np.int64)
        release = fp.Release(plan=plan, answers=answers, rho=plan.rho)
        with pytest.raises(fp.WorkloadError, match="Give total="):
            fpe.to_mbi(release)
        assert fpe.to_mbi(release, total=5).total == 5.0
        for wrong in (0, -1, float("nan"), float("inf"), True, "5"):
            with pytest.raises(fp.WorkloadError, match="must be a positive number of rows"):
                fpe.to_mbi(release, total=wrong)  # type: ignore[arg-type]
    plan = fp.design(fp.Workload(domain, [fp.marginal("a", std=1.0)]))
    answers = np.full(plan.strategy.size, -(10**6))
    with pytest.raises(fp.WorkloadError, match="estimated number of rows must be above 0, not -"):
        fpe.to_mbi(fp.Release(plan=plan, answers=answers, rho=plan.rho))


@pytest.mark.usefixtures("stand_in")
def test_refusals() -> None:
    domain = fp.Domain({"a": ["x", "y"], "b": ["u", "v"], "income": fp.Measure(0, 10)})
    asked = fp.queries({"a": "identity", "income": "sum"}, std=5.0)
    plan = fp.design(fp.Workload(domain, [asked, fp.total(std=1.0)]))
    answers = np.zeros(plan.strategy.released_size, dtype=np.int64)
    with pytest.raises(fp.WorkloadError, match="measure 'income'"):
        fpe.to_mbi(fp.Release(plan=plan, answers=answers, rho=plan.rho))
    workload = fp.Workload(domain, [fp.marginal("a", "b", std=1.0)])
    plan = fp.design(workload, unit=fp.ReplaceOne(within=("a",)))
    answers = np.zeros(plan.strategy.released_size, dtype=np.int64)
    with pytest.raises(fp.WorkloadError, match="mbi does not support the unit of privacy"):
        fpe.to_mbi(fp.Release(plan=plan, answers=answers, rho=plan.rho))
    large = fp.Workload(fp.Domain({"a": fp.Integers(0, 4999)}), [fp.marginal("a", std=1.0)])
    plan = fp.design(large)
    answers = np.zeros(plan.strategy.released_size, dtype=np.int64)
    with pytest.raises(fp.WorkloadError, match="largest matrix has 25,000,000 entries"):
        fpe.to_mbi(fp.Release(plan=plan, answers=answers, rho=plan.rho))


def test_without_mbi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mbi", None)
    with pytest.raises(ImportError, match=r'pip install "fitplug\[mbi\]"'):
        fpe.to_mbi(make_release("symmetric"))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mbi") is None, reason="mbi is not installed")
def test_mbi_finds_the_release_where_all_counts_are_large() -> None:
    """With counts far above the noise no count is held at zero, so its model has the estimates.

    It runs in a process of its own, as tests that fork must not have JAX.
    """
    program = """
        import numpy as np
        import fitplug as fp
        import fitplug_export as fpe
        from tests.helpers.plans import mixed_workload
        from mbi import estimation

        plan = fp.design(mixed_workload())
        names, rng = plan.workload.attributes, np.random.default_rng(3)
        x = rng.poisson(200.0, plan.workload.shape)
        answers = plan.strategy.answer_exactly(fp.Tables(plan.domain, {names: x}).marginal)
        answers += np.rint(rng.normal(size=answers.size) * plan.noise_std).astype(np.int64)
        release = fp.Release(plan=plan, answers=answers, rho=plan.rho)
        domain, measurements, total = fpe.to_mbi(release)
        model = estimation.MirrorDescent().estimate(
            domain, measurements, known_total=total, iters=3000
        )
        found = np.asarray(model.project(names).datavector())
        own = np.concatenate([release.estimates[name].ravel() for name in plan.workload.names])
        std = np.sqrt(plan.workload.targets().max())
        off = np.abs(plan.workload.matrix() @ found - own).max() / std
        records = model.synthetic_data()
        assert records.records == int(total) and records.domain.labels == domain.labels
        print(off)
    """
    environment = {"JAX_ENABLE_X64": "1", "JAX_ENABLE_COMPILATION_CACHE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'adapters'}", "PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-3
