"""The kernel against counting cell by cell, its memory against the estimate, results in transit."""

from __future__ import annotations

import itertools
import math
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import fitplug as fp
import fitplug_dask as fpd
from fitplug.counts.joint_tables import choose_joint_tables, split_into_atoms, sum_to_tables
from fitplug.domain import get_codec, get_shape
from fitplug.errors import TablesError
from fitplug_dask import compiled_loops as loops, kernel
from fitplug_dask.files import take_snapshot
from fitplug_dask.kernel import counters, partitions
from fitplug_dask.kernel.counters import JointCounters
from fitplug_dask.sources import find_files
from tests.helpers import numpy_loops
from tests.helpers.row_reading import watch_reading

DOMAIN = fp.Domain(
    {
        "a": ["x", "y", "z"],
        "b": fp.Categories(["x", "y"], other="rest"),
        "c": fp.Integers(-2, 3),
        "d": fp.Categories([7, 3]),
        "e": fp.Bins([0, 1, 4]),
    }
)
VALUES: dict[str, list[Any]] = {
    "a": ["x", "y", "z", "y", "outside", None],
    "b": ["x", "y", "more", None],
    "c": [-3, -2, -1, 0, 3, 4, 127, None],
    "d": [7, 3, 5, 2, 8, None],
    "e": [0.0, 0.5, 1.0, 3.9, 4.0, float("nan"), None],
}
TYPES = {"a": pa.dictionary(pa.int8(), pa.string()), "b": pa.string(), "c": pa.int8()}
TYPES |= {"d": pa.int64(), "e": pa.float64()}
SUBSETS = [t for n in range(4) for t in itertools.combinations(DOMAIN.names, n)]


@settings(max_examples=60, deadline=None)
@given(
    tables=st.sets(st.sampled_from(SUBSETS), min_size=1, max_size=8),
    batches=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    shared=st.sets(st.sampled_from(DOMAIN.names)),
    compiled=st.booleans(),
    block=st.sampled_from([1, 7, 2**16]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_batch_reaches_the_cells_that_counting_one_by_one_says(
    tables: set[tuple[str, ...]],
    batches: list[int],
    shared: set[str],
    compiled: bool,
    block: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    wanted = sorted(tables)
    joints = choose_joint_tables(DOMAIN, wanted)
    used = DOMAIN.ordered(tuple({name for joint in joints for name in joint}))
    folders = [n for n in used if n in shared]
    columns = [n for n in used if n not in shared]
    # Some columns without any value outside, which are counted without looking at rows again.
    pools = {n: VALUES[n] if rng.random() < 0.5 else VALUES[n][:2] for n in columns}
    expected = {t: np.zeros(get_shape(DOMAIN, t), np.int64) for t in wanted}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counters, "BLOCK_ROWS", block)
        if not compiled:
            for name in ("locate", "increment", "increment_pairs"):
                patch.setattr(loops, name, getattr(numpy_loops, name))
        counting = JointCounters(dict(DOMAIN.attributes), joints, sum(batches))
        for n in batches:
            drawn = {c: [pools[c][i] for i in rng.integers(len(pools[c]), size=n)] for c in columns}
            codes = {
                c: get_codec(DOMAIN[c]).codes(np.array(v, dtype=object))
                if n
                else np.zeros(0, np.int64)
                for c, v in drawn.items()
            }
            arrays = [pa.array(drawn[c]).cast(TYPES[c]) for c in columns]
            keys: dict[str, Any] = {f: int(rng.integers(DOMAIN[f].size)) for f in folders}
            if not columns:
                counting.take_identical_rows(n, keys)
            else:
                if rng.random() < 0.5:  # rows of several folders
                    keys = {f: rng.integers(DOMAIN[f].size, size=n) for f in folders}
                batch = pa.RecordBatch.from_arrays(arrays, names=columns)
                counting.take_batch(batch, columns, keys)
            codes |= {f: np.broadcast_to(keys[f], n) for f in folders}
            for row in range(n):
                cells = {name: int(codes[name][row]) for name in used}
                if min(cells.values(), default=0) >= 0:
                    for t in wanted:
                        expected[t][tuple(cells[name] for name in t)] += 1
    counted = sum_to_tables(DOMAIN, dict(zip(joints, counting.counters, strict=True)), wanted)
    for t in wanted:
        np.testing.assert_array_equal(counted[t], expected[t])


def test_atoms_cut_every_joint_table_in_its_own_order() -> None:
    domain = fp.Domain({n: fp.Integers(1, 5 + i) for i, n in enumerate("abcdefghijkl")})
    for size in (1, 2, 3):
        joints = choose_joint_tables(domain, list(itertools.combinations(domain.names, size)))
        cut = split_into_atoms(joints)
        assert sorted(n for atom in cut for n in atom) == sorted(domain.names)
        for joint in joints:
            inside = [atom for atom in cut if set(atom) <= set(joint)]
            assert tuple(n for atom in inside for n in atom) == joint


def test_pairs_of_all_attributes_are_counted_as_pairs_of_blocks() -> None:
    domain = fp.Domain({f"a{i}": fp.Integers(1, 16) for i in range(20)})
    joints = choose_joint_tables(domain, list(itertools.combinations(domain.names, 2)))
    assert len(joints) == math.comb(10, 2)
    assert {len(atom) for atom in split_into_atoms(joints)} == {2}


@pytest.mark.parametrize(("rows", "kind"), [(2**32 - 1, np.uint32), (2**32, np.int64)])
def test_counters_are_narrow_only_where_no_cell_can_overflow(rows: int, kind: type) -> None:
    counting = JointCounters({"a": DOMAIN["a"]}, [("a",)], rows)
    counting.take_identical_rows(2**32 - 1, {"a": 0})
    assert counting.counters[0].dtype == kind
    assert counting.counters[0][0] == 2**32 - 1


def test_sums_are_wide() -> None:
    part = kernel.PartialCounts((np.array([2**32 - 1, 0], dtype=np.uint32),))
    total = kernel.add_partial_counts(part, part)
    assert isinstance(total, kernel.PartialCounts)
    assert total.counts[0].dtype == np.int64
    assert total.counts[0].tolist() == [2**33 - 2, 0]


@pytest.mark.parametrize("most", [0, 255, 2**16, 2**32 - 1, 2**32, 2**53])
@pytest.mark.parametrize("cells", [1, 100])
def test_counts_that_have_travelled_add_up(most: int, cells: int) -> None:
    part = kernel.PartialCounts((np.array([most] + [0] * (cells - 1)),))
    total = kernel.add_partial_counts(
        pickle.loads(pickle.dumps(part)), pickle.loads(pickle.dumps(part))
    )
    assert isinstance(total, kernel.PartialCounts)
    assert total.counts[0][0] == 2 * most
    assert total.counts[0].sum() == 2 * most


@pytest.mark.parametrize("used", [0, 1, 10, 249, 250, 1000])
@pytest.mark.parametrize("kind", [np.uint32, np.int64])
def test_results_travel_without_most_zeros(used: int, kind: type) -> None:
    counts = np.zeros(1000, dtype=kind)
    counts[np.random.default_rng(used).permutation(1000)[:used]] = 2**32 - 1
    sent = pickle.dumps(kernel.PartialCounts((counts, counts[:1])), protocol=5)
    back = pickle.loads(sent)
    assert isinstance(back, kernel.PartialCounts)
    for there, here in zip(back.counts, (counts, counts[:1]), strict=True):
        np.testing.assert_array_equal(there, here)
    if used <= 10:
        assert len(sent) < 1000


@pytest.mark.parametrize("tables", [[("p", "q")], [("p", "q"), ("p",), ("q", "r")]])
def test_no_more_memory_is_held_than_estimated(tmp_path: Path, tables: Any) -> None:
    """Large tables, so that what each batch takes does not matter."""
    domain = fp.Domain({"p": fp.Integers(0, 999), "q": fp.Integers(0, 1999), "r": ["x", "y"]})
    rng = np.random.default_rng(0)
    rows = {"p": rng.integers(0, 1000, 4000), "q": rng.integers(0, 2000, 4000), "r": ["x"] * 4000}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet", row_group_size=100)
    joints = choose_joint_tables(domain, tables)
    in_joints = sum(math.prod(get_shape(domain, joint)) for joint in joints)
    in_tables = sum(math.prod(get_shape(domain, table)) for table in tables)
    tracemalloc.start()
    try:
        with dask.config.set(num_workers=2):
            fpd.count(tmp_path, (domain, tables))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    batches = 2**23
    assert peak < partitions.estimate_memory(in_joints, in_tables, 2) + batches


def test_ten_million_cells_are_counted_within_half_a_gigabyte() -> None:
    assert partitions.estimate_memory(10**7, 10**7, 2) < 500 * 2**20


def test_tables_beyond_memory_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    domain = fp.Domain({n: fp.Integers(0, 9999) for n in "pq"} | {"r": fp.Integers(0, 99)})
    with pytest.raises(TablesError, match=r"10,000,000,000 cells.* GiB, but .* may use only"):
        fpd.count(tmp_path / "missing", (domain, [("p", "q", "r")]))


def test_shares_are_as_many_for_every_worker(tmp_path: Path) -> None:
    rows = pa.table({"a": ["x"] * 1000})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=1)
    files = take_snapshot(find_files(fp.Source(tmp_path)), {"a": DOMAIN["a"]})
    for workers, cells in itertools.product([1, 2, 3, 8], [1, 20, 60, 10**6]):
        cut = partitions.cut_partitions(files, cells, workers)
        assert len(cut) % workers == 0
        assert max(s.rows for s in cut) - min(s.rows for s in cut) <= 1


def test_the_spy_sees_each_row_group_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that say what is not read mean something only if the spy sees all that is read."""
    for name in ("1", "2"):
        table = pa.table({"a": ["x", "y", "z"] * 10})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=10)
    read = watch_reading(monkeypatch)
    fpd.count(tmp_path, (DOMAIN, [("a",)]))
    assert sorted(read) == [
        (tmp_path / f"{name}.parquet", group) for name in ("1", "2") for group in range(3)
    ]
