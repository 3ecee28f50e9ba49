"""What answers are numbers of, wherever a plan or a release is shown: records, or sums."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

import fitplug as fp
from fitplug.domain import get_codec
from fitplug.workload import list_measure_rules

DOMAIN = fp.Domain(
    {
        "sex": ["f", "m"],
        "pay": fp.Measure(0, 100, unit=10),
        "weight": fp.Measure(0, 2, unit=0.5, other="none"),
        "day": fp.Measure("2020-01-01", "2020-01-31"),
    }
)
GROUPS = {
    "people": ({"sex": "identity"}, "rows"),
    "with a weight": ({"weight": "count"}, "rows"),
    "all pay": ({"pay": "total"}, "rows"),
    "pay": ({"sex": "identity", "pay": "sum"}, "sum of pay"),
    "weighted": ({"weight": "sum", "pay": "sum"}, "sum of weight x pay"),
}
WORKLOAD = fp.Workload(
    DOMAIN, [fp.queries(asked, std=30.0, name=name) for name, (asked, _) in GROUPS.items()]
)
PLAN = fp.design(WORKLOAD, tolerance=0.1)
RECORDS = {"sex": ["f", "m", "m"], "pay": [10, 20, 120], "weight": [1.0, 0.5, 2.0]}
RELEASE = fp.release(PLAN, fp.Tables.from_records(DOMAIN, RECORDS, PLAN.tables))
COUNTS = fp.design(fp.Workload(DOMAIN, [fp.marginal("sex", std=3.0)]))
NOT_COVERED = "no margin of error covers that change"


def test_groups_and_rows_of_a_plan():
    for name, (_, quantity) in GROUPS.items():
        assert WORKLOAD[name].quantity == quantity
    assert WORKLOAD.groups.list_quantities() == [quantity for _, quantity in GROUPS.values()]
    assert [row.quantity for row in PLAN.group_rows()] == WORKLOAD.groups.list_quantities()


def test_the_rules_of_the_measures_that_are_used():
    pay, weight, rest = list_measure_rules(WORKLOAD)
    assert pay == (
        "Measure pay: values below 0 count as 0, values above 100 as 100, and all are rounded to "
        "steps of 10 from 0; rows without a value are not counted."
    )
    assert weight.endswith("rows without a value are counted and add nothing to sums.")
    assert "did not read them from the rows" in rest
    assert rest.endswith(f"{NOT_COVERED}.")
    assert list_measure_rules(COUNTS.workload) == ()
    assert "sums are in days since 1970-01-01" in get_codec(DOMAIN["day"]).rule
    assert "steps of 1 day from 2020-01-01" in get_codec(DOMAIN["day"]).rule
    assert (
        get_codec(fp.Measure(datetime.date(2020, 1, 1), "2020-01-31", unit=15)).rule.count(
            "15 days"
        )
        == 1
    )


def test_texts_of_plans_and_releases():
    for text in (PLAN.summary(), PLAN._repr_html_(), RELEASE._repr_html_()):
        assert "sum of weight x pay" in text
        assert "quantity" in text
        assert NOT_COVERED in text
    assert NOT_COVERED in RELEASE.population
    counts = fp.release(COUNTS, fp.Tables.from_records(DOMAIN, RECORDS, COUNTS.tables))
    for text in (COUNTS.summary(), COUNTS._repr_html_(), counts._repr_html_(), counts.population):
        assert "quantity" not in text
        assert NOT_COVERED not in text


def test_tables_and_their_metadata():
    for name, (_, quantity) in GROUPS.items():
        assert RELEASE.to_pandas(name).attrs["fitplug.units"].endswith(f": {quantity}")
    assert RELEASE.to_pandas("pay")["pay"].tolist() == ["sum", "sum"]


def test_plots():
    pytest.importorskip("matplotlib")
    assert RELEASE.plot("pay").axes[0].get_xlabel() == "estimate (sum of pay)"
    assert RELEASE.plot("people").axes[0].get_xlabel() == "estimate (rows)"
    assert PLAN.plot().axes[0].get_xlabel() == "standard deviation (the quantity's own units)"
    assert COUNTS.plot().axes[0].get_xlabel() == "standard deviation (rows)"


def test_a_release_folder_is_read_back(tmp_path):
    RELEASE.save(tmp_path / "release")
    found = fp.Release.load(tmp_path / "release")
    np.testing.assert_array_equal(found.estimates["pay"], RELEASE.estimates["pay"])
    assert found.population == RELEASE.population


def test_periods_are_no_measures():
    assert "along pay" not in PLAN.summary()
    with pytest.raises(fp.InputError, match="periods = 'pay' is a measure"):
        fp.design(WORKLOAD, periods="pay")


def test_a_review_of_a_replacement():
    plan = fp.design(WORKLOAD, tolerance=0.1, unit=fp.ReplaceOne())
    release = fp.release(plan, fp.Tables.from_records(DOMAIN, RECORDS, plan.tables))
    loss = fp.review(release)["deployment"]["privacy_loss"]["privacy_unit_details"]
    assert "differ in the values of all rows" in loss
    assert "These rows may have any values, of measures too" in loss
