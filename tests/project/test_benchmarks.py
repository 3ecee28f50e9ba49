"""The workloads and published formulas of benchmarks are those that they name."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fitplug as fp
from tests.helpers.chains import build_square_root
from tests.helpers.places import ROOT

BENCHMARKS = str(ROOT / "benchmarks")


@pytest.fixture
def load() -> Iterator[Any]:
    sys.path.insert(0, BENCHMARKS)
    yield importlib.import_module
    sys.path.remove(BENCHMARKS)


@pytest.mark.parametrize("n", [1, 2, 40])
def test_normalized_square_root_is_a_factorization_of_the_prefixes(load: Any, n: int) -> None:
    column = build_square_root(n)
    root = np.array([[column[i - j] if i >= j else 0.0 for j in range(n)] for i in range(n)])
    encoder = root / np.linalg.norm(root, axis=0)
    decoder = np.tril(np.ones((n, n))) @ np.linalg.inv(encoder)
    expected = np.linalg.norm(decoder, axis=1).max()
    assert np.isclose(load("chains").evaluate_normalized_square_root(n), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["marginal", "prefix", "range", "circular"])
def test_factors_list_the_queries_of_their_kind(load: Any, kind: str) -> None:
    n = 4
    sets = {
        "marginal": [{i} for i in range(n)],
        "prefix": [set(range(i + 1)) for i in range(n)],
        "range": [set(range(i, j + 1)) for i in range(n) for j in range(i, n)],
        "circular": [{(i + k) % n for k in range(j + 1)} for i in range(n) for j in range(n)],
    }
    rows = load("published_peers").build_factor(kind, n)
    assert [set(np.flatnonzero(row)) for row in rows] == sets[kind]
    assert set(rows.ravel()) <= {0.0, 1.0}


def test_thresholds_list_the_pairs_of_cells_below_them(load: Any) -> None:
    peers, (i, j) = load("published_peers"), np.indices((3, 3))
    affine, distance = (peers.build_thresholds(kind, 3) for kind in ("affine", "distance"))
    assert np.array_equal(affine, [(i + j <= c).ravel() for c in range(5)])
    assert np.array_equal(distance, [(abs(i - j) <= c).ravel() for c in range(3)])


@pytest.mark.parametrize("kind", ["prefix", "affine", "random"])
def test_fitplug_is_asked_for_the_queries_of_the_peers(load: Any, kind: str) -> None:
    peers, published = load("published_peers"), load("published")
    queries = peers.build_pairs(kind, 3, 2)
    matrix = np.concatenate([peers.expand_over_all(queries, b) for b in queries.blocks])
    assert matrix.shape == (queries.size, 9)
    asked = published.ask(queries).matrix()
    assert sorted(map(tuple, asked)) == sorted(map(tuple, matrix))


def test_mixed_queries_are_of_one_two_and_three_attributes(load: Any) -> None:
    queries = load("published_peers").build_mixed(3, 3)
    assert [b.size for b in queries.blocks] == [6] * 3 + [5] * 3 + [27]
    assert not queries.is_product


def test_a_case_prints_bounds_of_the_least_error() -> None:
    command = [sys.executable, "published.py", "case"]
    words = ["pairs", "prefix", "4", "2"]
    figures = {}
    for system in ("fitplug-rmse", "fitplug-largest"):
        output = subprocess.run(
            [*command, system, *words], cwd=BENCHMARKS, capture_output=True, check=True
        )
        figures[system] = json.loads(output.stdout)
    least, largest = figures["fitplug-rmse"], figures["fitplug-largest"]
    assert least["bound"] <= least["RMSE"] <= largest["RMSE"] <= largest["largest std"]
    assert largest["bound of the largest"] <= largest["largest std"] <= least["largest std"]
    assert least["RMSE"] <= 1.001 * least["bound"]
    workload = fp.Workload(
        fp.Domain({"a": fp.Integers(0, 3), "b": fp.Integers(0, 3)}),
        [
            fp.queries({"a": "prefix"}, std=1.0),
            fp.queries({"b": "prefix"}, std=1.0),
            fp.queries({"a": "prefix", "b": "prefix"}, std=1.0),
        ],
    )
    assert np.isclose(fp.design(workload).privacy_cost, largest["largest std"], rtol=1e-9)


def test_only_fitplugs_rows_are_printed_without_peers(load: Any, capsys: Any) -> None:
    published = load("published")
    published.print_row(["CPS", "WFF, run"], {})
    assert capsys.readouterr().out == ""
    published.print_row(["CPS"], {"RMSE": 1.744, **published.NOT_PUBLISHED})
    assert capsys.readouterr().out == "| CPS | 1.744 | - | - | - | - | - |\n"
