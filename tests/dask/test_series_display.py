"""Display tables of a series: each period's agree with each other, with those before, and cover."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.optimize import nnls

import fitplug as fp
from fitplug.errors import InputError, WorkloadError
from fitplug.families import build_dense_strategy, date_answers
from fitplug.releases import PartialRelease
from fitplug.releases.period_display import make_period_display

T = 4
DOMAIN = fp.Domain({"REGION": ["n", "s", "w"], "MONTH": fp.Integers(1, T)})
CHANGES = np.eye(T)[2:] - np.eye(T)[:-2]
GROUPS = [
    fp.marginal("REGION", "MONTH", std=3.0, name="months"),
    fp.queries({"MONTH": "prefix", "REGION": "identity"}, std=4.0, name="so far"),
    fp.queries({"REGION": "identity", "MONTH": CHANGES}, std=4.0, name="changes"),
    fp.marginal("REGION", std=4.0, name="year"),
    fp.queries({"MONTH": "identity"}, moe=6.0, confidence=0.9, name="all"),
]
PLAN = fp.design(fp.Workload(DOMAIN, GROUPS), periods="MONTH")
FEW = np.random.default_rng(3).poisson(1.5, (3, T))
"""Counts as small as the noise, so that many estimates are negative."""


def count(x: Any = FEW) -> fp.Tables:
    return fp.Tables(DOMAIN, {("REGION", "MONTH"): x})


def begin(folder: Path, plan: fp.Plan = PLAN, **keywords: Any) -> fp.Series:
    ledger = fp.Ledger(folder / "budget.db", rho=10.0)
    return fp.begin_series(plan, folder / "pay", ledger=ledger, key="pay", **keywords)


def read(folder: Path, name: str, month: int) -> Any:
    return pq.read_table(folder / "pay" / f"period-{month}" / f"{name}.display.parquet").to_pandas()


def gather(folder: Path) -> dict[str, np.ndarray]:
    """Put the display tables of all periods together; each number is in one of them."""
    months = np.full((3, T), -1)
    so_far, changes = months.copy(), {}
    for month in range(1, T + 1):
        own, run = read(folder, "months", month), read(folder, "so_far", month)
        assert set(own["MONTH"]) == {month}
        months[:, month - 1], so_far[:, month - 1] = own["display"], run["display"]
        if month > 2:
            changes[month] = read(folder, "changes", month)["display"].to_numpy()
    return {
        "months": months,
        "so far": so_far,
        "changes": np.array([changes[3], changes[4]]).T,
        "year": read(folder, "year", T)["display"].to_numpy(),
        "all": np.array([read(folder, "all", m)["display"][0] for m in range(1, T + 1)]),
    }


def test_all_display_tables_of_a_series_agree_and_none_is_changed(tmp_path: Path) -> None:
    series = begin(tmp_path, display=True)
    for month in range(1, T + 1):
        before = {p: p.read_bytes() for p in (tmp_path / "pay").rglob("*.display.parquet")}
        released = series.release(month, count())
        assert all(path.read_bytes() == content for path, content in before.items())
        series.verify()
    shown = gather(tmp_path)
    months = shown["months"]
    assert months.dtype.kind == "i"
    assert months.min() >= 0
    assert (released.estimates["months"] < 0).any()
    assert np.array_equal(shown["so far"], months.cumsum(axis=1))
    assert np.array_equal(shown["changes"], months[:, 2:] - months[:, :-2])
    assert np.array_equal(shown["year"], months.sum(axis=1))
    assert np.array_equal(shown["all"], months.sum(axis=0))
    metadata = pq.read_schema(tmp_path / "pay/period-1/months.display.parquet").metadata
    assert metadata[b"fitplug.biased"] == b"true"
    assert metadata[b"fitplug.drawn"] == b"1"
    # The folder alone tells that there are display tables, and their numbers.
    fp.open_series(tmp_path / "pay").verify()


def test_each_period_is_the_nearest_to_its_answers_given_those_before(tmp_path: Path) -> None:
    series = begin(tmp_path, display=True)
    A = build_dense_strategy(PLAN.strategy)
    dates = date_answers(PLAN.strategy, "MONTH")
    for month in range(1, T + 1):
        released = series.release(month, count())
        months = np.zeros((3, T))
        for earlier in range(1, month + 1):
            months[:, earlier - 1] = read(tmp_path, "months", earlier)["display"]
        drawn, own = dates == month - 1, np.zeros((3, T), dtype=bool)
        own[:, month - 1] = True
        before = np.where(own, 0, months).ravel()
        left = np.asarray(released.answers)[drawn] - A[drawn] @ before
        B = A[np.ix_(drawn, own.ravel())]
        best, _ = nnls(B, left)
        # Rounding takes each count to an integer next to it.
        assert (np.abs(months[:, month - 1] - best) < 1 + 1e-6).all()


@pytest.mark.slow
def test_intervals_of_display_tables_cover_as_often_as_they_say() -> None:
    """In 2,000 releases, at each count; and the totals have no bias that grows with the periods."""
    rng, runs = np.random.default_rng(8), 2000
    exact = build_dense_strategy(PLAN.strategy) @ FEW.ravel()
    truth = {"months": FEW[:, :3], "so far": FEW.cumsum(axis=1).T[:3]}
    hits = {name: np.zeros(values.shape) for name, values in truth.items()}
    totals = []
    for _ in range(runs):
        noisy = np.rint(exact + rng.normal(0, PLAN.noise_std, len(exact))).astype(np.int64)
        release = PartialRelease(PLAN, noisy, PLAN.rho, periods="MONTH", drawn=3)
        shown = make_period_display(release)
        for name, values in truth.items():
            known = release.known[name]
            lower, upper = (end[known].reshape(values.shape) for end in shown.interval(name))
            hits[name] += (lower <= values) & (values <= upper)
        totals.append(shown.estimates["so far"][2].sum())
    for shares in hits.values():
        assert (shares / runs > 0.95 - 4 * np.sqrt(0.95 * 0.05 / runs)).all()
    bias = np.mean(totals) - FEW[:, :3].sum()
    assert 0 < bias < 3 * np.sqrt(PLAN.variances["so far"]).sum()


def test_what_was_edited_is_noticed(tmp_path: Path) -> None:
    series = begin(tmp_path, display=True)
    series.release(1, count())
    path = tmp_path / "pay/period-1/months.display.parquet"
    table = pq.read_table(path)
    place = table.column_names.index("display")
    pq.write_table(table.set_column(place, "display", [[40, 41, 42]]), path)
    with pytest.raises(InputError, match="display table does not match the answers"):
        series.verify()
    path.unlink()
    with pytest.raises(InputError, match="missing or damaged"):
        series.verify()


def test_what_has_no_display_tables_is_refused_before_the_charge(tmp_path: Path) -> None:
    """The regions of a month are known only when the quarter is over, and its total before."""
    quarter = fp.queries({"REGION": "identity", "MONTH": [[1, 1, 0, 0]]}, std=4.0, name="half")
    all_regions = fp.queries({"MONTH": "identity"}, std=6.0, name="all")
    plan = fp.design(fp.Workload(DOMAIN, [quarter, all_regions]), periods="MONTH")
    with pytest.raises(WorkloadError, match="need separate counts for each cell"):
        begin(tmp_path, plan, display=True)
    renamed = fp.Domain({"display": ["n", "s"], "MONTH": fp.Integers(1, T)})
    plan = fp.design(
        fp.Workload(renamed, [fp.marginal("display", "MONTH", std=4.0)]), periods="MONTH"
    )
    with pytest.raises(WorkloadError, match="name of a column of display tables"):
        begin(tmp_path, plan, display=True)
    assert not (tmp_path / "pay").exists()
    series = begin(tmp_path)
    with pytest.raises(fp.errors.FitplugError):  # the same series with other files
        begin(tmp_path, display=True)
    series.release(1, count())
    assert not list((tmp_path / "pay").rglob("*.display.parquet"))


def test_sums_of_measures_have_display_tables_that_are_not_negative(tmp_path: Path) -> None:
    domain = fp.Domain({"MONTH": fp.Integers(1, 2), "PAY": fp.Measure(0, 100)})
    groups = [
        fp.queries({"MONTH": "identity", "PAY": "sum"}, std=400.0, name="pay"),
        fp.queries({"MONTH": "identity"}, std=4.0, name="rows"),
    ]
    plan = fp.design(fp.Workload(domain, groups), periods="MONTH")
    series = begin(tmp_path, plan, display=True)
    rows = {"MONTH": [1, 1, 2], "PAY": [3, 90, 10]}
    for month in (1, 2):
        series.release(month, fp.Tables.from_records(domain, rows, series.tables))
        pay = read(tmp_path, "pay", month)["display"][0]
        # No person has more than 100.
        assert 0 <= pay <= 100 * read(tmp_path, "rows", month)["display"][0] + 1e-6
    series.verify()
