"""Series: one plan, drawn period by period, each period once, charged once."""

from __future__ import annotations

import dataclasses
import json
import shutil
from datetime import date

import numpy as np
import pytest
from scipy.stats import chi2

import fitplug as fp
from fitplug.errors import FitplugError, InputError, KeyTaken, LedgerError, OverBudget, TablesError
from fitplug.families import date_answers
from fitplug.ledger import DrawRequest, ReleaseCharges, hash_values
from fitplug.releases import Period, PeriodAnswers, join_periods
from fitplug_dask.releases import release_source
from fitplug_dask.series import Series, beginning
from fitplug_dask.series.counts import PeriodCounts, answer_newest, take_period
from fitplug_dask.series.folders import PeriodFolders, SeriesRecord
from fitplug_dask.series.period import PeriodPublication
from fitplug_opendp.key_file import KeyFile
from fitplug_opendp.noise_source import compute_exact_answers, draw_part

T = 4
DOMAIN = fp.Domain({"REGION": fp.Integers(1, 3), "MONTH": fp.Integers(1, T)})
CHANGES = np.eye(T)[2:] - np.eye(T)[:-2]
WORKLOAD = fp.Workload(
    DOMAIN,
    [
        fp.marginal("REGION", "MONTH", variance=1.0, name="months"),
        fp.queries({"MONTH": "prefix", "REGION": "identity"}, variance=3.0, name="so far"),
        fp.queries({"REGION": "identity", "MONTH": CHANGES}, variance=1.5, name="changes"),
        fp.marginal("REGION", variance=3.0, name="year"),
    ],
)
PLAN = fp.design(WORKLOAD, periods="MONTH")
X = np.random.default_rng(5).poisson(1000, (3, T))
TABLES = fp.Tables(DOMAIN, {("REGION", "MONTH"): X})
TRUTH = {
    "months": X,
    "so far": X.cumsum(axis=1).T,
    "changes": X[:, 2:] - X[:, :-2],
    "year": X.sum(axis=1),
}


@pytest.fixture
def ledger(tmp_path):
    return fp.Ledger(tmp_path / "budget.db", rho=10.0)


@pytest.fixture
def series(tmp_path, ledger):
    return fp.begin_series(PLAN, tmp_path / "pay", ledger=ledger, key="pay")


def test_a_series_from_its_first_period_to_its_last(tmp_path, ledger, series):
    assert series.tables == (("REGION", "MONTH"),)
    assert ledger.spent == pytest.approx(PLAN.rho)
    for month in range(1, T + 1):
        # Only the month is read from the tables.
        own = np.where(np.arange(1, T + 1) == month, X, 77)
        series = fp.open_series(tmp_path / "pay", ledger=ledger)
        released = series.release(month, fp.Tables(DOMAIN, {("REGION", "MONTH"): own}))
        assert released.drawn == month
        assert released.rho == PLAN.rho
        known = {name: released.known[name] for name in TRUTH}
        assert (known["months"] == (np.arange(T) < month)).all()
        assert (known["changes"] == (np.arange(2, T) < month)).all()
        assert (known["year"] == (month == T)).all()
        for name, truth in TRUTH.items():
            low, high = released.interval(name, confidence=1 - 1e-9)
            inside = (low <= truth) & (truth <= high)
            assert inside[known[name]].all()
            assert np.isnan(released.estimates[name][~known[name]]).all()
            assert np.isnan(released.variances[name][~known[name]]).all()
            planned = PLAN.variances[name][known[name]]
            assert np.array_equal(released.variances[name][known[name]], planned)
        series.verify()
    assert len(ledger.entries()) == 1 + T
    assert ledger.spent == pytest.approx(PLAN.rho)
    assert {stage.state for stage in ledger.stages().values()} == {"published"}
    # Nothing confidential is left, and nothing is drawn again.
    assert {path.name for path in tmp_path.iterdir()} == {"pay", "budget.db"}
    again = series.release(2, TABLES)
    assert np.array_equal(again.answers, released.answers)
    series = fp.begin_series(PLAN, tmp_path / "pay", ledger=ledger, key="pay")
    assert np.array_equal(series.read().answers, released.answers)
    whole = series.to_release()
    whole.save(tmp_path / "whole")
    read = fp.Release.load(tmp_path / "whole")
    for name in TRUTH:
        assert np.array_equal(read.estimates[name], released.estimates[name])
    assert read.estimate("year[REGION = 2]") == released.estimate("year[REGION = 2]")
    # Anybody who has the folder can read it.
    public = fp.open_series(tmp_path / "pay")
    assert np.array_equal(public.read().answers, released.answers)
    with pytest.raises(InputError, match="opened for reading only"):
        public.close()


def test_estimates_do_not_change_when_later_periods_are_drawn(series):
    before = [series.release(month, TABLES).estimates["so far"] for month in range(1, T + 1)]
    for month, own in enumerate(before):
        assert np.array_equal(own[: month + 1], before[-1][: month + 1])


def test_tables_of_periods_together_are_the_release(tmp_path, series):
    for month in range(1, T + 1):
        series.release(month, TABLES)
    import pyarrow.parquet as pq

    released = series.read()
    for name, file in {"months": "months", "so far": "so_far", "year": "year"}.items():
        parts = sorted((tmp_path / "pay").glob(f"period-*/{file}.parquet"))
        found = sorted(v for p in parts for v in pq.read_table(p)["estimate"].to_pylist())
        assert found == sorted(released.estimates[name].ravel().tolist())
    months = released.to_arrow("months", period=1)
    assert months["MONTH"].to_pylist() == [2, 2, 2]
    assert released.to_arrow("months").num_rows == 12


def test_combinations_of_what_is_known(series):
    released = series.release(1, TABLES)
    released = series.release(2, TABLES)
    found = released.estimate("months[MONTH = 1] + months[MONTH = 2]")
    assert found.value == pytest.approx(released.estimates["so far"][1].sum(), rel=1e-9)
    with pytest.raises(fp.FitplugError, match=r"not drawn yet \(drawn: 2 of 4\)"):
        released.estimate("months[MONTH = 3]")
    with pytest.raises(fp.FitplugError, match="not drawn yet"):
        released.estimate_all({"a": {"year": 1.0}, "b": {"months": np.eye(3, T)}})
    with pytest.raises(InputError, match="2 of 4 periods are drawn"):
        series.to_release()


def draw_all(plan, tables, scale):
    """The answers of all periods, by the steps of a series, less the exact answers."""
    answers = []
    for month in range(T):
        counts = [take_period(plan, "MONTH", t, tables).counts for t in range(month + 1)]
        exact = answer_newest(plan, "MONTH", counts)
        noisy = draw_part(exact, plan.noise_std * scale, "test")
        answers.append(PeriodAnswers(Period("", "MONTH", month), noisy, "", "declared"))
    return join_periods(plan, "MONTH", answers, rho=plan.rho)


@pytest.mark.parametrize(("scale", "fits"), [(1.0, True), (0.8, False)])
def test_all_periods_have_the_distribution_of_one_release(scale, fits):
    """All draws together are A x + z, with z as in a release of the plan that is drawn at once."""
    exact = compute_exact_answers(PLAN, TABLES)
    noise = np.array([draw_all(PLAN, TABLES, scale).answers - exact for _ in range(60)])
    square = float(((noise / PLAN.noise_std) ** 2).sum())
    low, high = chi2.ppf([1e-7, 1 - 1e-7], noise.size)
    assert (low < square < high) == fits
    if fits:
        correlations = np.corrcoef(noise.T)[~np.eye(noise.shape[1], dtype=bool)]
        assert np.abs(correlations).max() < 5.5 / np.sqrt(len(noise))


def test_the_answers_of_a_period_use_no_later_counts():
    dates = date_answers(PLAN.strategy, "MONTH")
    exact = compute_exact_answers(PLAN, TABLES)
    counts = [take_period(PLAN, "MONTH", t, TABLES) for t in range(T)]
    for month in range(T):
        own = answer_newest(PLAN, "MONTH", [one.counts for one in counts[: month + 1]])
        assert np.array_equal(own, exact[dates == month])
    assert repr(counts[0]) == "PeriodCounts()"
    read = PeriodCounts.decode(counts[0].encode())
    assert np.array_equal(read.counts, X[:, 0])


def test_periods_are_drawn_in_their_order(series):
    with pytest.raises(InputError, match="the next period is '1' of MONTH"):
        series.release(2, TABLES)
    series.release("1", TABLES)
    for unknown in (0, T + 1, "13", None, 1.5, [1], b"1"):
        with pytest.raises(InputError, match="MONTH has no value"):
            series.release(unknown, TABLES)
    with pytest.raises(InputError, match="needs exact counts"):
        series.release(2)


def test_periods_of_other_kinds_and_tables(tmp_path, ledger):
    """Days as periods, symmetric attributes in several tables, one of which has no period."""
    domain = fp.Domain(
        {"DAY": fp.Dates(date(2024, 1, 1), date(2024, 1, 3)), "A": ["x", "y"], "B": ["u", "v", "w"]}
    )
    workload = fp.Workload(
        domain,
        [
            fp.queries({"DAY": "prefix", "A": "identity"}, std=1.0, name="a"),
            fp.marginal("A", "B", std=1.0),
            fp.marginal("DAY", "B", std=2.0, name="b"),
        ],
    )
    unit = fp.AddRemove(3, once_per="DAY")
    plan = fp.design(workload, unit=unit, periods="DAY")
    series = fp.begin_series(plan, tmp_path / "days", ledger=ledger, key="days")
    assert set(series.tables) <= {("DAY", "A"), ("DAY", "B"), ("DAY", "A", "B")}
    x = np.random.default_rng(0).poisson(50, (3, 2, 3))
    yearly = fp.Tables(domain, {("A", "B"): x.sum(axis=0), ("DAY", "B"): x.sum(axis=1)})
    with pytest.raises(TablesError, match=r"the table \('DAY', 'A', 'B'\) is missing"):
        series.release("2024-01-01", yearly)
    tables = fp.Tables(domain, {("DAY", "A", "B"): x})
    for day in (date(2024, 1, 1), "2024-01-02", date(2024, 1, 3)):
        released = series.release(day, tables)
    assert np.abs(released.estimates["A x B"] - x.sum(axis=0)).max() < 8
    assert np.abs(released.estimates["a"] - x.sum(axis=2).cumsum(axis=0)).max() < 8
    assert released.limited == "declared"


@pytest.mark.parametrize("key", ["ID", ["HOUSE", "LINE"]])
def test_rows_of_persons_are_counted_period_by_period(tmp_path, ledger, key):
    """With one record a month, and as many records as months, each month enforces the unit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    person = np.repeat(np.arange(50), 3)
    keys = {"ID": person, "HOUSE": person // 5, "LINE": person % 5}
    rows = pa.table(keys | {"MONTH": np.ones(150, int), "REGION": person % 3 + 1})
    pq.write_table(rows, tmp_path / "rows.parquet")
    for records, limited in ((T, "enforced"), (2, "declared")):
        plan = fp.design(WORKLOAD, unit=fp.AddRemove(records, once_per="MONTH"), periods="MONTH")
        place = tmp_path / str(records)
        series = fp.begin_series(plan, place, ledger=ledger, key=str(records))
        released = series.release(1, fp.Source(tmp_path / "rows.parquet", person=key))
        assert released.limited == limited
        # Of the three rows of each person in the first month one is kept.
        assert released.estimates["months"][:, 0].sum() == pytest.approx(50, abs=15)
        if records == T:
            assert "Counting kept at most 4 rows per person" in released.population
            with pytest.raises(TablesError, match="were counted for the unit of privacy"):
                series.release(2, fp.Tables(DOMAIN, {("REGION", "MONTH"): X}, unit=fp.AddRemove(2)))
        assert series.release(2, fp.Tables(DOMAIN, {("REGION", "MONTH"): X})).limited == "declared"


def test_the_series_is_charged_in_its_unit(tmp_path):
    plan = fp.design(PLAN.workload, unit=fp.AddRemove(3), periods="MONTH")
    ledger = fp.Ledger(tmp_path / "budget.db", rho=9 * PLAN.rho * 1.001)
    series = fp.begin_series(plan, tmp_path / "a", ledger=ledger, key="a")
    assert ledger.spent == pytest.approx(9 * PLAN.rho)
    tables = {("REGION", "MONTH"): X}
    released = series.release(1, fp.Tables(DOMAIN, tables, unit=fp.AddRemove(3)))
    assert released.rho == pytest.approx(9 * PLAN.rho)
    assert released.limited == "declared"  # three records in each of four months
    with pytest.raises(TablesError, match="were counted for the unit of privacy"):
        series.release(2, fp.Tables(DOMAIN, tables, unit=fp.AddRemove(4)))
    with pytest.raises(OverBudget):
        fp.begin_series(PLAN, tmp_path / "b", ledger=ledger, key="b")
    assert not (tmp_path / "b").exists()


def test_closed_before_its_end(tmp_path, ledger, series):
    series.release(1, TABLES)
    series.close()
    assert {path.name for path in tmp_path.iterdir()} == {"pay", "budget.db"}
    with pytest.raises(InputError, match="closed"):
        series.release(2, TABLES)
    assert series.release(1).drawn == 1
    again = fp.begin_series(PLAN, tmp_path / "pay", ledger=ledger, key="pay")
    assert again.read().drawn == 1
    assert {path.name for path in tmp_path.iterdir()} == {"pay", "budget.db"}


def test_sealed_counts_are_kept_and_not_those_of_a_later_try(tmp_path, series, monkeypatch):
    """A try that fails after the counts are sealed is continued with the same counts."""
    from fitplug_dask.series import period

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(period, "draw_part", fail)
        with pytest.raises(FitplugError, match="no space left on device"):
            series.release(1, TABLES)
    assert series.read().drawn == 0
    other = fp.Tables(DOMAIN, {("REGION", "MONTH"): X + 100_000})
    released = series.release(1, other)
    assert np.abs(released.estimates["months"][:, 0] - X[:, 0]).max() < 10
    hidden = next(tmp_path.glob(".pay.*.series"))
    assert hidden.stat().st_mode & 0o777 == 0o700
    files = [path for path in hidden.rglob("*") if path.is_file()]
    for path in (*files, series.key_file):
        assert path.stat().st_mode & 0o077 == 0
        content = path.read_bytes()
        assert X[:, 0].astype("<i8").tobytes() not in content


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        (beginning, "_prepare_folder"),
        (Series, "_prepare"),
        (PeriodPublication, "find_staged"),
        pytest.param((KeyFile, "keep"), marks=pytest.mark.slow),
        pytest.param((Series, "_check_open"), marks=pytest.mark.slow),
        pytest.param((Series, "_count"), marks=pytest.mark.slow),
        pytest.param((PeriodFolders, "publish"), marks=pytest.mark.slow),
    ],
    ids=lambda step: step[1],
)
def test_another_process_is_faster(tmp_path, ledger, monkeypatch, step):
    """Between two steps, another process draws all periods: its answers are the release."""

    def draw():
        series = fp.begin_series(PLAN, tmp_path / "pay", ledger=ledger, key="pay")
        for month in range(1, T + 1):
            series.release(month, TABLES)
        return series.read().answers

    kept, drawn = getattr(*step), []

    def race(*arguments):
        if not drawn:
            drawn.append(None)
            drawn[0] = draw()
        return kept(*arguments)

    monkeypatch.setattr(*step, race)
    assert np.array_equal(draw(), drawn[0])
    assert len(ledger.entries()) == 1 + T
    assert {path.name for path in tmp_path.iterdir()} == {"pay", "budget.db"}
    assert not list((tmp_path / "pay").glob(".*"))


def copy_all(tmp_path, name):
    """Copy the folder of a series with what is hidden beside it, under another name."""
    shutil.copytree(tmp_path / "pay", tmp_path / name / "pay")
    hidden = next(tmp_path.glob(".pay.*.series"))
    shutil.copytree(hidden, tmp_path / name / hidden.name)
    return tmp_path / name / "pay"


def test_a_copy_of_the_folder_cannot_draw_a_period_again(tmp_path, ledger, series):
    series.release(1, TABLES)
    copied = fp.open_series(copy_all(tmp_path, "copy"), ledger=ledger)
    assert np.array_equal(copied.read().answers, series.read().answers)
    released = series.release(2, TABLES)
    with pytest.raises(FitplugError, match=r"was drawn into .* Continue the series in this"):
        copied.release(2, TABLES)
    with pytest.raises(FitplugError, match=r"was drawn into .* Continue the series in this"):
        copied.read()
    assert not list((tmp_path / "copy").rglob("period-2*"))
    assert np.array_equal(series.read().answers, released.answers)


def test_a_folder_may_be_moved_with_what_is_hidden(tmp_path, ledger, series):
    series.release(1, TABLES)
    moved = copy_all(tmp_path, "moved")
    shutil.rmtree(tmp_path / "pay")
    shutil.rmtree(next(tmp_path.glob(".pay.*.series")))
    series = fp.open_series(moved, ledger=ledger)
    for month in range(2, T + 1):
        series.release(month, TABLES)
    assert series.read().is_complete
    assert {path.name for path in moved.parent.iterdir()} == {"pay"}


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def test_damage_and_edits_are_refused(tmp_path, ledger, series):
    series.release(1, TABLES)
    pay, hidden = tmp_path / "pay", next(tmp_path.glob(".pay.*.series"))

    def refuse(path, damage, says, call, kind=InputError):
        kept = path.read_bytes()
        damage(path)
        with pytest.raises(kind, match=says):
            call()
        path.write_bytes(kept)

    def reopen():
        return fp.open_series(pay, ledger=ledger).read()

    def edit(path):
        said = json.loads(path.read_text())
        said["confidence"] = 0.5
        path.write_text(json.dumps(said))

    def forge(path):
        said = json.loads(path.read_text())
        del said["kind"], said["format"], said["digest"]
        record = SeriesRecord(**(said | {"confidence": "much"}))
        path.unlink()
        record.write(path.parent)

    other = fp.design(fp.Workload(DOMAIN, [fp.marginal("MONTH", std=1.0)]), periods="MONTH")
    answers = pay / "period-1" / "answers" / "part-00000.npy"
    refuse(pay / "series.json", edit, "edited", reopen)
    refuse(pay / "series.json", forge, "edited", reopen)
    refuse(pay / "series.json", lambda path: path.write_text("[]"), "edited", reopen)
    refuse(pay / "series.json", lambda path: path.unlink(), "not the folder of a series", reopen)
    refuse(pay / "plan.npz", other.save, "is not the plan of the series", reopen)
    refuse(pay / "plan.npz", lambda path: path.unlink(), "plan.npz is missing", reopen)
    refuse(answers, flip, "is damaged or was edited", reopen)
    refuse(
        answers,
        lambda path: path.unlink(),
        "a file in answers is missing",
        reopen,
        FitplugError,
    )
    table = pay / "period-1" / "months.parquet"
    refuse(table, lambda path: path.write_bytes((table.parent / "so_far.parquet").read_bytes()),
           "does not match the answers", series.verify)  # fmt: skip
    refuse(table, lambda path: path.write_bytes(b"PAR1"), "damaged", series.verify)
    refuse(table, lambda path: path.unlink(), "missing", series.verify)
    counts = hidden / "counts-00001"
    secret = series.key_file
    other_secret = json.dumps(
        json.loads(secret.read_text())
        | {"secret": "00" * 32, "digest": hash_values(series.record.digest, "00" * 32)}
    )
    second = hidden / "counts-00002"
    for path, damage, says in (
        (counts, flip, "missing or damaged"),
        (counts, lambda path: path.unlink(), "missing or damaged"),
        (secret, lambda path: path.write_text(other_secret), "missing or damaged"),
        (secret, lambda path: path.write_bytes(b"short"), "damaged"),
        (secret, flip, "damaged"),
        (secret, lambda path: path.unlink(), f"is missing from {secret}. Restore the file"),
    ):
        refuse(path, damage, says, lambda: series.release(2, TABLES))
        second.unlink(missing_ok=True)
    assert series.release(2, TABLES).drawn == 2
    # The counts of one period are not taken for those of another.
    second.write_bytes(counts.read_bytes())
    with pytest.raises(InputError, match="period 2 are missing or damaged"):
        series.release(3, TABLES)


def test_other_ledgers_keys_and_plans_are_refused(tmp_path, ledger, series):
    other = fp.Ledger(tmp_path / "other.db", rho=10.0)
    with pytest.raises(LedgerError, match="was not charged to the ledger"):
        fp.open_series(tmp_path / "pay", ledger=other)
    other.charge(0.1, what="something")
    with pytest.raises(LedgerError, match="was not charged to the ledger"):
        fp.open_series(tmp_path / "pay", ledger=other)
    with pytest.raises(KeyTaken, match="is for a series in"):
        fp.begin_series(PLAN, tmp_path / "elsewhere", ledger=ledger, key="pay")
    with pytest.raises(KeyTaken, match="but is not for this series"):
        fp.begin_series(PLAN, tmp_path / "pay", ledger=ledger, key="pay", confidence=0.9)
    with pytest.raises(InputError, match="already holds other files"):
        fp.begin_series(
            fp.design(WORKLOAD, periods="MONTH", rho=0.1), tmp_path / "pay", ledger=ledger, key="b"
        )
    with pytest.raises(InputError, match="cannot be released period by period"):
        fp.begin_series(fp.design(WORKLOAD), tmp_path / "b", ledger=ledger, key="b")
    covered = dataclasses.replace(PLAN, has_coverage=True)
    with pytest.raises(InputError, match="a series cannot have coverage"):
        fp.begin_series(covered, tmp_path / "b", ledger=ledger, key="b")
    with pytest.raises(InputError, match="with 'REGION' as the period"):
        fp.begin_series(PLAN, tmp_path / "b", ledger=ledger, key="b", periods="REGION")
    second = fp.begin_series(PLAN, tmp_path / "second", ledger=ledger, key="second")
    for place in ("pay", "second"):  # each folder has its own series, of the same plan
        with pytest.raises(InputError, match="already holds other files"):
            fp.begin_series(PLAN, tmp_path / place, ledger=ledger, key="third")
    with pytest.raises(InputError, match="holds a different series"):
        fp.begin_series(PLAN, tmp_path / "second", ledger=ledger, key="pay")
    (tmp_path / "planned").mkdir()
    fp.design(WORKLOAD, periods="MONTH", rho=0.1).save(tmp_path / "planned" / "plan.npz")
    with pytest.raises(InputError, match="already holds other files"):
        fp.begin_series(PLAN, tmp_path / "planned", ledger=ledger, key="b")
    assert second.read().drawn == 0
    with pytest.raises(InputError, match="Name a local folder"):
        fp.begin_series(PLAN, "s3://bucket/pay", ledger=ledger, key="b")
    with pytest.raises(FitplugError, match=r"name too long\. Nothing was charged"):
        fp.begin_series(PLAN, tmp_path / ("a" * 240), ledger=ledger, key="b")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(InputError, match="new or empty"):
        fp.begin_series(PLAN, tmp_path / "full", ledger=ledger, key="b")
    assert [entry.key for entry in ledger.entries()] == ["pay", "second"]


def test_tables_that_cannot_be_written_are_refused_before_the_charge(tmp_path, ledger):
    domain = fp.Domain({"MONTH": fp.Integers(1, 2), "std": ["1", "2"]})
    workload = fp.Workload(domain, [fp.marginal("MONTH", "std", std=1.0)])
    plan = fp.design(workload, periods="MONTH")
    with pytest.raises(FitplugError, match="name as a column of the results"):
        fp.begin_series(plan, tmp_path / "pay", ledger=ledger, key="b")
    assert ledger.entries() == ()


def test_periods_without_an_answer_of_their_own(tmp_path, ledger):
    """Nothing is known, and nothing is drawn, before the period that the queries count last."""
    domain = fp.Domain({"MONTH": fp.Integers(1, 3), "REGION": ["a", "b"]})
    halves = fp.queries({"MONTH": [[1, 1, 0]], "REGION": "identity"}, std=1.0, name="first two")
    plan = fp.design(fp.Workload(domain, [halves]), periods="MONTH")
    series = fp.begin_series(plan, tmp_path / "pay", ledger=ledger, key="a")
    x = np.array([[10, 20], [30, 40], [50, 60]])
    tables = fp.Tables(domain, {("MONTH", "REGION"): x})
    for month, known in ((1, False), (2, True), (3, True)):
        released = series.release(month, tables)
        assert released.known["first two"].all() == known
        series.verify()
    assert np.abs(released.estimates["first two"] - [40, 60]).max() < 9


@pytest.mark.parametrize("drawn", [0, 1])
def test_the_charge_of_a_series_pays_for_no_other_release(tmp_path, ledger, series, drawn):
    """Neither the key of the series nor that of a period lets a plan be drawn at once."""
    if drawn:
        series.release(1, TABLES)
    keys = [entry.key for entry in ledger.entries()]
    for key in keys:
        for covered_by in (None, "pay"):
            options = {"ledger": ledger, "key": key, "covered_by": covered_by}
            with pytest.raises(FitplugError):
                fp.release(PLAN, TABLES, **options)
            for place in ("pay", "another"):
                with pytest.raises(FitplugError):
                    fp.release(PLAN, TABLES, tmp_path / place, **options)
        with pytest.raises(FitplugError):
            release_source(PLAN, TABLES, tmp_path / "another", ledger=ledger, key=key)
    assert ledger.spent == pytest.approx(PLAN.rho)
    assert not (tmp_path / "another").exists()


def test_a_release_that_was_begun_is_no_series(tmp_path, ledger):
    fp.release(PLAN, TABLES, tmp_path / "pay", ledger=ledger, key="pay")
    with pytest.raises(KeyTaken, match="but is not for this series"):
        fp.begin_series(PLAN, tmp_path / "pay", ledger=ledger, key="pay")


def test_draws_of_a_ledger(tmp_path, ledger):
    charge = ledger.charge(0.5, what="a series", key="a")
    request = DrawRequest(charge, "a: 1", "period 1", "folder")
    first = ReleaseCharges(ledger).begin(request)
    assert (first.entry.rho, first.entry.covered_by, first.stage.state) == (0, charge.id, "charged")
    assert ReleaseCharges(ledger).begin(request) == first
    made = ReleaseCharges(ledger).record_draw(
        first.entry, "answers", counts="seal", folder="folder"
    )
    assert ReleaseCharges(ledger).record_draw(first.entry, "others") == made
    assert ReleaseCharges(ledger).begin(request).stage == made
    ledger.charge(0.1, what="another", key="a: 2")
    with pytest.raises(KeyTaken, match="for another release"):
        ReleaseCharges(ledger).begin(DrawRequest(charge, "a: 2", "period 2", "folder"))
    elsewhere = fp.Ledger(tmp_path / "other.db", rho=1.0)
    with pytest.raises(LedgerError, match="has no charge with the number 1"):
        ReleaseCharges(elsewhere).begin(request)
    with pytest.raises(LedgerError, match="has no charge with the number"):
        ReleaseCharges(ledger).begin(DrawRequest(first.entry, "b", "period 1", "folder"))
    assert ledger.spent == pytest.approx(0.6)
