"""What every kind of attribute promises to other rooms, and what a new kind needs to be used."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import domain as domains
from fitplug.domain.attribute import CODECS, Attribute, Codec, get_codec
from fitplug.domain.domain import suggest_fewer_cells
from fitplug.domain.encoder import OUTSIDE, TYPE_NAMES
from fitplug.domain.spec_form import SpecForm
from fitplug.domain.value_lookup import ValueLookup
from fitplug.expressions.parser import parse

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
    "prefixes": fp.CodePrefix(["01001", "02"], 2, other="else"),
    "tree": fp.Hierarchy(["state", "county", "tract"], TREE),
    "integers and others": fp.Integers(-2, 5, other="missing"),
    "bins and others": fp.Bins([0, 2.5, 10], other="missing"),
    "days and others": fp.Dates("2020-02-27", "2020-03-02", other="missing"),
    "months and others": fp.Dates("2019-12-01", "2020-02-29", "month", other="missing"),
    "years and others": fp.Dates("1969-01-01", "1971-12-31", "year", other="missing"),
    "tree and others": fp.Hierarchy(["state", "county", "tract"], TREE, other="missing"),
    "tree of integers and others": fp.Hierarchy(["a", "b"], [[1, 11], [2, 21]], other="missing"),
}


@pytest.fixture(params=ATTRIBUTES)
def attribute(request: pytest.FixtureRequest) -> Attribute:
    return ATTRIBUTES[request.param]


def test_labels_and_values_are_those_of_the_cells(attribute: Attribute) -> None:
    codec = get_codec(attribute)
    cells = list(range(attribute.size))
    assert len(set(attribute.labels)) == len(codec.column_values()) == attribute.size
    assert len(attribute.values) == codec.value_count
    assert [codec.find_cell(label) for label in attribute.labels] == cells
    assert list(map(str, codec.column_values())) == list(attribute.labels)
    lookup = ValueLookup(attribute)
    assert [lookup.find(label) for label in attribute.labels] == [{(c, c)} for c in cells]
    for unknown in ("no such value", None, 99, 1.5, datetime.date(1900, 1, 1)):
        assert not lookup.find(unknown)


def test_runs_are_named_by_their_ends(attribute: Attribute) -> None:
    codec = get_codec(attribute)
    single = np.stack([np.arange(attribute.size)] * 2, axis=1)
    assert codec.label_runs(single) == list(attribute.labels)
    (everything,) = codec.label_runs(np.array([[0, attribute.size - 1]]))
    first, last = map(str, codec.ends)
    assert first in everything
    assert last in everything


def test_ranges_reach_from_end_to_end(attribute: Attribute) -> None:
    codec = get_codec(attribute)
    cells = [codec.find_end(end) for end in codec.ends]
    assert cells == [0, codec.value_count - 1 + codec.is_half_open]
    assert codec.find_end("no such value") is None
    assert attribute.other is None or codec.find_end(attribute.other) is None
    is_value = np.arange(attribute.size) < codec.value_count
    bounds, rows = [codec.ends], [is_value]
    if attribute.other is not None:
        bounds += [(codec.ends[0], attribute.other), (attribute.other, attribute.other)]
        rows += [np.ones(attribute.size), ~is_value]
    asked = fp.queries({"a": fp.ranges(bounds)}, std=1.0)
    workload = fp.Workload(fp.Domain({"a": attribute}), [asked])
    np.testing.assert_array_equal(workload.matrix(), np.array(rows, dtype=np.float64))
    labels = workload.groups[0].factors[0].labels(attribute)
    if attribute.other is not None:
        assert labels[1:] == [f"{labels[0]} or {attribute.other}", attribute.other]


@pytest.mark.parametrize("kind", ["prefix", "all_ranges"])
def test_ordered_queries_leave_out_other_values(attribute: Attribute, kind: str) -> None:
    n = get_codec(attribute).value_count
    factor = (
        fp.Workload(fp.Domain({"a": attribute}), [fp.queries({"a": kind}, std=1.0)])
        .groups[0]
        .factors[0]
    )
    matrix = factor.matrix()
    whole = np.tril(np.ones((n, n)))
    if kind == "all_ranges":
        whole = np.array([[a <= c <= b for c in range(n)] for a in range(n) for b in range(a, n)])
    np.testing.assert_array_equal(matrix[:, :n], whole)
    assert not matrix[:, n:].any()
    assert len(factor.labels(attribute)) == factor.rows == len(matrix)


def test_codes_of_nulls_and_types(attribute: Attribute) -> None:
    codec = get_codec(attribute)
    assert codec.value_type in TYPE_NAMES
    assert codec.codes(np.array([None], dtype=object)).tolist() == [codec.null_code]
    assert codec.null_code in (OUTSIDE, attribute.size - 1)
    assert codec.codes([]).tolist() == []


def test_integers_beyond_the_span_have_the_code_of_its_ends(attribute: Attribute) -> None:
    codec = get_codec(attribute)
    span = codec.integer_span
    assert (span is None) == (codec.value_type not in (int, datetime.date))
    if span is not None:
        low, high = span
        ends = codec.codes_of_numbers(np.array([low, high]))
        for step in (1, 5, 1000):
            beyond = codec.codes_of_numbers(np.array([low - step, high + step]))
            np.testing.assert_array_equal(beyond, ends)
        inside = codec.codes_of_numbers(np.arange(low, high + 1))
        expected = attribute.size - (codec.null_code != OUTSIDE)
        assert len(set(inside.tolist()) - {codec.null_code}) == expected


def test_levels_are_those_of_trees(attribute: Attribute) -> None:
    codec = get_codec(attribute)
    assert bool(codec.levels) == isinstance(attribute, fp.Hierarchy)
    for level in codec.levels:
        assert len(codec.intervals(level)) == len(codec.labels_at(level))
    for ask in (codec.intervals, codec.labels_at, codec.named_at):
        with pytest.raises(fp.DomainError, match="there is no level 'village'"):
            ask("village")


def test_specs_are_read_by_the_kind_that_wrote_them(attribute: Attribute) -> None:
    codec = get_codec(attribute)
    again = domains.make_attribute(codec.spec())
    assert again == attribute
    assert type(again) is type(attribute)
    assert domains.make_attribute(attribute) is attribute


def test_a_message_shows_every_kind() -> None:
    with pytest.raises(fp.DomainError, match="5 is not an attribute") as caught:
        domains.make_attribute(5)
    for kind in CODECS.values():
        assert kind.spec_form.example in str(caught.value)


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


@dataclass(frozen=True)
class Angles(Attribute):
    """A kind that no room knows: angles from 0 in equal steps, ordered."""

    steps: int
    other: str | None = None

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(f"{360 * step // self.steps}°" for step in range(self.steps))


class AnglesCodec(Codec, kind=Angles):
    attribute: Angles
    spec_form: ClassVar[SpecForm] = SpecForm("{ angles = steps }", names=("angles",))
    value_type: ClassVar[type] = int
    is_ordered: ClassVar[bool] = True

    def codes(self, values: Any) -> Any:
        return np.asarray(values) % 360 * self.size // 360

    def find_end(self, value: Any) -> int | None:
        return self.labels.index(value) if value in self.labels else None

    def remedy(self, names: str) -> str:
        return f"fewer angles of {names}"

    def spec(self) -> Any:
        return {"angles": self.size}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Angles:
        return Angles(spec["angles"])


del CODECS[Angles]  # other tests list the kinds


def test_a_new_kind_is_two_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CODECS, Angles, AnglesCodec)
    domain = fp.Domain({"sex": ["1", "2"], "angle": Angles(4)})
    assert fp.Domain.from_spec(domain.spec()) == domain
    with pytest.raises(fp.DomainError, match=r"unknown key 'angel'. Did you mean 'angles'"):
        fp.Domain.from_spec({"a": {"angel": 4}})
    groups = [
        fp.queries({"angle": fp.ranges([("90°", "270°")])}, std=1.0, name="range"),
        fp.queries({"sex": "identity", "angle": "prefix"}, std=2.0, name="prefix"),
    ]
    workload = fp.Workload(domain, groups)
    with pytest.raises(fp.WorkloadError, match=r"'1°' is not in the domain of angle.* to 270°"):
        fp.Workload(domain, [fp.queries({"angle": fp.ranges([("1°", "90°")])}, std=1.0)])
    plan = fp.design(workload)
    plan.save(tmp_path / "plan.npz")
    assert fp.Plan.load(tmp_path / "plan.npz").domain == domain
    assert fp.baselines.hierarchical(workload, 1.0)["prefix"].shape == (2, 4)
    records = {"sex": ["1", "2", "2"], "angle": [10, 100, 370]}
    tables = fp.Tables.from_records(domain, records, plan.tables)
    assert tables["sex", "angle"].tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]
    rows = workload["range"].factors[0].labels(domain["angle"])
    assert rows == ["90°..270°"]
    assert suggest_fewer_cells(domain, ["sex", "angle"]) == (
        "fewer angles of angle, or fewer categories of sex"
    )
    coefficients = parse(workload, "prefix[sex = 2, angle <= '90°']")
    assert isinstance(coefficients, dict)
    assert coefficients["prefix"].tolist() == [[0, 0, 0, 0], [0, 1, 0, 0]]
