"""Workloads: factors, targets, and W against plain enumeration of the cells."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.workload import build_rows
from fitplug.workload.factors import build_factor

DOMAIN = fp.Domain(
    {
        "sex": ["1", "2"],
        "age": fp.Integers(10, 13),
        "income": fp.Bins([0, 5, 20, 100]),
        "unused": fp.Integers(0, 1000),
    }
)
WEIGHTS = np.array([[1.0, 0.5, -2.0, 0.0]])


def everything():
    return fp.Workload(
        DOMAIN,
        [
            fp.queries({"age": "prefix", "sex": "identity"}, std=5.0, name="pyramid"),
            fp.marginal("sex", "income", moe=30.0, confidence=0.90),
            fp.queries({"age": fp.ranges([(11, 13), (12, 12)]), "sex": "total"}, std=8.0),
            fp.queries({"income": "all_ranges"}, variance=np.arange(1.0, 7)),
            fp.queries({"age": WEIGHTS}, std=1.0, name="weighted"),
            fp.total(variance=4.0),
        ],
    )


def test_matrix_against_enumeration():
    """Each row says in words what it counts; here the words are evaluated cell by cell."""
    workload = everything()
    assert workload.attributes == ("sex", "age", "income")
    assert workload.cell_count == 24
    cells = list(itertools.product(["1", "2"], range(10, 14), range(3)))
    expected = []
    for age, sex in itertools.product(range(10, 14), ["1", "2"]):
        expected.append([float(c[1] <= age and c[0] == sex) for c in cells])
    for sex, income in itertools.product(["1", "2"], range(3)):
        expected.append([float(c[0] == sex and c[2] == income) for c in cells])
    for low, high in [(11, 13), (12, 12)]:
        expected.append([float(low <= c[1] <= high) for c in cells])
    for low, high in [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]:
        expected.append([float(low <= c[2] <= high) for c in cells])
    expected.append([WEIGHTS[0, c[1] - 10] for c in cells])
    expected.append([1.0] * 24)
    np.testing.assert_array_equal(workload.matrix(), expected)
    assert workload.query_count == len(expected)
    shapes = {group.name: group.shape for group in workload.groups}
    assert shapes == {
        "pyramid": (4, 2),
        "sex x income": (2, 3),
        "age ranges x sex total": (2, 1),
        "income all ranges": (6,),
        "weighted": (1,),
        "total": (),
    }
    assert workload.tables == (("sex", "age"), ("sex", "income"))


def test_groups_answer_from_tables_what_the_matrix_answers():
    workload = everything()
    x = np.random.default_rng(0).integers(0, 50, workload.shape)
    answers = workload.split(workload.matrix() @ x.ravel())
    for group in workload.groups:
        for axes in (workload.attributes, workload.attributes[::-1]):
            table = x.transpose([workload.attributes.index(name) for name in axes])
            got = build_rows(workload, group, axes) @ table.ravel()
            np.testing.assert_array_equal(got.reshape(group.shape), answers[group.name])
        axes = workload.domain.ordered(group.attributes)
        out = tuple(i for i, name in enumerate(workload.attributes) if name not in axes)
        got = build_rows(workload, group, axes) @ x.sum(axis=out).ravel()
        np.testing.assert_array_equal(got.reshape(group.shape), answers[group.name])


def test_bins_ranges_are_named_by_edges():
    made = build_factor("income", DOMAIN["income"], fp.ranges([(0, 20), (5, 100)]))
    np.testing.assert_array_equal(made.matrix(), [[1, 1, 0], [0, 1, 1]])
    assert made.labels(DOMAIN["income"]) == ["[0, 20)", "[5, 100)"]


def test_labels():
    age = DOMAIN["age"]
    assert build_factor("age", age, "identity").labels(age) == [10, 11, 12, 13]
    assert build_factor("age", age, "prefix").labels(age) == ["10", "10..11", "10..12", "10..13"]
    assert build_factor("age", age, "total").labels(age) == ["all"]
    assert build_factor("age", age, WEIGHTS).labels(age) == [0]


def test_default_names_never_collide():
    workload = fp.Workload(DOMAIN, [fp.marginal("sex", std=1.0), fp.marginal("sex", std=2.0)])
    assert workload.names == ("sex", "sex 2")


class TestTargets:
    def one(self, **target):
        return fp.Workload(DOMAIN, [fp.marginal("sex", name="g", **target)]).targets()

    @given(st.floats(1e-29, 1e29))
    def test_variance_of_a_std_is_never_rounded_up(self, std):
        variance = self.one(std=std)[0]
        assert Fraction(variance) <= Fraction(std) ** 2
        assert variance == pytest.approx(std * std, rel=1e-15)

    @given(moe=st.floats(1e-3, 1e6), confidence=st.floats(1e-6, 0.999999999))
    def test_margin_of_error_against_30_digits(self, moe, confidence):
        variance = self.one(moe=moe, confidence=confidence)[0]
        with mpmath.workdps(30):
            allowed = (moe / (mpmath.sqrt(2) * mpmath.erfinv(confidence))) ** 2
            assert allowed * (1 - mpmath.mpf(1e-12)) <= variance <= allowed

    def test_the_default_confidence_is_95_percent(self):
        assert self.one(moe=1.0)[0] == self.one(moe=1.0, confidence=0.95)[0]

    def test_arrays_broadcast_to_the_shape(self):
        group = fp.queries({"sex": "identity", "age": "prefix"}, std=np.array([[1.0], [2.0]]))
        variances = fp.Workload(DOMAIN, [group]).groups[0].variances
        np.testing.assert_array_equal(variances, [[1.0] * 4, [4.0] * 4])


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: fp.marginal("sex"), "none was given"),
        (lambda: fp.marginal("sex", std=1.0, moe=1.0), "std and moe were given"),
        (lambda: fp.marginal("sex", std=0.0), "std must be greater than zero, not 0"),
        (lambda: fp.marginal("sex", std=-1.0), "greater than zero, not -1"),
        (lambda: fp.marginal("sex", variance=math.nan), "variance must be finite, not nan"),
        (lambda: fp.marginal("sex", moe=math.inf), "moe must be finite, not inf"),
        (lambda: fp.marginal("sex", std="5"), "std = '5' is not a number"),
        (lambda: fp.marginal("sex", std=True), "std = True is not a number"),
        (lambda: fp.marginal("sex", std=[[1.0], [1.0, 2.0]]), "is not a number or an array"),
        (lambda: fp.marginal("sex", std=[1.0, 2.0, 3.0]), "does not broadcast"),
        (lambda: fp.marginal("sex", std=[]), "empty array"),
        (
            lambda: fp.marginal("sex", std=1.0, confidence=0.9),
            "'confidence' needs the target 'moe', not 'std'",
        ),
        (lambda: fp.marginal("sex", moe=1.0, confidence=1.0), "below 1, not 1.0"),
        (lambda: fp.marginal("sax", std=1.0), "Did you mean 'sex'"),
        (lambda: fp.marginal("sex", "sex", std=1.0), "twice"),
        (lambda: fp.queries({"age": "prefixes"}, std=1.0), "Did you mean 'prefix'"),
        (lambda: fp.queries({"age": fp.ranges([(12, 11)])}, std=1.0), "is empty"),
        (lambda: fp.queries({"age": fp.ranges([(9, 11)])}, std=1.0), "9 is not in the domain"),
        (lambda: fp.queries({"income": fp.ranges([(0, 7)])}, std=1.0), "7 is not an edge"),
        (lambda: fp.queries({"age": fp.ranges([])}, std=1.0), "list of"),
        (lambda: fp.queries({"age": fp.ranges([(1,)])}, std=1.0), "pair"),
        (lambda: fp.queries({"age": np.ones(4)}, std=1.0), "2 dimensions, not 1"),
        (
            lambda: fp.queries({"age": np.ones((2, 3))}, std=1.0),
            "4 columns, one per cell, not 3",
        ),
        (lambda: fp.queries({"age": np.ones((0, 4))}, std=1.0), "empty"),
        (lambda: fp.queries({"age": [[1, math.nan, 0, 0]]}, std=1.0), "nan at row 0, column 1"),
        (lambda: fp.queries({"age": [["a", "b", "c", "d"]]}, std=1.0), "lists of numbers"),
        (lambda: fp.queries({"age": [[1j, 0, 0, 0]]}, std=1.0), "not complex numbers"),
        (lambda: fp.queries({"sex": "identity"}, std=1.0, name=" "), "non-empty"),
    ],
)
def test_bad_queries_say_what_and_why(build, says):
    with pytest.raises(fp.WorkloadError, match=says):
        fp.Workload(DOMAIN, [build()])


def test_bad_workloads():
    for groups, says in [
        ([], "at least one"),
        ([fp.total(std=1.0), fp.total(std=2.0)], "two query groups are named 'total'"),
        (["pyramid"], "'pyramid' is not a query group"),
    ]:
        with pytest.raises(fp.WorkloadError, match=says):
            fp.Workload(DOMAIN, groups)
    for W, says in [([[math.nan]], "nan"), (np.ones((0, 3)), "empty"), ([1.0], "dimensions")]:
        with pytest.raises(fp.WorkloadError, match=says):
            fp.Workload.from_matrix(W, variance=1.0)


def test_domains_and_groups_are_shown_in_a_line():
    domain = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 9999)})
    asked = fp.queries({"sex": "identity", "age": "prefix"}, moe=30.0)
    (group,) = fp.Workload(domain, [asked]).groups
    assert repr(domain) == "Domain(sex: 2 cells, age: 10,000 cells)"
    assert repr(asked) == "UnboundQueryGroup(sex identity x age prefix, moe 30 at 95%)"
    assert repr(group) == "QueryGroup('sex x age prefix', 20,000 queries, moe 30 at 95%)"
