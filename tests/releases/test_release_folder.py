"""Release folders: round trips, damage and edits."""

from __future__ import annotations

import dataclasses
import os
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
import fitplug_opendp as fpo
from fitplug.files import hash_content
from tests.helpers import people
from tests.helpers.forged_folders import find_table, forge_manifest, forge_table


def same(one: fp.Release, two: fp.Release) -> None:
    assert one.plan.digest == two.plan.digest
    np.testing.assert_array_equal(one.answers, two.answers)
    assert two.answers.dtype == np.int64
    for name in ("rho", "noise_scale", "entry", "privacy_cost"):
        assert getattr(one, name) == getattr(two, name)
    for name in one.plan.workload.names:
        np.testing.assert_array_equal(one.estimates[name], two.estimates[name])
        np.testing.assert_array_equal(one.variances[name], two.variances[name])


@pytest.fixture(scope="module")
def charged(tmp_path_factory):
    ledger = fp.Ledger(tmp_path_factory.mktemp("ledger") / "budget.db", rho=100.0)
    tables = people.tables(people.histogram())
    return fp.release(people.plan(3), tables, ledger=ledger, key="first")


@pytest.fixture
def folder(charged, tmp_path):
    charged.save(tmp_path / "out")
    return tmp_path / "out"


class TestRoundTrip:
    def test_everything_is_there_again(self, charged, folder):
        again = fp.Release.load(folder)
        same(charged, again)
        assert again.entry.rho == charged.entry.rho
        given = "pyramid[sex = 1] - total"
        assert again.estimate(given) == charged.estimate(given)
        assert sorted(p.name for p in folder.parent.iterdir()) == ["out"]
        assert {p.name for p in folder.iterdir()} == {
            "release.json", "answers", "plan.npz", "tables.json", "pyramid.parquet",
            "voting_age.parquet", "regions.parquet", "cities.parquet", "spans.parquet",
            "weighted.parquet", "total.parquet",
        }  # fmt: skip
        assert isinstance(again.answers, np.ndarray)

    @pytest.mark.parametrize("scale", [0.1, 1 / 3, 7.0])
    def test_other_noise_than_the_plans(self, tmp_path, scale):
        import opendp.prelude as dp

        plan = fp.design(fp.Workload.from_matrix(np.tri(3), std=2.0))
        space = dp.vector_domain(dp.atom_domain(T="i64"), size=3), dp.l1_distance(T="i64")
        dp.enable_features("contrib", "honest-but-curious")
        try:
            release = (space >> fpo.then_fitness_for_use(plan, scale))(np.array([5, 0, 9]))
        finally:
            dp.disable_features("contrib", "honest-but-curious")
        release.save(tmp_path / "out")
        same(release, fp.Release.load(tmp_path / "out"))

    def test_an_exact_charge_of_any_length(self, charged, tmp_path):
        entry = dataclasses.replace(charged.entry, rho=Fraction(10**9000 + 1, 10**9001 + 7))
        long = dataclasses.replace(charged, entry=entry)
        long.save(tmp_path / "out")
        assert fp.Release.load(tmp_path / "out").entry == entry

    def test_tables_can_be_read_alone(self, charged, folder):
        table = pq.read_table(folder / "cities.parquet")
        assert table.equals(charged.to_arrow("cities"))
        said = table.schema.metadata
        assert said[b"fitplug.plan_digest"].decode() == charged.plan.digest
        assert {b"fitplug.version.fitplug", b"fitplug.version.numpy", b"fitplug.units"} <= set(said)

    def test_a_folder_that_is_taken_stays_as_it_is(self, charged, folder):
        before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        with pytest.raises(fp.InputError, match="already exists"):
            charged.save(folder)
        assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before

    def test_an_empty_folder_is_used(self, charged, tmp_path):
        (tmp_path / "out").mkdir()
        charged.save(tmp_path / "out")
        same(charged, fp.Release.load(tmp_path / "out"))

    def test_answers_that_cannot_be_written_are_kept_elsewhere(
        self, charged, tmp_path, monkeypatch
    ):
        def fail(*_, **__):
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr(pa.parquet, "ParquetWriter", fail)
        with pytest.raises(OSError, match=r"No space.*noisy answers are in .*recover"):
            charged.save(tmp_path / "out")
        (kept,) = tmp_path.iterdir()
        assert kept.stat().st_mode & 0o077 == 0
        same(charged, fp.Release.recover(kept))

    def test_answers_are_kept_where_there_is_room(self, charged, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("this is no folder")
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        with pytest.raises(OSError, match=r"here.*recover"):
            charged.save(tmp_path / "file" / "out")
        (kept,) = (tmp_path / "here").iterdir()
        same(charged, fp.Release.recover(kept))


class TestDamage:
    def refused(self, folder, says):
        with pytest.raises(fp.InputError, match=says) as caught:
            fp.Release.load(folder)
        assert "\n" not in str(caught.value)

    def test_missing(self, folder):
        self.refused(folder / "none", "this release folder does not exist")
        self.refused(folder / "release.json", "is a file. Name the folder of a release")
        (folder / "answers").rename(folder / "other")
        self.refused(folder, r"manifest\.json is missing")
        (folder / "release.json").unlink()
        self.refused(folder, r"release\.json is missing")

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "name",
        [
            "plan.npz",
            "tables.json",
            "answers/manifest.json",
            "answers/part-00000.npy",
            "pyramid.parquet/part-00000.parquet",
        ],
    )
    def test_flipped_or_truncated_bytes_are_refused_or_change_nothing(self, charged, folder, name):
        path = folder / name
        whole, refused = path.read_bytes(), 0
        parts = [whole[: len(whole) * k // 5] for k in range(5)]
        for at in range(3, len(whole), len(whole) // 25):
            damaged = bytearray(whole)
            damaged[at] ^= 0x10
            parts.append(bytes(damaged))
        for part in parts:
            path.write_bytes(part)
            try:
                again = fp.Release.load(folder)
            except fp.InputError as error:
                refused += name in str(error)
            else:
                same(charged, again)
        assert refused > 10

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda h: h.update(plan_digest="0" * 64), "belong to different plans"),
            (lambda h: h.update(format=99), "format 99"),
            (lambda h: h.update(kind="plan"), "not 'plan' in format 1"),
            (lambda h: h.update(rho=(0.5).hex()), "do not match their description"),
            (lambda h: h.update(noise_scale=(2.0).hex()), "do not match their description"),
            (lambda h: h.update(noise_scale=(-1.0).hex()), "do not match their description"),
            (lambda h: h.update(noise_scale="nan"), "do not match their description"),
            (lambda h: h.update(rho="nan"), "do not match their description"),
            (lambda h: h["entry"].update(rho="1/0"), "do not match their description"),
            (lambda h: h["entry"].update(plan_digest="x"), "do not match their description"),
            (lambda h: h.pop("entry"), "do not match their description"),
            (lambda h: h["parts"].pop(), "do not match their description"),
            (
                lambda h: h["parts"][0].update(place=[[0, [3], [1]]]),
                "do not match their description",
            ),
            (
                lambda h: h["parts"][0].update(place=[[1, [17], [1]]]),
                "do not match their description",
            ),
            (lambda h: h.update(rows="adults"), "belong to different releases"),
        ],
    )
    def test_forged_answers(self, folder, change, says):
        forge_manifest(folder, change)
        self.refused(folder, says)

    @pytest.mark.parametrize("add", [1, 1.0, np.zeros(1, dtype=np.int64)])
    def test_edited_answers(self, folder, add):
        part = folder / "answers" / "part-00000.npy"
        values = np.load(part)
        edited = np.append(values, add) if np.ndim(add) else values + add
        np.save(part, edited)
        self.refused(folder, r"part-00000\.npy")

        def agree(header):
            header["parts"][0] |= {
                "digest": hash_content(part.read_bytes()),
                "bytes": part.stat().st_size,
            }

        forge_manifest(folder, agree)
        self.refused(folder, "belong to different releases")

    def test_parts_of_another_release(self, charged, folder, tmp_path):
        people.release(noise=1.0).save(tmp_path / "other")
        for name in ("total.parquet", "answers"):
            mine, other = folder / name, tmp_path / "other" / name
            mine.rename(tmp_path / "mine")
            self.refused(folder, f"{name}.*is missing")
            other.rename(mine)
            self.refused(folder, f"{name}.*Get the folder again")
            mine.rename(other)
            (tmp_path / "mine").rename(mine)
        fp.Release.load(folder)

    @pytest.mark.parametrize("column", ["estimate", "std", "lower", "sex"])
    def test_an_edited_table(self, folder, column):
        table = pq.read_table(find_table(folder, "pyramid"))
        at = table.column_names.index(column)
        values = table[column].to_pylist()
        values[3] = "2" if column == "sex" else values[3] + 0.01
        edited = table.set_column(at, column, pa.array(values))
        self.rewrite(folder, edited)

    def test_a_table_in_another_order_or_with_other_metadata(self, folder):
        table = pq.read_table(find_table(folder, "pyramid"))
        self.rewrite(folder, table.select(table.column_names[::-1]))
        said = {**table.schema.metadata, b"fitplug.rho": b"0.001"}
        self.rewrite(folder, table.replace_schema_metadata(said))
        self.rewrite(folder, table.replace_schema_metadata(None))

    def rewrite(self, folder, table):
        """An edited table is refused, also if all digests are made to agree with it."""
        pq.write_table(table, find_table(folder, "pyramid"))
        self.refused(folder, r"pyramid\.parquet.*Get the folder again")
        forge_table(folder, "pyramid", table)
        self.refused(folder, r"pyramid\.parquet.*does not match the answers")
