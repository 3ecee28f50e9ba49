"""Nested triangles: products, cost, variances and estimates against matrices written out."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import fitplug as fp
from fitplug.families import analyse_structure
from fitplug.families.blocks.shape.matrices import MatrixStructure
from fitplug.families.chain.design import nested
from fitplug.families.chain.strategy.chains import NestedChain
from fitplug.workload import Factor
from tests.helpers.chains import (
    ask_chain,
    draft_chain,
    invert_triangle,
    make_nested,
    write_out,
)

CASES = [(1, 1, 1), (5, 1, 1), (16, 4, 2), (23, 8, 3), (24, 8, 3), (90, 16, 4)]
"""Cells, leaves and sums."""


@pytest.mark.parametrize("case", CASES)
def test_answers_and_cost_are_exact(case: tuple[int, int, int]) -> None:
    whole = make_nested(*case)
    n = whole.n
    assert whole.has_form(n)
    assert not whole.has_form(n + 1)
    x = np.random.default_rng(2).integers(0, 10**6, (3, n, 2))
    for block in (0, 1):
        chain = whole.of_block(block)
        A = write_out(chain)
        assert (chain.apply(x, 1) == np.einsum("ij,ajb->aib", A.astype(np.int64), x)).all()
        large = x.astype(object) * 2**50
        assert (chain.apply(large, 1) == np.einsum("ij,ajb->aib", A, large)).all()
        assert chain.column_square == max((A**2).sum(axis=0))
        assert chain.rows == len(A)
        assert chain.largest_entry >= np.abs(A).max()
        assert chain.growth >= np.abs(A).sum(axis=1).max()


@pytest.mark.parametrize("case", CASES)
def test_variances_are_above_the_exact_ones_and_tight(case: tuple[int, int, int]) -> None:
    chain = make_nested(*case).of_block(1)
    n = chain.n
    A = write_out(chain)
    E = invert_triangle(A) if n <= 24 else np.linalg.inv(A.astype(np.float64))
    for kind, rows in (("prefix", np.cumsum(E, axis=0)), ("identity", E), ("total", [E.sum(0)])):
        exact = [sum(x * x for x in row) for row in np.asarray(rows).tolist()]
        mu, found = chain.upper_variance_parts(Factor("x", kind, n)).T
        assert not mu.any()
        for upper, least in zip(found.tolist(), exact, strict=True):
            slack = 0 if n <= 24 else 1e-12
            assert least * (1 - slack) <= Fraction(upper) <= least * (1 + Fraction(1, 10**9))


@pytest.mark.parametrize("case", CASES)
def test_estimates_and_their_adjoint(case: tuple[int, int, int]) -> None:
    chain = make_nested(*case)
    n = chain.n
    A = write_out(chain).astype(np.float64)
    rng = np.random.default_rng(5)
    x = rng.integers(0, 10**6, (n, 2))
    assert chain.invert(A @ x, 0) == pytest.approx(x, abs=1e-6)
    w = rng.normal(size=(2, n))
    exact = w @ np.linalg.inv(A)
    found = chain.adjoint(w, 1)
    error = chain.upper_adjoint_error(w, 1)
    assert np.abs(found - exact).max() <= error + 1e-14 * np.abs(exact).max()
    assert error < 1e-9 * np.abs(found).max()


def test_the_form_of_nested_triangles() -> None:
    chain = make_nested(20, 8, 3)
    assert chain.has_form(20)
    for name, at, wrong in (
        ("cells", (0,), 21),
        ("triangles", (0, 0, 0, 0), 0),
        ("triangles", (1, 0, 0, 1), 1),
        ("triangles", (1, 6, 2, 0), 1),
        ("triangles", (0, 2, 1, 0), 2**41),
        ("sums", (0, 0, 0, 0), 2),
        ("weights", (1, 0, 11, 1), 5),
        ("grounded", (1,), 1),
        ("grounded", (0,), 2),
    ):
        arrays = {key: array.copy() for key, array in chain.arrays_in_file.items()}
        arrays[name][at] = wrong
        assert not NestedChain.from_arrays(arrays).has_form(20), (name, at)
    for name, array in chain.arrays_in_file.items():
        assert not dataclasses.replace(chain, **{name: array.astype(np.float64)}).has_form(20)
        assert not dataclasses.replace(chain, **{name: array[:0]}).has_form(20)


TIGHT = np.where(np.arange(100) % 10 == 9, 1.0, 10.0)


@pytest.mark.parametrize(
    "workload",
    [
        ask_chain(
            100,
            fp.queries({"s": "identity", "x": "prefix"}, variance=4.0),
            fp.queries({"x": "prefix"}, variance=4.0),
            fp.queries({"s": "identity"}, variance=1.0),
            s=[str(i) for i in range(51)],
        ),
        ask_chain(100, fp.queries({"x": "prefix"}, variance=TIGHT), fp.total(variance=0.2)),
    ],
    ids=["by state", "tight"],
)
def test_blocks_and_tight_targets_cost_little_more_than_the_dense_optimum(
    workload: fp.Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nested, "_LEAF", 6)
    _, cost, bound = draft_chain(workload)
    assert isinstance(analyse_structure(workload, family=False), MatrixStructure)
    dense = fp.design(workload, rho=0.5)
    optimum = dense.lower_bound * dense.scale**0.5
    assert optimum * 0.998 <= bound <= cost <= optimum * 1.02
