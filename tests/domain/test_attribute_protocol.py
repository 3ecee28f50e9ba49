"""What every kind of attribute promises to other rooms, and what a new kind needs to be used."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

import fitplug as fp
from fitplug.domain import Attribute, domain as domains, get_codec
from fitplug.domain.domain import suggest_fewer_cells
from fitplug.expressions.parser import parse
from fitplug.testing import check_attribute
from tests.helpers.third_party import Angles

TREE = [("01", "001", "0100101"), ("01", "003", "0100301"), ("02", "001", "0200101")]
ATTRIBUTES: dict[str, Attribute] = {
    "texts": fp.Categories(["b", "a", "1"]),
    "texts and others": fp.Categories(["b", "a"], other="Other"),
    "integer categories": fp.Categories([7, -3, 0]),
    "integer categories and others": fp.Categories([7, -3], other="07"),
    "booleans": fp.Categories([True, False]),
    "one boolean and others": fp.Categories([True], other="False"),
    "integers": fp.Integers(-2, 5),
    "bins": fp.Bins([0, 2.5, 10]),
    "days": fp.Dates("2020-02-27", "2020-03-02"),
    "months": fp.Dates("2019-12-01", "2020-02-29", "month"),
    "years": fp.Dates("1969-01-01", "1971-12-31", "year"),
    "prefixes and others": fp.CodePrefix(["01001", "02"], 2, other="else"),
    "tree": fp.Hierarchy(["state", "county", "tract"], TREE),
    "integers and others": fp.Integers(-2, 5, other="missing"),
    "bins and others": fp.Bins([0, 2.5, 10], other="missing"),
    "days and others": fp.Dates("2020-02-27", "2020-03-02", other="missing"),
    "months and others": fp.Dates("2019-12-01", "2020-02-29", "month", other="missing"),
    "years and others": fp.Dates("1969-01-01", "1971-12-31", "year", other="missing"),
    "tree and others": fp.Hierarchy(["state", "county", "tract"], TREE, other="missing"),
    "tree of integers and others": fp.Hierarchy(["a", "b"], [[1, 11], [2, 21]], other="missing"),
}


VALUES: dict[str, dict[Any, int | None]] = {
    "texts": {"b": 0, "a": 1, "1": 2, "B": None, "": None},
    "integer categories": {7: 0, -3: 1, 0: 2, 1: None},
    "booleans": {True: 0, False: 1},
    "one boolean": {True: 0, False: None},
    "integers": {**{n: n + 2 for n in range(-2, 6)}, -3: None, 6: None, 10**18: None},
    "bins": {0.0: 0, 2.4: 0, 2.5: 1, 9.9: 1, 10.0: None, -0.1: None, float("nan"): None},
    "days": {
        datetime.date(2020, 2, 27): 0,
        datetime.date(2020, 2, 28): 1,
        datetime.date(2020, 2, 29): 2,
        datetime.date(2020, 3, 1): 3,
        datetime.date(2020, 3, 2): 4,
        datetime.date(2020, 3, 3): None,
        datetime.date(1, 1, 1): None,
    },
    "months": {
        datetime.date(2019, 12, 31): 0,
        datetime.date(2020, 1, 1): 1,
        datetime.date(2020, 2, 29): 2,
        datetime.date(2020, 3, 1): None,
    },
    "years": {
        datetime.date(1969, 12, 31): 0,
        datetime.date(1970, 1, 1): 1,
        datetime.date(1971, 12, 31): 2,
        datetime.date(1972, 1, 1): None,
    },
    "prefixes": {"01001": 0, "01999": 0, "02": 1, "0": None, "1": None},
    "tree": {"0100101": 0, "0100301": 1, "0200101": 2, "01": None, "001": None},
    "tree of integers": {11: 0, 21: 1, 1: None},
}
"""The cells of values, by the kind; those of "other" are outside without it."""


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_each_kind_conforms(name: str) -> None:
    attribute, values = ATTRIBUTES[name], VALUES[name.removesuffix(" and others")]
    if attribute.other is not None:
        n = get_codec(attribute).value_count
        values = {v: n if cell is None or cell >= n else cell for v, cell in values.items()}
    check_attribute(attribute, values)


def test_what_is_no_attribute_is_refused() -> None:
    with pytest.raises(fp.DomainError, match=r"5 must be a list .* \{ integers = \[0, 99\] \}"):
        domains.make_attribute(5)


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        (fp.Integers(0, 1), "only categories and hierarchies can have levels"),
        (fp.CodePrefix(["01"], 2), "only categories and hierarchies can have levels"),
    ],
)
def test_some_attributes_cannot_have_levels(attribute: Attribute, says: str) -> None:
    with pytest.raises(fp.DomainError, match=says):
        fp.Hierarchy.from_attribute(attribute, "place")


def test_categories_and_trees_can_have_levels() -> None:
    flat = fp.Hierarchy.from_attribute(fp.Categories(["b", "a"]), "place")
    assert flat == fp.Hierarchy(["place"], [["b"], ["a"]])
    assert fp.Hierarchy.from_attribute(flat, "other") is flat
    others = fp.Hierarchy.from_attribute(fp.Categories(["b", "a"], other="c"), "place")
    assert others == fp.Hierarchy(["place"], [["b"], ["a"]], other="c") != flat
    regions = others.with_level("region", {"b": 1, "a": 2})
    assert get_codec(regions).named_at("region") == ("1", "2", "c")
    assert get_codec(regions).intervals("region").tolist() == [[0, 0], [1, 1], [2, 2]]


def test_a_new_kind_is_two_classes() -> None:
    domain = fp.Domain({"sex": ["1", "2"], "angle": Angles(4)})
    with pytest.raises(fp.DomainError, match=r"unknown key 'angel'. Did you mean 'angles'"):
        fp.Domain.from_spec({"a": {"angel": 4}})
    groups = [
        fp.queries({"angle": fp.ranges([("90°", "270°")])}, std=1.0, name="range"),
        fp.queries({"sex": "identity", "angle": "prefix"}, std=2.0, name="prefix"),
    ]
    workload = fp.Workload(domain, groups)
    with pytest.raises(fp.WorkloadError, match=r"'1°' is not in the domain of angle.* to 270°"):
        fp.Workload(domain, [fp.queries({"angle": fp.ranges([("1°", "90°")])}, std=1.0)])
    assert fp.baselines.hierarchical(workload, 1.0)["prefix"].shape == (2, 4)
    rows = workload["range"].factors[0].labels(domain["angle"])
    assert rows == ["90°..270°"]
    assert suggest_fewer_cells(domain, ["sex", "angle"]) == (
        "fewer angles of angle, or fewer categories of sex"
    )
    coefficients = parse(workload, "prefix[sex = 2, angle <= '90°']")
    assert isinstance(coefficients, dict)
    assert coefficients["prefix"].tolist() == [[0, 0, 0, 0], [0, 1, 0, 0]]
