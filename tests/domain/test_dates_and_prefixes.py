"""Dates and prefixes: cells by the calendar and by the first characters, wherever values are."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import duckdb
import numpy as np
import opendp.prelude as dp
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
import fitplug_dask as fpd
import fitplug_opendp as fpo
from fitplug.domain import OUTSIDE, get_codec
from fitplug_opendp.lazyframes import encode_column
from tests.helpers.command_line import fitplug

DAY = datetime.date
DOMAIN = fp.Domain(
    {
        "born": fp.Dates("1968-01-01", "1972-12-31", by="year"),
        "seen": fp.Dates("1969-11-01", "1970-02-28", by="month"),
        "died": fp.Dates("1969-12-28", "1970-01-03"),
        "tract": fp.CodePrefix(["01", "02", "é1"], length=2),
        "county": fp.CodePrefix(["01001", "01003", "02001"], 4, other="elsewhere"),
    }
)


class TestDates:
    def test_cells_and_labels(self) -> None:
        assert DOMAIN.shape == (5, 4, 7, 3, 3)
        assert DOMAIN["born"].labels == ("1968", "1969", "1970", "1971", "1972")
        assert DOMAIN["seen"].labels == ("1969-11", "1969-12", "1970-01", "1970-02")
        assert DOMAIN["died"].labels[0] == "1969-12-28"
        assert fp.Dates(DAY(2020, 2, 1), DAY(2020, 2, 29), by="month").size == 1

    @given(st.lists(st.dates()), st.sampled_from(["born", "seen", "died"]))
    def test_codes_are_those_of_the_calendar(self, values: list[Any], name: str) -> None:
        attribute = DOMAIN[name]
        assert isinstance(attribute, fp.Dates)
        length = {"year": 4, "month": 7, "day": 10}[attribute.by]
        expected = []
        for value in values:
            label = value.isoformat()[:length]
            known = label in attribute.labels
            expected.append(attribute.labels.index(label) if known else OUTSIDE)
        assert get_codec(attribute).codes(np.array(values, dtype=object)).tolist() == expected
        assert (
            get_codec(attribute).codes([value.isoformat() for value in values]).tolist() == expected
        )
        for unit in ("D", "s", "us"):
            assert (
                get_codec(attribute).codes(np.array(values, dtype=f"M8[{unit}]")).tolist()
                == expected
            )

    def test_times_text_and_nulls(self) -> None:
        values = [
            datetime.datetime(1969, 12, 31, 23, 59, 59),
            np.datetime64("1969-12-31T23:59:59.999"),
            np.datetime64("NaT", "D"),
            None,
            float("nan"),
            "1970-01-01",
            "1970-1-1",
            "19700101",
            "1970-02-30",
            "1970-01-01T00",
            "",
        ]
        codes = get_codec(DOMAIN["died"]).codes(np.array(values, dtype=object))
        assert codes.tolist() == [3, 3, -1, -1, -1, 4, 4, -1, -1, -1, -1]
        assert get_codec(DOMAIN["died"]).codes(
            np.array(["NaT", "1970-01-01"], "M8[ns]")
        ).tolist() == [-1, 4]
        assert get_codec(DOMAIN["died"]).codes([]).tolist() == []

    def test_labels_of_periods_are_text_of_them(self) -> None:
        texts = ["1969", "1969-12", "1969-12-31", "1969-13", "1969-00", "1970-1", " 1970", "", None]
        values = np.array(texts, dtype=object)
        expected = {
            "born": [1, -1, 1, -1, -1, -1, 2, -1, -1],
            "seen": [-1, 1, 1, -1, -1, -1, -1, -1, -1],
            "died": [-1, -1, 3, -1, -1, -1, -1, -1, -1],
        }
        for name, codes in expected.items():
            codec, labels = get_codec(DOMAIN[name]), DOMAIN[name].labels
            assert codec.codes(values).tolist() == codes
            assert codec.codes(list(labels)).tolist() == [*range(len(labels))]

    @given(st.lists(st.dates(DAY(1960, 1, 1), DAY(2030, 12, 31))))
    def test_quarters_and_weeks_are_those_of_the_calendar(self, days: list[Any]) -> None:
        # From weeks of 1960 that began in 1959 to the last of 2032, which ends in 2033.
        weeks = fp.Dates("1960-W01", "2032-W53", by="week")
        quarters = fp.Dates("1960-Q1", "2030-Q4", by="quarter")
        names = {
            weeks: ["{:04}-W{:02}".format(*day.isocalendar()[:2]) for day in days],
            quarters: [f"{day.year}-Q{(day.month + 2) // 3}" for day in days],
        }
        for attribute, expected in names.items():
            codec, labels = get_codec(attribute), attribute.labels
            inside = [name if name in labels else None for name in expected]
            codes = codec.codes(np.array([*days, None], dtype=object))[:-1].tolist()
            assert [None if code < 0 else labels[code] for code in codes] == inside
            for text in (expected, [name.replace("-", "") for name in expected]):
                assert codec.codes(np.array([*text, None], dtype=object))[:-1].tolist() == codes

    def test_domains_of_quarters_and_weeks(self) -> None:
        weeks = fp.Dates("2020-W52", "2021-W01", by="week")
        assert weeks.labels == ("2020-W52", "2020-W53", "2021-W01")
        assert (weeks.first, weeks.last) == (DAY(2020, 12, 21), DAY(2021, 1, 10))
        quarters = fp.Dates("1969-07-01", "1970-Q2", by="quarter")
        assert quarters.labels == ("1969-Q3", "1969-Q4", "1970-Q1", "1970-Q2")
        text = np.array(["1969 Q4", "1970Q2", "1969-Q5", "1970-03", "1970-01-01"], dtype=object)
        assert get_codec(quarters).codes(text).tolist() == [1, 3, -1, -1, 2]
        domain = fp.Domain({"week": weeks, "quarter": quarters})
        assert fp.Domain.from_spec(domain.spec()) == domain
        first = fp.Dates("0001-W01", "0001-W02", by="week")
        assert first.labels == ("0001-W01", "0001-W02")

    def test_expressions_and_ranges_of_quarters_and_weeks(self) -> None:
        domain = fp.Domain(
            {
                "week": fp.Dates("2020-W52", "2021-W01", by="week"),
                "quarter": fp.Dates("1969-Q3", "1970-Q2", by="quarter", other="unknown"),
            }
        )
        groups = [
            fp.queries({"week": "identity"}, std=1.0, name="weeks"),
            fp.queries({"quarter": fp.ranges([("1969-Q4", "1970-Q1")])}, std=1.0, name="winter"),
            fp.queries({"quarter": "prefix"}, std=1.0, name="since"),
        ]
        plan = fp.design(fp.Workload(domain, groups))
        rows = {
            "week": ["2020-12-31", "2021-W01", "2020W52", "2021-01-03"],
            "quarter": ["1969-Q3", DAY(1970, 3, 31), "1969-12-01", None],
        }
        tables = fp.Tables.from_records(domain, rows, plan.tables)
        assert tables["week",].tolist() == [1, 2, 1]
        assert tables["quarter",].tolist() == [1, 1, 1, 0, 1]
        release = fp.release(plan, tables)
        for text in ("weeks[week = '2020-W53']", "weeks[week <= '2020-W53']", "winter"):
            assert release.estimate(text).std > 0
        assert release.estimate("since[quarter <= '1969-Q4']").std > 0

    def test_labels_of_periods_are_bounds(self) -> None:
        assert fp.Dates("1968", "1972", by="year") == DOMAIN["born"]
        assert fp.Dates("1969-11", "1970-02", by="month") == DOMAIN["seen"]
        assert fp.Dates("1969-11-01", "1970-02", by="month") == DOMAIN["seen"]
        assert fp.Dates("2024-02", "2024-02", by="month").last == DAY(2024, 2, 29)
        spec = {"seen": {"dates": ["1969-11", "1970-02"], "by": "month"}}
        assert fp.Domain.from_spec(spec)["seen"] == DOMAIN["seen"]

    @pytest.mark.parametrize(
        "values",
        [
            np.array([3]),
            np.array([1.5]),
            np.array([None, 3], dtype=object),
            np.array(["1970"], dtype="M8[Y]"),
            np.array([datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)], dtype=object),
        ],
    )
    def test_no_number_and_no_time_of_a_zone_is_a_date(self, values: Any) -> None:
        with pytest.raises(fp.DataError, match="expects dates"):
            get_codec(DOMAIN["died"]).codes(values)

    @pytest.mark.parametrize(
        ("asked", "says"),
        [
            (
                ("2020-01-01", "2019-12-31"),
                "last date, 2019-12-31, is before the first, 2020-01-01",
            ),
            (("2020-01-01", "2020-13-31"), "'2020-13-31' is not a date"),
            (("20200101", "2020-12-31"), "'20200101' is not a date"),
            ((2020, "2020-12-31"), "2020 is not a date"),
            (("2020-01", "2020-12"), r"Use a datetime\.date or text such as '2020-12-31'"),
            (
                ("2020-01", "2020-13", "month"),
                "text such as '2020-12-31', or a month such as '2020-12'",
            ),
            ((2020, 2021, "year"), "or text such as '2020-12-31', or a year such as '2020'"),
            (("2020-01", "2020-12", "year"), "'2020-01' is not a date"),
            (
                (datetime.datetime(2020, 1, 1), "2020-12-31"),
                r"datetime\.datetime\(2020, 1, 1, 0, 0\) is not a date",
            ),
            (("2020-01-01", "2020-12-31", "weeks"), "unknown period by = 'weeks'. Did you mean"),
            (
                ("2020-01-01", "2020-12-31", "day", None, "mdy"),
                "date_format must be 'm/d/y' .*, not 'mdy'",
            ),
            (("2020-W54", "2020-W60", "week"), "or a week such as '2020-W53'"),
            (("2021-W53", "2021-W53", "week"), "'2021-W53' is not a date"),
            (("2020-Q0", "2020-Q1", "quarter"), "or a quarter such as '2020-Q4'"),
            (
                ("2020-01-01", "2020-12-31", "week"),
                "2020-12-31 does not consist of whole weeks. Use 2019-12-30 to 2021-01-03",
            ),
            (
                ("2020-02-01", "2020-12-31", "quarter"),
                "whole quarters. Use 2020-01-01 to 2020-12-31",
            ),
            (
                ("2020-02-01", "2020-12-31", "year"),
                "2020-02-01 to 2020-12-31 does not consist of whole years",
            ),
            (
                ("2020-02-01", "2020-02-28", "month"),
                "to 2020-02-28 does not consist of whole months",
            ),
        ],
    )
    def test_what_is_no_domain(self, asked: Any, says: str) -> None:
        with pytest.raises(fp.DomainError, match=says):
            fp.Dates(*asked)

    def test_ranges_name_whole_cells(self) -> None:
        asked = {
            "born": fp.ranges([(1969, "1971"), ("1968", 1968)]),
            "died": fp.ranges([(DAY(1969, 12, 30), "1970-01-01")]),
            "seen": fp.ranges([("1969-12", "1970-02")]),
        }
        workload = fp.Workload(DOMAIN, [fp.queries({n: r}, std=1.0) for n, r in asked.items()])
        intervals = [group.factors[0].intervals().tolist() for group in workload.groups]
        assert intervals == [[[1, 3], [0, 0]], [[2, 4]], [[1, 3]]]
        labels = [
            group.factors[0].labels(DOMAIN[n])
            for group, n in zip(workload.groups, asked, strict=True)
        ]
        assert labels[0] == ["1969..1971", "1968"]
        for bad in ((DAY(1969, 1, 1), "1971"), ("1969-01-01", "1971"), (1969, 1999)):
            with pytest.raises(fp.WorkloadError, match="from 1968 to 1972"):
                fp.Workload(DOMAIN, [fp.queries({"born": fp.ranges([bad])}, std=1.0)])


class TestPrefixes:
    def test_cells(self) -> None:
        assert DOMAIN["county"].labels == ("0100", "0200", "elsewhere")
        assert fp.CodePrefix(["01001", "01003", "02001"], 2).labels == ("01", "02")

    def test_codes(self) -> None:
        tract = DOMAIN["tract"]
        values = ["01001020100", "02", "0", "", "03999", "é12", None]
        expected = [0, 1, -1, -1, -1, 2, -1]
        assert get_codec(tract).codes(values).tolist() == expected
        assert get_codec(tract).codes(np.array(values[:-1])).tolist() == expected[:-1]
        county = fp.CodePrefix(["01001", "01003"], 5, other="rest")
        assert get_codec(county).codes(["010019", "0100", None, "01003"]).tolist() == [0, 2, 2, 1]

    def test_numbers_have_no_prefix(self) -> None:
        for values in (np.array([1001]), np.array(["01", 1], dtype=object)):
            with pytest.raises(fp.DataError, match="expects strings"):
                get_codec(DOMAIN["tract"]).codes(values)

    @pytest.mark.parametrize(
        ("asked", "says"),
        [
            ((["01"], 0), "the prefix length must be an integer of at least 1, not"),
            ((["01"], True), "the prefix length must be an integer of at least 1, not"),
            ((["01"], 3), "code '01' is shorter than the prefix length 3"),
            (([1], 1), "must be a string"),
            (("01", 1), "must be a list"),
            (([], 1), "empty"),
        ],
    )
    def test_what_is_no_domain(self, asked: Any, says: str) -> None:
        with pytest.raises(fp.DomainError, match=says):
            fp.CodePrefix(*asked)


def test_other_attributes_of_the_same_cells_are_not_equal() -> None:
    assert fp.CodePrefix(["01"], 2) != fp.Categories(["01"])
    assert fp.CodePrefix(["01"], 2) == fp.CodePrefix(["01001"], 2)
    assert fp.Dates("2020-01-01", "2020-01-31") != fp.Dates("2020-01-01", "2020-01-31", "month")


def test_spec_round_trip() -> None:
    assert fp.Domain.from_spec(DOMAIN.spec()) == DOMAIN
    spec = {"a": {"dates": [DAY(2020, 1, 1), DAY(2020, 1, 2)], "by": "day"}}
    assert fp.Domain.from_spec(spec)["a"] == fp.Dates("2020-01-01", "2020-01-02")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"dates": ["2020-01-01"], "by": "day"}, "must be two dates"),
        ({"dates": ["2020-01-01", "2020-12-31"]}, "'by' is missing. Write .*by = 'year'"),
        (
            {"dates": ["2020-01-01", "2020-12-31"], "per": "year"},
            "unknown key 'per'. Known: 'by', 'date_format', 'dates'",
        ),
        ({"prefix": 2}, "'categories' is missing"),
        ({"prefix": 2, "categories": ["01"], "others": "x"}, "'others'. Did you mean 'other'"),
    ],
)
def test_bad_specs(spec: Any, says: str) -> None:
    with pytest.raises(fp.DomainError, match=says):
        fp.Domain.from_spec({"a": spec})


# Counting


def people(n: int = 3000) -> dict[str, Any]:
    rng = np.random.default_rng(8)
    start = DAY(1967, 6, 1).toordinal()

    def dates(first: int, span: int) -> list[Any]:
        drawn = rng.integers(0, span, n)
        return [
            None if i % 50 == 7 else DAY.fromordinal(start + first + d)
            for i, d in enumerate(drawn.tolist())
        ]

    tracts = ["01001", "02", "02117", "0", "", "03001", "é123", None]
    return {
        "born": dates(0, 2300),
        "seen": dates(870, 140),
        "died": dates(935, 20),
        "tract": [tracts[i] for i in rng.integers(0, len(tracts), n)],
        "county": [tracts[i] for i in rng.integers(0, len(tracts), n)],
    }


TYPES: dict[str, Any] = {
    "date32": pa.date32(),
    "date64": pa.date64(),
    "seconds": pa.timestamp("s"),
    "milliseconds": pa.timestamp("ms"),
    "microseconds": pa.timestamp("us"),
    "nanoseconds": pa.timestamp("ns"),
    "text": pa.string(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
}
TABLES = [("born", "tract"), ("died",), ("seen", "county")]


def stored(values: dict[str, Any], kind: str) -> pa.Table:
    columns = {}
    for name, column in values.items():
        if name in ("tract", "county"):
            columns[name] = pa.array(column, pa.string())
        elif kind in ("text", "dictionary"):
            columns[name] = pa.array([v and v.isoformat() for v in column], TYPES[kind])
        else:
            columns[name] = pa.array(column, pa.date32()).cast(TYPES[kind])
    return pa.table(columns)


@pytest.mark.parametrize("kind", TYPES)
def test_every_way_to_store_dates(tmp_path: Path, kind: str) -> None:
    values = people()
    table = stored(values, kind)
    if pa.types.is_timestamp(table.schema.field("born").type):
        # Before 1970 the last second of a day is nearer to zero than the day is.
        seconds = 86_399 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[TYPES[kind].unit]
        born = table["born"].cast(pa.int64())
        table = table.set_column(0, "born", pc.add(born, seconds).cast(TYPES[kind]))
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=700)
    expected = fp.Tables.from_records(
        DOMAIN, {n: np.array(v, dtype=object) for n, v in values.items()}, TABLES
    )
    assert expected["died",].sum() > 50
    counted = fpd.count(tmp_path, (DOMAIN, TABLES))
    for names in TABLES:
        np.testing.assert_array_equal(counted[names], expected[names])


@pytest.mark.parametrize("kind", ["Parquet", "CSV", "pandas"])
def test_texts_that_are_labels_are_counted(tmp_path: Path, kind: str) -> None:
    rows = pa.table(
        {
            "born": ["1969", "1969-05-05", "1969-05", "1973", "1972", None],
            "seen": ["1970-01", "1970-01-31", "1970-13", "1970-02", "1970", "1969-11"],
            "died": ["1969-12", "1970-01-01", "1970", None, "1970-01", "1969-12-31"],
        }
    )
    if kind == "CSV":
        csv.write_csv(rows, tmp_path / "a.csv")
    elif kind == "Parquet":
        pq.write_table(rows, tmp_path / "a.parquet")
    frame = rows.to_pandas().astype(object)
    frame["born"] = frame["born"].replace("1969-05-05", DAY(1969, 5, 5))
    source: Any = dd.from_pandas(frame, npartitions=2) if kind == "pandas" else tmp_path
    counts = {"born": [0, 2, 0, 0, 1], "seen": [1, 0, 2, 1], "died": [0, 0, 0, 1, 1, 0, 0]}
    for name, expected in counts.items():
        columns = {name: frame[name].to_numpy()}
        held = fp.Tables.from_records(DOMAIN, columns, [(name,)])
        for counted in (held, fpd.count(source, (DOMAIN, [(name,)]))):
            assert counted[name,].tolist() == expected


def test_equals_duckdb(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(stored(people(), "date32"), path)
    counted = fpd.count(path, (DOMAIN, [("born", "county")]))
    query = f"""SELECT year(born) - 1968, left(county, 4) AS prefix, count(*) FROM '{path}'
        WHERE born BETWEEN '1968-01-01' AND '1972-12-31' GROUP BY ALL"""
    expected = np.zeros((5, 3), dtype=np.int64)
    labels = DOMAIN["county"].labels
    with duckdb.connect() as connection:
        for year, prefix, number in connection.sql(query).fetchall():
            expected[year, labels.index(prefix) if prefix in labels else -1] += number
    np.testing.assert_array_equal(counted["born", "county"], expected)


def test_a_long_range_of_days(tmp_path: Path) -> None:
    domain = fp.Domain({"day": fp.Dates("1800-01-01", "2199-12-31", by="year")})
    days = [DAY(1799, 12, 31), DAY(1800, 1, 1), DAY(1999, 12, 31), DAY(2199, 12, 31), None]
    pq.write_table(pa.table({"day": pa.array(days, pa.date32())}), tmp_path / "a.parquet")
    counted = fpd.count(tmp_path, (domain, [("day",)]))["day"]
    assert np.flatnonzero(counted).tolist() == [0, 199, 399]


@pytest.mark.parametrize(
    "column",
    [pa.array([5]), pa.array([5], pa.timestamp("us", tz="UTC")), pa.array([5], pa.time64("us"))],
    ids=lambda column: str(column.type),
)
def test_columns_that_hold_no_dates(tmp_path: Path, column: Any) -> None:
    pq.write_table(pa.table({"died": column}), tmp_path / "a.parquet")
    with pytest.raises(fp.DataError, match=r"'died' has the type .*, but the domain expects dates"):
        fpd.count(tmp_path, (DOMAIN, [("died",)]))


def test_folders_spell_dates_and_codes(tmp_path: Path) -> None:
    path = tmp_path / "died=1970-01-01" / "tract=02117" / "a.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"x": [1, 2]}), path)
    counted = fpd.count(tmp_path, (DOMAIN, [("died", "tract")]))["died", "tract"]
    assert counted[4, 1] == counted.sum() == 2
    path.parent.parent.rename(tmp_path / "died=1970")
    with pytest.raises(fp.DataError, match="expects dates for 'died'"):
        fpd.count(tmp_path, (DOMAIN, [("died", "tract")]))


# Plans, OpenDP, the command line


def test_a_plan_keeps_dates_and_prefixes(tmp_path: Path) -> None:
    workload = fp.Workload(
        DOMAIN,
        [
            fp.queries({"born": "prefix", "tract": "identity"}, std=3.0),
            fp.queries({"seen": fp.ranges([("1969-11", "1970-01")])}, std=2.0, name="winter"),
        ],
    )
    plan = fp.design(workload)
    plan.save(tmp_path / "plan.npz")
    loaded = fp.Plan.load(tmp_path / "plan.npz")
    loaded.verify()
    assert loaded.digest == plan.digest
    assert loaded.domain == DOMAIN
    fp.baselines.hierarchical(workload, plan.privacy_cost)


@pytest.mark.parametrize("kind", ["date32", "microseconds", "text"])
def test_polars_frames_have_the_same_cells(kind: str) -> None:
    values = people(500)
    frame = pl.from_arrow(stored(values, kind))
    assert isinstance(frame, pl.DataFrame)
    for name, column in values.items():
        expected = get_codec(DOMAIN[name]).codes(np.array(column, dtype=object))
        np.testing.assert_array_equal(encode_column(get_codec(DOMAIN[name]), frame[name]), expected)


def test_opendp_counts_dates() -> None:
    dp.enable_features("contrib", "honest-but-curious")
    plan = fp.design(fp.Workload(DOMAIN, [fp.marginal("born", std=3.0)]))

    def space(held: str) -> Any:
        born = dp.series_domain("born", dp.option_domain(dp.atom_domain(T=held)))
        return dp.lazyframe_domain([born]), dp.symmetric_distance()

    frame = pl.LazyFrame({"born": [DAY(1970, 5, 5), DAY(1999, 1, 1), None]})
    counted = (space("NaiveDate") >> fpo.then_tables(plan))(frame)
    assert counted["born",].tolist() == [0, 0, 1, 0, 0]
    with pytest.raises(ValueError, match="needs dates"):
        space("i64") >> fpo.then_tables(plan)


def test_a_spec_file_names_them(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(
        """
ledger = false

[data]
path = "people.parquet"
[privacy]
unit = { records = 1 }
[domain]
DOB = { dates = [1968-01-01, "1972-12-31"], by = "year" }
STATE = { prefix = 2, categories = ["01", "02"], other = "other" }
[[query]]
name = "ages"
DOB = { ranges = [[1968, 1970]] }
STATE = "identity"
std = 3.0
[output]
path = "release"
""",
        encoding="utf-8",
    )
    values = people()
    pq.write_table(
        pa.table({"DOB": values["born"], "STATE": values["tract"]}), tmp_path / "people.parquet"
    )
    ran = fitplug("run", tmp_path / "spec.toml")
    assert ran.code == 0, ran.err
    rows = pq.read_table(tmp_path / "release" / "ages.parquet").to_pydict()
    assert rows["DOB"] == ["1968..1970"] * 3
    assert rows["STATE"] == ["01", "02", "other"]
