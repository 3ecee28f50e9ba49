"""Many groups: sets of marginals, and groups in columns, against groups made one by one."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.families import analyse_structure
from fitplug.plan import describe_workload
from fitplug.workload import make_bound_workload, query_groups
from fitplug.workload.targets import TargetForm, two_sided_quantile
from fitplug.workload.workload import select_largest_sets

TARGETS = [
    {"std": 3.0},
    {"variance": 7},
    {"moe": 2.5, "confidence": 0.9},
    {"moe": 4.0, "simultaneous": True},
]


def make_domain(sizes):
    return fp.Domain({f"a{i}": fp.Integers(0, n - 1) for i, n in enumerate(sizes)})


def ask_one_by_one(attributes, ways, target):
    """The same tables by `fp.marginal`, whose targets may be arrays of one number for each."""
    chosen = [c for k in ways for c in itertools.combinations(attributes, k)]
    each = [
        {key: value[i] if isinstance(value, np.ndarray) else value for key, value in target.items()}
        for i in range(len(chosen))
    ]
    return [fp.marginal(*c, **own) for c, own in zip(chosen, each, strict=True)]


def assert_same(ours, theirs):
    """Two workloads hold the same groups, to the last bit."""
    (header, arrays), (expected, numbers) = describe_workload(ours), describe_workload(theirs)
    assert header == expected
    assert ours.attributes == theirs.attributes
    assert len(ours.groups.factors) == len(theirs.groups.factors)
    assert arrays.keys() == numbers.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, numbers[name])


class TestMarginals:
    @given(
        sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
        ways=st.sets(st.integers(0, 4), min_size=1),
        target=st.sampled_from(TARGETS),
        one_each=st.booleans(),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_are_the_groups_of_marginal(self, sizes, ways, target, one_each, seed):
        domain = make_domain(sizes)
        ways = sorted(k for k in ways if k <= len(sizes)) or [1]
        rng = np.random.default_rng(seed)
        names = rng.permutation(domain.names).tolist()
        kind = next(iter(target))
        if one_each:
            tables = sum(math.comb(len(sizes), k) for k in ways)
            target = target | {kind: rng.uniform(1, 9, tables)}
        asked = fp.marginals(domain, ways=ways, attributes=names, **target)
        loop = ask_one_by_one(names, ways, target)
        assert len(asked) == len(loop)
        other = fp.queries({names[0]: "prefix"}, std=2.0)
        ours = fp.Workload(domain, [other, asked, fp.total(std=1.0, name="all")])
        theirs = fp.Workload(domain, [other, *loop, fp.total(std=1.0, name="all")])
        assert_same(ours, theirs)
        np.testing.assert_array_equal(ours.targets(), theirs.targets())

    def test_the_plans_are_the_same(self):
        domain = make_domain([3, 4, 2, 5])
        target = {"std": np.random.default_rng(0).uniform(1, 5, 14)}
        ours = fp.Workload(domain, [fp.marginals(domain, ways=3, **target)])
        theirs = fp.Workload(domain, ask_one_by_one(domain.names, [1, 2, 3], target))
        assert fp.design(ours).digest == fp.design(theirs).digest

    def test_a_number_of_ways_is_the_most(self):
        domain = make_domain([2] * 4)
        names = [group.name for group in self.ask(domain, 2)]
        assert names == ["a0", "a1", "a2", "a3", *(
            f"a{i} x a{j}" for i, j in itertools.combinations(range(4), 2)
        )]  # fmt: skip
        assert [group.name for group in self.ask(domain, 0)] == ["total"]
        assert [len(group.factors) for group in self.ask(domain, [3])] == [3] * 4
        assert len(self.ask(domain, range(3))) == 11
        chosen = fp.marginals(domain, ways=1, attributes=["a2", "a0"], std=1.0)
        assert list(chosen) == [("a2",), ("a0",)]

    @staticmethod
    def ask(domain, ways):
        return fp.Workload(domain, [fp.marginals(domain, ways=ways, std=1.0)]).groups

    def test_names_that_are_taken_are_numbered(self):
        domain = fp.Domain({"a": ["1", "2"], "b": ["1", "2"], "a x b": ["1", "2"]})
        groups = [fp.marginal("b", std=1.0), fp.marginals(domain, ways=2, std=1.0)]
        loop = [groups[0], *ask_one_by_one(domain.names, [1, 2], {"std": 1.0})]
        ours, theirs = fp.Workload(domain, groups), fp.Workload(domain, loop)
        assert ours.names == theirs.names
        assert ours.names[:5] == ("b", "a", "b 2", "a x b", "a x b 2")

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ({"ways": 4}, "from 0 to 3"),
            ({"ways": -1}, "from 0 to 3"),
            ({"ways": True}, "from 0 to 3"),
            ({"ways": 1.0}, "from 0 to 3"),
            ({"ways": "12"}, "from 0 to 3"),
            ({"ways": []}, "from 0 to 3"),
            ({"ways": [1, 4]}, "from 0 to 3"),
            ({"ways": [1, 1]}, "twice"),
            ({"attributes": ["a0", "b"]}, "no attribute 'b'"),
            ({"attributes": ["a0", "a0"]}, "twice"),
            ({"attributes": "a0"}, "list of names"),
            ({"std": [1.0, 2.0]}, "each of the 6 tables"),
            ({"std": np.ones((6, 1))}, "each of the 6 tables"),
            ({"std": -1.0}, "greater than zero"),
            ({"std": [1.0, 1.0, 1.0, 0.0, 1.0, 1.0]}, r"std\[3\] must be greater than zero, not 0"),
            ({"variance": 1.0}, "exactly one target"),
        ],
    )
    def test_what_is_wrong_is_named(self, wrong, says):
        with pytest.raises(fp.WorkloadError, match=says):
            fp.marginals(make_domain([2] * 3), **{"ways": 2, "std": 1.0} | wrong)

    def test_too_many_tables_are_refused_before_they_are_listed(self):
        with pytest.raises(fp.WorkloadError, match="10,000,000"):
            fp.marginals(make_domain([2] * 300), ways=10, std=1.0)

    def test_only_a_list_makes_a_workload(self):
        domain = make_domain([2, 2])
        with pytest.raises(fp.WorkloadError, match="list"):
            fp.Workload(domain, fp.marginals(domain, ways=1, std=1.0))
        with pytest.raises(
            fp.WorkloadError, match="marginals needs a Domain as its first argument"
        ):
            fp.marginals({"a": 2}, ways=1, std=1.0)
        with pytest.raises(fp.WorkloadError, match="no attribute 'a1'"):
            fp.Workload(make_domain([2]), [fp.marginals(domain, ways=1, std=1.0)])


def make_workload():
    domain = fp.Domain({"a": fp.Integers(0, 2), "b": ["x", "y"], "c": ["1"]})
    groups = [
        fp.queries({"b": "identity", "a": "prefix"}, std=[[1.0], [2.0]]),
        fp.queries({"a": [[1.0, 0.0, -1.0]], "c": "total"}, moe=3.0, confidence=0.8),
        fp.marginals(domain, ways=range(4), std=2.0),
        fp.queries({"a": "identity"}, variance=[1.0, 2.0, 3.0], name="own"),
        fp.marginal("a", "b", moe=2.0, simultaneous=True),
    ]
    return fp.Workload(domain, groups)


class TestColumns:
    def test_groups_are_the_same_whether_they_are_kept_or_made_anew(self, monkeypatch):
        kept = make_workload().groups
        assert kept[2] is kept[2]
        monkeypatch.setattr(query_groups, "_MOST_MADE_ONCE", 0)
        made = make_workload().groups
        kept = list(kept._made_once)
        assert made[2] is not made[2]
        for ours, theirs in zip(made, kept, strict=True):
            assert ours.name == theirs.name
            assert ours.shape == theirs.shape == ours.variances.shape
            np.testing.assert_array_equal(ours.variances, theirs.variances)
            assert ours.target.describe() == theirs.target.describe()
        assert [g.name for g in made[3:1:-1]] == [g.name for g in kept[3:1:-1]]
        assert made[-1].name == kept[-1].name == "a x b 2"
        assert made.describe_targets() == [group.target.describe() for group in made]
        with pytest.raises(IndexError):
            made[len(made)]

    def test_gathering_groups_gives_the_same_columns(self):
        workload = make_workload()
        groups = list(workload.groups)
        assert_same(make_bound_workload(workload.domain, groups), workload)
        vary = np.arange(1.0, 1 + groups[3].size).reshape(groups[3].shape)
        groups[3] = dataclasses.replace(groups[3], variances=vary)
        with pytest.raises(ValueError, match="variances of 'a' do not fit the shape of its target"):
            make_bound_workload(workload.domain, groups)

    def test_products_and_sets_are_those_of_each_group(self):
        groups = make_workload().groups
        numbers = np.arange(2, 2 + len(groups.factors))
        sets = {id(f): i for i, f in enumerate(groups.factors)}
        own = [[sets[id(f)] for f in group.factors] for group in groups]
        assert groups.multiply(numbers).tolist() == [math.prod(i + 2 for i in o) for o in own]
        assert groups.sizes.tolist() == [group.size for group in groups]
        members = np.arange(len(numbers))[::-1].copy()
        members[1] = -1
        counts, found = groups.gather_sets(members)
        expected = [sorted(int(members[i]) for i in o if members[i] >= 0) for o in own]
        assert counts.tolist() == [len(one) for one in expected]
        assert found.tolist() == [a for one in expected for a in one]
        marks = numbers == 2
        assert groups.find_any(marks).tolist() == [0 in o for o in own]

    def test_structures_have_the_rows_of_each_group(self):
        workload = make_workload()
        structure = analyse_structure(workload)
        for g, group in enumerate(workload.groups):
            at = tuple(
                0 if f.attribute in structure.symmetric else slice(None) for f in group.factors
            )
            rows = slice(structure.row_starts[g], structure.row_starts[g + 1])
            np.testing.assert_array_equal(structure.targets[rows], group.variances[at].ravel())
            repeats = group.size / group.variances[at].size
            np.testing.assert_array_equal(structure.repeats[rows], repeats)

    def test_nothing_can_be_changed_before_or_after_pickling(self):
        workload = make_workload()
        for one in (workload, pickle.loads(pickle.dumps(workload))):
            assert_same(one, workload)
            assert one.groups.positions["own"] == workload.groups.positions["own"]
            for array in (one.groups.values, one.groups.variances, one["own"].variances):
                with pytest.raises(ValueError, match="read-only"):
                    array[:1] = 0

    def test_a_group_of_more_queries_than_an_index_is_refused(self):
        domain = fp.Domain({f"a{i}": fp.Integers(0, 2**15) for i in range(5)})
        groups = [fp.marginal("a0", std=1.0), fp.marginal(*domain.names, std=1.0)]
        with pytest.raises(fp.WorkloadError, match=r"a0 x a1 x a2 x a3 x a4.*too many answers"):
            fp.Workload(domain, groups)


@given(
    st.lists(
        st.floats(1e-30, 1e30) | st.integers(1, 10**15).map(lambda n: n / 1024),
        min_size=1,
        max_size=20,
    )
)
def test_squares_are_rounded_down_and_no_further(stds):
    form = TargetForm("std", None, False, (len(stds),))
    for std, square in zip(stds, form.convert_to_variances(np.array(stds), 1), strict=True):
        assert Fraction(float(square)) <= Fraction(std) ** 2
        assert Fraction(math.nextafter(square, math.inf)) > Fraction(std) ** 2


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20), st.sampled_from([0.5, 0.95]))
def test_margins_of_error_have_the_variances_that_plan_files_hold(moes, confidence):
    """One number was always squared by pow, and an array by a product: their last digits differ."""
    domain = fp.Domain({"a": fp.Integers(0, len(moes) - 1)})
    together = fp.queries({"a": "identity"}, moe=moes, confidence=confidence)
    alone = [fp.marginal("a", moe=moe, confidence=confidence) for moe in moes]
    workload = fp.Workload(domain, [together, *alone])
    z = two_sided_quantile(confidence)
    expected = (np.array(moes) / z) ** 2 * (1 - 2.0**-49)
    np.testing.assert_array_equal(workload.groups[0].variances, expected)
    for group, moe in zip(workload.groups[1:], moes, strict=True):
        assert (group.variances == (moe / z) ** 2 * (1 - 2.0**-49)).all()


@given(st.integers(0, 2**32 - 1))
def test_tables_are_the_largest_sets(seed):
    rng = np.random.default_rng(seed)
    domain = make_domain(rng.integers(2, 4, 6).tolist())
    sets = [np.flatnonzero(rng.random(6) < rng.uniform(0.1, 0.9)) for _ in range(8)]
    groups = [fp.marginal(*(f"a{i}" for i in own), std=1.0, name=str(s))
              for s, own in enumerate(sets)]  # fmt: skip
    workload = fp.Workload(domain, groups)
    expected = select_largest_sets(group.attributes for group in workload.groups)
    assert workload.tables == expected
    structure = analyse_structure(workload)
    every = np.arange(len(structure.blocks))
    largest = structure.subsets.select_largest(every)
    names = [
        tuple(structure.symmetric[a] for a in own)
        for own in structure.subsets.list_attributes(largest)
    ]
    assert sorted(names) == sorted(expected)
