"""Releases whose exact counts stay in slabs on the workers: exact, sealed, encrypted, resumed."""

from __future__ import annotations

import dataclasses
import errno
import shutil
import sys
import threading

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

import fitplug as fp
import fitplug_dask as fpd
from fitplug.errors import FitplugError, InputError
from fitplug.files import open_place
from fitplug_dask.persons import shuffle
from fitplug_dask.releases import executor, release_source, releasing
from fitplug_dask.releases.counts import CountStore
from fitplug_opendp import noise_source, publication
from fitplug_opendp.key_file import RunSecret
from tests.helpers.audited_releases import (
    DOMAIN,
    PART,
    PLAN,
    Watch,
    check_drawn_once,
    check_left_over,
    use_slabs,
    use_small_parts,
)
from tests.helpers.plans import product_plan, symmetric_plan
from tests.helpers.sources import count_rows, release_rows
from tests.helpers.tree_plans import design_tree, people_by_place

cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 3000
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def in_slabs(monkeypatch):
    """No counts come to the client, although these are few."""
    use_small_parts(monkeypatch)
    use_slabs(monkeypatch)
    monkeypatch.setattr(releasing, "count", lambda *_, **__: pytest.fail("whole tables"))


def write_people(folder, domain=DOMAIN, seed=1):
    """Four files of people, some of them outside the domain."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(4):
        columns = {"pop": rng.integers(0, 9, ROWS), "year": rng.integers(1, 4, ROWS)}
        columns["who"] = rng.integers(0, ROWS, ROWS)
        for name in domain.names:
            labels = [*domain[name].labels, None]
            drawn = [labels[k] for k in rng.integers(0, len(labels), ROWS)]
            is_text = not isinstance(domain[name], fp.Integers)
            columns[name] = pa.array([v if is_text or v is None else int(v) for v in drawn])
        pq.write_table(pa.table(columns), folder / f"{i}.parquet", row_group_size=700)
    return folder


@pytest.fixture
def people(tmp_path_factory):
    return write_people(tmp_path_factory.mktemp("people"))


def return_exact(answers, noise_std, run):
    """Draw no noise, so that what is counted is seen."""
    return answers


@pytest.mark.parametrize(
    "options",
    [{}, {"weight": "pop"}, {"where": {"year": [1, 3]}}, {"weight": "pop", "where": {"year": 2}}],
    ids=["rows", "weights", "filters", "both"],
)
@pytest.mark.parametrize("on", ["threads", pytest.param("cluster", marks=pytest.mark.slow)])
def test_answers_are_those_of_the_counts(people, tmp_path, monkeypatch, options, on):
    monkeypatch.setattr(executor, "draw_part", return_exact)
    exact = PLAN.strategy.answer_exactly(count_rows(people, PLAN, **options).marginal)
    if on == "threads":
        released = release_rows(PLAN, people, tmp_path / "out", **options)
    else:
        with (
            LocalCluster(processes=False, n_workers=2, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            released = release_rows(PLAN, people, tmp_path / "out", client=client, **options)
    np.testing.assert_array_equal(np.asarray(released.answers), exact)
    assert (released.seal is None) == (not options)
    check_left_over(tmp_path, names=["out"])


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: design_tree(people_by_place(ages=True)), marks=pytest.mark.long),
        product_plan,
        symmetric_plan,
    ],
    ids=["tree", "product", "symmetric"],
)
def test_answers_of_every_structure(make, tmp_path, monkeypatch):
    use_small_parts(monkeypatch, 20)
    plan = make()
    people = write_people(tmp_path / "people", plan.domain)
    exact = plan.strategy.answer_exactly(fpd.count(people, plan).marginal)
    assert exact.any()
    monkeypatch.setattr(executor, "draw_part", return_exact)
    released = release_source(plan, people, tmp_path / "out")
    np.testing.assert_array_equal(np.asarray(released.answers), exact)


def choose_person_key(monkeypatch, key):
    """Have the rows of each person chosen by a key that a count can be given too."""
    keep = RunSecret.keep
    chosen = classmethod(lambda _, *given: dataclasses.replace(keep(*given), person_key=key))
    monkeypatch.setattr(RunSecret, "keep", chosen)


PERSONS = [fp.AddRemove(2), fp.AddRemove(2, once_per="a")]


@pytest.mark.parametrize("on", ["threads", pytest.param("cluster", marks=pytest.mark.long)])
@pytest.mark.parametrize("unit", PERSONS, ids=str)
@pytest.mark.slow
def test_persons_keep_the_rows_that_a_count_keeps(people, tmp_path, monkeypatch, request, unit, on):
    """Kept rows are stored in buckets, and then counted in slabs."""
    monkeypatch.setattr(shuffle, "_BUCKET_ROWS", 500)
    groups = [fp.marginal("a", "b", std=10.0), fp.total(std=20.0)]
    plan = fp.design(fp.Workload(DOMAIN, groups), unit=unit)
    whole = fpd.count(fp.Source(people, person="who"), plan, person_key=b"k" * 16)
    assert whole.marginal(()) < fpd.count(people, plan).marginal(())
    monkeypatch.setattr(executor, "draw_part", return_exact)
    choose_person_key(monkeypatch, b"k" * 16)
    stored = []
    if on == "threads":  # workers with other code would be refused
        remove = CountStore.remove_rows

        def look(store):
            stored.extend(path.stat() for path in tmp_path.glob(".out.*.counts/*/rows-*"))
            remove(store)

        monkeypatch.setattr(CountStore, "remove_rows", look)
    client = request.getfixturevalue("client") if on == "cluster" else None
    released = release_source(
        plan, fp.Source(people, person="who"), tmp_path / "out", client=client
    )
    exact = plan.strategy.answer_exactly(whole.marginal)
    np.testing.assert_array_equal(np.asarray(released.answers), exact)
    assert released.limited == "enforced"
    assert released.seal is not None
    if stored:  # how long a file is does not tell how many rows it holds
        assert len(stored) > 10
        assert len({file.st_size for file in stored}) == 1
        assert {file.st_mode & 0o777 for file in stored} == {0o600}
    check_left_over(tmp_path, names=["out"])


def test_a_resumed_run_has_the_rows_of_the_same_persons(
    people, tmp_path, ledger, audit, monkeypatch
):
    """Before the charge as after it, and the ledger knows the counts by their seal."""
    with monkeypatch.context() as patch:
        patch.setattr(CountStore, "remove_run", lambda store: None)
        patch.setattr(CountStore, "remove_rows", lambda store: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            release_source(PLAN, fp.Source(people, person="who"), tmp_path / "out", ledger=ledger)
    choose_person_key(monkeypatch, b"k" * 16)
    interrupt(monkeypatch, people, tmp_path, ledger, person="who")
    tables = fpd.count(
        fp.Source(people, person="who"), PLAN, unit=fp.AddRemove(1), person_key=b"k" * 16
    )
    released = release_source(
        PLAN, fp.Source("gone", person="who"), tmp_path / "out", ledger=ledger
    )
    check_drawn_once(tmp_path / "out", audit, None, PLAN, tables)
    assert ledger.stages()[released.entry.id].counts == released.seal
    check_left_over(tmp_path, names=["budget.db", "out"])


def test_a_disk_that_is_full_of_rows_is_one_clear_error(people, tmp_path, ledger, monkeypatch):
    def fail(*_):
        raise FULL

    with monkeypatch.context() as patch:
        patch.setattr(CountStore, "write_rows", fail)
        with pytest.raises(FitplugError, match="no space left on device"):
            release_source(PLAN, fp.Source(people, person="who"), tmp_path / "out", ledger=ledger)
    assert not ledger.entries()
    with monkeypatch.context() as patch:
        patch.setattr(CountStore, "write_rows", lambda *_: None)
        with pytest.raises(FitplugError, match="file 0 of the encrypted counts is missing"):
            release_source(PLAN, fp.Source(people, person="who"), tmp_path / "out", ledger=ledger)
    assert not ledger.entries()
    release_source(PLAN, fp.Source(people, person="who"), tmp_path / "out", ledger=ledger).verify()


def interrupt(monkeypatch, people, tmp_path, ledger, **keywords):
    """Charge, draw four parts, and stop."""
    written, lock, real = [], threading.Lock(), executor.write_answers_part

    def write(folder, number, noisy):
        with lock:
            if len(written) == 4:
                raise FULL
            written.append(number)
        return real(folder, number, noisy)

    with monkeypatch.context() as patch:
        patch.setattr(executor, "write_answers_part", write)
        with pytest.raises(FitplugError, match="no space left on device"):
            release_rows(PLAN, people, tmp_path / "out", ledger=ledger, **keywords)
    (stored,) = tmp_path.glob(".out.*.counts")
    return stored


def test_a_resumed_run_counts_nothing_again(people, tmp_path, ledger, audit, monkeypatch):
    tables = fpd.count(people, PLAN)
    with Watch(tmp_path) as watch:
        stored = interrupt(monkeypatch, people, tmp_path, ledger)
        assert stored.stat().st_mode & 0o777 == 0o700
        # Neither files that are gone nor files that changed matter now.
        release_source(PLAN, "nothing is there", tmp_path / "out", ledger=ledger)
    _, draws = check_drawn_once(tmp_path / "out", audit, watch, PLAN, tables)
    assert draws <= len(PLAN.strategy.cut(PART).sizes) + 2  # of threads at the full disk
    assert ledger.spent == PLAN.rho
    check_left_over(tmp_path, names=["budget.db", "out"])


def test_before_the_charge_nothing_is_taken_again(people, tmp_path, ledger, audit, monkeypatch):
    """A run that is killed before the charge leaves counts that the next run does not use."""
    with monkeypatch.context() as patch:
        # What a killed process does not do.
        patch.setattr(CountStore, "remove_run", lambda store: None)
        patch.setattr(publication.Publication, "_charge", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            release_source(PLAN, people, tmp_path / "out", ledger=ledger)
    assert list(tmp_path.glob(".out.*.counts/*/slab-*"))
    others = write_people(tmp_path / "others", seed=2)
    release_source(PLAN, others, tmp_path / "out", ledger=ledger)
    check_drawn_once(tmp_path / "out", audit, None, PLAN, fpd.count(others, PLAN))
    check_left_over(tmp_path, names=["budget.db", "others", "out"])


def test_what_is_refused_leaves_no_counts(people, tmp_path):
    poor = fp.Ledger(tmp_path / "budget.db", rho=PLAN.rho / 2)
    with pytest.raises(fp.OverBudget):
        release_source(PLAN, people, tmp_path / "out", ledger=poor)
    assert not poor.entries()
    assert not list(tmp_path.glob(".out*"))


def test_a_budget_that_is_spent_meanwhile_leaves_no_counts(people, tmp_path, ledger):
    """The ledger refuses the charge when everything is counted."""
    others = []

    def spend(done, rows):
        if not others:
            others.append(ledger.charge(ledger.remaining, what="another release"))

    with pytest.raises(fp.OverBudget):
        release_source(PLAN, people, tmp_path / "out", ledger=ledger, progress=spend)
    assert ledger.entries() == tuple(others)
    assert not list(tmp_path.glob(".out*"))


def test_a_client_that_fails_leaves_the_counts_of_another(people, tmp_path, ledger, monkeypatch):
    """A second client fails when the first has counted, and has not charged yet."""
    real, tried = publication.Publication._charge, []

    def charge(release, counts):
        if not tried:
            tried.append(release)
            (tmp_path / "damaged").mkdir()
            (tmp_path / "damaged" / "0.parquet").write_bytes(b"PAR1 and no more")
            with pytest.raises(FitplugError, match="damaged"):
                release_source(PLAN, tmp_path / "damaged", tmp_path / "out", ledger=ledger)
            shutil.rmtree(tmp_path / "damaged")
            # So does a third one, when it has counted the same.
            with monkeypatch.context() as patch:
                patch.setattr(publication.Publication, "_charge", lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    release_source(PLAN, people, tmp_path / "out", ledger=ledger)
            assert len(list(tmp_path.glob(".out.*.counts/seals-*"))) == 1
        return real(release, counts)

    monkeypatch.setattr(publication.Publication, "_charge", charge)
    release_source(PLAN, people, tmp_path / "out", ledger=ledger).verify()
    assert len(ledger.entries()) == 1
    check_left_over(tmp_path, names=["budget.db", "out"])


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["cut", "changed", "missing", "of another slab", "seals gone"])
def test_counts_that_are_damaged_are_not_used(people, tmp_path, ledger, audit, monkeypatch, fault):
    tables = fpd.count(people, PLAN)
    stored = interrupt(monkeypatch, people, tmp_path, ledger)
    slabs = sorted(stored.glob("*/slab-*"))
    if fault == "seals gone":
        (seals,) = stored.glob("seals-*")
        seals.unlink()  # then all is counted again
    else:
        for slab, other in zip(slabs, [*slabs[1:], slabs[0]], strict=True):
            content = bytearray(slab.read_bytes())
            if fault == "cut":
                slab.write_bytes(content[:-1])
            elif fault == "changed":
                content[-20] ^= 1
                slab.write_bytes(content)
            elif fault == "missing":
                slab.unlink()
            else:
                other.with_name(f"{other.name}.new").write_bytes(content)
        for new in stored.glob("*/*.new"):
            new.replace(new.with_suffix(""))
        drawn = len(audit.read())
        with pytest.raises(FitplugError, match="encrypted counts is missing or damaged"):
            release_source(PLAN, people, tmp_path / "out", ledger=ledger)
        assert len(audit.read()) == drawn
        shutil.rmtree(stored)
    others = write_people(tmp_path / "others", seed=2)
    with pytest.raises(fp.KeyTaken, match="of other data, other rows"):
        release_source(PLAN, others, tmp_path / "out", ledger=ledger)
    release_source(PLAN, people, tmp_path / "out", ledger=ledger)
    check_drawn_once(tmp_path / "out", audit, None, PLAN, tables)
    assert ledger.spent == PLAN.rho


def test_stored_counts_are_encrypted_and_other_counts_do_not_replace_them(tmp_path):
    place = fp.files.open_place(tmp_path / "counts", mode=0o600)
    counts = np.arange(1000, dtype=np.int64).reshape(10, 100) + 10**6
    store = CountStore(place, b"n" * 32, "run")
    store.open()
    seal = store.write_slab(3, counts)
    content = (tmp_path / "counts" / "run" / "slab-00003").read_bytes()
    assert (tmp_path / "counts" / "run" / "slab-00003").stat().st_mode & 0o777 == 0o600
    for width in ("<u4", "<i8"):
        assert counts[4, 5:8].astype(width).tobytes() not in content
    np.testing.assert_array_equal(store.read_slab(3, seal, (10, 100)), counts)
    assert store.write_slab(3, counts + 1) == seal  # a task that runs again finds what is there
    np.testing.assert_array_equal(store.read_slab(3, seal, (10, 100)), counts)
    with pytest.raises(InputError, match="file 3 of the encrypted counts is missing or damaged"):
        CountStore(place, b"m" * 32, "run").read_slab(3, seal, (10, 100))
    said = {"rows": None}
    whole = store.write_seals(said, [seal])
    found = CountStore(place, b"n" * 32, "later").find_seals(said, whole)
    assert found is not None
    assert found[1] == (seal,)
    np.testing.assert_array_equal(found[0].read_slab(3, seal, (10, 100)), counts)
    assert store.find_seals({"rows": "others"}, whole) is None
    assert CountStore(place, b"m" * 32, "run").find_seals(said, whole) is None


def test_without_the_package_for_encryption_nothing_is_counted(people, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(InputError, match="the package cryptography"):
        release_source(PLAN, people, tmp_path / "out")
    check_left_over(tmp_path, names=[])


def test_into_a_store(people, ledger, audit):
    url = "memory://bucket/of/counts"
    release_source(PLAN, people, url, ledger=ledger)
    released = fp.Release.load(url)
    released.verify()
    names = open_place("memory://bucket/of").list_sizes()
    assert not [name for name in names if "counts-" in name]
    exact = PLAN.strategy.answer_exactly(fpd.count(people, PLAN).marginal)
    errors = (np.asarray(released.answers) - exact) / PLAN.noise_std
    assert np.abs(errors).max() < 8
    open_place(url).remove_all()


def test_two_clients_at_once_make_one_release(people, tmp_path, ledger, audit):
    released, errors = [], []

    def run():
        try:
            own = fp.Ledger(tmp_path / "budget.db")
            released.append(release_source(PLAN, people, tmp_path / "out", ledger=own, key="a"))
        except Exception as error:  # shown below
            errors.append(error)

    clients = [threading.Thread(target=run) for _ in range(3)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert not errors
    assert len({np.asarray(one.answers).tobytes() for one in released}) == 1
    check_drawn_once(tmp_path / "out", audit, None, PLAN, fpd.count(people, PLAN))
    assert len(ledger.entries()) == 1
    check_left_over(tmp_path, names=["budget.db", "out"])


def test_noise_is_drawn_by_opendp(people, tmp_path, monkeypatch):
    """The answers are of counts with noise: none of the tests above would notice if it were not."""
    assert executor.draw_part is noise_source.draw_part
    released = release_source(PLAN, people, tmp_path / "out")
    exact = PLAN.strategy.answer_exactly(fpd.count(people, PLAN).marginal)
    scaled = (np.asarray(released.answers) - exact) / PLAN.noise_std
    assert 0.8 < scaled.std() < 1.2
