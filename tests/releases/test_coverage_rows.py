"""Rows outside the domain in releases: unbiased, covered, drawn once, and kept in folders."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import fitplug as fp
from fitplug.errors import InputError, TablesError
from fitplug.releases import Release
from fitplug_opendp import folder_release, publication
from fitplug_opendp.measurement import make_fitness_for_use
from fitplug_opendp.noise_source import NoiseSource

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 4), "race": ["a", "b", "c"]})
PLAN = fp.design(
    fp.Workload(
        DOMAIN,
        [
            fp.queries({"sex": [[1, 0]], "age": "prefix"}, std=5.0, name="men"),
            fp.marginal("race", std=4.0),
        ],
    ),
    coverage=True,
)
N = 4000


def count(plan: fp.Plan = PLAN, seed: int = 1) -> fp.Tables:
    rng = np.random.default_rng(seed)
    columns = {
        "sex": rng.choice(["1", "2", "?"], N, p=[0.5, 0.45, 0.05]),
        "age": rng.integers(-1, 6, N),
        "race": rng.choice(["a", "b", "c", "C"], N, p=[0.5, 0.3, 0.1, 0.1]),
    }
    return fp.Tables.from_records(DOMAIN, columns, plan.tables)


TABLES = count()
OUTSIDE = TABLES.outside
assert OUTSIDE is not None
EXACT = np.array([*OUTSIDE.by_attribute, OUTSIDE.in_no_table])


def test_estimates_and_shares_cover() -> None:
    """Over 2,000 releases: the stds are those of the draws, and intervals cover."""
    coverage, rng = PLAN.coverage, np.random.default_rng(3)
    assert coverage is not None
    answers = coverage.answer_exactly(EXACT[:-1].tolist(), int(EXACT[-1]))
    values, hits, stds = [], [], np.zeros(4)
    for _ in range(2000):
        noisy = answers + np.rint(rng.normal(0, PLAN.noise_std, 4)).astype(np.int64)
        total = PLAN.strategy.answer_exactly(TABLES.marginal)
        total = total + np.rint(rng.normal(0, PLAN.noise_std, total.size)).astype(np.int64)
        rows = Release(PLAN, total, PLAN.rho, coverage_answers=noisy).coverage()
        values.append([row.rows.value for row in rows])
        stds = np.array([row.rows.std for row in rows])
        covers = []
        for row, number in zip(rows, EXACT, strict=True):
            assert row.share is not None
            low, high = row.share.interval(0.9)
            covers += [abs(row.rows.value - number) <= row.rows.moe(0.9)]
            covers += [low <= number / N <= high]
        hits.append(covers)
    errors = np.array(values) - EXACT
    assert errors.std(axis=0) == pytest.approx(stds, rel=0.06)
    assert np.abs(errors.mean(axis=0)) == pytest.approx(0, abs=4 * stds.max() / math.sqrt(2000))
    # The std of a share of 2,000 is 0.7%.
    assert np.mean(hits, axis=0) == pytest.approx(0.9, abs=0.03)


def test_the_std_of_a_share_is_that_of_its_interval() -> None:
    release = fp.release(PLAN, TABLES)
    for row in release.coverage():
        assert row.share is not None
        low, high = row.share.interval(0.95)
        assert row.share.std * 1.96 * 2 == pytest.approx(high - low, rel=1e-2)
        assert low < row.share.value < high


def test_without_a_group_that_adds_up_there_is_no_share() -> None:
    workload = fp.Workload(DOMAIN, [fp.queries({"sex": [[1, 0]], "age": "prefix"}, std=5.0)])
    plan = fp.design(workload, coverage=True)
    rows = fp.release(plan, count(plan)).coverage()
    assert [(row.attribute, row.share) for row in rows] == [
        ("sex", None),
        ("age", None),
        (None, None),
    ]


def test_without_coverage_there_are_no_rows() -> None:
    plain = fp.design(PLAN.workload)
    assert plain.rho == PLAN.rho
    release = fp.release(plain, TABLES)
    assert release.coverage() == []
    assert release.coverage_answers is None


def test_folders_keep_it(tmp_path: Path) -> None:
    release = fp.release(PLAN, TABLES)
    release.save(tmp_path / "saved")
    made = fp.release(PLAN, TABLES, tmp_path / "made")
    for one, folder in ((release, "saved"), (made, "made")):
        loaded = fp.Release.load(tmp_path / folder)
        assert loaded.coverage() == one.coverage() != []
        assert not loaded.coverage_answers.flags.writeable
        loaded.verify()


@pytest.mark.parametrize("old", ['"coverage": [', '"coverage"'])
def test_edited_answers_are_noticed(tmp_path: Path, old: str) -> None:
    fp.release(PLAN, TABLES, tmp_path / "made")
    manifest = tmp_path / "made" / "answers" / "manifest.json"
    text = manifest.read_text()
    assert old in text
    manifest.write_text(text.replace(old, '"coverage": [1, ' if "[" in old else '"covered"'))
    with pytest.raises(InputError):
        fp.Release.load(tmp_path / "made")


class KilledError(BaseException):
    """As a signal would end it: nothing of the product catches this."""


def test_a_run_that_was_killed_never_publishes_a_second_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = fp.Ledger(tmp_path / "budget.db", rho=10.0)
    drawn = []
    draw = NoiseSource.draw_coverage

    def watch(*args: object) -> object:
        drawn.append(draw(*args))  # type: ignore[arg-type]
        return drawn[-1]

    def kill(*_: object, **__: object) -> None:
        raise KilledError

    monkeypatch.setattr(NoiseSource, "draw_coverage", watch)
    keywords = {"ledger": ledger, "key": "one"}
    for owner, where in (
        (publication, "write_manifest"),
        (folder_release, "report_write_errors"),
        (folder_release, "complete_folder"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, where, kill)
            with pytest.raises(KilledError):
                fp.release(PLAN, TABLES, tmp_path / "made", **keywords)
    release = fp.release(PLAN, TABLES, tmp_path / "made", **keywords)
    # The first draw was lost before anybody could see it; the second one is published.
    assert len(drawn) == 2
    assert np.array_equal(release.coverage_answers, drawn[1])
    assert len(ledger.entries()) == 1
    assert ledger.spent == PLAN.rho


def test_counts_of_other_attributes_are_refused() -> None:
    columns = {"sex": ["1", "?"], "age": [0, 0], "race": ["a", "a"]}
    tables = fp.Tables.from_records(DOMAIN, columns, [("sex", "age", "race")])
    fp.release(PLAN, tables)
    fewer = fp.design(fp.Workload(DOMAIN, [fp.marginal("sex", std=1.0)]), coverage=True)
    with pytest.raises(TablesError, match="outside the domain of sex"):
        fp.release(fewer, tables)
    with pytest.raises(TablesError, match="outside the domain of sex, age, race"):
        fp.release(PLAN, fp.Tables(DOMAIN, {("sex", "age", "race"): np.ones((2, 5, 3), dtype=int)}))


def test_measurements_have_no_coverage() -> None:
    import opendp.prelude as dp

    from fitplug_opendp import tables_domain

    dp.enable_features("contrib", "honest-but-curious")
    with pytest.raises(ValueError, match="coverage"):
        make_fitness_for_use(tables_domain(PLAN), dp.symmetric_distance(), PLAN)
