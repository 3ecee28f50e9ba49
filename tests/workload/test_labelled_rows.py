"""Labelled rows: against matrices written by hand, through tables, plan files and expressions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.files import write_with_digest
from fitplug.plan import plan_file as planfile
from fitplug.workload import make_bound_workload
from fitplug.workload.factors import build_labelled_factor
from fitplug.workload.labelled_rows import MOST_ENTRIES
from tests.helpers.plans import describe

DOMAIN = fp.Domain(
    {
        "COUNTY": ["15001", "15003", "15007", "15009"],
        "SEX": fp.Categories([1, 2]),
        "AGE": fp.Integers(-1, 3),
        "INC": fp.Bins([0, 10, 50]),
        "DAY": fp.Dates("2020-01-01", "2021-12-31", by="year"),
        "RACE": fp.Categories(["a", "b"], other="rest"),
        "GEO": fp.Hierarchy({"state": 2, "tract": 4}, ["0101", "0102", "0201", "0203"]),
    }
)
COAST = {"coast": ["15001", "15009"], "inland": ["15003"], "change": {"15001": 1, "15003": -1}}


def rows(name, asked):
    workload = fp.Workload(DOMAIN, [fp.queries({name: fp.subsets(asked)}, std=1.0)])
    (factor,) = workload.groups[0].factors
    return factor.labels(DOMAIN[name]), factor.matrix().tolist()


@pytest.mark.parametrize(
    ("name", "asked", "expected"),
    [
        ("COUNTY", COAST, [[1, 0, 0, 1], [0, 1, 0, 0], [1, -1, 0, 0]]),
        # A list is of values, whatever numbers it holds: in a set, each counts once.
        ("SEX", {"men": [1], "all": [1, 2, 1]}, [[1, 0], [1, 1]]),
        ("SEX", {"gap": {1: 0.5, "2": -0.5}}, [[0.5, -0.5]]),
        ("AGE", {"ends": [-1, "3"], "weighed": {0: 2, "1": 3}}, [[1, 0, 0, 0, 1], [0, 2, 3, 0, 0]]),
        ("INC", {"rich": ["[10, 50)"]}, [[0, 1]]),
        ("DAY", {"one": ["2021"], "two": [2020, 2021]}, [[0, 1], [1, 1]]),
        ("RACE", {"other": ["rest"], "known": ["a", "b"]}, [[0, 0, 1], [1, 1, 0]]),
        # Labels that spell what the row is.
        ("SEX", {"1": [1], "both": [1, 2]}, [[1, 0], [1, 1]]),
        ("GEO", {"01": ["0101", "0102"], "0203": {"0203": 1}}, [[1, 1, 0, 0], [0, 0, 0, 1]]),
        # Nodes are all that lies in them, once in a set; coefficients add up.
        ("GEO", {"x": ["01", "0101", "0203"]}, [[1, 1, 0, 1]]),
        ("GEO", {"x": {"01": 1, "0101": -1}}, [[0, 1, 0, 0]]),
    ],
)
def test_rows_are_those_of_the_matrix(name, asked, expected):
    assert rows(name, asked) == (list(asked), expected)


@pytest.mark.parametrize(
    ("name", "asked", "says"),
    [
        ("COUNTY", {"x": ["15002"]}, "row 'x': COUNTY has no value '15002'. Known: '15001'"),
        (
            "COUNTY",
            {"x": [1, 0, 0, 1]},
            "COUNTY has no value 1. Write coefficients as",
        ),
        ("SEX", {"x": ["3"]}, "SEX has no value '3'. Known: '1', '2'"),
        ("SEX", {"x": [True]}, "SEX has no value True"),
        ("AGE", {"x": [7]}, "Its values are -1 to 3"),
        ("INC", {"x": [0]}, "INC has no value 0"),
        ("COUNTY", {"x": []}, "row 'x' has no values"),
        ("COUNTY", {"x": "15001"}, "row 'x' must be a list of values"),
        ("COUNTY", {"x": 3}, "row 'x' must be a list of values.*not 3"),
        ("COUNTY", {" ": ["15001"]}, "' ' must be a string with at least one visible character"),
        (
            "COUNTY",
            {"x": {"15001": "1"}},
            "'x' needs a finite number as the coefficient of '15001'",
        ),
        (
            "COUNTY",
            {"x": {"15001": float("nan")}},
            "'x' needs a finite number as the coefficient of '15001'",
        ),
        (
            "COUNTY",
            {"x": {"15001": True}},
            "'x' needs a finite number as the coefficient of '15001'",
        ),
        ("COUNTY", {}, "Give at least one label and its values"),
        (
            "COUNTY",
            {"\x00 \x1f": ["15001"]},
            "must be a string with at least one visible character",
        ),
        (
            "COUNTY",
            {"x": {"15001": 0}},
            r"'x' are zero or cancel each other",
        ),
        (
            "GEO",
            {"x": {"01": 1, "0101": -1, "0102": -1}},
            r"'x' are zero or cancel each other",
        ),
        # Labels that spell a value or a node, of rows that are another.
        ("SEX", {"1": [2]}, "the row label '1' is already the label of a value"),
        ("SEX", {"1": [1, 2]}, r"is already the label of a value\. Rename the row"),
        ("AGE", {"-1": {-1: 2}}, r"is already the label of a value\. Rename the row"),
        ("GEO", {"01": ["0101"]}, r"is already the label of a value\. Rename the row"),
        ("GEO", {"0101": ["01"]}, r"is already the label of a value\. Rename the row"),
        (
            "INC",
            {"[0, 10)": ["[10, 50)"]},
            r"is already the label of a value\. Rename the row",
        ),
        ("RACE", {"rest": ["a", "b"]}, r"is already the label of a value\. Rename the row"),
        ("COUNTY", ["15001"], "must be a mapping of labels to lists of values, not list"),
    ],
)
def test_what_is_wrong(name, asked, says):
    with pytest.raises(fp.WorkloadError, match=says) as caught:
        rows(name, asked)
    assert "\n" not in str(caught.value)


def test_a_label_of_two_levels_is_refused():
    tree = fp.Hierarchy(["region", "city"], [("x", "x"), ("x", "y")])
    group = fp.queries({"P": fp.subsets({"one": ["x"]})}, std=1.0)
    with pytest.raises(fp.WorkloadError, match="nodes of several levels have the name 'x'"):
        fp.Workload(fp.Domain({"P": tree}), [group])


@pytest.fixture(scope="module")
def release():
    groups = [
        fp.queries({"COUNTY": fp.subsets(COAST), "SEX": "identity"}, std=3.0, name="coast"),
        fp.queries({"COUNTY": fp.subsets({"west": ["15001", "15003"], "end": ["15003", "15009"]})},
                   std=3.0, name="overlap"),
        fp.total(std=3.0),
    ]  # fmt: skip
    plan = fp.design(fp.Workload(DOMAIN, groups), tolerance=1e-2)
    x = np.random.default_rng(3).poisson(30.0, (4, 2))
    tables = fp.Tables(DOMAIN, {("COUNTY", "SEX"): x})
    answers = plan.strategy.answer_exactly(tables.marginal)
    return fp.Release(plan=plan, answers=answers, rho=plan.rho), x


def test_labels_in_tables_and_expressions(release):
    made, x = release
    table = made.to_arrow("coast").to_pydict()
    assert table["COUNTY"] == [label for label in COAST for _ in range(2)]
    assert table["SEX"] == [1, 2] * 3
    np.testing.assert_allclose(table["estimate"][:2], x[0] + x[3], atol=1e-6)
    for text, expected in {
        "coast[COUNTY = coast, SEX = 1]": x[0, 0] + x[3, 0],
        "coast[COUNTY = change]": (x[0] - x[1]).sum(),
        "coast[COUNTY in [coast, inland]]": (x[0] + x[1] + x[3]).sum(),
        "coast[COUNTY = coast or inland, SEX = 2]": x[0, 1] + x[1, 1] + x[3, 1],
        "coast[COUNTY = coast | COUNTY = inland, SEX = 2]": x[0, 1] + x[1, 1] + x[3, 1],
        "overlap[COUNTY = west] + overlap[COUNTY = end]": (x[0] + 2 * x[1] + x[3]).sum(),
    }.items():
        assert made.estimate(text).value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("coast", "Select rows by label, for example COUNTY = coast"),
        ("coast[COUNTY = 0]", "COUNTY has no row '0'"),
        ("coast[COUNTY = cost]", "Did you mean 'coast'"),
        ("coast[COUNTY != coast]", "can only be selected with COUNTY = label"),
        (
            "overlap[COUNTY in [west, end]]",
            "these conditions select some of the same rows",
        ),
    ],
)
def test_what_is_wrong_with_a_selection(release, text, says):
    with pytest.raises(fp.WorkloadError, match=says):
        release[0].estimate(text)


def test_plan_files_keep_labels(release, tmp_path):
    plan = release[0].plan
    plan.save(tmp_path / "plan.npz")
    again = fp.Plan.load(tmp_path / "plan.npz")
    assert again.digest == plan.digest
    again.verify()
    assert again.workload["coast"].factors[0].names == tuple(COAST)
    _, arrays = planfile.describe_workload(plan.workload)
    bare = [
        dataclasses.replace(
            group, factors=tuple(dataclasses.replace(f, names=None) for f in group.factors)
        )
        for group in plan.workload.groups
    ]
    without, same = planfile.describe_workload(make_bound_workload(DOMAIN, bare))
    assert "labels" not in without["groups"].text
    assert arrays.keys() == same.keys()
    release[0].save(tmp_path / "out")
    assert fp.Release.load(tmp_path / "out").plan.digest == plan.digest


@pytest.mark.parametrize(
    "labels", [["a"], ["a", "a", "b"], ["a", "b", 3], "abc", {"0": "a"}, [["a"], "b", "c"]]
)
def test_a_plan_file_with_other_labels_is_refused(release, tmp_path, labels):
    header, arrays = describe(release[0].plan)
    groups = [dict(group) for group in header["groups"]]
    groups[0]["labels"] = {"0": labels}
    write_with_digest(tmp_path / "p.npz", header | {"groups": groups}, arrays)
    with pytest.raises(fp.PlanError):
        fp.Plan.load(tmp_path / "p.npz")
    groups[0]["labels"] = {"1": ["a", "b"]}  # of an identity
    write_with_digest(tmp_path / "p.npz", header | {"groups": groups}, arrays)
    with pytest.raises(fp.PlanError):
        fp.Plan.load(tmp_path / "p.npz")


@pytest.mark.parametrize("labels", [["a"], ["a", "a", "b"]])
def test_labels_of_an_edited_plan_have_their_own_sentence(release, tmp_path, labels):
    header, arrays = describe(release[0].plan)
    groups = [dict(group) for group in header["groups"]]
    groups[0]["labels"] = {"0": labels}
    write_with_digest(tmp_path / "p.npz", header | {"groups": groups}, arrays)
    with pytest.raises(fp.PlanError, match=r"fails its check: .*label, and all labels must differ"):
        fp.Plan.load(tmp_path / "p.npz")


def test_plans_made_before_with_such_rows_are_read(tmp_path):
    factor = build_labelled_factor("SEX", DOMAIN["SEX"], [[0.0, 1.0], [0.0, 0.0]], ["1", "x"])
    plan = fp.design(fp.Workload(DOMAIN, [fp.queries({"SEX": factor}, std=1.0), fp.total(std=1.0)]))
    plan.save(tmp_path / "p.npz")
    assert fp.Plan.load(tmp_path / "p.npz").digest == plan.digest


SETS = st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=1, max_size=4)


@given(sets=SETS)
def test_any_sets_count_their_people(sets):
    codes = DOMAIN["COUNTY"].values
    named = {f"r{i}": [codes[c] for c in chosen] for i, chosen in enumerate(sets)}
    _, matrix = rows("COUNTY", named)
    x = np.arange(1, 5)
    assert (np.array(matrix) @ x).tolist() == [sum(x[list(chosen)]) for chosen in sets]


class TestSparse:
    W = np.array([[1.0, 0, 0, 2], [0, -1, 0, 0]])

    @pytest.mark.parametrize(
        "form", ["csr_matrix", "coo_array", "csc_array", "lil_matrix", "dok_array"]
    )
    def test_any_form_is_the_dense_one(self, form):
        given = getattr(scipy.sparse, form)(self.W)
        np.testing.assert_array_equal(fp.Workload.from_matrix(given, std=1.0).matrix(), self.W)
        workload = fp.Workload(DOMAIN, [fp.queries({"COUNTY": given}, std=1.0)])
        np.testing.assert_array_equal(workload.matrix(), self.W)

    def test_entries_given_twice_add_up(self):
        given = scipy.sparse.coo_array(([1.0, 1.0], ([0, 0], [1, 1])), shape=(1, 4))
        workload = fp.Workload.from_matrix(given, std=1.0)
        np.testing.assert_array_equal(workload.matrix(), [[0, 2, 0, 0]])

    def test_too_large_to_be_dense(self):
        rows = MOST_ENTRIES // 1000 + 1
        given = scipy.sparse.csr_array(([1.0], ([0], [0])), shape=(rows, 1000))
        with pytest.raises(fp.WorkloadError, match=f"at most .* entries, not {rows:,} x 1,000"):
            fp.Workload.from_matrix(given, std=1.0)

    def test_what_is_wrong(self):
        given = scipy.sparse.csr_array(np.array([[1.0, np.nan]]))
        with pytest.raises(fp.WorkloadError, match="nan at row 0, column 1"):
            fp.Workload.from_matrix(given, std=1.0)
        with pytest.raises(fp.WorkloadError, match="4 columns, one per cell, not 2"):
            fp.Workload(DOMAIN, [fp.queries({"COUNTY": scipy.sparse.eye_array(2)}, std=1.0)])
