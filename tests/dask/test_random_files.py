"""Random files, in batches of every size, against the cells of the values written."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

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
    monkeypatch.setattr(parquet, "_LOCAL_BUFFER", rng.choice([500, 2**20]))
    monkeypatch.setattr(parquet, "_DICTIONARY_BYTES", rng.choice([1, 2**20]))
    monkeypatch.setattr(reading, "_SMALL_BATCH_ROWS", rng.choice([0, 20, 2**13]))
    monkeypatch.setattr(reading, "_BATCH_ROWS", rng.choice([7, 2**16]))
    counted = fpd.count(tmp_path, (DOMAIN, [names, names[:1]]))
    np.testing.assert_array_equal(counted[names], expected)
    others = tuple(range(1, len(names)))
    np.testing.assert_array_equal(counted[names[:1]], expected.sum(axis=others))
