"""The check of exports: tables of the core pass, and each fault in an export is found."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fitplug as fp
from fitplug.testing import check_export, list_export_cases
from tests.helpers.third_party import write_lines

Rows = list[dict[str, Any]]


def read_arrow(release: fp.Release, _: Path) -> dict[str, Rows]:
    return {name: release.to_arrow(name).to_pylist() for name in release.plan.workload.names}


def read_polars(release: fp.Release, _: Path) -> dict[str, Rows]:
    return {name: release.to_polars(name).to_dicts() for name in release.plan.workload.names}


def read_tables(release: fp.Release, _: Path) -> dict[str, Rows]:
    return {
        name: [row for table in release.iter_tables(name) for row in table.to_pylist()]
        for name in release.plan.workload.names
    }


@pytest.mark.parametrize("case", list_export_cases())
@pytest.mark.parametrize("export", [read_arrow, read_polars, read_tables])
def test_tables_of_the_core_conform(export: Any, case: str) -> None:
    check_export(export, case)


def drop_a_row(rows: Rows) -> Rows:
    return rows[:-1]


def repeat_a_row(rows: Rows) -> Rows:
    return [*rows, rows[-1]]


def repeat_for_another(rows: Rows) -> Rows:
    return [*rows[:-1], rows[0]]


def round_numbers(rows: Rows) -> Rows:
    return [{**row, "estimate": round(row["estimate"], 6)} for row in rows]


def shift_labels(rows: Rows) -> Rows:
    return [{**one, "sex": two["sex"]} for one, two in zip(rows, np.roll(rows, 1), strict=True)]


def write_variances(rows: Rows) -> Rows:
    return [{**row, "std": row["std"] ** 2} for row in rows]


def widen_intervals(rows: Rows) -> Rows:
    return [{**row, "lower": row["lower"] - 1} for row in rows]


def leave_out_stds(rows: Rows) -> Rows:
    return [{key: value for key, value in row.items() if key != "std"} for row in rows]


FAULTS: dict[str, tuple[Callable[[Rows], Rows], str]] = {
    "a row lost": (drop_a_row, "pyramid: 11 rows, not 12"),
    "a row more": (repeat_a_row, "pyramid: 13 rows, not 12"),
    "a row for another": (repeat_for_another, r"the row of \('2', '0..5'\) is missing"),
    "digits lost": (round_numbers, r"pyramid: estimate of \('1', '0'\) is"),
    "labels of other rows": (shift_labels, "pyramid: "),
    "variances for stds": (write_variances, "pyramid: std of"),
    "other intervals": (widen_intervals, "pyramid: lower of"),
    "no stds": (leave_out_stds, "a row has no std"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    change, says = FAULTS[fault]

    def export(release: fp.Release, folder: Path) -> dict[str, Rows]:
        read = read_arrow(release, folder)
        return {**read, "pyramid": change(read["pyramid"])}

    with pytest.raises(AssertionError, match=f"queries of each kind: .*{says}"):
        check_export(export, "queries of each kind")


def test_public_totals_that_seem_noisy_are_found() -> None:
    def export(release: fp.Release, folder: Path) -> dict[str, Rows]:
        read = read_arrow(release, folder)
        return {name: [{**row, "protected": True} for row in rows] for name, rows in read.items()}

    check_export(export, "sums")
    with pytest.raises(AssertionError, match=r"all: protected of .* is True, not 0"):
        check_export(export, "public totals")


def test_a_group_that_is_missing_is_found() -> None:
    def export(release: fp.Release, folder: Path) -> dict[str, Rows]:
        read = read_arrow(release, folder)
        del read["incomes"]
        return read

    with pytest.raises(AssertionError, match=r"the groups are \['people'\], not \['incomes', "):
        check_export(export, "sums")


def test_a_seal_that_is_written_is_found() -> None:
    def export(release: fp.Release, folder: Path) -> dict[str, Rows]:
        (folder / "notes.txt").write_text(str(release.seal))
        return read_arrow(release, folder)

    with pytest.raises(AssertionError, match=r"notes.txt holds the sealed key"):
        check_export(export, "sums")


def read_lines(release: fp.Release, folder: Path) -> dict[str, Rows]:
    write_lines(release, folder)
    read = {}
    for number, name in enumerate(release.plan.workload.names):
        with (folder / f"{number}.csv").open(newline="", encoding="utf-8") as file:
            read[name] = list(csv.DictReader(file))
    return read


def test_an_export_of_a_third_party_conforms() -> None:
    check_export(read_lines)
