"""Exact answers to counts of any size: they are clamped, and never wrap around in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import analysis, build_dense_strategy

CLAMP = 2**62


def chain(*more):
    domain = fp.Domain({"x": fp.Integers(0, 15)})
    return fp.Workload(domain, [fp.queries({"x": "prefix"}, variance=100.0), *more])


def tree():
    leaves = [(f"a{i}", f"a{i}b{j}") for i in range(3) for j in range([1, 2, 9][i])]
    place = fp.Hierarchy(["county", "tract"], leaves)
    attributes = {"place": place, "s": [str(i) for i in range(7)], "age": fp.Integers(0, 5)}
    targets = np.linspace(3, 5, 12)[:, None]
    groups = [
        fp.queries({"place": "tract", "s": "identity"}, variance=targets, name="tracts"),
        fp.queries({"age": "prefix", "s": "identity"}, variance=4.0),
        fp.queries({"place": "county"}, variance=1.0, name="counties"),
    ]
    return fp.Workload(fp.Domain(attributes), groups)


@pytest.fixture(
    params=["chain", "chain with its total", pytest.param("tree", marks=pytest.mark.slow)]
)
def plan(request, monkeypatch):
    monkeypatch.setattr(analysis, "MOST_CELLS", 0)
    monkeypatch.setattr(analysis, "LEAST_CHAIN", 1)
    workloads = {
        "chain": chain,
        "chain with its total": lambda: chain(fp.total(variance=1.0)),
        "tree": tree,
    }
    return fp.design(workloads[request.param]())


def reader(plan, x):
    """Margins of counts x over the workload's attributes."""
    names = plan.workload.attributes

    def read(wanted):
        summed = x.sum(axis=tuple(i for i, name in enumerate(names) if name not in wanted))
        left = [name for name in names if name in wanted]
        return summed.transpose([left.index(name) for name in wanted])

    return read


def test_answers_are_exact_and_clamped(plan) -> None:
    A = build_dense_strategy(plan.strategy).astype(np.int64).astype(object)
    rng = np.random.default_rng(1)
    shape = plan.workload.shape
    for size in [2**k for k in range(28, 58)]:
        x = np.zeros(shape, dtype=np.int64)
        # Few cells, at the ends of the attributes, and then all cells of one value of the last.
        x.ravel()[rng.integers(0, x.size, 2)] = size
        x[..., 0] += size // 8
        exact = A @ x.ravel().astype(object)
        expected = [max(-CLAMP, min(CLAMP, int(value))) for value in exact]
        assert plan.strategy.answer_exactly(reader(plan, x)).tolist() == expected


def test_one_record_changes_answers_by_its_column_at_most(plan) -> None:
    A = build_dense_strategy(plan.strategy)
    for size in [2**31 + 1, 3_411_536_811, 2**45 + 3, 2**53]:
        x = np.zeros(plan.workload.shape, dtype=np.int64)
        x.ravel()[0] = size
        first = plan.strategy.answer_exactly(reader(plan, x)).astype(object)
        x.ravel()[0] += 1
        second = plan.strategy.answer_exactly(reader(plan, x)).astype(object)
        assert (np.abs(second - first) <= np.abs(A[:, 0])).all()
