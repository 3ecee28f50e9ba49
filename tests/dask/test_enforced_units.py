"""Counting enforces units of privacy: one row of a person in each cell, or for each value."""

from __future__ import annotations

import copy
import pickle
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from hypothesis import given, settings, strategies as st

import fitplug as fp
import fitplug_dask as fpd
from fitplug.domain import get_shape
from fitplug.errors import BudgetError, DomainError, TablesError
from fitplug.workload import BoundUnit
from fitplug_cli.render import read_counts, write_counts
from fitplug_dask.kernel import Job
from fitplug_dask.persons import find_record_groups
from fitplug_dask.persons.packing import Packing, Rows
from fitplug_dask.persons.selection import RecordGroups, Selection
from fitplug_dask.releases import release_source
from fitplug_opendp.count_checks import check_enforced
from tests.helpers.siphash import scalar_siphash128
from tests.helpers.sources import count_rows

MONTHS, SITES = 4, 3
DOMAIN = fp.Domain(
    {"site": fp.Integers(0, SITES - 1), "month": fp.Integers(1, MONTHS), "kind": ["a", "b"]}
)
TABLES = [("site", "month"), ("kind",), ()]
WANTED = (DOMAIN, TABLES)
KEY = b"sixteen bytes or more"

Row = tuple[int | None, int, int, str]
"""A person, a site, a month and a kind; a month of 0 is outside of the domain."""

UNITS = [
    fp.AddRemove(2, distinct=True),
    fp.AddRemove(3, once_per="month"),
    fp.AddRemove(MONTHS, once_per="month"),
    fp.AddRemove(10**6, distinct=True),
    fp.AddRemove(2, once_per="kind"),
    fp.AddRemove(3),
    fp.AddRemove(),
    fp.ReplaceOne(),
]


def brute_force(rows: Iterable[Row], unit: Any) -> dict[Any, Any]:
    """Each person's cells in the order of their priorities, one after the other, written apart."""
    chosen = Selection.create(("id",), 1, KEY)
    most = unit.records if isinstance(unit, fp.AddRemove) else 1
    persons: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for person, site, month, kind in rows:
        if person is not None and 1 <= month <= MONTHS:
            persons[person].append((site, month - 1, "ab".index(kind)))
    counts = {t: np.zeros(get_shape(DOMAIN, t), dtype=np.int64) for t in TABLES}
    for person, held in persons.items():
        text = person.to_bytes(9, "little", signed=True)
        tag = b"".join(h.to_bytes(8, "little") for h in scalar_siphash128(chosen.tag_key, text))

        def priority(cell: tuple[int, int, int], tag: bytes = tag) -> int:
            site, month, kind = cell
            word = ((site * MONTHS + month) * 2 + kind).to_bytes(8, "little")
            return scalar_siphash128(chosen.priority_key, tag + word)[0]

        seen: set[Any] = set()
        kept = 0
        for cell in sorted(held, key=priority):
            site, month, kind = cell
            group: Any = len(seen)
            if getattr(unit, "distinct", False):
                group = cell
            elif (name := getattr(unit, "once_per", None)) is not None:
                group = {"month": month, "kind": kind}[name]
            if group in seen or kept == most:
                continue
            seen.add(group)
            kept += 1
            counts["site", "month"][site, month] += 1
            counts[("kind",)][kind] += 1
            counts[()] += 1
    return counts


def write(path: Path, rows: Sequence[Row], group: int = 50) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    types = {"id": pa.int64(), "site": pa.int8(), "month": pa.int8(), "kind": pa.string()}
    columns = {
        name: pa.array([row[i] for row in rows], type=kind)
        for i, (name, kind) in enumerate(types.items())
    }
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def limited(source: Any, unit: Any, **options: Any) -> fp.Tables:
    return count_rows(
        fp.Source(source, person="id"), WANTED, unit=unit, **{"person_key": KEY, **options}
    )


def assert_equal(tables: Any, expected: Any) -> None:
    for names in TABLES:
        np.testing.assert_array_equal(tables[names], expected[names])


def events(seed: int, persons: int = 30, most: int = 25) -> list[Row]:
    """Persons of 1 to `most` rows, many of them equal, some of nobody or outside."""
    rng = np.random.default_rng(seed)
    return [
        (
            None if rng.random() < 0.05 else person * 7 - 20,
            int(rng.integers(0, SITES)),
            int(rng.integers(0, MONTHS + 1)),
            str(rng.choice(["a", "b"])),
        )
        for person in range(persons)
        for _ in range(rng.integers(1, most))
    ]


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_equals_brute_force_and_duckdb(tmp_path: Path, unit: Any) -> None:
    rows = events(1)
    write(tmp_path / "a.parquet", rows[:200])
    write(tmp_path / "b.parquet", rows[200:], group=7)
    tables = limited(tmp_path, unit)
    assert_equal(tables, brute_force(rows, unit))
    said = unit if isinstance(unit, fp.AddRemove) else fp.AddRemove()
    assert (tables.unit, tables.person) == (said, "id")
    each = "DISTINCT (site, month, kind)" if said.distinct else "*"
    each = f"DISTINCT {said.once_per}" if said.once_per else each
    inside = f"month BETWEEN 1 AND {MONTHS} AND id IS NOT NULL"
    with duckdb.connect() as connection:
        query = f"""SELECT sum(least(n, {said.records})) FROM (SELECT count({each}) AS n
            FROM '{tmp_path}/*.parquet' WHERE {inside} GROUP BY id)"""
        (kept,) = connection.sql(query).fetchall()[0]
    assert tables[()] == kept


@pytest.mark.parametrize("unit", UNITS[:2], ids=str)
@pytest.mark.slow
def test_files_workers_and_the_disk_change_nothing(
    tmp_path: Path, unit: Any, client: Client, request: pytest.FixtureRequest
) -> None:
    rows = events(2)
    expected = brute_force(rows, unit)
    mixed = [rows[i] for i in np.random.default_rng(3).permutation(len(rows))]
    for i in range(4):
        write(tmp_path / f"{i}.parquet", mixed[i::4], group=1 + 9 * i)
    assert_equal(limited(tmp_path, unit), expected)
    assert_equal(limited(tmp_path, unit, client=client), expected)
    request.getfixturevalue("crowded")
    assert_equal(limited(tmp_path, unit), expected)
    assert_equal(limited(tmp_path, unit, client=client), expected)


ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, MONTHS), st.sampled_from("ab")),
    max_size=24,
)


@given(ROWS, st.sampled_from(UNITS[:5]), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_a_person_or_a_record_more_changes_that_persons_rows_only(
    rows: list[Row], unit: Any, random: Any
) -> None:
    own = [row for row in rows if row[0] == 0]
    others = [row for row in rows if row[0] != 0]
    mixed = random.sample(rows, len(rows))
    cut = random.randint(0, len(rows))
    with tempfile.TemporaryDirectory() as folder:
        together = Path(folder, "together")
        write(together / "a.parquet", mixed[:cut], group=random.randint(1, 9))
        write(together / "b.parquet", mixed[cut:], group=random.randint(1, 9))
        whole = limited(together, unit)
        of_person = limited(write(Path(folder, "own.parquet"), own), unit)
        of_others = limited(write(Path(folder, "others.parquet"), others), unit)
        fewer = limited(write(Path(folder, "fewer.parquet"), others + own[1:]), unit)
    assert_equal(whole, brute_force(rows, unit))
    assert of_person[()] <= unit.records
    for names in TABLES:
        np.testing.assert_array_equal(whole[names], of_person[names] + of_others[names])
        # The person keeps at least as many rows with the record as without it, and one more at
        # most where the limit is on the number of rows.
        assert (fewer[names] >= of_others[names]).all()
    if unit.once_per == "month":
        assert of_person["site", "month"].sum(axis=0).max(initial=0) <= 1


@given(ROWS, st.sampled_from(UNITS[:5]), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_rows_may_be_selected_in_parts_first(rows: list[Row], unit: Any, random: Any) -> None:
    """This is what partitions and compaction rely on."""
    job = Job({name: DOMAIN[name] for name in DOMAIN.names}, ())
    packing = Packing(job)
    inside = [row for row in rows if row[2]]
    cells = {
        "site": np.array([row[1] for row in inside], dtype=np.int64),
        "month": np.array([row[2] - 1 for row in inside], dtype=np.int64),
        "kind": np.array(["ab".index(row[3]) for row in inside], dtype=np.int64),
    }
    tags = np.array([[5, row[0]] for row in inside], dtype=np.uint64).reshape(-1, 2)
    held = Rows(tags, packing.pack(cells, len(inside)))
    selection = Selection.create(("id",), unit.records, KEY, find_record_groups(unit, job))
    part = np.array([i for i in range(len(inside)) if random.random() < 0.5], dtype=np.int64)
    rest = np.setdiff1d(np.arange(len(inside)), part)
    in_parts = np.concatenate([part[selection.select_rows(held.take(part))], rest])
    among = held.take(in_parts)

    def list_kept(rows: Rows) -> list[tuple[int, ...]]:
        kept = rows.take(selection.select_rows(rows))
        return sorted(map(tuple, np.hstack([kept.tags, kept.words]).tolist()))

    assert list_kept(among) == list_kept(held)


def test_a_value_is_found_in_any_word() -> None:
    attributes: dict[str, Any] = {f"a{i}": fp.Integers(0, 10**6 - i) for i in range(7)}
    packing = Packing(Job(attributes, ()))
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(0, 10**6 - 9, 50) for name in attributes}
    words = packing.pack(codes, 50)
    for name in attributes:
        np.testing.assert_array_equal(packing.find_field(name).read(words), codes[name])


def test_without_attributes_there_is_one_cell(tmp_path: Path) -> None:
    rows = [(1, 0, 1, "a"), (1, 1, 2, "a"), (2, 0, 1, "b")]
    path = write(tmp_path / "a.parquet", rows)
    unit = fp.AddRemove(5, distinct=True)
    counted = fpd.count(fp.Source(path, person="id"), (DOMAIN, [()]), unit=unit)
    assert counted[()] == 2
    # Cells are those of what is counted: of the site alone, each person is in each site once.
    by_site = fpd.count(fp.Source(path, person="id"), (DOMAIN, [("site",)]), unit=unit)
    assert by_site["site"].tolist() == [2, 1, 0]


def test_persons_whose_hashes_agree_in_half_are_told_apart() -> None:
    tags = np.array([[5, 1], [5, 2], [5, 1], [5, 2], [6, 1]], dtype=np.uint64)
    rows = Rows(tags, np.zeros((5, 1), dtype=np.uint64))
    kept = Selection.create(("id",), 9, KEY, RecordGroups()).select_rows(rows)
    assert sorted(tuple(t) for t in tags[kept].tolist()) == [(5, 1), (5, 2), (6, 1)]


def test_what_tables_say_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", events(4))
    tables = limited(path, fp.AddRemove(3, once_per="month"))
    write_counts(tmp_path / "counts.npz", tables)
    for again in (read_counts(tmp_path / "counts.npz"), copy.copy(tables),
                  pickle.loads(pickle.dumps(tables))):  # fmt: skip
        assert again.unit == fp.AddRemove(3, once_per="month")
        assert again.seal == tables.seal


def test_the_seal_is_of_the_limit_too() -> None:
    nonce = bytes(32)
    said: list[dict[str, Any]] = [
        {},
        {"unit": fp.AddRemove(3)},
        {"unit": fp.AddRemove(3, distinct=True)},
        {"unit": fp.AddRemove(3, once_per="month")},
        {"unit": fp.AddRemove(3, once_per="site")},
    ]
    seals = {fp.Tables(DOMAIN, {("kind",): [1, 2]}, nonce=nonce, **s).seal for s in said}
    assert len(seals) == len(said)


@pytest.mark.parametrize("unit", [3, fp.ReplaceOne(), {"records": 3}])
def test_what_was_kept_of_a_person_is_a_unit(unit: Any) -> None:
    with pytest.raises(TablesError, match=r"unit must be an fp.AddRemove or None"):
        fp.Tables(DOMAIN, {("kind",): [1, 2]}, unit=unit)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"unit": fp.AddRemove(3)}, BudgetError, "Name the column of persons"),
        ({"person": "id"}, BudgetError, "person= needs a unit of privacy"),
        (
            {"unit": fp.ReplaceOne(("month",)), "person": "id"},
            BudgetError,
            "person= cannot be combined with the unit of privacy",
        ),
        (
            {"unit": fp.AddRemove(3, once_per="site"), "person": "id"},
            DomainError,
            "no table has the attribute 'site' of once_per=. Add a query on 'site'",
        ),
        (
            {"unit": fp.AddRemove(3, once_per="year"), "person": "id"},
            DomainError,
            "'year'",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, options: Any, error: Any, says: str) -> None:
    path = write(tmp_path / "a.parquet", events(5))
    with pytest.raises(error, match=says):
        count_rows(path, (DOMAIN, [("month",)]), **options)


class TestPlans:
    """A plan has its unit with it."""

    workload = fp.Workload(DOMAIN, [fp.marginal("site", "month", std=3.0)])

    def test_its_unit_is_enforced_if_persons_are_known(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.parquet", events(7))
        plan = fp.design(self.workload, unit=fp.AddRemove(3))
        tables = fpd.count(fp.Source(path, person="id"), plan, person_key=KEY)
        by_hand = fpd.count(
            fp.Source(path, person="id"), self.workload, unit=fp.AddRemove(3), person_key=KEY
        )
        assert tables.unit == fp.AddRemove(3)
        np.testing.assert_array_equal(tables["site", "month"], by_hand["site", "month"])
        assert fpd.count(path, plan).unit is None
        released = release_source(plan, fp.Source(path, person="id"), tmp_path / "out")
        assert (released.plan.unit, released.limited) == (fp.AddRemove(3), "enforced")

    def test_another_unit_is_refused(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.parquet", events(7))
        for unit in (fp.AddRemove(3), fp.AddRemove()):
            plan = fp.design(self.workload, unit=unit)
            with pytest.raises(
                BudgetError,
                match=r"unit= differs from the plan's unit of privacy .*\. Remove unit=",
            ):
                fpd.count(fp.Source(path, person="id"), plan, unit=fp.AddRemove(2))

    def test_a_plan_for_one_record_keeps_one(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.parquet", events(7))
        tables = fpd.count(fp.Source(path, person="id"), fp.design(self.workload))
        assert tables.unit == fp.AddRemove()

    def test_tables_that_hold_more_are_not_released(self) -> None:
        plan = fp.design(self.workload, unit=fp.AddRemove(3))
        cells = {("site", "month"): np.zeros((SITES, MONTHS), dtype=int)}
        for held in ({"unit": fp.AddRemove(4)}, {"unit": fp.AddRemove(4, once_per="month")}):
            with pytest.raises(TablesError, match="were counted for the unit of privacy"):
                fp.release(plan, fp.Tables(DOMAIN, cells, **held))
        fp.release(plan, fp.Tables(DOMAIN, cells, unit=fp.AddRemove(3, once_per="month")))


@pytest.mark.parametrize(
    ("unit", "held", "is_within"),
    [
        (fp.AddRemove(3), {"unit": fp.AddRemove(3, distinct=True)}, True),
        (fp.AddRemove(3, distinct=True), {"unit": fp.AddRemove(3)}, False),
        (fp.AddRemove(3, distinct=True), {"unit": fp.AddRemove(3, distinct=True)}, True),
        (fp.AddRemove(3, distinct=True), {"unit": fp.AddRemove(2, distinct=True)}, True),
        (fp.AddRemove(3, distinct=True), {"unit": fp.AddRemove(4, distinct=True)}, False),
        (fp.AddRemove(3, distinct=True), {"unit": fp.AddRemove(1)}, True),
        (fp.AddRemove(3, distinct=True), {}, True),
        (fp.AddRemove(3, once_per="month"), {"unit": fp.AddRemove(3, once_per="month")}, True),
        (fp.AddRemove(3, once_per="month"), {"unit": fp.AddRemove(3, once_per="site")}, False),
        (fp.AddRemove(3, once_per="month"), {"unit": fp.AddRemove(2)}, False),
        (fp.ReplaceOne(), {"unit": fp.AddRemove(1)}, True),
        (fp.ReplaceOne(), {"unit": fp.AddRemove(2)}, False),
        (fp.ReplaceOne(), {"unit": fp.AddRemove(2, distinct=True)}, False),
        (fp.ReplaceOne(("site",)), {}, True),
    ],
)
def test_what_counts_enforced_is_compared_with_a_unit(
    unit: Any, held: Any, is_within: bool
) -> None:
    tables = fp.Tables(DOMAIN, {("site", "month"): np.zeros((SITES, MONTHS), dtype=int)}, **held)
    bound = BoundUnit.bind(unit, DOMAIN, ("site", "month"))
    if is_within:
        check_enforced(bound, tables)
        return
    with pytest.raises(TablesError, match=r"counted for the unit of privacy|counts with person="):
        check_enforced(bound, tables)


def test_totals_within_do_not_depend_on_the_row_that_a_person_keeps(tmp_path: Path) -> None:
    """A row that is replaced by one of the same site could move the kept row to another site.

    The numbers of rows of the sites are published without noise, so this tells the data apart.
    """
    unit = fp.ReplaceOne(("site",))
    workload = fp.Workload(DOMAIN, [fp.marginal("site", "kind", std=5.0)])
    plan = fp.design(workload, unit=unit)
    before = write(tmp_path / "before.parquet", [(1, 0, 1, "a"), (1, 1, 1, "a")])
    after = write(tmp_path / "after.parquet", [(1, 0, 1, "b"), (1, 1, 1, "a")])
    moved = 0
    for number in range(20):
        options: Any = {
            "person": "id",
            "unit": fp.AddRemove(1),
            "person_key": KEY + bytes([number]),
        }
        first, second = (count_rows(f, (DOMAIN, plan.tables), **options) for f in (before, after))
        moved += (first.marginal(("site",)) != second.marginal(("site",))).any()
        with pytest.raises(TablesError, match="Count again without person="):
            fp.release(plan, first)
    assert moved
    with pytest.raises(BudgetError, match="person= cannot be combined with the unit"):
        fpd.count(fp.Source(before, person="id"), plan)
    assert fp.release(plan, fpd.count(before, plan)).public_totals is not None


def test_cells_of_more_attributes_are_not_distinct_over_fewer() -> None:
    tables = fp.Tables(
        DOMAIN, {("kind", "site"): [[0] * 3] * 2}, unit=fp.AddRemove(2, distinct=True)
    )
    by_site = BoundUnit.bind(fp.AddRemove(2, distinct=True), DOMAIN, ("site",))
    with pytest.raises(TablesError, match=r"cell of kind x site \(.* cell of site \("):
        check_enforced(by_site, tables)


OPEN_ENDED = fp.Domain({"site": fp.Categories([0], other="far"), "month": fp.Integers(1, MONTHS)})


@pytest.mark.parametrize(
    ("unit", "group"),
    [
        (fp.AddRemove(3, once_per="site"), lambda site, month: site == 0),
        (fp.AddRemove(9, distinct=True), lambda site, month: (site == 0, month)),
    ],
    ids=["once per", "distinct"],
)
def test_other_values_and_null_are_one_cell_of_a_person(
    tmp_path: Path, client: Client, unit: Any, group: Any
) -> None:
    """Of values that no list has, one row is kept; rows outside the domain are not counted."""
    people = [(row[0], row[1], row[2]) for row in events(8) if row[0] is not None]
    rows: list[tuple[int, int | None, int]] = [
        (who, None if site == 2 else site, month) for who, site, month in people
    ]
    columns = zip(*rows, strict=True)
    table = pa.table(dict(zip(("id", "site", "month"), map(pa.array, columns), strict=True)))
    for i in range(3):
        pq.write_table(table.take(list(range(i, len(rows), 3))), tmp_path / f"{i}.parquet")
    inside = [(who, group(site, month)) for who, site, month in rows if month]
    groups: dict[int, set[Any]] = defaultdict(set)
    for who, own in inside:
        groups[who].add(own)
    kept = sum(min(unit.records, len(own)) for own in groups.values())
    assert 0 < kept < len(inside) < len(rows)
    options: Any = {"person": "id", "unit": unit, "person_key": KEY}
    wanted = OPEN_ENDED, [("site", "month")]
    alone = count_rows(tmp_path, wanted, **options)["site", "month"]
    assert alone.sum() == kept
    np.testing.assert_array_equal(
        count_rows(tmp_path, wanted, client=client, **options)["site", "month"], alone
    )
    for who in (rows[0][0], rows[-1][0]):  # of one person: at most one row in each cell
        own = [row for row in rows if row[0] == who]
        columns = zip(*own, strict=True)
        table = pa.table(dict(zip(("id", "site", "month"), map(pa.array, columns), strict=True)))
        path = tmp_path / "own" / f"{who}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path)
        counts = count_rows(path, wanted, **options)["site", "month"]
        assert (counts if unit.distinct else counts.sum(axis=1)).max() <= 1
