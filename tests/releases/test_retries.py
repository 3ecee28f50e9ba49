"""Retries of releases that were interrupted: of the same costs, rows and place, or refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
from fitplug.ledger import ReleaseCharges
from fitplug_opendp import folder_release, publication
from fitplug_opendp.count_checks import ALL_ROWS, CountedRows
from fitplug_opendp.executor import ThisProcess, WholeTables
from fitplug_opendp.folder_release import FolderPublication
from fitplug_opendp.output import Output
from fitplug_opendp.release_request import ReleaseRequest
from fitplug_opendp.releases import release_tables
from fitplug_opendp.staging import Staging
from tests.helpers.command_line import fitplug

DOMAIN = fp.Domain({"sex": ["1", "2"], "age": fp.Integers(0, 4)})
X = np.arange(10, dtype=np.int64).reshape(2, 5) * 7
TABLES = fp.Tables(DOMAIN, {("sex", "age"): X})
MEN = fp.design(fp.Workload(DOMAIN, [fp.queries({"sex": [[1, 0]], "age": "prefix"}, std=5.0)]))
WOMEN = fp.design(fp.Workload(DOMAIN, [fp.queries({"sex": [[0, 1]], "age": "prefix"}, std=5.0)]))


class KilledError(BaseException):
    """As a signal would end it: nothing of the product catches this."""


def killed(*_: object, **__: object) -> None:
    raise KilledError


@pytest.fixture
def ledger(tmp_path: Path) -> fp.Ledger:
    return fp.Ledger(tmp_path / "budget.db", rho=10.0)


def publish_until(monkeypatch, where: str, *args, **keywords) -> None:
    """Publish, and be killed at this function that a publication calls."""
    with monkeypatch.context() as patch:
        owner = publication if where == "write_manifest" else folder_release
        patch.setattr(owner, where, killed)
        with pytest.raises(KilledError):
            fp.release(*args, **keywords)


def prepare(
    folder: Path, ledger: fp.Ledger, key: str, rows: CountedRows = ALL_ROWS
) -> FolderPublication[WholeTables]:
    request = ReleaseRequest(MEN, rows, ledger=ledger, key=key)
    return FolderPublication.prepare(request, Output.open(folder), ThisProcess())


def limited(records: int = 1) -> fp.Tables:
    return fp.Tables(DOMAIN, {("sex", "age"): X}, unit=fp.AddRemove(records), person="ID")


def test_a_free_release_is_retried_for_as_many_records(tmp_path, ledger, monkeypatch):
    fp.release(MEN, TABLES, ledger=ledger, key="men")
    keywords = {"ledger": ledger, "covered_by": "men", "key": "women"}
    publish_until(monkeypatch, "report_write_errors", WOMEN, TABLES, tmp_path / "w", **keywords)
    with monkeypatch.context() as patch:
        patch.setattr(ReleaseCharges, "record_draw", killed)
        with pytest.raises(KilledError):
            fp.release(WOMEN, TABLES, tmp_path / "w", **keywords)
    for more in (2, 1000):
        other = fp.design(WOMEN.workload, unit=fp.AddRemove(more))
        with pytest.raises(fp.KeyTaken, match="it is for another plan"):
            fp.release(other, TABLES, tmp_path / "w", **keywords)
    made = fp.release(WOMEN, TABLES, tmp_path / "w", **keywords)
    assert made.entry is not None
    assert made.entry.rho == 0


def test_free_releases_need_the_same_kind_of_counts(tmp_path, ledger, monkeypatch):
    """Neither all rows within those of persons, nor the other way, nor before these are drawn."""
    count = limited()
    fp.release(MEN, count, ledger=ledger, key="kept")
    with pytest.raises(fp.LedgerError, match="has another file of counts"):
        fp.release(WOMEN, TABLES, ledger=ledger, covered_by="kept")
    fp.release(MEN, TABLES, ledger=ledger, key="all")
    with pytest.raises(fp.LedgerError, match="has another file of counts"):
        fp.release(WOMEN, count, ledger=ledger, covered_by="all")
    with monkeypatch.context() as patch:
        patch.setattr(ReleaseCharges, "record_draw", killed)
        with pytest.raises(KilledError):
            fp.release(MEN, count, tmp_path / "m", ledger=ledger, key="begun")
    with pytest.raises(fp.LedgerError, match=r"not drawn yet. Finish that release first"):
        fp.release(WOMEN, TABLES, ledger=ledger, covered_by="begun")
    # Finished from its staged answers, it still knows which counts it is of.
    fp.release(MEN, count, tmp_path / "m", ledger=ledger, key="begun")
    assert ledger.stages()[3].counts == count.seal
    fp.release(WOMEN, count, tmp_path / "w", ledger=ledger, covered_by="begun")


def test_a_retry_of_other_rows_is_refused(tmp_path, ledger, monkeypatch):
    columns = {"sex": ["1", "2"] * 20, "age": [0, 1, 2, 3] * 10, "st": ["01", "02"] * 20}
    one, two = (
        fp.Tables.from_records(DOMAIN, columns, MEN.tables, where={"st": state})
        for state in ("01", "02")
    )
    publish_until(monkeypatch, "complete_folder", MEN, one, tmp_path / "m", ledger=ledger, key="k")
    for _ in range(2):  # staged, then published
        with pytest.raises(
            fp.KeyTaken, match=r"the rows of charge .*01.* differ from the given rows .*02"
        ):
            fp.release(MEN, two, tmp_path / "m", ledger=ledger, key="k")
        with pytest.raises(fp.KeyTaken, match="limited per person"):
            fp.release(MEN, limited(), tmp_path / "m", ledger=ledger, key="k")
        fp.release(MEN, one, tmp_path / "m", ledger=ledger, key="k")
    assert len(ledger.entries()) == 1


def test_another_folder_is_another_release_unless_a_key_tells(tmp_path, ledger, monkeypatch):
    publish_until(monkeypatch, "complete_folder", MEN, TABLES, tmp_path / "a", ledger=ledger)
    with pytest.raises(fp.AlreadyReleased, match=r"unfinished release .* for .*a. Finish"):
        fp.release(MEN, TABLES, tmp_path / "b", ledger=ledger)
    fp.release(MEN, TABLES, tmp_path / "a", ledger=ledger)
    publish_until(
        monkeypatch, "complete_folder", WOMEN, TABLES, tmp_path / "c", ledger=ledger, key="k"
    )
    publish_until(
        monkeypatch, "complete_folder", WOMEN, TABLES, tmp_path / "d", ledger=ledger, key="k"
    )
    fp.release(WOMEN, TABLES, tmp_path / "e", ledger=ledger, key="k")
    assert len(ledger.entries()) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "budget.db", "e"]


def test_killed_between_the_folder_and_the_ledger_it_is_found(tmp_path, ledger, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(ReleaseCharges, "record_publication", killed)
        with pytest.raises(KilledError):
            fp.release(MEN, TABLES, tmp_path / "m", ledger=ledger, key="k")
    (staged,) = tmp_path.glob(".m.*.parts")
    shutil.rmtree(staged)
    made = fp.release(MEN, TABLES, tmp_path / "m", ledger=ledger, key="k")
    assert ledger.stages()[1].state == "published"
    assert ledger.spent == made.rho


def test_two_ledgers_at_one_folder_keep_apart(tmp_path, ledger, monkeypatch):
    other = fp.Ledger(tmp_path / "other.db", rho=10.0)
    publish_until(
        monkeypatch, "complete_folder", MEN, TABLES, tmp_path / "m", ledger=ledger, key="k"
    )
    with pytest.raises(fp.LedgerError, match=r"number 1, but the ledger .*other.db does not"):
        fp.release(MEN, TABLES, tmp_path / "m", ledger=other, key="k")
    fp.release(MEN, TABLES, tmp_path / "m", ledger=ledger, key="k")
    with pytest.raises(fp.LedgerError, match=r"number 1, but the ledger .*other.db does not"):
        fp.release(MEN, TABLES, tmp_path / "m", ledger=other, key="k", replace=True)
    assert other.entries() == ()
    fp.release(MEN, TABLES, tmp_path / "m", ledger=ledger, key="l", replace=True)
    assert len(list(tmp_path.glob("m-*"))) == 1


def test_places_that_no_folder_can_be_moved_to(tmp_path, ledger):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nothing")
    for name in ("link", "dangling"):
        with pytest.raises(fp.InputError, match="is a link"):
            fp.release(MEN, TABLES, tmp_path / name, ledger=ledger)
    with pytest.raises(fp.InputError, match="is a mount point"):
        fp.release(MEN, TABLES, "/proc", ledger=ledger)
    assert ledger.entries() == ()


@pytest.mark.slow
def test_a_long_name_is_found_before_the_charge(tmp_path, ledger):
    told = []
    for length in range(150, 256, 3):
        try:
            fp.release(MEN, TABLES, tmp_path / ("n" * length), ledger=ledger, key=f"k{length}")
        except fp.FitplugError as error:
            told.append(str(error))
    assert told
    assert all("Nothing was charged" in error for error in told)
    assert all(stage.state == "published" for stage in ledger.stages().values())


def test_a_folder_that_is_taken_while_counting_costs_nothing(tmp_path, ledger):
    asked = prepare(tmp_path / "m", ledger, "late")
    fp.release(MEN, TABLES, tmp_path / "m", ledger=ledger, key="first")
    with pytest.raises(fp.InputError, match="already holds a release"):
        asked.publish(lambda: WholeTables(MEN, TABLES))
    assert len(ledger.entries()) == 1


def test_who_comes_second_finds_the_release(tmp_path, ledger):
    """However far the first had come when the second looked."""
    asked = [prepare(tmp_path / "m", ledger, "k") for _ in range(2)]
    third = prepare(tmp_path / "m", ledger, "k", CountedRows.from_tables(limited()))
    first, second = (one.publish(lambda: WholeTables(MEN, TABLES)).release for one in asked)
    np.testing.assert_array_equal(first.answers, second.answers)
    with pytest.raises(fp.KeyTaken, match="limited per person"):
        third.publish(lambda: WholeTables(MEN, limited()))
    assert len(ledger.entries()) == 1


def test_a_store_takes_releases_in_parts_only(ledger):
    """What is in a store cannot be moved, so this process would not draw all anew there."""
    with pytest.raises(fp.InputError, match="a release at a URL must be in parts"):
        release_tables(MEN, TABLES, "memory://retries", ledger=ledger)
    assert ledger.entries() == ()


def test_what_a_killed_run_staged_is_taken_if_its_manifest_is_there(tmp_path, ledger, monkeypatch):
    """Parts without a manifest were seen by nobody, and are drawn anew."""
    staged = []
    for step, name in (("write_manifest", "a"), ("record_draw", "b")):
        with monkeypatch.context() as patch:
            patch.setattr(publication if step == "write_manifest" else ReleaseCharges, step, killed)
            patch.setattr(Staging, "discard", lambda _: None)
            with pytest.raises(KilledError):
                fp.release(MEN, TABLES, tmp_path / name, ledger=ledger, key=name)
        (part,) = tmp_path.glob(f".{name}.*.parts/answers/part-00000.npy")
        staged.append(part.read_bytes())
        fp.release(MEN, TABLES, tmp_path / name, ledger=ledger, key=name)
        taken = (tmp_path / name / "answers" / part.name).read_bytes() == staged[-1]
        assert taken == (step == "record_draw")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "budget.db"]


@pytest.mark.parametrize("is_taken", [False, True])
def test_answers_that_another_run_looks_at_are_not_removed(tmp_path, ledger, monkeypatch, is_taken):
    """A run that has written its manifest is passed by two others, and is interrupted or not."""
    counts = WholeTables(MEN, TABLES)
    mine = prepare(tmp_path / "m", ledger, "k")._charge(counts)
    first = prepare(tmp_path / "m", ledger, "k")._draw(counts)
    real = publication.write_manifest

    def write(*arguments) -> None:
        real(*arguments)
        third = replace(first, run="third", staged=mine._stage().read(MEN))
        for other in [third] if is_taken else [first, third]:
            other._enter_answers(other.staged)
        if is_taken:
            raise KilledError

    monkeypatch.setattr(publication, "write_manifest", write)
    if is_taken:
        with pytest.raises(KilledError):
            mine._draw(counts)
    else:
        mine._draw(counts).finish()
    made = prepare(tmp_path / "m", ledger, "k").finish()
    (stage,) = ledger.stages().values()
    assert stage.answers == made.output.read_digest()
    assert (stage.answers == first.staged.digest) == (not is_taken)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["budget.db", "m"]


def test_keys_are_text_before_anything_is_counted(tmp_path, ledger):
    for key in ("", "\ud800"):
        with pytest.raises(fp.InputError, match="must be valid text and not empty"):
            prepare(tmp_path / "m", ledger, key)
    with pytest.raises(fp.BudgetError, match="Add ledger="):
        fp.release(MEN, TABLES, tmp_path / "m", key="k")


SPEC = """
ledger = false

[data]
path = "people.parquet"
[privacy]
unit = { records = 1 }
[domain]
SEX = ["1", "2"]
AGE = { integers = [0, 40] }
EVENT = ["er", "in"]
[[query]]
name = "ages"
SEX = "identity"
AGE = "prefix"
std = 5.0
"""
CHARGED = SPEC.replace("ledger = false", "") + '[ledger]\npath = "budget.db"\nrho = 10.0\n'


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    people = {
        "SEX": rng.choice(["1", "2"], 500),
        "AGE": rng.integers(0, 41, 500),
        "EVENT": rng.choice(["er", "in", "out"], 500),
    }
    pq.write_table(pa.table(people), tmp_path / "people.parquet")
    path = tmp_path / "spec.toml"
    path.write_text(CHARGED, encoding="utf-8")
    return path


def test_a_ledger_that_is_named_is_charged(spec, monkeypatch):
    """Also where a run without one left answers staged."""
    spec.write_text(SPEC, encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(folder_release, "complete_folder", killed)
        patch.setattr(Staging, "discard", killed)
        with pytest.raises(KilledError):
            fitplug("run", spec)
    assert list(spec.parent.glob(".release.*.parts"))
    spec.write_text(CHARGED, encoding="utf-8")
    ran = fitplug("run", spec, "--key", "first")
    assert (ran.code, ran.err) == (0, "")
    assert len(fp.Ledger(spec.parent / "budget.db").entries()) == 1


@pytest.mark.long
def test_another_processor_finishes_the_same_plan(spec):
    """Its designs differ in their last digits; the plan that was begun is kept and used."""
    code = (
        "import sys; from fitplug_opendp import folder_release\n"
        "def killed(*_, **__): raise SystemExit(9)\n"
        "folder_release.complete_folder = killed\n"
        "sys.argv = ['fitplug', 'run', sys.argv[1], '--key', 'k', '--quiet']\n"
        "from fitplug_cli.main import main; main()\n"
    )
    source = Path(fp.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": f"{source}:{source / 'adapters'}"}
    old = {"OPENBLAS_CORETYPE": "Prescott"}
    ran = subprocess.run(
        [sys.executable, "-c", code, str(spec)], env=environment | old, check=False
    )
    assert ran.returncode == 9
    command = [sys.executable, "-m", "fitplug_cli.main", "run", str(spec), "--key", "k"]
    for _ in range(2):  # finished, then found
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
    ledger = fp.Ledger(spec.parent / "budget.db")
    assert [stage.state for stage in ledger.stages().values()] == ["published"]
    assert "already done" in ran.stdout


def test_counts_for_other_queries_say_what_they_left_out(spec):
    """Rows outside the domain of an attribute that this release does not use."""
    events = spec.with_name("events.toml")
    events.write_text(SPEC.replace("SEX =", "EVENT =", 1).replace(
        'EVENT = ["1", "2"]', 'SEX = ["1", "2"]').replace(
        'SEX = "identity"', 'SEX = "identity"\nEVENT = "identity"'), encoding="utf-8")  # fmt: skip
    counts = spec.parent / "c.npz"
    assert fitplug("count", events, "--output", counts).code == 0
    ran = fitplug("release", spec, "--counts", counts)
    assert ran.code == 0
    told = "rows with a value outside the domain of EVENT are not counted either"
    folder = spec.parent / "release"
    assert told in json.loads((folder / "release.json").read_text())["population"]
    assert told in fp.Release.load(folder).population
    assert told in " ".join((folder / "review.yaml").read_text().split())
    shutil.rmtree(folder)
    assert fitplug("run", spec, "--again").code == 0
    assert told not in json.loads((folder / "release.json").read_text())["population"]
