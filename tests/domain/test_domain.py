"""Domains and tables: what has a cell, what has none, and what is refused."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.domain import get_codec
from fitplug.domain.encoder import OUTSIDE

PEOPLE = fp.Domain(
    {
        "sex": ["1", "2"],
        "age": fp.Integers(0, 4),
        "income": fp.Bins([0, 10_000, 50_000.5]),
        "race": fp.Categories(["a", "b"], other="Other"),
    }
)


class TestCells:
    def test_shape_and_size(self):
        assert PEOPLE.names == ("sex", "age", "income", "race")
        assert PEOPLE.shape == (2, 5, 2, 3)
        assert PEOPLE.size == 60

    def test_size_may_exceed_any_machine_integer(self):
        domain = fp.Domain({f"a{i}": fp.Integers(0, 9) for i in range(120)})
        assert domain.size == 10**120

    def test_categories(self):
        assert get_codec(PEOPLE["sex"]).codes(["2", "1", "3", None]).tolist() == [
            1,
            0,
            OUTSIDE,
            OUTSIDE,
        ]
        assert get_codec(PEOPLE["race"]).codes(["b", "z", None, "a"]).tolist() == [1, 2, 2, 0]
        assert PEOPLE["race"].labels == ("a", "b", "Other")

    def test_integer_and_boolean_categories(self):
        coded = fp.Categories([7, -3, 0])
        assert get_codec(coded).codes(np.array([0, 7, 5, -3], dtype=np.int8)).tolist() == [
            2,
            0,
            OUTSIDE,
            1,
        ]
        yes = fp.Categories([True, False])
        assert get_codec(yes).codes(np.array([False, True])).tolist() == [1, 0]

    @given(st.lists(st.integers(-(2**63), 2**63 - 1)))
    def test_integers(self, values):
        codes = get_codec(fp.Integers(-2, 3)).codes(np.array(values, dtype=np.int64))
        assert codes.tolist() == [v + 2 if -2 <= v <= 3 else OUTSIDE for v in values]

    def test_narrow_and_unsigned_integers_do_not_wrap(self):
        ages = fp.Integers(-100, 200)
        assert get_codec(ages).codes(np.array([-100, 127], dtype=np.int8)).tolist() == [0, 227]
        assert get_codec(ages).codes(np.array([2**64 - 1, 5], dtype=np.uint64)).tolist() == [
            OUTSIDE,
            105,
        ]

    @given(st.lists(st.floats(allow_nan=True, allow_infinity=True)))
    def test_bins_are_half_open(self, values):
        edges = [-1.5, 0.0, 2.0, 7.25]
        codes = get_codec(fp.Bins(edges)).codes(np.array(values, dtype=np.float64))
        for value, code in zip(values, codes, strict=True):
            inside = [i for i, (a, b) in enumerate(itertools.pairwise(edges)) if a <= value < b]
            assert code == (inside[0] if inside else OUTSIDE)

    def test_objects_in_bins(self):
        values = np.array([2**70, -(2**70), 3, 4.5, None, math.nan], dtype=object)
        assert get_codec(fp.Bins([0, 4, 10])).codes(values).tolist() == [
            OUTSIDE,
            OUTSIDE,
            0,
            1,
            -1,
            -1,
        ]
        for value in (Decimal(3), True, "3"):
            with pytest.raises(fp.DataError, match="expects numbers"):
                get_codec(fp.Bins([0, 10])).codes(np.array([value, None], dtype=object))

    def test_wide_integers_in_bins(self):
        edge = fp.Bins([0, 2**53 - 1])
        values = np.array([2**53 - 2, 2**53 - 1, 2**62, -1], dtype=np.int64)
        assert get_codec(edge).codes(values).tolist() == [0, OUTSIDE, OUTSIDE, OUTSIDE]

    @pytest.mark.parametrize(
        ("attribute", "column"),
        [
            (fp.Categories(["1", "2"]), np.array([1, 2], dtype=np.int64)),
            (fp.Categories([1, 2]), np.array(["1"])),
            (fp.Categories([0, 1]), np.array([True])),
            (fp.Integers(0, 3), np.array([1.0])),
            (fp.Integers(0, 3), np.array([1.0, None], dtype=object)),
            (fp.Integers(0, 3), np.array(["1"])),
            (fp.Bins([0, 1]), np.array(["0.5"])),
        ],
    )
    def test_columns_of_another_type_are_refused_without_a_value(self, attribute, column):
        with pytest.raises(fp.DataError, match="expects") as caught:
            get_codec(attribute).codes(column)
        assert not any(repr(v) in str(caught.value) for v in column.tolist() if v is not None)

    def test_spec_round_trip(self):
        assert fp.Domain.from_spec(PEOPLE.spec()) == PEOPLE


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: fp.Domain({}), "empty"),
        (lambda: fp.Domain({"a": []}), "the list of categories is empty"),
        (lambda: fp.Domain({"": ["x"]}), "name ''"),
        (lambda: fp.Domain({"a": ["x", "y", "x"]}), "'x' is listed twice"),
        (lambda: fp.Domain({"a": ["x", 1]}), "all strings"),
        (lambda: fp.Domain({"a": "xyz"}), "must be a list"),
        (lambda: fp.Domain({"a": [1.5]}), "float"),
        (lambda: fp.Categories(["x"], other="x"), "'x'"),
        (lambda: fp.Categories([2**63 - 1]), "2\\*\\*62"),
        (lambda: fp.Integers(3, 2), "3..2 is empty"),
        (lambda: fp.Integers(0.0, 2), "0.0"),
        (lambda: fp.Bins([0]), "two edges"),
        (lambda: fp.Bins([0, 5, 5]), "5 follows 5"),
        (lambda: fp.Bins([0, 5, 3]), "3 follows 5"),
        (lambda: fp.Bins([0, float("nan")]), "nan"),
        (lambda: fp.Bins([0, float("inf")]), "inf"),
        (lambda: fp.Domain.from_spec({"a": {"integer": [0, 1]}}), "Did you mean 'integers'"),
        (lambda: fp.Domain.from_spec({"a": {"bins": [0, 1], "oter": 1}}), "'oter'"),
        (lambda: fp.Domain.from_spec({"a": {"integers": [0]}}), "two numbers"),
        (lambda: fp.Domain.from_spec({"a": 5}), "5 must be a list of categories"),
        (lambda: PEOPLE["sax"], "Did you mean 'sex'"),
    ],
)
def test_bad_domains_say_what_and_why(build, says):
    with pytest.raises(fp.DomainError, match=says):
        build()


class TestTables:
    HISTOGRAM = np.arange(60).reshape(PEOPLE.shape)

    def test_a_table_is_read_under_any_order_of_its_names(self):
        counts = self.HISTOGRAM.sum(axis=(2, 3))
        tables = fp.Tables(PEOPLE, {("age", "sex"): counts.T})
        np.testing.assert_array_equal(tables[("sex", "age")], counts)
        np.testing.assert_array_equal(tables[("age", "sex")], counts.T)
        np.testing.assert_array_equal(tables.marginal(("age",)), counts.sum(axis=0))
        assert tables.marginal(()) == counts.sum()

    @pytest.mark.parametrize("kind", [np.uint8, np.int64])
    def test_counts_are_copied_unless_told_otherwise(self, kind):
        counts = np.arange(10, dtype=kind).reshape(2, 5)
        counts.setflags(write=False)
        mine = fp.Tables(PEOPLE, {("sex", "age"): counts})["sex", "age"]
        assert not np.shares_memory(mine, counts)
        for own in (counts, counts.T.copy().T):
            kept = fp.Tables(PEOPLE, {("sex", "age"): own}, copy=False)["sex", "age"]
            np.testing.assert_array_equal(kept, counts)
            assert kept.dtype == np.int64
            assert not kept.flags.writeable
            whole = kind is np.int64 and own.flags.c_contiguous
            assert np.shares_memory(kept, own) == whole

    def test_counts_are_not_shown_and_cannot_be_changed(self):
        tables = fp.Tables(PEOPLE, {("sex",): [123456, 7]})
        assert "123456" not in repr(tables) + str(tables)
        with pytest.raises(ValueError, match="read-only"):
            tables[("sex",)][0] = 1

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({}, "no table"),
            ({("sex",): [1, 2, 3]}, "shape"),
            ({("sex",): [-1, 2]}, "must be integers of at least 0"),
            ({("sex",): [1.0, 2.0]}, "integers"),
            ({("sex",): [2**62, 2**62]}, "counts more than 9,007,199,254,740,992 rows"),
            ({("sax",): [1, 2]}, "Did you mean 'sex'"),
            ({("sex", "sex"): [[1, 2], [3, 4]]}, "twice"),
            ({("sex",): [1, 2], ("age",): [1, 1, 1, 1, 1]}, "disagree in total"),
        ],
    )
    def test_what_is_no_histogram_is_refused(self, given, says):
        with pytest.raises(fp.TablesError, match=says) as caught:
            fp.Tables(PEOPLE, given)
        assert str(2**62) not in str(caught.value)

    def test_shared_marginals_must_agree(self):
        a = np.ones((2, 5), dtype=int)
        b = np.array([[4, 0, 0], [6, 0, 0]])
        with pytest.raises(fp.TablesError, match=r"disagree over \('sex',\)"):
            fp.Tables(PEOPLE, {("sex", "age"): a, ("sex", "race"): b})

    def test_a_missing_table_is_named(self):
        tables = fp.Tables(PEOPLE, {("sex",): [1, 2]})
        with pytest.raises(fp.TablesError, match=r"no table with \('age',\)\. Count again"):
            tables.marginal(("age",))

    @given(seed=st.integers(0, 2**32), n=st.integers(0, 60))
    def test_from_records_leaves_a_record_out_of_every_table_or_none(self, seed, n):
        rng = np.random.default_rng(seed)
        records = {
            "sex": rng.choice(["1", "2", "3"], n).tolist(),
            "age": rng.integers(-1, 6, n),
            "income": rng.choice([0.0, 9999.9, 10_000, 50_000.5, np.nan], n),
            "race": rng.choice(["a", "b", "z"], n).tolist(),
        }
        wanted = [("sex", "age"), ("race", "age"), ()]
        tables = fp.Tables.from_records(PEOPLE, records, wanted)
        # Income is used by no table, so it decides about no record.
        kept = [
            (s, a, r)
            for s, a, r in zip(records["sex"], records["age"], records["race"], strict=True)
            if s in "12" and 0 <= a <= 4
        ]
        assert tables[()] == len(kept)
        for s, a in itertools.product("12", range(5)):
            expected = sum(1 for k in kept if k[0] == s and k[1] == a)
            assert tables[("sex", "age")][int(s) - 1, a] == expected
        for i, label in enumerate(["a", "b", "z"]):
            expected = sum(1 for k in kept if k[2] == label)
            assert tables[("race", "age")][i].sum() == expected

    def test_whole_floats_are_integers(self):
        ages = {"floats": [1.0, 3.0, np.nan], "objects": [1, 3.0, None], "halves": [1.0, 3.0, 2.5]}
        columns = [np.array(given, dtype=object) for given in ages.values()]
        columns += [np.array(given, dtype=np.float32) for given in ages.values()]
        for column in [*columns, *ages.values()]:
            tables = fp.Tables.from_records(PEOPLE, {"age": column}, [("age",)])
            assert (tables["age",][[1, 3]].tolist(), tables["age",].sum()) == ([1, 1], 2)
        huge = np.array([np.inf, -np.inf, 1e300, 2.0])
        assert fp.Tables.from_records(PEOPLE, {"age": huge}, [("age",)])["age",].sum() == 1

    def test_from_records_names_the_column(self):
        with pytest.raises(fp.DataError, match="unknown column 'age'"):
            fp.Tables.from_records(PEOPLE, {"sex": ["1"]}, [("age",)])
        with pytest.raises(fp.DataError, match=r"column .age.*expects integers"):
            fp.Tables.from_records(PEOPLE, {"age": [True]}, [("age",)])
        with pytest.raises(fp.DataError, match="different lengths"):
            fp.Tables.from_records(PEOPLE, {"age": [1], "sex": ["1", "2"]}, [("age", "sex")])
