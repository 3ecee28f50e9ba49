"""Advice in words that fit what an attribute is."""

from __future__ import annotations

import pytest

import fitplug as fp
from fitplug.domain.domain import suggest_fewer_cells
from fitplug.families import analysis as symmetry
from fitplug.families.product.shape import products
from tests.helpers.plans import geography

CODES = ["01001", "01003", "02001"]
DOMAIN = fp.Domain(
    {
        "AGE": fp.Integers(0, 99),
        "INCOME": fp.Bins([0, 1, 2]),
        "GEOID": fp.Hierarchy({"state": 2, "county": 5}, CODES),
        "PLACE": fp.Hierarchy(["city"], [["Ulm"], ["Rom"]]),
        "DAY": fp.Dates("2020-01-01", "2020-12-31"),
        "MONTH": fp.Dates("2020-01-01", "2020-12-31", by="month"),
        "YEAR": fp.Dates("2020-01-01", "2021-12-31", by="year"),
        "ZIP": fp.CodePrefix(CODES, 2),
        "SEX": ["1", "2"],
    }
)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["GEOID"], "a tree GEOID that ends at state"),
        (["AGE", "INCOME"], "coarser bins of AGE, INCOME"),
        (["GEOID", "AGE"], "coarser bins of AGE, or a tree GEOID that ends at state"),
        (["PLACE"], "fewer leaves of PLACE"),
        (["DAY"], "DAY by month"),
        (["MONTH"], "MONTH by quarter"),
        (["YEAR"], "fewer years of YEAR"),
        (["ZIP"], "shorter prefixes of ZIP"),
        (["SEX"], "fewer categories of SEX"),
    ],
)
def test_words_that_fit(names, words):
    assert suggest_fewer_cells(DOMAIN, names) == words


@pytest.mark.slow
def test_a_census_tree_gets_no_coarser_bins(monkeypatch):
    monkeypatch.setattr(symmetry, "MOST_CELLS", 1)
    monkeypatch.setattr(symmetry, "MOST_DENSE", 0)
    workload = geography()
    crossed = fp.design(workload).status
    assert "ask for fewer of age, place together, or use" in crossed
    assert "a tree place that ends at county" in crossed
    alone = fp.Workload(workload.domain, [fp.queries({"place": "tract"}, std=1.0)])
    monkeypatch.setattr(products, "MAX_ROWS", 1)
    with pytest.raises(fp.WorkloadError, match="Use coarser bins of age, or a tree place"):
        fp.design(workload)
    assert "bins" not in fp.design(alone).status
