"""Footers read by the workers of a cluster: the same snapshot and the same errors."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import DataError
from fitplug_dask import request
from fitplug_dask.files import take_snapshot
from fitplug_dask.sources import find_files
from fitplug_dask.workers import open_runner

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 9)})
WANTED = (DOMAIN, [("sex", "age")])
FILES = 70


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(request, "_FILES_PER_TASK", 9)
    rng = np.random.default_rng(3)
    for i in range(FILES):
        rows = {"sex": rng.choice(["1", "2", "3"], 50), "age": rng.integers(-1, 11, 50)}
        pq.write_table(pa.table(rows), tmp_path / f"{i:02}.parquet")
    return tmp_path


@pytest.mark.slow
def test_workers_take_the_same_snapshot(people: Path, client: Any) -> None:
    attributes = dict(DOMAIN.attributes)
    found = find_files(fp.Source(people))
    expected = take_snapshot(found, attributes)
    told = take_snapshot(
        found, attributes, check_all=partial(request.check_on_runner, open_runner(client))
    )
    assert told == expected
    # Arrow ends the process where damaged metadata are pickled, so none of it travels.
    assert b"FileMetaData" not in pickle.dumps(told)
    counted = fpd.count(people, WANTED, client=client)
    np.testing.assert_array_equal(counted["sex", "age"], fpd.count(people, WANTED)["sex", "age"])


def test_the_first_bad_file_is_named(people: Path, client: Any) -> None:
    for i in (66, 33):
        (people / f"{i}.parquet").write_bytes(b"PAR1 and no more")
    for run in (client, None):
        with pytest.raises(DataError) as caught:
            fpd.count(people, WANTED, client=run)
        assert str(caught.value).startswith(f"{people / '33.parquet'} is truncated")
        assert caught.value.__cause__ is None
