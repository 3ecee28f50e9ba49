"""The example in examples/opendp, as a new user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "examples" / "opendp" / "survey.py"


def test_it_runs_and_stays_within_the_budget():
    pytest.importorskip("polars")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "is over budget: the context has" in done.stdout
    found = re.search(r"spent: rho = ([0-9.]+) of ([0-9.]+)", done.stdout)
    assert found
    spent, budget = map(float, found.groups())
    assert 0.9 * budget < spent < budget
