"""Releases in parts: the mechanism's distribution, charged once, drawn once, from any state."""

from __future__ import annotations

import errno
import functools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster
from scipy.stats import chi2

import fitplug as fp
from fitplug.domain import get_shape
from fitplug.errors import BudgetError, FitplugError, InputError, LedgerError
from fitplug.families.base import pieces
from fitplug.families.blocks.strategy.parts import PartedBlocks
from fitplug.files import LocalPlace, open_place
from fitplug_dask.releases import counts, executor, release_source
from fitplug_dask.releases.executor import PartedExecutor
from fitplug_opendp import folder_release, gaussian, publication
from tests.helpers.audited_releases import (
    CELLS,
    DOMAIN,
    PART,
    PLAN,
    TABLES,
    Audit,
    Watch,
    check_drawn_once,
    check_left_over,
    use_small_parts,
)
from tests.helpers.plans import product_plan, symmetric_plan
from tests.helpers.tree_plans import design_tree, people_by_place

# Workers do not see this module, so its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

COUNTED = {("a", "b"): CELLS}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    use_small_parts(monkeypatch)


def list_states(ledger):
    return [stage.state for stage in ledger.stages().values()]


def count_zeros(plan):
    domain = plan.domain
    return fp.Tables(domain, {t: np.zeros(get_shape(domain, t), np.int64) for t in plan.tables})


class TestTheMechanism:
    @pytest.mark.parametrize(
        "make",
        [
            lambda: PLAN,
            pytest.param(lambda: design_tree(people_by_place(ages=True)), marks=pytest.mark.slow),
            product_plan,
            symmetric_plan,
        ],
        ids=["margins", "tree", "product", "symmetric"],
    )
    def test_answers_and_tables_are_those_of_the_plan(self, make, tmp_path, audit, monkeypatch):
        use_small_parts(monkeypatch, 20)
        plan = make()
        tables = count_zeros(plan)
        release_source(plan, tables, tmp_path / "out")
        released, draws = check_drawn_once(tmp_path / "out", audit, None, plan, tables)
        assert draws == len(plan.strategy.cut(20).sizes) > 1
        wanted = plan.strategy.make_estimates(np.asarray(released.answers))
        for name in plan.workload.names:
            scale = np.sqrt(plan.variances[name].max())
            np.testing.assert_allclose(released.estimates[name], wanted[name], atol=1e-9 * scale)

    def test_noise_has_the_size_that_is_charged_for(self, tmp_path, audit):
        """2,000 answers of two releases: 10 % more or less noise is noticed."""
        errors = []
        for name in ("one", "two"):
            released = release_source(PLAN, TABLES, tmp_path / name)
            errors.append(
                np.asarray(released.answers) - PLAN.strategy.answer_exactly(TABLES.marginal)
            )
        assert not np.array_equal(*errors)
        scaled = np.concatenate(errors) / PLAN.noise_std
        assert 1e-6 < chi2.cdf(float(scaled @ scaled), scaled.size) < 1 - 1e-6


class TestTheCharge:
    def test_once_and_then_it_is_found(self, tmp_path, ledger, audit):
        output = tmp_path / "new" / "out"  # in a folder that is not there yet
        first = release_source(PLAN, TABLES, output, ledger=ledger, key="2026")
        again = release_source(PLAN, TABLES, output, ledger=ledger, key="2026")
        assert ledger.spent == first.rho == PLAN.rho
        assert list_states(ledger) == ["published"]
        np.testing.assert_array_equal(np.asarray(first.answers), np.asarray(again.answers))
        _, draws = check_drawn_once(output, audit)
        assert draws == len(first.answers.parts)
        check_left_over(tmp_path, names=["budget.db", "new"])
        check_left_over(output.parent, names=["out"])
        with pytest.raises(fp.AlreadyReleased):
            release_source(PLAN, TABLES, tmp_path / "other", ledger=ledger)

    def test_another_draw_of_a_source_moves_the_first_aside(self, tmp_path, ledger):
        people, output = tmp_path / "people.parquet", tmp_path / "out"
        pq.write_table(pa.table({"a": [1, 2, 3], "b": [1, 1, 2]}), people)
        first = np.asarray(fp.release(PLAN, people, output, ledger=ledger, key="1").answers)
        with pytest.raises(InputError, match="--replace"):
            fp.release(PLAN, people, output, ledger=ledger, key="2")
        fp.release(PLAN, people, output, ledger=ledger, key="2", replace=True).verify()
        (earlier,) = tmp_path.glob("out-*")
        np.testing.assert_array_equal(np.asarray(fp.Release.load(earlier).answers), first)
        assert list_states(ledger) == ["published", "published"]

    def test_a_refusal_draws_nothing_and_leaves_nothing(self, tmp_path, audit):
        ledger = fp.Ledger(tmp_path / "budget.db", rho=PLAN.rho / 2)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "thing").touch()
        before = sorted(p.name for p in tmp_path.iterdir())
        for output, raised, keywords in (
            ("out", fp.OverBudget, {"ledger": ledger}),
            ("full", InputError, {}),
            ("out", BudgetError, {"key": "a"}),
        ):
            with pytest.raises(raised):
                release_source(PLAN, TABLES, tmp_path / output, **keywords)
        assert not audit.read()
        assert not ledger.entries()
        check_left_over(tmp_path, names=before)

    @pytest.mark.parametrize("what", ["a result column", "a unit", "a name"])
    def test_what_could_never_be_finished_is_refused_before_the_charge(
        self, tmp_path, ledger, monkeypatch, what
    ):
        plan, tables, output = PLAN, TABLES, tmp_path / "out"
        raised, message = fp.WorkloadError, "the limit is 1\\."
        if what == "a result column":
            domain = fp.Domain({"std": ["1", "2"]})
            plan = fp.design(fp.Workload(domain, [fp.marginal("std", std=9.0)]))
            tables, message = count_zeros(plan), "'std' has the same name as a column"
        elif what == "a unit":
            use_small_parts(monkeypatch, 1)
            monkeypatch.setattr(pieces, "LARGEST_UNIT", 1)
        else:
            output = tmp_path / ("o" * 230)
            raised, message = FitplugError, "name too long. Nothing was charged"
        with pytest.raises(raised, match=message):
            release_source(plan, tables, output, ledger=ledger)
        assert not ledger.entries()
        check_left_over(tmp_path, names=["budget.db"])

    def test_a_sampler_that_is_wrong_charges_nothing(self, tmp_path, ledger, audit, monkeypatch):
        class Halved:
            def __init__(self, _dp, size, std):
                self.size, self.std = size, std

            def map(self, distance):
                return (distance / self.std) ** 2 / 2 * (1 + 1e-15)

            def __call__(self, answers):
                noise = np.random.default_rng().normal(0, self.std / 2, self.size)
                return answers + np.rint(noise).astype(np.int64)

        monkeypatch.setattr(gaussian, "make_gaussian", Halved)
        with pytest.raises(fp.SamplerError):
            release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger)
        assert not audit.read()
        assert not ledger.entries()
        check_left_over(tmp_path, names=["budget.db"])

    def test_free_within_a_release_of_the_same_limited_counts(self, tmp_path, ledger):
        """The seal that tells whether counts are the same is that of the caller's tables."""
        limited = fp.Tables(DOMAIN, COUNTED, unit=fp.AddRemove(2), person="id")
        young, old = (fp.ranges([bounds]) for bounds in ((1, 20), (21, 40)))
        plan, other = (
            fp.design(fp.Workload(DOMAIN, [fp.queries({"a": a}, std=std)]), unit=fp.AddRemove(2))
            for a, std in ((young, 10.0), (old, 20.0))
        )
        first = fp.release(plan, limited, ledger=ledger, key="a")
        keywords = {"ledger": ledger, "covered_by": "a"}
        recounted = fp.Tables(DOMAIN, COUNTED, unit=fp.AddRemove(2), person="id")
        with pytest.raises(LedgerError, match="has another file of counts"):
            release_source(other, recounted, tmp_path / "out", key="b", **keywords)
        free = release_source(other, limited, tmp_path / "out", key="b", **keywords)
        assert free.seal == first.seal == limited.seal
        assert first.rho <= ledger.spent <= first.rho * (1 + 1e-14)

    def test_of_a_limit_per_person(self, tmp_path, ledger):
        limited = fp.Tables(DOMAIN, COUNTED, unit=fp.AddRemove(3), person="id")
        with pytest.raises(fp.TablesError, match="were counted for the unit"):
            release_source(PLAN, limited, tmp_path / "out", ledger=ledger)
        assert not ledger.entries()
        plan = fp.design(PLAN.workload, unit=fp.AddRemove(3))
        released = release_source(plan, limited, tmp_path / "out", ledger=ledger)
        assert released.limited == "enforced"
        assert float(plan.rho_exact) <= released.rho <= ledger.spent <= released.rho * (1 + 1e-14)


def fail_after(parts, error):
    """Wrap the writing of parts, which fails with an error once there are so many."""
    real, left, lock = executor.write_answers_part, list(range(parts)), threading.Lock()

    def write(folder, number, noisy):
        with lock:
            if not left:
                raise error
            left.pop()
        return real(folder, number, noisy)

    return write


FULL = OSError(errno.ENOSPC, "No space left on device")


class TestResuming:
    def interrupt(self, monkeypatch, tmp_path, ledger, parts=4, tables=TABLES, **keywords):
        with monkeypatch.context() as patch:
            patch.setattr(executor, "write_answers_part", fail_after(parts, FULL))
            with pytest.raises(
                FitplugError, match=r"no space left on device.*nothing more will be charged"
            ):
                release_source(PLAN, tables, tmp_path / "out", ledger=ledger, **keywords)

    def test_a_full_disk_keeps_what_is_durable(self, tmp_path, ledger, audit, keys, monkeypatch):
        with Watch(tmp_path) as watch:
            self.interrupt(monkeypatch, tmp_path, ledger)
            assert list_states(ledger) == ["charged"]
            (staged,) = tmp_path.glob(".out.*.parts")
            assert staged.stat().st_mode & 0o777 == 0o700
            durable = {p.name: p.read_bytes() for p in staged.glob("answers/part-*")}
            assert len(durable) == 4
            # What a client leaves that is killed while it writes, or while it publishes.
            (key_file,) = keys.iterdir()
            os.link(key_file, keys / f".{key_file.name}.12ab.partial")
            (tmp_path / staged.name.replace(".parts", ".12ab.partial")).mkdir()
            release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger)
        check_drawn_once(tmp_path / "out", audit, watch)
        for name, content in durable.items():
            assert (tmp_path / "out" / "answers" / name).read_bytes() == content
        assert ledger.spent == PLAN.rho
        check_left_over(tmp_path, names=["budget.db", "out"])
        check_left_over(keys, names=[])

    @pytest.mark.parametrize("missing", [{6}, set()])
    def test_only_the_slabs_that_missing_parts_need_are_exchanged(
        self, tmp_path, ledger, audit, monkeypatch, missing
    ):
        """Tables without a common attribute: a missing part needs the slabs of one of them."""
        use_small_parts(monkeypatch, 36)
        domain = fp.Domain({name: fp.Integers(1, 12) for name in "abcd"})
        pairs = [("a", "b"), ("c", "d")]
        workload = fp.Workload(domain, [fp.marginal(*pair, std=20.0) for pair in pairs])
        plan = fp.design(workload)
        counts = np.random.default_rng(3).integers(0, 9, (2, 12, 12))
        counts[1, 0, 0] += counts[0].sum() - counts[1].sum()  # of the same records
        tables = fp.Tables(domain, dict(zip(pairs, counts, strict=True)))
        parted = plan.strategy.cut(36)
        assert {*parted.list_slabs(6)} == {4, 5, 6, 7}

        real = executor.write_answers_part

        def write(folder, number, noisy):
            if number not in missing:
                return real(folder, number, noisy)
            while len(list(tmp_path.glob(".out.*/answers/part-*.npy"))) < len(parted.sizes) - 1:
                time.sleep(0.05)
            raise FULL

        with monkeypatch.context() as patch:
            patch.setattr(executor, "write_answers_part", write)
            patch.setattr(publication, "write_manifest", lambda *_: 1 / 0)
            with pytest.raises((FitplugError, ZeroDivisionError)):
                release_source(plan, tables, tmp_path / "out", ledger=ledger)
        release_source(plan, tables, tmp_path / "out", ledger=ledger)
        _, draws = check_drawn_once(tmp_path / "out", audit, None, plan, tables)
        assert draws == len(parted.sizes) + len(missing)

    def test_other_counts_are_refused(self, tmp_path, ledger, audit, monkeypatch):
        self.interrupt(monkeypatch, tmp_path, ledger, key="a")
        cells = CELLS.copy()
        cells[0, 0] += 1
        other = fp.Tables(DOMAIN, {("a", "b"): cells})
        before = len(audit.read())
        with pytest.raises(fp.KeyTaken, match="unfinished release of other data, other rows"):
            release_source(PLAN, other, tmp_path / "out", ledger=ledger, key="a")
        with pytest.raises(fp.KeyTaken, match="begun in parts"):
            fp.release(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="a")
        with pytest.raises(fp.KeyTaken, match="Name that folder, or use another key"):
            release_source(PLAN, TABLES, tmp_path / "elsewhere", ledger=ledger, key="a")
        assert len(audit.read()) == before
        assert ledger.spent == PLAN.rho
        release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger, key="a")
        check_drawn_once(tmp_path / "out", audit)

    def test_without_the_key_it_cannot_be_told_whether_counts_are_the_same(
        self, tmp_path, ledger, audit, keys, monkeypatch
    ):
        self.interrupt(monkeypatch, tmp_path, ledger)
        (key_file,) = keys.iterdir()
        key_file.rename(tmp_path / "moved.key")
        drawn = audit.read()
        with pytest.raises(InputError, match=f"is missing from {key_file}"):
            release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger)
        assert audit.read() == drawn
        assert not list(keys.iterdir())
        with pytest.raises(InputError, match="next to the encrypted counts in"):
            release_source(
                PLAN, TABLES, tmp_path / "out", ledger=ledger, key_file=tmp_path / "moved.key"
            )
        (tmp_path / "keys").mkdir()
        moved = (tmp_path / "moved.key").rename(tmp_path / "keys" / "moved.key")
        release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger, key_file=moved)
        check_drawn_once(tmp_path / "out", audit)
        assert not moved.exists()

    def test_tables_that_cannot_be_written_do_not_cost_a_second_draw(
        self, tmp_path, ledger, audit, monkeypatch
    ):
        with monkeypatch.context() as patch:
            patch.setattr(folder_release, "complete_folder", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger)
        assert list_states(ledger) == ["drawn"]
        drawn = audit.read()
        release_source(PLAN, "nothing is counted", tmp_path / "out", ledger=ledger)
        assert audit.read() == drawn
        check_drawn_once(tmp_path / "out", audit)
        check_left_over(tmp_path, names=["budget.db", "out"])

    def test_without_a_ledger_nothing_is_taken_again(self, tmp_path, audit, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(executor, "write_answers_part", fail_after(4, FULL))
            with pytest.raises(FitplugError, match="no space left"):
                release_source(PLAN, TABLES, tmp_path / "out")
        check_left_over(tmp_path, names=[])
        release_source(PLAN, TABLES, tmp_path / "out")
        assert len(audit.read()) >= 4 + len(PLAN.strategy.cut(PART).sizes)

    def test_a_store_that_fails_for_a_moment_is_tried_again(
        self, tmp_path, ledger, audit, monkeypatch
    ):
        monkeypatch.setattr(counts, "_PAUSES", (0.0,) * 3)
        real, rng = LocalPlace.create, np.random.default_rng(1)

        def create(place, name, content):
            if name.startswith("part-"):
                before = rng.random() < 0.2
                if before or rng.random() < 0.2:
                    if not before:
                        real(place, name, content)  # the answer is lost, and not the request
                    raise ConnectionResetError("reset")
            return real(place, name, content)

        monkeypatch.setattr(LocalPlace, "create", create)
        said = []
        with Watch(tmp_path) as watch:
            for _ in range(20):
                try:
                    release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger)
                    break
                except FitplugError as error:
                    said.append(str(error))
        assert all("nothing more will be charged" in sentence for sentence in said)
        check_drawn_once(tmp_path / "out", audit, watch)
        assert len(ledger.entries()) == 1

    @pytest.mark.parametrize("step", ["write_tables", None], ids=["drawn", "published"])
    def test_answers_of_other_rows_are_not_taken(self, tmp_path, ledger, monkeypatch, step):
        """Once the answers are made, nothing is counted that could be compared."""
        rng = np.random.default_rng(5)
        columns = {"a": rng.integers(1, 41, 50), "b": rng.integers(1, 26, 50)}
        people = tmp_path / "people.parquet"
        pq.write_table(pa.table(columns | {"id": range(50), "year": [1, 2] * 25}), people)

        def release(**of_data):
            rows = fp.Source(people, **of_data)
            return release_source(PLAN, rows, tmp_path / "out", ledger=ledger, key="a")

        with monkeypatch.context() as patch:
            if step:
                patch.setattr(PartedExecutor, step, lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    release(where={"year": 1})
            else:
                release(where={"year": 1})
        for other in ({}, {"where": {"year": 2}}, {"person": "id"}, {"weight": "year"}):
            with pytest.raises(fp.KeyTaken, match="differ from the given rows"):
                release(**other)
        assert release(where={"year": 1}).rows == "only rows where year is 1 are counted"

    def test_a_cut_that_changes_once_answers_are_made(self, tmp_path, ledger, monkeypatch):
        """An upgrade between the draw and the tables must not mix up the answers."""
        with monkeypatch.context() as patch:
            patch.setattr(PartedExecutor, "write_tables", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger)
        with monkeypatch.context() as patch:  # the parts have other answers, of the same sizes
            place = PartedBlocks._place

            def reverse(parted, part):
                found = place(parted, part)
                numbers = np.arange(found.start, found.stop) if isinstance(found, slice) else found
                return numbers[::-1]

            patch.setattr(PartedBlocks, "_place", reverse)
            with pytest.raises(FitplugError, match="another version of fitplug"):
                release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger)
        release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger).verify()

    def test_a_part_of_a_table_that_another_client_replaces(self, tmp_path, ledger, monkeypatch):
        """Clients with another confidence, or other processors, write other bytes."""
        real = folder_release.complete_folder

        def replace_and_complete(folder, *rest, **keywords):
            real(folder, *rest, **keywords)
            (part, *_) = sorted(folder.path.glob("*.parquet/part-*.parquet"))
            folder.join(part.parent.name).replace(part.name, b"other")

        with monkeypatch.context() as patch:
            patch.setattr(folder_release, "complete_folder", replace_and_complete)
            with pytest.raises(InputError, match="changed before the release was finished"):
                release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger)
        release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger).verify()
        check_left_over(tmp_path, names=["budget.db", "out"])

    def test_parts_of_another_cut_are_not_taken(self, tmp_path, ledger, monkeypatch):
        self.interrupt(monkeypatch, tmp_path, ledger)
        with monkeypatch.context() as patch:
            use_small_parts(patch, PART + 50)
            with pytest.raises(InputError, match="another charge or version of fitplug"):
                release_source(PLAN, TABLES, tmp_path / "out", ledger=ledger)

    def test_of_files_and_persons(self, tmp_path, ledger, audit, monkeypatch):
        """A run that is resumed keeps the same rows of each person, although nobody gave a key."""
        rng = np.random.default_rng(5)
        columns = {
            "id": rng.integers(0, 500, 3000),
            "a": rng.integers(1, 41, 3000),
            "b": rng.integers(1, 26, 3000),
        }
        people = tmp_path / "people.parquet"
        pq.write_table(pa.table(columns), people)
        plan = fp.design(PLAN.workload, unit=fp.AddRemove(2))
        rows, keywords = fp.Source(people, person="id"), {"ledger": ledger}
        with monkeypatch.context() as patch:
            patch.setattr(executor, "write_answers_part", fail_after(3, FULL))
            with pytest.raises(FitplugError, match="no space left"):
                release_source(plan, rows, tmp_path / "out", **keywords)
        released = release_source(plan, rows, tmp_path / "out", **keywords)
        assert released.limited == "enforced"
        assert len(ledger.entries()) == 1
        total = released.estimate("total").value
        assert abs(total - 1000) < 8 * float(np.sqrt(PLAN.variances["total"].max())) + 60


def test_two_clients_at_once_make_one_release(tmp_path, ledger, audit):
    released, errors = [], []

    def run():
        try:
            own = fp.Ledger(tmp_path / "budget.db")
            released.append(release_source(PLAN, TABLES, tmp_path / "out", ledger=own, key="a"))
        except Exception as error:  # shown below
            errors.append(error)

    with Watch(tmp_path) as watch:
        clients = [threading.Thread(target=run) for _ in range(3)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    assert not errors
    check_drawn_once(tmp_path / "out", audit, watch)
    assert len({tuple(np.asarray(one.answers)) for one in released}) == 1
    assert len(ledger.entries()) == 1
    assert list_states(ledger) == ["published"]


def test_into_a_store(ledger, audit, monkeypatch):
    url = f"memory://{os.getpid()}/release"
    try:
        with monkeypatch.context() as patch:
            patch.setattr(executor, "write_answers_part", fail_after(4, FULL))
            with pytest.raises(FitplugError, match="no space left"):
                release_source(PLAN, TABLES, url, ledger=ledger)
        with pytest.raises(InputError, match=r"already holds files\. Name another folder"):
            release_source(PLAN, TABLES, url)
        release_source(PLAN, TABLES, url, ledger=ledger)
        check_drawn_once(url, audit)
        assert list_states(ledger) == ["published"]
        with pytest.raises(InputError, match="already holds a release"):
            release_source(PLAN, TABLES, url)
    finally:
        open_place(f"memory://{os.getpid()}").remove_all()


def halve_noise():
    """Make the sampler of this process one that draws too little noise."""
    from fitplug_opendp import gaussian

    real = gaussian.make_gaussian

    @functools.wraps(real)  # or the worker would be refused for its code
    def make_half(dp, size, std):
        return real(dp, size, std / 2)

    gaussian.make_gaussian = make_half


@pytest.mark.long
def test_on_a_cluster_of_processes(tmp_path, ledger):
    audit = Audit(tmp_path / "audit")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(audit)
        keywords = {"ledger": ledger, "client": client}
        released = release_source(PLAN, TABLES, tmp_path / "out", key="a", **keywords)
        _, draws = check_drawn_once(tmp_path / "out", audit)
        assert draws == len(released.answers.parts)
        client.run(halve_noise, workers=[next(iter(client.nthreads()))])
        with pytest.raises(FitplugError, match="sampler fails a test"):
            release_source(PLAN, TABLES, tmp_path / "other", key="b", **keywords)
        assert len(ledger.entries()) == 1
        (tmp_path / "out").rename(tmp_path / "moved")
        with pytest.raises(FitplugError, match="is no longer in"):
            release_source(PLAN, TABLES, tmp_path / "out", key="a", **keywords)


FORKED = """
import os, sys
import numpy as np
from fitplug_opendp.noise_source import draw_part

def draw():
    return draw_part(np.zeros(20, dtype=np.int64), 1e6, "fork").tolist()

print(*draw())
for _ in range(2):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        print(*draw())
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
print(*draw())
"""


@pytest.mark.slow
def test_processes_that_are_forked_draw_other_noise():
    """OpenDP takes its randomness from the operating system for each draw, also after a fork.

    The process that forks is a new one: with the threads that other tests left behind, a child
    might wait for ever for a lock that one of them held.
    """
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=True
    )
    draws = done.stdout.split()
    assert len(draws) == 80
    assert len(set(draws)) > 75


def test_a_release_in_parts_is_read_from_its_folder_alone(tmp_path):
    release_source(PLAN, TABLES, tmp_path / "out")
    assert "a" in pq.read_table(Path(tmp_path / "out" / "a_x_b.parquet")).column_names


def test_a_store_keeps_the_mark_of_a_run_that_nobody_will_finish(ledger, monkeypatch):
    """A worker that was still drawing for a run that failed must not write into the next one."""
    url = f"memory://{os.getpid()}/failed"
    try:
        with monkeypatch.context() as patch:
            patch.setattr(executor, "write_answers_part", fail_after(4, FULL))
            with pytest.raises(FitplugError, match="no space left"):
                release_source(PLAN, TABLES, url)
        assert not open_place(url).join("answers").list_sizes()
        with pytest.raises(InputError, match="Name another folder, or remove these files and"):
            release_source(PLAN, TABLES, url, ledger=ledger)
        assert not ledger.entries()
    finally:
        open_place(f"memory://{os.getpid()}").remove_all()
