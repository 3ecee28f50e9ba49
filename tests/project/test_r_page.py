"""The page about R: its blocks in the order of the page, by R itself where it is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fitplug as fp
from tests.helpers.pages import blocks, run_line
from tests.helpers.places import ROOT

PAGE = ROOT / "docs" / "howto" / "r.md"

WRITE = """
write.csv(pyramid, "read-by-r.csv", row.names = FALSE)
write.csv(answers, "answers-by-r.csv", row.names = FALSE)
cat("SHARE", format(c(share$value, share$std), digits = 17), "\\n")
if (exists("exact")) write.csv(exact, "exact-by-r.csv", row.names = FALSE)
"""


def has_package(name: str) -> bool:
    command = ["Rscript", "-e", f"quit(status = !requireNamespace('{name}', quietly = TRUE))"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def assert_is_table(path: Path, release: fp.Release, name: str, rtol: float) -> None:
    """What R wrote is the table of a group; rounded tables have 4 digits of the std."""
    found = pd.read_csv(path, dtype={"SEX": str})
    expected = release.to_pandas(name)
    assert list(found) == list(expected)
    for column in expected:
        if expected[column].dtype == float:
            atol = rtol * expected["std"].to_numpy()
            assert (np.abs(found[column] - expected[column]) <= atol).all(), column
        else:
            assert found[column].tolist() == expected[column].tolist()


@pytest.mark.slow
def test_r_runs_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("Rscript") is None or not has_package("reticulate"):
        pytest.skip("R with the package reticulate is not installed")
    ignored = shutil.ignore_patterns("release", "*.db*")
    shutil.copytree(ROOT / "examples/acs", tmp_path / "examples/acs", ignore=ignored)
    monkeypatch.chdir(tmp_path)
    script = []
    for block in blocks(PAGE):
        if block.language == "sh":
            for line in block.text.splitlines():
                run_line(line)
        elif "library(arrow)" not in block.text or has_package("arrow"):
            script.append(block.text)
    Path("page.R").write_text("\n".join(script) + WRITE, encoding="utf-8")
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "adapters")))
    ran = subprocess.run(
        ["Rscript", "page.R"],
        env=os.environ | {"RETICULATE_PYTHON": sys.executable, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr

    shown = fp.Release.load("examples/acs/release")
    assert_is_table(tmp_path / "read-by-r.csv", shown, "pyramid", 1e-3)
    if has_package("arrow"):
        assert_is_table(tmp_path / "exact-by-r.csv", shown, "pyramid", 1e-12)
    made = fp.Release.load("people-release")
    assert_is_table(tmp_path / "answers-by-r.csv", made, "pyramid", 1e-12)
    told = re.search(r"^SHARE +(\S+) +(\S+)", ran.stdout, re.MULTILINE)
    assert told is not None
    share = made.estimate("pyramid[sex = f, age <= 17] / total")
    assert [float(told[1]), float(told[2])] == pytest.approx([share.value, share.std], rel=1e-12)
    assert fp.Ledger("people.db").spent == made.rho
