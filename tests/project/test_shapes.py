"""Plans of every shape through every way of releasing: charged once, and never for nothing.

What a way cannot do it refuses before the charge. All else ends with estimates of the truth, and
the same call finds the release again at no cost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

import fitplug as fp
import fitplug_opendp as fpo
from fitplug.workload import allows_any_rows
from fitplug_dask.releases import release_source
from tests.helpers.audited_releases import use_slabs, use_small_parts
from tests.helpers.command_line import fitplug
from tests.helpers.local_workers import start_workers
from tests.helpers.opendp_spaces import features  # noqa: F401
from tests.helpers.shapes import SHAPES, SMALL, STRUCTURES, Shape, write_spec
from tests.helpers.sources import count_rows

pl = pytest.importorskip("polars")

KEY = "2026"
REPLACED = "one row replaced"


@dataclass
class Place:
    """Where a release goes, and what it is charged to."""

    folder: Path
    ledger: fp.Ledger
    client: Client | None = None

    @property
    def output(self) -> Path:
        return self.folder / "out"

    def charge(self) -> dict[str, Any]:
        return {"ledger": self.ledger, "key": KEY}

    def write(self, shape: Shape) -> Path:
        path = self.folder / "rows.parquet"
        if not path.exists():
            pq.write_table(pa.table(shape.columns), path, row_group_size=100)
        return path


@dataclass(frozen=True)
class Way:
    """A way of releasing.

    Attributes:
        release: Releases a plan, and finds the release if it is called again.
        refuse: Returns what the way says of a plan that it refuses; None of others.
        is_in_slabs: Whether counts stay in slabs, as those of large plans do.
    """

    release: Callable[[Shape, Place], Any]
    refuse: Callable[[Shape], str | None] = lambda shape: None
    is_in_slabs: bool = False


def find_unit(shape: Shape) -> str:
    return str(shape.plan.unit)


def refuse_lost_order(shape: Shape) -> str | None:
    return None if shape.periods else "cannot be released period by period"


def refuse_persons_within(shape: Shape) -> str | None:
    return "person= cannot be combined with the unit" if "of the same" in find_unit(shape) else None


def refuse_distances(shape: Shape) -> str | None:
    unit = shape.plan.unit
    is_plain = unit == fp.ReplaceOne() or allows_any_rows(unit)
    return None if is_plain else "OpenDP has no metric"


def refuse_vectors(shape: Shape) -> str | None:
    if shape.plan.unit == fp.ReplaceOne():
        return "a vector of counts does not work"
    domain, names = shape.plan.domain, shape.plan.workload.attributes
    has_sums = any(isinstance(domain[name], fp.Measure) for name in names)
    return refuse_distances(shape) or ("has no sums" if has_sums else None)


def refuse_frames(shape: Shape) -> str | None:
    if shape.plan.unit == fp.ReplaceOne():
        return "needs other= in the attribute"
    return refuse_distances(shape)


def count_persons(shape: Shape, place: Place) -> fp.Tables:
    limit = {"unit": fp.AddRemove(1)} if shape.plan.unit == fp.AddRemove() else {}
    return count_rows(fp.Source(place.write(shape), person="person"), shape.plan, **limit)


def publish_tables(shape: Shape, place: Place) -> fp.Release:
    return fp.release(shape.plan, shape.tables, place.output, **place.charge())


def publish_persons(shape: Shape, place: Place) -> fp.Release:
    tables = count_persons(shape, place)
    return fp.release(shape.plan, tables, place.output, **place.charge())


def release_tables_in_parts(shape: Shape, place: Place) -> fp.Release:
    return release_source(shape.plan, shape.tables, place.output, **place.charge())


def release_files(shape: Shape, place: Place) -> fp.Release:
    rows = place.write(shape)
    return release_source(shape.plan, rows, place.output, client=place.client, **place.charge())


def release_persons(shape: Shape, place: Place) -> fp.Release:
    people = fp.Source(place.write(shape), person=["household", "line"])
    return release_source(shape.plan, people, place.output, client=place.client, **place.charge())


def release_series(shape: Shape, place: Place) -> fp.Release:
    series = fp.begin_series(shape.plan, place.output, ledger=place.ledger, key=KEY)
    rows = place.write(shape)
    for period in series.labels:
        series.release(period, rows)
    series.verify()
    return series.to_release()


def measure_tables(shape: Shape, place: Place) -> fp.Release:
    metric = choose_metric(shape)
    return fpo.make_fitness_for_use(fpo.tables_domain(shape.plan), metric, shape.plan)(shape.tables)


def measure_vector(shape: Shape, place: Place) -> fp.Release:
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    measurement = fpo.make_fitness_for_use(*space, shape.plan)
    names = shape.plan.workload.attributes
    counts = fp.Tables.from_records(shape.plan.domain, shape.columns, [names])[names]
    return measurement(np.array(counts).ravel())


def measure_frame(shape: Shape, place: Place) -> fp.Release:
    frame = pl.LazyFrame(shape.columns)
    space = dp.domain_of(frame, infer=True), choose_metric(shape)
    return fpo.make_fitness_for_use(*space, shape.plan)(frame)


def choose_metric(shape: Shape) -> Any:
    is_replaced = REPLACED in find_unit(shape)
    return dp.change_one_distance() if is_replaced else dp.symmetric_distance()


IN_FOLDERS = {
    "publish": Way(publish_tables),
    "publish, by person": Way(publish_persons, refuse_persons_within),
    "parts, of tables": Way(release_tables_in_parts),
    "parts, of files": Way(release_files),
    "parts, of files in slabs": Way(release_files, is_in_slabs=True),
    "parts, by person": Way(release_persons, refuse_persons_within),
    "parts, by person in slabs": Way(release_persons, refuse_persons_within, is_in_slabs=True),
}
ON_A_CLUSTER = {
    name: way for name, way in IN_FOLDERS.items() if "parts, " in name and "tables" not in name
}
IN_SERIES = {"series": Way(release_series, refuse_lost_order)}
MEASURED = {
    "tables": Way(measure_tables, refuse_distances),
    "vectors": Way(measure_vector, refuse_vectors),
    "frames": Way(measure_frame, refuse_frames),
}


SOME = [
    "one cell", "total alone", "one leaf", "measure", "total of a measure", "tree", "once per",
    "pairs within",
]  # fmt: skip
"""Shapes that are released on a cluster each time, and by the command."""
SLOW = [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in STRUCTURES)]


def thin(ways: Mapping[str, Way]) -> list[Any]:
    """List shapes and ways: the first shape of a structure goes every way, others every third.

    They go the other ways each week, and small shapes the third one by default.
    """
    first = {shape.structure: name for name, shape in reversed(STRUCTURES.items())}.values()
    listed = []
    for (i, name), (j, way) in product(enumerate(SHAPES), enumerate(ways)):
        is_left = (i + j) % 3 > 0 and name not in first
        marks = [pytest.mark.long] if is_left else [pytest.mark.slow] * (name in STRUCTURES)
        listed.append(pytest.param(name, way, marks=marks))
    return listed


LONG = [
    pytest.param(name, marks=pytest.mark.slow if name in SOME else pytest.mark.long)
    for name in SHAPES
]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, fp.Ledger(tmp_path / "budget.db", rho=1e6))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    """Two processes, to which all travels that a worker needs."""
    with start_workers(2, 1, processes=True) as client:
        yield client


def list_content(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name != "rows.parquet"}


def check_refused(way: Way, shape: Shape, place: Place, says: str) -> None:
    """Check that a plan is refused in one sentence, and that nothing was charged or written."""
    with pytest.raises((fp.FitplugError, ValueError), match=says) as caught:
        way.release(shape, place)
    assert "\n" not in str(caught.value)
    assert not place.ledger.entries()
    assert list_content(place.folder) <= {"budget.db"}


def check_way(way: Way, shape: Shape, place: Place) -> None:
    """Release once and once more, or see the plan refused."""
    says = way.refuse(shape)
    if says is not None:
        check_refused(way, shape, place, says)
        return
    released = way.release(shape, place)
    shape.check(released)
    charges = place.ledger.entries()
    again = way.release(shape, place)
    np.testing.assert_array_equal(np.asarray(again.answers), np.asarray(released.answers))
    assert place.ledger.entries() == charges
    assert released.rho <= place.ledger.spent <= released.rho * (1 + 1e-12)
    assert len([entry for entry in charges if entry.covered_by is None]) == 1
    assert {stage.state for stage in place.ledger.stages().values()} == {"published"}
    assert list_content(place.folder) == {"budget.db", "out"}  # no counts and no secrets


@pytest.mark.parametrize("name", SLOW)
def test_the_check_has_power(name: str) -> None:
    SHAPES[name].check_power()


@pytest.mark.parametrize("name", SLOW)
def test_in_memory(name: str, place: Place) -> None:
    shape = SHAPES[name]
    shape.check(fp.release(shape.plan, shape.tables, **place.charge()))
    assert len(place.ledger.entries()) == 1
    with pytest.raises(fp.KeyTaken):
        fp.release(shape.plan, shape.tables, **place.charge())
    assert len(place.ledger.entries()) == 1


@pytest.mark.parametrize(("name", "way"), thin(IN_FOLDERS))
def test_in_a_folder(name: str, way: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    run_in_folder(IN_FOLDERS[way], SHAPES[name], place, monkeypatch)


@pytest.mark.parametrize("way", ON_A_CLUSTER)
@pytest.mark.parametrize("name", LONG)
def test_on_a_cluster(
    name: str, way: str, place: Place, cluster: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.client = cluster
    run_in_folder(ON_A_CLUSTER[way], SHAPES[name], place, monkeypatch)


def run_in_folder(way: Way, shape: Shape, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if way.is_in_slabs:
        use_slabs(monkeypatch)
        use_small_parts(monkeypatch, 5)
    check_way(way, shape, place)
    if way.refuse(shape) is None:
        read = fp.Release.load(place.output)
        read.verify()
        shape.check(read)


@pytest.mark.parametrize("name", SLOW)
def test_in_a_series(name: str, place: Place) -> None:
    check_way(IN_SERIES["series"], SHAPES[name], place)


@pytest.mark.parametrize(("name", "way"), thin(MEASURED))
def test_as_a_measurement(name: str, way: str, place: Place) -> None:
    shape = SHAPES[name]
    says = MEASURED[way].refuse(shape)
    if says is not None:
        check_refused(MEASURED[way], shape, place, says)
    else:
        shape.check(MEASURED[way].release(shape, place))


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("name", SOME)
def test_by_the_command(name: str, parts: bool, place: Place) -> None:
    shape = SHAPES[name]
    spec = place.folder / "spec.toml"
    spec.write_text(write_spec(shape, place.write(shape), parts), encoding="utf-8")
    ran = fitplug("run", spec, "--key", KEY)
    assert ran.code == 0, ran.err
    shape.check(fp.Release.load(place.output))
    again = fitplug("run", spec, "--key", KEY)
    assert again.code == 0
    assert not re.sub(r"^warning: epsilon is above 100.*\n", "", again.err)
    assert "already done" in again.out
    assert len(place.ledger.entries()) == 1
