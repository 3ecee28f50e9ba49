"""Random files, in batches of every size, against the cells of the values written."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug_dask.files import parquet
from fitplug_dask.kernel import reading
from tests.helpers.random_files import DOMAIN, write_files


@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(i, marks=pytest.mark.long) for i in range(10, 200))]
)
def test_random_files_are_counted_exactly(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    names = tuple(name for name in DOMAIN.names if rng.random() < 0.6) or ("text",)
    expected = write_files(rng, tmp_path, names)
    vary_batches(rng, monkeypatch)
    counted = fpd.count(tmp_path, (DOMAIN, [names, names[:1]]))
    np.testing.assert_array_equal(counted[names], expected)
    others = tuple(range(1, len(names)))
    np.testing.assert_array_equal(counted[names[:1]], expected.sum(axis=others))


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(i, marks=pytest.mark.long) for i in range(5, 50))]
)
def test_random_files_in_folders_are_counted_exactly(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    names = tuple(name for name in DOMAIN.names if rng.random() < 0.4) or ("text",)
    expected = []
    for year in range(2000, 2004):  # of which the domain lacks the last
        (tmp_path / f"year={year}").mkdir()
        expected.append(write_files(rng, tmp_path / f"year={year}", names))
    vary_batches(rng, monkeypatch)
    domain = fp.Domain({"year": fp.Integers(2000, 2002), **dict(DOMAIN.attributes)})
    counted = fpd.count(tmp_path, (domain, [("year", *names), names]))
    np.testing.assert_array_equal(counted[("year", *names)], expected[:3])
    np.testing.assert_array_equal(counted[names], sum(expected[:3]))


def vary_batches(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_LOCAL_BUFFER", rng.choice([500, 2**20]))
    monkeypatch.setattr(parquet, "_DICTIONARY_BYTES", rng.choice([1, 2**20]))
    monkeypatch.setattr(reading, "_SMALL_BATCH_ROWS", rng.choice([0, 20, 2**13]))
    monkeypatch.setattr(reading, "_BATCH_ROWS", rng.choice([7, 2**16]))
