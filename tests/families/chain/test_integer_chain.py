"""Chains in integers: products, cost, variances and estimates against matrices written out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fitplug.errors import DesignError
from fitplug.families.chain.strategy.convolutions import ChainMatrix
from fitplug.workload import Factor
from tests.helpers.chains import build_square_root, invert_triangle


def make_chain(n: int, total: int, seed: int = 1) -> ChainMatrix:
    rng = np.random.default_rng(seed)
    pieces = np.repeat(rng.integers(100, 120, n // 5 + 1), 5)[:n]
    return ChainMatrix(
        row_weights=rng.integers(200, 512, n),
        sequence=np.rint(2**13 * build_square_root(n)).astype(np.int64),
        column_weights=pieces,
        total_weight=np.array([total], dtype=np.int64),
    )


def write_out(chain: ChainMatrix) -> np.ndarray:
    n = chain.n
    difference = np.subtract.outer(np.arange(n), np.arange(n))
    T = np.where(difference >= 0, chain.sequence[difference], 0)
    A = chain.row_weights[:, None] * T * chain.column_weights
    k = int(chain.total_weight[0])
    return np.vstack([A, np.full((1, n), k)]) if k else A


CASES = [(1, 0), (2, 0), (7, 3), (130, 0), (200, 10**5), (200, 10**8)]


@pytest.mark.parametrize(("n", "total"), CASES)
def test_answers_and_cost_are_exact(n: int, total: int) -> None:
    chain = make_chain(n, total)
    A = write_out(chain)
    x = np.random.default_rng(2).integers(0, 10**6, (3, n, 2))
    assert (chain.apply(x, 1) == np.einsum("ij,ajb->aib", A, x)).all()
    large = x.astype(object) * 2**50
    assert (chain.apply(large, 1) == np.einsum("ij,ajb->aib", A.astype(object), large)).all()
    assert chain.column_square == max((A.astype(object) ** 2).sum(axis=0))
    assert chain.rows == len(A)
    assert chain.largest_entry >= A.max()
    assert chain.growth >= A.sum(axis=1).max()


@pytest.mark.parametrize(("n", "total"), CASES)
def test_variances_are_upper_bounds_and_tight(n: int, total: int) -> None:
    chain = make_chain(n, total)
    A = write_out(chain).astype(np.longdouble) / 2**20
    covariance = np.linalg.inv((A.T @ A).astype(np.float64)) / 2.0**40
    W = np.tril(np.ones((n, n)))
    # What floats lose in the inverse.
    slack = 1e-16 * np.linalg.cond((A.T @ A).astype(np.float64))
    for kind, rows in (("prefix", W), ("identity", np.eye(n)), ("total", np.ones((1, n)))):
        exact = np.einsum("ri,ij,rj->r", rows, covariance, rows)
        mu, found = chain.upper_variance_parts(Factor("x", kind, n)).T
        assert not mu.any()
        assert (found >= exact * (1 - slack)).all()
        assert (found <= exact * (1 + slack + 1e-9)).all()


def test_variances_are_above_the_exact_ones_in_rational_arithmetic() -> None:
    chain = make_chain(12, 0)
    n = chain.n
    E = invert_triangle(write_out(chain))
    prefixes = chain.upper_variance_parts(Factor("x", "prefix", n))[:, 1]
    cells = chain.upper_variance_parts(Factor("x", "identity", n))[:, 1]
    for j in range(n):
        prefix = sum((sum(E[i][k] for i in range(j + 1)) ** 2 for k in range(n)), Fraction(0))
        assert prefix <= Fraction(prefixes[j]) <= prefix * (1 + Fraction(1, 10**9))
        cell = sum((x**2 for x in E[j]), Fraction(0))
        assert cell <= Fraction(cells[j]) <= cell * (1 + Fraction(1, 10**9))


@pytest.mark.parametrize("total", [0, 10**6])
def test_estimates_and_their_adjoint(total: int) -> None:
    chain = make_chain(150, total)
    A = write_out(chain)
    rng = np.random.default_rng(5)
    x = rng.integers(0, 10**6, 150)
    assert chain.invert(A @ x, 0) == pytest.approx(x, abs=1e-6)
    E = np.linalg.pinv(A.astype(np.float64) / 2**20) / 2**20
    y = (A @ x).astype(np.float64) + 1e6 * rng.normal(size=len(A))
    assert chain.invert(y, 0) == pytest.approx(E @ y, rel=1e-6, abs=1e-6)
    w = rng.normal(size=(2, 150))
    found = chain.adjoint(w, 1)
    assert found == pytest.approx(w @ E, rel=1e-6, abs=1e-9 * np.abs(w @ E).max())
    assert chain.upper_adjoint_error(w, 1) < 1e-9 * np.abs(found).max()


def test_rows_of_a_list_of_prefixes_and_cells() -> None:
    chain = make_chain(30, 0)
    cells = np.array([[0, 4], [7, 7], [0, 29], [0, 0]])
    factor = Factor("x", "ranges", 30, cells=cells)
    prefixes = chain.upper_variance_parts(Factor("x", "prefix", 30))
    single = chain.upper_variance_parts(Factor("x", "identity", 30))
    expected = [prefixes[4], single[7], prefixes[29], prefixes[0]]
    assert np.array_equal(chain.upper_variance_parts(factor), expected)


def test_a_sequence_that_cannot_be_inverted_with_proof_is_refused() -> None:
    n = 400
    chain = ChainMatrix(
        np.ones(n, dtype=np.int64),
        np.array([1, 3] + [0] * (n - 2)),  # 3^n within the inverse
        np.ones(n, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )
    with pytest.raises(DesignError, match="no close bound on the variances"):
        chain.upper_variance_parts(Factor("x", "prefix", n))


def test_the_form_of_a_chain() -> None:
    chain = make_chain(20, 0)
    assert chain.has_form(20)
    assert not chain.has_form(21)
    for name, wrong in (
        ("row_weights", 0),
        ("column_weights", -1),
        ("sequence", 0),
        ("total_weight", -1),
        ("sequence", 2**52),
    ):
        arrays = {key: array.copy() for key, array in chain.arrays_in_file.items()}
        arrays[name][0] = wrong
        assert not ChainMatrix.from_arrays(arrays).has_form(20), name
    arrays = dict(chain.arrays_in_file) | {"sequence": chain.sequence.astype(np.float64)}
    assert not ChainMatrix.from_arrays(arrays).has_form(20)
