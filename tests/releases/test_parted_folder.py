"""Release folders in parts: round trips, damage, swaps, races, and memory."""

from __future__ import annotations

import dataclasses
import json
import pickle
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import duckdb
import numpy as np
import polars as pl
import pyarrow.dataset as ds
import pytest
from hypothesis import given, strategies as st

import fitplug as fp
from fitplug.expressions import coefficients
from fitplug.files import LocalPlace, open_place
from fitplug.releases import (
    AnswersPart,
    PartedAnswers,
    Stride,
    TablePart,
    TableSlice,
    WrittenPart,
    answer_parts,
    complete_folder,
    cut_table,
    describe_place,
    find_answers_part,
    linear_combinations,
    number_outputs,
    publish_folder,
    read_digest,
    read_folder,
    write_answers_part,
    write_manifest,
    write_table_part,
)
from fitplug.releases.folder import write_folder
from tests.helpers import people
from tests.helpers.command_line import fitplug
from tests.helpers.plans import product_plan, symmetric_plan
from tests.helpers.tree_plans import design_tree, people_by_place

_NAMES = count()


@pytest.fixture(scope="module")
def release():
    return people.release(noise=1.0)


@pytest.fixture(params=["local", "memory"])
def location(request, release, tmp_path):
    place = f"{tmp_path}/out" if request.param == "local" else f"memory://parted/{next(_NAMES)}"
    write_folder(release, place, 0.95, most=7)
    return place


@pytest.fixture
def folder(release, tmp_path):
    write_folder(release, tmp_path / "out", 0.95, most=7)
    return tmp_path / "out"


class TestRoundTrip:
    def test_everything_is_there_again(self, release, location):
        again = fp.Release.load(location)
        assert again.plan.digest == release.plan.digest
        for name in ("rho", "noise_scale", "entry", "privacy_cost", "rows"):
            assert getattr(again, name) == getattr(release, name)
        np.testing.assert_array_equal(np.asarray(again.answers), release.answers)
        for name in release.plan.workload.names:
            np.testing.assert_array_equal(again.estimates[name], release.estimates[name])
            np.testing.assert_array_equal(again.variances[name], release.variances[name])
            assert again.to_arrow(name).equals(release.to_arrow(name))
        asked = "pyramid[sex = 1] - total"
        assert again.estimate(asked) == release.estimate(asked)
        again.verify()

    def test_some_answers(self, release, folder):
        answers = fp.Release.load(folder).answers
        for chosen in (
            slice(3, 12),
            slice(None),
            slice(5, 5),
            -1,
            [0, 16, 3],
            [[-1, 2]],
            slice(9, 2, -2),
        ):
            np.testing.assert_array_equal(answers[chosen], release.answers[chosen])
        for wrong in (17, [0, -18], 1.5):
            with pytest.raises(IndexError):
                answers[wrong]
        assert len(answers) == answers.size == release.answers.size
        assert pickle.loads(pickle.dumps(answers))[4] == release.answers[4]

    def test_tables_are_data_sets(self, release, folder):
        tables = {"pyramid": "pyramid", "regions": "regions", "total": "total"}
        for name, file in tables.items():
            whole = release.to_arrow(name)
            assert ds.dataset(folder / f"{file}.parquet").to_table().equals(whole)
            assert (
                pl.read_parquet(folder / f"{file}.parquet")
                .to_arrow()
                .equals(pl.from_arrow(whole).to_arrow())
            )
            found = duckdb.sql(f"SELECT * FROM '{folder}/{file}.parquet/*.parquet'")
            assert len(found) == whole.num_rows
            assert found.columns == whole.column_names

    def test_parts_of_a_table(self, release, folder):
        parts = list(fp.Release.load(folder).iter_tables("pyramid"))
        assert len(parts) > 1
        assert sum(len(part) for part in parts) == release.plan.workload["pyramid"].size
        assert parts[0].schema.metadata[b"fitplug.plan_digest"].decode() == release.plan.digest
        (whole,) = release.iter_tables("pyramid")
        assert whole.equals(release.to_arrow("pyramid"))

    def test_a_folder_in_parts_is_written_as_another_one(self, release, folder, tmp_path):
        fp.Release.load(folder).save(tmp_path / "whole")
        again = fp.Release.load(tmp_path / "whole")
        np.testing.assert_array_equal(again.answers, release.answers)
        assert again.tables is None

    def test_a_folder_that_is_taken_stays_as_it_is(self, release, location):
        with pytest.raises(fp.InputError, match="already exists"):
            release.save(location)
        fp.Release.load(location).verify()

    def test_other_answers_have_other_estimates(self, release, folder):
        other = people.release(noise=1.0, seed=1)
        changed = dataclasses.replace(fp.Release.load(folder), answers=other.answers)
        np.testing.assert_array_equal(changed.estimates["cities"], other.estimates["cities"])
        assert changed.estimate("total") == other.estimate("total")

    def test_estimates_on_the_command_line(self, release, location):
        ran = fitplug("estimate", location, "pyramid[sex = 1] + total", "--json")
        assert ran.code == 0
        expected = release.estimate("pyramid[sex = 1] + total")
        assert json.loads(ran.out)["estimates"][0]["std"] == expected.std

    def test_huge_answers(self, release, tmp_path):
        place = LocalPlace(tmp_path)
        for number, size in enumerate((7, 15, 31, 62)):
            noisy = np.array([-(2**size), 2**size - 1])
            written = write_answers_part(place, number, noisy)
            assert written.bytes == 128 + 2 * [1, 2, 4, 8][number]
            assert find_answers_part(place, number, 2) == written._replace(is_mine=False)
            with pytest.raises(fp.InputError, match=r"answers/part-0000\d\.npy is damaged"):
                find_answers_part(place, number, 3)
        assert find_answers_part(place, 9, 2) is None


class TestDamage:
    def files(self, folder):
        return sorted(path for path in folder.rglob("*") if path.is_file())

    def refused(self, folder, path):
        def read_all():
            fp.Release.load(folder).verify()

        with pytest.raises(fp.InputError) as caught:
            read_all()
        assert path.name in str(caught.value), (path, caught.value)
        assert "\n" not in str(caught.value)

    def test_every_file_that_is_missing_or_edited_is_named(self, folder):
        for path in self.files(folder):
            whole = path.read_bytes()
            path.unlink()
            self.refused(folder, path)
            for damaged in (whole[:-9], whole[:-9] + bytes(9), b""):
                path.write_bytes(damaged)
                if path.name != "release.json":
                    self.refused(folder, path)
            path.write_bytes(whole)
        fp.Release.load(folder).verify()

    def test_parts_that_are_swapped_are_named(self, folder):
        for first, second in (
            ("answers/part-00000.npy", "answers/part-00001.npy"),
            ("pyramid.parquet/part-00000.parquet", "pyramid.parquet/part-00001.parquet"),
        ):
            (folder / first).rename(folder / "other")
            (folder / second).rename(folder / first)
            (folder / "other").rename(folder / second)
            with pytest.raises(fp.InputError, match=r"part-0000[01]"):
                fp.Release.load(folder).verify()
            (folder / first).rename(folder / "other")
            (folder / second).rename(folder / first)
            (folder / "other").rename(folder / second)

    def test_parts_are_checked_when_they_are_read(self, folder):
        (folder / "answers" / "part-00001.npy").write_bytes(b"1")
        (folder / "pyramid.parquet" / "part-00001.parquet").write_bytes(b"1")
        release = fp.Release.load(folder)
        release.answers[:7]
        release.estimates["total"]
        with pytest.raises(fp.InputError, match=r"part-00001\.npy"):
            release.answers[:8]
        with pytest.raises(fp.InputError, match=r"part-00001\.parquet"):
            release.estimates["pyramid"]

    def test_tables_of_other_answers(self, release, folder, tmp_path):
        other = people.release(noise=1.0, seed=1)
        write_folder(other, tmp_path / "other", 0.95, most=7)
        for name in ("tables.json", "plan.npz"):
            whole = (folder / name).read_bytes()
            (folder / name).write_bytes((tmp_path / "other" / name).read_bytes())
            if name == "tables.json":
                self.refused(folder, folder / name)
            (folder / name).write_bytes(whole)

    def test_tables_that_do_not_follow_from_the_answers(self, release, tmp_path):
        """All digests agree, and the estimates are of another draw."""
        place = LocalPlace(tmp_path)
        forged = people.release(noise=1.0, seed=1)
        digest = write_answers(place, release)
        tables = write_tables(place, forged, digest)
        complete_folder(place, release, digest, tables, confidence=0.95)
        with pytest.raises(fp.InputError, match="does not match the answers"):
            fp.Release.load(tmp_path).verify()

    def test_an_incomplete_folder_is_no_release(self, release, folder, tmp_path):
        fields, digest = read_folder(folder)
        assert read_digest(folder) == digest == fields["tables"].answers_digest
        assert isinstance(fields["answers"], PartedAnswers)
        assert read_digest(tmp_path) is None
        (tmp_path / "file").write_text("no folder")
        with pytest.raises(fp.InputError, match=r"is a file\. Name the folder of a release"):
            fp.Release.load(tmp_path / "file")
        write_answers(LocalPlace(tmp_path), release)
        with pytest.raises(fp.InputError, match=r"release\.json is missing"):
            fp.Release.load(tmp_path)
        with pytest.raises(fp.InputError, match=r"release\.json is missing"):
            fp.Release.load("memory://nothing/here")


class Review:
    display = None

    def describe(self, release):
        return {"epsilon": 1.0}

    def add_files(self, folder, release):
        folder.replace("review.md", b"# Review")


def write_answers(place, release, most=9):
    """Write parts that interleave: every other answer."""
    size = release.answers.size
    numbers = [np.arange(start, size, 2) for start in (0, 1)]
    parts = []
    for number, chosen in enumerate(numbers):
        written = write_answers_part(place, number, release.answers[chosen])
        stride = (Stride(number, (len(chosen),), (2,)),)
        parts.append(AnswersPart(number, stride, written.bytes, written.digest))
    return write_manifest(place, release, parts)[1]


def write_tables(place, release, digest):
    return [
        write_table_part(
            place,
            release,
            chosen,
            chosen.take(release.estimates[group.name]),
            answers_digest=digest,
            confidence=0.95,
        )
        for group in release.plan.workload.groups
        for chosen in cut_table(group, 5)
    ]


class TestPieces:
    """The functions that workers call."""

    def test_the_first_draw_of_a_part_stays(self, release, tmp_path):
        place = LocalPlace(tmp_path)
        first = write_answers_part(place, 0, release.answers)
        assert isinstance(first, WrittenPart)
        second = write_answers_part(place, 0, release.answers + 1)
        assert first.is_mine
        assert not second.is_mine
        assert second.digest == first.digest
        with pytest.raises(fp.InputError, match=r"answers/part-00000\.npy is damaged"):
            write_answers_part(place, 0, release.answers[:3])

    def test_threads_read_parts_at_once(self, tmp_path, monkeypatch):
        """The tasks of a worker read one object, which keeps few of the parts."""
        monkeypatch.setattr(answer_parts, "_CACHE_BYTES", 2**10)
        place, parts = LocalPlace(tmp_path), []
        for k in range(10):
            written = write_answers_part(place, k, np.full(200, k))
            stride = Stride(200 * k, (200,), (1,))
            parts.append(AnswersPart(k, (stride,), written.bytes, written.digest))
        answers = pickle.loads(pickle.dumps(PartedAnswers(place, parts, 2000)))

        class Yielding(OrderedDict):
            def __setitem__(self, key, value):
                super().__setitem__(key, value)
                time.sleep(1e-5)  # another thread goes on here

        answers._cache = Yielding()

        def read(seed):
            for number in np.random.default_rng(seed).integers(0, 10, 100).tolist():
                assert (answers.read_part(number) == number).all()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(read, range(4)))

    def test_strides_of_several_axes(self, release, tmp_path):
        size = release.answers.size
        place = LocalPlace(tmp_path)
        box = Stride(1, (2, 3), (9, 2)), Stride(0, (1,), (1,))
        taken = np.concatenate([stride.list_numbers() for stride in box])
        np.testing.assert_array_equal(taken, [1, 3, 5, 10, 12, 14, 0])
        rest = tuple(Stride(k, (1,), (1,)) for k in range(size) if k not in taken)
        parts = []
        for number, strides in enumerate((box, rest)):
            chosen = np.concatenate([stride.list_numbers() for stride in strides])
            written = write_answers_part(place, number, release.answers[chosen])
            parts.append(AnswersPart(number, strides, written.bytes, written.digest))
        answers, _ = write_manifest(place, release, parts)
        np.testing.assert_array_equal(np.asarray(answers), release.answers)
        np.testing.assert_array_equal(answers[[5, 0, 2, 14]], release.answers[[5, 0, 2, 14]])
        np.testing.assert_array_equal(answers[2:11], release.answers[2:11])
        with pytest.raises(fp.InputError, match="each of"):
            write_manifest(LocalPlace(tmp_path / "other"), release, parts[:1])

    def test_a_staged_release_is_published_without_what_killed_writers_left(
        self, release, tmp_path
    ):
        staging, out = tmp_path / ".staging", tmp_path / "out"
        staging.mkdir(mode=0o700)
        place = LocalPlace(staging, mode=0o600)
        digest = write_answers(place, release)
        tables = write_tables(place, release, digest)
        (staging / "answers" / ".part-00000.npy.0123.partial").write_bytes(b"another draw")
        (staging / "answers" / "part-00007.npy").write_bytes(b"of another run")
        with pytest.raises(fp.InputError, match=r"release\.json is missing"):
            publish_folder(staging, out)
        complete_folder(
            place, release, digest, tables, confidence=0.95, files=Review()
        )  # fmt: skip
        publish_folder(staging, out)
        assert sorted(path.name for path in (out / "answers").iterdir()) == [
            "manifest.json", "part-00000.npy", "part-00001.npy",
        ]  # fmt: skip
        assert (out / "review.md").read_bytes() == b"# Review"
        record = json.loads((out / "release.json").read_text())
        assert (record["epsilon"], record["answers_digest"]) == (1.0, digest)
        assert (out / "answers" / "part-00000.npy").stat().st_mode & 0o044
        fp.Release.load(out).verify()

    def test_tables_are_written_with_the_same_bytes_again(self, release, tmp_path):
        place = LocalPlace(tmp_path)
        written = write_tables(place, release, "0" * 64)
        assert write_tables(place, release, "0" * 64) == written
        assert all(isinstance(part, TablePart) for part in written)

    def test_parts_along_another_axis(self, release, tmp_path):
        place = LocalPlace(tmp_path)
        digest = write_answers(place, release)
        group = release.plan.workload["pyramid"]
        tables = write_tables(place, release, digest)
        tables = [one for one in tables if one.slice.group != "pyramid"]
        for number, (start, stop) in enumerate([(0, 2), (2, 6)]):
            chosen = TableSlice("pyramid", number, 1, start, stop)
            estimates = release.estimates["pyramid"][:, start:stop]
            tables.append(
                write_table_part(
                    place, release, chosen, estimates, answers_digest=digest, confidence=0.95
                )
            )
        with pytest.raises(fp.InputError, match="pyramid"):
            complete_folder(place, release, digest, tables[:-1], confidence=0.95)
        complete_folder(place, release, digest, tables, confidence=0.95)
        again = fp.Release.load(tmp_path)
        again.verify()
        np.testing.assert_array_equal(again.estimates["pyramid"], release.estimates["pyramid"])
        asked = "pyramid[sex = 1, age <= 3]"
        assert again.estimate(asked).value == pytest.approx(release.estimate(asked).value)
        assert group.shape == again.estimates["pyramid"].shape

    def test_the_manifest_of_the_first_run_stays(self, release, tmp_path):
        place = LocalPlace(tmp_path)
        first = write_answers(place, release)
        assert write_answers(place, release) == first
        (tmp_path / "other").mkdir()
        other = open_place(tmp_path / "other")
        write_answers_part(other, 0, release.answers)
        (tmp_path / "other" / "answers" / "manifest.json").write_bytes(
            (tmp_path / "answers" / "manifest.json").read_bytes()
        )
        stride = (Stride(0, (release.answers.size,), (1,)),)
        with pytest.raises(fp.InputError, match="other answers"):
            write_manifest(other, release, [AnswersPart(0, stride, 1, "0" * 64)])


class TestPartsOfTheStrategy:
    """Folders that are cut as the strategy is, for every structure."""

    @pytest.mark.parametrize(
        "kind",
        ["matrix", "numbers", "product", pytest.param("tree", marks=pytest.mark.slow)],
    )
    def test_written_part_by_part_and_verified(self, kind, tmp_path, monkeypatch):
        plan = {
            "matrix": people.plan,
            "numbers": symmetric_plan,
            "product": product_plan,
            "tree": lambda: design_tree(people_by_place(ages=True), tolerance=0.05),
        }[kind]()
        noisy = np.random.default_rng(2).integers(-(10**6), 10**6, plan.strategy.size)
        release = fp.Release(plan=plan, answers=noisy, rho=plan.rho)
        parted = plan.strategy.cut(6)
        place = LocalPlace(tmp_path)
        parts = []
        for number in range(len(parted.sizes)):
            at = parted.place(number)
            written = write_answers_part(place, number, noisy[at])
            parts.append(AnswersPart(number, describe_place(at), written.bytes, written.digest))
        answers, digest = write_manifest(place, release, parts)
        np.testing.assert_array_equal(np.asarray(answers), noisy)
        tables = [
            write_table_part(
                place,
                release,
                chosen,
                release.estimates[output.group][output.index],
                answers_digest=digest,
                confidence=0.95,
            )
            for output, chosen in zip(parted.outputs, number_outputs(parted.outputs), strict=True)
        ]
        complete_folder(place, release, digest, tables, confidence=0.95)
        again = fp.Release.load(tmp_path)
        for name in plan.workload.names:
            np.testing.assert_array_equal(again.estimates[name], release.estimates[name])
        cut = type(plan.strategy).cut
        for most in (6, 11, 2**20):  # the folder need not be cut as the estimates are now
            monkeypatch.setattr(type(plan.strategy), "cut", lambda self, most=most: cut(self, most))
            again.verify()
            again.verify(sample=3, seed=most)

    def test_places_are_described_by_few_strides(self):
        rows = (100 * np.arange(50)[:, None] + np.arange(20, 30)).ravel()
        assert describe_place(rows) == (Stride(20, (50, 10), (100, 1)),)
        columns = (7 + 100 * np.arange(5)[None, :] + np.arange(20)[:, None]).ravel()
        assert describe_place(columns) == (Stride(7, (20, 5), (1, 100)),)
        cube = np.add.outer(rows, 10_000 * np.arange(3)).ravel()
        assert len(describe_place(cube)) == 1
        assert describe_place(slice(5, 9)) == (Stride(5, (4,), (1,)),)
        assert describe_place(np.zeros(0, dtype=np.int64)) == ()

    @given(st.lists(st.integers(0, 40), unique=True, min_size=1))
    def test_any_place_is_described(self, numbers):
        found = describe_place(np.array(numbers))
        assert np.concatenate([stride.list_numbers() for stride in found]).tolist() == numbers


class TestCombinationsOfLargeGroups:
    ASKED = (
        "pyramid[sex = 1, age <= 3]",
        "2 * cities - total + pyramid[sex = 2]",
        "cities[place = north]",
        "cities[income >= 10] / total",
        "pyramid[sex = 1] - pyramid[sex = 1]",
        "spans[2 <= age <= 4]",
    )

    @pytest.fixture
    def large(self, monkeypatch):
        """All groups count as large."""
        monkeypatch.setattr(linear_combinations, "_BATCH_COEFFICIENTS", 0)
        monkeypatch.setattr(coefficients, "_FEW", 0)

    def test_all_are_as_those_of_small_groups(self, release, folder, large, monkeypatch):
        again = fp.Release.load(folder)
        found = list(again.estimate_each(self.ASKED)), again.estimate_all(self.ASKED[:4])
        in_memory = list(release.estimate_each(self.ASKED))
        assert found[0] == in_memory
        monkeypatch.undo()
        for one, other in zip(found[0], release.estimate_each(self.ASKED), strict=True):
            assert one.value == pytest.approx(other.value, rel=1e-12, abs=1e-9)
            assert one.std == pytest.approx(other.std, rel=1e-9, abs=1e-9)
        together = release.estimate_all(self.ASKED[:4])
        np.testing.assert_allclose(found[1].values, together.values, rtol=1e-12)
        np.testing.assert_allclose(found[1].covariance, together.covariance, rtol=1e-8, atol=1e-9)

    def test_only_the_parts_that_are_asked_for_are_read(self, release, folder):
        for part in (folder / "answers").iterdir():
            if part.suffix == ".npy":
                part.unlink()
        (folder / "pyramid.parquet" / "part-00001.parquet").unlink()
        again = fp.Release.load(folder)
        asked = "pyramid[sex = 1, age <= 3]"
        assert again.estimate(asked) == release.estimate(asked)
        with pytest.raises(fp.InputError, match="part-00001"):
            again.estimate("pyramid[sex = 2, age <= 3]")

    def test_coefficients_are_as_before(self, release, folder):
        asked = {"pyramid": np.arange(12.0).reshape(2, 6), "total": 1.0}
        assert fp.Release.load(folder).estimate(asked) == release.estimate(asked)

    def test_coefficients_of_large_groups_are_not_mixed_with_expressions(self, release, large):
        asked = {"one": {"pyramid": np.ones((2, 6))}, "other": "total"}
        with pytest.raises(fp.WorkloadError, match="Use only expressions"):
            release.estimate_all(asked)
