"""What an adversarial reading found about who a claim of rho is for, and must not come back."""

from __future__ import annotations

import csv
import uuid
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import opendp.prelude as dp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
import fitplug_dask as fpd
import fitplug_opendp as fpo
from fitplug.display.numbers import format_down, format_up
from fitplug.errors import DataError, LedgerError
from fitplug.releases.release import Release
from fitplug_cli.render import read_counts
from fitplug_dask.files import csv_text
from fitplug_dask.sources import locations, stores
from tests.helpers.command_line import fitplug

DOMAIN = fp.Domain({"s": ["1", "2"]})
FIRST = fp.design(fp.Workload(DOMAIN, [fp.queries({"s": np.array([[1.0, 0.0]])}, std=5.0)]))
SECOND = fp.design(fp.Workload(DOMAIN, [fp.queries({"s": np.array([[0.0, 1.0]])}, std=5.0)]))


def limited(path: Path) -> fp.Tables:
    """A person in both cells, of whom one row is kept, another each time."""
    pq.write_table(pa.table({"id": ["x", "x"], "s": ["1", "2"]}), path / "p.parquet")
    return fpd.count(
        fp.Source(path / "p.parquet", person="id"), (DOMAIN, [("s",)]), unit=fp.AddRemove(1)
    )


def test_rows_chosen_anew_are_never_free_within_an_earlier_charge(tmp_path: Path) -> None:
    """Else a person kept in cell 1 now and in cell 2 then costs both, and one is charged."""
    ledger = fp.Ledger(tmp_path / "b.db", rho=1.0)
    fp.release(FIRST, limited(tmp_path), ledger=ledger, key="first")
    with pytest.raises(LedgerError, match="has another file of counts"):
        fp.release(SECOND, limited(tmp_path), ledger=ledger, covered_by="first")
    assert len(ledger.entries()) == 1
    fp.release(SECOND, limited(tmp_path), ledger=ledger)
    assert ledger.spent >= float(FIRST.rho_exact + SECOND.rho_exact)


SPEC = """
[data]
path = "p.parquet"
person = "{person}"
[privacy]
unit = {{ records = 1 }}
[domain]
s = ["1", "2"]
[[query]]
s = "identity"
std = 5.0
[ledger]
path = "b.db"
rho = 1.0
"""


def test_the_command_line_refuses_it_before_any_work(tmp_path: Path) -> None:
    limited(tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC.format(person="id"))
    assert fitplug("run", tmp_path / "spec.toml", "--key", "first").code == 0
    ran = fitplug("run", tmp_path / "spec.toml", "--covered-by", "first")
    assert ran.code == 2
    assert "with [data] person, --covered-by needs the counts file" in ran.err


def test_counts_limited_by_another_column_are_refused(tmp_path: Path) -> None:
    """Twenty visits of a patient, each kept as of a person of its own, are no one record."""
    table = pa.table({"visit": np.arange(40), "patient": np.arange(40) // 20, "s": ["1"] * 40})
    pq.write_table(table, tmp_path / "p.parquet")
    spec, counts = tmp_path / "spec.toml", tmp_path / "c.npz"
    spec.write_text(SPEC.format(person="visit"))
    assert fitplug("count", spec, "--output", counts).code == 0
    assert read_counts(counts).person == "visit"
    for other in (SPEC.format(person="patient"), SPEC.replace('person = "{person}"', "").format()):
        spec.write_text(other)
        ran = fitplug("release", spec, "--counts", counts)
        assert ran.code == 2
        assert "differ in [data] person. Count again" in ran.err
    assert not (tmp_path / "b.db").exists()


def test_a_review_says_that_records_were_limited(tmp_path: Path) -> None:
    limited(tmp_path)
    (tmp_path / "spec.toml").write_text(SPEC.format(person="id"))
    assert fitplug("run", tmp_path / "spec.toml").code == 0
    assert "rows were left out before counting" in (tmp_path / "release" / "review.md").read_text()


class TestMeasurements:
    """A measurement releases for the plan's unit, and does not know what was left out before."""

    @staticmethod
    def released(records: int = 1) -> Release:
        dp.enable_features("contrib", "honest-but-curious")
        plan = fp.design(FIRST.workload, unit=fp.AddRemove(records))
        space = fpo.tables_domain(plan), dp.symmetric_distance()
        measurement = fpo.make_fitness_for_use(*space, plan)
        made = measurement(fp.Tables(DOMAIN, {("s",): [3, 4]}))
        assert made.rho == measurement.map(records)
        assert isinstance(made, Release)
        return made

    @pytest.mark.parametrize("records", [1, 3])
    def test_rho_is_for_all_records(self, records: int) -> None:
        record = fp.review(self.released(records))
        loss = record["deployment"]["privacy_loss"]
        assert Fraction(loss["privacy_parameters"]["rho"]) >= FIRST.rho_exact * records**2
        # Whether rows were left out, OpenDP's context knows and this release does not.
        assert f"at most {'one' if records == 1 else records} row" in loss["privacy_unit_details"]
        assert "Every matching row was counted" not in str(record)

    def test_they_are_written_and_read_back(self, tmp_path: Path) -> None:
        released = self.released(3)
        released.save(tmp_path / "out")
        again = Release.load(tmp_path / "out")
        assert (again.rho, again.limited, again.plan.unit) == (released.rho, None, fp.AddRemove(3))


def test_a_review_shows_the_noise_that_was_drawn() -> None:
    louder = Release(FIRST, np.zeros(FIRST.strategy.size, np.int64), FIRST.rho / 4, noise_scale=2.0)
    said = fp.review(louder)["deployment"]
    justified = said["implementation"]["justification"]
    assert "| 10 | 200% |" in justified
    assert "multiplied by 2" in justified
    assert format_up(FIRST.rho / 4, 6) in said["implementation"]["mechanisms"]


@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.005, 2 / 3, 1e-9, 123456.7])
def test_what_is_shown_is_on_the_safe_side(value: float) -> None:
    for digits in (2, 4, 6):
        assert float(format_up(value, digits).replace(",", "")) >= value * (1 - 2e-13)
        assert float(format_down(value, digits).replace(",", "")) <= value * (1 + 2e-13)
    assert format_up(0.005) == format_down(0.005) == "0.005"


class TestIdentifiers:
    """One person, stored in two ways, must not become two."""

    IDS = tuple(uuid.UUID(int=i) for i in range(5))

    def count(self, path: Path) -> int:
        tables = fpd.count(fp.Source(path, person="id"), (DOMAIN, [("s",)]), unit=fp.AddRemove(1))
        return int(tables["s",].sum())

    def test_bytes_and_text_are_not_mixed(self, tmp_path: Path) -> None:
        as_bytes = pa.array([i.bytes for i in self.IDS], pa.binary(16))
        pq.write_table(pa.table({"id": as_bytes, "s": ["1"] * 5}), tmp_path / "a.parquet")
        assert self.count(tmp_path) == 5
        texts = pa.array([str(i) for i in self.IDS])
        pq.write_table(pa.table({"id": texts, "s": ["1"] * 5}), tmp_path / "b.parquet")
        with pytest.raises(DataError, match="Store person identifiers as one type"):
            self.count(tmp_path)

    def test_uuids(self, tmp_path: Path) -> None:
        column = pa.array([i.bytes for i in self.IDS] * 2, pa.uuid())
        pq.write_table(pa.table({"id": column, "s": ["1", "2"] * 5}), tmp_path / "a.parquet")
        assert self.count(tmp_path) == 5


@pytest.mark.parametrize("at", range(6))
def test_line_ends_within_quotes_survive_the_edges_of_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Arrow drops a line feed that begins a block if the block before ended in a return."""
    monkeypatch.setattr(csv_text, "_BLOCK_BYTES", 64)
    rng = np.random.default_rng(at)
    cells = ["\r\n", "a\r\nb", "\r", "\n", "\r\r\n\n", "plain"]
    rows = [[cells[rng.integers(6)], "x" * int(rng.integers(30))] for _ in range(300)]
    with (tmp_path / "d.csv").open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
        writer.writerows([["cell", "filler"], *rows])
    domain = fp.Domain({"cell": cells})
    counted = fpd.count(tmp_path / "d.csv", (domain, [("cell",)]))["cell",]
    exact = [sum(row[0] == cell for row in rows) for cell in cells]
    assert counted.tolist() == exact


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("ftp://user:p@ss@host/x", "ss@"),
        ("ftp://user:pa/ss@host/x", "pa/ss"),
        ("ftp://user:pass@host/x", "pass"),
        ("http://host/x?token=abc#d", "abc"),
    ],
)
def test_no_part_of_a_password_is_shown(url: str, secret: str) -> None:
    assert secret not in locations.redact_url(url)


def test_files_whose_store_tells_nothing_of_their_content(tmp_path: Path) -> None:
    """Their counts are never met again: others of the same size would be taken for them."""

    class Silent:
        told: Mapping[str, Any] = MappingProxyType({})

        def invalidate_cache(self, path: str) -> None: ...

        def info(self, path: str) -> dict[str, Any]:
            return {"size": 5, "type": "file", **self.told}

        def ukey(self, path: str) -> str:
            return "of the name"

    silent = stores.FileSystemStore(Silent())
    assert silent.read_state("x")[1].startswith(stores.UNTRACKED)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("Last-Modified", "Content-MD5", "ETag"):
            patch.setattr(Silent, "told", {name: "v"})
            assert silent.read_state("x")[1] == f"{name}=v"
