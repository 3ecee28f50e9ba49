"""What a count by person checks of itself: wrong hashes and wrong selections count nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from hypothesis import given, strategies as st

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import FitplugError
from fitplug_dask import compiled_loops as loops, persons
from fitplug_dask.encoding import array_memory
from fitplug_dask.kernel import Job
from fitplug_dask.persons import (
    packing,
    selected_rows,
    selection,
    selection_check,
    shuffle,
)
from fitplug_dask.persons.packing import Packing, Rows
from fitplug_dask.persons.selection import (
    RecordGroups,
    Selection,
    check_rows,
    check_selection,
)
from fitplug_dask.persons.selection_check import check_selection_once
from fitplug_dask.workers import CheckError
from tests.helpers import numpy_loops
from tests.helpers.siphash import scalar_siphash128
from tests.helpers.sources import count_rows

BOTH = [numpy_loops, loops]

KEY = b"sixteen bytes or more"
JOB = Job({"value": fp.Integers(0, 3), "year": fp.Integers(1, 3)}, ())


@pytest.fixture(autouse=True)
def untested() -> Iterator[None]:
    """A process that has not made the test yet, before and after."""
    check_selection_once.cache_clear()
    yield
    check_selection_once.cache_clear()


# The test of each process


@pytest.mark.usefixtures("either_loops")
def test_correct_loops_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    check_selection_once()
    monkeypatch.setattr(loops, "select_rows", None)
    check_selection_once()  # once


@given(st.binary(min_size=16, max_size=16), st.binary(max_size=40))
def test_the_plain_hash_is_siphash(key: bytes, message: bytes) -> None:
    assert selection_check._hash_plainly(key, message) == scalar_siphash128(key, message)


compact_array, view_stretches = array_memory._compact_array, array_memory.view_stretches


def view_from_the_start(column: Any) -> Any:
    return view_stretches(pa.Array.from_buffers(column.type, len(column), column.buffers()))


def cut_one_row_early(column: Any) -> Any:
    if isinstance(column, pa.DictionaryArray) or not column.offset:
        return compact_array(column)
    early = column.offset - 1
    return pa.Array.from_buffers(column.type, len(column), column.buffers(), offset=early)


def end_with_values(*_: Any) -> None:
    raise ValueError("735")


def hash_all_but_the_last(*given: Any) -> None:
    *key, content, places, tags = given
    numpy_loops.hash_stretches(*key, content, places[:-1], tags[:-1])


def hash_by_magnitude(first: int, second: int, values: Any, tags: Any) -> None:
    numpy_loops.hash_integers(first, second, np.abs(values), tags)


def hash_with_half_of_the_key(first: int, second: int, *given: Any) -> None:
    numpy_loops.hash_stretches(first, first, *given)


def keep_one_more(*given: Any) -> int:
    *rows, limit, kept = given
    return numpy_loops.select_rows(*rows, limit + 1, kept)


def keep_one_less(*given: Any) -> int:
    return int(numpy_loops.select_rows(*given)) - 1


def keep_the_first(first: int, second: int, tags: Any, words: Any, limit: int, kept: Any) -> int:
    """At most k rows of each person, but the first ones instead of those of lowest priority."""
    held: Counter[Any] = Counter()
    found = []
    for row, tag in enumerate(map(tuple, tags.tolist())):
        held[tag] += 1
        if held[tag] <= limit:
            found.append(row)
    kept[: len(found)] = found
    return len(found)


def keep_twice(*given: Any) -> int:
    found = int(numpy_loops.select_rows(*given))
    kept = given[-1]
    kept[found - 1] = kept[0]
    return found


def keep_what_is_not_there(*given: Any) -> int:
    given[-1][:] = len(given[-1])
    return 1


def keep_below_the_first(*given: Any) -> int:
    given[-1][:] = -1
    return 1


WRONG: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "the offset is left out": (packing, "view_stretches", view_from_the_start),
    "slices are cut one row early": (array_memory, "_compact_array", cut_one_row_early),
    "the last row has no hash": (loops, "hash_stretches", hash_all_but_the_last),
    "the sign is left out": (loops, "hash_integers", hash_by_magnitude),
    "half of the key": (loops, "hash_stretches", hash_with_half_of_the_key),
    "one row more": (loops, "select_rows", keep_one_more),
    "one row less": (loops, "select_rows", keep_one_less),
    "the first rows": (loops, "select_rows", keep_the_first),
    "a row twice": (loops, "select_rows", keep_twice),
    "a row beyond": (loops, "select_rows", keep_what_is_not_there),
    "a row before": (loops, "select_rows", keep_below_the_first),
    "an error": (loops, "hash_messages", end_with_values),
    "groups are ignored": (
        selection,
        "select_one_of_each_group",
        lambda key, rows, groups: np.arange(len(rows.tags)),
    ),
}

DOMAIN = fp.Domain({"age": fp.Integers(0, 9)})
WANTED = (DOMAIN, [("age",)])
OPTIONS: dict[str, Any] = {"person": "id", "unit": fp.AddRemove(2), "person_key": KEY}


def make_people(rows: int = 200) -> pa.Table:
    ids = [f"person {i % 37} 735" for i in range(rows)]
    return pa.table({"id": ids, "age": [i % 10 for i in range(rows)]})


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_is_found_before_anything_is_counted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*WRONG[name])
    with pytest.raises(CheckError, match=r"the limit on rows per person failed a (test|check)"):
        check_selection_once()
    with pytest.raises(
        FitplugError, match=r"the limit on rows per person failed a (test|check)"
    ) as caught:
        count_rows(make_people(), WANTED, **OPTIONS)
    assert caught.value.__context__ is None
    assert "735" not in str(caught.value)
    # Counts of all rows do not need it.
    assert fpd.count(make_people(), WANTED)["age"].sum() == 200


def test_each_process_makes_the_test(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers are in this process, whose own test is left out."""
    monkeypatch.setattr(persons, "check_selection_once", lambda: None)
    monkeypatch.setattr(loops, "hash_stretches", hash_with_half_of_the_key)
    frames = make_people().to_pandas()
    source = [dask.delayed(frames)]
    with pytest.raises(FitplugError, match=r"failed a test with PyArrow.*Install other versions"):
        count_rows(source, WANTED, client=client, **OPTIONS)


@pytest.mark.parametrize("begin", [shuffle.count_buckets, selected_rows.keep_buckets])
def test_what_selects_makes_the_test(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "select_rows", keep_the_first)
    chosen = Selection.create(("id",), 2, KEY)
    job: Any = shuffle.PersonJob(JOB, chosen, 1)
    if begin is selected_rows.keep_buckets:
        store = shuffle.RowStore(lambda *_: None, lambda _: b"")
        job = shuffle.PersonJob(JOB, chosen, 1, store)
    with pytest.raises(CheckError, match="failed a test"):
        begin(job, iter(()))


# What holds of every selection


def draw_rows(rng: np.random.Generator, rows: int) -> Rows:
    """Rows of few persons, some of whose hashes agree in one half."""
    tags = rng.integers(0, 3, (rows, 2)).astype(np.uint64) << np.uint64(62)
    return Rows(tags, rng.integers(0, 12, (rows, 1)).astype(np.uint64))


@given(
    rows=st.integers(0, 30),
    limit=st.integers(1, 6),
    grouped=st.sampled_from([None, RecordGroups(), RecordGroups(Packing(JOB).find_field("year"))]),
    share=st.sampled_from([0.1, 0.3, 0.6, 1.0]),
    wrong=st.sampled_from([None, -1, 0, 30, 2**62]),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_breaks_a_limit_is_refused_and_nothing_else(
    rows: int, limit: int, grouped: Any, share: float, wrong: int | None, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    held = draw_rows(rng, rows)
    kept = rng.permutation(rows)[: round(share * rows)].astype(np.int64)
    if wrong is not None:
        kept = np.append(kept, wrong)
    each: Counter[Any] = Counter()
    groups: Counter[Any] = Counter()
    is_valid = len(set(kept.tolist())) == len(kept)
    for row in kept.tolist():
        if not 0 <= row < rows:
            is_valid = False
            continue
        tag, cell = tuple(held.tags[row].tolist()), int(held.words[row, 0])
        each[tag] += 1
        groups[tag, cell if grouped == RecordGroups() else cell % 3] += 1
    is_valid &= max(each.values(), default=0) <= limit
    is_valid &= grouped is None or max(groups.values(), default=0) <= 1
    if is_valid:
        check_selection(held, kept, limit, grouped)
        return
    with pytest.raises(CheckError, match="the limit on rows per person failed a check"):
        check_selection(held, kept, limit, grouped)


@pytest.mark.parametrize("crowd", [0, 1, 400])
def test_one_person_of_many_with_one_row_too_many_is_found(crowd: int) -> None:
    rng = np.random.default_rng(crowd)
    tags = rng.integers(0, 2**64, (50_000, 2), dtype=np.uint64)
    tags[:crowd, 0] = tags[0, 0]  # persons whose hashes agree in one half are others
    tags = np.repeat(tags, 2, axis=0)
    rows = Rows(tags, rng.integers(0, 12, (len(tags), 1)).astype(np.uint64))
    kept = np.arange(len(tags))
    check_selection(rows, kept, 2, None)
    tags[-1] = tags[-3]
    with pytest.raises(CheckError, match="more rows of a person than the limit"):
        check_selection(rows, kept, 2, None)


@pytest.mark.parametrize(("tags", "words"), [((3, 2), (4, 1)), ((4, 1), (4, 1)), ((4, 2), (4,))])
def test_rows_without_hashes_are_refused(tags: Any, words: Any) -> None:
    rows = Rows(np.zeros(tags, np.uint64), np.zeros(words, np.uint64))
    with pytest.raises(CheckError, match="person hashes differ"):
        check_rows(rows)
    with pytest.raises(CheckError, match="person hashes differ"):
        Selection.create(("id",), 2, KEY).select_rows(rows)


@pytest.mark.parametrize("name", ["one row more", "a row twice", "a row beyond", "a row before"])
@pytest.mark.parametrize("where", ["threads", "cluster", "collector", "crowd"])
def test_a_selection_that_is_wrong_later_counts_nothing(
    name: str,
    where: str,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_selection_once()
    monkeypatch.setattr(*WRONG[name])
    people = make_people(3000)
    if where == "collector":
        monkeypatch.setattr(selection, "_COMPACTED_ROWS", 20)
    if where == "crowd":
        monkeypatch.setattr(shuffle, "_CROWDED_ROWS", -100_000)
    path = tmp_path / "a.parquet"
    pq.write_table(people, path)
    with pytest.raises(FitplugError, match="the limit on rows per person failed a check") as caught:
        count_rows(path, WANTED, client=client if where == "cluster" else None, **OPTIONS)
    assert caught.value.__context__ is None
    assert "735" not in str(caught.value)


def test_slabs_of_wrong_selections_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    check_selection_once()
    monkeypatch.setattr(loops, "select_rows", keep_one_more)
    chosen = Selection.create(("id",), 1, KEY)
    tags = np.zeros((3, 2), np.uint64)
    packing = Packing(JOB)
    record = packing.make_records(Rows(tags, np.arange(3, dtype=np.uint64)[:, None]))
    stored: list[Any] = []
    store = shuffle.RowStore(lambda *given: stored.append(given), lambda _: b"")
    job = shuffle.PersonJob(JOB, chosen, 1, store)
    pieces = {0: memoryview(record.view(np.uint8)).cast("B")}
    with pytest.raises(CheckError, match="failed a check"):
        selected_rows.keep_buckets(job, iter([(0, pieces)]))
    assert not stored


# What both implementations of the loops refuse


@pytest.mark.parametrize("built", BOTH, ids=lambda m: m.__name__[13:])
def test_arrays_of_other_lengths_are_refused_by_both(built: Any) -> None:
    def words(*shape: int) -> Any:
        return np.zeros(shape, dtype=np.uint64)

    def places(n: int) -> Any:
        return np.zeros(n, dtype=np.int64)

    raw = np.zeros((3, 9), dtype=np.uint8)
    for tags in (words(2, 2), words(4, 2), words(3, 1)):
        with pytest.raises(ValueError, match="each message must have a tag"):
            built.hash_messages(1, 2, raw, tags)
        with pytest.raises(ValueError, match="each value must have a tag"):
            built.hash_integers(1, 2, places(3), tags)
        with pytest.raises(ValueError, match="each stretch must have an end"):
            built.hash_stretches(1, 2, raw.reshape(-1), places(4), tags)
        with pytest.raises(ValueError, match="each row must have a tag"):
            built.select_rows(1, 2, tags, words(3, 1), 1, places(3))
    with pytest.raises(ValueError, match="room among those kept"):
        built.select_rows(1, 2, words(3, 2), words(3, 1), 1, places(2))
    bucket = np.zeros(3, dtype=np.uint16)
    for buckets_given, ordered in ((bucket[:2], raw), (bucket, raw[:2]), (bucket, raw[:, :8])):
        room = np.ascontiguousarray(ordered.copy())
        with pytest.raises(ValueError, match="a bucket and a place"):
            built.sort_records(raw, buckets_given, places(1), room)
    with pytest.raises(IndexError, match="beyond the records"):
        built.sort_records(raw, bucket + np.uint16(1), places(1), raw.copy())
    with pytest.raises(IndexError, match="beyond the records"):
        built.sort_records(raw, bucket, places(1) + 1, raw.copy())
