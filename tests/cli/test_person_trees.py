"""The command line with a hierarchy and persons of several records: from rows to a ledger."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fitplug as fp
from fitplug.domain import get_codec
from tests.helpers.command_line import fitplug

SPEC = """
[data]
path = "people.parquet"
person = "ID"

[domain]
TRACT = { levels = { county = 3, tract = 6 }, codebook = "tracts.csv", column = "TRACT" }
MONTH = { integers = [1, 12] }

[[query]]
name = "tracts by month"
TRACT = "identity"
MONTH = "identity"
std = 3.0

[[query]]
name = "counties"
TRACT = "county"
std = 4.0

[[query]]
name = "months"
MONTH = "identity"
std = 2.0

[privacy]
unit = { records = 6, once_per = "MONTH" }

[ledger]
path = "budget.db"
rho = 100

[output]
path = "release/"
"""


@pytest.mark.slow
def test_a_run_keeps_a_record_a_month_and_charges_for_it(tmp_path: Path) -> None:
    tracts = [f"{county:03}{tract:03}" for county in range(30) for tract in range(2)]
    (tmp_path / "tracts.csv").write_text("TRACT\n" + "\n".join(tracts) + "\n", encoding="utf-8")
    rng = np.random.default_rng(0)
    rows = {
        "ID": rng.integers(0, 300, 4000),
        "TRACT": rng.choice(tracts, 4000),
        "MONTH": rng.integers(1, 13, 4000),
    }
    pq.write_table(pa.table(rows), tmp_path / "people.parquet")
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC, encoding="utf-8")
    ran = fitplug("run", spec)
    assert ran.code == 0, ran.err
    record = json.loads((tmp_path / "release/release.json").read_text())
    plan = fp.Plan.load(tmp_path / "release/plan.npz")
    cells = {"MONTH": get_codec(plan.domain["MONTH"]).digest}
    assert record["unit"] == {"records": 6, "once_per": "MONTH", "cells": cells}
    assert record["limited"] == "enforced"
    plan.verify()
    (entry,) = fp.Ledger(tmp_path / "budget.db").entries()
    assert float(entry.rho) == pytest.approx(plan.rho, rel=1e-9)
    ran = fitplug("report", spec)
    assert ran.code == 0, ran.err
    assert "at most 6, at most one in each cell of MONTH" in ran.out
    months = fp.Release.load(tmp_path / "release").estimates["months"]
    # Each of 300 persons has 6 of the 12 months at most.
    assert np.abs(months.sum() - 1800) < 6 * 2.0 * 12
